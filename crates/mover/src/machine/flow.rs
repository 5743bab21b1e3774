//! Which of the steps that are due may begin: limits, order, and destinations that are away.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::Time;

use super::survey::PlaceSurvey;
use super::{DestinationIndex, MoverConfig, RouteIndex};
use crate::custody::{ConsignmentId, Policy, SourceStep, Step, What};

/// So many failures in a row, and a destination counts as away: one step at a time is tried there, each after a longer wait.
const AWAY_AFTER: u32 = 3;

/// A delivery of a consignment, or its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) consignment: ConsignmentId,
    pub(super) place: Option<usize>,
}

/// What a step costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// It asks or names: what is under way comes to its end first.
    Light,
    /// It moves all bytes of a file.
    Heavy,
}

impl Weight {
    pub(super) fn of(step: Option<&Step>, what: What) -> Weight {
        // A sidecar is no more than a question.
        let sends = what == What::File && matches!(step, Some(Step::Send { .. } | Step::Pull { .. }));
        if sends { Weight::Heavy } else { Weight::Light }
    }

    pub(super) fn of_source(step: Option<SourceStep>) -> Weight {
        if step == Some(SourceStep::Check) { Weight::Heavy } else { Weight::Light }
    }
}

/// Where something is done: the source of a route, where its files are registered, or a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Source(RouteIndex),
    Registry(RouteIndex),
    Destination(DestinationIndex),
}

/// What waits, in the order in which it begins: the highest priority first, then the oldest.
type Order = (std::cmp::Reverse<i32>, Key);

#[derive(Clone, Copy, Debug)]
struct Entry {
    route: RouteIndex,
    at: Place,
    order: Order,
    weight: Weight,
    due: Option<Time>,
    /// In the timers rather than among what is ready.
    waits: bool,
    /// What runs, and where: by now something else may be due elsewhere.
    running: Option<(Weight, Place)>,
    /// Outages that had been noticed when it began.
    outages_known: u64,
}

#[derive(Debug, Default)]
struct Channel {
    /// By route, as one that is at its limit must not be in the way of others.
    ready: BTreeMap<(Weight, RouteIndex), BTreeSet<Order>>,
    running: BTreeMap<Weight, usize>,
    streams_max: usize,
    /// In a row, of steps that each began after the one before had failed: what falls at once with a destination says so once.
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Time>,
    /// Failures that were counted, ever.
    outages: u64,
    closed_until: Time,
}

impl Channel {
    fn runs(&self) -> usize {
        self.running.values().sum()
    }

    /// The first of this weight of each route.
    fn firsts(&self, weight: Weight) -> impl Iterator<Item = Order> {
        self.ready.iter().filter(move |((of, _), _)| *of == weight).filter_map(|(_, ready)| ready.first().copied())
    }

    fn may_begin(&self, weight: Weight, now: Time) -> bool {
        if self.failures >= AWAY_AFTER && (self.runs() > 0 || now < self.closed_until) {
            return false;
        }
        self.running.get(&weight).copied().unwrap_or(0) < self.streams_max
    }
}

#[derive(Debug)]
pub(super) struct Flow {
    entries: BTreeMap<Key, Entry>,
    timers: BTreeSet<(Time, Key)>,
    channels: BTreeMap<Place, Channel>,
    /// By route, whether its source is nearly full.
    nearly_full: Vec<bool>,
    /// Heavy steps that run, by route, and how many may.
    heavy: Vec<(usize, usize)>,
    streams_max: usize,
    patience: Policy,
}

impl Flow {
    pub(super) fn new(config: &MoverConfig) -> Flow {
        let channel = |streams_max| Channel { streams_max, ..Channel::default() };
        let routes = || config.routes.iter().enumerate();
        let of_route = |place: fn(RouteIndex) -> Place| {
            routes().map(move |(route, config)| (place(RouteIndex(route)), channel(config.streams_max)))
        };
        let destinations = config.destinations.iter().enumerate();
        let destinations =
            destinations.map(|(at, config)| (Place::Destination(DestinationIndex(at)), channel(config.streams_max)));
        Flow {
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            channels: of_route(Place::Source).chain(of_route(Place::Registry)).chain(destinations).collect(),
            nearly_full: vec![false; config.routes.len()],
            heavy: config.routes.iter().map(|route| (0, route.streams_max)).collect(),
            streams_max: config.streams_max,
            patience: config.routes.first().map_or_else(Policy::default, |route| route.policy),
        }
    }

    /// When the step of `key` is due, what it costs and where it is done.
    #[expect(clippy::too_many_arguments, reason = "they are what an entry has")]
    pub(super) fn set(
        &mut self,
        key: Key,
        route: RouteIndex,
        at: Place,
        priority: i32,
        due: Option<Time>,
        weight: Weight,
        now: Time,
    ) {
        let (running, outages_known) =
            self.entries.get(&key).map_or((None, 0), |entry| (entry.running, entry.outages_known));
        self.take_out(key);
        let waits = due.is_some_and(|due| due > now);
        let order = (std::cmp::Reverse(priority), key);
        self.entries.insert(key, Entry { route, at, order, weight, due, waits, running, outages_known });
        if let (Some(due), None) = (due, running) {
            if waits {
                self.timers.insert((due, key));
            } else {
                self.make_ready(key);
            }
        }
    }

