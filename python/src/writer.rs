//! A file that is written.

use forebay_client::files::{FileError, FileWriter};
use pyo3::prelude::*;

use crate::buffer::Given;
use crate::errors;
use crate::reader::sought;
use crate::shared::Shared;

/// A file that is open for writing. Unless it is closed it is not sealed: what was acknowledged stays in it.
#[pyclass(frozen, module = "forebay")]
pub struct Writer {
    file: Shared<FileWriter>,
    /// The server chooses where bytes go.
    append: bool,
}

impl Writer {
    pub fn new(file: FileWriter, append: bool) -> Self {
        Writer { file: Shared::new(file), append }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut FileWriter) -> Result<T, FileError> + Send,
    ) -> PyResult<T> {
        self.file.run(py, work)?.map_err(errors::of_file)
    }

    /// Ends it by `end`, and lets it go when that was done.
    fn end(&self, py: Python<'_>, end: impl FnOnce(&mut FileWriter) -> Result<(), FileError> + Send) -> PyResult<()> {
        if self.file.is_taken(py) {
            return Ok(());
        }
        self.run(py, end)?;
        let file = self.file.take(py)?;
        py.detach(|| drop(file));
        Ok(())
    }
}

#[pymethods]
impl Writer {
    /// Writes all bytes of a contiguous buffer at the file's own place, and goes on behind them; says how many. They are durable when `sync` or `close` says so.
    ///
    /// Raises:
    ///     forebay.NoSpace: the store is full; what was not acknowledged is kept and sent again with the next call.
    ///     forebay.Conflict: another writer wrote there.
    fn write(&self, py: Python<'_>, buffer: Given) -> PyResult<usize> {
        let bytes = buffer.bytes();
        self.run(py, |file| file.write(bytes))?;
        Ok(bytes.len())
    }

    /// Writes all bytes of a buffer from byte `offset` on; the file's own place stays.
    fn pwrite(&self, py: Python<'_>, offset: u64, buffer: Given) -> PyResult<usize> {
        let bytes = buffer.bytes();
        self.run(py, |file| file.write_at(offset, bytes))?;
        Ok(bytes.len())
    }

    /// Waits until all that was written is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, FileWriter::sync)
    }

    /// Changes how long the file is, when all that was written is durable: what is cut is gone, what is added holds zeros.
    fn truncate(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        self.run(py, |file| file.set_length(length))
    }

    /// Says where to write on.
    #[pyo3(signature = (offset, whence = 0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let (position, length) = self.file.run(py, |file| (file.position(), file.length()))?;
        let position = sought(offset, whence, position, length)?;
        if self.append && position != length {
            return Err(errors::value("a file that is appended to is written at its end alone".to_owned()));
        }
        self.file.run(py, |file| file.set_position(position))?;
        Ok(position)
    }

    /// Where it writes on.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.position())
    }

    /// How long the file is with all that was written.
    fn length(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.length())
    }

    /// Bytes that were written and are durable.
    fn acknowledged_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.file.run(py, |file| file.acknowledged_bytes())
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

    /// Waits until all is durable, seals the file unless it was opened otherwise, and says that this writer is done.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, FileWriter::close)
    }

    /// Says that this writer is done, whatever became of what it wrote; nothing is sealed.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, FileWriter::abandon)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind = None, error = None, trace = None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (error, trace);
        // What an error cut short must not look whole.
        if kind.is_some() { self.abandon(py) } else { self.close(py) }
    }
}
