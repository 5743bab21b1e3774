//! The machine against what must hold: every state with every change, and everything amid lanes that answer late and crashes at any moment.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{
    BlockRule, RunChange, RunCounts, RunHold, RunId, RunPuts, RunRecord, RunRequest, RunRule, RunState, RunStep,
    RunStream, SourceFragments, SourceId, SourceSet, StreamDefinition, StreamName, StreamRequest, StreamSources,
    StreamVersion,
};
use proptest::prelude::*;

use crate::record::{Record, decode, encode_run, encode_stream};
use crate::{Action, Answer, Asked, Books, Kept, RecordError, Refusal, Registry};

const LANES: u16 = 3;

fn sources() -> SourceSet {
    "0-15,32".parse().expect("sources")
}

fn stop(events: u64) -> RunChange {
    RunChange::Stop { events: Some(events), fragments: Vec::new() }
}

fn close(accept_difference: bool) -> RunChange {
    RunChange::Close { accept_difference }
}

/// A registry whose lanes answer at once and whose journal is durable at once.
struct Desk {
    registry: Registry,
    counts: RunCounts,
    kept: Vec<Kept>,
    rules: BTreeMap<RunId, RunRule>,
    requests: u64,
}

impl Desk {
    fn new() -> Desk {
        let registry = Registry::new(Books::default(), LANES);
        Desk { registry, counts: RunCounts::default(), kept: Vec::new(), rules: BTreeMap::new(), requests: 0 }
    }

    fn asked(&mut self, asked: Asked) -> Answer {
        self.requests += 1;
        self.registry.ask(self.requests, asked, 1_000 + self.requests as i64);
        let mut given = None;
        while let Some(action) = self.registry.next_action() {
            match action {
                Action::Tell { serial, run, rule } => {
                    self.rules.insert(run, rule);
                    for lane in 0..LANES {
                        let counts = if lane == 0 { self.counts } else { RunCounts::default() };
                        self.registry.lane_goes_by(lane, serial, counts);
                    }
                }
                Action::Keep(kept) => {
                    self.kept.push(kept);
                    self.registry.is_kept_at(self.kept.len() as u64);
                    assert_eq!(self.registry.stable_at(), self.kept.len() as u64);
                    self.registry.is_durable(self.kept.len() as u64);
                }
                Action::Answer { requests, answer } => {
                    assert_eq!(requests, [self.requests]);
                    assert_eq!(given.replace(answer), None);
                }
            }
        }
        given.expect("an answer")
    }

    fn change(&mut self, run: u32, what: RunChange) -> Result<RunRecord, Refusal> {
        let changes = self.registry.books().run(RunId(run)).map_or(0, |run| run.changes);
        let (by, reason) = ("kim".to_owned(), "because".to_owned());
        let token = self.requests + 100;
        match self.asked(Asked::Run(RunRequest { run: RunId(run), changes, token, by, reason, what })) {
            Answer::Run(run) => Ok(*run),
            Answer::Refused(refusal) => Err(refusal),
            Answer::Stream(stream) => panic!("{stream:?}"),
        }
    }

    fn define(&mut self, name: &str, prescale: u32) -> StreamVersion {
        let name: StreamName = name.parse().expect("a name");
        let version = self.registry.books().versions(&name).count() as u32;
        let definition = StreamDefinition { prescale, ..StreamDefinition::default() };
        let token = self.requests + 100;
        match self.asked(Asked::Stream(StreamRequest { name, version, token, by: String::new(), definition })) {
            Answer::Stream(stream) => *stream,
            other => panic!("{other:?}"),
        }
    }

    fn rule(&self, run: u32) -> RunRule {
        self.rules.get(&RunId(run)).cloned().unwrap_or_default()
    }
}

