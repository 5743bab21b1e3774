//! How fast a lane fills.

use std::collections::VecDeque;

use forebay_engine::LaneStatus;
use forebay_types::Time;
use serde::Serialize;

use crate::limits::{RATES_AGE, RATES_EVERY};

/// So many segments must have come or gone before their number tells a rate.
const SEGMENTS_MIN: u64 = 3;

/// With less of a lane free, in percent, compaction has made room for a while, and with all its strength by now.
const FREE_PERCENT_SCARCE: u64 = 20;

/// What comes and goes, over the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Payload that became durable, of fragments and files, in bytes a second.
    pub(crate) stored_bytes_per_s: u64,
    /// Payload of events that were rejected, deleted or shipped, and of files that was removed or replaced, in bytes a second.
    pub(crate) freed_bytes_per_s: u64,
    /// Bytes written to drives, parity included, a second.
    pub(crate) media_bytes_per_s: u64,
    /// Fragments read, a second.
    pub(crate) fragments_read_per_s: u64,
    /// Bytes written to make shards anew, a second.
    pub(crate) rebuilt_bytes_per_s: u64,
    /// Bytes read to look at what is stored, a second.
    pub(crate) scrubbed_bytes_per_s: u64,
}

impl Rates {
    /// Seconds until all that can be made anew is, at this rate; absent when nothing is made now, whatever was a while ago.
    pub(crate) fn rebuild_left_s(&self, status: &LaneStatus) -> Option<f64> {
        let rebuild = &status.rebuild;
        // What is left beside those that wait cannot be made now.
        let works = rebuild.segments_waiting > 0 && rebuild.waits_for.is_none();
        let goes_on = works && rebuild.bytes_left > 0 && self.rebuilt_bytes_per_s > 0;
        goes_on.then(|| rebuild.bytes_left as f64 / self.rebuilt_bytes_per_s as f64)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Time,
    stored_bytes: u64,
    payload_bytes: u64,
    media_bytes: u64,
    fragments_read: u64,
    segments_free: u64,
    rebuilt_bytes: u64,
    scrubbed_bytes: u64,
}

/// Looks at a lane now and then.
#[derive(Default)]
pub(crate) struct RateMeter {
    /// Of the last minute, oldest first.
    samples: VecDeque<Sample>,
}

impl RateMeter {
    /// Notes how a lane is.
    pub(crate) fn look(&mut self, now: Time, status: &LaneStatus) {
        if status.state != "serving" {
            // What recovery finds came earlier.
            return self.samples.clear();
        }
        if self.samples.back().is_some_and(|last| now < last.at + RATES_EVERY) {
            return;
        }
        while self.samples.front().is_some_and(|first| now > first.at + RATES_AGE) {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample::of(now, status));
    }

