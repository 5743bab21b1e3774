//! The audit log: one JSON line for each transition, made of what the journal holds.
#![expect(clippy::disallowed_types, reason = "this module writes the log")]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// A line is shorter.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What became of a file, or of its way to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Counts up, without gaps.
    pub number: i64,
    /// When, in milliseconds since 1970.
    pub unix_ms: i64,
    /// The number of the consignment.
    pub consignment: i64,
    /// Its route.
    pub route: String,
    /// Its name at every destination.
    pub name: String,
    /// Of which destination; none when it is of the whole.
    pub destination: Option<String>,
    /// The state before; none for a new one.
    pub before: Option<String>,
    /// The state after.
    pub after: String,
    /// On whose word.
    pub words: String,
    /// What its bytes come to, once they were checked.
    pub bytes: Option<i64>,
    /// Their Adler-32, in hexadecimal digits.
    pub adler32: Option<String>,
}

impl Transition {
    pub(crate) fn read(connection: &Connection, number: i64) -> rusqlite::Result<Transition> {
        connection
            .prepare_cached(
                "SELECT number, unix_ms, consignment, route, name, destination, before, after, transitions.words, bytes, adler32 \
                 FROM transitions JOIN consignments ON id = consignment WHERE number = ?1",
            )?
            .query_row([number], |row| {
                Ok(Transition {
                    number: row.get(0)?,
                    unix_ms: row.get(1)?,
                    consignment: row.get(2)?,
                    route: row.get(3)?,
                    name: row.get(4)?,
                    destination: row.get(5)?,
                    before: row.get(6)?,
                    after: row.get(7)?,
                    words: row.get(8)?,
                    bytes: row.get(9)?,
                    adler32: row.get::<_, Option<u32>>(10)?.map(|sum| format!("{sum:08x}")),
                })
            })
    }
}

/// The log, open to be appended to.
#[derive(Debug)]
pub struct AuditLog {
    file: File,
    last: i64,
}

impl AuditLog {
    /// The path of the log of a journal.
    pub fn path_of(journal: &Path) -> PathBuf {
        let mut path = journal.as_os_str().to_owned();
        path.push(".audit.jsonl");
        PathBuf::from(path)
    }

    /// Opens it, making it when it is not there. A line that a crash cut is taken back: the journal has it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<AuditLog> {
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        let from = bytes.saturating_sub(2 * LINE_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        Read::by_ref(&mut file).take(2 * LINE_BYTES_MAX).read_to_end(&mut tail)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = tail[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let last = lines.next_back().and_then(|line| serde_json::from_slice::<Transition>(line).ok());
        let end = from + whole as u64;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(AuditLog { file, last: last.map_or(0, |last| last.number) })
    }

    /// The number of the newest transition that it has.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Appends those that it does not have.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn append(&mut self, transitions: &[Transition]) -> io::Result<()> {
        let mut text = Vec::new();
        for transition in transitions.iter().filter(|transition| transition.number > self.last) {
            serde_json::to_writer(&mut text, transition)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.last = transitions.last().map_or(self.last, |last| last.number.max(self.last));
        Ok(())
    }
}
