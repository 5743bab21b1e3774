//! What a lane does about runs that somebody declared: it learns by which rules it goes, says so when nothing on its way breaks them any more, and deletes what is left of runs
//! that were discarded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_engine::{Admission, Planted, planted};
use forebay_types::{
    DecideOutcome, EventId, EventKey, RunCounts, RunId, RunPuts, RunRule, StreamName, Verdict, is_prescaled_in,
};

use super::{Core, Service};
use crate::lane_requests::LaneRequests;
use crate::namespace::FilesMessage;
use crate::request::{Body, Request, Tell, token};

/// The request number under which what is left of discarded runs is deleted; no client's request has it.
pub(super) const DISCARDS_REQUEST: u64 = 2;

/// Deletions of discarded events that are on their way; no more are asked for while there are so many.
const DISCARDING_MAX: usize = 256;

/// The rules of a lane.
#[derive(Default)]
pub(super) struct Rules {
    /// They were told since the start. Nothing is put, decided or freed before.
    pub(super) are_known: bool,
    /// Runs some of whose streams keep but a part of the events.
    prescales: BTreeMap<RunId, Arc<[(StreamName, u32)]>>,
    /// Rules that the lane has not said to go by yet.
    unsaid: Vec<(u64, RunId)>,
    discards: Discards,
}

/// What is left of discarded runs, on its way out.
#[derive(Default)]
struct Discards {
    runs: BTreeSet<RunId>,
    /// Where the walk through the first of them goes on.
    from: EventId,
    in_flight: usize,
    /// The walk has met something that it must come back for.
    again: bool,
    deleted: u64,
}

impl Rules {
    /// Those of a store that may have some, or of one that has none.
    pub(super) fn new(has_books: bool) -> Rules {
        Rules { are_known: !has_books, ..Rules::default() }
    }

    fn take(&mut self, run: RunId, rule: &RunRule, lane: &mut impl LaneRequests) {
        lane.rule_run(run, rule.puts, rule.is_held);
        if rule.prescales.is_empty() {
            self.prescales.remove(&run);
        } else {
            self.prescales.insert(run, rule.prescales.clone());
        }
        if rule.puts == RunPuts::Discarded {
            self.discards.runs.insert(run);
        }
    }

    /// A verdict on an event without the streams that do not keep it; `None`: as it is.
    pub(super) fn prescaled(&self, key: EventKey, verdict: &Verdict) -> Option<Verdict> {
        let prescales = self.prescales.get(&key.run)?;
        let Verdict::Accept(streams) = verdict else { return None };
        let keeps = |stream: &&StreamName| {
            let prescale = prescales.iter().find(|(name, _)| name == *stream);
            prescale.is_none_or(|(_, prescale)| is_prescaled_in(key.event, *prescale))
        };
        let kept: Vec<StreamName> = streams.iter().filter(keeps).cloned().collect();
        match kept.len() {
            0 => Some(Verdict::Reject),
            some if some == streams.len() => None,
            _ => Some(Verdict::Accept(kept)),
        }
    }

    /// Whether something is to be deleted that no answer of the lane wakes.
    pub(super) fn has_to_discard(&self) -> bool {
        !self.discards.runs.is_empty() && self.discards.in_flight == 0
    }

    pub(super) fn discard_ended(&mut self, outcome: DecideOutcome) {
        self.discards.in_flight -= 1;
        if outcome.is_done() {
            self.discards.deleted += 1;
        } else {
            self.discards.again = true;
        }
    }
}

impl Discards {
    /// Deletes some more; whether the lane was asked for anything.
    fn go_on(&mut self, lane_number: u16, lane: &mut impl LaneRequests) -> bool {
        let mut asked = false;
        while let Some(run) = self.runs.first().copied()
            && self.in_flight < DISCARDING_MAX
        {
            let mut events = Vec::new();
            lane.events_of_run(run, self.from, DISCARDING_MAX - self.in_flight, &mut events);
            let Some(last) = events.last().map(|key| key.event) else {
                if self.in_flight > 0 {
                    return asked;
                }
                let has_seen_some = std::mem::replace(&mut self.from, EventId(0)) > EventId(0);
                if std::mem::take(&mut self.again) || has_seen_some {
                    // What was met on the way may be there still.
                    return asked;
                }
                self.runs.remove(&run);
                let deleted = std::mem::take(&mut self.deleted);
                if deleted > 0 {
                    tracing::info!(
                        lane = lane_number,
                        run = run.0,
                        events = deleted,
                        "what was left of a discarded run is deleted"
                    );
                }
                continue;
            };
            for key in events {
                match lane.delete(token(DISCARDS_REQUEST, 0), key) {
                    Admission::Pending => {
                        self.in_flight += 1;
                        asked = true;
                    }
                    Admission::Done(outcome) => self.again |= !outcome.is_done(),
                    Admission::Busy => self.again = true,
                }
            }
            match last.0.checked_add(1) {
                Some(next) => self.from = EventId(next),
                None => return asked,
            }
        }
        asked
    }
}

impl Core {
    /// A lane was told by which rules it goes from the start on.
    pub(super) fn take_rules(&mut self, rules: &[(RunId, RunRule)], lane: &mut impl LaneRequests) {
        rules.iter().for_each(|(run, rule)| self.rules.take(*run, rule, lane));
        if planted(Planted::DiscardForgotten) {
            self.rules.discards.runs.clear();
        }
        self.rules.are_known = true;
    }

    pub(super) fn take_rule(&mut self, serial: u64, run: RunId, rule: &RunRule, lane: &mut impl LaneRequests) {
        self.rules.take(run, rule, lane);
        self.rules.unsaid.push((serial, run));
    }

    pub(super) fn discard(&mut self, lane: &mut impl LaneRequests) -> bool {
        !self.config.read_only && self.rules.discards.go_on(self.config.lane, lane)
    }
}

impl Service {
    /// Says which rules the lane goes by, of which nothing on its way breaks any.
    pub(super) fn say_rules(&mut self, lane: &impl LaneRequests) {
        if self.core.rules.unsaid.is_empty() {
            return;
        }
        for (serial, run) in std::mem::take(&mut self.core.rules.unsaid) {
            if self.requests.values().any(|request| is_on_its_way(request, run)) {
                self.core.rules.unsaid.push((serial, run));
                continue;
            }
            let known = lane.runs().into_iter().find(|view| view.run == run);
            let counts = known.map_or(RunCounts::default(), |view| RunCounts {
                events: view.events + view.finished,
                undecided: view.undecided,
                finished: view.finished,
            });
            let lane = self.core.config.lane;
            self.core.messages.push((0, FilesMessage::GoesBy { lane, serial, counts }));
        }
    }
}

/// Whether the lane has something of a run to answer that stores or frees: rules that come later do not hold for it.
fn is_on_its_way(request: &Request, run: RunId) -> bool {
    request.waits > 0
        && match &request.body {
            Body::Put(put) => put.entries[..put.next].iter().any(|entry| entry.id.run == run),
            Body::Tell(tell) => {
                let frees = !matches!(tell.what, Tell::Decide(..));
                frees && tell.what.keys().take(tell.next).any(|key| key.run == run)
            }
            _ => false,
        }
}
