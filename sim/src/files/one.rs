//! The life of one file of a client: it is made under a name that no other has, opened, changed as its client likes, and removed; then comes the next.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_client::{Answer, Class, Request, SessionEvent};
use forebay_protocol::{
    ChangeName, Changer, FileClose, FileOpen, FileRead, FileSeal, FileSet, FileStat, FileWrite, NameChange, Opener,
};
use forebay_types::placement::lane_of;
use forebay_types::{FileNumber, FileOutcome, NameOutcome, NodeKind, Time, crc32c};

use crate::links::Links;
use crate::random::Random;
use crate::scenario::Scenario;

use super::{ROOT, new};

/// More than any of these files has.
const READ_BYTES: u32 = 1 << 20;

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none.
    None,
    Making,
    /// It is there, and not open.
    Closed,
    Opening,
    Open,
    /// Its client closes it, and will open it again.
    Leaving,
    /// Nothing of it changes any more.
    Sealed,
    /// Its client opens it to read it, which it does while it has no name any more, too.
    Holding,
    Held,
    Removing,
    /// It has no name any more, and is open.
    Unnamed,
    /// It has no name any more, and goes when it is not open either.
    Closing,
}

/// What its client asked, beside what the life of the file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// A change of the file, by its number.
    Change(u64),
    Seal(u64),
    Read,
    Stat,
}

/// What came of it; of what was given up nobody knows.
pub(super) type Answered = (Asked, Option<Answer>);

pub(super) struct OneFile {
    pub(super) links: Links,
    client: u64,
    /// What its names begin with.
    prefix: String,
    /// Files so far.
    pub(super) serial: u64,
    number: FileNumber,
    pub(super) phase: Phase,
    name_changes: u64,
    opening: u32,
    /// Somebody may have taken this one for open.
    was_opened: bool,
    /// It is removed while its client reads it.
    is_held: bool,
    /// Connections so far: who lost one may have lost what it had open.
    pub(super) greetings: u64,
    changes: u64,
    /// Changes that are waited for.
    unanswered: BTreeSet<u64>,
    /// What the life of the file waits for.
    awaited: Option<(usize, u64)>,
    asked: BTreeMap<(usize, u64), Asked>,
    pub(super) operations: u64,
}

impl OneFile {
    pub(super) fn new(prefix: String, scenario: &Scenario, random: &mut Random, gives_up: bool, now: Time) -> OneFile {
        let deadline = gives_up.then(|| random.millis(1000..6000));
        OneFile {
            links: Links::new(scenario.lanes, Class::Readout, &prefix, deadline, random.next(), now),
            client: random.next() | 1,
            prefix,
            serial: 0,
            number: ROOT,
            phase: Phase::None,
            name_changes: 0,
            opening: 0,
            was_opened: false,
            is_held: false,
            greetings: 0,
            changes: 0,
            unanswered: BTreeSet::new(),
            awaited: None,
            asked: BTreeMap::new(),
            operations: 0,
        }
    }

    /// Whether its client waits for nothing that it asked itself.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether a read, a look at it, or a seal is on its way.
    pub(super) fn is_looked_at(&self) -> bool {
        self.asked.values().any(|asked| !matches!(asked, Asked::Change(_)))
    }

    pub(super) fn changes_on_their_way(&self) -> usize {
        self.unanswered.len()
    }

    /// The smallest change that is waited for, or the next one.
    pub(super) fn waits_from(&self) -> u64 {
        self.unanswered.first().copied().unwrap_or(self.changes + 1)
    }

    /// What it does, for people.
    pub(super) fn where_it_is(&self) -> String {
        let (path, lane) = (self.path(), lane_of(self.number.key(), self.links.lanes.len() as u16));
        format!("{path} in lane {lane}: {:?}, waits for {:?} and {:?}", self.phase, self.awaited, self.asked.values())
    }

    fn path(&self) -> String {
        format!("{}-{}", self.prefix, self.serial)
    }

    fn ask(&mut self, now: Time, lane: usize, request: Request) -> (usize, u64) {
        (lane, self.links.lanes[lane].asked().ask(now, request).expect("sessions go on"))
    }

    fn ask_file(&mut self, now: Time, request: Request) -> (usize, u64) {
        let lane = lane_of(self.number.key(), self.links.lanes.len() as u16);
        self.ask(now, usize::from(lane), request)
    }

    fn change_name(&mut self, now: Time, what: NameChange) {
        self.name_changes += 1;
        let change = self.name_changes;
        let request = Request::ChangeName(ChangeName { client: self.client, change, waits_from: change, what });
        self.awaited = Some(self.ask(now, 0, request));
    }

