//! What a start makes of the directory that it finds.

use std::collections::{BTreeSet, VecDeque};

use forebay_mover::events::walk::Walk;
use forebay_types::StoreUuid;

use super::closing::FoundSidecar;
use super::{Machine, MachineConfig, Notice, Step};
use crate::journal::{Ledger, Line};
use crate::names::{Entry, FileName};
use crate::planted::{Planted, planted};

/// What the directory of the stream holds at the start.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The lines of the journal; `None`: there is none.
    pub journal: Option<Vec<Line>>,
    /// The size of the torn line behind them, in bytes.
    pub torn_bytes: u64,
    /// The names of all entries.
    pub names: Vec<String>,
}

/// A directory that the recorder does not touch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Stream files, and no journal.
    #[error(
        "the directory holds {file} but no journal of the recorder: whether its events were released cannot be told. Nothing was \
         touched. Move the files away, or record into another directory"
    )]
    NoJournal {
        /// One of the files.
        file: String,
    },
    /// Files of another store that are not released there.
    #[error(
        "{file} holds events of store {expected} that are not yet released there; this server holds store {found}. Nothing was \
         touched. Run the recorder against the first store until it ends, or use another directory"
    )]
    OtherStore {
        /// One of the files.
        file: String,
        /// The store that it came from.
        expected: StoreUuid,
        /// The store that answers now.
        found: StoreUuid,
    },
}

impl Machine {
    /// A machine that first finishes what an earlier one left in the directory.
    ///
    /// # Errors
    /// A directory that is not the recorder's, or another store's.
    pub fn new(config: MachineConfig, found: Found) -> Result<Machine, StartError> {
        let entries: Vec<(String, Entry)> =
            found.names.into_iter().map(|name| (Entry::classify(&name), name)).map(|(e, n)| (n, e)).collect();
        let Some(lines) = found.journal else {
            if let Some((name, _)) = entries.iter().find(|(_, entry)| entry.file().is_some()) {
                return Err(StartError::NoJournal { file: name.clone() });
            }
            let chores = VecDeque::from([journal_store(config.store)]);
            let ledger = Ledger { store: Some(config.store), ..Ledger::default() };
            return Ok(Machine::with(config, ledger, chores));
        };
        let mut ledger = Ledger::new(lines);
        entries.iter().filter_map(|(_, entry)| entry.file()).for_each(|file| ledger.saw(file.run, file.sequence));
        check_store(&ledger, config.store)?;
        ledger.store = Some(config.store);
        let mut machine = Machine::with(config, ledger, VecDeque::new());
        machine.notices.extend((found.torn_bytes > 0).then_some(Notice::JournalTorn(found.torn_bytes)));
        machine.sort_out(entries);
        Ok(machine)
    }

    fn with(config: MachineConfig, ledger: Ledger, chores: VecDeque<Step>) -> Machine {
        Machine {
            config,
            ledger,
            chores,
            adopt: VecDeque::new(),
            open: Default::default(),
            closing: None,
            waiting: VecDeque::new(),
            walk: Walk::default(),
            taken: BTreeSet::new(),
            outstanding: None,
            notices: Vec::new(),
            retry_at: None,
            busy_since: None,
            unavailable_since: None,
            mismatches: 0,
            announced_mismatches: Vec::new(),
            not_taken_told: None,
            journal_bytes: 0,
            journal_rewritten_bytes: 0,
            stopping: false,
            end: None,
        }
    }

    fn sort_out(&mut self, entries: Vec<(String, Entry)>) {
        let there: BTreeSet<Entry> = entries.iter().map(|(_, entry)| *entry).collect();
        // Under its final name is the file of the journal only when it was renamed; and its sidecar is not seen
        // before it is announced.
        let is_ours = |file: &FileName| {
            let there = |entry| there.contains(&entry);
            there(Entry::Data(*file)) && !there(Entry::Part(*file)) && !there(Entry::Sidecar(*file))
        };
        self.ledger.written.retain(|file, _| is_ours(file));

        // What the page cache gave us of the journal may not be on the drive, when the write before the last
        // stop failed: nothing is done on its word until it is written again.
        let files = entries.iter().filter_map(|(_, entry)| entry.file()).collect();
        self.chores.push_back(Step::RewriteJournal { lines: self.ledger.rewritten(&files) });
        let before = self.chores.len();
        for (name, entry) in entries {
            match self.fate(entry, &there) {
                Fate::Keep => {}
                Fate::Remove => self.chores.push_back(Step::Remove { name }),
                Fate::SetAside(file) => self.chores.push_back(Step::SetAside { file }),
                Fate::Unknown(file) => self.notices.push(Notice::Unknown(file)),
            }
        }
        if self.chores.len() > before {
            self.chores.push_back(Step::SyncDirectory);
        }
        let adopt = |(file, sidecar), announced| {
            let sidecar_there = |entry: Entry| there.contains(&entry);
            let found = match () {
                () if sidecar_there(Entry::SidecarPart(file)) => FoundSidecar::Part,
                () if sidecar_there(Entry::Sidecar(file)) => FoundSidecar::Final,
                () => FoundSidecar::None,
            };
            (sidecar, announced, found)
        };
        let (pending, written) = (std::mem::take(&mut self.ledger.pending), std::mem::take(&mut self.ledger.written));
        if !planted(Planted::AnnouncedForgotten) {
            self.adopt.extend(pending.into_iter().map(|file| adopt(file, true)));
        }
        self.adopt.extend(written.into_iter().map(|file| adopt(file, false)));
    }

    /// What becomes of an entry before anything is recorded. Nothing that is not provably ours is touched.
    fn fate(&self, entry: Entry, there: &BTreeSet<Entry>) -> Fate {
        let ledger = &self.ledger;
        let unfinished = |file| ledger.pending.contains_key(file) || ledger.written.contains_key(file);
        match entry {
            Entry::Part(_) => Fate::Remove,
            // It tells whether anybody has seen the file as complete.
            Entry::SidecarPart(file) if unfinished(&file) => Fate::Keep,
            Entry::SidecarPart(_) => Fate::Remove,
            Entry::Data(file) if unfinished(&file) || ledger.released.contains(&file) => Fate::Keep,
            Entry::Data(file) if ledger.withdrawn.contains(&file) && !there.contains(&Entry::Bad(file)) => {
                Fate::SetAside(file)
            }
            Entry::Data(file) => Fate::Unknown(file),
            // A crash may have undone its removal, and it announces a file that is not there.
            Entry::Sidecar(file) if ledger.withdrawn.contains(&file) && !there.contains(&Entry::Data(file)) => {
                Fate::Remove
            }
            Entry::Sidecar(_) | Entry::Bad(_) | Entry::Foreign => Fate::Keep,
        }
    }
}

/// What becomes of an entry of the directory.
enum Fate {
    Keep,
    Remove,
    SetAside(FileName),
    /// Not in the journal: people are told.
    Unknown(FileName),
}

fn journal_store(store: StoreUuid) -> Step {
    Step::Journal { line: Box::new(Line::Store(store)) }
}

/// The events of another store may have the same numbers: releasing them here would free what was never
/// recorded.
fn check_store(ledger: &Ledger, store: StoreUuid) -> Result<(), StartError> {
    match ledger.pending.values().chain(ledger.written.values()).find(|sidecar| sidecar.store != store) {
        Some(sidecar) => {
            Err(StartError::OtherStore { file: sidecar.file.clone(), expected: sidecar.store, found: store })
        }
        None => Ok(()),
    }
}
