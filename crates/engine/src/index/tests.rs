use std::collections::BTreeMap;

use forebay_types::Time;
use proptest::prelude::*;

use super::page::PAGE_EVENTS;
use super::*;
use crate::measured::allocated_in;

/// What a run may cost beside its fragments.
const RUN_BYTES: usize = 1024;

fn entry(source: u32, position: u32) -> FragmentEntry {
    FragmentEntry { source: SourceId(source), segment: crate::segments::SegmentIndex(1), position, bytes: 10, crc: 7 }
}

impl Index {
    /// Everything that is kept twice agrees.
    fn check(&self) {
        assert_eq!(self.order.len(), self.pages.len());
        let mut heap_bytes = 0;
        let (mut ready, mut timers) = (Vec::new(), Vec::new());
        let mut before: Option<&Page> = None;
        for (name, &number) in &self.order {
            let page = &self.pages[number as usize];
            assert_eq!(*name, (page.run, page.first));
            assert!(page.events.is_sorted_by(|a, b| a.event < b.event) && page.events[0].event >= page.first);
            heap_bytes += page.bytes() + page.events.iter().map(EventEntry::heap_bytes).sum::<usize>();
            let with = |flag| page.events.iter().filter(|e| e.flags.has(flag)).count();
            assert_eq!(usize::from(page.ready), with(EventFlags::READY));
            assert_eq!(usize::from(page.undecided), page.events.len() - with(EventFlags::ACCEPTED));
            let first = page.events.iter().filter(|e| e.flags.has(EventFlags::TIMED)).map(|e| e.timer).min();
            assert!(first.is_none_or(|first| page.timer.is_some_and(|timer| timer <= first)));
            ready.extend((page.ready > 0).then_some(*name));
            timers.extend(page.timer.map(|timer| (timer, number)));
            if let Some(before) = before.filter(|before| before.run == page.run) {
                assert!(before.events.last().expect("no page is empty").event < page.first);
                assert!(before.events.len() + page.events.len() > MERGED_EVENTS_MAX, "two small neighbours");
            }
            before = Some(page);
        }
        timers.sort_unstable();
        assert!(self.offers.has(&ready, &timers), "{ready:?}, {timers:?}");
        assert_eq!(self.heap_bytes, heap_bytes);
        let several = |e: &&(EventKey, &EventEntry)| e.1.flags.has(EventFlags::ACCEPTED) && e.1.records().len() > 1;
        let joinable: Vec<_> = self.events_from(EventKey::default()).collect();
        let joinable = joinable.iter().filter(several).map(|(_, e)| e.records().len() as u64).sum::<u64>();
        assert_eq!(self.joinable_fragments, joinable);
        let undecided = |e: &(EventKey, &EventEntry)| !e.1.flags.has(EventFlags::ACCEPTED);
        let all: Vec<_> = self.events_from(EventKey::default()).collect();
        assert_eq!(self.undecided, all.iter().filter(|e| undecided(e)).count() as u64);
        assert_eq!(self.undecided_floor(), all.iter().find(|e| undecided(e)).map(|(key, _)| *key));
        for here in self.runs() {
            let of_run: Vec<_> = all.iter().filter(|(key, _)| key.run == here.run).collect();
            let (first, last) = (of_run[0].0.event, of_run[of_run.len() - 1].0.event);
            assert_eq!((here.events, here.first, here.last), (of_run.len() as u64, first, last));
            assert_eq!(here.undecided, of_run.iter().filter(|e| undecided(e)).count() as u64);
        }
        assert_eq!(self.runs().map(|run| run.events).sum::<u64>(), self.events);
    }

    fn assert_cheap(&self, what: &str) {
        let most = 64 * self.fragments as usize + RUN_BYTES * (self.runs.len() + 1);
        assert!(self.bytes() <= most, "{what}: {} bytes for {} fragments", self.bytes(), self.fragments);
    }
}

