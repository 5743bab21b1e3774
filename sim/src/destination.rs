//! The directory of one stream, as a recorder's machine asks for it: files that are in the page cache, and what of them is durable.

use std::collections::{BTreeMap, BTreeSet};

use forebay_recorder::journal::{self, Line};
use forebay_recorder::machine::{Found, ReadBack, Reply, Step};
use forebay_recorder::parts::{Part, PartsReader};
use forebay_recorder::{Digester, Entry, FileName, JOURNAL_NAME, Sidecar, read_back_bytes};
use forebay_types::EventKey;

use crate::random::Random;

/// What a file holds: bytes, of which so many are durable.
#[derive(Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable_bytes: usize,
}

type Names = BTreeMap<String, usize>;

enum Change {
    Add(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Add(name, inode) => drop(names.insert(name.clone(), *inode)),
            Change::Rename(from, to) => {
                let inode = names.remove(from).expect("a name that is renamed is there");
                names.insert(to.clone(), inode);
            }
            Change::Remove(name) => drop(names.remove(name)),
        }
    }

    /// Names of one file, or of its sidecar, change in order; those of different ones in any.
    fn concerns(&self) -> (Option<FileName>, bool) {
        let (Change::Add(name, _) | Change::Rename(name, _) | Change::Remove(name)) = self;
        let entry = Entry::classify(name);
        (entry.file(), matches!(entry, Entry::Sidecar(_) | Entry::SidecarPart(_)))
    }
}

/// The directory of a stream.
#[derive(Default)]
pub(crate) struct Destination {
    inodes: Vec<Inode>,
    names: Names,
    durable_names: Names,
    /// Of names, since the directory was last synced.
    changes: Vec<Change>,
    /// The journal was written by this start: what is appended follows whole lines.
    journal_is_open: bool,
}

impl Destination {
    /// What a start finds; the one before is over.
    pub(crate) fn open(&mut self) -> Found {
        self.journal_is_open = false;
        let mut found = Found { names: self.names.keys().cloned().collect(), ..Found::default() };
        if let Some(text) = self.content(JOURNAL_NAME) {
            let (lines, torn) = journal::parse(text).expect("a crash tears the last line at the most");
            found.torn_bytes = torn as u64;
            found.journal = (!lines.is_empty()).then_some(lines);
        }
        found
    }

    fn content(&self, name: &str) -> Option<&[u8]> {
        self.names.get(name).map(|inode| self.inodes[*inode].content.as_slice())
    }

    fn inode(&mut self, name: &str) -> &mut Inode {
        let inode = *self.names.get(name).unwrap_or_else(|| panic!("{name} is there"));
        &mut self.inodes[inode]
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    /// Creates a file, or overwrites it; nothing of it is durable.
    fn write(&mut self, name: &str, content: &[u8]) {
        let inode = Inode { content: content.to_vec(), durable_bytes: 0 };
        if let Some(known) = self.names.get(name) {
            self.inodes[*known] = inode;
            return;
        }
        self.inodes.push(inode);
        self.change(Change::Add(name.to_owned(), self.inodes.len() - 1));
    }

    fn sync(&mut self, name: &str) {
        let inode = self.inode(name);
        inode.durable_bytes = inode.content.len();
    }

    fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.changes.clear();
    }

    fn rename(&mut self, from: &str, to: &str) {
        assert!(!self.names.contains_key(to), "{to} is replaced by {from}");
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
    }

    fn remove(&mut self, name: &str) {
        if self.names.contains_key(name) {
            self.change(Change::Remove(name.to_owned()));
        }
    }

    fn append_line(&mut self, line: &Line) {
        if self.journal_is_open {
            let content = &mut self.inode(JOURNAL_NAME).content;
            line.write(content);
        } else {
            let mut text = Vec::new();
            journal::write_header(&mut text);
            line.write(&mut text);
            self.write(JOURNAL_NAME, &text);
        }
    }

