//! The journal of a stream's directory: what was announced, what was released.
//!
//! ```text
//! <CRC32C of the JSON, 8 hexadecimal digits> <one JSON object>\n
//! ```
//!
//! | line | means | when it is durable |
//! | --- | --- | --- |
//! | `{"store":UUID}` | what follows came from this store | before the first file |
//! | `{"announce":SIDECAR}` | the file is durable and came back as it was written | before its sidecar can be seen |
//! | `{"released":NAME}` | the store released all of its events for this stream | after the release |
//! | `{"withdrawn":NAME}` | the file no longer comes back as it was written; its events count as not recorded | before it is set aside |
//! | `{"sequence":[RUN,NEXT]}` | files of the run up to NEXT - 1 existed | when the journal is rewritten |
//!
//! A crash while a line is written leaves a torn last line, which is cut off at the next start: what it
//! would have said has not happened. A line that is damaged with good lines behind it is no crash but
//! damage, and the recorder refuses to guess.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{RunId, StoreUuid, crc32c};
use serde::{Deserialize, Serialize};

use crate::names::FileName;
use crate::sidecar::Sidecar;

/// The largest journal that is read, in bytes.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// A journal that is larger, in bytes, is rewritten without what is over: at the start, and when it has
/// doubled since.
pub const JOURNAL_REWRITE_BYTES: u64 = 16 << 20;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What follows came from this store.
    Store(StoreUuid),
    /// The file is durable and verified; its sidecar comes.
    Announce(Box<Sidecar>),
    /// The store released its events.
    Released(String),
    /// The file is not what it was; its events count as not recorded.
    Withdrawn(String),
    /// Files of the run with smaller numbers existed.
    Sequence(RunId, u32),
}

impl Line {
    /// Appends the line as it is written.
    pub fn write(&self, into: &mut Vec<u8>) {
        let json = serde_json::to_vec(self).expect("a line has no keys that are not strings");
        into.extend_from_slice(format!("{:08x} ", crc32c(&json)).as_bytes());
        into.extend_from_slice(&json);
        into.push(b'\n');
    }

    fn parse(line: &[u8]) -> Option<Line> {
        let (crc, json) = (line.get(..8)?, line.get(9..)?);
        let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
        if line[8] != b' ' || crc != crc32c(json) {
            return None;
        }
        let line: Line = serde_json::from_slice(json).ok()?;
        match &line {
            Line::Announce(sidecar) => sidecar.check().ok()?,
            Line::Released(name) | Line::Withdrawn(name) => drop(name.parse::<FileName>().ok()?),
            Line::Store(_) | Line::Sequence(..) => {}
        }
        Some(line)
    }
}

/// A journal that a crash cannot explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal is damaged: line {line} at byte {offset} is none of the recorder's, and {good_lines_behind} good lines \
     follow. Nothing was written or released. Files with a .json beside them are complete; compare the \
     others' events with the store before the journal is moved away"
)]
pub struct JournalError {
    /// Which line, counted from 1.
    pub line: usize,
    /// Where it starts.
    pub offset: usize,
    /// Good lines behind it.
    pub good_lines_behind: usize,
}

/// Reads a journal: its lines, and how many bytes of it are good; what follows these is a torn line.
///
/// # Errors
/// A damaged line with good lines behind it.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Line>, usize), JournalError> {
    let mut lines = Vec::new();
    let mut good_bytes = 0;
    let mut bad: Option<JournalError> = None;
    let mut offset = 0;
    for (number, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        let parsed = line.strip_suffix(b"\n").and_then(Line::parse);
        match (&mut bad, parsed) {
            (None, Some(parsed)) => {
                lines.push(parsed);
                good_bytes = offset + line.len();
            }
            (None, None) => bad = Some(JournalError { line: number + 1, offset, good_lines_behind: 0 }),
            (Some(error), Some(_)) => error.good_lines_behind += 1,
            (Some(_), None) => {}
        }
        offset += line.len();
    }
    match bad {
        Some(error) if error.good_lines_behind > 0 => Err(error),
        _ => Ok((lines, good_bytes)),
    }
}

/// What the lines of a journal come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The store of the latest files; `None` for an empty journal.
    pub store: Option<StoreUuid>,
    /// Announced and not released.
    pub pending: BTreeMap<FileName, Sidecar>,
    /// Released.
    pub released: BTreeSet<FileName>,
    /// Withdrawn.
    pub withdrawn: BTreeSet<FileName>,
    /// The next sequence number of each run, as far as the journal knows.
    pub next_sequence: BTreeMap<RunId, u32>,
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
            Line::Announce(sidecar) => {
                let file = sidecar.file_name();
                self.saw(file.run, file.sequence);
                self.pending.insert(file, *sidecar);
            }
            Line::Released(name) => {
                if let Ok(file) = name.parse::<FileName>() {
                    self.saw(file.run, file.sequence);
                    self.pending.remove(&file);
                    self.released.insert(file);
                }
            }
            Line::Withdrawn(name) => {
                if let Ok(file) = name.parse::<FileName>() {
                    self.saw(file.run, file.sequence);
                    self.pending.remove(&file);
                    self.withdrawn.insert(file);
                }
            }
            Line::Sequence(run, next) => {
                if let Some(last) = next.checked_sub(1) {
                    self.saw(run, last);
                }
            }
        }
    }

    /// Notes that a file with this number existed.
    pub fn saw(&mut self, run: RunId, sequence: u32) {
        let next = self.next_sequence.entry(run).or_default();
        *next = (*next).max(sequence.saturating_add(1));
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
        lines.extend(self.pending.values().map(|sidecar| Line::Announce(Box::new(sidecar.clone()))));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Line]) -> Vec<u8> {
        let mut bytes = Vec::new();
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
            let (parsed, good) = parse(&bytes[..cut]).expect("a torn end is no damage");
            let whole = ends.iter().rposition(|&end| end <= cut).expect("0 is among them");
            assert_eq!(parsed, lines[..whole], "cut at {cut}");
            assert_eq!(good, ends[whole], "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_good_lines_is_refused() {
        let bytes = text(&lines());
        let mut damaged = bytes.clone();
        damaged[20] ^= 1;
        let error = parse(&damaged).expect_err("damage");
        assert_eq!((error.line, error.offset, error.good_lines_behind), (1, 0, 3));
        let mut last = bytes.clone();
        let end = last.len() - 3;
        last[end] ^= 1;
        assert_eq!(parse(&last).expect("a torn end").0, lines()[..3]);
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
