//! `forebay.Files`: names and bytes.

mod copy;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_client::files::{self as native, Detail, FileError, Owner, ReadOptions, WriteOptions};
use forebay_types::SetAttributes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::process::{getgid, getuid};

use crate::client::{config, parsed, seconds};
use crate::errors;
use crate::reader::{self, Reader};
use crate::shared::Shared;
use crate::status::Status;
use crate::writer::Writer;

/// Between two looks at a file whose sums are being computed.
const SUMS_PAUSE: Duration = Duration::from_millis(20);

/// A path: text, bytes, or what has `__fspath__`.
pub struct Path(Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Path {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Path(bytes.as_bytes().to_vec())),
            Err(_) => Ok(Path(object.extract::<PathBuf>()?.into_os_string().into_vec())),
        }
    }
}

/// Whose something new is: of who runs this process.
fn owner(mode: u16) -> Owner {
    Owner { mode, owner: getuid().as_raw(), group: getgid().as_raw() }
}

/// The files of a store. Paths are str, bytes or os.PathLike, from the root of the store; what is no UTF-8 is kept as `os.fsencode` has it.
///
/// What it opens shares its connections: threads that are to work at the same time have a Files each. Other threads of Python run while a method waits. The
/// arguments are those of Client.
///
/// Raises:
///     forebay.FileError: of any method; a subclass of OSError, with its errno, and where Python has one of its own for it also of that (FileNotFoundError,
///         FileExistsError, ..).
#[pyclass(frozen, module = "forebay")]
pub struct Files {
    files: Shared<native::Files>,
}

impl Files {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&native::Files) -> Result<T, FileError> + Send,
    ) -> PyResult<T> {
        self.files.run(py, |files| ask(files))?.map_err(errors::of_file)
    }
}

#[pymethods]
impl Files {
    #[new]
    #[pyo3(signature = (address = "127.0.0.1:7420", *, name = "python", deadline_s = Some(60.0), klass = "mover", must_listen = true))]
    fn new(
        py: Python<'_>,
        address: &str,
        name: &str,
        deadline_s: Option<f64>,
        klass: &str,
        must_listen: bool,
    ) -> PyResult<Files> {
        let config = config(address, name, deadline_s, klass, must_listen)?;
        let files = py.detach(|| native::Files::connect(config)).map_err(errors::of_client)?;
        Ok(Files { files: Shared::new(files) })
    }

    /// Opens a file for reading; symbolic links are followed. While it is read in order, `ahead_bytes` of what follows are on their way.
    ///
    /// Raises:
    ///     forebay.NotFound, forebay.IsDirectory.
    #[pyo3(signature = (path, *, ahead_bytes = 8 << 20))]
    fn open_read(&self, py: Python<'_>, path: Path, ahead_bytes: usize) -> PyResult<Reader> {
        let reader = self.ask(py, |files| files.open_read(&path.0, &ReadOptions { ahead_bytes }))?;
        Ok(Reader::new(reader))
    }

    /// Makes a file that is not there yet, and opens it for writing.
    ///
    /// Args:
    ///     append: the server chooses where bytes go: where the file ends when they come, behind what others wrote meanwhile.
    ///     seal: whether closing seals the file: it never changes again then, and its sums are kept.
    ///     mode: its permissions. It belongs to the user of this process.
    ///     unanswered_bytes: so many are on their way before writing waits.
    ///     patience_s: how long a full store, or one that lacks drives, is tried again before that is told, seconds; None as long as `deadline_s`.
    ///
    /// Raises:
    ///     forebay.Exists: write another one, and rename it over this one.
    #[pyo3(signature = (path, *, append = false, seal = true, mode = 0o644, unanswered_bytes = 16 << 20, patience_s = None))]
    #[expect(clippy::too_many_arguments, reason = "each has a name and a default in Python")]
    fn create(
        &self,
        py: Python<'_>,
        path: Path,
        append: bool,
        seal: bool,
        mode: u16,
        unanswered_bytes: usize,
        patience_s: Option<f64>,
    ) -> PyResult<Writer> {
        let patience = patience_s.map(seconds).transpose()?;
        let options = WriteOptions { owner: owner(mode), append, seal, unanswered_bytes, patience };
        Ok(Writer::new(self.ask(py, |files| files.create(&path.0, &options))?, append))
    }