    /// What a source takes still, of what it takes when it is empty: of one that is nearly full files go before all others.
    pub(super) fn see_space(&mut self, route: RouteIndex, free_bytes: u64, capacity_bytes: u64) {
        let nearly_full = &mut self.nearly_full[route.0];
        // So that it does not change with every file.
        let percent: u128 = if *nearly_full { 15 } else { 10 };
        *nearly_full = u128::from(free_bytes) * 100 < u128::from(capacity_bytes) * percent;
    }

    /// The step that begins now, if one may.
    pub(super) fn next(&mut self, now: Time) -> Option<(Key, Weight)> {
        while let Some((due, key)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, key));
            self.make_ready(key);
        }
        let all = self.heavy.iter().map(|(running, _)| running).sum::<usize>();
        [Weight::Light, Weight::Heavy].into_iter().find_map(|weight| {
            let may = |(_, key): &Order| {
                let (running, streams_max) = self.heavy[self.entries[key].route.0];
                weight == Weight::Light || (running < streams_max && all < self.streams_max)
            };
            let channels = self.channels.values().filter(|channel| channel.may_begin(weight, now));
            let firsts = channels.flat_map(|channel| channel.firsts(weight)).filter(may);
            let urgent_first =
                |order: &Order| (std::cmp::Reverse(self.nearly_full[self.entries[&order.1].route.0]), *order);
            firsts.min_by_key(urgent_first).map(|(_, key)| (key, weight))
        })
    }

    /// It begins; whether it was among what is ready.
    pub(super) fn begin(&mut self, key: Key, weight: Weight) -> bool {
        let was_ready = self.take_out(key);
        let entry = self.entries.get_mut(&key).expect("it is known");
        entry.running = Some((weight, entry.at));
        let channel = self.channels.get_mut(&entry.at).expect("every place has one");
        *channel.running.entry(weight).or_default() += 1;
        entry.outages_known = channel.outages;
        if weight == Weight::Heavy {
            self.heavy[entry.route.0].0 += 1;
        }
        was_ready
    }

    /// It ended: whether for a reason that says something of the whole destination, when that is known.
    pub(super) fn end(&mut self, key: Key, failed: Option<bool>, now: Time) {
        let entry = self.entries.get_mut(&key).expect("it is known");
        let (weight, at) = entry.running.take().expect("it ran");
        let channel = self.channels.get_mut(&at).expect("every place has one");
        *channel.running.get_mut(&weight).expect("it ran") -= 1;
        if weight == Weight::Heavy {
            self.heavy[entry.route.0].0 -= 1;
        }
        match failed {
            Some(true) if entry.outages_known == channel.outages => {
                channel.failures += 1;
                channel.failing_since.get_or_insert(now);
                channel.outages += 1;
                channel.closed_until = now + self.patience.backoff(channel.failures, key.consignment.0);
            }
            Some(false) => (channel.failures, channel.failing_since) = (0, None),
            Some(true) | None => {}
        }
    }

    /// How a place answers.
    pub(super) fn at(&self, place: Place, now: Time) -> PlaceSurvey {
        let channel = &self.channels[&place];
        let away = channel.failures >= AWAY_AFTER;
        PlaceSurvey {
            streams_running: channel.running.get(&Weight::Heavy).copied().unwrap_or(0),
            streams_max: channel.streams_max,
            failures: channel.failures,
            away,
            failing_for: channel.failing_since.map(|since| now.since(since)),
            next_try_in: (away && channel.runs() == 0).then(|| channel.closed_until.since(now)),
        }
    }

    /// Files of a route that are read or sent now, and how many may be.
    pub(super) fn streams(&self, route: RouteIndex) -> (usize, usize) {
        self.heavy[route.0]
    }

    /// When something that waits may be begun.
    pub(super) fn due(&self) -> Option<Time> {
        let away = |channel: &Channel| {
            channel.failures >= AWAY_AFTER && channel.runs() == 0 && !channel.ready.values().all(BTreeSet::is_empty)
        };
        let reopened = self.channels.values().filter(|channel| away(channel)).map(|channel| channel.closed_until);
        self.timers.first().map(|(due, _)| *due).into_iter().chain(reopened).min()
    }

    /// Whether something of it runs.
    pub(super) fn runs(&self, consignment: ConsignmentId) -> bool {
        self.keys(consignment).any(|key| self.entries[&key].running.is_some())
    }

    /// It is over.
    pub(super) fn forget(&mut self, consignment: ConsignmentId) {
        for key in self.keys(consignment).collect::<Vec<_>>() {
            self.take_out(key);
            self.entries.remove(&key);
        }
    }

    fn keys(&self, consignment: ConsignmentId) -> impl Iterator<Item = Key> {
        let from = Key { consignment, place: None };
        self.entries.range(from..).map(|(key, _)| *key).take_while(move |key| key.consignment == consignment)
    }

    fn make_ready(&mut self, key: Key) {
        let entry = self.entries.get_mut(&key).expect("it is known");
        entry.waits = false;
        let channel = self.channels.get_mut(&entry.at).expect("every place has one");
        channel.ready.entry((entry.weight, entry.route)).or_default().insert(entry.order);
    }

    /// Whether it was among what is ready.
    fn take_out(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get(&key) else { return false };
        if let (Some(due), true) = (entry.due, entry.waits) {
            self.timers.remove(&(due, key));
            return false;
        }
        let channel = self.channels.get_mut(&entry.at).expect("every place has one");
        channel.ready.get_mut(&(entry.weight, entry.route)).is_some_and(|ready| ready.remove(&entry.order))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::machine::{DestinationConfig, RouteConfig};

    const STREAMS: usize = 8;

    fn key(consignment: u64) -> Key {
        Key { consignment: ConsignmentId(consignment), place: Some(0) }
    }

    /// Routes to one destination.
    fn flow_of(routes: usize) -> Flow {
        let route = RouteConfig {
            name: "daq".to_owned(),
            destinations: vec![(DestinationIndex(0), true)],
            pulls: Vec::new(),
            policy: Policy::default(),
            settle: Duration::ZERO,
            merge: None,
            events: None,
            zstd: None,
            sidecar: false,
            register: false,
            scan_every: Duration::from_secs(1),
            priority: 0,
            streams_max: STREAMS,
        };
        let destination = DestinationConfig { address: "/archive".to_owned(), streams_max: STREAMS, until_tape: false };
        Flow::new(&MoverConfig {
            routes: vec![route; routes],
            destinations: vec![destination],
            streams_max: STREAMS,
            once: false,
            patience: Duration::ZERO,
            token: 1,
        })
    }

    /// One destination, with something heavy and something light to be done there in each stream.
    fn flow() -> Flow {
        let mut flow = flow_of(1);
        (1..=2 * STREAMS as u64).for_each(|consignment| ready(&mut flow, consignment));
        flow
    }

    fn ready(flow: &mut Flow, consignment: u64) {
        let weight = if consignment.is_multiple_of(2) { Weight::Heavy } else { Weight::Light };
        let at = Place::Destination(DestinationIndex(0));
        flow.set(key(consignment), RouteIndex(0), at, 0, Some(Time(0)), weight, Time(0));
    }

    /// Begins all that may.
    fn begin_all(flow: &mut Flow, now: Time) -> Vec<Key> {
        let begin = || {
            let (key, weight) = flow.next(now)?;
            flow.begin(key, weight);
            Some(key)
        };
        std::iter::from_fn(begin).collect()
    }

    #[test]
    fn what_falls_at_once_with_a_destination_is_one_failure() {
        let mut flow = flow();
        let now = Time(0) + Duration::from_secs(1);
        for _ in 0..AWAY_AFTER {
            let begun = begin_all(&mut flow, now);
            assert_eq!(begun.len(), 2 * STREAMS, "it does not count as away");
            for key in begun {
                flow.end(key, Some(true), now);
                ready(&mut flow, key.consignment.0);
            }
        }
        assert!(begin_all(&mut flow, now).is_empty(), "now it does");
        let reopened = flow.due().expect("it is tried again");
        assert!(reopened <= now + Policy::default().backoff_min * (1 << AWAY_AFTER), "{reopened:?}");
        assert_eq!(begin_all(&mut flow, reopened).len(), 1, "one at a time");
    }

    #[test]
    fn what_comes_from_a_source_that_is_nearly_full_goes_first() {
        let destination = Place::Destination(DestinationIndex(0));
        let mut flow = flow_of(2);
        let set = |flow: &mut Flow, consignment: u64, route: usize, priority: i32| {
            flow.set(key(consignment), RouteIndex(route), destination, priority, Some(Time(0)), Weight::Heavy, Time(0));
        };
        (1..4).for_each(|consignment| set(&mut flow, consignment, 0, 9));
        (4..7).for_each(|consignment| set(&mut flow, consignment, 1, 0));
        let first = |flow: &mut Flow| flow.next(Time(0)).expect("some may begin").0;
        assert_eq!(first(&mut flow), key(1), "the higher priority");
        flow.see_space(RouteIndex(1), 9, 100);
        assert_eq!(first(&mut flow), key(4));
        flow.see_space(RouteIndex(1), 14, 100);
        assert_eq!(first(&mut flow), key(4), "it is not far enough from that yet");
        flow.see_space(RouteIndex(1), 15, 100);
        assert_eq!(first(&mut flow), key(1));
    }
}
