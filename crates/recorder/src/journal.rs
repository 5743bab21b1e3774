//! The journal of a stream's directory: what was written, announced, released.
//!
//! ```text
//! <CRC32C of the JSON, 8 hexadecimal digits> <one JSON object>\n
//! ```
//!
//! | line | means | when it is durable |
//! | --- | --- | --- |
//! | `{"journal":1}` | the version of the journal; always the first line | before any other |
//! | `{"store":UUID}` | what follows came from this store | before the first file |
//! | `{"written":SIDECAR}` | the file is durable under its `.part` name | before it gets its final name |
//! | `{"announced":NAME}` | the file came back as it was written | before its sidecar can be seen |
//! | `{"released":NAME}` | the store released all of its events for this stream | after the release |
//! | `{"withdrawn":NAME}` | the file does not come back as it was written; its events count as not recorded | before it is set aside |
//! | `{"sequence":[RUN,NEXT]}` | files of the run up to NEXT - 1 existed | when the journal is rewritten |
//!
//! Every start writes the journal anew, so that whatever is done on its word is durable. A line is written
//! at once: a crash can tear only the last one, and what that would have said has not happened. Anything else
//! that is no line is damage, and the recorder refuses to guess.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{RunId, StoreUuid, crc32c};
use serde::{Deserialize, Serialize};

use crate::names::FileName;
use crate::sidecar::Sidecar;

/// The largest journal that is read, in bytes.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// A journal that is larger, in bytes, is rewritten without what is over when it has doubled since it was
/// last rewritten.
pub const JOURNAL_REWRITE_BYTES: u64 = 16 << 20;

const VERSION: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What follows came from this store.
    Store(StoreUuid),
    /// The file is durable under its `.part` name.
    Written(Box<Sidecar>),
    /// It is verified; its sidecar can be seen from here on.
    Announced(String),
    /// The store released its events.
    Released(String),
    /// The file is not what was written; its events count as not recorded.
    Withdrawn(String),
    /// Files of the run with smaller numbers existed.
    Sequence(RunId, u64),
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Header {
    Journal(u32),
}

fn write_json(json: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("{:08x} ", crc32c(json)).as_bytes());
    into.extend_from_slice(json);
    into.push(b'\n');
}

/// Appends the line that a journal begins with.
pub fn write_header(into: &mut Vec<u8>) {
    write_json(&serde_json::to_vec(&Header::Journal(VERSION)).expect("a number"), into);
}

/// The JSON of a line that has no newline any more and whose checksum is right.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (crc, json) = (line.get(..8)?, line.get(9..)?);
    // The standard library takes a sign before the digits, which no journal has.
    let digits = std::str::from_utf8(crc).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let crc = u32::from_str_radix(digits, 16).ok()?;
    (line[8] == b' ' && crc == crc32c(json)).then_some(json)
}

impl Line {
    /// Appends the line as it is written.
    pub fn write(&self, into: &mut Vec<u8>) {
        write_json(&serde_json::to_vec(self).expect("a line has no keys that are not strings"), into);
    }

    fn parse(json: &[u8]) -> Option<Line> {
        let line: Line = serde_json::from_slice(json).ok()?;
        let holds = match &line {
            Line::Written(sidecar) => sidecar.check().is_ok(),
            Line::Announced(name) | Line::Released(name) | Line::Withdrawn(name) => name.parse::<FileName>().is_ok(),
            Line::Store(_) | Line::Sequence(..) => true,
        };
        holds.then_some(line)
    }
}

/// A journal that cannot be trusted. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Bytes that a crash cannot explain.
    #[error(
        "the journal is damaged: line {line} at byte {offset} is none of the recorder's, and {good_lines_behind} good lines follow. \
         Nothing was written or released. Files with a .json beside them are complete; which of their events the store released, and \
         which numbers were used, only the journal knows. Move the directory's files to safety and record into another directory: \
         events that were not released come again there, so compare before both are used"
    )]
    Damaged {
        /// Which line, counted from 1.
        line: usize,
        /// Where it starts.
        offset: usize,
        /// Good lines behind it.
        good_lines_behind: usize,
    },
    /// A line with a good checksum that this program does not know.
    #[error(
        "line {line} of the journal, at byte {offset}, is unknown here: a newer forebay wrote it. Nothing was written or released. Use \
         that version, or another directory"
    )]
    Newer {
        /// Which line, counted from 1.
        line: usize,
        /// Where it starts.
        offset: usize,
    },
}

