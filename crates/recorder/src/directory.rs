//! The directory of a stream: does what the machine asks for, and decides nothing.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this module is the machine's hands")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::digest::{Digest, Digester};
use crate::journal::{self, JOURNAL_BYTES_MAX, JournalError, Line};
use crate::machine::Found;
use crate::names::{FileName, JOURNAL_NAME};
use crate::sidecar::Sidecar;

const WRITE_BUFFER_BYTES: usize = 1 << 20;
const JOURNAL_PART_NAME: &str = ".forebay-record.journal.part";

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}. No event of an unfinished file was released, the store still holds them. {}", .path.display(), advice(.source))]
    Io {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The journal cannot be trusted.
    #[error("{}: {source}", .path.display())]
    Journal {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        source: JournalError,
    },
    /// The journal is larger than any journal should be.
    #[error(
        "{}: a journal of {bytes} bytes, expected at most {JOURNAL_BYTES_MAX}; nothing was written or released. Use another directory",
        .path.display()
    )]
    JournalTooLarge {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room on that file system, then start again",
        io::ErrorKind::ReadOnlyFilesystem => "Mount it writable or use another directory, then start again",
        io::ErrorKind::PermissionDenied => "Let this user write there or use another directory, then start again",
        _ => "Look at that file system and its disk, then start again",
    }
}

type Result<T> = std::result::Result<T, DirectoryError>;

struct Writing {
    file: BufWriter<File>,
    digester: Digester,
}

/// A stream's directory.
pub struct StreamDirectory {
    path: PathBuf,
    handle: File,
    /// Made with its first line: a directory that is refused gets none.
    journal: Option<File>,
    writing: BTreeMap<FileName, Writing>,
}

