//! A client of files: it makes files in a directory of its own, writes, cuts, seals, renames and removes them, looks at what is there, and writes stripes of one
//! file that all such clients share.

mod answers;
mod appender;
mod changes;
mod content;
mod cutter;
mod filler;
mod holder;
mod logger;
mod one;
mod plays;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use forebay_client::{Class, Request};
use forebay_protocol::{
    ChangeName, Changer, FileClose, FileOpen, FileRead, FileSeal, FileSet, FileStat, FileWrite, NameChange, NameList,
    NameLookup, Opener,
};
use forebay_types::placement::lane_of;
use forebay_types::{FileNumber, NewNode, NodeKind, SetAttributes, Time, crc32c};

use crate::links::Links;
use crate::random::Random;
use crate::scenario::Scenario;
use appender::Appender;
use content::{Content, Sealed};
use cutter::Cutter;
use filler::Filler;
use holder::Holder;
use logger::Logger;

/// A client that uses files.
pub(crate) trait UsesFiles {
    fn links(&mut self) -> &mut Links;

    fn next_at(&self) -> Option<Time>;

    fn act(&mut self, now: Time);

    /// Nothing more is made, and what there is goes.
    fn end(&mut self);

    /// Nothing is left that it made, but what all share and its directory.
    fn is_done(&self) -> bool;

    /// Operations that were answered.
    fn operations(&self) -> u64;

    /// What it does, for people.
    fn where_it_is(&self) -> String;

    /// What is in the files that have a name for certain.
    fn promised(&self) -> Vec<PromisedFile> {
        Vec::new()
    }

    /// Whether so much of what it asked is on its way now that a crash should come.
    fn wants_crash(&self) -> bool {
        false
    }
}

/// What must be found in a file.
pub(crate) struct PromisedFile {
    pub(crate) number: FileNumber,
    content: Content,
}

impl PromisedFile {
    /// More bytes than it can have.
    pub(crate) fn bytes_max(&self) -> usize {
        self.content.longest() + 1
    }

    /// Whether it has bytes, whatever was on its way.
    pub(crate) fn is_certain(&self) -> bool {
        self.content.shortest() > 0
    }

    /// This was found when [`PromisedFile::bytes_max`] were wanted from its beginning on.
    pub(crate) fn check(&self, found: &[u8]) {
        self.content.clone().read(0, self.bytes_max(), found);
    }
}

/// The clients of a scenario. What they choose moves nothing of what others do, nor those of one kind what those of another do.
pub(crate) fn clients(seed: u64, scenario: &Scenario, now: Time) -> Vec<Box<dyn UsesFiles>> {
    let mut clients: Vec<Box<dyn UsesFiles>> = Vec::new();
    if scenario.files {
        let mut random = Random::new(seed.rotate_left(17));
        let count = random.within(1..CLIENTS_MAX + 1);
        clients.extend((0..count).map(|n| Box::new(FileClient::new(n, scenario, random.fork(), now)) as _));
    }
    if scenario.appends {
        let mut random = Random::new(seed.rotate_left(23));
        let (appenders, cutters) = (random.within(1..4), random.within(1..6));
        clients.extend((0..appenders).map(|n| Box::new(Appender::new(n, scenario, random.fork(), now)) as _));
        clients.extend((0..cutters).map(|n| Box::new(Cutter::new(n, scenario, random.fork(), now)) as _));
        // Of seed 0, too, other numbers than those above: clients that have one number are one client to the store.
        let mut random = Random::new((!seed).rotate_left(31));
        let (loggers, holders) = (random.within(2..logger::LOGGERS_MAX + 1), random.within(1..3));
        clients.extend((0..loggers).map(|n| Box::new(Logger::new(n, scenario, random.fork(), now)) as _));
        clients.extend((0..holders).map(|n| Box::new(Holder::new(n, scenario, random.fork(), now)) as _));
    }
    if scenario.full {
        let mut random = Random::new(seed.rotate_left(29));
        let count = random.within(1..u64::from(scenario.lanes) + 2);
        clients.extend((0..count).map(|n| Box::new(Filler::new(n, scenario, random.fork(), now)) as _));
    }
    clients
}