/// A run in each state, held or not.
fn in_state(state: RunState, is_held: bool) -> Desk {
    let mut desk = Desk::new();
    desk.change(7, RunChange::Declare { sources: sources() }).expect("declared");
    let way: &[RunChange] = match state {
        RunState::Declared => &[],
        RunState::Running => &[RunChange::Start],
        RunState::Stopped => &[RunChange::Start, stop(0)],
        RunState::Closed => &[RunChange::Start, stop(0), close(false)],
        RunState::Discarded => &[RunChange::Discard],
    };
    way.iter().for_each(|change| drop(desk.change(7, change.clone()).expect("a way")));
    if is_held {
        desk.change(7, RunChange::Hold).expect("held");
    }
    desk
}

#[test]
fn every_state_takes_what_the_table_says_and_nothing_else() {
    use RunState::{Closed, Declared, Discarded, Running, Stopped};
    let changes = [
        (RunChange::Declare { sources: sources() }, &[][..], &[][..]),
        (RunChange::Start, &[Declared], &[Declared]),
        (stop(3), &[Running], &[Running]),
        (close(true), &[Stopped], &[Stopped]),
        (RunChange::Hold, &[Declared, Running, Stopped, Closed], &[]),
        (RunChange::EndHold, &[], &[Declared, Running, Stopped, Closed]),
        (RunChange::Discard, &[Declared, Stopped, Closed], &[]),
    ];
    for state in RunState::ALL.iter().copied() {
        for is_held in [false, true].into_iter().filter(|held| !held || state != Discarded) {
            for (change, free, held) in &changes {
                let mut desk = in_state(state, is_held);
                let before = desk.registry.books().run(RunId(7)).cloned();
                let rule = desk.rule(7);
                let may = if is_held { held } else { free };
                let done = desk.change(7, change.clone());
                assert_eq!(done.is_ok(), may.contains(&state), "{state}, held: {is_held}, {change:?}: {done:?}");
                if let Err(refusal) = done {
                    let words = refusal.to_string();
                    assert!(words.contains("run 7") && !words.contains("  "), "{words}");
                    assert_eq!(desk.registry.books().run(RunId(7)).cloned(), before, "{change:?}");
                    assert_eq!(desk.rule(7), rule, "lanes go on as before");
                }
                let after = desk.registry.books().rule(RunId(7));
                assert_eq!(desk.rule(7), after, "lanes go by what is so");
            }
        }
    }
}

#[test]
fn a_run_is_closed_when_the_counts_agree_or_somebody_signs() {
    let mut desk = in_state(RunState::Running, false);
    desk.change(7, stop(10)).expect("stopped");
    for (events, undecided, word) in
        [(9, 0, "1 have not arrived"), (11, 0, "1 more arrived"), (10, 2, "2 wait for filters")]
    {
        desk.counts = RunCounts { events, undecided, finished: 1 };
        let refusal = desk.change(7, close(false)).expect_err("they differ").to_string();
        let numbers = format!("counted 10 events, the store knows {events} of them, {undecided}");
        assert!(
            refusal.contains(word) && refusal.contains(&numbers) && refusal.contains("--accept-difference"),
            "{refusal}"
        );
        assert_eq!(desk.rule(7).puts, RunPuts::Taken);
    }
    let closed = desk.change(7, close(true)).expect("signed");
    let step = closed.closed.expect("it says when");
    assert_eq!((closed.counted, step.reason.as_str(), step.by.as_str()), (Some(desk.counts), "because", "kim"));
    assert_eq!(desk.rule(7).puts, RunPuts::Closed);
    let mut desk = in_state(RunState::Running, false);
    desk.change(7, RunChange::Stop { events: None, fragments: Vec::new() }).expect("stopped");
    let refusal = desk.change(7, close(false)).expect_err("nobody counted").to_string();
    assert!(refusal.contains("nobody said how many"), "{refusal}");
}