    /// Goes on with what leads to a file that is open; whether that is all for now.
    pub(super) fn go_on(&mut self, now: Time, ends: bool) -> bool {
        match self.phase {
            Phase::None if !ends => {
                // Each has a name of its own.
                self.serial += 1;
                (self.phase, self.was_opened, self.is_held) = (Phase::Making, false, false);
                let name = self.path().into();
                self.change_name(now, NameChange::Make { directory: ROOT, name, new: new(NodeKind::File) });
            }
            // Nothing that was given up may come behind what is asked from now on.
            Phase::Closed if self.is_idle() => {
                (self.opening, self.phase, self.was_opened) = (self.opening + 1, Phase::Opening, true);
                let open = FileOpen { file: self.number, by: self.opener(), write: true };
                self.awaited = Some(self.ask_file(now, Request::FileOpen(open)));
            }
            Phase::Holding if self.awaited.is_none() => {
                (self.opening, self.was_opened) = (self.opening + 1, true);
                let open = FileOpen { file: self.number, by: self.opener(), write: false };
                self.awaited = Some(self.ask_file(now, Request::FileOpen(open)));
            }
            Phase::Removing if self.awaited.is_none() => self.remove(now),
            Phase::Closing | Phase::Leaving if self.awaited.is_none() => {
                let close = FileClose { file: self.number, by: self.opener() };
                self.awaited = Some(self.ask_file(now, Request::FileClose(close)));
            }
            Phase::Open | Phase::Sealed | Phase::Held | Phase::Unnamed => return false,
            _ => {}
        }
        true
    }

    /// It is closed, with nothing on its way, and opened again.
    pub(super) fn leave(&mut self) {
        assert!(self.phase == Phase::Open && self.is_idle(), "{} is open", self.path());
        self.phase = Phase::Leaving;
    }

    /// It is opened for reading, with nothing on its way.
    pub(super) fn hold(&mut self) {
        assert!(self.is_idle(), "nothing of {} is on its way", self.path());
        (self.phase, self.is_held) = (Phase::Holding, true);
    }

    /// It has no name and is closed, so that it ends.
    pub(super) fn let_go(&mut self) {
        assert!(self.phase == Phase::Unnamed && self.is_idle(), "{} is read", self.path());
        (self.phase, self.is_held) = (Phase::Closing, false);
    }

    /// It is not needed any more.
    pub(super) fn remove(&mut self, now: Time) {
        self.phase = Phase::Removing;
        let name = self.path().into();
        self.change_name(now, NameChange::Remove { directory: ROOT, name });
    }

    fn opener(&self) -> Opener {
        Opener { client: self.client, opening: self.opening }
    }

    fn changer(&mut self) -> Changer {
        let waits_from = self.waits_from();
        self.changes += 1;
        self.unanswered.insert(self.changes);
        Changer { opener: self.opener(), change: self.changes, waits_from }
    }

    /// Writes at an offset, or where the file ends; gives the number of the change.
    pub(super) fn write(&mut self, now: Time, start: Option<u64>, payload: Vec<u8>) -> Changer {
        let by = self.changer();
        let (bytes, crc) = (payload.len() as u32, crc32c(&payload));
        let write = FileWrite { file: self.number, by, start, bytes, crc, appends: false };
        let asked = self.ask_file(now, Request::FileWrite(write, Bytes::from(payload)));
        self.asked.insert(asked, Asked::Change(by.change));
        by
    }

    /// Says how long it is, or when it was written.
    pub(super) fn set(&mut self, now: Time, length: Option<u64>, written_unix_ns: Option<i64>) -> Changer {
        let by = self.changer();
        let set = FileSet { file: self.number, by: Some(by), length, written_unix_ns };
        let asked = self.ask_file(now, Request::FileSet(set));
        self.asked.insert(asked, Asked::Change(by.change));
        by
    }

    pub(super) fn seal(&mut self, now: Time) {
        let by = self.changer();
        let seal = FileSeal { file: self.number, by: Some(by), unless_written: false };
        let asked = self.ask_file(now, Request::FileSeal(seal));
        self.asked.insert(asked, Asked::Seal(by.change));
    }

    /// Reads all of it; less comes when a piece is out of reach for a moment.
    pub(super) fn read(&mut self, now: Time) {
        self.read_from(now, 0);
    }

    /// Reads what is there from a byte on.
    pub(super) fn read_from(&mut self, now: Time, start: u64) {
        let asked = self.ask_file(now, Request::FileRead(FileRead { file: self.number, start, bytes: READ_BYTES }));
        self.asked.insert(asked, Asked::Read);
    }

    pub(super) fn stat(&mut self, now: Time) {
        let asked = self.ask_file(now, Request::FileStat(FileStat { files: vec![self.number] }));
        self.asked.insert(asked, Asked::Stat);
    }

