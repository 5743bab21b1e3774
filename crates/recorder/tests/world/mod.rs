//! A pretended store and a pretended directory that loses on a crash what was not made durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_mover::events::EventKind;
use forebay_recorder::journal::Line;
use forebay_recorder::machine::{Fetched, Found, Machine, MachineConfig, MachineError, Notice, ReadBack, Reply, Step};
use forebay_recorder::{Digest, Digester, Entry, FileName, Sidecar};
use forebay_types::{DecideOutcome, EventKey, StoreUuid, Time};

/// Steps after which a test that goes nowhere fails.
const STEPS_MAX: usize = 20_000;
const HEADER_BYTES: usize = 16;

/// SplitMix64: the same seed, the same world.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end.max(1)
    }
}

#[derive(Clone, Copy)]
pub struct Accepted {
    pub key: EventKey,
    pub kind: EventKind,
    pub bytes: u64,
    pub incomplete: bool,
}

#[derive(Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable_bytes: usize,
}

#[derive(Clone)]
enum NameChange {
    Add(String, usize),
    Rename(String, String),
    Remove(String),
}

fn apply(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Add(name, inode) => drop(names.insert(name.clone(), *inode)),
        NameChange::Rename(from, to) => {
            let inode = names.remove(from).expect("a name that is renamed is there");
            names.insert(to.clone(), inode);
        }
        NameChange::Remove(name) => drop(names.remove(name)),
    }
}

pub struct World {
    pub random: Random,
    pub now: Time,
    /// The store: what this stream has not released, and what it has.
    pub accepted: BTreeMap<EventKey, Accepted>,
    pub released: BTreeSet<EventKey>,
    pub floor: Option<EventKey>,
    /// How many requests the store does not answer.
    pub silent: usize,
    pub unavailable: BTreeSet<EventKey>,
    /// What it answers to releases, instead of releasing.
    pub refuses: Option<DecideOutcome>,
    /// The directory.
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changes: Vec<NameChange>,
    journal: Option<Vec<Line>>,
    /// Lines of the journal that a power cut does not take.
    durable_lines: usize,
    /// Files that others put there.
    foreign: BTreeMap<String, Vec<u8>>,
    /// How many files come back other than they were written.
    pub rotten: usize,
    /// Announced files that someone took away.
    pub archive: BTreeMap<String, Vec<u8>>,
    pub notices: Vec<Notice>,
    fetched: Vec<Vec<u8>>,
}

pub fn config() -> MachineConfig {
    MachineConfig {
        stream: "physics".parse().expect("a name"),
        store: StoreUuid::from_bytes([1; 16]),
        file_bytes: 400,
        close_after: Duration::from_secs(5),
        order_wait: Duration::from_secs(1),
        poll: Duration::from_millis(100),
        fetch_bytes: 300,
        once: true,
        patience: Duration::from_secs(20),
        mismatches_max: 3,
    }
}

fn event_bytes(event: &Accepted) -> Vec<u8> {
    let mut bytes = vec![0xEE; HEADER_BYTES.max(event.bytes as usize)];
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&event.key.run.0.to_le_bytes());
    bytes[4..12].copy_from_slice(&event.key.event.0.to_le_bytes());
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The events of a file, or `None` when it is no file of events.
fn events(mut bytes: &[u8]) -> Option<Vec<EventKey>> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let number = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
        keys.push(EventKey::new(u32_at(0)?, number));
        let length = u32_at(12)? as usize;
        bytes = bytes.get(length.max(HEADER_BYTES)..)?;
    }
    Some(keys)
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digester = Digester::default();
    digester.update(bytes);
    digester.digest()
}

impl World {
    pub fn new(seed: u64, events: impl IntoIterator<Item = Accepted>) -> World {
        World {
            random: Random(seed),
            now: Time(0),
            accepted: events.into_iter().map(|event| (event.key, event)).collect(),
            released: BTreeSet::new(),
            floor: None,
            silent: 0,
            unavailable: BTreeSet::new(),
            refuses: None,
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            journal: None,
            durable_lines: 0,
            foreign: BTreeMap::new(),
            rotten: 0,
            archive: BTreeMap::new(),
            notices: Vec::new(),
            fetched: Vec::new(),
        }
    }