    /// Opens a file that is there for writing, behind what it holds; the arguments are those of `create`.
    ///
    /// Raises:
    ///     forebay.NotFound, forebay.Sealed.
    #[pyo3(signature = (path, *, append = false, seal = true, unanswered_bytes = 16 << 20, patience_s = None))]
    fn open_write(
        &self,
        py: Python<'_>,
        path: Path,
        append: bool,
        seal: bool,
        unanswered_bytes: usize,
        patience_s: Option<f64>,
    ) -> PyResult<Writer> {
        let patience = patience_s.map(seconds).transpose()?;
        let options = WriteOptions { append, seal, unanswered_bytes, patience, ..WriteOptions::default() };
        Ok(Writer::new(self.ask(py, |files| files.open_write(&path.0, &options))?, append))
    }

    /// Parts of a file: for each pair of its first byte and the one behind it, bytes, fewer where the file ends before. The file is opened once, and nothing is read
    /// ahead.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        path: Path,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let mut file = self.ask(py, |files| files.open_read(&path.0, &ReadOptions::default()))?;
        let parts = ranges.iter().map(|(start, end)| {
            let count = end.min(&file.length()).saturating_sub(*start);
            reader::bytes_at(py, count as usize, |room| {
                py.detach(|| file.read_part(*start, room)).map_err(errors::of_file)
            })
        });
        let parts = parts.collect();
        py.detach(|| drop(file));
        parts
    }

    /// What is known of what a path stands for; with `follow=False` of a link itself.
    #[pyo3(signature = (path, *, follow = true))]
    fn stat(&self, py: Python<'_>, path: Path, follow: bool) -> PyResult<Status> {
        let status = self.ask(py, |files| match follow {
            true => files.stat(&path.0),
            false => files.stat_link(&path.0),
        })?;
        Ok(Status::of(&path.0, &status))
    }

    /// Whether a path stands for something.
    fn exists(&self, py: Python<'_>, path: Path) -> PyResult<bool> {
        self.ask(py, |files| match files.lookup(&path.0) {
            Ok(_) => Ok(true),
            Err(FileError::NotFound { .. } | FileError::NotDirectory { .. }) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// What is in a directory, in the order of the bytes of its names. Mode, owner, times of what is no file are asked for with `attributes` alone: a request for each.
    #[pyo3(signature = (path = Path(b"/".to_vec()), *, attributes = false))]
    fn list(&self, py: Python<'_>, path: Path, attributes: bool) -> PyResult<Vec<Status>> {
        let detail = if attributes { Detail::All } else { Detail::Sizes };
        self.ask(py, |files| files.list(&path.0, detail)?.map(|entry| Ok(Status::listed(&entry?))).collect())
    }

    /// Makes a directory; with `parents` also those on the way to it, and it may be there.
    #[pyo3(signature = (path, *, parents = false, mode = 0o755))]
    fn mkdir(&self, py: Python<'_>, path: Path, parents: bool, mode: u16) -> PyResult<()> {
        self.ask(py, |files| {
            let made = if parents {
                files.make_directories(&path.0, &owner(mode))
            } else {
                files.make_directory(&path.0, &owner(mode))
            };
            made.map(drop)
        })
    }

    /// Takes the name of something that is no directory away. The bytes of a file are gone when it has no other name and nobody has it open.
    fn remove(&self, py: Python<'_>, path: Path) -> PyResult<()> {
        self.ask(py, |files| files.remove(&path.0))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: Path) -> PyResult<()> {
        self.ask(py, |files| files.remove_directory(&path.0))
    }

    /// Gives something another name, in one step: also after a crash it has one of both. With `replace` what has that name gives way.
    ///
    /// Raises:
    ///     forebay.Exists: the name is taken, and `replace` was not given.
    #[pyo3(signature = (source, target, *, replace = false))]
    fn rename(&self, py: Python<'_>, source: Path, target: Path, replace: bool) -> PyResult<()> {
        self.ask(py, |files| files.rename(&source.0, &target.0, replace))
    }

    /// Makes a symbolic link at `path` that leads to `target`, which need not be there.
    fn symlink(&self, py: Python<'_>, target: Path, path: Path) -> PyResult<()> {
        self.ask(py, |files| files.symlink(&target.0, &path.0, &owner(0o777)).map(drop))
    }

    /// Says when a file was written, nanoseconds since 1970.
    fn set_written(&self, py: Python<'_>, path: Path, unix_ns: i64) -> PyResult<()> {
        let set = SetAttributes { written_unix_ns: Some(unix_ns), ..SetAttributes::default() };
        self.ask(py, |files| files.set(&path.0, &set))
    }

    /// Seals a file: it never changes again, and its sums are kept.
    fn seal(&self, py: Python<'_>, path: Path) -> PyResult<()> {
        self.ask(py, |files| files.seal(&path.0))
    }

    /// Copies a file within the store, through this client. The copy is sealed and its sums are compared; with `replace` what has the name gives way when it is whole.
    ///
    /// Raises:
    ///     forebay.Exists: the name is taken, and `replace` was not given.
    #[pyo3(signature = (source, target, *, replace = false))]
    fn copy(&self, py: Python<'_>, source: Path, target: Path, replace: bool) -> PyResult<()> {
        let is_same = self.ask(py, |files| copy::copy(files, &source.0, &target.0, &owner(0o644), replace))?;
        if is_same { Ok(()) } else { Err(errors::copy_differs(&native::escape(&target.0))) }
    }

    /// A sum of all bytes of a sealed file, as a number of 32 bits. Behind a restart of the server it may be computed only now: `wait_s` seconds are waited for it.
    ///
    /// Args:
    ///     algorithm: "crc32c" or "adler32".
    ///
    /// Raises:
    ///     forebay.NoSums: the file is not sealed, or its sums are not known in that time (`retryable`).
    #[pyo3(signature = (path, algorithm = "crc32c", *, wait_s = 10.0))]
    fn checksum(&self, py: Python<'_>, path: Path, algorithm: &str, wait_s: f64) -> PyResult<u32> {
        let wants_adler32 = match algorithm {
            "adler32" => true,
            "crc32c" => false,
            other => {
                return Err(errors::value(format!("{other:?} is no sum that is kept; give \"adler32\" or \"crc32c\"")));
            }
        };
        let (since, wait) = (Instant::now(), seconds(wait_s)?);
        loop {
            let info = self.ask(py, |files| files.stat(&path.0))?.info;
            let is_sealed = info.as_ref().is_some_and(|info| info.sealed);
            match info.and_then(|info| info.sums) {
                Some((crc32c, adler32)) => return Ok(if wants_adler32 { adler32 } else { crc32c }),
                None if !is_sealed || since.elapsed() >= wait => {
                    return Err(errors::no_sums(&native::escape(&path.0), is_sealed));
                }
                None => py.detach(|| std::thread::sleep(SUMS_PAUSE)),
            }
            py.check_signals()?;
        }
    }

    /// The state of the server.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = self.files.run(py, |files| files.with_client(forebay_client::Client::status))?;
        parsed(py, &json.map_err(errors::of_client)?)
    }

    /// Where a link leads.
    fn readlink(&self, py: Python<'_>, path: Path) -> PyResult<Option<OsString>> {
        Ok(self.stat(py, path, false)?.target.clone())
    }

    /// Ends the connections, when all files that were opened by it are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let files = self.files.take(py)?;
        py.detach(|| drop(files));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
