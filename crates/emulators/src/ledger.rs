//! The hash of every event that was written, kept outside the store: what comes out at the other end is
//! compared with it.
//!
//! In a file, one line for each event:
//!
//! ```text
//! <run> <event> <XXH3-128 of the event's bytes, 32 hexadecimal digits> <bytes>\n
//! ```
//!
//! A line is handed to the operating system before the event's first fragment is put, so that whatever is
//! stored is known, also when the readout is killed. It is not synced: a power cut may take the last seconds
//! of it. A crash may tear the last line; it is ignored, and cut off when the file is continued.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use forebay_types::EventKey;
use xxhash_rust::xxh3::xxh3_128;

/// The longest line, with some room.
const LINE_BYTES_MAX: u64 = 256;
/// The longest line: numbers of 10 and 20 digits, the hash, 20 digits, blanks, the newline.
const LONGEST_LINE_BYTES: usize = 10 + 1 + 20 + 1 + 32 + 1 + 20 + 1;

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
    #[error(
        "the ledger {}: {source}; events can only be compared with a ledger that is whole. {}, then start again",
        .path.display(), advice(.source)
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line that is none.
    #[error(
        "the ledger {}: expected \"run event hash bytes\" in line {line}, found {found:?}; nothing was compared, and nothing was written to \
         it. Check that this is the file that the readout wrote", .path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: u64,
        /// What is there.
        found: String,
    },
    /// A file whose end is none of a ledger's.
    #[error(
        "the ledger {}: expected it to end in lines of \"run event hash bytes\", found {found:?}; nothing was written to it. Name the file \
         that an earlier readout wrote, or one that is not there yet", .path.display()
    )]
    Tail {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "Name the file that a readout writes, in a directory that is there",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room, or name another file",
        _ => "Name a file that this user may read and write",
    }
}

impl LedgerError {
    /// Whether the same may succeed later without anything being repaired: there was no room.
    pub fn is_retryable(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, LedgerError::Io { source, .. } if full.contains(&source.kind()))
    }
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
}

fn bad_line(path: &Path, line: u64, found: &[u8]) -> LedgerError {
    LedgerError::Line { path: path.to_owned(), line, found: shown(found) }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(80).collect()
}

fn write_line(into: &mut impl Write, key: EventKey, hash: EventHash) -> io::Result<()> {
    writeln!(into, "{} {} {:032x} {}", key.run, key.event, hash.hash, hash.bytes)
}

fn parse(line: &[u8]) -> Option<(EventKey, EventHash)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let key = EventKey::new(number(words.next()?)?, number(words.next()?)?);
    let digits = words.next().filter(|hash| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let hash = EventHash { hash: u128::from_str_radix(digits, 16).ok()?, bytes: number(words.next()?)? };
    words.next().is_none().then_some((key, hash))
}