/// Reads a journal: its lines without the first, and how many bytes of a torn line are behind them.
///
/// # Errors
/// A line that is damaged, or unknown; the last one may be torn, that is, lack its newline.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Line>, usize), JournalError> {
    let mut lines = Vec::new();
    let mut written: BTreeSet<String> = BTreeSet::new();
    let mut offset = 0;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    for (number, text) in bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let at = (number + 1, offset);
        let Some(json) = checked(&text[..text.len() - 1]) else { return Err(damaged(bytes, at)) };
        match number {
            0 => match serde_json::from_slice(json) {
                Ok(Header::Journal(VERSION)) => {}
                _ => return Err(JournalError::Newer { line: at.0, offset: at.1 }),
            },
            _ => lines.push(Line::parse(json).ok_or(JournalError::Newer { line: at.0, offset: at.1 })?),
        }
        match lines.last() {
            Some(Line::Written(sidecar)) => written.extend([sidecar.file.clone()]),
            // Without what it announces: lines are missing.
            Some(Line::Announced(name)) if !written.contains(name) => return Err(damaged(bytes, at)),
            _ => {}
        }
        offset += text.len();
    }
    Ok((lines, bytes.len() - whole))
}

fn damaged(bytes: &[u8], (line, offset): (usize, usize)) -> JournalError {
    let behind = bytes[offset..].split_inclusive(|&byte| byte == b'\n').skip(1);
    let good = behind.filter(|line| line.strip_suffix(b"\n").and_then(checked).is_some());
    JournalError::Damaged { line, offset, good_lines_behind: good.count() }
}

/// What the lines of a journal come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The store of the latest files; `None` for an empty journal.
    pub store: Option<StoreUuid>,
    /// Written and not announced.
    pub written: BTreeMap<FileName, Sidecar>,
    /// Announced and not released.
    pub pending: BTreeMap<FileName, Sidecar>,
    /// Released.
    pub released: BTreeSet<FileName>,
    /// Withdrawn.
    pub withdrawn: BTreeSet<FileName>,
    /// The next sequence number of each run; one more than the largest there is when none is left.
    pub next_sequence: BTreeMap<RunId, u64>,
}

