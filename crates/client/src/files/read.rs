//! A file that is read ahead, as a machine: who reads on where it was has several parts of what follows on their way, who jumps is asked for nothing else.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use forebay_protocol::FileRead;
use forebay_types::limits::{FILE_BYTES_MAX, PIECE_BYTES_MAX};
use forebay_types::{FileNumber, ReadOutcome};

use crate::session::{Request, SessionError};

/// Bytes asked for at once: as long as pieces are, which are read whole.
const ASK_BYTES: u64 = PIECE_BYTES_MAX as u64;

/// Why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// What the store says of the bytes from there on.
    Outcome(ReadOutcome),
    /// The server gave no answer, or none that can be believed.
    Session(SessionError),
}

/// What came of asking for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many are there, at least one.
    Bytes(usize),
    /// The file ends here now.
    End,
    /// They are on their way.
    Wait,
    /// They cannot be read.
    Failed(ReadFailure),
}

enum Content {
    Asked(u64),
    Here(Bytes),
    Failed(ReadFailure),
    /// The file ended where this begins.
    End,
}

struct Slot {
    /// How many bytes: asked for, or here.
    bytes: u64,
    content: Content,
}

/// A file that is read. Who drives it:
/// - says what is wanted ([`ReadAhead::want`]) and asks what [`ReadAhead::next_request`] gives;
/// - says the answers, in any order ([`ReadAhead::answered`]), and forgets those that [`ReadAhead::take_forgotten`] names;
/// - takes bytes ([`ReadAhead::take`]).
pub struct ReadAhead {
    file: FileNumber,
    /// So many bytes are on their way or here, at most, with those that were asked for.
    window_bytes: u64,
    /// So many are read ahead now; 0 after a jump.
    ahead_bytes: u64,
    /// From here on nothing is asked for but what is wanted.
    ahead_end: u64,
    /// Where who reads on does so.
    expected: u64,
    /// How long the file is, as far as is known; it is that for ever when it is sealed.
    length: u64,
    is_sealed: bool,
    /// By where they begin; none overlaps another one.
    slots: BTreeMap<u64, Slot>,
    to_ask: VecDeque<u64>,
    numbers: BTreeMap<u64, u64>,
    next_number: u64,
    forgotten: Vec<u64>,
}

impl ReadAhead {
    /// A file of `length` bytes as far as is known, which is sealed or may grow; at most `window_bytes` are read ahead.
    pub fn new(file: FileNumber, length: u64, is_sealed: bool, window_bytes: u64) -> ReadAhead {
        ReadAhead {
            file,
            window_bytes: window_bytes.max(ASK_BYTES),
            ahead_bytes: ASK_BYTES,
            ahead_end: u64::MAX,
            expected: 0,
            length,
            is_sealed,
            slots: BTreeMap::new(),
            to_ask: VecDeque::new(),
            numbers: BTreeMap::new(),
            next_number: 0,
            forgotten: Vec::new(),
        }
    }

    /// Bytes that are on their way or here.
    pub fn held_bytes(&self) -> u64 {
        self.slots.values().map(|slot| slot.bytes).sum()
    }

