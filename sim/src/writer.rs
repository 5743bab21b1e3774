//! A writer of the readout: the sources that it owns, event after event, until each fragment is acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::Class;
use forebay_types::placement::lane_of;
use forebay_types::{EventKey, FragmentId, PutOutcome, RunId, SourceId, Time, crc32c};

use crate::faults::{Fault, FaultCounts};
use crate::links::{Link, Links};
use crate::model::{Model, Snapshot, payload};
use crate::random::Random;
use crate::scenario::{EVENT_STEP, Scenario};

/// Puts that wait for their results at the most.
const PENDING_MAX: usize = 200;

/// So long a writer rests when its sessions take nothing more.
const REST: Duration = Duration::from_millis(1);
/// The same when that is because the store is full.
const REST_FULL: Duration = Duration::from_millis(20);

/// The content that belongs to an id.
const CONTENT: u8 = 0;

pub(crate) struct Writer {
    links: Links,
    random: Random,
    first_source: u32,
    sources: u32,
    expected: u16,
    next_event: u64,
    events: u64,
    pace_micros: u64,
    next_at: Time,
    run: RunId,
    /// The store is full, and it knows.
    met_full: bool,
    /// Asked and not acknowledged, and what was known before.
    pending: BTreeMap<FragmentId, Snapshot>,
}

impl Writer {
    pub(crate) fn new(number: usize, scenario: &Scenario, mut random: Random, now: Time) -> Writer {
        // One of two gives a put up after a while, and begins with it anew.
        let deadline = random.per_mille(500).then(|| random.millis(500..5000));
        let links =
            Links::new(scenario.lanes, Class::Readout, &format!("writer {number}"), deadline, random.next(), now);
        Writer {
            links,
            random,
            first_source: number as u32 * scenario.sources_per_writer,
            sources: scenario.sources_per_writer,
            expected: scenario.sources() as u16,
            next_event: 0,
            events: scenario.events,
            pace_micros: scenario.pace_micros,
            next_at: now,
            run: scenario.run(),
            met_full: false,
            pending: BTreeMap::new(),
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next_event == self.events && self.pending.is_empty()
    }

    pub(crate) fn next_event(&self) -> u64 {
        self.next_event
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        let own = (self.next_event < self.events && self.pending.len() < PENDING_MAX).then_some(self.next_at);
        [own, self.links.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn act(&mut self, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        let full = |link: &Link| link.session().puts_wait_for() == Some(PutOutcome::NoSpace);
        self.take_results(now, model);
        if self.next_event == self.events || now < self.next_at || self.pending.len() >= PENDING_MAX {
            return;
        }
        if !self.links.lanes.iter().all(|link| link.session().has_room()) {
            let is_full = self.links.lanes.iter().any(full);
            if is_full && !self.met_full {
                counts.meet(Fault::FullStore);
            }
            self.met_full = is_full;
            self.next_at = now + if is_full { REST_FULL } else { REST };
            return;
        }
        self.met_full = false;
        let key = EventKey::new(self.run.0, self.next_event * EVENT_STEP);
        self.next_event += 1;
        for source in self.first_source..self.first_source + self.sources {
            self.put(now, key.fragment(SourceId(source)), model);
        }
        self.next_at = now
            + if self.random.per_mille(10) {
                self.random.millis(1..80)
            } else {
                self.random.micros(0..self.pace_micros)
            };
    }

    fn put(&mut self, now: Time, id: FragmentId, model: &mut Model) {
        model.put_asked(now, id, CONTENT);
        self.pending.insert(id, model.snapshot(id.key()));
        self.hand_over(now, id);
    }

    fn hand_over(&mut self, now: Time, id: FragmentId) {
        let lane = usize::from(lane_of(id.key(), self.links.lanes.len() as u16));
        let bytes = payload(id, CONTENT);
        let session = self.links.lanes[lane].asked();
        session.put(now, id, self.expected, bytes.as_slice(), crc32c(&bytes)).expect("sessions go on");
    }

    fn take_results(&mut self, now: Time, model: &mut Model) {
        let mut results = Vec::new();
        for link in &mut self.links.lanes {
            while link.take_event().is_some() {}
            link.take_put_results(&mut results);
        }
        for result in results {
            let before = self.pending.get(&result.id).expect("a put has one result");
            model.put_answered(result.id, CONTENT, before, result.outcome);
            if result.outcome.is_acknowledged() || result.outcome == PutOutcome::Conflict {
                self.pending.remove(&result.id);
            } else {
                self.hand_over(now, result.id);
            }
        }
    }
}