proptest! {
    #[test]
    fn it_holds_what_a_map_holds(steps in prop::collection::vec((0u8..15, 0u32..3, 0u64..400, 0u32..6), 1..900)) {
        let mut index = Index::default();
        let mut model: BTreeMap<EventKey, BTreeMap<u32, u32>> = BTreeMap::new();
        // Events that were written as one record, and where.
        let mut wholes: BTreeMap<EventKey, u32> = BTreeMap::new();
        for (position, (kind, run, event, source)) in steps.into_iter().enumerate() {
            let key = EventKey::new(run, event);
            let position = position as u32;
            match kind {
                6 => if let Some(fragments) = model.get(&key) {
                    let count = fragments.len();
                    let before = if wholes.contains_key(&key) { 1 } else { count };
                    let whole = FragmentEntry { bytes: 1000, ..entry(count as u32, position) };
                    prop_assert_eq!(index.join(key, 0, whole).len(), before);
                    wholes.insert(key, position);
                }
                // Nothing comes to such an event, and nothing is taken out of it.
                7.. | 1 if wholes.contains_key(&key) => {}
                0 => {
                    wholes.remove(&key);
                    let removed = index.remove(key).map(|e| e.fragment_count());
                    prop_assert_eq!(removed, model.remove(&key).map(|e| e.len()));
                }
                1 => {
                    let removed = index.remove_fragment(key, SourceId(source)).map(|f| f.position);
                    let expected = model.get_mut(&key).and_then(|e| e.remove(&source));
                    if model.get(&key).is_some_and(|e| e.is_empty()) { model.remove(&key); }
                    prop_assert_eq!(removed, expected);
                }
                2 => index.accept(key, false),
                3 => index.offer(key),
                4 => index.wait(key, Tick::not_before(Time(event << 26))),
                5 => { index.lease(key.run, Tick::not_before(Time(event << 26))); }
                _ => if !model.get(&key).is_some_and(|e| e.contains_key(&source)) {
                    let new = !model.contains_key(&key);
                    prop_assert_eq!(index.insert(key, source as u16, entry(source, position)), new);
                    model.entry(key).or_default().insert(source, position);
                }
            }
        }
        index.check();
        prop_assert_eq!(index.events(), model.len() as u64);
        prop_assert_eq!(index.fragments(), model.values().map(|e| e.len() as u64).sum::<u64>());
        let listed: Vec<_> = index.events_from(EventKey::default()).map(|(key, _)| key).collect();
        prop_assert_eq!(listed, model.keys().copied().collect::<Vec<_>>());
        let from = EventKey::new(1, 200);
        let listed: Vec<_> = index.events_from(from).map(|(key, _)| key).collect();
        prop_assert_eq!(listed, model.range(from..).map(|(k, _)| *k).collect::<Vec<_>>());
        for (key, fragments) in &model {
            let event = index.event(*key).expect("in the model");
            prop_assert!(event.records().is_sorted_by_key(|f| f.source));
            prop_assert_eq!(event.fragment_count(), fragments.len());
            prop_assert_eq!(event.whole().map(|whole| whole.position), wholes.get(key).copied());
            for (source, position) in fragments.iter().filter(|_| !wholes.contains_key(key)) {
                prop_assert_eq!(event.fragment(SourceId(*source)).map(|f| f.position), Some(*position));
            }
        }
        for key in model.keys() { index.remove(*key); }
        index.check();
        prop_assert_eq!(index.heap_bytes, 0);
    }
}

/// How events come and go.
#[derive(Clone, Debug)]
struct Shape {
    events: u64,
    runs: u32,
    sources: u32,
    expected: bool,
    order: Order,
    /// Of so many events one stays.
    kept_of: u64,
    goes: Order,
    timed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    Mixed,
    /// Two ends towards each other, as two writers of which one is ahead.
    Inwards,
}

