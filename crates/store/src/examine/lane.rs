//! Looking at one lane: it recovers, then answers what lies where and whether it is right.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_engine::{
    CheckpointPlace, EventFragment, Fetch, FetchEvent, FetchFile, FlushCheck, Lane, Looked, Reply, StoredEvent,
    StoredFragment, StoredSegment, StoredWhole, Token,
};
use forebay_media::SilentDrives;
use forebay_types::{DriveNumber, EventKey, FileNumber, FragmentId, ReadOutcome};

use crate::open::LaneSeed;
use crate::runner::LaneRunner;

/// Flushes that are checked at once, and bytes of fragments that are read at once: enough for drives to be busy, and a bound for memory.
const CHECKS_AT_ONCE: usize = 8;
const READ_BYTES_AT_ONCE: u64 = 32 << 20;
const READS_AT_ONCE: usize = 256;
const FILE_BYTES_AT_ONCE: u32 = 4 << 20;

/// How long drives are waited for before the progress is told again.
const WAIT: Duration = Duration::from_millis(50);

/// A fragment that is to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadWanted {
    /// Its id.
    pub id: FragmentId,
    /// Its size in bytes.
    pub bytes: u32,
}

/// A lane that is looked at.
pub struct LaneLook {
    runner: LaneRunner,
    silent: SilentDrives,
    next_token: u64,
}

impl LaneLook {
    /// Starts the lane and waits until it has recovered or knows that it cannot; `waiting` is called now and then.
    pub(super) fn begin(seed: LaneSeed, silent: SilentDrives, waiting: &mut dyn FnMut()) -> LaneLook {
        let mut look = LaneLook { runner: seed.start(), silent, next_token: 0 };
        while look.lane().serves_reads().is_err() && look.lane().status().reason.is_none() {
            look.runner.wait(WAIT);
            waiting();
        }
        look.lane().keep_drives_that_fail_reads();
        look
    }

    /// The drives that did not answer in time since this look began. What was told since then may count on them, or call lost what they hold: it is
    /// to be looked at anew, without them ([`Examination::give_up`]).
    ///
    /// [`Examination::give_up`]: super::Examination::give_up
    pub fn silent(&self) -> Vec<DriveNumber> {
        self.silent.list()
    }

