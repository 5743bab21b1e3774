//! Runs on the pretended lane: what was answered holds there, before anything is put and after a start.

use forebay_protocol::{
    ChangeRun, Class, Decide, DecideEntry, DecideReply, DefineStream, ErrorCode, ErrorReply, Kind, PutEntry, PutReply,
    Release, RunList, StatusReply, StreamList, encode_put,
};
use forebay_server::{Service, ServiceConfig};
use forebay_types::{
    DecideOutcome, EventKey, FragmentId, PutOutcome, RunChange, RunId, RunPuts, RunRecord, RunRequest, RunState,
    StreamDefinition, StreamName, StreamRequest, Verdict, crc32c,
};

use crate::fake::{FakeLane, World, config};

const RUN: RunId = RunId(7);

/// Somebody who asks for runs.
struct Asker {
    world: World,
    id: u64,
    tokens: u64,
}

impl Asker {
    fn new(mut world: World) -> Asker {
        let id = world.connect(Class::Monitor);
        Asker { world, id, tokens: 0 }
    }

    fn settle(&mut self) {
        for _ in 0..6 {
            self.world.turn(true);
            self.world.lane.settle();
        }
        self.world.turn(true);
    }

    fn ask(&mut self, changes: u32, what: RunChange) {
        self.tokens += 1;
        let (by, reason) = ("kim".to_owned(), "because".to_owned());
        let request = RunRequest { run: RUN, changes, token: self.tokens, by, reason, what };
        self.world.ask(self.id, 5, &ChangeRun(request));
    }

    /// Asks, and takes the answer.
    fn change(&mut self, changes: u32, what: RunChange) -> RunRecord {
        self.ask(changes, what);
        self.settle();
        let frames = self.world.take(self.id);
        assert_eq!((frames.len(), frames[0].kind), (1, Kind::StatusReply), "{frames:?}");
        let StatusReply { json } = frames[0].message();
        serde_json::from_str(&json).expect("a run")
    }

    fn refused(&mut self, changes: u32, what: RunChange) -> ErrorReply {
        self.ask(changes, what);
        self.settle();
        let error = self.world.take(self.id).remove(0).error();
        assert_eq!((error.code, error.retryable), (ErrorCode::Refused, false));
        error
    }

    fn put(&mut self, run: RunId, event: u64) {
        let payload = b"bytes";
        let id = FragmentId::new(run.0, event, 1);
        let entry = PutEntry { id, bytes: payload.len() as u32, crc: crc32c(payload), expected: 1 };
        let mut bytes = Vec::new();
        encode_put(9, &[entry], &[payload], &mut bytes);
        self.world.send(self.id, &bytes);
    }

    fn outcome(&mut self) -> Option<PutOutcome> {
        let reply: PutReply = self.world.take(self.id).first()?.message();
        reply.outcomes.first().copied()
    }

    fn stopped(world: World) -> Asker {
        let mut asker = Asker::new(world);
        let sources = "0-15".parse().expect("sources");
        asker.change(0, RunChange::Declare { sources });
        asker.change(1, RunChange::Start);
        asker.change(2, RunChange::Stop { events: Some(0), fragments: Vec::new() });
        asker
    }

    /// The server is started again on what the lane has.
    fn restart(self, service: ServiceConfig) -> World {
        let before = self.world.lane;
        let lane = FakeLane {
            segments_free: 100,
            files: before.files,
            ended: before.ended,
            stored: before.stored,
            ..FakeLane::default()
        };
        let mut world = World::new(config());
        (world.service, world.lane) = (Service::new(service), lane);
        world.peers.clear();
        world
    }
}

#[test]
fn a_closing_waits_for_what_is_on_its_way_and_holds_from_its_answer_on() {
    let mut asker = Asker::stopped(World::new(config()));
    asker.put(RUN, 1);
    asker.world.turn(true);
    assert_eq!(asker.world.lane.pending.len(), 1);
    asker.ask(3, RunChange::Close { accept_difference: false });
    for _ in 0..5 {
        asker.world.turn(true);
    }
    assert_eq!(asker.world.lane.rules[&RUN].0, RunPuts::Wait);
    // Other runs are taken meanwhile, and this one waits.
    asker.put(RunId(8), 1);
    asker.world.turn(true);
    assert_eq!(asker.world.lane.pending.len(), 2);
    assert_eq!(asker.world.take(asker.id).len(), 0, "nothing is answered yet");
    asker.settle();
    let frames = asker.world.take(asker.id);
    let kinds: Vec<Kind> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::PutReply).count(), 2, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&Kind::StatusReply), "the closing comes behind what was on its way: {kinds:?}");
    asker.put(RUN, 2);
    asker.settle();
    assert_eq!(asker.outcome(), Some(PutOutcome::RunClosed));
    let again = asker.refused(4, RunChange::Start);
    assert!(again.sentence.contains("run 7 is closed"), "{}", again.sentence);
}