    pub fn machine(&mut self, config: MachineConfig) -> Machine {
        let names = self.names.keys().cloned().collect();
        let journal = self.journal.clone().filter(|lines| !lines.is_empty());
        Machine::new(config, Found { journal, torn_bytes: 0, names }).expect("our own directory")
    }

    /// Runs a machine to its end, or for `steps` steps and then into a crash: `None`. A step that the
    /// directory refuses is followed by a new machine.
    pub fn live(&mut self, config: MachineConfig, steps: usize) -> Option<Result<(), MachineError>> {
        let mut machine = self.machine(config.clone());
        for taken in 0..STEPS_MAX {
            self.now = self.now + Duration::from_millis(1);
            let step = machine.next(self.now);
            self.notices.extend(machine.take_notices());
            match step {
                Step::Wait { until } => {
                    self.now = self.now.max(until);
                    continue;
                }
                Step::Finish => return machine.end().cloned(),
                step if taken >= steps => {
                    self.half(step);
                    // Killed, or refused by the directory, it leaves everything to the page cache; only a power
                    // cut takes that too.
                    if self.random.below(2) == 0 {
                        self.crash();
                    }
                    return None;
                }
                step if self.is_in_the_way(&step) => machine = self.machine(config.clone()),
                step => {
                    let reply = self.take(step);
                    machine.complete(self.now, reply);
                }
            }
        }
        panic!("no end after {STEPS_MAX} steps");
    }

    /// Whether the step would take a name from another file: the directory refuses it.
    pub fn is_in_the_way(&self, step: &Step) -> bool {
        match step {
            Step::Publish { file } => self.names.contains_key(&file.to_string()),
            Step::PublishSidecar { file } => self.names.contains_key(&file.sidecar()),
            Step::SetAside { file } => {
                self.names.contains_key(&file.to_string()) && self.names.contains_key(&file.bad())
            }
            _ => false,
        }
    }

    /// The crash comes within the step, or the step fails: no room, or a sync that gives an error.
    pub fn half(&mut self, step: Step) {
        match step {
            Step::Release { mut events } => {
                events.truncate(self.random.below(events.len() as u64 + 1) as usize);
                self.check_durable(&events);
                self.release(&events);
            }
            Step::Append { file, mut events } => {
                events.truncate(self.random.below(events.len() as u64 + 1) as usize);
                drop(self.take(Step::Append { file, events }));
            }
            Step::WriteSidecar { sidecar } => {
                let mut content = sidecar.to_json();
                content.truncate(self.random.below(content.len() as u64 + 1) as usize);
                self.write(sidecar.file_name().sidecar_part(), content, 0);
            }
            // The line is in the page cache, and no sync has told that it is anywhere else.
            Step::Journal { line } if self.random.below(2) == 0 => self.journal.get_or_insert_default().push(*line),
            Step::RewriteJournal { .. } if self.random.below(2) == 0 => drop(self.take(step)),
            Step::Publish { .. } | Step::PublishSidecar { .. } | Step::Remove { .. } | Step::SetAside { .. }
                if self.random.below(2) == 0 && !self.is_in_the_way(&step) =>
            {
                drop(self.take(step));
            }
            _ => {}
        }
    }

