//! Reading: each handle reads ahead for itself. Who reads on where it was is served from what was read ahead, one call after the other; who jumps asks for just what it
//! wants, with as many calls at once as it likes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_client::files::{ReadAhead, Taken};
use forebay_client::{Answer, SessionError};
use forebay_types::{FileNumber, ReadOutcome, Time};
use fuser::Errno;

use crate::attributes::unexpected;
use crate::errors;
use crate::file::Step;
use crate::machine::{Machine, Reply};
use crate::requests;

/// Read ahead of one handle, at most. With more, what is read ahead by several handles is out of the processor's cache when it is given to the kernel.
const AHEAD_BYTES: u64 = 2 << 20;

/// What was read ahead of a file that may change is used for so long.
const AHEAD_KEPT: Duration = Duration::from_secs(1);

/// A call that reads.
struct Reading {
    offset: u64,
    wanted: usize,
    bytes: BytesMut,
    reply: Reply<Bytes>,
}

/// A file that is read by one handle.
pub(crate) struct ReadHandle {
    number: FileNumber,
    is_sealed: bool,
    /// Where who reads on does so.
    expected: u64,
    ahead: Option<Ahead>,
    /// Calls that read on, in order.
    readings: VecDeque<Reading>,
}

struct Ahead {
    machine: ReadAhead,
    /// The numbers of its requests.
    asked: BTreeMap<u64, u64>,
    /// The changes that the file had when it began: later ones are not in it.
    changes: u64,
    used: Time,
    /// Answers to what an earlier one asked mean nothing.
    number: u64,
}

impl ReadHandle {
    pub(crate) fn new(number: FileNumber, is_sealed: bool) -> ReadHandle {
        ReadHandle { number, is_sealed, expected: 0, ahead: None, readings: VecDeque::new() }
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }
}

impl Machine {
    /// Reads for a handle, behind what was written through any handle of the mount.
    pub(crate) fn read(&mut self, handle: u64, offset: u64, bytes: u32, reply: Reply<Bytes>) {
        let Some(known) = self.handles.get(&handle) else { return reply(Err(Errno::EBADF)) };
        let number = known.number;
        match self.files.get(&number) {
            Some(file) if !file.is_settled() => {
                let then = Box::new(move |machine: &mut Machine, _| machine.begin_read(handle, offset, bytes, reply));
                self.push_step(number, Step::Settle { tells: false, then });
            }
            _ => self.begin_read(handle, offset, bytes, reply),
        }
    }

    fn begin_read(&mut self, handle: u64, offset: u64, bytes: u32, reply: Reply<Bytes>) {
        let Some(known) = self.handles.get_mut(&handle) else { return reply(Err(Errno::EBADF)) };
        let wanted = bytes as usize;
        let reads_on = offset == known.expected;
        known.expected = offset.saturating_add(u64::from(bytes));
        let reading = Reading { offset, wanted, bytes: BytesMut::new(), reply };
        if reads_on {
            known.readings.push_back(reading);
            self.read_on(handle);
        } else {
            let number = known.number;
            self.read_there(number, reading);
        }
    }

    /// Reads just what is wanted.
    fn read_there(&mut self, number: FileNumber, mut reading: Reading) {
        let lane = self.lane(number);
        let start = reading.offset + reading.bytes.len() as u64;
        let rest = (reading.wanted - reading.bytes.len()) as u32;
        self.ask_or_fail(lane, requests::read(number, start, rest), move |machine, answer| {
            let (outcome, bytes) = match answer {
                Ok(Answer::FileBytes(outcome, bytes)) => (outcome, bytes),
                Ok(other) => unexpected(&other),
                Err(error) => return (reading.reply)(Err(error)),
            };
            if let Err(error) = errors::of_read(outcome) {
                return (reading.reply)(Err(error));
            }
            // The usual case is not copied.
            if outcome == ReadOutcome::Found && bytes.len() == reading.wanted {
                return (reading.reply)(Ok(bytes));
            }
            reading.bytes.extend_from_slice(&bytes);
            if bytes.is_empty() || reading.bytes.len() == reading.wanted {
                return (reading.reply)(Ok(reading.bytes.freeze()));
            }
            machine.read_there(number, reading);
        });
    }

    /// Goes on with the calls of a handle that read on.
    fn read_on(&mut self, handle: u64) {
        while self.read_first(handle) {}
        self.ask_ahead(handle);
    }

