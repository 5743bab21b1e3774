//! Bytes in and out, by the buffer protocol: whatever has it (bytes, bytearray, memoryview, arrays of numpy) is taken as it lies, and what is given can be read as an
//! array without another copy.

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// From so many bytes on sharing is cheaper than copying.
const SHARED_BYTES_MIN: usize = 8 << 10;

/// Bytes that the library owns and Python reads in place. `memoryview(payload)`, `numpy.frombuffer(payload, dtype)` and `bytes(payload)` read it.
#[pyclass(frozen, module = "forebay")]
pub struct Payload {
    bytes: Vec<u8>,
}

#[pymethods]
impl Payload {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// # Safety
    /// Python gives a view that may be written.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        let (start, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the view is one to be filled; the bytes stay where they are while `slf` lives, of which the view holds a reference, and read-only is asked for.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// These bytes as a memoryview over what the library owns: nothing is copied, and they are gone when the last view of them is.
pub fn view(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Py<PyMemoryView>> {
    let payload = Bound::new(py, Payload { bytes })?;
    Ok(PyMemoryView::from(payload.as_any())?.unbind())
}

/// Bytes of a caller, held while they are used.
pub enum Given {
    /// Those of a `bytes` object, which never change.
    Fixed(PyBackedBytes),
    /// Those of anything else.
    Other(Held),
}

/// A buffer that lies together.
pub struct Held(PyUntypedBuffer);

impl Held {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Held> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.is_c_contiguous() {
            Ok(Held(buffer))
        } else {
            Err(PyBufferError::new_err(
                "the bytes do not lie together in memory; nothing was taken. Give a contiguous array (numpy.ascontiguousarray)",
            ))
        }
    }

    fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous and stays where it is while it is held. That no other thread writes to it during a call is asked of callers, as by all of
        // Python that lets others run while it uses a buffer.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

impl Given {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Given::Fixed(bytes) => bytes,
            Given::Other(held) => held.bytes(),
        }
    }

    /// The same to be kept beyond the call, if that is worth it.
    pub fn shared(self) -> Result<Bytes, Given> {
        match self {
            Given::Fixed(bytes) if bytes.len() >= SHARED_BYTES_MIN => Ok(Bytes::from_owner(bytes)),
            other => Err(other),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Given::Fixed(bytes.to_owned().into()));
        }
        Held::of(&object).map(Given::Other)
    }
}

/// Room of a caller that is written to.
pub struct Room(Held);

impl Room {
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.0.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as of what is read, and it may be written.
        unsafe { std::slice::from_raw_parts_mut(self.0.0.buf_ptr().cast(), self.0.0.len_bytes()) }
    }
}

impl<'py> FromPyObject<'_, 'py> for Room {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let held = Held::of(&object)?;
        if held.0.readonly() {
            return Err(PyTypeError::new_err(
                "bytes cannot be read into what may not be written; give a bytearray or a writable array",
            ));
        }
        Ok(Room(held))
    }
}