#[test]
fn what_cannot_be_declared_is_refused() {
    let mut desk = Desk::new();
    for run in [0, u32::MAX] {
        let refusal = desk.change(run, RunChange::Declare { sources: sources() });
        assert_eq!(refusal, Err(Refusal::NoRunNumber(RunId(run))));
    }
    let none = desk.change(7, RunChange::Declare { sources: SourceSet::default() });
    assert_eq!(none, Err(Refusal::NoSources(RunId(7))));
    desk.counts = RunCounts { events: 3, undecided: 0, finished: 3 };
    let known = desk.change(7, RunChange::Declare { sources: sources() }).expect_err("there are events").to_string();
    assert!(known.contains("3 events of run 7") && known.contains("(3 of them over)"), "{known}");
    assert!(desk.rule(7).is_empty(), "fragments are taken as before");
    assert_eq!(desk.change(7, RunChange::Start), Err(Refusal::NotDeclared(RunId(7))));
}

#[test]
fn a_run_has_the_streams_that_there_were_when_it_was_started() {
    let mut desk = Desk::new();
    assert_eq!(desk.define("physics", 1).version, 1);
    assert_eq!(desk.define("calibration", 10).version, 1);
    assert_eq!(desk.define("calibration", 20).version, 2);
    desk.change(7, RunChange::Declare { sources: sources() }).expect("declared");
    assert_eq!(desk.rule(7).prescales.len(), 0);
    let started = desk.change(7, RunChange::Start).expect("started");
    let streams: Vec<_> = started.streams.iter().map(|of| (of.name.as_str(), of.version)).collect();
    assert_eq!(streams, [("calibration", 2), ("physics", 1)]);
    desk.define("calibration", 30);
    desk.change(7, RunChange::Hold).expect("held");
    assert_eq!(*desk.rule(7).prescales, [("calibration".parse().expect("a name"), 20)]);
}

#[test]
fn a_request_that_comes_again_is_done_once_and_a_late_one_not_at_all() {
    let mut desk = Desk::new();
    let request = |changes, token, what| {
        let (by, reason) = (String::new(), "because".to_owned());
        Asked::Run(RunRequest { run: RunId(7), changes, token, by, reason, what })
    };
    let declare = request(0, 1, RunChange::Declare { sources: sources() });
    assert!(matches!(desk.asked(declare.clone()), Answer::Run(_)));
    assert!(matches!(desk.asked(declare.clone()), Answer::Run(_)));
    assert_eq!(desk.kept.len(), 1);
    let hold = request(1, 2, RunChange::Hold);
    assert!(matches!(desk.asked(hold.clone()), Answer::Run(_)));
    assert!(matches!(desk.asked(request(2, 3, RunChange::EndHold)), Answer::Run(_)));
    assert_eq!(desk.asked(hold), Answer::Refused(Refusal::Changed(RunId(7))));
    assert_eq!(desk.asked(declare), Answer::Refused(Refusal::Used { run: RunId(7), state: RunState::Declared }));
    // What was refused is not done later, though it could be.
    let early = request(4, 4, close(true));
    assert_eq!(desk.asked(early.clone()), Answer::Refused(Refusal::Changed(RunId(7))));
    assert!(matches!(desk.asked(request(3, 5, RunChange::Start)), Answer::Run(_)));
    assert!(matches!(desk.asked(request(4, 6, stop(0))), Answer::Run(_)));
    assert_eq!(desk.asked(early), Answer::Refused(Refusal::Changed(RunId(7))));
}

#[test]
fn texts_and_books_are_bounded() {
    let mut desk = in_state(RunState::Declared, false);
    let mut ask = |by: String, reason: String| {
        let what = RunChange::Hold;
        desk.asked(Asked::Run(RunRequest { run: RunId(7), changes: 1, token: by.len() as u64 + 500, by, reason, what }))
    };
    assert!(matches!(ask("x".repeat(129), "r".to_owned()), Answer::Refused(Refusal::Text { max: 128, .. })));
    assert!(matches!(ask("x".to_owned(), "r".repeat(1025)), Answer::Refused(Refusal::Text { max: 1024, .. })));
    assert!(matches!(ask("a\u{1b}[2J".to_owned(), "r".to_owned()), Answer::Refused(Refusal::Text { .. })));
    assert_eq!(ask("xyz".to_owned(), String::new()), Answer::Refused(Refusal::NoReason("held")));
    let mut desk = Desk::new();
    let ranges: Vec<_> = (0..1024).map(|n| (SourceId(2 * n), SourceId(2 * n))).collect();
    let many = SourceSet::from_ranges(&ranges).expect("as many as there may be");
    let full = (1..10_000).find_map(|run| desk.change(run, RunChange::Declare { sources: many.clone() }).err());
    assert_eq!(full, Some(Refusal::BooksFull));
    assert!(desk.registry.books().bytes() < forebay_types::limits::BOOKS_BYTES_MAX + (64 << 10));
    desk.change(1, RunChange::Start).expect("what is there goes on");
}