    fn journal_is_durable(&mut self) -> Reply {
        self.sync(JOURNAL_NAME);
        if !self.journal_is_open {
            self.sync_names();
        }
        self.journal_is_open = true;
        Reply::Journaled(self.inode(JOURNAL_NAME).content.len() as u64)
    }

    fn rewrite_journal(&mut self, lines: &[Line]) {
        let mut text = Vec::new();
        journal::write_header(&mut text);
        lines.iter().for_each(|line| line.write(&mut text));
        let durable_bytes = text.len();
        self.inodes.push(Inode { content: text, durable_bytes });
        self.change(Change::Add(JOURNAL_NAME.to_owned(), self.inodes.len() - 1));
        self.sync_names();
        self.journal_is_open = true;
    }

    /// Does a step that concerns the directory; `fetched`: the bytes of the events fetched last.
    pub(crate) fn take(&mut self, step: &Step, fetched: &mut [Vec<u8>]) -> Reply {
        match step {
            Step::Create { file } => {
                assert!(!self.names.contains_key(&file.part()), "{file} is being written already");
                self.write(&file.part(), &[]);
            }
            Step::Append { file, events } => {
                for place in events {
                    let bytes = std::mem::take(&mut fetched[*place]);
                    self.inode(&file.part()).content.extend_from_slice(&bytes);
                }
            }
            Step::Sync { file } => {
                self.sync(&file.part());
                let mut digester = Digester::default();
                digester.update(&self.inode(&file.part()).content);
                return Reply::Synced(digester.digest());
            }
            Step::Publish { file } => self.rename(&file.part(), &file.to_string()),
            Step::SyncDirectory => self.sync_names(),
            Step::ReadBack { file, .. } => {
                let content = self.content(&file.to_string());
                return Reply::ReadBack(content.map_or(ReadBack::Missing, |bytes| read_back_bytes(file.kind, bytes)));
            }
            Step::Journal { line } => {
                self.append_line(line);
                return self.journal_is_durable();
            }
            Step::RewriteJournal { lines } => {
                self.rewrite_journal(lines);
                return self.journal_is_durable();
            }
            Step::WriteSidecar { sidecar } => {
                let name = sidecar.file_name().sidecar_part();
                self.write(&name, &sidecar.to_json());
                self.sync(&name);
            }
            Step::PublishSidecar { file } => self.rename(&file.sidecar_part(), &file.sidecar()),
            Step::SetAside { file } => {
                if self.names.contains_key(&file.to_string()) {
                    self.rename(&file.to_string(), &file.bad());
                }
                self.remove(&file.sidecar());
                self.remove(&file.sidecar_part());
            }
            Step::Remove { name } => self.remove(name),
            Step::Wait { .. } | Step::List { .. } | Step::Fetch { .. } | Step::Release { .. } | Step::Finish => {
                unreachable!("no step of the directory: {step:?}")
            }
        }
        Reply::Done
    }

    /// The recorder dies in the middle of a step.
    pub(crate) fn take_in_part(&mut self, step: &Step, fetched: &mut [Vec<u8>], random: &mut Random) {
        match step {
            Step::Append { file, events } => {
                let events = events[..random.below(events.len() as u64 + 1) as usize].to_vec();
                self.take(&Step::Append { file: *file, events }, fetched);
            }
            Step::WriteSidecar { sidecar } => {
                let mut content = sidecar.to_json();
                content.truncate(random.below(content.len() as u64 + 1) as usize);
                self.write(&sidecar.file_name().sidecar_part(), &content);
            }
            Step::Journal { line } => {
                let before = self.content(JOURNAL_NAME).filter(|_| self.journal_is_open).map_or(0, <[u8]>::len);
                self.append_line(line);
                let content = &mut self.inode(JOURNAL_NAME).content;
                content.truncate(before + random.below((content.len() - before) as u64 + 1) as usize);
            }
            Step::Sync { .. } | Step::SyncDirectory | Step::ReadBack { .. } => {}
            step if random.per_mille(500) => drop(self.take(step, fetched)),
            _ => {}
        }
    }

