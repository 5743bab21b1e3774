//! The directory of a stream: does what the machine asks for, and decides nothing.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this module is the machine's hands")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use forebay_mover::local::rename_without_replacing;
use forebay_rawdata::Container;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::digest::{Digest, Digester};
use crate::journal::{self, JOURNAL_BYTES_MAX, JournalError, Line};
use crate::machine::{Found, ReadBack};
use crate::names::{FileName, JOURNAL_NAME};
use crate::read_back::{ReadMode, read_back};
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
    /// A name that the recorder is about to give belongs to another file.
    #[error(
        "{} is there already, and is not the recorder's: it was put there while it ran. Nothing was replaced, and no event of an \
         unfinished file was released. Move it away, then start again", .path.display()
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// Another recorder works there.
    #[error("another recorder works in {}; this one did nothing. {}", .path.display(), LOCKED_ADVICE)]
    Locked {
        /// The directory.
        path: PathBuf,
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

impl DirectoryError {
    /// Whether the same may succeed later without anything being repaired.
    pub fn is_retryable(&self) -> bool {
        match self {
            DirectoryError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            DirectoryError::Locked { .. } => true,
            _ => false,
        }
    }

    /// Whether waiting may help: not when what is there cannot be trusted.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, DirectoryError::Journal { .. } | DirectoryError::JournalTooLarge { .. })
    }
}

/// What to do about another recorder.
pub(crate) const LOCKED_ADVICE: &str = "If it records the same server, leave it alone: two recorders ship events twice, in whatever \
     directories. For another server, or for other streams (--stream), use another directory";

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room on that file system, then start again",
        io::ErrorKind::ReadOnlyFilesystem => "Mount it writable or use another directory, then start again",
        io::ErrorKind::PermissionDenied => {
            "Let this user read and write there or use another directory, then start again"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "A file is where a directory should be: move it away or use another directory, then start again"
        }
        _ => "Look at that file system and its disk, then start again",
    }
}

type Result<T> = std::result::Result<T, DirectoryError>;

struct Writing {
    file: BufWriter<File>,
    digester: Digester,
    container: Container,
    events: u64,
    event_bytes: u64,
}

impl Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digester.update(bytes);
        self.file.write_all(bytes)
    }
}

/// A stream's directory.
pub struct StreamDirectory {
    path: PathBuf,
    handle: File,
    /// Opened by the first step that writes it: a directory that is refused keeps what it has.
    journal: Option<File>,
    writing: BTreeMap<FileName, Writing>,
}

