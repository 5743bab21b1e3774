//! What a start makes of the directory that it finds.

use std::collections::{BTreeSet, VecDeque};

use forebay_types::StoreUuid;

use super::walk::Walk;
use super::{Machine, MachineConfig, Notice, Step};
use crate::journal::{JOURNAL_REWRITE_BYTES, Ledger, Line};
use crate::names::Entry;

/// What the directory of the stream holds at the start.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The lines of the journal; `None`: there is none.
    pub journal: Option<Vec<Line>>,
    /// The size of the journal in bytes.
    pub journal_bytes: u64,
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
        "{file} was announced from store {expected} and its events are not yet released there; this server holds store {found}. \
         Nothing was touched. Run the recorder against the first store until it ends, or use another directory"
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
            return Ok(Machine::with(config, Ledger::default(), chores));
        };
        let mut ledger = Ledger::new(lines);
        entries.iter().filter_map(|(_, entry)| entry.file()).for_each(|file| ledger.saw(file.run, file.sequence));
        check_store(&ledger, config.store)?;

        let mut chores = VecDeque::new();
        if ledger.store != Some(config.store) {
            ledger.store = Some(config.store);
            chores.push_back(journal_store(config.store));
        }
        if found.journal_bytes > JOURNAL_REWRITE_BYTES {
            let there: BTreeSet<_> = entries.iter().filter_map(|(_, entry)| entry.file()).collect();
            chores.push_back(Step::RewriteJournal { lines: ledger.rewritten(&there) });
        }
        let mut machine = Machine::with(config, ledger, chores);
        machine.sort_out(&entries);
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
            journal_bytes: 0,
            journal_rewritten_bytes: 0,
            stopping: false,
            end: None,
        }
    }

    fn sort_out(&mut self, entries: &[(String, Entry)]) {
        let sidecars: BTreeSet<_> = entries
            .iter()
            .filter_map(|(_, entry)| if let Entry::Sidecar(file) = entry { Some(*file) } else { None })
            .collect();
        let before = self.chores.len();
        for (name, entry) in entries {
            match *entry {
                Entry::Part(_) => self.chores.push_back(Step::Remove { name: name.clone() }),
                Entry::Data(file) if self.ledger.withdrawn.contains(&file) => {
                    self.chores.push_back(Step::SetAside { file });
                }
                Entry::Data(file) if self.ledger.pending.contains_key(&file) => {}
                Entry::Data(file) if self.ledger.released.contains(&file) => {}
                // Announced files alone get a sidecar, and all of them are in the journal.
                Entry::Data(file) if sidecars.contains(&file) => self.notices.push(Notice::Unknown(file)),
                Entry::Data(_) => self.chores.push_back(Step::Remove { name: name.clone() }),
                Entry::Sidecar(_) | Entry::Bad(_) | Entry::Foreign => {}
            }
        }
        if self.chores.len() > before {
            self.chores.push_back(Step::SyncDirectory);
        }
        let pending = std::mem::take(&mut self.ledger.pending);
        for (file, sidecar) in pending {
            self.adopt.push_back((sidecar, sidecars.contains(&file)));
        }
    }
}

fn journal_store(store: StoreUuid) -> Step {
    Step::Journal { line: Box::new(Line::Store(store)) }
}

/// The events of another store may have the same numbers: releasing them here would free what was never
/// recorded.
fn check_store(ledger: &Ledger, store: StoreUuid) -> Result<(), StartError> {
    match ledger.pending.values().find(|sidecar| sidecar.store != store) {
        Some(sidecar) => {
            Err(StartError::OtherStore { file: sidecar.file.clone(), expected: sidecar.store, found: store })
        }
        None => Ok(()),
    }
}