    /// How long the file is, as far as is known.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn drop_slot(&mut self, start: u64) {
        if let Some(Slot { content: Content::Asked(number), .. }) = self.slots.remove(&start) {
            self.to_ask.retain(|ask| *ask != start);
            if self.numbers.remove(&number).is_some() {
                self.forgotten.push(number);
            }
        }
    }

    /// That `bytes` from `offset` on are wanted.
    pub fn want(&mut self, offset: u64, bytes: usize) {
        let wanted = (bytes as u64).min(self.window_bytes);
        let is_jump = offset != self.expected;
        if is_jump {
            self.ahead_bytes = 0;
        }
        let until = offset.saturating_add(wanted).min(FILE_BYTES_MAX);
        // What lies behind the reader, and after a jump what it does not want, is not needed any more.
        let is_needed =
            |(start, slot): (&u64, &Slot)| start + slot.bytes.max(1) > offset && (!is_jump || *start < until);
        let unneeded: Vec<u64> =
            self.slots.iter().filter(|entry| !is_needed(*entry)).map(|(start, _)| *start).collect();
        unneeded.into_iter().for_each(|start| self.drop_slot(start));
        self.expected = offset;
        self.ask_from(offset, until);
    }

    /// That nothing behind what is wanted next is to be asked for.
    pub fn read_no_further(&mut self) {
        self.ahead_bytes = 0;
    }

    /// That from `end` on nothing is asked for but what is wanted, as somebody else reads there.
    pub fn read_ahead_until(&mut self, end: u64) {
        self.ahead_end = end;
    }

    fn ask_from(&mut self, offset: u64, until: u64) {
        if offset >= FILE_BYTES_MAX {
            return;
        }
        let rounded = if self.ahead_bytes > 0 { until.next_multiple_of(ASK_BYTES) } else { until };
        let ahead = offset.saturating_add(self.ahead_bytes) / ASK_BYTES * ASK_BYTES;
        let (until, ahead) = (until.max(rounded.min(self.ahead_end)), ahead.min(self.ahead_end));
        let end = match offset < self.length {
            true => until.max(ahead).min(self.length),
            false if self.is_sealed => return,
            // Behind what is known of a file that may grow one question is enough.
            false => until.min((offset / ASK_BYTES + 1) * ASK_BYTES),
        };
        let end = end.min(FILE_BYTES_MAX);
        let mut at = offset;
        while at < end {
            if let Some((start, slot)) =
                self.slots.range(..=at).next_back().filter(|(start, slot)| *start + slot.bytes > at || **start == at)
            {
                // The end of the file ends what is asked for, too.
                at = if slot.bytes == 0 { end } else { start + slot.bytes };
                continue;
            }
            let next = self.slots.range(at..).next().map_or(u64::MAX, |(start, _)| *start);
            let stop = next.min(end).min((at / ASK_BYTES + 1) * ASK_BYTES);
            self.next_number += 1;
            self.slots.insert(at, Slot { bytes: stop - at, content: Content::Asked(self.next_number) });
            self.to_ask.push_back(at);
            at = stop;
        }
    }

    /// What to ask next, with the number under which to say the answer.
    pub fn next_request(&mut self) -> Option<(u64, Request)> {
        let start = self.to_ask.pop_front()?;
        let Slot { bytes, content: Content::Asked(number) } = self.slots.get(&start)? else { return None };
        self.numbers.insert(*number, start);
        Some((*number, Request::FileRead(FileRead { file: self.file, start, bytes: *bytes as u32 })))
    }

    /// Requests to which nobody wants an answer any more.
    pub fn take_forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// The answer to a request. Those to requests that nobody wants are ignored.
    pub fn answered(&mut self, number: u64, answer: Result<(ReadOutcome, Bytes), SessionError>) {
        let Some(start) = self.numbers.remove(&number) else { return };
        let Some(slot) = self.slots.get_mut(&start) else { return };
        match answer {
            Ok((ReadOutcome::Found, bytes)) if !bytes.is_empty() => {
                let came = (bytes.len() as u64).min(slot.bytes);
                *slot = Slot { bytes: came, content: Content::Here(bytes.slice(..came as usize)) };
                self.length = self.length.max(start + came);
            }
            Ok((ReadOutcome::Found | ReadOutcome::NotFound, _)) => {
                *slot = Slot { bytes: 0, content: Content::End };
                self.length = self.length.min(start);
            }
            Ok((outcome, _)) => slot.content = Content::Failed(ReadFailure::Outcome(outcome)),
            Err(error) => slot.content = Content::Failed(ReadFailure::Session(error)),
        }
    }

    /// Takes bytes from `offset` on, as was said with [`ReadAhead::want`]: as many as lie there together, and no more than `into` has room for.
    pub fn take(&mut self, offset: u64, into: &mut [u8]) -> Taken {
        match self.take_shared(offset, into.len()) {
            Ok(bytes) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                Taken::Bytes(bytes.len())
            }
            Err(taken) => taken,
        }
    }

    /// The same, not copied, and at most `bytes_max`.
    ///
    /// # Errors
    /// What there is instead of bytes; never [`Taken::Bytes`].
    pub fn take_shared(&mut self, offset: u64, bytes_max: usize) -> Result<Bytes, Taken> {
        if self.is_sealed && offset >= self.length {
            return Err(Taken::End);
        }
        let found = self.slots.range_mut(..=offset).next_back();
        let Some((start, slot)) = found.filter(|(start, slot)| **start + slot.bytes > offset || **start == offset)
        else {
            return Err(if offset >= FILE_BYTES_MAX { Taken::End } else { Taken::Wait });
        };
        let start = *start;
        let taken = match &slot.content {
            Content::Asked(_) => return Err(Taken::Wait),
            Content::Here(bytes) => {
                let rest = bytes.slice((offset - start) as usize..);
                let count = rest.len().min(bytes_max);
                self.expected = offset + count as u64;
                if count < rest.len() {
                    return Ok(rest.slice(..count));
                }
                self.ahead_bytes = (self.ahead_bytes * 2).clamp(ASK_BYTES, self.window_bytes);
                Ok(rest)
            }
            Content::End => Err(Taken::End),
            Content::Failed(failure) => Err(Taken::Failed(failure.clone())),
        };
        self.drop_slot(start);
        taken
    }
}