/// The longest file.
const FILE_BYTES_MAX: u64 = 20_000;
/// The longest write.
const WRITE_BYTES_MAX: u64 = 3_000;
/// Writes of one file that are on their way at once.
const WRITES_MAX: usize = 4;
/// Requests that are on their way at once.
const ASKED_MAX: usize = 8;
/// Names that a client uses.
const NAMES: u64 = 6;
/// Clients tell their bytes apart by this.
const CLIENTS_MAX: u64 = 3;
/// Bytes of the shared file that belong to one client, in turn.
const STRIPE_BYTES: u64 = 1000;

/// The root, on the wire.
const ROOT: FileNumber = FileNumber(0);

/// What was asked.
#[derive(Clone, Debug)]
enum Asked {
    /// A directory or the shared file, by its name in the root.
    MakeKnown(&'static str),
    LookUpKnown(&'static str),
    Make(String),
    Link(String, FileNumber),
    Remove(String),
    Rename(String, String),
    Fence,
    List,
    Open(FileNumber, u32),
    Close(FileNumber),
    /// A file that has no name any more is closed, by its newest opening.
    LetGo(FileNumber, u32),
    /// Under its number in [`Known::writes`].
    Write(FileNumber, u64, Range<usize>, u8),
    Cut(FileNumber, usize),
    Seal(FileNumber),
    Read(FileNumber, usize, usize),
    Stat(FileNumber),
}

/// A write that was asked.
struct Written {
    range: Range<usize>,
    is_answered: bool,
}

/// A file as its client knows it.
#[derive(Default)]
struct Known {
    content: Content,
    /// The newest opening, and whether it stands.
    opening: u32,
    is_open: bool,
    /// Writes on their way, and those that were answered while an earlier one was not; while anything else is on its way, nothing more is asked.
    writes: BTreeMap<u64, Written>,
    waits: bool,
    /// All stripes of others are theirs.
    shared: bool,
}

struct FileClient {
    links: Links,
    random: Random,
    number: u64,
    client: u64,
    next_at: Time,
    pace_micros: u64,
    change: u64,
    /// Changes of files.
    file_change: u64,
    serial: u64,
    directory: Option<FileNumber>,
    shared: Option<FileNumber>,
    /// Names in its directory.
    names: BTreeMap<String, FileNumber>,
    /// A change that was given up: its names as they are when it was made.
    doubt: Option<BTreeMap<String, Option<FileNumber>>>,
    is_naming: bool,
    is_fenced: bool,
    files: BTreeMap<FileNumber, Known>,
    /// Files without a name that it opened and has not closed, with their newest opening: the store keeps them until then.
    unnamed: Vec<(FileNumber, u32)>,
    asked: BTreeMap<(usize, u64), Asked>,
    ends: bool,
    operations: u64,
}

impl FileClient {
    fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> FileClient {
        let deadline = Some(random.millis(1000..6000));
        let links =
            Links::new(scenario.lanes, Class::Readout, &format!("files {number}"), deadline, random.next(), now);
        FileClient {
            links,
            client: random.next() | 1,
            random,
            number,
            next_at: now,
            pace_micros: scenario.pace_micros,
            change: 0,
            file_change: 0,
            serial: 0,
            directory: None,
            shared: None,
            names: BTreeMap::new(),
            doubt: None,
            is_naming: false,
            is_fenced: false,
            files: BTreeMap::new(),
            unnamed: Vec::new(),
            asked: BTreeMap::new(),
            ends: false,
            operations: 0,
        }
    }

    fn ask(&mut self, now: Time, lane: u16, request: Request, asked: Asked) {
        let lane = usize::from(lane);
        let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
        self.asked.insert((lane, number), asked);
    }

    fn ask_file(&mut self, now: Time, file: FileNumber, request: Request, asked: Asked) {
        let lane = lane_of(file.key(), self.links.lanes.len() as u16);
        self.ask(now, lane, request, asked);
    }

    // ---- names ----

    fn change(&mut self, now: Time, what: NameChange, asked: Asked) {
        self.change += 1;
        self.is_naming = true;
        let request =
            Request::ChangeName(ChangeName { client: self.client, change: self.change, waits_from: self.change, what });
        self.ask(now, 0, request, asked);
    }

    fn make_known(&mut self, now: Time, name: &'static str) {
        self.is_naming = true;
        if self.random.per_mille(500) {
            let kind = if name == SHARED { NodeKind::File } else { NodeKind::Directory };
            let what = NameChange::Make { directory: ROOT, name: name.into(), new: new(kind) };
            self.change(now, what, Asked::MakeKnown(name));
        } else {
            let lookup = NameLookup { directory: None, name: name.into() };
            self.ask(now, 0, Request::NameLookup(lookup), Asked::LookUpKnown(name));
        }
    }

    fn in_directory(&self) -> FileNumber {
        self.directory.expect("it was made")
    }

    fn make(&mut self, now: Time) {
        let name = format!("f{}", self.random.below(NAMES));
        let what =
            NameChange::Make { directory: self.in_directory(), name: name.clone().into(), new: new(NodeKind::File) };
        self.change(now, what, Asked::Make(name));
    }

    fn one_name(&mut self) -> Option<String> {
        let names: Vec<String> = self.names.keys().cloned().collect();
        self.random.one_of(&names).cloned()
    }

    fn link(&mut self, now: Time) {
        let Some(from) = self.one_name() else { return };
        let (number, name) = (self.names[&from], format!("f{}", self.random.below(NAMES)));
        let what = NameChange::Link { number, directory: self.in_directory(), name: name.clone().into() };
        self.change(now, what, Asked::Link(name, number));
    }

    fn remove_one(&mut self, now: Time) {
        if let Some(name) = self.one_name() {
            self.remove(now, name);
        }
    }

    fn remove(&mut self, now: Time, name: String) {
        let what = NameChange::Remove { directory: self.in_directory(), name: name.clone().into() };
        self.change(now, what, Asked::Remove(name));
    }

    fn rename(&mut self, now: Time) {
        let Some(from) = self.one_name() else { return };
        let to = format!("f{}", self.random.below(NAMES));
        let directory = self.in_directory();
        let what = NameChange::Rename {
            from_directory: directory,
            from: from.clone().into(),
            to_directory: directory,
            to: to.clone().into(),
            replace: true,
        };
        self.change(now, what, Asked::Rename(from, to));
    }

    fn fence(&mut self, now: Time) {
        let what = NameChange::Set { number: self.in_directory(), set: SetAttributes::default() };
        self.change(now, what, Asked::Fence);
    }

    fn list(&mut self, now: Time) {
        self.is_naming = true;
        let list = NameList { directory: self.directory, after: Vec::new(), max: 100 };
        self.ask(now, 0, Request::NameList(list), Asked::List);
    }

    // ---- files ----

    fn use_a_file(&mut self, now: Time) {
        let mut files: Vec<FileNumber> = self.names.values().copied().chain(self.shared).collect();
        files.retain(|file| !self.files.entry(*file).or_default().waits);
        let Some(file) = self.random.one_of(&files).copied() else { return };
        let choice = self.random.below(100);
        let known = self.files.get_mut(&file).expect("entered just now");
        known.shared = Some(file) == self.shared;
        if !known.is_open && self.ends {
            return;
        }
        if !known.is_open {
            // Nothing that was given up may come behind what is asked from now on.
            if known.writes.is_empty() {
                (known.opening, known.waits) = (known.opening + 1, true);
                let opening = known.opening;
                let by = Opener { client: self.client, opening };
                self.ask_file(
                    now,
                    file,
                    Request::FileOpen(FileOpen { file, by, write: true }),
                    Asked::Open(file, opening),
                );
            }
            return;
        }
        let idle = known.writes.is_empty();
        match choice {
            0..50 => self.write(now, file),
            50..55 if idle && !known.shared => self.cut(now, file),
            55..58 if idle && !known.shared => self.seal(now, file),
            58..62 if idle => self.close(now, file),
            62..70 if idle => {
                known.waits = true;
                self.ask_file(now, file, Request::FileStat(FileStat { files: vec![file] }), Asked::Stat(file));
            }
            _ if idle => self.read(now, file),
            _ => {}
        }
    }

    fn by(&self, file: FileNumber) -> Opener {
        Opener { client: self.client, opening: self.files[&file].opening }
    }

    /// Who makes the next change of a file.
    fn changer(&mut self, file: FileNumber) -> Changer {
        self.file_change += 1;
        let change = self.file_change;
        let waits_from = self.files[&file].writes.keys().next().map_or(change, |first| *first);
        Changer { opener: self.by(file), change, waits_from }
    }

    fn write(&mut self, now: Time, file: FileNumber) {
        let known = self.files.get_mut(&file).expect("it is known");
        let end = known.content.longest() as u64;
        let mut start = if self.random.per_mille(600) { end } else { self.random.below(end + 500) };
        let mut bytes =
            if self.random.per_mille(300) { self.random.within(1..40) } else { self.random.within(1..WRITE_BYTES_MAX) };
        if known.shared {
            let stripes = FILE_BYTES_MAX / STRIPE_BYTES / CLIENTS_MAX;
            let own = self.random.below(stripes) * CLIENTS_MAX + self.number;
            start = own * STRIPE_BYTES + self.random.below(STRIPE_BYTES);
            bytes = bytes.min((own + 1) * STRIPE_BYTES - start);
        }
        let range = start as usize..(start + bytes).min(FILE_BYTES_MAX) as usize;
        let overlaps = |other: &Written| other.range.start < range.end && range.start < other.range.end;
        if range.is_empty() || known.writes.len() >= WRITES_MAX || known.writes.values().any(overlaps) {
            return;
        }
        self.serial += 1;
        let value = value_of(self.serial, self.number);
        known.content.write_asked(range.clone(), value);
        let by = self.changer(file);
        let known = self.files.get_mut(&file).expect("it is known");
        known.writes.insert(by.change, Written { range: range.clone(), is_answered: false });
        let payload = vec![value; range.len()];
        let write = FileWrite {
            file,
            by,
            start: Some(range.start as u64),
            bytes: payload.len() as u32,
            crc: crc32c(&payload),
            appends: false,
        };
        self.ask_file(
            now,
            file,
            Request::FileWrite(write, Bytes::from(payload)),
            Asked::Write(file, by.change, range, value),
        );
    }

    fn cut(&mut self, now: Time, file: FileNumber) {
        let known = self.files.get_mut(&file).expect("it is known");
        let length = self.random.below(known.content.longest() as u64 + 300) as usize;
        known.content.cut_asked(length);
        known.waits = true;
        let set = FileSet { file, by: Some(self.changer(file)), length: Some(length as u64), written_unix_ns: None };
        self.ask_file(now, file, Request::FileSet(set), Asked::Cut(file, length));
    }

    fn seal(&mut self, now: Time, file: FileNumber) {
        let known = self.files.get_mut(&file).expect("it is known");
        known.content.seal_asked();
        known.waits = true;
        let seal = FileSeal { file, by: Some(self.changer(file)), unless_written: false };
        self.ask_file(now, file, Request::FileSeal(seal), Asked::Seal(file));
    }

    fn close(&mut self, now: Time, file: FileNumber) {
        let by = self.by(file);
        let known = self.files.get_mut(&file).expect("it is known");
        (known.waits, known.is_open) = (true, false);
        self.ask_file(now, file, Request::FileClose(FileClose { file, by }), Asked::Close(file));
    }

    /// Closes a file that has no name any more.
    fn let_go(&mut self, now: Time) {
        let Some((file, opening)) = self.unnamed.pop() else { return };
        let by = Opener { client: self.client, opening };
        self.ask_file(now, file, Request::FileClose(FileClose { file, by }), Asked::LetGo(file, opening));
    }

    fn read(&mut self, now: Time, file: FileNumber) {
        let known = self.files.get_mut(&file).expect("it is known");
        known.waits = true;
        let start = self.random.below(known.content.longest() as u64 + 100);
        let bytes = self.random.within(1..FILE_BYTES_MAX);
        let read = FileRead { file, start, bytes: bytes as u32 };
        self.ask_file(now, file, Request::FileRead(read), Asked::Read(file, start as usize, bytes as usize));
    }
}

impl UsesFiles for FileClient {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn next_at(&self) -> Option<Time> {
        let own = (!self.is_done() && self.asked.len() < ASKED_MAX).then_some(self.next_at);
        [own, self.links.next_deadline()].into_iter().flatten().min()
    }

    fn end(&mut self) {
        self.ends = true;
    }

    fn is_done(&self) -> bool {
        self.ends
            && self.names.is_empty()
            && self.doubt.is_none()
            && self.unnamed.is_empty()
            && self.files.keys().all(|file| Some(*file) == self.shared)
            && self.asked.is_empty()
    }

    fn act(&mut self, now: Time) {
        self.take_answers(now);
        if now < self.next_at || self.asked.len() >= ASKED_MAX || self.is_done() {
            return;
        }
        self.next_at = now + self.random.micros(0..self.pace_micros);
        if self.is_naming {
            return self.use_a_file(now);
        }
        if self.directory.is_none() || self.shared.is_none() {
            let name = if self.directory.is_none() { DIRECTORIES[self.number as usize] } else { SHARED };
            return self.make_known(now, name);
        }
        if self.doubt.is_some() {
            // What was given up is not done any more when this is answered.
            return if self.is_fenced { self.list(now) } else { self.fence(now) };
        }
        if self.ends {
            self.forget_unnamed();
            self.let_go(now);
            if let Some(name) = self.names.keys().next().cloned() {
                self.remove(now, name);
            }
            return;
        }
        if self.random.per_mille(100) {
            self.let_go(now);
        }
        match self.random.below(100) {
            0..10 => self.make(now),
            10..14 => self.rename(now),
            14..18 => self.remove_one(now),
            18..20 => self.link(now),
            20..25 => self.list(now),
            _ => self.use_a_file(now),
        }
    }

    fn promised(&self) -> Vec<PromisedFile> {
        if self.doubt.is_some() || self.is_naming {
            return Vec::new();
        }
        let named = self.names.values().filter_map(|number| Some((*number, self.files.get(number)?)));
        named.map(|(number, known)| PromisedFile { number, content: known.content.clone() }).collect()
    }

    fn operations(&self) -> u64 {
        self.operations
    }

    fn where_it_is(&self) -> String {
        format!("{} names of client {}, and {} requests on their way", self.names.len(), self.number, self.asked.len())
    }
}

/// The file that all share.
const SHARED: &str = "shared";

/// The directories of clients.
const DIRECTORIES: [&str; CLIENTS_MAX as usize] = ["one", "two", "three"];

fn new(kind: NodeKind) -> NewNode {
    NewNode { kind, mode: 0o644, owner: 1, group: 2, device: 0, target: Vec::new() }
}

/// What a client writes: never 0, and no other client writes it.
fn value_of(serial: u64, client: u64) -> u8 {
    (serial % 80 * CLIENTS_MAX + client + 1) as u8
}

/// Whose bytes lie there in the shared file.
fn owner_of(at: usize) -> u64 {
    at as u64 / STRIPE_BYTES % CLIENTS_MAX
}
