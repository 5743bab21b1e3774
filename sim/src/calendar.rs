//! The calendar of the server's machine, which somebody sets.

use std::time::Duration;

use forebay_types::{Time, WallTime};

use crate::random::Random;

/// What it shows at the beginning of a run.
const BEGIN: WallTime = WallTime(1_790_000_000_000);
/// So far it is set forward or back; or to the beginning of its time (0 means that nobody knows), as by a machine whose battery is empty.
const SET_BY_MS: u64 = 400 * 24 * 3600 * 1000;

/// What was shown and when. Nothing that Forebay decides may follow from it, and what it tells is a time that was shown.
#[derive(Debug)]
pub(crate) struct Calendar {
    random: Random,
    /// When it was set, and to what; never empty.
    set: Vec<(Time, WallTime)>,
}

impl Calendar {
    pub(crate) fn new(random: Random) -> Calendar {
        Calendar { random, set: vec![(Time(0), BEGIN)] }
    }

    pub(crate) fn at(&self, now: Time) -> WallTime {
        let (since, shown) = self.set.last().expect("never empty");
        WallTime(shown.0 + millis(now.since(*since)))
    }

    /// Somebody sets it.
    pub(crate) fn set(&mut self, now: Time) -> WallTime {
        let to = match self.random.below(4) {
            0 => 1,
            1 => self.at(now).0 + self.random.below(SET_BY_MS),
            _ => self.at(now).0.saturating_sub(self.random.below(SET_BY_MS)).max(1),
        };
        self.set.push((now, WallTime(to)));
        WallTime(to)
    }

    /// Whether it ever showed this.
    pub(crate) fn has_shown(&self, time: WallTime) -> bool {
        let ends = self.set[1..].iter().map(|(at, _)| *at).chain([Time(u64::MAX)]);
        self.set.iter().zip(ends).any(|((since, shown), end)| {
            (shown.0..=shown.0.saturating_add(millis(end.since(*since)))).contains(&time.0)
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_it_showed_before_and_after_it_was_set() {
        let mut calendar = Calendar::new(Random::new(1));
        let second = Time(1_000_000_000);
        assert_eq!(calendar.at(second), WallTime(BEGIN.0 + 1000));
        let to = calendar.set(second);
        assert_eq!(calendar.at(second), to);
        assert!(calendar.has_shown(WallTime(BEGIN.0 + 1000)) && calendar.has_shown(WallTime(to.0 + 1_000_000)));
        assert!(!calendar.has_shown(WallTime(BEGIN.0 - 1).min(WallTime(to.0.wrapping_sub(1)))));
    }
}
