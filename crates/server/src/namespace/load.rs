//! What a start reads: the newest whole snapshot, and the journals from its generation on.

use std::collections::VecDeque;

use forebay_engine::{FetchFile, Reply};
use forebay_names::{JournalError, Loader, Loss, Names, ROOT_ORDINAL};
use forebay_runs::Books;
use forebay_types::placement::lane_ordinal;
use forebay_types::{FileNumber, ReadOutcome};

use super::{NAMES_REQUEST, keeps_names};
use crate::lane_requests::LaneRequests;
use crate::request::token;

/// Bytes that are read at once.
const READ_BYTES: u32 = 1 << 20;

/// A file that is to be read.
struct Part {
    number: FileNumber,
    is_snapshot: bool,
    length: u64,
}

/// Reads the names of a store from the files of lane 0, one part after the other: what drives it asks the lane and brings its answers.
pub struct NamesLoading {
    loader: Loader,
    parts: VecDeque<Part>,
    /// Of the first part, up to here.
    at: u64,
    /// What was read and is not a whole change yet.
    rest: Vec<u8>,
    is_reading: bool,
    waits_for_drives: bool,
    generation: u64,
    damage: Vec<String>,
    /// What a newer version wrote, in words.
    newer: Option<String>,
    /// A journal that ends in a piece of a change, and where the last whole one ends.
    cut: Option<(FileNumber, u64)>,
    obsolete: Vec<FileNumber>,
}

/// What a start found.
pub struct NamesFound {
    /// As far as they could be read.
    pub names: Names,
    /// The books of runs and streams.
    pub books: Books,
    /// A newer version wrote something that this one does not know, in words: nothing of it may be changed.
    pub newer: Option<String>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
    /// What of the rest does not fit together.
    pub losses: Vec<Loss>,
    /// The journal that is written on is to be cut there first.
    pub(super) cut: Option<(FileNumber, u64)>,
    /// Journals and snapshots that no start needs any more.
    pub(super) obsolete: Vec<FileNumber>,
}

impl NamesFound {
    /// Whether something is missing.
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty() || !self.losses.is_empty() || self.newer.is_some()
    }
}

impl NamesLoading {
    /// What is to be read, of lane 0 of a store of so many lanes, which must have recovered.
    pub fn plan(lanes: u16, lane: &impl LaneRequests) -> NamesLoading {
        let of = |number: FileNumber| lane_ordinal(number.0, lanes);
        let kept: Vec<FileNumber> = lane
            .files_from(FileNumber(0))
            .filter(|number| keeps_names(*number, lanes) && of(*number) < ROOT_ORDINAL)
            .collect();
        let is_snapshot = |number: FileNumber| of(number) % 2 == 0;
        let sealed = |number: &FileNumber| lane.file(*number).is_some_and(|file| file.sealed);
        let newest = kept.iter().copied().filter(|number| is_snapshot(*number)).filter(sealed).max_by_key(|n| of(*n));
        let from = newest.map_or(0, |snapshot| of(snapshot) / 2);
        let is_needed = |number: FileNumber| Some(number) == newest || (!is_snapshot(number) && of(number) / 2 >= from);
        let (mut needed, obsolete): (Vec<_>, Vec<_>) = kept.into_iter().partition(|number| is_needed(*number));
        needed.sort_by_key(|number| of(*number));
        let mut damage = Vec::new();
        let first = needed.first().map(|number| of(*number));
        if newest.is_none() && first.is_some_and(|first| first > 1) {
            damage.push("there is no whole snapshot for the journals that are there".to_owned());
        }
        let generation = needed.last().map_or(from, |last| of(*last) / 2);
        let length = |number| lane.file(number).map_or(0, |file| file.length);
        let part = |number| Part { number, is_snapshot: is_snapshot(number), length: length(number) };
        NamesLoading {
            loader: Loader::new(lanes),
            parts: needed.into_iter().map(part).collect(),
            at: 0,
            rest: Vec::new(),
            is_reading: false,
            waits_for_drives: false,
            generation,
            damage,
            newer: None,
            cut: None,
            obsolete,
        }
    }