impl StreamDirectory {
    /// Opens the directory, making it when it is not there, and says what it holds. A torn last line of
    /// the journal is cut off.
    ///
    /// # Errors
    /// What the operating system says, or a damaged journal.
    pub fn open(path: &Path) -> Result<(StreamDirectory, Found)> {
        make_directory(path)?;
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { action, path, source }
        };
        let handle = File::open(path).map_err(io("open", path))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(io("list", path))? {
            let entry = entry.map_err(io("list", path))?;
            names.extend(entry.file_name().into_string());
        }
        let journal_path = path.join(JOURNAL_NAME);
        let exists = names.iter().any(|name| name == JOURNAL_NAME);
        let mut found = Found { names, ..Found::default() };
        let mut journal = None;
        if exists {
            let (lines, good_bytes) = read_journal(&journal_path)?;
            // An empty journal is one whose first line did not become durable.
            found.journal = (good_bytes > 0).then_some(lines);
            found.journal_bytes = good_bytes;
            let cut = || {
                let file = OpenOptions::new().append(true).open(&journal_path)?;
                if file.metadata()?.len() != good_bytes {
                    file.set_len(good_bytes)?;
                    file.sync_all()?;
                }
                Ok(file)
            };
            journal = Some(cut().map_err(io("write", &journal_path))?);
        }
        let directory = StreamDirectory { path: path.to_owned(), handle, journal, writing: BTreeMap::new() };
        Ok((directory, found))
    }

    /// The path of an entry.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn at<T>(&self, action: &'static str, name: &str, result: io::Result<T>) -> Result<T> {
        result.map_err(|source| DirectoryError::Io { action, path: self.path_of(name), source })
    }

    /// [`crate::machine::Step::Create`].
    pub fn create(&mut self, file: FileName) -> Result<()> {
        let name = file.part();
        let created = OpenOptions::new().write(true).create_new(true).open(self.path_of(&name));
        let handle = self.at("create", &name, created)?;
        let writing =
            Writing { file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, handle), digester: Digester::default() };
        self.writing.insert(file, writing);
        Ok(())
    }

    /// [`crate::machine::Step::Append`], one event.
    pub fn append(&mut self, file: FileName, bytes: &[u8]) -> Result<()> {
        let writing = self.writing.get_mut(&file).expect("a file is created before it is written");
        writing.digester.update(bytes);
        let written = writing.file.write_all(bytes);
        self.at("write", &file.part(), written)
    }

    /// [`crate::machine::Step::Sync`].
    pub fn sync(&mut self, file: FileName) -> Result<Digest> {
        let mut writing = self.writing.remove(&file).expect("a file is created before it is synced");
        let synced = writing.file.flush().and_then(|()| writing.file.get_ref().sync_all());
        self.at("write", &file.part(), synced)?;
        Ok(writing.digester.digest())
    }

    /// Renames an entry.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.at("rename", from, fs::rename(self.path_of(from), self.path_of(to)))
    }

    /// Removes an entry; one that is not there is as good.
    pub fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path_of(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => self.at("remove", name, removed),
        }
    }

    /// [`crate::machine::Step::SyncDirectory`].
    pub fn sync_directory(&self) -> Result<()> {
        self.at("sync", "", self.handle.sync_all())
    }

    /// [`crate::machine::Step::WriteSidecar`].
    pub fn write_sidecar(&self, sidecar: &Sidecar) -> Result<()> {
        let name = sidecar.file_name().sidecar_part();
        let write = || {
            let mut file = File::create(self.path_of(&name))?;
            file.write_all(&sidecar.to_json())?;
            file.sync_all()
        };
        self.at("write", &name, write())
    }

    /// [`crate::machine::Step::SetAside`]. A file that is not there, or no longer, stays so.
    pub fn set_aside(&self, file: FileName) -> Result<()> {
        self.remove(&file.sidecar())?;
        match fs::rename(self.path_of(&file.to_string()), self.path_of(&file.bad())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => self.at("rename", &file.to_string(), renamed),
        }
    }

    /// [`crate::machine::Step::Journal`]; the size of the journal then, in bytes.
    pub fn journal(&mut self, line: &Line) -> Result<u64> {
        let mut text = Vec::new();
        line.write(&mut text);
        let path = self.path_of(JOURNAL_NAME);
        let mut write = || {
            if let Some(journal) = &mut self.journal {
                journal.write_all(&text)?;
                journal.sync_data()?;
                return Ok(journal.metadata()?.len());
            }
            let mut journal = OpenOptions::new().append(true).create(true).open(&path)?;
            journal.write_all(&text)?;
            journal.sync_all()?;
            self.journal = Some(journal);
            self.handle.sync_all()?;
            Ok(text.len() as u64)
        };
        let written = write();
        self.at("write", JOURNAL_NAME, written)
    }

    /// [`crate::machine::Step::RewriteJournal`]; the size of the journal then, in bytes.
    pub fn rewrite_journal(&mut self, lines: &[Line]) -> Result<u64> {
        let mut text = Vec::new();
        lines.iter().for_each(|line| line.write(&mut text));
        let write = || {
            let mut file = File::create(self.path_of(JOURNAL_PART_NAME))?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(self.path_of(JOURNAL_PART_NAME), self.path_of(JOURNAL_NAME))?;
            self.handle.sync_all()?;
            OpenOptions::new().append(true).open(self.path_of(JOURNAL_NAME))
        };
        self.journal = Some(self.at("rewrite", JOURNAL_NAME, write())?);
        Ok(text.len() as u64)
    }
}

fn read_journal(path: &Path) -> Result<(Vec<Line>, u64)> {
    let read = || {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut text = Vec::new();
        if bytes <= JOURNAL_BYTES_MAX {
            file.take(JOURNAL_BYTES_MAX).read_to_end(&mut text)?;
        }
        Ok((bytes, text))
    };
    let (bytes, text) =
        read().map_err(|source| DirectoryError::Io { action: "read", path: path.to_owned(), source })?;
    if bytes > JOURNAL_BYTES_MAX {
        return Err(DirectoryError::JournalTooLarge { path: path.to_owned(), bytes });
    }
    let (lines, good) =
        journal::parse(&text).map_err(|source| DirectoryError::Journal { path: path.to_owned(), source })?;
    Ok((lines, good as u64))
}

/// Makes a directory, durably, with all that lead to it.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directory(parent)?;
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    };
    made.and_then(|()| File::open(parent)?.sync_all()).map_err(|source| DirectoryError::Io {
        action: "make",
        path: path.to_owned(),
        source,
    })
}
