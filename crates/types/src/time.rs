//! Time as the machines see it: a number that the driver gives them.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point of monotonic time in nanoseconds since a start that the driver chose. The machines never
/// read a clock; each call carries the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A moment as the calendar has it, in milliseconds since the beginning of 1970 (UTC); 0 when nobody knows it. The driver reads it from the clock of
/// the machine, which people set and which jumps: it is told to people and decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// The milliseconds, when it is known.
    pub fn unix_ms(self) -> Option<u64> {
        (self.0 > 0).then_some(self.0)
    }

    /// How long ago `earlier` was, when both are known; zero if it lies ahead.
    pub fn since(self, earlier: WallTime) -> Option<Duration> {
        Some(Duration::from_millis(self.unix_ms()?.saturating_sub(earlier.unix_ms()?)))
    }
}