#[test]
fn a_hold_waits_for_what_frees_and_holds_from_its_answer_on() {
    let mut asker = Asker::stopped(World::new(config()));
    let stream: StreamName = "physics".parse().expect("a name");
    let release = Release { stream, events: vec![EventKey::new(RUN.0, 1)] };
    asker.world.ask(asker.id, 6, &release);
    asker.world.turn(true);
    assert_eq!(asker.world.lane.decided.len(), 1);
    asker.ask(3, RunChange::Hold);
    for _ in 0..5 {
        asker.world.turn(true);
    }
    assert!(asker.world.lane.rules[&RUN].1, "the lane frees nothing more");
    assert_eq!(asker.world.take(asker.id).len(), 0, "what frees is on its way, and nobody is told that it is held");
    asker.settle();
    let kinds: Vec<Kind> = asker.world.take(asker.id).iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [Kind::DecideReply, Kind::StatusReply]);
}

#[test]
fn a_closing_that_is_refused_leaves_the_run_as_it_was() {
    let mut asker = Asker::new(World::new(config()));
    let sources = "0-15".parse().expect("sources");
    asker.change(0, RunChange::Declare { sources });
    asker.change(1, RunChange::Start);
    asker.change(2, RunChange::Stop { events: Some(5), fragments: Vec::new() });
    let refused = asker.refused(3, RunChange::Close { accept_difference: false });
    assert!(refused.sentence.contains("counted 5 events, the store knows 0"), "{}", refused.sentence);
    asker.put(RUN, 1);
    asker.settle();
    assert_eq!(asker.outcome(), Some(PutOutcome::Durable));
    assert_eq!(asker.world.lane.rules[&RUN], (RunPuts::Taken, false));
}

#[test]
fn a_number_of_which_there_are_events_is_refused() {
    let mut asker = Asker::new(World::new(config()));
    let (by, reason) = (String::new(), String::new());
    let what = RunChange::Declare { sources: "1".parse().expect("a source") };
    // The pretended lane knows 57 events of run 1.
    let request = RunRequest { run: RunId(1), changes: 0, token: 1, by, reason, what };
    asker.world.ask(asker.id, 5, &ChangeRun(request));
    asker.settle();
    let refused = asker.world.take(asker.id).remove(0).error();
    assert!(refused.sentence.contains("knows 57 events of run 1"), "{}", refused.sentence);
}

#[test]
fn a_start_knows_what_holds_before_anything_is_put_or_freed() {
    let mut asker = Asker::stopped(World::new(config()));
    asker.change(3, RunChange::Close { accept_difference: false });
    asker.change(4, RunChange::Hold);
    let mut world = asker.restart(config());
    world.lane.not_serving = true;
    let id = world.connect(Class::Readout);
    let mut asker = Asker { world, id, tokens: 100 };
    asker.put(RUN, 1);
    let stream: StreamName = "physics".parse().expect("a name");
    asker.world.ask(id, 6, &Release { stream, events: vec![EventKey::new(7, 1)] });
    asker.world.turn(true);
    assert_eq!(asker.world.lane.offers, 0, "nothing is offered to the lane before its rules are known");
    asker.world.lane.not_serving = false;
    asker.settle();
    assert_eq!(asker.world.lane.rules[&RUN], (RunPuts::Closed, true));
    assert_eq!(asker.outcome(), Some(PutOutcome::RunClosed));
    let run = asker.change(5, RunChange::EndHold);
    assert_eq!((run.state, run.is_held(), run.changes), (RunState::Closed, false, 6));
    assert_eq!(asker.world.lane.rules[&RUN], (RunPuts::Closed, false));
}

