//! What the mount makes of the kernel's requests, as a machine without I/O, clock, threads and randomness.
//!
//! A call of the kernel is a method with a [`Reply`]. It asks the store ([`Machine::next_request`]), and what comes back ([`Machine::answered`]) goes to whoever
//! asked, as a closure: so the code of a call stands in one place though many are on their way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_client::{Answer, Blocks, Request, SessionError};
use forebay_protocol::{Node, Opener, Ping, lane_of};
use forebay_types::{FileNumber, Time};
use fuser::{Errno, FileType};

use crate::attributes::{Known, Unanswered, unknown};
use crate::calls::Room;
use crate::directories::OpenDirectory;
use crate::errors;
use crate::file::OpenFile;
use crate::memory::Memory;
use crate::names::KnownDirectories;
use crate::read::ReadHandle;

/// The lane of all names.
pub(crate) const NAMES_LANE: u16 = 0;

/// What is refused for now is asked again after so long at first, and after twice as long each time.
const AGAIN_MIN: Duration = Duration::from_millis(20);

/// The longest of these waits.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A warning that the store cannot be used is said as often.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The server forgets who has a file open a minute after their connection was lost: it is told so often.
const TELL_OPEN_EVERY: Duration = Duration::from_secs(20);

/// Takes the answer to a call of the kernel.
pub(crate) type Reply<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// Goes on with what the store answered.
type Then = Box<dyn FnOnce(&mut Machine, Result<Answer, SessionError>) + Send>;

/// Goes on with what several requests came to, in their order.
type ThenAll = Box<dyn FnOnce(&mut Machine, Vec<Result<Answer, Errno>>) + Send>;

type Timer = Box<dyn FnOnce(&mut Machine) + Send>;

/// What the machine is told once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineConfig {
    /// The lanes of the store.
    pub lanes: u16,
    /// The number of its root.
    pub root: FileNumber,
    /// The number of this client, which no other has.
    pub client: u64,
    /// Bytes of a write, at most.
    pub piece_bytes_max: usize,
    /// How long something is tried.
    pub patience: Duration,
    /// How long after the last close a file is sealed.
    pub seal_after: Duration,
}

/// Answers that are collected.
struct Gathering {
    answers: Vec<Option<Result<Answer, Errno>>>,
    missing: usize,
    then: Option<ThenAll>,
}

/// The mount. Who drives it says the time, makes calls, asks [`Machine::next_request`], and says the answers in any order.
pub(crate) struct Machine {
    pub(crate) config: MachineConfig,
    /// Memory of what is written.
    pub(crate) written: Blocks,
    pub(crate) now: Time,
    pub(crate) now_unix_ns: i64,
    /// Counts the starts of the store.
    pub(crate) epoch: u64,
    next_number: u64,
    waiting: BTreeMap<u64, Then>,
    outgoing: VecDeque<(u64, u16, Request)>,
    forgotten: Vec<u64>,
    gatherings: BTreeMap<u64, Gathering>,
    timers: BTreeMap<(Time, u64), Timer>,
    warned: Option<Time>,
    /// Changes of names without an answer.
    pub(crate) changes: BTreeSet<u64>,
    pub(crate) next_change: u64,
    pub(crate) next_opening: u32,
    pub(crate) known_directories: KnownDirectories,
    pub(crate) files: BTreeMap<FileNumber, OpenFile>,
    /// Bytes that were taken of the kernel and are not answered.
    pub(crate) unanswered_bytes: usize,
    /// Files whose bytes are taken when there are fewer of these.
    pub(crate) wait_for_room: BTreeSet<FileNumber>,
    /// Files that are to be sealed then.
    pub(crate) to_seal: BTreeMap<FileNumber, Time>,
    /// Files that are being sealed.
    pub(crate) sealing: usize,
    /// Files that were sealed when they were opened: what the kernel keeps of them is right.
    pub(crate) seen_sealed: BTreeSet<FileNumber>,
    pub(crate) handles: BTreeMap<u64, ReadHandle>,
    pub(crate) directories: BTreeMap<u64, OpenDirectory>,
    /// The directory that is mounted, and how full the store is.
    pub(crate) root: Memory<Known>,
    pub(crate) room: Memory<Room>,
    /// The kernel asks for nothing any more.
    pub(crate) is_ending: bool,
}

impl Machine {
    /// Nothing is open, and the root is that.
    pub(crate) fn new(config: MachineConfig, epoch: u64, root: &Node, written: Blocks) -> Machine {
        let mut machine = Machine {
            config,
            written,
            now: Time::default(),
            now_unix_ns: 0,
            epoch,
            next_number: 1,
            waiting: BTreeMap::new(),
            outgoing: VecDeque::new(),
            forgotten: Vec::new(),
            gatherings: BTreeMap::new(),
            timers: BTreeMap::new(),
            warned: None,
            changes: BTreeSet::new(),
            next_change: 1,
            next_opening: 1,
            known_directories: KnownDirectories::default(),
            files: BTreeMap::new(),
            unanswered_bytes: 0,
            wait_for_room: BTreeSet::new(),
            to_seal: BTreeMap::new(),
            sealing: 0,
            seen_sealed: BTreeSet::new(),
            handles: BTreeMap::new(),
            directories: BTreeMap::new(),
            root: Memory::new(unknown(FileType::Directory)),
            room: Memory::new(Room::default()),
            is_ending: false,
        };
        let known = machine.known(root, None, Unanswered::default());
        machine.root = Memory::new(known);
        machine.tell_open_later();
        machine
    }