    /// The lane, for what it tells at once.
    pub fn lane(&mut self) -> &mut Lane {
        self.runner.lane()
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// The places for checkpoints on every drive that is there.
    pub fn checkpoints(&mut self) -> Vec<CheckpointPlace> {
        let token = self.token();
        self.lane().check_checkpoints(token);
        loop {
            if let Some((_, Looked::Checkpoints(places))) = self.lane().next_looked() {
                return places;
            }
            self.runner.wait(WAIT);
        }
    }

    /// Checks every flush of a segment, its closing flush last; `each` gets each check, in any order.
    pub fn check(&mut self, segment: &StoredSegment, units: bool, each: &mut dyn FnMut(FlushCheck)) {
        let closing = segment.closed.then_some(None);
        let mut left: VecDeque<Option<u32>> = segment.flushes.iter().copied().map(Some).chain(closing).collect();
        let mut waiting = 0;
        while waiting > 0 || !left.is_empty() {
            while waiting < CHECKS_AT_ONCE
                && let Some(flush) = left.pop_front()
            {
                let token = self.token();
                waiting += usize::from(self.lane().check_flush(token, segment.handle, flush, units));
            }
            self.runner.turn();
            while let Some((_, Looked::Flush(check))) = self.lane().next_looked() {
                waiting -= 1;
                each(check);
            }
            if waiting > 0 {
                self.runner.wait(WAIT);
            }
        }
    }

    /// The events that are not finished, ascending from `from` on, `events_max` of them at most. Of those that are one record, that is read to find
    /// what is in it; with each event, what that came to: `Found`, unless the record cannot be read.
    pub fn stored_events(&mut self, from: EventKey, events_max: usize) -> Vec<(StoredEvent, ReadOutcome)> {
        let events = self.lane().stored_events(from, events_max);
        events.into_iter().map(|event| self.with_fragments(event)).collect()
    }

    fn with_fragments(&mut self, mut event: StoredEvent) -> (StoredEvent, ReadOutcome) {
        let Some(whole) = event.whole else { return (event, ReadOutcome::Found) };
        let token = self.token();
        let (outcome, fragments) = match self.lane().get_whole(token, event.key, &mut Vec::new()) {
            FetchEvent::Done(outcome, fragments) => (outcome, fragments),
            FetchEvent::Pending { .. } => loop {
                if let Reply::ReadEvent { outcome, parts, .. } = self.next_reply() {
                    break (outcome, parts.into_iter().map(|part| part.fragment).collect());
                }
            },
        };
        let StoredWhole { segment, flush, .. } = whole;
        let stored = |EventFragment { source, bytes, crc }| StoredFragment { source, bytes, crc, segment, flush };
        event.fragments = fragments.into_iter().map(stored).collect();
        (event, outcome)
    }

    /// Reads fragments; `each` gets what each came to, with its bytes when they are right, in any order. It ends with the first error of `each`.
    ///
    /// # Errors
    /// That of `each`.
    pub fn read<E>(
        &mut self,
        wanted: impl IntoIterator<Item = ReadWanted>,
        each: &mut dyn FnMut(FragmentId, ReadOutcome, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut wanted = wanted.into_iter().peekable();
        let mut waiting: BTreeMap<Token, ReadWanted> = BTreeMap::new();
        let mut waiting_bytes = 0;
        while wanted.peek().is_some() || !waiting.is_empty() {
            while (waiting.is_empty() || waiting_bytes < READ_BYTES_AT_ONCE)
                && waiting.len() < READS_AT_ONCE
                && let Some(next) = wanted.next()
            {
                let (token, mut payload) = (self.token(), Vec::new());
                match self.lane().get(token, next.id, &mut payload) {
                    Fetch::Done(outcome, _) => each(next.id, outcome, payload)?,
                    Fetch::Pending { .. } => {
                        waiting_bytes += u64::from(next.bytes);
                        waiting.insert(token, next);
                    }
                }
            }
            self.runner.turn();
            while let Some(reply) = self.lane().next_reply() {
                let Reply::Read { token, outcome, payload, .. } = reply else { continue };
                let Some(read) = waiting.remove(&token) else { continue };
                waiting_bytes -= u64::from(read.bytes);
                each(read.id, outcome, payload)?;
            }
            if !waiting.is_empty() {
                self.runner.wait(WAIT);
            }
        }
        Ok(())
    }

    /// The next answer of the lane, when it was asked for something.
    pub fn next_reply(&mut self) -> Reply {
        loop {
            self.runner.turn();
            if let Some(reply) = self.lane().next_reply() {
                return reply;
            }
            self.runner.wait(WAIT);
        }
    }

    fn file_reply(&mut self) -> (ReadOutcome, Vec<u8>) {
        loop {
            if let Reply::ReadFile { outcome, payload, .. } = self.next_reply() {
                return (outcome, payload);
            }
        }
    }

    /// Reads a file through, but for its holes.
    ///
    /// # Errors
    /// The first byte that cannot be read, and why.
    pub fn read_file(&mut self, file: FileNumber) -> Result<(), (u64, ReadOutcome)> {
        let mut start = 0;
        while let Some((piece_end, is_hole)) = self.lane().piece_at(file, start) {
            if is_hole {
                start = piece_end;
                continue;
            }
            let (token, mut payload) = (self.token(), Vec::new());
            let (outcome, payload) = match self.lane().read_file(token, file, start, FILE_BYTES_AT_ONCE, &mut payload) {
                FetchFile::Done(outcome, _) => (outcome, payload),
                FetchFile::Pending { .. } => self.file_reply(),
            };
            if outcome != ReadOutcome::Found || payload.is_empty() {
                return Err((start, outcome));
            }
            start += payload.len() as u64;
        }
        Ok(())
    }

    /// Some bytes of a file from there on, up to 4 MiB, also when something newer of it may be hidden; what the first of them came to.
    pub fn rescue_file(&mut self, file: FileNumber, start: u64) -> (ReadOutcome, Vec<u8>) {
        let (token, mut payload) = (self.token(), Vec::new());
        match self.lane().rescue_file(token, file, start, FILE_BYTES_AT_ONCE, &mut payload) {
            FetchFile::Done(outcome, _) => (outcome, payload),
            FetchFile::Pending { .. } => self.file_reply(),
        }
    }
}
