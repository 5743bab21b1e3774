//! What a copy is written to.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use forebay_client::files::{FileError, FileWriter, Files, ReadOptions, WriteOptions, escape};
use forebay_mover::{Summer, Sums};
use forebay_types::NodeKind;
use tempfile::{Builder, NamedTempFile};

use super::chunks::CHUNK_BYTES;
use super::place::Place;
use super::source::difference;
use crate::failure::Failure;
use crate::file::owner;
use crate::file::path::{directory_of, join, shown};
use crate::file::told::Trouble;
use crate::size::human_count;

/// A sink.
pub enum Sink<'a> {
    /// A local file, which gets its name when it is whole.
    Local { file: NamedTempFile, path: PathBuf, force: bool },
    /// What is there and is no plain file, a pipe say: it is written to.
    Special { file: File, path: PathBuf },
    /// A file of the store.
    Store(Box<StoreSink<'a>>),
}

/// A file of the store that is written.
pub struct StoreSink<'a> {
    files: &'a Files,
    writer: FileWriter,
    path: Vec<u8>,
    /// What it is called until it is whole, where something has its name.
    temporary: Option<Vec<u8>>,
}

impl Sink<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// Why it cannot be written; nothing is there then.
    pub fn create<'a>(files: &'a Files, place: &Place, mode: u16, force: bool) -> Result<Sink<'a>, Trouble> {
        match place {
            Place::Standard => Err(Failure::usage("nothing is copied to stdout").into()),
            Place::Local(path) => Ok(create_local(path, mode, force)?),
            Place::Store(path) => Ok(Sink::Store(Box::new(StoreSink::create(files, path, mode, force)?))),
        }
    }

    /// Writes on.
    ///
    /// # Errors
    /// Why not, and what is left.
    pub fn write(&mut self, bytes: Bytes) -> Result<(), Trouble> {
        match self {
            Sink::Local { file, path, .. } => file.write_all(&bytes).map_err(|error| unwritten(path, &error).into()),
            Sink::Special { file, path } => file.write_all(&bytes).map_err(|error| unwritten(path, &error).into()),
            Sink::Store(sink) => sink.writer.write_shared(bytes).map_err(|error| sink.failed(error)),
        }
    }

    /// All of it is there: it is durable, compared, and gets its name.
    ///
    /// # Errors
    /// Why not, and what is left.
    pub fn finish(self, sums: &Sums) -> Result<(), Trouble> {
        match self {
            Sink::Local { file, path, force } => {
                file.as_file().sync_all().map_err(|error| unwritten(&path, &error))?;
                let named = if force { file.persist(&path) } else { file.persist_noclobber(&path) };
                match named {
                    Ok(_) => Ok(()),
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(taken(&path).into()),
                    Err(error) => Err(unwritten(&path, &error.error).into()),
                }
            }
            Sink::Special { .. } => Ok(()),
            Sink::Store(sink) => sink.finish(sums),
        }
    }

    /// Nothing is left of it, as there is no more to write.
    pub fn discard(self) {
        if let Sink::Store(sink) = self {
            sink.discard();
        }
    }
}

fn create_local(path: &Path, mode: u16, force: bool) -> Result<Sink<'static>, Failure> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let message = "it is a directory; nothing was copied. Remove it, or copy to another name";
            return Err(Failure::usage(format!("{}: {message}", path.display())));
        }
        Ok(metadata) if !metadata.is_file() => {
            let file = OpenOptions::new().write(true).open(path).map_err(|error| unwritten(path, &error))?;
            return Ok(Sink::Special { file, path: path.to_owned() });
        }
        _ if !force && fs::symlink_metadata(path).is_ok() => return Err(taken(path)),
        _ => {}
    }
    let file = temporary_file()
        .permissions(Permissions::from_mode(mode.into()))
        .tempfile_in(parent(path))
        .map_err(|error| unwritten(path, &error))?;
    Ok(Sink::Local { file, path: path.to_owned(), force })
}

/// How what is not whole is called.
pub fn temporary_file() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".forebay-").suffix(".part");
    builder
}

/// The directory in which a local path has its name.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A local name that something has.
pub fn taken(path: &Path) -> Failure {
    Failure::usage(format!(
        "{}: the name is taken; what has it was not changed, and nothing was copied. Give --force to replace it",
        path.display()
    ))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::file("write", path, error, "what has that name is as it was, and in the store nothing was changed")
}