    /// It is now so late, and the store was started so often.
    pub(crate) fn set_now(&mut self, now: Time, now_unix_ns: i64, epoch: u64) {
        (self.now, self.now_unix_ns) = (now, now_unix_ns);
        if self.epoch != epoch {
            // It knows nobody who has a file open.
            self.epoch = epoch;
            self.tell_open();
        }
    }

    /// A number that was not given before.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// What to ask the store next: the number under which to say the answer, and the lane.
    pub(crate) fn next_request(&mut self) -> Option<(u64, u16, Request)> {
        self.outgoing.pop_front()
    }

    /// Requests to which nobody wants an answer any more.
    pub(crate) fn take_forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// The answer to a request; those to unknown ones are ignored.
    pub(crate) fn answered(&mut self, number: u64, answer: Result<Answer, SessionError>) {
        if let Some(then) = self.waiting.remove(&number) {
            then(self, answer);
        }
    }

    /// When [`Machine::tick`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= self.now) {
            first.remove()(self);
        }
        if self.is_ending && self.files.is_empty() {
            self.seal_all();
        }
    }

    /// The kernel asks for nothing any more: what is open is closed, and what is to be sealed is sealed.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        let handles: Vec<u64> = self.handles.keys().copied().collect();
        for handle in handles {
            self.forget_handle(handle);
        }
        self.close_all();
    }

    /// Whether nothing is left to be done but what changes nothing that is stored.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_ending && self.files.is_empty() && self.to_seal.is_empty() && self.sealing == 0
    }

    /// Whether nothing at all is left to be done.
    pub(crate) fn is_over(&self) -> bool {
        self.is_settled() && self.waiting.is_empty()
    }

    /// Bytes that were taken of the kernel and are not durable.
    pub(crate) fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    /// Has something done after a while.
    pub(crate) fn later(&mut self, after: Duration, timer: impl FnOnce(&mut Machine) + Send + 'static) {
        let number = self.take_number();
        self.timers.insert((self.now + after, number), Box::new(timer));
    }

    /// How long to wait before something is tried again that was refused so often since then; `None` when that was long enough.
    pub(crate) fn again_after(&self, since: Time, refusals: u32) -> Option<Duration> {
        let wait = AGAIN_MIN.saturating_mul(1 << refusals.min(10)).min(AGAIN_MAX);
        (self.now.since(since) < self.config.patience).then_some(wait)
    }

    /// Asks a lane; gives the number of the request.
    pub(crate) fn ask(
        &mut self,
        lane: u16,
        request: Request,
        then: impl FnOnce(&mut Machine, Result<Answer, SessionError>) + Send + 'static,
    ) -> u64 {
        let number = self.take_number();
        self.waiting.insert(number, Box::new(then));
        self.outgoing.push_back((number, lane, request));
        number
    }

    /// The same where a failure ends the call.
    pub(crate) fn ask_or_fail(
        &mut self,
        lane: u16,
        request: Request,
        then: impl FnOnce(&mut Machine, Result<Answer, Errno>) + Send + 'static,
    ) -> u64 {
        self.ask(lane, request, move |machine, answer| {
            let answer = answer.map_err(|error| machine.failed(&error));
            then(machine, answer);
        })
    }

    /// Asks all of these at once, and waits for all answers.
    pub(crate) fn ask_all(
        &mut self,
        requests: Vec<(u16, Request)>,
        then: impl FnOnce(&mut Machine, Vec<Result<Answer, Errno>>) + Send + 'static,
    ) {
        if requests.is_empty() {
            return then(self, Vec::new());
        }
        let gathering = self.take_number();
        let answers = requests.iter().map(|_| None).collect();
        self.gatherings.insert(gathering, Gathering { answers, missing: requests.len(), then: Some(Box::new(then)) });
        for (place, (lane, request)) in requests.into_iter().enumerate() {
            self.ask_or_fail(lane, request, move |machine, answer| machine.gathered(gathering, place, answer));
        }
    }

    fn gathered(&mut self, number: u64, place: usize, answer: Result<Answer, Errno>) {
        let Some(gathering) = self.gatherings.get_mut(&number) else { return };
        gathering.answers[place] = Some(answer);
        gathering.missing -= 1;
        if gathering.missing == 0
            && let Some(Gathering { answers, then: Some(then), .. }) = self.gatherings.remove(&number)
        {
            then(self, answers.into_iter().flatten().collect());
        }
    }

    /// Nobody wants the answer to a request any more.
    pub(crate) fn forget_request(&mut self, number: u64) {
        if self.waiting.remove(&number).is_some() {
            self.forgotten.push(number);
        }
    }

    /// What a program is told when the store gave no answer.
    pub(crate) fn failed(&mut self, error: &SessionError) -> Errno {
        if self.warned.is_none_or(|warned| self.now.since(warned) >= WARN_EVERY) {
            self.warned = Some(self.now);
            tracing::warn!(
                "the store could not be asked: {error}. Programs are told an input/output error; what they were told to be written and synchronised is \
                 safe. See whether the server runs"
            );
        }
        errors::of_session(error)
    }

    /// The lane of a file.
    pub(crate) fn lane(&self, file: FileNumber) -> u16 {
        lane_of(file.key(), self.config.lanes)
    }

    /// An opening that is newer than all before it.
    pub(crate) fn new_opener(&mut self) -> Opener {
        let opening = self.next_opening;
        // After the last one, files that were opened long ago have long been closed: it begins anew.
        self.next_opening = opening.checked_add(1).unwrap_or(1);
        Opener { client: self.config.client, opening }
    }

    fn tell_open_later(&mut self) {
        self.later(TELL_OPEN_EVERY, |machine| {
            machine.tell_open();
            // Whether it was started anew is known before names are changed.
            machine.ask(NAMES_LANE, Request::Ping(Ping), |_, _| ());
            machine.tell_open_later();
        });
    }
}