impl StreamDirectory {
    /// Opens the directory, making it when it is not there, locks it, and says what it holds. Nothing in it is
    /// changed: whether it may be is for the machine to say.
    ///
    /// # Errors
    /// What the operating system says, another recorder, or a damaged journal.
    pub fn open(path: &Path) -> Result<(StreamDirectory, Found)> {
        make_directory(path)?;
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { action, path, source }
        };
        let handle = File::open(path).map_err(io("open", path))?;
        lock(&handle, path)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(io("list", path))? {
            let entry = entry.map_err(io("list", path))?;
            names.extend(entry.file_name().into_string());
        }
        let journal_path = path.join(JOURNAL_NAME);
        let exists = names.iter().any(|name| name == JOURNAL_NAME);
        let mut found = Found { names, ..Found::default() };
        if exists {
            let (lines, torn_bytes) = read_journal(&journal_path)?;
            // Without a line it is one whose first line did not become durable.
            found.journal = (!lines.is_empty()).then_some(lines);
            found.torn_bytes = torn_bytes;
        }
        let journal = None;
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
        let mut writing = Writing {
            file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, handle),
            digester: Digester::default(),
            container: file.container(),
            events: 0,
            event_bytes: 0,
        };
        let head = writing.container.head();
        self.at("write", &name, writing.write(&head))?;
        self.writing.insert(file, writing);
        Ok(())
    }

    /// [`crate::machine::Step::Append`], one event.
    pub fn append(&mut self, file: FileName, bytes: &[u8]) -> Result<()> {
        let writing = self.writing.get_mut(&file).expect("a file is created before it is written");
        let event_bytes = bytes.len() as u64;
        let before = writing.container.before_event(writing.events, event_bytes);
        let written = writing.write(&before).and_then(|()| writing.write(bytes));
        writing.events += 1;
        writing.event_bytes += event_bytes;
        self.at("write", &file.part(), written)
    }

    /// [`crate::machine::Step::Sync`].
    pub fn sync(&mut self, file: FileName) -> Result<Digest> {
        let mut writing = self.writing.remove(&file).expect("a file is created before it is synced");
        let tail = writing.container.tail(writing.events, writing.event_bytes);
        let written = writing.write(&tail).and_then(|()| writing.file.flush());
        let synced = written.and_then(|()| writing.file.get_ref().sync_all());
        self.at("write", &file.part(), synced)?;
        Ok(writing.digester.digest())
    }

    /// Renames an entry; a name that is taken is left to what has it.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        match rename_without_replacing(&self.handle, from, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(DirectoryError::InTheWay { path: self.path_of(to) })
            }
            renamed => self.at("rename", from, renamed),
        }
    }

    /// [`crate::machine::Step::ReadBack`].
    pub fn read_back(&self, file: FileName, announced: bool) -> Result<(ReadBack, ReadMode)> {
        let name = file.to_string();
        match read_back(&self.handle, &name, file.kind) {
            (Err(error), mode) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) && !announced => {
                Ok((ReadBack::Unreadable { message: format!("nothing: reading failed: {error}") }, mode))
            }
            (found, mode) => Ok((self.at("read back", &name, found)?, mode)),
        }
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

    /// [`crate::machine::Step::SetAside`]. A file that is not there, or no longer, stays so. It loses its sidecar last: without one, under its own name, it
    /// would look unfinished for a moment, like something that may be deleted, and it may be all that is left of events that were released.
    pub fn set_aside(&self, file: FileName) -> Result<()> {
        match self.rename(&file.to_string(), &file.bad()) {
            Err(DirectoryError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.remove(&file.sidecar())?;
        self.remove(&file.sidecar_part())
    }

    /// [`crate::machine::Step::Journal`]; the size of the journal then, in bytes.
    pub fn journal(&mut self, line: &Line) -> Result<u64> {
        let mut text = Vec::new();
        if self.journal.is_none() {
            journal::write_header(&mut text);
        }
        line.write(&mut text);
        let path = self.path_of(JOURNAL_NAME);
        let mut write = || {
            if let Some(journal) = &mut self.journal {
                journal.write_all(&text)?;
                journal.sync_data()?;
                return Ok(journal.metadata()?.len());
            }
            // What may be there holds no whole line.
            let mut journal = File::create(&path)?;
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
        journal::write_header(&mut text);
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
    let (lines, torn) =
        journal::parse(&text).map_err(|source| DirectoryError::Journal { path: path.to_owned(), source })?;
    Ok((lines, torn as u64))
}

/// Locks a directory against other recorders, until the handle is dropped.
pub(crate) fn lock(handle: &File, path: &Path) -> Result<()> {
    match flock(handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(DirectoryError::Locked { path: path.to_owned() }),
        Err(error) => {
            let action = "lock (flock)";
            Err(DirectoryError::Io { action, path: path.to_owned(), source: error.into() })
        }
    }
}

/// Makes a directory, durably, with all that lead to it. One that is there may have been made by a start
/// that was killed before it was durable.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    let failed = |path: &Path, source| DirectoryError::Io { action: "make", path: path.to_owned(), source };
    for directory in missing(path, Path::is_dir) {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            made => made.map_err(|source| failed(directory, source))?,
        }
        sync_parent(directory).map_err(|source| failed(directory, source))?;
    }
    match sync_parent(path) {
        // Whoever made it there was somebody else.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|source| failed(path, source)),
    }
}

/// What has to be made for `path` to be there, the outermost first.
fn missing(path: &Path, is_there: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let named = path.ancestors().filter(|directory| !directory.as_os_str().is_empty());
    let mut missing: Vec<&Path> = named.take_while(|directory| !is_there(directory)).collect();
    missing.reverse();
    missing
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_ends_where_the_path_ends() {
        let names = |path, there: &'static [&str]| -> Vec<String> {
            let is_there = |path: &Path| there.iter().any(|name| path == Path::new(name));
            missing(Path::new(path), is_there).iter().map(|path| path.display().to_string()).collect()
        };
        // Not even the current directory can be looked at.
        assert_eq!(names("out", &[]), ["out"]);
        assert_eq!(names(".", &[]), ["."]);
        assert_eq!(names("a/b/c", &["a"]), ["a/b", "a/b/c"]);
        assert_eq!(names("/a/b", &["/"]), ["/a", "/a/b"]);
        assert!(names("/a", &["/", "/a"]).is_empty());
    }

    #[test]
    fn no_name_is_taken_from_another_file() {
        let path = tempfile::tempdir().expect("a directory");
        let (mut directory, _) = StreamDirectory::open(path.path()).expect("opened");
        let file: FileName = "run00000007_000003.raw".parse().expect("a name");
        std::fs::write(path.path().join(file.to_string()), b"of others").expect("written");
        std::fs::write(path.path().join(file.bad()), b"older").expect("written");
        directory.create(file).expect("created");
        directory.append(file, b"ours").expect("appended");
        directory.sync(file).expect("synced");
        let in_the_way = directory.rename(&file.part(), &file.to_string());
        assert!(matches!(&in_the_way, Err(DirectoryError::InTheWay { .. })), "{in_the_way:?}");
        assert!(matches!(directory.set_aside(file), Err(DirectoryError::InTheWay { .. })));
        let read = |name: String| std::fs::read(path.path().join(name)).expect("read");
        assert_eq!(read(file.to_string()), b"of others");
        assert_eq!(read(file.bad()), b"older");
        assert_eq!(read(file.part()), b"ours");
    }

    #[test]
    fn a_directory_has_one_recorder() {
        let path = tempfile::tempdir().expect("a directory");
        let first = StreamDirectory::open(path.path()).expect("opened");
        let second = StreamDirectory::open(path.path());
        assert!(matches!(second, Err(DirectoryError::Locked { .. })));
        drop(first);
        StreamDirectory::open(path.path()).expect("opened");
    }

    #[test]
    fn an_announced_file_that_cannot_be_read_is_trouble_and_no_mismatch() {
        let path = tempfile::tempdir().expect("a directory");
        let (directory, _) = StreamDirectory::open(path.path()).expect("opened");
        let file: FileName = "run00000007_000003.raw".parse().expect("a name");
        for announced in [false, true] {
            assert_eq!(directory.read_back(file, announced).expect("an answer").0, ReadBack::Missing);
        }
        // Reading a directory fails for everybody, whatever the permissions are.
        std::fs::create_dir(path.path().join(file.to_string())).expect("made");
        for announced in [false, true] {
            assert!(matches!(directory.read_back(file, announced), Err(DirectoryError::Io { .. })));
        }
    }
}