// ---- records ----

fn name() -> impl Strategy<Value = String> {
    "[ -~é]{0,30}"
}

fn step() -> impl Strategy<Value = RunStep> {
    (any::<i64>(), name(), name()).prop_map(|(at_unix_ns, by, reason)| RunStep { at_unix_ns, by, reason })
}

fn set() -> impl Strategy<Value = SourceSet> {
    prop::collection::btree_set(any::<u16>(), 0..20).prop_map(|some| {
        let text: Vec<String> = some.iter().map(u16::to_string).collect();
        SourceSet::try_from(text.join(",")).expect("sources")
    })
}

prop_compose! {
    fn run()(
        ids in any::<(u32, u32)>(),
        state in prop::sample::select(RunState::ALL.to_vec()),
        sources in set(),
        declared in step(),
        steps in prop::array::uniform4(prop::option::of(step())),
        hold in prop::option::of((step(), prop::option::of(step()))),
        expected_events in prop::option::of(any::<u64>()),
        counts in prop::collection::btree_map(any::<u16>(), any::<u64>(), 0..20),
        counted in prop::option::of(any::<(u64, u64, u64)>()),
        streams in prop::collection::vec(("[a-z]{1,20}", any::<u32>()), 0..4),
    ) -> RunRecord {
        let [started, stopped, closed, discarded] = steps;
        RunRecord {
            run: RunId(ids.0),
            state,
            changes: ids.1,
            sources,
            declared,
            started,
            stopped,
            closed,
            discarded,
            hold: hold.map(|(begun, ended)| RunHold { begun, ended }),
            expected_events,
            expected_fragments: SourceFragments::of_counts(counts.into_iter().map(|(s, c)| (SourceId(s.into()), c))).expect("few"),
            counted: counted.map(|(events, undecided, finished)| RunCounts { events, undecided, finished }),
            streams: streams.into_iter().map(|(n, version)| RunStream { name: n.parse().expect("a name"), version }).collect(),
        }
    }
}

prop_compose! {
    fn stream()(
        name in "[a-z]{1,20}",
        numbers in any::<(u32, i64, u16, u64)>(),
        prescale in 1..u32::MAX,
        part in prop::option::of(set()),
        by in self::name(),
        format in "[!-~]{0,64}",
        destination in self::name(),
        rule in 0..3,
    ) -> StreamVersion {
        let sources = match part {
            Some(part) if !part.is_empty() => StreamSources::Part(part),
            _ => StreamSources::All,
        };
        let length = numbers.3.max(1);
        let block = [BlockRule::Run, BlockRule::Events(length), BlockRule::Seconds(length)][rule as usize];
        let definition = StreamDefinition { sources, prescale, format, priority: numbers.2, destination, block };
        StreamVersion { name: name.parse().expect("a name"), version: numbers.0.max(1), at_unix_ns: numbers.1, by, definition }
    }
}