    /// The power goes: of the names of a file, those since the last sync arrived up to some moment; content
    /// and lines that were not synced arrive in part.
    pub fn crash(&mut self) {
        let mut late: BTreeSet<(Option<FileName>, bool)> = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            let (NameChange::Add(name, _) | NameChange::Rename(name, _) | NameChange::Remove(name)) = &change;
            let entry = Entry::classify(name);
            let of = (entry.file(), matches!(entry, Entry::Sidecar(_) | Entry::SidecarPart(_)));
            if self.random.below(3) == 0 {
                late.insert(of);
            }
            if !late.contains(&of) {
                apply(&mut self.durable_names, &change);
            }
        }
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            let lost = (inode.content.len() - inode.durable_bytes) as u64;
            let kept = inode.durable_bytes + self.random.below(lost + 1) as usize;
            inode.content.truncate(kept);
            inode.durable_bytes = kept;
        }
        if let Some(lines) = &mut self.journal {
            let unsure = (lines.len() - self.durable_lines) as u64;
            lines.truncate(self.durable_lines + self.random.below(unsure + 1) as usize);
            self.durable_lines = lines.len();
        }
    }

    /// Somebody puts a file there, unless the name is taken.
    pub fn put_foreign(&mut self, name: &str) -> bool {
        if self.names.contains_key(name) {
            return false;
        }
        self.add(name.to_owned(), b"of others".to_vec());
        self.sync_directory();
        self.foreign.insert(name.to_owned(), b"of others".to_vec());
        true
    }

    /// Somebody deletes files that have no sidecar: they look unfinished.
    pub fn delete_unfinished(&mut self) {
        let data: Vec<FileName> = self
            .names
            .keys()
            .filter_map(|name| if let Entry::Data(file) = Entry::classify(name) { Some(file) } else { None })
            .filter(|file| !self.foreign.contains_key(&file.to_string()) && !self.names.contains_key(&file.sidecar()))
            .collect();
        data.iter().for_each(|file| assert!(self.names.remove(&file.to_string()).is_some()));
        self.sync_directory();
    }

    /// Someone takes announced files away, data first or all at once.
    pub fn take_away(&mut self) {
        let announced: Vec<FileName> = self
            .names
            .keys()
            .filter_map(|name| if let Entry::Sidecar(file) = Entry::classify(name) { Some(file) } else { None })
            .collect();
        for file in announced {
            let name = file.to_string();
            if self.foreign.contains_key(&name) || self.foreign.contains_key(&file.sidecar()) {
                continue;
            }
            // It did not come back as it was written, and is about to be set aside: whoever takes it has a bad file.
            if self.journal_lines().contains(&Line::Withdrawn(name.clone())) {
                continue;
            }
            if self.random.below(2) == 0 {
                continue;
            }
            if let Some(inode) = self.names.remove(&file.to_string()) {
                self.archive.insert(file.to_string(), self.inodes[inode].content.clone());
            }
            if self.random.below(4) > 0 {
                self.names.remove(&file.sidecar());
            }
        }
        self.durable_names = self.names.clone();
        self.changes.clear();
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }

    fn inode(&self, name: &str) -> usize {
        *self.names.get(name).unwrap_or_else(|| panic!("{name} is there"))
    }

    fn add(&mut self, name: String, content: Vec<u8>) {
        assert!(!self.names.contains_key(&name), "{name} is new");
        let durable_bytes = content.len();
        self.write(name, content, durable_bytes);
    }

    /// Creates or overwrites.
    fn write(&mut self, name: String, content: Vec<u8>, durable_bytes: usize) {
        let inode = Inode { content, durable_bytes };
        if let Some(&place) = self.names.get(&name) {
            self.inodes[place] = inode;
            return;
        }
        self.inodes.push(inode);
        self.change(NameChange::Add(name, self.inodes.len() - 1));
    }

    fn sync_directory(&mut self) {
        self.durable_names = self.names.clone();
        self.changes.clear();
    }

    fn store_answers(&mut self) -> bool {
        let answers = self.silent == 0;
        self.silent = self.silent.saturating_sub(1);
        answers
    }

    pub fn journal_lines(&self) -> Vec<Line> {
        self.journal.clone().unwrap_or_default()
    }

    pub fn all_names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub fn take(&mut self, step: Step) -> Reply {
        if matches!(step, Step::List { .. } | Step::Fetch { .. } | Step::Release { .. }) && !self.store_answers() {
            return Reply::Busy { message: "silence".into() };
        }
        match step {
            Step::Wait { .. } | Step::Finish => unreachable!("not done"),
            Step::List { after, max } => return Reply::Page(self.page(after, max)),
            Step::Fetch { events } => return Reply::Fetched(self.fetch(&events)),
            Step::Release { events } => {
                self.check_durable(&events);
                return Reply::Released(self.release(&events));
            }
            Step::Create { file } => {
                for name in [file.to_string(), file.bad(), file.sidecar()] {
                    let is_used = self.names.contains_key(&name) && !self.foreign.contains_key(&name);
                    assert!(!is_used, "{name} must not be used again");
                }
                assert!(!self.archive.contains_key(&file.to_string()), "{file} was used before");
                self.add(file.part(), Vec::new());
            }
            Step::Append { file, events } => {
                let inode = self.inode(&file.part());
                for place in events {
                    let bytes = std::mem::take(&mut self.fetched[place]);
                    assert!(!bytes.is_empty(), "an event is written once");
                    self.inodes[inode].content.extend_from_slice(&bytes);
                }
            }
            Step::Sync { file } => {
                let inode = self.inode(&file.part());
                let inode = &mut self.inodes[inode];
                inode.durable_bytes = inode.content.len();
                return Reply::Synced(digest(&inode.content));
            }
            Step::Publish { file } => self.change(NameChange::Rename(file.part(), file.to_string())),
            Step::SyncDirectory => self.sync_directory(),
            Step::ReadBack { file, .. } => return Reply::ReadBack(self.read_back(file)),
            Step::Journal { line } => {
                let lines = self.journal.get_or_insert_default();
                lines.push(*line);
                self.durable_lines = lines.len();
                // Now and then it is told to be long.
                return Reply::Journaled(if self.random.below(4) == 0 { 1 << 30 } else { 0 });
            }
            Step::RewriteJournal { lines } => {
                self.durable_lines = lines.len();
                self.journal = Some(lines);
                return Reply::Journaled(100);
            }
            Step::WriteSidecar { sidecar } => {
                let content = sidecar.to_json();
                let durable_bytes = content.len();
                self.write(sidecar.file_name().sidecar_part(), content, durable_bytes);
            }
            Step::PublishSidecar { file } => self.change(NameChange::Rename(file.sidecar_part(), file.sidecar())),
            Step::SetAside { file } => {
                if self.names.contains_key(&file.to_string()) {
                    self.change(NameChange::Rename(file.to_string(), file.bad()));
                }
                self.change(NameChange::Remove(file.sidecar()));
                self.change(NameChange::Remove(file.sidecar_part()));
            }
            Step::Remove { name } => self.change(NameChange::Remove(name)),
        }
        Reply::Done
    }

    fn page(&self, after: Option<EventKey>, max: u32) -> AcceptedPage {
        // Small pages, so that walks have several.
        let max = max.min(7) as usize;
        let mut behind = self.accepted.values().filter(|event| after.is_none_or(|after| event.key > after));
        let events: Vec<AcceptedEvent> = behind
            .by_ref()
            .take(max)
            .map(|event| AcceptedEvent {
                key: event.key,
                fragments: 1,
                bytes: event.bytes,
                incomplete: event.incomplete,
            })
            .collect();
        AcceptedPage { events, more: behind.next().is_some(), undecided_floor: self.floor }
    }

    fn fetch(&mut self, events: &[AcceptedEvent]) -> Vec<Fetched> {
        self.fetched.clear();
        let mut fetched = Vec::new();
        for event in events {
            let event = self.accepted[&event.key];
            let bytes = event_bytes(&event);
            let length = bytes.len() as u64;
            self.fetched.push(bytes);
            fetched.push(if self.unavailable.contains(&event.key) {
                Fetched::Unavailable
            } else {
                Fetched::Event {
                    kind: event.kind,
                    numbered: true,
                    incomplete: event.incomplete,
                    lost: 0,
                    bytes: length,
                }
            });
        }
        fetched
    }

    fn read_back(&mut self, file: FileName) -> ReadBack {
        let Some(&inode) = self.names.get(&file.to_string()) else { return ReadBack::Missing };
        let mut content = self.inodes[inode].content.clone();
        if self.rotten > 0 {
            self.rotten -= 1;
            let at = self.random.below(content.len() as u64) as usize;
            content[at] ^= 0x40;
        }
        match events(&content) {
            Some(events) => ReadBack::File { digest: digest(&content), events: events.len() as u64 },
            None => ReadBack::Unreadable { message: "no events".into() },
        }
    }

    /// Whatever is released is in a file that a crash at this moment leaves whole and announced, or that
    /// someone took.
    fn check_durable(&self, keys: &[EventKey]) {
        let mut safe: BTreeSet<EventKey> = BTreeSet::new();
        for content in self.archive.values() {
            safe.extend(events(content).expect("an announced file"));
        }
        for (name, &inode) in &self.durable_names {
            let Entry::Data(file) = Entry::classify(name) else { continue };
            let inode = &self.inodes[inode];
            if self.foreign.contains_key(name)
                || !self.durable_names.contains_key(&file.sidecar())
                || inode.durable_bytes < inode.content.len()
            {
                continue;
            }
            safe.extend(events(&inode.content).expect("an announced file"));
        }
        for key in keys {
            assert!(safe.contains(key), "event {key} is released and in no durable, announced file");
        }
    }

    fn release(&mut self, keys: &[EventKey]) -> Vec<DecideOutcome> {
        if let Some(outcome) = self.refuses {
            return vec![outcome; keys.len()];
        }
        keys.iter()
            .map(|key| {
                if self.accepted.remove(key).is_some() {
                    self.released.insert(*key);
                    DecideOutcome::Done
                } else if self.released.contains(key) {
                    DecideOutcome::AlreadyDone
                } else {
                    DecideOutcome::NotFound
                }
            })
            .collect()
    }

    /// Every announced file, with its events: those in the directory and those that were taken.
    pub fn announced(&self) -> Vec<(FileName, Vec<EventKey>)> {
        let mut files: Vec<(FileName, Vec<EventKey>)> = self
            .archive
            .iter()
            .map(|(name, content)| (name.parse().expect("a name"), events(content).expect("an announced file")))
            .collect();
        for (name, &inode) in &self.names {
            let Entry::Data(file) = Entry::classify(name) else { continue };
            if self.foreign.contains_key(name) {
                continue;
            }
            let content = &self.inodes[inode].content;
            let sidecar = &self.inodes[self.inode(&file.sidecar())].content;
            let sidecar = Sidecar::parse(sidecar).expect("a good sidecar");
            assert_eq!(sidecar.digest(), digest(content), "{file}");
            let keys = events(content).expect("an announced file");
            assert_eq!(sidecar.keys().collect::<Vec<_>>(), keys, "{file}");
            files.push((file, keys));
        }
        files
    }

    pub fn bad_files(&self) -> usize {
        self.names.keys().filter(|name| matches!(Entry::classify(name), Entry::Bad(_))).count()
    }

    /// Events of files that were set aside.
    fn in_bad_files(&self) -> BTreeSet<EventKey> {
        let bad = self.names.iter().filter(|(name, _)| matches!(Entry::classify(name), Entry::Bad(_)));
        let bad =
            bad.filter(|(_, inode)| !self.foreign.values().any(|content| *content == self.inodes[**inode].content));
        bad.flat_map(|(_, &inode)| events(&self.inodes[inode].content).expect("written by the machine")).collect()
    }

    /// Whether a released event is in no announced file, only in one that is set aside.
    pub fn released_only_in_bad(&self) -> bool {
        let announced: BTreeSet<EventKey> = self.announced().into_iter().flat_map(|(_, keys)| keys).collect();
        self.released.iter().any(|key| !announced.contains(key))
    }

    /// Each of `expected` is in exactly one announced file, files do not mix, and nothing is left behind.
    /// Only what was released before its file rotted may be in a file that is set aside.
    pub fn check_exactly_once(&self, expected: &[Accepted]) {
        let (mut seen, bad) = (BTreeMap::new(), self.in_bad_files());
        for (file, keys) in self.announced() {
            assert!(keys.is_sorted(), "{file} is in order");
            for key in keys {
                assert_eq!(key.run, file.run, "{file} holds one run");
                assert_eq!(seen.insert(key, file), None, "event {key} is in {file} and in another file");
            }
        }
        for event in expected {
            assert!(self.released.contains(&event.key), "event {} is released", event.key);
            match seen.remove(&event.key) {
                Some(file) => assert_eq!(file.kind, event.kind, "{file} holds one kind"),
                None => assert!(bad.contains(&event.key), "event {} is in a file", event.key),
            }
        }
        assert!(seen.is_empty(), "events from nowhere: {seen:?}");
        let is_part = |name: &&String| matches!(Entry::classify(name), Entry::Part(_) | Entry::SidecarPart(_));
        assert_eq!(self.names.keys().find(is_part), None, "no remnants");
        for (name, content) in &self.foreign {
            // Only in place of a file that a power cut took between two steps may one be renamed, as a mismatch.
            let inode = self.names.get(name).or_else(|| self.names.get(&format!("{name}.bad")));
            assert_eq!(inode.map(|inode| &self.inodes[*inode].content), Some(content), "{name} of others is kept");
        }
    }
}
