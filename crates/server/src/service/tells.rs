//! Decisions, deletions and releases on their way to the lane.

use forebay_engine::{Admission, Token};
use forebay_types::DecideOutcome;

use super::runs::Rules;
use super::{Advance, Core};
use crate::connection::Connection;
use crate::lane_requests::LaneRequests;
use crate::limits::{RECORD_WORK_BYTES, STREAM_WORK_BYTES};
use crate::request::{Tell, TellBody, token};

impl Core {
    pub(super) fn offer_tells(
        &mut self,
        key: u64,
        connection: &mut Connection,
        body: &mut TellBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        while body.next < body.what.len() {
            if connection.allowance == 0 {
                return Advance::Again;
            }
            if !self.rules.are_known {
                return self.park_tell();
            }
            let work = RECORD_WORK_BYTES + prepare(&mut body.what, body.next);
            let outcome = match offer(&body.what, body.next, token(key, body.next), &self.rules, lane) {
                Admission::Done(outcome) => outcome,
                Admission::Pending => {
                    *waits += 1;
                    self.count_release(&body.what);
                    // Until the lane says otherwise.
                    DecideOutcome::Unavailable
                }
                // Others may well be taken: it waits for the fragments of its own event, perhaps.
                Admission::Busy => return self.park_tell(),
            };
            body.outcomes.push(outcome);
            body.next += 1;
            connection.allowance = connection.allowance.saturating_sub(work);
        }
        Advance::Done
    }

    /// A lane takes releases of its streams alone, which are few.
    fn count_release(&mut self, what: &Tell) {
        let Tell::Release(stream, _) = what else { return };
        match self.events_released.get_mut(stream) {
            Some(count) => *count += 1,
            None => drop(self.events_released.insert(stream.clone(), 1)),
        }
    }

    fn park_tell(&mut self) -> Advance {
        let lane_is_busy = self.lane_is_busy;
        let advance = self.park_busy();
        self.lane_is_busy = lane_is_busy;
        advance
    }
}

/// Makes the verdict of a decision, unless it is that of the one before; the work that it was.
fn prepare(what: &mut Tell, at: usize) -> usize {
    let Tell::Decide(decide, verdict) = what else { return 0 };
    let entry = &decide.entries[at];
    if verdict.as_ref().is_some_and(|(streams, _)| *streams == entry.streams) {
        return 0;
    }
    *verdict = Some((entry.streams, decide.verdict(entry)));
    entry.streams.count_ones() as usize * STREAM_WORK_BYTES
}

fn offer(
    what: &Tell,
    at: usize,
    token: Token,
    rules: &Rules,
    lane: &mut impl LaneRequests,
) -> Admission<DecideOutcome> {
    match what {
        Tell::Delete(events) => lane.delete(token, events[at]),
        Tell::Release(stream, events) => lane.release(token, events[at], stream),
        Tell::Decide(decide, verdict) => {
            let entry = &decide.entries[at];
            let (_, verdict) = verdict.as_ref().expect("made just before");
            let prescaled = rules.prescaled(entry.key, verdict);
            lane.decide(token, entry.key, prescaled.as_ref().unwrap_or(verdict), entry.incomplete)
        }
    }
}
