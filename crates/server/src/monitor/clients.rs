//! Whether filters and recorders do their work, and how long what they have not done has waited.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_types::Time;

use super::history::History;
use super::limits::WAITING_AGE_MAX;
use super::observation::{Observation, SeenLane};
use super::{MonitorConfig, Wanted, human};
use crate::alarm::Alarm;

/// Something that should move while there is work.
#[derive(Default)]
struct Progress {
    mark: u64,
    since: Option<Time>,
}

impl Progress {
    /// For how long it has stood still although there was work.
    fn stands_still(&mut self, now: Time, has_work: bool, mark: u64) -> Duration {
        let moved = mark != self.mark;
        self.mark = mark;
        if moved || !has_work {
            self.since = None;
        }
        if !has_work {
            return Duration::ZERO;
        }
        now.since(*self.since.get_or_insert(now))
    }
}

/// How many came so far, at several times.
struct Arrivals {
    came: History<u64>,
    /// The oldest of those that wait has waited for at least so long.
    oldest: Option<Duration>,
}

impl Arrivals {
    fn new() -> Self {
        Arrivals { came: History::new(WAITING_AGE_MAX), oldest: None }
    }

    /// Of `came` events `waiting` wait. When more wait than came since some time, one of them is older than that. `told`: what the times at which
    /// data were written say.
    fn look(&mut self, now: Time, came: u64, waiting: u64, told: Option<Duration>) {
        self.came.push(now, came);
        let since = self.came.newest_first().take_while(|(_, then)| waiting > came.saturating_sub(*then));
        let oldest = since.last().map_or(Duration::ZERO, |(at, _)| now.since(*at));
        self.oldest = (waiting > 0).then_some(oldest.max(told.unwrap_or_default()));
    }
}

/// Rules about clients.
pub(super) struct Clients {
    config: MonitorConfig,
    filters: Progress,
    recorders: BTreeMap<String, Progress>,
    undecided: Arrivals,
    accepted: Arrivals,
}

impl Clients {
    pub(super) fn new(config: MonitorConfig) -> Self {
        Clients {
            config,
            filters: Progress::default(),
            recorders: BTreeMap::new(),
            undecided: Arrivals::new(),
            accepted: Arrivals::new(),
        }
    }

    pub(super) fn oldest_undecided(&self) -> Option<Duration> {
        self.undecided.oldest
    }

    pub(super) fn oldest_accepted(&self) -> Option<Duration> {
        self.accepted.oldest
    }

    pub(super) fn judge(&mut self, now: Time, seen: &Observation, wanted: &mut Wanted) {
        if !seen.is_whole() || seen.stopping {
            // Who cannot be served is not to blame.
            self.filters = Progress::default();
            self.recorders.clear();
            return;
        }
        let (waiting, ended) = (seen.sum(|lane| lane.undecided), seen.sum(|lane| lane.ended_since));
        let oldest = |of: fn(&SeenLane) -> Option<Duration>| seen.lanes.iter().filter_map(of).max();
        self.undecided.look(now, waiting.saturating_add(ended), waiting, oldest(|lane| lane.oldest_undecided));
        let (accepted, came) = (seen.sum(|lane| lane.accepted), seen.sum(|lane| lane.accepted_since));
        self.accepted.look(now, came, accepted, oldest(|lane| lane.oldest_accepted));
        wanted.extend(self.filter_silent(now, seen, waiting, ended).map(|words| (Alarm::FilterSilent, words)));
        wanted.extend(self.recorder_stuck(now, seen).map(|words| (Alarm::RecorderStuck, words)));
    }

    fn filter_silent(&mut self, now: Time, seen: &Observation, waiting: u64, ended: u64) -> Option<String> {
        let leased = seen.sum(|lane| lane.leased_since);
        let still = self.filters.stands_still(now, waiting > 0, ended.wrapping_add(leased));
        (still >= self.config.filter_silent).then(|| {
            format!(
                "{waiting} events wait for a decision, and for {} no filter has asked for any or decided one: start filters, or see what they \
                 wait for",
                human(still)
            )
        })
    }

    fn recorder_stuck(&mut self, now: Time, seen: &Observation) -> Option<String> {
        let mut streams: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (name, stream) in seen.lanes.iter().flat_map(|lane| &lane.streams) {
            let (waiting, released) = streams.entry(name).or_default();
            *waiting += stream.waiting;
            *released += stream.released;
        }
        self.recorders.retain(|name, _| streams.contains_key(name.as_str()));
        let mut stuck = Vec::new();
        for (name, (waiting, released)) in streams {
            let progress = self.recorders.entry(name.to_owned()).or_default();
            let still = progress.stands_still(now, waiting > 0, released);
            if still >= self.config.recorder_stuck {
                stuck.push(format!(
                    "{waiting} accepted events of stream {name} wait, and for {} none was released",
                    human(still)
                ));
            }
        }
        (!stuck.is_empty())
            .then(|| format!("{}: see whether its recorder runs, and has room where it writes", stuck.join("; ")))
    }
}