proptest! {
    #[test]
    fn records_read_back_and_every_cut_of_them_is_an_error(run in run(), stream in stream(), token in any::<u64>()) {
        for (kept, record) in [
            (encode_run(&run, token), Record::Run(Box::new(run.clone()), token)),
            (encode_stream(&stream, token), Record::Stream(Box::new(stream.clone()), token)),
        ] {
            prop_assert_eq!(decode(&kept.key, &kept.value), Ok(record));
            for cut in 0..kept.value.len() {
                prop_assert!(decode(&kept.key, &kept.value[..cut]).is_err());
            }
            let mut longer = kept.value.clone();
            longer.push(0);
            prop_assert!(decode(&kept.key, &longer).is_err());
            let mut newer = kept.value.clone();
            newer[0] = 2;
            let is_newer = matches!(decode(&kept.key, &newer), Err(RecordError::Newer { layout: 2, .. }));
            prop_assert!(is_newer);
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(key in prop::collection::vec(any::<u8>(), 0..12), value in prop::collection::vec(any::<u8>(), 0..200), of in 1..3u8) {
        let (mut key, mut value) = (key, value);
        drop(decode(&key, &value));
        key.insert(0, of);
        value.insert(0, 1);
        let _ = Books::default().load(&key, &value);
    }
}

// ---- crashes ----

/// What somebody was answered.
#[derive(Default)]
struct Promised {
    /// The state of each run that was answered last, and how often it had been changed.
    runs: BTreeMap<RunId, RunRecord>,
    streams: BTreeMap<StreamName, u32>,
}

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Ask { run: u32, what: u8, early: bool },
    Define { stream: u8 },
    LaneAnswers { lane: u16 },
    Durable,
    Crash { kept: usize },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..4u32, 0..7u8, prop::bool::weighted(0.1)).prop_map(|(run, what, early)| Event::Ask { run, what, early }),
        1 => (0..2u8).prop_map(|stream| Event::Define { stream }),
        8 => (0..LANES).prop_map(|lane| Event::LaneAnswers { lane }),
        4 => Just(Event::Durable),
        1 => (0..3usize).prop_map(|kept| Event::Crash { kept }),
    ]
}

/// A registry with lanes that answer when they like and a journal of which a crash takes what is not durable.
struct World {
    registry: Registry,
    journal: Vec<Kept>,
    durable: usize,
    /// What each lane was told and did not answer.
    told: Vec<Vec<(u64, RunId, RunRule)>>,
    rules: Vec<BTreeMap<RunId, RunRule>>,
    asked: BTreeMap<u64, Asked>,
    requests: u64,
    promised: Promised,
}

impl World {
    fn start(journal: Vec<Kept>, promised: Promised) -> World {
        let mut books = Books::default();
        journal.iter().for_each(|kept| books.load(&kept.key, &kept.value).expect("what was kept"));
        let rules: BTreeMap<RunId, RunRule> = books.rules().into_iter().collect();
        let durable = journal.len();
        World {
            registry: Registry::new(books, LANES),
            journal,
            durable,
            told: vec![Vec::new(); usize::from(LANES)],
            rules: vec![rules; usize::from(LANES)],
            asked: BTreeMap::new(),
            requests: 0,
            promised,
        }
    }

    fn ask(&mut self, run: RunId, what: RunChange, early: bool) {
        let known = self.registry.books().run(run).map_or(0, |run| run.changes);
        self.requests += 1;
        let changes = if early { known + 1 } else { known };
        let (by, reason) = (String::new(), "because".to_owned());
        let token = self.requests + self.journal.len() as u64 * 1_000_000;
        let asked = Asked::Run(RunRequest { run, changes, token, by, reason, what });
        self.asked.insert(self.requests, asked.clone());
        self.registry.ask(self.requests, asked, 5);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.registry.next_action() {
            match action {
                Action::Tell { serial, run, rule } => {
                    self.told.iter_mut().for_each(|told| told.push((serial, run, rule.clone())));
                }
                Action::Keep(kept) => {
                    self.journal.push(kept);
                    self.registry.is_kept_at(self.journal.len() as u64);
                }
                Action::Answer { requests, answer } => self.answered(&requests, answer),
            }
        }
    }