/// A number of digits alone: the standard library takes a sign before them, which no ledger has.
fn number<N: std::str::FromStr>(word: &str) -> Option<N> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// A ledger file that grows.
pub struct LedgerFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl LedgerFile {
    /// Opens a file to continue it, making it when it is not there. One that is no ledger is left as it is.
    ///
    /// # Errors
    /// A file that cannot be written, or that is no ledger.
    pub fn open(path: &Path) -> Result<LedgerFile, LedgerError> {
        let io = |source| LedgerError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let whole = whole_lines(&mut file, bytes, path)?;
        if whole < bytes {
            file.set_len(whole).map_err(io)?;
        }
        Ok(LedgerFile { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Adds an event; it reaches the operating system with [`LedgerFile::flush`].
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&mut self, key: EventKey, hash: EventHash) -> Result<(), LedgerError> {
        let written = write_line(&mut self.file, key, hash);
        self.checked(written)
    }

    /// Writes what is in memory.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        let flushed = self.file.flush();
        self.checked(flushed)
    }

    fn checked(&self, result: io::Result<()>) -> Result<(), LedgerError> {
        result.map_err(|source| LedgerError::Io { path: self.path.clone(), source })
    }
}

/// The bytes of a ledger file without a torn last line. Its first and its last line, and what is torn, must be
/// of a ledger.
fn whole_lines(file: &mut File, bytes: u64, path: &Path) -> Result<u64, LedgerError> {
    let mut read = |from: u64| {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(file).take(LINE_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    let io = |source| LedgerError::Io { path: path.to_owned(), source };
    let first = read(0).map_err(io)?;
    if let Some(end) = first.iter().position(|&byte| byte == b'\n')
        && parse(&first[..end]).is_none()
    {
        return Err(bad_line(path, 1, &first[..end]));
    }
    let from = bytes.saturating_sub(LINE_BYTES_MAX);
    let tail = read(from).map_err(io)?;
    let whole = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let (lines, torn) = tail.split_at(whole);
    if let Some(line) = lines.strip_suffix(b"\n") {
        let line = line.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        if parse(line).is_none() {
            return Err(LedgerError::Tail { path: path.to_owned(), found: shown(line) });
        }
    }
    let is_torn = torn.len() < LONGEST_LINE_BYTES && torn.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b' ');
    // Without any line before it a torn line proves nothing.
    if !is_torn || (whole == 0 && !torn.is_empty()) {
        return Err(LedgerError::Tail { path: path.to_owned(), found: shown(torn) });
    }
    Ok(from + whole as u64)
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

    fn save(ledger: &HashLedger, path: &Path) {
        let mut file = LedgerFile::open(path).expect("opened");
        for key in ledger.keys() {
            file.add(key, ledger.get(key).expect("an event")).expect("added");
        }
        file.flush().expect("flushed");
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let ledger = ledger();
        save(&ledger, &path);
        let loaded = HashLedger::load(&path).expect("loaded");
        assert_eq!(loaded.keys(), ledger.keys());
        assert!(loaded.keys().iter().all(|key| loaded.get(*key) == ledger.get(*key)));
        assert_eq!(loaded.get(EventKey::new(8, 0)), None);
    }

    #[test]
    fn a_file_is_continued_after_a_torn_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        save(&ledger(), &path);
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
    fn a_file_that_is_no_ledger_is_left_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let events: Vec<u8> = (0..9u8).flat_map(|n| [n; 300]).collect();
        let last_line = b"1 2 000000000000000000000000000000aa 5\nnotes, and no newline".to_vec();
        let text = b"a note\n1 2 000000000000000000000000000000aa 5\n".to_vec();
        let with_newlines = [&events[..], b"\n", &events[..200]].concat();
        for bytes in
            [b"x".to_vec(), b"\n".to_vec(), b"0123456789abcdef".to_vec(), events, with_newlines, last_line, text]
        {
            std::fs::write(&path, &bytes).expect("written");
            let refused = LedgerFile::open(&path).map(|_| ());
            let words = refused.expect_err("no ledger").to_string();
            assert!(words.contains("nothing was written to it"), "{words}");
            assert!(std::fs::read(&path).expect("read") == bytes, "{words}");
        }
        std::fs::write(&path, b"").expect("written");
        LedgerFile::open(&path).map(|_| ()).expect("an empty file is as good as none");
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let long = vec![b'x'; 1000];
        let signs: [&[u8]; 4] = [
            b"+1 2 000000000000000000000000000000aa 5\n",
            b"1 +2 000000000000000000000000000000aa 5\n",
            b"1 2 +00000000000000000000000000000aa 5\n",
            b"1 2 000000000000000000000000000000aa +5\n",
        ];
        let others: [(&[u8], u64); 3] = [(b"1 2 3 4\n", 1), (b"\n", 1), (&long, 1)];
        for (text, at) in others.into_iter().chain(signs.map(|text| (text, 1))) {
            std::fs::write(&path, text).expect("written");
            let error = HashLedger::load(&path).expect_err("no ledger");
            assert!(matches!(error, LedgerError::Line { line, .. } if line == at), "{error}");
        }
        let error = HashLedger::load(&directory.path().join("none")).expect_err("no file");
        assert!(error.to_string().contains("Name the file that a readout writes"), "{error}");
    }
}
