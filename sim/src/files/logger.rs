//! Clients that append to one file, all at places that they say themselves, opening and closing it as they like: what one of them was told is there stays there,
//! whoever appends after it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use forebay_client::{Answer, Class, Request, SessionEvent};
use forebay_protocol::{
    ChangeName, Changer, FileClose, FileInfo, FileOpen, FileRead, FileReply, FileStat, FileWrite, NameChange,
    NameLookup, NodeReply, Opener,
};
use forebay_types::placement::lane_of;
use forebay_types::{FileNumber, FileOutcome, NameOutcome, NodeKind, ReadOutcome, Time, crc32c};

use crate::links::Links;
use crate::random::Random;
use crate::scenario::Scenario;

use super::{ROOT, UsesFiles, new};

/// The file that all share.
const NAME: &str = "log";
/// Loggers tell their bytes apart by this.
pub(super) const LOGGERS_MAX: u64 = 3;
/// About how long the file becomes.
const FILE_BYTES_MAX: u64 = 60_000;
const APPEND_BYTES_MAX: u64 = 900;
/// Appends that are on their way at once.
const APPENDS_MAX: usize = 3;

/// What was asked.
#[derive(Clone, Debug)]
enum Asked {
    Make,
    LookUp,
    Open,
    Close,
    Stat,
    /// The number of the change, and what it brings where.
    Append(u64, Range<u64>, u8),
    /// What is there of these bytes.
    Read(Range<u64>),
}

pub(crate) struct Logger {
    links: Links,
    random: Random,
    number: u64,
    client: u64,
    next_at: Time,
    pace_micros: u64,
    name_changes: u64,
    file: Option<FileNumber>,
    opening: u32,
    is_open: bool,
    changes: u64,
    /// Changes that are waited for.
    appends: BTreeMap<u64, Range<u64>>,
    asked: BTreeMap<(usize, u64), Asked>,
    /// Where it takes the file to end.
    end: u64,
    /// What it was told is there, by where it begins: where it ends, and of which bytes.
    there: BTreeMap<u64, (u64, u8)>,
    ends: bool,
    operations: u64,
}

impl Logger {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Logger {
        let deadline = Some(random.millis(1000..6000));
        let links =
            Links::new(scenario.lanes, Class::Readout, &format!("logger {number}"), deadline, random.next(), now);
        Logger {
            links,
            client: random.next() | 1,
            random,
            number,
            next_at: now,
            pace_micros: scenario.pace_micros,
            name_changes: 0,
            file: None,
            opening: 0,
            is_open: false,
            changes: 0,
            appends: BTreeMap::new(),
            asked: BTreeMap::new(),
            end: 0,
            there: BTreeMap::new(),
            ends: false,
            operations: 0,
        }
    }

    fn ask(&mut self, now: Time, lane: usize, request: Request, asked: Asked) {
        let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
        self.asked.insert((lane, number), asked);
    }

    fn ask_file(&mut self, now: Time, request: Request, asked: Asked) {
        let file = self.file.expect("it is known");
        self.ask(now, usize::from(lane_of(file.key(), self.links.lanes.len() as u16)), request, asked);
    }

    fn find(&mut self, now: Time) {
        if self.random.per_mille(500) {
            self.name_changes += 1;
            let what = NameChange::Make { directory: ROOT, name: NAME.into(), new: new(NodeKind::File) };
            let (client, change) = (self.client, self.name_changes);
            let make = Request::ChangeName(ChangeName { client, change, waits_from: change, what });
            self.ask(now, 0, make, Asked::Make);
        } else {
            let lookup = NameLookup { directory: None, name: NAME.into() };
            self.ask(now, 0, Request::NameLookup(lookup), Asked::LookUp);
        }
    }

    fn by(&self) -> Opener {
        Opener { client: self.client, opening: self.opening }
    }

    fn open(&mut self, now: Time, file: FileNumber) {
        self.opening += 1;
        self.ask_file(now, Request::FileOpen(FileOpen { file, by: self.by(), write: true }), Asked::Open);
    }

    fn append(&mut self, now: Time, file: FileNumber) {
        let bytes = self.random.within(1..APPEND_BYTES_MAX);
        self.changes += 1;
        let value = (self.changes % 80 * LOGGERS_MAX + self.number + 1) as u8;
        let range = self.end..self.end + bytes;
        let (change, payload) = (self.changes, vec![value; bytes as usize]);
        let waits_from = self.appends.keys().next().copied().unwrap_or(change);
        let write = FileWrite {
            file,
            by: Changer { opener: self.by(), change, waits_from },
            start: Some(range.start),
            bytes: payload.len() as u32,
            crc: crc32c(&payload),
            appends: true,
        };
        self.end = range.end;
        self.appends.insert(change, range.clone());
        self.ask_file(now, Request::FileWrite(write, Bytes::from(payload)), Asked::Append(change, range, value));
    }

    /// Reads some of what it was told is there.
    fn read(&mut self, now: Time, file: FileNumber) {
        let from = self.random.below(self.end.max(1));
        let (first, last) = (self.there.range(from..).next(), self.there.last_key_value());
        let Some((start, (end, _))) = first.or(last) else { return };
        let range = *start..*end;
        let read = FileRead { file, start: range.start, bytes: (range.end - range.start) as u32 };
        self.ask_file(now, Request::FileRead(read), Asked::Read(range));
    }