impl Ledger {
    /// Sums up `lines`.
    pub fn new(lines: impl IntoIterator<Item = Line>) -> Ledger {
        let mut ledger = Ledger::default();
        lines.into_iter().for_each(|line| ledger.apply(line));
        ledger
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Store(store) => self.store = Some(store),
            Line::Written(sidecar) => {
                let file = sidecar.file_name();
                self.saw(file.run, file.sequence);
                self.written.insert(file, *sidecar);
            }
            Line::Announced(name) => {
                let written = name.parse().ok().and_then(|file| self.written.remove_entry(&file));
                self.pending.extend(written);
            }
            Line::Released(name) => name.parse().into_iter().for_each(|file| self.release(file)),
            Line::Withdrawn(name) => name.parse().into_iter().for_each(|file| self.withdraw(file)),
            Line::Sequence(run, next) => self.next_is(run, next),
        }
    }

    /// The events of the file are released.
    pub fn release(&mut self, file: FileName) {
        self.saw(file.run, file.sequence);
        self.pending.remove(&file);
        self.released.insert(file);
    }

    /// The file does not count.
    pub fn withdraw(&mut self, file: FileName) {
        self.saw(file.run, file.sequence);
        self.written.remove(&file);
        self.pending.remove(&file);
        self.withdrawn.insert(file);
    }

    /// Notes that a file with this number existed.
    pub fn saw(&mut self, run: RunId, sequence: u32) {
        self.next_is(run, u64::from(sequence) + 1);
    }

    fn next_is(&mut self, run: RunId, at_least: u64) {
        let next = self.next_sequence.entry(run).or_default();
        *next = (*next).max(at_least);
    }

    /// The files that are released or withdrawn.
    pub fn all_over(&self) -> BTreeSet<FileName> {
        self.released.union(&self.withdrawn).copied().collect()
    }

    /// The fewest lines that say the same of what is not over and of the files `still_there`.
    pub fn rewritten(&self, still_there: &BTreeSet<FileName>) -> Vec<Line> {
        let mut lines: Vec<Line> = self.store.map(Line::Store).into_iter().collect();
        lines.extend(self.next_sequence.iter().map(|(run, next)| Line::Sequence(*run, *next)));
        let kept = |files: &BTreeSet<FileName>| files.intersection(still_there).map(ToString::to_string).collect();
        let (released, withdrawn): (Vec<String>, Vec<String>) = (kept(&self.released), kept(&self.withdrawn));
        lines.extend(released.into_iter().map(Line::Released));
        lines.extend(withdrawn.into_iter().map(Line::Withdrawn));
        for (files, announced) in [(&self.pending, true), (&self.written, false)] {
            for (file, sidecar) in files {
                lines.push(Line::Written(Box::new(sidecar.clone())));
                lines.extend(announced.then(|| Line::Announced(file.to_string())));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Line]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes);
        lines.iter().for_each(|line| line.write(&mut bytes));
        bytes
    }

    fn lines() -> Vec<Line> {
        vec![
            Line::Store(StoreUuid::from_bytes([7; 16])),
            Line::Released("run00000007_000003.raw".into()),
            Line::Withdrawn("run00000007_000004.mdf".into()),
            Line::Sequence(RunId(9), 12),
        ]
    }

    #[test]
    fn a_cut_anywhere_leaves_the_lines_before_it() {
        let lines = lines();
        let bytes = text(&lines);
        let ends: Vec<usize> = (0..=lines.len()).map(|n| text(&lines[..n]).len()).collect();
        for cut in 0..=bytes.len() {
            let (parsed, torn) = parse(&bytes[..cut]).expect("a torn end is no damage");
            let whole = ends.iter().rposition(|&end| end <= cut);
            assert_eq!(parsed, lines[..whole.unwrap_or(0)], "cut at {cut}");
            assert_eq!(torn, cut - whole.map_or(0, |whole| ends[whole]), "cut at {cut}");
        }
    }

    #[test]
    fn damage_is_refused_also_at_the_end() {
        let bytes = text(&lines());
        let lines_at: Vec<usize> = std::iter::once(0)
            .chain(bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1))
            .collect();
        for (number, start) in lines_at[..5].iter().enumerate() {
            let mut damaged = bytes.clone();
            damaged[start + 12] ^= 1;
            let (line, good_lines_behind) = (number + 1, 4 - number);
            assert_eq!(parse(&damaged), Err(JournalError::Damaged { line, offset: *start, good_lines_behind }));
        }
        let zeros = [bytes.as_slice(), &[0; 100], b"\n"].concat();
        assert!(matches!(parse(&zeros), Err(JournalError::Damaged { line: 6, good_lines_behind: 0, .. })));
    }

    #[test]
    fn a_checksum_has_no_sign() {
        // Of a checksum that begins with a zero the other digits say the same.
        let json = (0..)
            .map(|number| format!(r#"{{"sequence":[7,{number}]}}"#))
            .find(|json| crc32c(json.as_bytes()) >> 28 == 0);
        let json = json.expect("one in sixteen");
        let mut bytes = Vec::new();
        write_header(&mut bytes);
        let start = bytes.len();
        write_json(json.as_bytes(), &mut bytes);
        assert!(parse(&bytes).is_ok());
        bytes[start] = b'+';
        assert_eq!(parse(&bytes), Err(JournalError::Damaged { line: 2, offset: start, good_lines_behind: 0 }));
    }

    #[test]
    fn a_newer_journal_is_refused() {
        let mut other_version = Vec::new();
        write_json(br#"{"journal":2}"#, &mut other_version);
        assert_eq!(parse(&other_version), Err(JournalError::Newer { line: 1, offset: 0 }));
        let mut other_line = text(&lines());
        let offset = other_line.len();
        write_json(br#"{"shipped":"run00000007_000003.raw"}"#, &mut other_line);
        assert_eq!(parse(&other_line), Err(JournalError::Newer { line: 6, offset }));
    }

    #[test]
    fn a_rewritten_journal_says_the_same_of_what_is_there() {
        let ledger = Ledger::new(lines());
        assert_eq!(ledger.next_sequence, BTreeMap::from([(RunId(7), 5), (RunId(9), 12)]));
        let there = ledger.released.iter().chain(&ledger.withdrawn).copied().collect();
        assert_eq!(Ledger::new(ledger.rewritten(&there)), ledger);
        let gone = Ledger::new(ledger.rewritten(&BTreeSet::new()));
        assert_eq!(gone.next_sequence, ledger.next_sequence);
        assert!(gone.released.is_empty());
    }
}
