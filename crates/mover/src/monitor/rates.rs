//! What a second brings, over the last minute; and how fast a source fills, over the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_types::Time;

use super::observation::{Space, Told};
use super::report::{Rates, RouteTally};

/// Rates are those of this time.
const RATES_AGE: Duration = Duration::from_secs(60);
/// Looks that are closer to each other tell no rate.
const RATES_EVERY: Duration = Duration::from_millis(900);
/// How fast a directory fills is told of this time,
const SPACE_AGE: Duration = Duration::from_secs(300);
/// and of at least this: one file that was written is no rate.
const SPACE_AGE_MIN: Duration = Duration::from_secs(20);
/// Looks at the space that are closer to each other are not kept.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// Counters, now and then.
#[derive(Debug)]
pub(super) struct Meter<const N: usize> {
    age: Duration,
    every: Duration,
    samples: VecDeque<(Time, [u64; N])>,
}

impl<const N: usize> Meter<N> {
    fn new(age: Duration, every: Duration) -> Meter<N> {
        Meter { age, every, samples: VecDeque::new() }
    }

    /// Notes what they are.
    pub(super) fn look(&mut self, now: Time, counters: [u64; N]) {
        if self.samples.back().is_some_and(|(last, _)| now < *last + self.every) {
            return;
        }
        while self.samples.front().is_some_and(|(first, _)| now > *first + self.age) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, counters));
    }

    /// What each grew by since the first look that counts, and how many seconds ago that was; nothing before that was long enough ago.
    fn since(&self, now: Time, least: Duration) -> Option<([u64; N], f64)> {
        let (at, first) = self.samples.front()?;
        (now >= *at + least.max(self.every)).then(|| (*first, now.since(*at).as_secs_f64()))
    }
}

/// The rates of a route.
#[derive(Debug)]
pub(super) struct RouteMeter {
    counters: Meter<7>,
    free: Meter<1>,
}

impl Default for RouteMeter {
    fn default() -> RouteMeter {
        RouteMeter { counters: Meter::new(RATES_AGE, RATES_EVERY), free: Meter::new(SPACE_AGE, SPACE_EVERY) }
    }
}

impl RouteMeter {
    /// Notes what was counted; what a second brings.
    pub(super) fn rates(&mut self, now: Time, tally: &RouteTally) -> Rates {
        let RouteTally { found, proven, released, .. } = tally;
        let sent: u64 = tally.sent_bytes.values().sum();
        let counters = [found.files, found.bytes, sent, proven.files, proven.bytes, released.files, released.bytes];
        self.counters.look(now, counters);
        let Some((before, seconds)) = self.counters.since(now, Duration::ZERO) else { return Rates::default() };
        let rate = |at: usize| counters[at].saturating_sub(before[at]) as f64 / seconds;
        Rates {
            found_files: rate(0),
            found_bytes: rate(1),
            sent_bytes: rate(2),
            proven_files: rate(3),
            proven_bytes: rate(4),
            released_files: rate(5),
            released_bytes: rate(6),
        }
    }

    /// Notes what the source takes still; seconds until it is full, if it goes on like this.
    pub(super) fn full_in_s(&mut self, now: Time, space: &Space) -> Option<f64> {
        match space.told {
            Told::FullIn(seconds) => return Some(seconds),
            Told::NotFilling => return None,
            Told::Nothing => {}
        }
        self.free.look(now, [space.free_bytes]);
        let ([before], seconds) = self.free.since(now, SPACE_AGE_MIN)?;
        let taken = before.saturating_sub(space.free_bytes);
        (taken > 0).then(|| space.free_bytes as f64 * seconds / taken as f64)
    }
}

/// Bytes a second that are sent to a destination.
#[derive(Debug)]
pub(super) struct SentMeter(Meter<1>);

impl Default for SentMeter {
    fn default() -> SentMeter {
        SentMeter(Meter::new(RATES_AGE, RATES_EVERY))
    }
}

impl SentMeter {
    /// Notes what was sent; what a second brings.
    pub(super) fn rate(&mut self, now: Time, sent_bytes: u64) -> f64 {
        self.0.look(now, [sent_bytes]);
        let since = self.0.since(now, Duration::ZERO);
        since.map_or(0.0, |([before], seconds)| sent_bytes.saturating_sub(before) as f64 / seconds)
    }
}
