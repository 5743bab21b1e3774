//! What is known of the runs whose events are moved: the definition that each goes by, where it leads, and whether the run is closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{RunId, Time};

use super::{DestinationIndex, StreamConfig};
use crate::events::{OfRun, Terms};

/// What was told of a run that is not closed is believed for so long.
const BELIEVED: Duration = Duration::from_secs(10);
/// Of no more runs it is remembered what was told.
const RUNS_MAX: usize = 256;

/// Why events of a run are left in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) words: String,
    /// They are to go where no destination was made ready.
    pub(super) wants_destination: bool,
}

#[derive(Debug)]
struct Known {
    terms: Arc<Terms>,
    refusal: Option<Refusal>,
    asked_at: Time,
    /// Walks that had begun when the run was known to be closed.
    closed_after: Option<u64>,
}

/// By run.
#[derive(Debug, Default)]
pub(super) struct TermsBook(BTreeMap<RunId, Known>);

impl TermsBook {
    /// Whether the store is to be asked before anything is done with events of this run.
    pub(super) fn is_stale(&self, run: RunId, now: Time) -> bool {
        self.0.get(&run).is_none_or(|known| known.closed_after.is_none() && now.since(known.asked_at) >= BELIEVED)
    }

    /// When that is so, of a run that is known.
    pub(super) fn stale_at(&self, run: RunId) -> Option<Time> {
        let known = self.0.get(&run)?;
        known.closed_after.is_none().then(|| known.asked_at + BELIEVED)
    }

    /// What the store said; `walks`: that were begun.
    pub(super) fn learn(&mut self, run: RunId, of_run: &OfRun, config: &StreamConfig, walks: u64, now: Time) {
        let (terms, refusal) = match Terms::of(of_run, config.kind) {
            Ok(terms) => {
                let refusal = refusal(run, &terms, config);
                (terms, refusal)
            }
            Err(error) => {
                let words = error.to_string();
                (Terms::default(), Some(Refusal { words, wants_destination: false }))
            }
        };
        let before = self.0.remove(&run).and_then(|known| known.closed_after);
        // A refusal is looked at again, whatever became of its run.
        let closed_after = (terms.is_closed && refusal.is_none()).then(|| before.unwrap_or(walks));
        while self.0.len() >= RUNS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.asked_at).map(|(run, _)| *run);
            oldest.map(|run| self.0.remove(&run));
        }
        self.0.insert(run, Known { terms: Arc::new(terms), refusal, asked_at: now, closed_after });
    }

    pub(super) fn terms(&self, run: RunId) -> Option<&Arc<Terms>> {
        self.0.get(&run).map(|known| &known.terms)
    }

    pub(super) fn refusal(&self, run: RunId) -> Option<&Refusal> {
        self.0.get(&run)?.refusal.as_ref()
    }

    /// Runs whose events are left in the store, and why.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (RunId, &Refusal)> {
        self.0.iter().filter_map(|(run, known)| Some((*run, known.refusal.as_ref()?)))
    }

    /// Whether a walk that left nothing behind, and began when the run was closed already, met all that there will ever be of it.
    pub(super) fn is_over(&self, run: RunId, whole_walk: u64) -> bool {
        self.0.get(&run).and_then(|known| known.closed_after).is_some_and(|walks| whole_walk > walks)
    }
}

/// Why nothing goes by these terms.
fn refusal(run: RunId, terms: &Terms, config: &StreamConfig) -> Option<Refusal> {
    let defined = config.defined.as_ref()?;
    let stream = &config.stream;
    let (words, wants_destination) = match (terms.destination.as_str(), defined.get(&terms.destination)) {
        (_, Some(Some(_))) => return None,
        ("", _) => {
            let words = format!(
                "nobody said where events of stream {stream} go: say it to the mover (--to), or define it for later runs (forebay stream define {stream} --destination ADDRESS)"
            );
            (words, false)
        }
        (address, Some(None)) => (
            format!(
                "{address:?}, where stream {stream} is defined to go (version {}), cannot be used: say another destination to the mover (--to), or define the stream anew for later runs",
                terms.version
            ),
            false,
        ),
        (address, None) => (format!("{address:?}, where stream {stream} goes, was not known at the start"), true),
    };
    Some(Refusal { words: format!("events of run {run} stay in the store: {words}"), wants_destination })
}

/// Where a definition leads, by what it says; nothing where that cannot be used.
pub type Defined = BTreeMap<String, Option<DestinationIndex>>;
