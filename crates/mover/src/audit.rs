//! The audit log: one JSON line for each transition, made of what the journal holds.
#![expect(clippy::disallowed_types, reason = "this module writes the log")]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "the tests look at what was written"))]

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
    /// Whether it is of the sidecar there, and not of the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sidecar: bool,
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
    /// How many accepted events it is made of, if it is made of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<i64>,
}

impl Transition {
    pub(crate) fn read(connection: &Connection, number: i64) -> rusqlite::Result<Transition> {
        connection
            .prepare_cached(
                "SELECT number, unix_ms, transitions.consignment, route, name, destination, before, after, transitions.words, bytes, adler32, sidecar, events \
                 FROM transitions JOIN consignments ON id = transitions.consignment LEFT JOIN events ON id = events.consignment WHERE number = ?1",
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
                    sidecar: row.get(11)?,
                    events: row.get(12)?,
                })
            })
    }
}

/// A line of the log.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    /// Of which journal, in hexadecimal digits: another one counts from 1 again.
    journal: String,
    #[serde(flatten)]
    transition: T,
}

/// The log, open to be appended to.
#[derive(Debug)]
pub struct AuditLog {
    file: File,
    journal: String,
    last: i64,
}

impl AuditLog {
    /// The path of the log of a journal.
    pub fn path_of(journal: &Path) -> PathBuf {
        let mut path = journal.as_os_str().to_owned();
        path.push(".audit.jsonl");
        PathBuf::from(path)
    }

    /// Opens the log of the journal with this token, making it when it is not there. A line that a crash cut is taken back: the journal has it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path, token: u64) -> io::Result<AuditLog> {
        let journal = format!("{token:016x}");
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        let from = bytes.saturating_sub(2 * LINE_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        Read::by_ref(&mut file).take(2 * LINE_BYTES_MAX).read_to_end(&mut tail)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = tail[..whole].split(|byte| *byte == b'\n').rev();
        let mut lines = lines.filter_map(|line| serde_json::from_slice::<Line<Transition>>(line).ok());
        let last = lines.find(|line| line.journal == journal).map_or(0, |line| line.transition.number);
        if whole > 0 || bytes < LINE_BYTES_MAX {
            let end = from + whole as u64;
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
        } else {
            // No line of a log is so long: whatever it is, it stays.
            file.write_all(b"\n")?;
        }
        Ok(AuditLog { file, journal, last })
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
            serde_json::to_writer(&mut text, &Line { journal: self.journal.clone(), transition })?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.last = transitions.last().map_or(self.last, |last| last.number.max(self.last));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(number: i64) -> Transition {
        let text = |text: &str| text.to_owned();
        Transition {
            number,
            unix_ms: 5,
            consignment: 1,
            route: text("daq"),
            name: text("a"),
            destination: None,
            sidecar: false,
            before: None,
            after: text("found"),
            words: text("ü\n"),
            bytes: Some(7),
            adler32: None,
            events: None,
        }
    }

    fn lines(path: &Path) -> Vec<String> {
        String::from_utf8_lossy(&std::fs::read(path).expect("read")).lines().map(str::to_owned).collect()
    }

    #[test]
    fn it_goes_on_where_it_ended_and_keeps_what_it_does_not_know() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let open = |token| AuditLog::open(&path, token).expect("opened");
        open(7).append(&[transition(1), transition(2)]).expect("written");
        // A line that was cut.
        File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"{\"journal\":"))
            .expect("written");
        let mut log = open(7);
        assert_eq!(log.last(), 2);
        log.append(&[transition(2), transition(3)]).expect("written");
        assert_eq!(lines(&path).len(), 3);
        // One that somebody else wrote, and another journal.
        File::options().append(true).open(&path).and_then(|mut file| file.write_all(b"strange\n")).expect("written");
        assert_eq!(open(7).last(), 3);
        let mut other = open(8);
        assert_eq!(other.last(), 0);
        other.append(&[transition(1)]).expect("written");
        assert_eq!((lines(&path).len(), open(7).last(), open(8).last()), (5, 3, 1));
        // What is no log at all.
        std::fs::write(&path, vec![b'x'; 300_000]).expect("written");
        open(7).append(&[transition(1)]).expect("written");
        let lines = lines(&path);
        assert_eq!((lines.len(), lines[0].len()), (2, 300_000));
    }
}
