//! The hash of every event that was written, kept outside the store: what comes out at the other end is
//! compared with it.
//!
//! In a file, one line for each event:
//!
//! ```text
//! <run> <event> <XXH3-128 of the event's bytes, 32 hexadecimal digits> <bytes>\n
//! ```
//!
//! A line is written before the event's first fragment is put, so that whatever is stored is known. A
//! crash may tear the last line; it is ignored, and cut off when the file is continued.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use forebay_types::EventKey;
use xxhash_rust::xxh3::xxh3_128;

/// The longest line, with some room.
const LINE_BYTES_MAX: u64 = 256;
/// Lines in memory reach the file at least so often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What identifies the bytes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHash {
    /// XXH3, 128 bits.
    pub hash: u128,
    /// The size in bytes.
    pub bytes: u64,
}

impl EventHash {
    /// That of an event's bytes.
    pub fn of(event: &[u8]) -> EventHash {
        EventHash { hash: xxh3_128(event), bytes: event.len() as u64 }
    }
}

/// The hashes of events, in memory: about 64 bytes for each. It may be shared between threads that write
/// and threads that look up.
#[derive(Debug, Default)]
pub struct HashLedger {
    events: RwLock<HashMap<EventKey, EventHash>>,
}

/// A ledger file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The operating system refused something.
    #[error("the ledger {}: {source}; events can only be compared with a ledger that is whole", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line that is none.
    #[error(
        "the ledger {}: expected \"run event hash bytes\" in line {line}, found {found:?}; nothing was compared. Check that this is the \
         file that the readout wrote", .path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: u64,
        /// What is there.
        found: String,
    },
}

impl HashLedger {
    /// Adds an event, replacing what was known of it.
    pub fn insert(&self, key: EventKey, hash: EventHash) {
        self.events.write().unwrap_or_else(PoisonError::into_inner).insert(key, hash);
    }

    /// The hash of an event.
    pub fn get(&self, key: EventKey) -> Option<EventHash> {
        self.events.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    /// How many events it knows.
    pub fn len(&self) -> u64 {
        self.events.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All events, in order.
    pub fn keys(&self) -> Vec<EventKey> {
        let mut keys: Vec<EventKey> =
            self.events.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no ledger.
    pub fn load(path: &Path) -> Result<HashLedger, LedgerError> {
        let io = |source| LedgerError::Io { path: path.to_owned(), source };
        let mut reader = BufReader::new(File::open(path).map_err(io)?);
        let mut events = HashMap::new();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text).map_err(io)?;
            let Some(whole) = text.strip_suffix(b"\n") else {
                if (text.len() as u64) < LINE_BYTES_MAX {
                    break;
                }
                return Err(bad_line(path, line, &text));
            };
            let (key, hash) = parse(whole).ok_or_else(|| bad_line(path, line, whole))?;
            events.insert(key, hash);
        }
        Ok(HashLedger { events: RwLock::new(events) })
    }

    /// Writes all events into a file, in order, replacing it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), LedgerError> {
        let write = || {
            let mut file = BufWriter::new(File::create(path)?);
            for key in self.keys() {
                if let Some(hash) = self.get(key) {
                    write_line(&mut file, key, hash)?;
                }
            }
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        };
        write().map_err(|source| LedgerError::Io { path: path.to_owned(), source })
    }
}

fn bad_line(path: &Path, line: u64, found: &[u8]) -> LedgerError {
    let found = String::from_utf8_lossy(found).chars().take(80).collect();
    LedgerError::Line { path: path.to_owned(), line, found }
}

fn write_line(into: &mut impl Write, key: EventKey, hash: EventHash) -> io::Result<()> {
    writeln!(into, "{} {} {:032x} {}", key.run, key.event, hash.hash, hash.bytes)
}

fn parse(line: &[u8]) -> Option<(EventKey, EventHash)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let key = EventKey::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let hash = u128::from_str_radix(words.next().filter(|hash| hash.len() == 32)?, 16).ok()?;
    let hash = EventHash { hash, bytes: words.next()?.parse().ok()? };
    words.next().is_none().then_some((key, hash))
}

/// A ledger file that grows.
pub struct LedgerFile {
    path: PathBuf,
    file: BufWriter<File>,
    flushed: Instant,
}

impl LedgerFile {
    /// Opens a file to continue it, making it when it is not there.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(path: &Path) -> Result<LedgerFile, LedgerError> {
        let open = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            cut_torn_line(&mut file)?;
            Ok(file)
        };
        let file = open().map_err(|source| LedgerError::Io { path: path.to_owned(), source })?;
        Ok(LedgerFile { path: path.to_owned(), file: BufWriter::new(file), flushed: Instant::now() })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&mut self, key: EventKey, hash: EventHash) -> Result<(), LedgerError> {
        let written = write_line(&mut self.file, key, hash);
        self.checked(written)?;
        if self.flushed.elapsed() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }

    /// Writes what is in memory.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        self.flushed = Instant::now();
        let flushed = self.file.flush();
        self.checked(flushed)
    }

    fn checked(&self, result: io::Result<()>) -> Result<(), LedgerError> {
        result.map_err(|source| LedgerError::Io { path: self.path.clone(), source })
    }
}

fn cut_torn_line(file: &mut File) -> io::Result<()> {
    let bytes = file.metadata()?.len();
    let from = bytes.saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(LINE_BYTES_MAX).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < tail.len() && (whole > 0 || from == 0) {
        file.set_len(from + whole as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> HashLedger {
        let ledger = HashLedger::default();
        for event in 0..100 {
            ledger.insert(EventKey::new(7, event * event), EventHash::of(&event.to_le_bytes()));
        }
        ledger
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let ledger = ledger();
        ledger.save(&path).expect("saved");
        let loaded = HashLedger::load(&path).expect("loaded");
        assert_eq!(loaded.keys(), ledger.keys());
        assert!(loaded.keys().iter().all(|key| loaded.get(*key) == ledger.get(*key)));
        assert_eq!(loaded.get(EventKey::new(8, 0)), None);
    }

    #[test]
    fn a_file_is_continued_after_a_torn_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        ledger().save(&path).expect("saved");
        let whole = std::fs::read(&path).expect("read");
        for torn in [1, 10, 40] {
            std::fs::write(&path, &whole[..whole.len() - torn]).expect("written");
            assert_eq!(HashLedger::load(&path).expect("loaded").len(), 99);
            let mut file = LedgerFile::open(&path).expect("opened");
            file.add(EventKey::new(9, 1), EventHash::of(b"new")).expect("added");
            file.flush().expect("flushed");
            let loaded = HashLedger::load(&path).expect("loaded");
            assert_eq!((loaded.len(), loaded.get(EventKey::new(9, 1))), (100, Some(EventHash::of(b"new"))));
        }
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let long = vec![b'x'; 1000];
        for (text, at) in [(&b"1 2 3 4\n"[..], 1), (b"\n", 1), (&long, 1)] {
            std::fs::write(&path, text).expect("written");
            let error = HashLedger::load(&path).expect_err("no ledger");
            assert!(matches!(error, LedgerError::Line { line, .. } if line == at), "{error}");
        }
        assert!(HashLedger::load(&directory.path().join("none")).is_err());
    }
}
