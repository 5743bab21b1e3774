//! What was seen earlier, the sparser the longer ago: a bounded memory of a long time.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_types::Time;

/// Neighbours lie no further apart than this part of their age.
const SPACING_PART: u32 = 16;

/// Values with the times at which they were seen. Of something that lies `age` back there is a value within a sixteenth of `age`; so a month of
/// one value a second takes some two hundred places.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    seen: VecDeque<(Time, T)>,
    age_max: Duration,
}

impl<T> History<T> {
    pub(crate) fn new(age_max: Duration) -> Self {
        History { seen: VecDeque::new(), age_max }
    }

    /// Notes a value.
    pub(crate) fn push(&mut self, now: Time, value: T) {
        self.seen.push_back((now, value));
        while self.seen.front().is_some_and(|(at, _)| now.since(*at) > self.age_max) {
            self.seen.pop_front();
        }
        self.thin(now);
    }

    fn thin(&mut self, now: Time) {
        let mut at = 1;
        while at + 1 < self.seen.len() {
            let (before, after) = (self.seen[at - 1].0, self.seen[at + 1].0);
            if after.since(before) <= now.since(after) / SPACING_PART {
                self.seen.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The oldest that is not older than `age`.
    pub(crate) fn oldest_within(&self, now: Time, age: Duration) -> Option<&(Time, T)> {
        self.seen.iter().find(|(at, _)| now.since(*at) <= age)
    }

    /// All, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &(Time, T)> {
        self.seen.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_takes_little_memory_and_every_age_has_its_value() {
        let mut history = History::new(Duration::from_secs(30 * 86_400));
        let seconds: u64 = 40 * 86_400;
        let at = |second: u64| Time(0) + Duration::from_secs(second);
        for second in (0..seconds).step_by(10) {
            history.push(at(second), second);
        }
        let now = at(seconds);
        assert!(history.seen.len() < 400, "{}", history.seen.len());
        for age in [60, 3600, 86_400, 7 * 86_400, 29 * 86_400] {
            let (_, second) = history.oldest_within(now, Duration::from_secs(age)).expect("a value");
            assert!(*second >= seconds - age && *second <= seconds - age + age / 8 + 20, "{age}: {second}");
        }
        assert_eq!(history.newest_first().next().map(|(_, second)| *second), Some(seconds - 10));
        assert!(history.seen.iter().all(|(time, _)| now.since(*time) <= Duration::from_secs(30 * 86_400 + 10)));
    }
}