    /// The rates up to now, and the seconds until the lane is full if it goes on like this.
    pub(crate) fn rates(&self, now: Time, status: &LaneStatus) -> (Rates, Option<f64>) {
        let Some(first) = self.samples.front().filter(|first| now >= first.at + RATES_EVERY) else {
            return (Rates::default(), None);
        };
        let (last, seconds) = (Sample::of(now, status), now.since(first.at).as_secs_f64());
        let rate = |from: u64, to: u64| (to.saturating_sub(from) as f64 / seconds) as u64;
        let stored = last.stored_bytes - first.stored_bytes;
        let rates = Rates {
            stored_bytes_per_s: rate(first.stored_bytes, last.stored_bytes),
            freed_bytes_per_s: rate(last.payload_bytes, first.payload_bytes + stored),
            media_bytes_per_s: rate(first.media_bytes, last.media_bytes),
            fragments_read_per_s: rate(first.fragments_read, last.fragments_read),
            rebuilt_bytes_per_s: rate(first.rebuilt_bytes, last.rebuilt_bytes),
            scrubbed_bytes_per_s: rate(first.scrubbed_bytes, last.scrubbed_bytes),
        };
        (rates, time_left_s(first, &last, seconds, status))
    }
}

/// Seconds until a lane is full that goes on as between two looks, so many seconds apart; `None`: it does not fill.
///
/// What lives counts: compaction makes room of the rest, and does not begin while there is plenty. When room is scarce that has not helped, and
/// segments are believed when they go faster.
fn time_left_s(first: &Sample, last: &Sample, seconds: f64, status: &LaneStatus) -> Option<f64> {
    let (capacity, free) = (status.capacity_bytes, status.free_bytes);
    if capacity == 0 {
        return None;
    }
    let gained = last.payload_bytes.saturating_sub(first.payload_bytes);
    let taken = first.segments_free.saturating_sub(last.segments_free);
    let segment_bytes = free.checked_div(status.segments_free).unwrap_or(0);
    let is_scarce = free * 100 <= capacity * FREE_PERCENT_SCARCE;
    let (room, filled) = match is_scarce {
        true if taken >= SEGMENTS_MIN => (free, gained.max(taken * segment_bytes)),
        true => (free, gained),
        false => (free.max(capacity.saturating_sub(status.payload_bytes())), gained),
    };
    (filled > 0).then(|| room as f64 * seconds / filled as f64)
}

impl Sample {
    fn of(at: Time, status: &LaneStatus) -> Sample {
        Sample {
            at,
            stored_bytes: status.counters.payload_bytes_stored(),
            payload_bytes: status.payload_bytes(),
            media_bytes: status.counters.media_bytes_written,
            fragments_read: status.counters.fragments_read,
            segments_free: status.segments_free,
            rebuilt_bytes: status.rebuild.bytes_written,
            scrubbed_bytes: status.scrub.bytes_read,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use forebay_engine::LaneCounters;

    use super::*;

    pub(crate) fn status(stored: u64, here: u64, segments_free: u64) -> LaneStatus {
        LaneStatus {
            lane: 0,
            state: "serving",
            reason: None,
            events: 0,
            events_undecided: 0,
            events_accepted: 0,
            events_finished: 0,
            fragments: 0,
            fragment_bytes: here,
            files: 0,
            files_unsealed: 0,
            file_bytes: 0,
            index_bytes: 0,
            cache_bytes: 0,
            memory_bytes: 0,
            segments: 0,
            slots_free: 0,
            slots_total: 0,
            segments_total: 102,
            segments_free,
            segments_reserved: 2,
            capacity_bytes: 100_000,
            free_bytes: segments_free * 1000,
            index_bytes_max: 0,
            cache_bytes_max: 0,
            drives_written: Vec::new(),
            drives_read: Vec::new(),
            width: Some((4, 1)),
            failures_left: None,
            out_of_reach: Default::default(),
            flushes_possibly_lost: 0,
            flushes_unavailable: 0,
            flushes_lost: 0,
            segments_unreadable: 0,
            segments_unavailable: 0,
            fragments_known_lost: 0,
            oldest_undecided_s: None,
            oldest_accepted_s: None,
            rebuild: Default::default(),
            scrub: Default::default(),
            compaction: Default::default(),
            drive_health: Vec::new(),
            counters: LaneCounters { fragment_bytes_stored: stored, ..LaneCounters::default() },
        }
    }

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn what_comes_and_goes_is_told_by_the_second() {
        let mut meter = RateMeter::default();
        meter.look(at(0), &status(0, 50_000, 50));
        assert_eq!(meter.rates(at(0), &status(0, 50_000, 50)), (Rates::default(), None), "one look tells no rate");
        // 3000 bytes a second come, 1000 go.
        let (rates, time_left_s) = meter.rates(at(10), &status(30_000, 70_000, 48));
        assert_eq!((rates.stored_bytes_per_s, rates.freed_bytes_per_s), (3000, 1000));
        assert_eq!(time_left_s, Some(24.0));
        // What goes frees no segment.
        let (_, time_left_s) = meter.rates(at(10), &status(30_000, 50_000, 20));
        assert_eq!(time_left_s, Some(20.0 / 3.0));
        // That takes segments as well, and compaction will make room of them.
        let (_, time_left_s) = meter.rates(at(10), &status(30_000, 50_000, 30));
        assert_eq!(time_left_s, None);
        let (_, time_left_s) = meter.rates(at(10), &status(30_000, 51_000, 30));
        assert_eq!(time_left_s, Some(490.0));
        // As much goes as comes.
        assert_eq!(meter.rates(at(10), &status(30_000, 50_000, 50)).1, None);
    }

    #[test]
    fn a_rebuild_that_waits_has_no_end() {
        let rates = Rates { rebuilt_bytes_per_s: 1000, ..Rates::default() };
        let mut status = status(0, 0, 50);
        assert_eq!(rates.rebuild_left_s(&status), None, "nothing is missing");
        status.rebuild.bytes_left = 5000;
        (status.rebuild.segments_waiting, status.rebuild.segments_stuck) = (0, 14);
        assert_eq!(rates.rebuild_left_s(&status), None, "what is left needs drives that are out");
        status.rebuild.segments_waiting = 1;
        assert_eq!(rates.rebuild_left_s(&status), Some(5.0));
        status.rebuild.waits_for = Some("a drive");
        assert_eq!(rates.rebuild_left_s(&status), None);
    }

    #[test]
    fn only_the_last_minute_counts() {
        let mut meter = RateMeter::default();
        for second in 0..200 {
            meter.look(at(second), &status(second.min(100) * 1000, second.min(100) * 1000, 50));
        }
        assert!(meter.samples.len() <= 62);
        assert_eq!(meter.rates(at(200), &status(100_000, 100_000, 50)), (Rates::default(), None));
        meter.look(at(201), &LaneStatus { state: "recovering", ..status(0, 0, 0) });
        assert!(meter.samples.is_empty());
    }
}
