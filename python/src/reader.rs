//! A file that is read.

use forebay_client::files::{FileError, FileReader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Room;
use crate::errors;
use crate::shared::Shared;

/// Of a file that may have grown so many bytes are asked for behind the end that is known.
const GROWN_BYTES: usize = 64 << 10;

/// Bytes of Python, read where they lie. They are made once: `fill` writes to what is given back, and says how far.
pub fn bytes_at<'py>(
    py: Python<'py>,
    count: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut found = 0;
    let bytes = PyBytes::new_with(py, count, |room| {
        found = fill(room)?;
        Ok(())
    })?;
    if found == count { Ok(bytes) } else { Ok(PyBytes::new(py, &bytes.as_bytes()[..found])) }
}

/// Where to go on, from a place, as `io` counts it: 0 from the beginning, 1 from here, 2 from the end.
pub fn sought(offset: i64, whence: i32, position: u64, length: u64) -> PyResult<u64> {
    let from = match whence {
        0 => 0,
        1 => position,
        2 => length,
        _ => return Err(PyValueError::new_err(format!("whence {whence} is none of 0, 1, 2"))),
    };
    from.checked_add_signed(offset)
        .ok_or_else(|| PyValueError::new_err(format!("{offset} bytes from byte {from} lie before the file")))
}

/// A file that is open for reading.
#[pyclass(frozen, module = "forebay")]
pub struct Reader {
    file: Shared<FileReader>,
}

impl Reader {
    pub fn new(file: FileReader) -> Self {
        Reader { file: Shared::new(file) }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut FileReader) -> Result<T, FileError> + Send,
    ) -> PyResult<T> {
        self.file.run(py, work)?.map_err(errors::of_file)
    }

    /// How many of `size` bytes from there on there may be; all when it is not said how many.
    fn room(&self, py: Python<'_>, from: Option<u64>, size: Option<usize>) -> PyResult<usize> {
        let left = self.file.run(py, |file| file.length().saturating_sub(from.unwrap_or(file.position())))? as usize;
        Ok(size.map_or(left, |size| size.min(left.max(GROWN_BYTES))))
    }
}

/// Reads at the file's own place, and goes on behind it.
fn read_on(file: &mut FileReader, room: &mut [u8]) -> Result<usize, FileError> {
    let at = file.position();
    let count = file.read_at(at, room)?;
    file.set_position(at + count as u64);
    Ok(count)
}

#[pymethods]
impl Reader {
    /// Reads up to `size` bytes at the file's own place, and goes on behind them; all that is left when `size` is None or negative. Fewer come only where the file
    /// ends now, none at its end.
    ///
    /// Raises:
    ///     forebay.FileError: with the code "lost" or "out-of-reach"; what comes before can be read.
    #[pyo3(signature = (size = None))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let size = size.and_then(|size| usize::try_from(size).ok());
        let count = self.room(py, None, size)?;
        bytes_at(py, count, |room| self.run(py, |file| read_on(file, room)))
    }

    /// Reads into a writable contiguous buffer of any dtype and shape, as much as there is room for, without a copy by Python; says how many bytes, fewer only where
    /// the file ends now.
    fn readinto(&self, py: Python<'_>, mut buffer: Room) -> PyResult<usize> {
        let room = buffer.bytes();
        self.run(py, |file| read_on(file, room))
    }

    /// Reads up to `size` bytes from byte `offset` on; the file's own place stays.
    fn pread<'py>(&self, py: Python<'py>, offset: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let count = self.room(py, Some(offset), Some(size))?;
        bytes_at(py, count, |room| self.run(py, |file| file.read_at(offset, room)))
    }

    /// Reads from byte `offset` on into a writable buffer; the file's own place stays.
    fn preadinto(&self, py: Python<'_>, offset: u64, mut buffer: Room) -> PyResult<usize> {
        let room = buffer.bytes();
        self.run(py, |file| file.read_at(offset, room))
    }

    /// Says where to read on, bytes: from the beginning (`whence` 0), from here (1), from the end as far as it is known (2).
    #[pyo3(signature = (offset, whence = 0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let (position, length) = self.file.run(py, |file| (file.position(), file.length()))?;
        let position = sought(offset, whence, position, length)?;
        self.file.run(py, |file| file.set_position(position))?;
        Ok(position)
    }

    /// Where it reads on.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.position())
    }

    /// How long the file is, as far as this reader knows.
    fn length(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.length())
    }

    /// The number of the file.
    fn number(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.node().number.0)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.file.is_taken(py)
    }

    /// Says that this reader is done.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.file.take(py)? {
            Some(file) => py.detach(|| file.close()).map_err(errors::of_file),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
