//! Judges what was read and tells the store what becomes of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{Decision, EventState};
use forebay_types::{DecideOutcome, EventKey, SourceId, StreamName, Verdict};

use super::judge::{Judgement, judge, judge_outcomes};
use super::steps::ReadEvent;
use super::{DEBUG_STREAM, Shared};
use crate::store::FilterStore;

/// The wait after the store gave no answer.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct Decider<'a, S> {
    shared: &'a Shared<'a>,
    store: S,
    debug: StreamName,
}

/// A decision and what it counts as.
struct Made {
    decision: Decision,
    early: bool,
    lost: bool,
    mismatched: bool,
    not_in_ledger: bool,
}

impl<'a, S: FilterStore> Decider<'a, S> {
    pub(super) fn new(shared: &'a Shared<'a>, store: S) -> Self {
        let debug = DEBUG_STREAM.parse().expect("a good name");
        Decider { shared, store, debug }
    }

    /// Ends when no more batches come, or when it cannot go on.
    pub(super) fn run(mut self, batches: &Receiver<Vec<ReadEvent>>) {
        for batch in batches {
            let made: Vec<Made> = batch.iter().filter_map(|read| self.make(read)).collect();
            // What was read is gone before the next batch is taken.
            drop(batch);
            if !made.is_empty() && !self.tell(&made) {
                return;
            }
        }
    }

    /// The decision on an event; `None`: none, it is offered again or decided already.
    fn make(&self, read: &ReadEvent) -> Option<Made> {
        let (shared, key) = (self.shared, read.event.key);
        let judgement = if read.early {
            judge_outcomes(&read.event).unwrap_or(Judgement::Whole { in_ledger: None })
        } else {
            judge(&read.event, shared.config.ledger.as_deref())
        };
        let decide = |verdict, incomplete| Made {
            decision: Decision { key, verdict, incomplete },
            early: read.early,
            lost: false,
            mismatched: false,
            not_in_ledger: false,
        };
        let debug = || Verdict::Accept(vec![self.debug.clone()]);
        match judgement {
            Judgement::Whole { in_ledger } => {
                Some(Made { not_in_ledger: in_ledger == Some(false), ..decide(shared.choice.verdict(key), false) })
            }
            // Without a count of what it should have the store never knows it as complete: it offers it after the
            // same time as an incomplete one.
            Judgement::Incomplete if read.leased.incomplete || read.leased.expected == 0 => {
                Some(decide(shared.choice.verdict(key), true))
            }
            Judgement::Incomplete | Judgement::Unavailable => {
                shared.progress.left.fetch_add(1, Relaxed);
                None
            }
            Judgement::Lost(sources) => {
                shared.progress.damage.add(|| {
                    let first =
                        sources.first().map_or(String::new(), |source| format!(", the first of source {source}"));
                    format!("event {key}: {} fragments are lost{first}; accepted into {}", sources.len(), self.debug)
                });
                Some(Made { lost: true, early: false, ..decide(debug(), true) })
            }
            Judgement::Mismatch(words) => {
                shared.progress.damage.add(|| format!("event {key}: {words}; accepted into {}", self.debug));
                Some(Made { mismatched: true, ..decide(debug(), false) })
            }
            Judgement::Decided => None,
        }
    }

    /// False when it cannot go on.
    fn tell(&mut self, made: &[Made]) -> bool {
        let decisions: Vec<Decision> = made.iter().map(|made| made.decision.clone()).collect();
        let outcomes = loop {
            let asked = Instant::now();
            match self.store.decide(&decisions) {
                Ok(outcomes) => {
                    self.shared.progress.decide_latency.add(asked.elapsed());
                    break outcomes;
                }
                Err(error) if !error.retryable => {
                    self.shared.fail(error.into());
                    return false;
                }
                Err(error) => tracing::warn!("{error}"),
            }
            // Undecided events go to another filter when their leases run out.
            if self.shared.is_stopping() {
                return false;
            }
            thread::sleep(RETRY);
        };
        let finished = self.finished(made, &outcomes);
        made.iter().zip(outcomes).for_each(|(made, outcome)| self.count(made, outcome, &finished));
        true
    }

    /// Of the events whose acceptance is a conflict, those that the store is through with: a decision is not
    /// remembered longer than the event, so that the same one, told again, is a conflict too.
    fn finished(&mut self, made: &[Made], outcomes: &[DecideOutcome]) -> BTreeSet<EventKey> {
        let accepts = |made: &Made| made.decision.verdict != Verdict::Reject;
        let conflicts = made.iter().zip(outcomes).filter(|(made, o)| **o == DecideOutcome::Conflict && accepts(made));
        let keys: Vec<EventKey> = conflicts.map(|(made, _)| made.decision.key).collect();
        if keys.is_empty() {
            return BTreeSet::new();
        }
        let events = self.store.get_events(&keys, Some(&[SourceId::EVENT_FRAME])).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        events.iter().filter(|event| event.state == EventState::Finished).map(|event| event.key).collect()
    }

    fn count(&self, made: &Made, outcome: DecideOutcome, finished: &BTreeSet<EventKey>) {
        let (progress, key) = (self.shared.progress, made.decision.key);
        if finished.contains(&key) {
            progress.decided_before.fetch_add(1, Relaxed);
            return;
        }
        if !outcome.is_done() {
            progress.undecided.fetch_add(1, Relaxed);
            // Not found: the store does not know the event any more.
            if outcome != DecideOutcome::NotFound {
                progress.reports.add(|| format!("event {key}: the decision was not taken: {outcome}"));
            }
            return;
        }
        if !progress.is_first(key) {
            return;
        }
        let accepted = made.decision.verdict != Verdict::Reject;
        let counts = [
            (&progress.accepted, accepted),
            (&progress.rejected, !accepted),
            (&progress.rejected_early, made.early && !accepted),
            (&progress.incomplete, made.decision.incomplete),
            (&progress.mismatched, made.mismatched),
            (&progress.lost, made.lost),
            (&progress.not_in_ledger, made.not_in_ledger),
            (&progress.events_built, true),
        ];
        for (counter, counts) in counts {
            counter.fetch_add(u64::from(counts), Relaxed);
        }
    }
}