/// A name beside a path of the store that nothing has.
///
/// # Errors
/// When the system has no random numbers.
pub fn temporary_path(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let number = getrandom::u64()
        .map_err(|error| Failure::retry(format!("the system has no random numbers: {error}; nothing was copied")))?;
    Ok(join(directory_of(path), format!(".forebay-{number:016x}.part").as_bytes()))
}

impl StoreSink<'_> {
    fn create<'a>(files: &'a Files, path: &[u8], mode: u16, force: bool) -> Result<StoreSink<'a>, Trouble> {
        let options = WriteOptions { owner: owner(mode), ..WriteOptions::default() };
        let (writer, temporary) = match files.create(path, &options) {
            Err(FileError::Exists { .. }) if force => {
                if files.lookup_link(path)?.view.kind == NodeKind::Directory {
                    return Err(FileError::IsDirectory { path: escape(path) }.into());
                }
                let temporary = temporary_path(path)?;
                let created = files.create(&temporary, &options).map_err(|error| {
                    let message = format!("{}: what is to take its place cannot be made: {error}", shown(path));
                    Trouble::from(error).in_words(message)
                })?;
                (created, Some(temporary))
            }
            Err(FileError::Exists { .. }) => {
                let message = "the name is taken; what has it was not changed, and nothing was copied. Give --force to replace it";
                return Err(Failure::usage(format!("{}: {message}", shown(path))).into());
            }
            created => (created?, None),
        };
        Ok(StoreSink { files, writer, path: path.to_vec(), temporary })
    }

    fn written_path(&self) -> &[u8] {
        self.temporary.as_ref().unwrap_or(&self.path)
    }

    /// Why it was not written, and what is left.
    fn failed(&mut self, error: FileError) -> Trouble {
        let why = match &error {
            FileError::NoSpace { .. } => "the store is full".to_owned(),
            FileError::IndexFull { .. } => "the memory of the server for its index is used up".to_owned(),
            FileError::Unavailable { .. } => "drives of the store are missing (`forebay status`)".to_owned(),
            other => other.to_string(),
        };
        let answers = !matches!(error, FileError::Client { .. }) && self.writer.abandon().is_ok();
        let is_there = !matches!(error, FileError::Removed { .. });
        let left = match &self.temporary {
            _ if !is_there => "Nothing of the copy is left".to_owned(),
            Some(temporary) if answers && self.files.remove(temporary).is_ok() => {
                "What has that name is as it was, and nothing of the copy is left. Copy it again when that has passed"
                    .to_owned()
            }
            Some(temporary) => format!(
                "What has that name is as it was; the copy is left as {}, and not sealed. Remove it, and copy again when that has passed",
                shown(temporary)
            ),
            None => format!(
                "{} bytes of the copy are safe, in a file that is not sealed and has zeros where others before them were not taken. Copy it again with --force when that has \
                 passed, or remove it",
                human_count(self.writer.acknowledged_bytes())
            ),
        };
        Trouble::from(error).in_words(format!("{}: {why}. {left}", shown(&self.path)))
    }

    fn finish(mut self, sums: &Sums) -> Result<(), Trouble> {
        if let Err(error) = self.writer.close() {
            return Err(self.failed(error));
        }
        if let Some(difference) = self.difference(sums)? {
            let message = format!(
                "{}: the copy has other bytes than were sent, and was removed: {difference}. Copy it again; when it stays so, report it with the \
                 server's log",
                shown(&self.path)
            );
            self.discard();
            return Err(Failure::data(message).into());
        }
        if let Some(temporary) = &self.temporary {
            self.files.rename(temporary, &self.path, true)?;
        }
        Ok(())
    }

    /// How the sealed file differs from what was sent. Of one whose sums are not known yet all is read.
    fn difference(&self, sums: &Sums) -> Result<Option<String>, FileError> {
        let info = self.files.infos(&[self.writer.node().number])?.pop().expect("one answer for one file");
        let found = difference(sums, &info);
        if found.is_some() || info.sums.is_some() {
            return Ok(found);
        }
        let mut reader = self.files.open_read(self.written_path(), &ReadOptions::default())?;
        let (mut read, mut chunk) = (Summer::default(), vec![0; CHUNK_BYTES]);
        loop {
            match reader.read(&mut chunk)? {
                0 => break,
                count => read.update(&chunk[..count]),
            }
        }
        reader.close()?;
        let Sums { crc32c, adler32, .. } = read.sums();
        Ok(difference(sums, &forebay_client::files::FileInfo { sums: Some((crc32c, adler32)), ..info }))
    }

    fn discard(mut self) {
        // Who reads the message that follows sees what is left when the store takes nothing now.
        let _ = self.writer.abandon().and_then(|()| self.files.remove(self.written_path()));
    }
}