    /// The answers to what its client asked.
    pub(super) fn take_answers(&mut self) -> Vec<Answered> {
        let mut answers = Vec::new();
        for lane in 0..self.links.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                let (request, answer) = match event {
                    SessionEvent::Answer { request, answer } => (request, Some(answer)),
                    SessionEvent::Failed { request, .. } => (request, None),
                    SessionEvent::Greeted(_) => {
                        self.greetings += 1;
                        continue;
                    }
                    SessionEvent::PutsFailed { .. } => continue,
                };
                self.operations += u64::from(answer.is_some());
                match self.asked.remove(&(lane, request)) {
                    Some(asked) => answers.push((asked, self.note(asked, answer))),
                    None => {
                        assert_eq!(self.awaited.take(), Some((lane, request)), "it was asked");
                        self.live(answer);
                    }
                }
            }
        }
        answers
    }

    /// What an answer says of whether the file is open.
    fn note(&mut self, asked: Asked, answer: Option<Answer>) -> Option<Answer> {
        let outcome = match &answer {
            Some(Answer::File(reply)) => Some(reply.outcome),
            _ => None,
        };
        match asked {
            Asked::Change(change) | Asked::Seal(change) => {
                self.unanswered.remove(&change);
                self.check(outcome);
                match outcome {
                    Some(FileOutcome::Done) if asked == Asked::Seal(change) => self.phase = Phase::Sealed,
                    Some(FileOutcome::Sealed) => self.phase = Phase::Sealed,
                    Some(FileOutcome::Done) => {}
                    // What did not fit is not what the file stays open for.
                    _ if self.phase == Phase::Open => self.phase = Phase::Closed,
                    _ => {}
                }
            }
            Asked::Read | Asked::Stat => {}
        }
        answer
    }

    fn check(&self, outcome: Option<FileOutcome>) {
        use FileOutcome::{ChecksumMismatch, Conflict, NoFiles, Removed, TooLarge, TooManyChanges};
        let (path, never) = (self.path(), [Removed, Conflict, ChecksumMismatch, TooLarge, TooManyChanges, NoFiles]);
        assert!(outcome.is_none_or(|outcome| !never.contains(&outcome)), "{path} is of one writer, and {outcome:?}");
    }

    fn live(&mut self, answer: Option<Answer>) {
        self.phase = match (self.phase, answer) {
            (Phase::Making, Some(Answer::Node(reply))) => match reply.outcome {
                NameOutcome::Done => {
                    self.number = reply.node.expect("what was made is there").number;
                    Phase::Closed
                }
                // Made before, and asked again of a server that does not remember.
                NameOutcome::Exists => Phase::Removing,
                NameOutcome::NoSpace | NameOutcome::IndexFull | NameOutcome::Unavailable => Phase::None,
                outcome => panic!("{} was made: {outcome}", self.path()),
            },
            // It is there, perhaps.
            (Phase::Making, None) => Phase::Removing,
            (Phase::Opening, Some(Answer::File(reply))) => {
                self.check(Some(reply.outcome));
                match reply.outcome {
                    FileOutcome::Done => Phase::Open,
                    FileOutcome::Sealed => Phase::Sealed,
                    // What it has may be the room that is missing.
                    FileOutcome::NoSpace => Phase::Removing,
                    _ => Phase::Closed,
                }
            }
            (Phase::Opening, None) => Phase::Closed,
            (Phase::Holding, Some(Answer::File(reply))) => match reply.outcome {
                FileOutcome::Done => Phase::Held,
                FileOutcome::Removed => panic!("{} has a name, and is over", self.path()),
                _ => Phase::Holding,
            },
            (Phase::Holding, None) => Phase::Holding,
            (Phase::Removing, Some(Answer::Node(reply))) => match reply.outcome {
                NameOutcome::Done | NameOutcome::NotFound if self.is_held => Phase::Unnamed,
                NameOutcome::Done | NameOutcome::NotFound if self.was_opened => Phase::Closing,
                NameOutcome::Done | NameOutcome::NotFound => Phase::None,
                NameOutcome::NoSpace | NameOutcome::IndexFull | NameOutcome::Unavailable => Phase::Removing,
                outcome => panic!("{} was removed: {outcome}", self.path()),
            },
            (Phase::Removing, None) => Phase::Removing,
            (Phase::Closing, Some(Answer::File(_))) => Phase::None,
            (Phase::Closing, None) => Phase::Closing,
            (Phase::Leaving, _) => Phase::Closed,
            (phase, answer) => panic!("{answer:?} while {} is {phase:?}", self.path()),
        };
    }
}