    fn take(&mut self, asked: Asked, answer: Option<Answer>) {
        match (asked, answer) {
            (Asked::Make | Asked::LookUp, Some(Answer::Node(reply))) => self.take_node(&reply),
            (Asked::Open, Some(Answer::File(FileReply { outcome: FileOutcome::Done, .. }))) => self.is_open = true,
            (Asked::Append(change, range, value), answer) => self.take_append(change, range, value, answer),
            (Asked::Stat, Some(Answer::FileInfos(infos))) => self.take_info(infos[0]),
            (Asked::Read(range), Some(Answer::FileBytes(outcome, bytes))) => self.take_read(&range, outcome, &bytes),
            (Asked::Make | Asked::LookUp | Asked::Read(_) | Asked::Stat, None) => {}
            (Asked::Open | Asked::Close, Some(Answer::File(_)) | None) => {}
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }

    fn take_node(&mut self, reply: &NodeReply) {
        if reply.outcome == NameOutcome::Done {
            self.file = reply.node.as_ref().map(|node| node.number);
        }
    }

    fn take_append(&mut self, change: u64, range: Range<u64>, value: u8, answer: Option<Answer>) {
        self.appends.remove(&change);
        match answer {
            Some(Answer::File(FileReply { outcome: FileOutcome::Done, start })) => {
                assert_eq!(start, range.start, "it said the place");
                self.there.insert(range.start, (range.end, value));
            }
            // Others have appended since it looked: it looks again.
            Some(Answer::File(FileReply { outcome: FileOutcome::Conflict, .. })) => {}
            Some(Answer::File(_)) | None => self.is_open = false,
            answer => panic!("{answer:?} answers an append"),
        }
    }

    fn take_info(&mut self, info: FileInfo) {
        match info.outcome {
            ReadOutcome::Found => {
                let told = self.there.last_key_value().map_or(0, |(_, (end, _))| *end);
                assert!(info.length >= told, "the log has {} bytes, and {told} were acknowledged", info.length);
                self.end = info.length;
            }
            ReadOutcome::NotFound | ReadOutcome::Unavailable => {}
            outcome => panic!("the log is {outcome:?}"),
        }
    }

    fn take_read(&self, range: &Range<u64>, outcome: ReadOutcome, bytes: &[u8]) {
        let (end, value) = self.there[&range.start];
        match outcome {
            ReadOutcome::Found => {}
            ReadOutcome::Unavailable => return,
            outcome => panic!("the log, of which bytes up to {end} were acknowledged, is {outcome:?}"),
        }
        let other = bytes.iter().find(|byte| **byte != value);
        assert!(
            other.is_none(),
            "bytes {range:?} of the log are {other:?}, and logger {} was told that they are {value}",
            self.number
        );
    }
}

impl UsesFiles for Logger {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn next_at(&self) -> Option<Time> {
        let own = (!self.is_done()).then_some(self.next_at);
        [own, self.links.next_deadline()].into_iter().flatten().min()
    }

    fn act(&mut self, now: Time) {
        for lane in 0..self.links.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                let (request, answer) = match event {
                    SessionEvent::Answer { request, answer } => (request, Some(answer)),
                    SessionEvent::Failed { request, .. } => (request, None),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => continue,
                };
                self.operations += u64::from(answer.is_some());
                let asked = self.asked.remove(&(lane, request)).expect("it was asked");
                self.take(asked, answer);
            }
        }
        if now < self.next_at || self.is_done() {
            return;
        }
        self.next_at = now + self.random.micros(0..2 * self.pace_micros);
        let is_idle = self.asked.is_empty();
        let looks = self.asked.values().any(|asked| matches!(asked, Asked::Stat));
        let (is_full, choice) = (self.end >= FILE_BYTES_MAX || self.ends, self.random.below(100));
        match self.file {
            None if is_idle => self.find(now),
            // Nothing that was given up may come behind what is asked from now on.
            Some(file) if is_idle && !self.is_open && !is_full => self.open(now, file),
            Some(file) if is_idle && self.is_open && (is_full || choice < 15) => {
                self.is_open = false;
                self.ask_file(now, Request::FileClose(FileClose { file, by: self.by() }), Asked::Close);
            }
            // Often it goes on where it was, whatever others did meanwhile.
            Some(file) if is_idle && choice < 45 => {
                self.ask_file(now, Request::FileStat(FileStat { files: vec![file] }), Asked::Stat);
            }
            Some(file) if self.is_open && !is_full && choice < 85 && !looks && self.appends.len() < APPENDS_MAX => {
                self.append(now, file);
            }
            Some(file) if self.asked.len() < APPENDS_MAX => self.read(now, file),
            _ => {}
        }
    }

    fn end(&mut self) {
        self.ends = true;
    }

    fn is_done(&self) -> bool {
        self.ends && self.asked.is_empty() && !self.is_open
    }

    fn operations(&self) -> u64 {
        self.operations
    }

    fn where_it_is(&self) -> String {
        format!("logger {}: {} appends are there, asked are {:?}", self.number, self.there.len(), self.asked.values())
    }
}