    /// Whether all was read.
    pub fn is_over(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether what comes next is out of reach as long as drives are missing.
    pub fn waits_for_drives(&self) -> bool {
        self.waits_for_drives
    }

    /// What is out of reach is left out, as if it were lost.
    pub fn leave_out(&mut self) {
        if std::mem::take(&mut self.waits_for_drives)
            && let Some(part) = self.parts.front()
        {
            let number = part.number.0;
            self.skip_part(format!(
                "file {number}, which keeps names, is out of reach from byte {} on, and left out from there until a start with the drives that hold it: changes that were not acknowledged, or more than the parity \
                 makes up for",
                self.at
            ));
        }
    }

    /// Reads on, as far as it is in memory; whether drives were asked. Then [`NamesLoading::take_reply`] wants the answer.
    pub fn go_on(&mut self, lane: &mut impl LaneRequests) -> bool {
        while !self.is_reading
            && let Some(part) = self.parts.front()
        {
            if self.at >= part.length {
                self.end_part();
                continue;
            }
            let mut bytes = Vec::new();
            match lane.read_file(token(NAMES_REQUEST, 0), part.number, self.at, READ_BYTES, &mut bytes) {
                FetchFile::Done(outcome, _) => self.take(outcome, &bytes),
                FetchFile::Pending { .. } => {
                    self.is_reading = true;
                    return true;
                }
            }
            if self.waits_for_drives {
                break;
            }
        }
        false
    }

    /// An answer of the lane.
    pub fn take_reply(&mut self, reply: Reply) {
        let Reply::ReadFile { outcome, payload, .. } = reply else { return };
        assert!(self.is_reading, "an answer is to what was asked");
        self.is_reading = false;
        self.take(outcome, &payload);
    }

    fn take(&mut self, outcome: ReadOutcome, bytes: &[u8]) {
        let Some(part) = self.parts.front() else { return };
        self.waits_for_drives = outcome == ReadOutcome::Unavailable;
        if self.waits_for_drives {
            return;
        }
        if outcome != ReadOutcome::Found || bytes.is_empty() {
            let number = part.number.0;
            self.skip_part(format!("file {number} cannot be read from byte {} on: {outcome}", self.at));
            return;
        }
        self.at += bytes.len() as u64;
        self.rest.extend_from_slice(bytes);
        match self.loader.read(&self.rest) {
            Ok(taken) => drop(self.rest.drain(..taken)),
            Err(error) => {
                let number = part.number.0;
                if matches!(error, JournalError::Newer { .. }) {
                    self.newer = Some(format!("file {number} before byte {}: {error}", self.at));
                }
                self.skip_part(format!(
                    "file {number} has before byte {} what is no change of a name: {error}",
                    self.at
                ));
            }
        }
    }

    fn skip_part(&mut self, why: String) {
        self.damage.push(why);
        self.rest.clear();
        self.next_part();
    }

    fn next_part(&mut self) {
        self.parts.pop_front();
        self.at = 0;
    }

    fn end_part(&mut self) {
        let Some(part) = self.parts.front() else { return };
        let (number, whole_bytes) = (part.number, part.length - self.rest.len() as u64);
        if part.is_snapshot && !self.loader.is_whole() {
            return self.skip_part(format!("snapshot {} is not whole", number.0));
        }
        if !self.rest.is_empty() {
            if self.parts.len() > 1 {
                return self.skip_part(format!("journal {} ends in the middle of a change", number.0));
            }
            // A crash took the rest of a change that nobody was told of.
            self.cut = Some((number, whole_bytes));
            self.rest.clear();
        }
        self.next_part();
    }

    /// What came of it.
    pub fn finish(self) -> NamesFound {
        let (names, losses) = self.loader.finish(self.generation);
        let (mut books, mut newer) = (Books::default(), self.newer);
        for (key, value) in names.kept() {
            if let Err(error) = books.load(key, value) {
                newer.get_or_insert(error.to_string());
            }
        }
        let is_damaged = !self.damage.is_empty() || !losses.is_empty();
        NamesFound {
            names,
            books,
            newer,
            damage: self.damage,
            losses,
            cut: self.cut.filter(|_| !is_damaged),
            // While something is missing, what is there may be all that is left of it.
            obsolete: if is_damaged { Vec::new() } else { self.obsolete },
        }
    }
}