    /// The recorder is gone: what it had not handed to the system of files that it was writing is, too.
    pub(crate) fn writer_dies(&mut self, random: &mut Random) {
        let writing: Vec<String> =
            self.names.keys().filter(|name| matches!(Entry::classify(name), Entry::Part(_))).cloned().collect();
        for name in writing {
            let inode = self.inode(&name);
            let unsure = (inode.content.len() - inode.durable_bytes) as u64;
            inode.content.truncate(inode.durable_bytes + random.below(unsure + 1) as usize);
        }
    }

    /// The power goes: of what was not synced any part is there. Whether anything of it is not.
    pub(crate) fn power_cut(&mut self, random: &mut Random) -> bool {
        let mut lost = false;
        let mut late: BTreeSet<(Option<FileName>, bool)> = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            if random.per_mille(400) {
                late.insert(change.concerns());
            }
            match late.contains(&change.concerns()) {
                true => lost = true,
                false => change.apply(&mut self.durable_names),
            }
        }
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            let unsure = (inode.content.len() - inode.durable_bytes) as u64;
            let kept = inode.durable_bytes + random.below(unsure + 1) as usize;
            lost |= kept < inode.content.len();
            inode.content.truncate(kept);
            inode.durable_bytes = kept;
        }
        lost
    }

    /// A byte of a file that was written changes.
    pub(crate) fn rot(&mut self, file: FileName, random: &mut Random) {
        let content = &mut self.inode(&file.part()).content;
        let at = random.below(content.len() as u64) as usize;
        content[at] ^= 1 << random.below(8);
    }

    /// Whether a start has something to finish.
    pub(crate) fn has_unfinished(&self) -> bool {
        let part = |name: &String| matches!(Entry::classify(name), Entry::Part(_) | Entry::SidecarPart(_));
        let text = self.content(JOURNAL_NAME).and_then(|text| journal::parse(text).ok());
        let ledger = text.map(|(lines, _)| journal::Ledger::new(lines));
        self.names.keys().any(part) || ledger.is_some_and(|ledger| ledger.pending.len() + ledger.written.len() > 0)
    }

    /// The bytes of a name, if a power cut can take nothing of it.
    fn durable(&self, name: &str) -> Option<&[u8]> {
        let inode = &self.inodes[*self.durable_names.get(name)?];
        let same = self.names.get(name) == self.durable_names.get(name);
        (same && inode.durable_bytes == inode.content.len()).then_some(inode.content.as_slice())
    }

    /// The events of a file that is durable, announced in a durable journal and by a durable sidecar which fits.
    ///
    /// # Panics
    /// When it is not all of that.
    pub(crate) fn announced(&self, file: FileName) -> Vec<(EventKey, Vec<Part>)> {
        let durable = |name: &str| self.durable(name).unwrap_or_else(|| panic!("{name} is not durable"));
        let bytes = durable(&file.to_string());
        let sidecar = Sidecar::parse(durable(&file.sidecar())).expect("a sidecar that fits together");
        let mut digester = Digester::default();
        digester.update(bytes);
        assert_eq!(digester.digest(), sidecar.digest(), "{file} is not what its sidecar says");
        let (lines, _) = journal::parse(durable(JOURNAL_NAME)).expect("a journal");
        let said = [Line::Announced(file.to_string()), Line::Released(file.to_string())];
        assert!(said.iter().any(|line| lines.contains(line)), "the journal does not say that {file} is announced");
        let events: Result<Vec<_>, _> = PartsReader::new(bytes).collect();
        let events = events.unwrap_or_else(|error| panic!("{file}: {error}"));
        let keys: Vec<EventKey> = events.iter().map(|(key, _)| *key).collect();
        assert!(sidecar.keys().eq(keys), "{file} does not hold the events of its sidecar");
        events
    }

    /// The files that anybody who looks takes for complete.
    pub(crate) fn complete_files(&self) -> Vec<FileName> {
        let complete = |name: &String| match Entry::classify(name) {
            Entry::Sidecar(file) => Some(file),
            _ => None,
        };
        self.names.keys().filter_map(complete).collect()
    }
}