#[test]
fn what_is_left_of_a_discarded_run_goes_and_a_start_goes_on() {
    let mut asker = Asker::stopped(World::new(config()));
    for event in 0..600 {
        asker.world.lane.stored.insert(FragmentId::new(7, event, 1), (Vec::new(), true));
        asker.world.lane.stored.insert(FragmentId::new(8, event, 1), (Vec::new(), true));
    }
    asker.ask(3, RunChange::Discard);
    for _ in 0..20 {
        asker.world.turn(true);
        // Of deletions alone nothing is answered: these are on their way.
        let deleted: Vec<_> = asker.world.lane.decided.clone();
        assert!(deleted.len() <= 256 && deleted.iter().all(|(_, key)| key.run == RUN));
        if !deleted.is_empty() {
            break;
        }
        asker.world.lane.settle();
    }
    assert_eq!(asker.world.lane.decided.len(), 256);
    let mut world = asker.restart(config());
    let mut deleted = std::collections::BTreeSet::new();
    for _ in 0..60 {
        world.turn(true);
        for (_, key) in &world.lane.decided {
            assert_eq!(key.run, RUN);
            deleted.insert(*key);
            world.lane.stored.remove(&FragmentId::new(7, key.event.0, 1));
        }
        world.lane.settle();
    }
    assert_eq!(deleted.len(), 600);
    assert!(world.service.next_retry().is_none(), "all is gone, and nothing more is looked for");
}

#[test]
fn a_prescale_leaves_events_out_by_their_numbers() {
    let mut asker = Asker::new(World::new(config()));
    for (token, name, prescale) in [(1001, "calibration", 10), (1002, "physics", 1)] {
        let (name, by) = (name.parse().expect("a name"), String::new());
        let definition = StreamDefinition { prescale, ..StreamDefinition::default() };
        asker.world.ask(asker.id, 4, &DefineStream(StreamRequest { name, version: 0, token, by, definition }));
        asker.settle();
    }
    let defined = asker.world.take(asker.id);
    assert!(defined.iter().all(|frame| frame.kind == Kind::StatusReply), "{defined:?}");
    asker.change(0, RunChange::Declare { sources: "1".parse().expect("a source") });
    asker.change(1, RunChange::Start);
    let streams: Vec<StreamName> = ["calibration", "physics"].map(|name| name.parse().expect("a name")).into();
    let entry = |run, event, streams| DecideEntry { key: EventKey::new(run, event), streams, incomplete: false };
    let entries =
        vec![entry(7, 20, 0b01), entry(7, 21, 0b01), entry(7, 21, 0b11), entry(7, 30, 0b11), entry(9, 21, 0b01)];
    asker.world.ask(asker.id, 6, &Decide { streams: streams.clone(), entries });
    asker.settle();
    let decided: DecideReply = asker.world.take(asker.id).remove(0).message();
    assert_eq!(decided.outcomes, [DecideOutcome::Done; 5]);
    let (calibration, physics) = (streams[0].clone(), streams[1].clone());
    assert_eq!(
        asker.world.lane.verdicts,
        [
            Verdict::Accept(vec![calibration.clone()]),
            Verdict::Reject,
            Verdict::Accept(vec![physics.clone()]),
            Verdict::Accept(vec![calibration.clone(), physics]),
            // Of a run that nobody declared all are kept.
            Verdict::Accept(vec![calibration]),
        ]
    );
}

#[test]
fn a_store_without_files_and_one_that_is_read_only_say_so() {
    let mut asker = Asker::new(World::new(ServiceConfig { has_files: false, ..config() }));
    asker.world.ask(asker.id, 5, &RunList { after: None, max: 9 });
    asker.settle();
    let refused = asker.world.take(asker.id).remove(0).error();
    assert!(refused.sentence.contains("forebay upgrade"), "{}", refused.sentence);
    let mut asker = Asker::new(World::new(ServiceConfig { read_only: true, ..config() }));
    asker.settle();
    asker.ask(0, RunChange::Declare { sources: "1".parse().expect("a source") });
    asker.world.ask(asker.id, 6, &StreamList { stream: None });
    asker.settle();
    let frames = asker.world.take(asker.id);
    assert_eq!(frames[0].error().code, ErrorCode::ReadOnly);
    assert_eq!(frames[1].message::<StatusReply>().json, "{\"streams\":[]}");
}
