//! When alarms are raised and cleared. Each has a distance between the two, so that nothing flaps.

use std::time::Duration;

/// How often the server is looked at though nobody asks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An unclean start is told for so long: until somebody had a working day to see it.
pub(crate) const UNCLEAN_START_TOLD: Duration = Duration::from_secs(24 * 3600);

/// A cluster of which nothing was heard for so long is not heard of: it is asked every few seconds.
pub(crate) const CLUSTER_SILENT: Duration = Duration::from_secs(30);
/// A pool has little room below the first, and not above the second, in percent of what it could hold.
pub(crate) const POOL_ROOM_PERCENT_LOW: u64 = 10;
pub(crate) const POOL_ROOM_PERCENT_GOOD: u64 = 15;

/// Damage is told for so long after the last that was found.
pub(crate) const DAMAGE_TOLD: Duration = Duration::from_secs(24 * 3600);

/// A store that is full within this time should not wait until someone looks, and how much longer it must be for the alarm to end.
pub(crate) const TIME_LEFT_LOW_S: f64 = 3600.0;
pub(crate) const TIME_LEFT_GOOD_S: f64 = 2.0 * TIME_LEFT_LOW_S;

/// As long as more than this part is free, a short time left may be a burst: in percent.
pub(crate) const FREE_PERCENT_PLENTY: u64 = 50;

/// Room is short until this many times the segments are free below which it became short, in halves.
pub(crate) const ROOM_GOOD_HALVES: u64 = 3;

/// After a refusal for want of space the store counts as full for this long.
pub(crate) const REFUSAL_TOLD: Duration = Duration::from_secs(10);

/// The index is near its end above the first, and is not below the second, in percent.
pub(crate) const INDEX_PERCENT_HIGH: u64 = 90;
pub(crate) const INDEX_PERCENT_GOOD: u64 = 85;
/// Above this, refusals since the start are told though none came just now.
pub(crate) const INDEX_PERCENT_FULL: u64 = 95;

/// Drives are judged by what they did in this time.
pub(crate) const LATENCY_AGE: Duration = Duration::from_secs(60);
/// So many operations tell how fast a drive is.
pub(crate) const LATENCY_OPERATIONS_MIN: u64 = 16;
/// A drive is slow when its operations take so many times as long as those of the others do,
pub(crate) const LATENCY_TIMES: u32 = 4;
/// and at least this,
pub(crate) const LATENCY_SLOW: Duration = Duration::from_millis(20);
/// or when they take this, whatever the others do.
pub(crate) const LATENCY_TOO_SLOW: Duration = Duration::from_millis(250);

/// Rates of writing are those of this time.
pub(crate) const WEAR_RATE_AGE: Duration = Duration::from_secs(24 * 3600);
/// And of at least this.
pub(crate) const WEAR_RATE_AGE_MIN: Duration = Duration::from_secs(60);
/// A drive that has used so many percent of its life is worn, and so is one that will have within this time.
pub(crate) const WEAR_PERCENT_HIGH: u64 = 90;
pub(crate) const WEAR_SOON_S: f64 = 90.0 * 86_400.0;
pub(crate) const WEAR_LATE_S: f64 = 120.0 * 86_400.0;

/// How far back the age of what waits is told.
pub(crate) const WAITING_AGE_MAX: Duration = Duration::from_secs(60 * 86_400);