impl Order {
    fn of(self, events: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..events).collect();
        match self {
            Order::Up => {}
            Order::Down => order.reverse(),
            Order::Mixed => order.sort_by_key(|event| event.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            Order::Inwards => order.sort_by_key(|event| (*event).min(events - event)),
        }
        order
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let order = || prop_oneof![Just(Order::Up), Just(Order::Down), Just(Order::Mixed), Just(Order::Inwards)];
    let sources = prop_oneof![3 => 1u32..4, 1 => 4u32..40, 1 => 200u32..300];
    let counts = (1u64..4000, 1u32..4, sources, any::<bool>());
    (counts, order(), 1u64..200, order(), any::<bool>()).prop_map(
        |((events, runs, sources, expected), order, kept_of, goes, timed)| {
            let events = (events * 4 / u64::from(sources + 3)).max(1);
            Shape { events, runs, sources, expected, order, kept_of, goes, timed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_fragment_costs_at_most_64_bytes_in_any_shape(shape in shape()) {
        let mut index = Index::default();
        let (_, held) = allocated_in(|| {
            for event in shape.order.of(shape.events) {
                for run in 0..shape.runs {
                    let key = EventKey::new(run, event);
                    for source in 0..shape.sources {
                        let expected = if shape.expected { shape.sources as u16 } else { 0 };
                        index.insert(key, expected, entry(source, 0));
                    }
                    if shape.timed { index.wait(key, Tick::not_before(Time(event << 26))) } else { index.offer(key) }
                }
            }
        });
        prop_assert!(held <= index.bytes() as i64, "{held} bytes are held, {} are told", index.bytes());
        index.assert_cheap("all are here");
        let (_, more) = allocated_in(|| {
            for event in shape.goes.of(shape.events) {
                for run in 0..shape.runs {
                    if event % shape.kept_of != 0 {
                        index.remove(EventKey::new(run, event));
                    }
                }
            }
        });
        prop_assert!(held + more <= index.bytes() as i64, "{} bytes are held, {} are told", held + more, index.bytes());
        index.assert_cheap("some are gone");
        index.check();
    }
}

#[test]
fn events_with_many_fragments_in_order_cost_little() {
    for (sources, most) in [(1u32, 43.0), (11, 29.0), (100, 22.5), (1240, 20.5)] {
        let mut index = Index::default();
        for event in 0..100_000 / u64::from(sources) {
            for source in 0..sources {
                index.insert(EventKey::new(1, event), sources as u16, entry(source, 0));
            }
        }
        let cost = index.bytes() as f64 / index.fragments() as f64;
        assert!(cost <= most, "{cost} bytes a fragment at {sources} sources an event");
    }
}

#[test]
fn events_that_are_one_record_cost_the_same_however_many_fragments_they_have() {
    for sources in [1u32, 11, 1240] {
        let mut index = Index::default();
        let events = 20_000u64;
        for event in 0..events {
            index.join(EventKey::new(1, event), sources as u16, entry(sources, 0));
            index.accept(EventKey::new(1, event), false);
        }
        assert_eq!(index.fragments(), events * u64::from(sources));
        let cost = index.bytes() as f64 / events as f64;
        assert!(cost <= 43.0, "{cost} bytes an event of {sources} fragments");
    }
}

#[test]
fn the_smallest_event_of_the_run_whose_turn_it_is_is_leased_first() {
    let mut index = Index::default();
    for (run, event) in [(1, 900), (1, 5), (2, 700), (1, 7)] {
        let key = EventKey::new(run, event);
        index.insert(key, 0, entry(0, 0));
        index.offer(key);
    }
    let ends = Tick::not_before(Time(1 << 40));
    let mut leased = Vec::new();
    while let Some(run) = index.next_ready_run() {
        leased.push(index.lease(run, ends).expect("it has one").0);
    }
    assert_eq!(leased, [(1, 5), (2, 700), (1, 7), (1, 900)].map(|(run, event)| EventKey::new(run, event)));
    assert!(index.lease(RunId(1), ends).is_none());
    let mut due = Vec::new();
    assert!(!index.take_due(Tick::not_behind(Time(1 << 39)), &mut due));
    while index.take_due(Tick::not_behind(Time(1 << 40)), &mut due) {}
    assert_eq!(due.len(), 4);
    assert_eq!(index.next_timer(), None);
    index.check();
}

#[test]
fn the_floor_follows_what_is_decided_and_what_comes_late() {
    let mut index = Index::default();
    for event in 10..10 + 3 * PAGE_EVENTS as u64 {
        index.insert(EventKey::new(1, event), 0, entry(0, 0));
    }
    assert_eq!(index.undecided_floor(), Some(EventKey::new(1, 10)));
    for event in 10..300 {
        index.accept(EventKey::new(1, event), false);
    }
    assert_eq!(index.undecided_floor(), Some(EventKey::new(1, 300)));
    index.insert(EventKey::new(1, 4), 0, entry(0, 0));
    assert_eq!(index.undecided_floor(), Some(EventKey::new(1, 4)));
    index.remove(EventKey::new(1, 4));
    assert_eq!(index.undecided_floor(), Some(EventKey::new(1, 300)));
}