    /// Goes on with the first call; whether it is over.
    fn read_first(&mut self, handle: u64) -> bool {
        self.renew_ahead(handle);
        let now = self.now;
        let Some(known) = self.handles.get_mut(&handle) else { return false };
        let (Some(reading), Some(ahead)) = (known.readings.front_mut(), known.ahead.as_mut()) else { return false };
        ahead.used = now;
        let result = loop {
            let have = reading.bytes.len();
            if have == reading.wanted {
                break Ok(reading.bytes.split().freeze());
            }
            let offset = reading.offset + have as u64;
            ahead.machine.want(offset, reading.wanted - have);
            match ahead.machine.take_shared(offset, reading.wanted - have) {
                // The usual case is not copied.
                Ok(bytes) if bytes.len() == reading.wanted => break Ok(bytes),
                Ok(bytes) => reading.bytes.extend_from_slice(&bytes),
                Err(Taken::Wait) => return false,
                Err(Taken::Failed(failure)) => break Err(errors::of_read_failure(&failure)),
                Err(_) => break Ok(reading.bytes.split().freeze()),
            }
        };
        let reading = known.readings.pop_front().expect("it is the first");
        (reading.reply)(result);
        true
    }

    /// Begins anew to read ahead when what is here is too old.
    fn renew_ahead(&mut self, handle: u64) {
        let number = self.take_number();
        let Some(known) = self.handles.get_mut(&handle) else { return };
        let file = self.files.get(&known.number);
        let (changes, length) = file.map_or((0, 0), |file| (file.changes, file.length));
        let is_old =
            |ahead: &Ahead| ahead.changes != changes || (!known.is_sealed && self.now.since(ahead.used) > AHEAD_KEPT);
        if known.ahead.as_ref().is_some_and(|ahead| !is_old(ahead)) {
            return;
        }
        let machine = ReadAhead::new(known.number, length, known.is_sealed, AHEAD_BYTES);
        let before = known.ahead.replace(Ahead { machine, asked: BTreeMap::new(), changes, used: self.now, number });
        self.forget_ahead(before);
    }

    fn forget_ahead(&mut self, ahead: Option<Ahead>) {
        let asked = ahead.map(|ahead| ahead.asked).unwrap_or_default();
        asked.into_values().for_each(|request| self.forget_request(request));
    }

    /// Asks for what a handle reads ahead.
    fn ask_ahead(&mut self, handle: u64) {
        loop {
            let Some(known) = self.handles.get_mut(&handle) else { return };
            let (file, Some(ahead)) = (known.number, known.ahead.as_mut()) else { return };
            let unwanted: Vec<u64> = ahead.machine.take_forgotten();
            let unwanted: Vec<u64> = unwanted.into_iter().filter_map(|place| ahead.asked.remove(&place)).collect();
            let next = ahead.machine.next_request();
            let number = ahead.number;
            unwanted.into_iter().for_each(|request| self.forget_request(request));
            let Some((place, request)) = next else { return };
            let lane = self.lane(file);
            let asked = self.ask(lane, request, move |machine, answer| machine.came(handle, number, place, answer));
            let ahead = self.handles.get_mut(&handle).and_then(|known| known.ahead.as_mut());
            if let Some(ahead) = ahead {
                ahead.asked.insert(place, asked);
            }
        }
    }

    fn came(&mut self, handle: u64, number: u64, place: u64, answer: Result<Answer, SessionError>) {
        let ahead = self.handles.get_mut(&handle).and_then(|known| known.ahead.as_mut());
        let Some(ahead) = ahead.filter(|ahead| ahead.number == number) else { return };
        ahead.asked.remove(&place);
        if let Err(error) = &answer {
            let error = error.clone();
            self.failed(&error);
        }
        let answer = answer.map(|answer| match answer {
            Answer::FileBytes(outcome, bytes) => (outcome, bytes),
            other => unexpected(&other),
        });
        let ahead = self.handles.get_mut(&handle).and_then(|known| known.ahead.as_mut());
        ahead.expect("it was there").machine.answered(place, answer);
        self.read_on(handle);
    }

    /// A handle is closed.
    pub(crate) fn forget_handle(&mut self, handle: u64) -> Option<FileNumber> {
        let known = self.handles.remove(&handle)?;
        self.forget_ahead(known.ahead);
        Some(known.number)
    }
}