    fn answered(&mut self, requests: &[u64], answer: Answer) {
        for request in requests {
            assert!(self.asked.remove(request).is_some(), "each is answered once");
        }
        match answer {
            Answer::Run(run) => {
                let position = self.journal.iter().rposition(|kept| {
                    decode(&kept.key, &kept.value).is_ok_and(|r| matches!(r, Record::Run(ref r, _) if r.run == run.run))
                });
                assert!(position.is_some_and(|at| at < self.durable), "{run:?} was answered before it is durable");
                // What takes something away holds in every lane when it is answered; what gives something back, too.
                for rules in &self.rules {
                    let rule = rules.get(&run.run).cloned().unwrap_or_default();
                    let stops = matches!(run.state, RunState::Closed | RunState::Discarded);
                    assert!(!stops || rule.puts != RunPuts::Taken, "{run:?} and a lane takes fragments");
                    assert_eq!(rule.is_held, run.is_held(), "{run:?}");
                }
                self.promised.runs.insert(run.run, *run);
            }
            Answer::Stream(stream) => drop(self.promised.streams.insert(stream.name, stream.version)),
            Answer::Refused(_) => {}
        }
    }

    /// What was answered is there, and nothing goes back.
    fn check(&self) {
        for (run, promised) in &self.promised.runs {
            let known = self.registry.books().run(*run).expect("a run that was declared is there");
            assert!(known.changes >= promised.changes, "{promised:?} and {known:?}");
            if known.changes == promised.changes {
                assert_eq!(known, promised);
            }
            assert!(known.state >= promised.state, "{promised:?} and {known:?}");
        }
        for (name, version) in &self.promised.streams {
            assert!(self.registry.books().versions(name).count() >= *version as usize);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_answered_holds_after_any_crash(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::start(Vec::new(), Promised::default());
        for event in events {
            match event {
                Event::Ask { run, what, early } => {
                    let what = match what {
                        0 => RunChange::Declare { sources: sources() },
                        1 => RunChange::Start,
                        2 => stop(0),
                        3 => close(run == 1),
                        4 => RunChange::Hold,
                        5 => RunChange::EndHold,
                        _ => RunChange::Discard,
                    };
                    world.ask(RunId(run), what, early);
                }
                Event::Define { stream } => {
                    let name: StreamName = ["physics", "calibration"][usize::from(stream)].parse().expect("a name");
                    let version = world.registry.books().versions(&name).count() as u32;
                    world.requests += 1;
                    let definition = StreamDefinition { prescale: version + 2, ..StreamDefinition::default() };
                    let token = world.requests + world.journal.len() as u64 * 1_000_000;
                    let asked = Asked::Stream(StreamRequest { name, version, token, by: String::new(), definition });
                    world.asked.insert(world.requests, asked.clone());
                    world.registry.ask(world.requests, asked, 5);
                    world.act();
                }
                Event::LaneAnswers { lane } => {
                    if !world.told[usize::from(lane)].is_empty() {
                        let (serial, run, rule) = world.told[usize::from(lane)].remove(0);
                        world.rules[usize::from(lane)].insert(run, rule);
                        world.registry.lane_goes_by(lane, serial, RunCounts::default());
                        world.act();
                    }
                }
                Event::Durable => {
                    world.durable = world.journal.len();
                    world.registry.is_durable(world.durable as u64);
                    world.act();
                }
                Event::Crash { kept } => {
                    let mut journal = std::mem::take(&mut world.journal);
                    journal.truncate((world.durable + kept).min(journal.len()));
                    world = World::start(journal, std::mem::take(&mut world.promised));
                }
            }
            world.check();
        }
        // All is answered when the lanes and the journal come to an end.
        for _ in 0..200 {
            for lane in 0..LANES {
                for (serial, run, rule) in std::mem::take(&mut world.told[usize::from(lane)]) {
                    world.rules[usize::from(lane)].insert(run, rule);
                    world.registry.lane_goes_by(lane, serial, RunCounts::default());
                    world.act();
                }
            }
            world.durable = world.journal.len();
            world.registry.is_durable(world.durable as u64);
            world.act();
        }
        world.check();
        let left: BTreeSet<u64> = world.asked.keys().copied().collect();
        prop_assert!(left.is_empty(), "never answered: {:?}", left);
        for rules in &world.rules {
            for run in 1..4 {
                let rule = rules.get(&RunId(run)).cloned().unwrap_or_default();
                prop_assert_eq!(rule, world.registry.books().rule(RunId(run)));
            }
        }
    }
}
