//! Which events the filters may work on: complete ones, incomplete ones that have waited long enough, and those whose filter fell silent.
//!
//! Each event of the index says whether it may be leased and when its timer is over; here stand the pages that hold such events. So what waits
//! costs no memory of its own, and an event that is gone leaves nothing behind.

use std::collections::BTreeSet;

use forebay_types::memory::tree_bytes;
use forebay_types::{EventId, EventKey, RunId, Time};

/// A moment of the lane's time, in units of 2^26 ns (67 ms) since the store was opened: 9 years fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u32);

const TICK_SHIFT: u32 = 26;

impl Tick {
    /// The first one that is not before `time`.
    pub(crate) fn not_before(time: Time) -> Tick {
        Tick(u32::try_from(time.0.div_ceil(1 << TICK_SHIFT)).unwrap_or(u32::MAX))
    }

    /// The last one that is not behind `time`. The very last never comes: whoever waits for it waits.
    pub(crate) fn not_behind(time: Time) -> Tick {
        Tick(u32::try_from(time.0 >> TICK_SHIFT).unwrap_or(u32::MAX).min(u32::MAX - 1))
    }

    pub(crate) fn time(self) -> Time {
        Time(u64::from(self.0) << TICK_SHIFT)
    }
}

/// Pages of the index with events that wait for something.
#[derive(Default)]
pub(crate) struct Offers {
    /// By run and first event: pages with events that may be leased.
    ready: BTreeSet<(RunId, EventId)>,
    /// Numbers of pages with timers, by the first of these.
    timers: BTreeSet<(Tick, u32)>,
    /// The run whose turn it is when any will do.
    turn: RunId,
}

impl Offers {
    pub(crate) fn bytes(&self) -> usize {
        tree_bytes(self.ready.len(), size_of::<(RunId, EventId)>())
            + tree_bytes(self.timers.len(), size_of::<(Tick, u32)>())
    }

    pub(crate) fn set_ready(&mut self, first: EventKey, ready: bool) {
        let page = (first.run, first.event);
        let _was = if ready { self.ready.insert(page) } else { self.ready.remove(&page) };
    }

    pub(crate) fn set_timer(&mut self, page: u32, before: Option<Tick>, now: Option<Tick>) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, page));
        }
        if let Some(now) = now {
            self.timers.insert((now, page));
        }
    }

    /// The first page of a run with events that may be leased.
    pub(crate) fn first_ready(&self, run: RunId) -> Option<EventKey> {
        let (_, event) = *self.ready.range((run, EventId(0))..=(run, EventId(u64::MAX))).next()?;
        Some(EventKey { run, event })
    }

    /// A run with events that may be leased; each has its turn.
    pub(crate) fn next_ready_run(&mut self) -> Option<RunId> {
        let (run, _) = *self.ready.range((self.turn, EventId(0))..).next().or_else(|| self.ready.first())?;
        self.turn = RunId(run.0.wrapping_add(1));
        Some(run)
    }

    /// The first timer and its page.
    pub(crate) fn first_timer(&self) -> Option<(Tick, u32)> {
        self.timers.first().copied()
    }

    #[cfg(test)]
    pub(crate) fn has(&self, ready: &[(RunId, EventId)], timers: &[(Tick, u32)]) -> bool {
        self.ready.iter().eq(ready) && self.timers.iter().eq(timers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_over_too_early() {
        for ns in [0, 1, (1 << TICK_SHIFT) - 1, 1 << TICK_SHIFT, (1 << TICK_SHIFT) + 1, 1 << 57] {
            let tick = Tick::not_before(Time(ns));
            assert!(tick.time() >= Time(ns) && tick.time() <= Time(ns + (1 << TICK_SHIFT)), "{ns}");
            assert_eq!(Tick::not_behind(tick.time()), tick);
            assert!(Tick::not_behind(Time(ns)) <= tick);
        }
        assert!(Tick::not_behind(Time(u64::MAX)) < Tick::not_before(Time(u64::MAX)));
    }

    #[test]
    fn each_run_has_its_turn() {
        let mut offers = Offers::default();
        for run in [3, 7, 9] {
            offers.set_ready(EventKey::new(run, 5), true);
        }
        let turns: Vec<u32> = (0..5).filter_map(|_| offers.next_ready_run()).map(|run| run.0).collect();
        assert_eq!(turns, [3, 7, 9, 3, 7]);
        offers.set_ready(EventKey::new(9, 5), false);
        assert_eq!(offers.next_ready_run(), Some(RunId(3)));
        assert_eq!(offers.first_ready(RunId(9)), None);
        assert_eq!(offers.first_ready(RunId(7)), Some(EventKey::new(7, 5)));
    }
}
