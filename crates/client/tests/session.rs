//! The session machine against a scripted server: cuts at every byte, repeated and late replies, credit,
//! deadlines, refusals. No sockets and no clock: the tests are both.

mod script;

use std::time::Duration;

use forebay_client::{Answer, PutResult, Request, SessionConfig, SessionError, SessionEvent};
use forebay_protocol::*;
use forebay_types::{EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, StoreUuid, Time, crc32c};
use proptest::prelude::*;
use script::{CREDIT_BYTES, World, config, payload};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn assert_each_once(world: &World, puts: u64) {
    let mut reported: Vec<u64> = world.results.iter().map(|result| result.id.event.0).collect();
    reported.sort_unstable();
    assert!(reported.iter().copied().eq(0..puts), "{puts} puts were reported as {reported:?}");
}

/// A session with something to put that has sent its greeting, and has no answer.
fn while_it_greets() -> World {
    let mut world = World::new(config());
    world.put(0, 1000);
    world.session.connecting(world.now);
    world.session.connected(world.now);
    world
}

#[test]
fn a_connection_cut_at_any_byte_costs_nothing_and_doubles_nothing() {
    // The whole exchange: a greeting, three batches, a ping.
    let exchange = |world: &mut World| {
        for event in 0..9 {
            world.put(event, 300);
        }
        world.session.ask(world.now, Request::Ping(Ping)).expect("usable");
    };
    let mut whole = World::new(config());
    exchange(&mut whole);
    whole.settle();
    let (up, down) = (whole.bytes_up, whole.bytes_down);
    assert!(up > 2700 && down > 200, "{up} and {down} bytes");
    for (cut_up, cut_down) in (0..=up).map(|cut| (Some(cut), None)).chain((0..=down).map(|cut| (None, Some(cut)))) {
        let mut world = World::new(config());
        exchange(&mut world);
        world.run_until_moved(cut_up.unwrap_or(usize::MAX), cut_down.unwrap_or(usize::MAX));
        world.cut();
        world.settle();
        assert_each_once(&world, 9);
        assert!(world.results.iter().all(|result| result.outcome == PutOutcome::Durable && result.answered));
        let answers =
            world.events.iter().filter(|event| matches!(event, SessionEvent::Answer { answer: Answer::Done, .. }));
        assert_eq!(answers.count(), 1, "cut after {cut_up:?} up, {cut_down:?} down");
        assert!(world.script.connections <= 2);
        world.script.assert_requests_kept_their_content();
    }
}

#[test]
fn replies_that_come_twice_are_ignored() {
    let mut world = World::new(config());
    world.script.reply_times = 2;
    for event in 0..20 {
        world.put(event, 300);
    }
    let get = Get { ids: vec![FragmentId::new(1, 3, 1), FragmentId::new(1, 99, 1)] };
    world.settle();
    world.session.ask(world.now, Request::Get(get)).expect("usable");
    world.settle();
    assert_each_once(&world, 20);
    let Some(SessionEvent::Answer { answer: Answer::Fragments(found), .. }) = world.events.last() else {
        panic!("{:?}", world.events);
    };
    assert_eq!(found[..], [(ReadOutcome::Found, payload(3, 300)), (ReadOutcome::NotFound, Vec::new())]);
    assert_eq!(world.script.connections, 1);
}

#[test]
fn no_put_leaves_beyond_the_credit_and_a_larger_one_goes_alone() {
    let mut world = World::new(SessionConfig { batch_bytes: 1000, ..config() });
    world.script.holds_replies = true;
    for event in 0..10 {
        world.put(event, 1000);
    }
    world.put(10, CREDIT_BYTES as usize + 500);
    world.put(11, 1000);
    assert_eq!(world.session.puts_in_flight(), 0, "nothing has left");
    world.run();
    // CREDIT_BYTES is 4000.
    assert_eq!(world.script.unanswered(), [1000; 4]);
    assert_eq!((world.session.puts_in_flight(), world.session.pending_puts()), (4, 12));
    assert!(!world.session.has_room());
    world.script.release(1);
    world.run();
    assert_eq!(world.script.unanswered(), [1000; 4]);
    world.script.release(4);
    world.run();
    assert_eq!(world.script.unanswered(), [1000; 4]);
    world.script.release(4);
    world.run();
    assert_eq!(world.script.unanswered(), [1000], "the large one waits until it is alone");
    world.script.release(1);
    world.run();
    assert_eq!(world.script.unanswered(), [CREDIT_BYTES as usize + 500]);
    world.script.release(1);
    world.run();
    assert_eq!(world.script.unanswered(), [1000]);
    world.script.release(1);
    world.run();
    assert_each_once(&world, 12);
    assert!(world.session.has_room());
    assert_eq!(world.session.puts_in_flight(), 0);
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_said() {
    let mut world = World::new(SessionConfig { batch_bytes: 100, ..config() });
    world.script.busy_ms = 300;
    world.put(0, 100);
    world.run();
    world.put(1, 100);
    world.run();
    assert_eq!(world.script.puts_seen, 1);
    let due = world.session.next_deadline().expect("a pause");
    assert_eq!(due, world.now + ms(300));
    world.advance(ms(299));
    world.run();
    assert_eq!(world.script.puts_seen, 1);
    world.advance(ms(1));
    world.run();
    assert_eq!(world.script.puts_seen, 2);
}

#[test]
fn a_batch_leaves_when_it_is_full_or_old() {
    let mut world = World::new(config());
    world.put(0, 10);
    world.run();
    assert_eq!(world.script.puts_seen, 0);
    assert_eq!(world.session.next_deadline(), Some(world.now + ms(2)));
    world.advance(ms(2));
    world.run();
    assert_eq!(world.script.puts_seen, 1);
    world.put(1, 600);
    world.put(2, 600);
    world.run();
    assert_eq!(world.script.puts_seen, 2, "a batch that the next put would overfill leaves");
    world.session.flush(world.now);
    world.run();
    assert_eq!(world.script.puts_seen, 3);
    assert_each_once(&world, 3);
}

#[test]
fn without_an_answer_everything_ends_at_the_deadline_and_not_before() {
    let mut world = World::new(config());
    world.script.holds_replies = true;
    world.put(0, 1000); // leaves
    world.put(1, 10); // stays in the batch that fills
    let request = world.session.ask(world.now, Request::Runs(Runs)).expect("usable");
    world.script.refuses_connections = true;
    world.advance(ms(9_999));
    world.run();
    assert!(world.results.is_empty() && world.session.pending_puts() == 2);
    world.advance(ms(1));
    world.run();
    assert_each_once(&world, 2);
    for result in &world.results {
        assert_eq!((result.outcome, result.answered), (PutOutcome::Unavailable, false));
        assert_eq!(result.latency, ms(10_000));
    }
    let ends: Vec<_> = world.events.iter().filter(|event| !matches!(event, SessionEvent::Greeted(_))).collect();
    let [SessionEvent::Failed { request: failed, error }, SessionEvent::PutsFailed { puts: 2, .. }] = &ends[..] else {
        panic!("{ends:?}");
    };
    assert!(*failed == request && matches!(error, SessionError::Deadline { request: "Runs", .. }), "{error}");
    assert!(!world.session.has_work() && world.session.next_deadline().is_none());
}

#[test]
fn an_answer_after_the_deadline_changes_nothing_and_frees_the_credit() {
    let mut world = World::new(SessionConfig { batch_bytes: 4000, silence_timeout: ms(100_000), ..config() });
    world.script.holds_replies = true;
    world.put(0, 4000);
    world.run();
    world.advance(ms(10_000));
    world.run();
    assert_each_once(&world, 1);
    world.put(1, 4000);
    world.run();
    assert_eq!(world.script.unanswered(), [4000], "the server still holds the first");
    world.script.release(1);
    world.run();
    assert_eq!(world.script.unanswered(), [4000]);
    world.script.release(1);
    world.run();
    assert_each_once(&world, 2);
    assert_eq!(world.results[1].outcome, PutOutcome::Durable);
}

#[test]
fn outcomes_that_may_change_are_tried_again_and_told_at_the_deadline() {
    for outcome in PutOutcome::ALL {
        let mut world = World::new(config());
        world.script.outcomes.extend([*outcome; 3]);
        world.put(0, 1000);
        world.settle();
        assert_each_once(&world, 1);
        let (expected, tries) = if outcome.is_retryable() { (PutOutcome::Durable, 4) } else { (*outcome, 1) };
        assert_eq!((world.results[0].outcome, world.script.puts_seen), (expected, tries), "{outcome:?}");
    }
    let mut world = World::new(config());
    world.script.outcomes.extend([PutOutcome::NoSpace; 1000]);
    world.put(0, 1000);
    world.settle();
    let [PutResult { outcome: PutOutcome::NoSpace, answered: true, latency, .. }] = world.results[..] else {
        panic!("{:?}", world.results);
    };
    assert_eq!(latency, ms(10_000));
    assert!((5..50).contains(&world.script.puts_seen), "{} tries", world.script.puts_seen);
    assert!(!world.events.iter().any(|event| matches!(event, SessionEvent::PutsFailed { .. })));
}

#[test]
fn a_put_that_was_sent_again_and_not_answered_may_be_stored() {
    let mut world = World::new(config());
    world.script.outcomes.push_back(PutOutcome::NoSpace);
    world.put(0, 1000);
    world.run();
    world.script.holds_replies = true;
    world.settle();
    assert_each_once(&world, 1);
    assert_eq!((world.results[0].outcome, world.results[0].answered), (PutOutcome::NoSpace, false));
    assert!(world.script.puts_seen > 1, "it was sent again");
}

#[test]
fn a_request_that_is_refused_for_now_is_sent_again() {
    let mut world = World::new(config());
    world.script.errors.extend([(ErrorCode::NotServing, true), (ErrorCode::Overloaded, true)]);
    world.put(0, 1000);
    world.settle();
    assert_eq!((world.results[0].outcome, world.script.requests_seen.len()), (PutOutcome::Durable, 1));
    world.script.errors.push_back((ErrorCode::NotServing, true));
    let request = world.session.ask(world.now, Request::Ping(Ping)).expect("usable");
    world.settle();
    assert_eq!(world.events.last(), Some(&SessionEvent::Answer { request, answer: Answer::Done }));
    assert_eq!(world.script.connections, 1);
}

#[test]
fn a_request_that_is_refused_for_good_fails_alone() {
    let mut world = World::new(config());
    world.script.errors.extend([
        (ErrorCode::ReadOnly, false),
        (ErrorCode::WrongLane, false),
        (ErrorCode::Refused, false),
    ]);
    world.put(0, 1000);
    world.settle();
    world.put(1, 1000);
    world.settle();
    let outcomes: Vec<_> = world.results.iter().map(|result| (result.outcome, result.answered)).collect();
    assert_eq!(outcomes, [(PutOutcome::ReadOnly, true), (PutOutcome::Unavailable, false)]);
    let request = world.session.ask(world.now, Request::Ping(Ping)).expect("usable");
    world.settle();
    let Some(SessionEvent::Failed { request: failed, error: SessionError::Refused { reply, .. } }) =
        world.events.last()
    else {
        panic!("{:?}", world.events);
    };
    assert_eq!((*failed, reply.code), (request, ErrorCode::Refused));
    world.put(2, 1000);
    world.settle();
    assert_eq!(world.results[2].outcome, PutOutcome::Durable);
    assert_eq!(world.script.connections, 1);
}

#[test]
fn a_request_given_up_half_sent_is_sent_to_its_end() {
    let mut world = World::new(SessionConfig { silence_timeout: ms(100_000), ..config() });
    world.session.ask(world.now, Request::Ping(Ping)).expect("usable");
    world.run();
    let keys: Vec<EventKey> = (0..50).map(|event| EventKey::new(1, event)).collect();
    world.session.ask(world.now, Request::Delete(Delete { events: keys })).expect("usable");
    let before = world.bytes_up;
    world.run_until_moved(before + 100, usize::MAX);
    world.advance(ms(10_000));
    world.session.tick(world.now);
    world.put(0, 1000);
    world.settle();
    assert_eq!((world.results[0].outcome, world.script.connections), (PutOutcome::Durable, 1));
}

#[test]
fn a_silent_connection_is_opened_anew_and_waits_grow() {
    let mut world = World::new(SessionConfig { deadline: None, ..config() });
    world.script.holds_replies = true;
    world.put(0, 1000);
    world.run();
    world.advance(ms(4_999));
    world.run();
    assert_eq!(world.script.connections, 1);
    world.script.refuses_connections = true;
    let mut waits = Vec::new();
    for _ in 0..12 {
        let due = world.session.next_deadline().expect("a reconnect");
        waits.push(due.since(world.now));
        world.now = due;
        world.run();
    }
    assert!(waits[11] >= ms(1000) && waits[11] <= ms(2000), "{waits:?}");
    assert!(waits[1] <= ms(10) && waits[2] <= ms(20), "{waits:?}");
    world.script.refuses_connections = false;
    world.script.holds_replies = false;
    world.settle();
    assert_each_once(&world, 1);
}

#[test]
fn nonsense_is_believed_three_times_at_most_and_never_at_first() {
    let mut world = World::new(config());
    world.session.ask(world.now, Request::Ping(Ping)).expect("usable");
    world.run();
    world.script.wrong_count = true;
    world.put(0, 1000);
    world.settle();
    assert_eq!(world.script.connections, 3);
    assert!(matches!(world.session.failure(), Some(SessionError::Broken(_))));
    assert_eq!((world.results[0].outcome, world.results[0].answered), (PutOutcome::Unavailable, false));
    let refused = world.session.put(world.now, FragmentId::new(1, 1, 1), 0, &[][..], 0);
    assert!(matches!(refused, Err(SessionError::Broken(_))));

    let mut world = while_it_greets();
    world.session.received(world.now, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
    assert!(matches!(world.session.failure(), Some(SessionError::Protocol(FrameError::BadMagic { .. }))));
    assert!(!world.session.wants_connection() && !world.session.has_work());
}

#[test]
fn a_greeting_that_never_comes_is_not_waited_for() {
    let mut world = while_it_greets();
    world.advance(ms(999));
    world.session.tick(world.now);
    assert!(world.session.wants_connection());
    world.advance(ms(1));
    world.session.tick(world.now);
    assert!(!world.session.wants_connection() && world.session.last_problem().contains("no greeting"));
    world.settle();
    assert_each_once(&world, 1);
}

#[test]
fn a_greeting_that_arrived_twice_is_made_anew() {
    let mut world = while_it_greets();
    let hello = decode_header(world.session.to_send().first_chunk().expect("a greeting")).expect("whole");
    let sentence = "this connection has greeted already".to_owned();
    let mut error = Vec::new();
    ErrorReply { code: ErrorCode::NotGreeted, retryable: false, sentence }.encode(hello.request, &mut error);
    world.session.received(world.now, &error);
    assert!(world.session.failure().is_none() && !world.session.wants_connection());
    world.settle();
    assert_each_once(&world, 1);
}

#[test]
fn another_store_gets_nothing() {
    let other = StoreUuid::from_bytes([1; 16]);
    let mut world = World::new(SessionConfig { store: Some((other, 4)), ..config() });
    world.put(0, 1000);
    world.settle();
    assert!(matches!(world.session.failure(), Some(SessionError::OtherStore { expected, .. }) if *expected == other));
    assert_eq!((world.script.puts_seen, world.results.len()), (0, 1));
}

#[test]
fn an_event_comes_together_from_any_frames() {
    let mut world = World::new(config());
    world.script.leaves_lists_to_test = true;
    let events = vec![EventKey::new(1, 5), EventKey::new(1, 6)];
    let request = world.session.ask(world.now, Request::GetEvent(GetEvent { events, sources: None })).expect("usable");
    world.connect();
    world.run_until_moved(usize::MAX, usize::MAX);
    let (outcome, state, expected) = (ReadOutcome::Found, EventState::Leased, 2);
    let line = |index, fragments| EventLine { index, outcome, state, expected, fragments };
    let entry = |index, source, bytes: &[u8]| {
        let (source, crc) = (forebay_types::SourceId(source), crc32c(bytes));
        SourceEntry { index, source, outcome, bytes: bytes.len() as u32, crc }
    };
    let mut bytes = Vec::new();
    encode_get_event_reply(request, FLAG_MORE, &[line(1, 0)], &[entry(0, 9, b"nine")], &[b"nine"], &mut bytes);
    encode_get_event_reply(request, 0, &[line(0, 2)], &[entry(0, 2, b"two")], &[b"two"], &mut bytes);
    world.session.received(world.now, &bytes);
    world.take();
    let Some(SessionEvent::Answer { answer: Answer::Events(events), .. }) = world.events.last() else {
        panic!("{:?}", world.events);
    };
    let sources: Vec<_> =
        events[0].fragments.iter().map(|fragment| (fragment.source.0, &fragment.payload[..])).collect();
    assert_eq!(sources, [(2, &b"two"[..]), (9, b"nine")]);
    assert_eq!((events[1].key, events[1].fragments.len(), events[1].stored), (EventKey::new(1, 6), 0, 0));
}

/// An answer of two frames to a request for runs, and what it says.
fn runs_in_two_parts(request: u64) -> (Vec<u8>, Vec<u8>, Answer) {
    let (first_event, last_event) = (EventId(1), EventId(1));
    let run = |run| RunInfo { run: RunId(run), events: 1, undecided: 1, finished: 0, first_event, last_event };
    let (mut first, mut last) = (Vec::new(), Vec::new());
    RunsReply { runs: vec![run(1)] }.encode_with(request, FLAG_MORE, &mut first);
    RunsReply { runs: vec![run(2)] }.encode(request, &mut last);
    (first, last, Answer::Runs(vec![run(1), run(2)]))
}

#[test]
fn the_first_part_of_an_answer_is_forgotten_with_its_connection() {
    let mut world = World::new(config());
    world.script.leaves_lists_to_test = true;
    let request = world.session.ask(world.now, Request::Runs(Runs)).expect("usable");
    world.run();
    let (first, last, answer) = runs_in_two_parts(request);
    world.session.received(world.now, &first);
    world.cut();
    world.advance(ms(10));
    world.run();
    assert_eq!(world.script.connections, 2);
    world.session.received(world.now, &first);
    world.session.received(world.now, &last);
    world.take();
    assert_eq!(world.events.last(), Some(&SessionEvent::Answer { request, answer }));
}

/// A request may have arrived twice: one was refused, and the other one is being answered while it is sent again.
#[test]
fn what_still_comes_of_an_answer_is_no_part_of_the_next_one() {
    let mut world = World::new(config());
    world.script.leaves_lists_to_test = true;
    world.script.errors.push_back((ErrorCode::NotServing, true));
    let request = world.session.ask(world.now, Request::Runs(Runs)).expect("usable");
    world.run();
    let (first, last, answer) = runs_in_two_parts(request);
    world.session.received(world.now, &first);
    while world.script.lists_asked.is_empty() {
        world.advance(ms(1));
        world.session.tick(world.now);
        world.run();
    }
    world.session.received(world.now, &last);
    world.take();
    assert_eq!(world.events.iter().filter(|event| matches!(event, SessionEvent::Answer { .. })).count(), 0);
    let (first, last, _) = runs_in_two_parts(world.script.lists_asked[0]);
    world.session.received(world.now, &first);
    world.session.received(world.now, &last);
    world.take();
    assert_eq!(world.events.last(), Some(&SessionEvent::Answer { request, answer }));
    assert_eq!(world.script.connections, 1);
}

#[test]
fn an_answer_that_goes_on_is_waited_for_however_slow_it_is() {
    let mut world = World::new(SessionConfig { silence_timeout: ms(100_000), ..config() });
    world.script.leaves_lists_to_test = true;
    let request = world.session.ask(world.now, Request::Runs(Runs)).expect("usable");
    world.run();
    let mut part = Vec::new();
    RunsReply { runs: Vec::new() }.encode_with(request, FLAG_MORE, &mut part);
    for _ in 0..5 {
        world.advance(ms(9_999));
        world.run();
        world.session.received(world.now, &part);
    }
    let failed = |world: &World| world.events.iter().any(|event| matches!(event, SessionEvent::Failed { .. }));
    world.advance(ms(9_999));
    world.run();
    assert!(!failed(&world) && world.session.has_work(), "{:?} {}", world.events, world.session.last_problem());
    world.advance(ms(1));
    world.run();
    assert!(failed(&world), "{:?}", world.events);
}

#[test]
fn puts_given_up_while_the_server_is_away_are_not_sent_when_it_is_back() {
    let mut world = World::new(config());
    world.script.holds_replies = true;
    world.put(0, 1000);
    world.run();
    world.cut();
    world.script.refuses_connections = true;
    world.advance(ms(10_000));
    world.run();
    assert_each_once(&world, 1);
    world.script.refuses_connections = false;
    world.script.holds_replies = false;
    world.put(1, 1000);
    world.settle();
    assert_each_once(&world, 2);
    assert_eq!(world.script.puts_seen, 2, "the first before the cut, the second after it");
}

/// What may happen between a client and a server.
#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Up(usize),
    Down(usize),
    Release,
    Cut,
    Wait(u64),
    Say(PutOutcome),
    Error,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..1500).prop_map(Step::Put),
        6 => (1usize..3000).prop_map(Step::Up),
        6 => (1usize..200).prop_map(Step::Down),
        3 => Just(Step::Release),
        1 => Just(Step::Cut),
        3 => (0u64..50).prop_map(Step::Wait),
        2 => proptest::sample::select(PutOutcome::ALL).prop_map(Step::Say),
        1 => Just(Step::Error),
    ]
}

fn play(steps: &[Step], seed: u64) -> (World, u64) {
    let mut world = World::new(SessionConfig { deadline: None, seed, ..config() });
    world.script.holds_replies = true;
    let mut puts = 0;
    for step in steps {
        match step {
            Step::Put(bytes) => {
                world.put(puts, *bytes);
                puts += 1;
            }
            Step::Up(bytes) => world.up(*bytes),
            Step::Down(bytes) => world.down(*bytes),
            Step::Release => world.script.release(1),
            Step::Cut => world.cut(),
            Step::Wait(wait) => world.advance(ms(*wait)),
            Step::Say(outcome) => world.script.outcomes.push_back(*outcome),
            // Errors for good would end puts as unanswered, which the model does not tell apart.
            Step::Error => world.script.errors.push_back((ErrorCode::Overloaded, true)),
        }
        world.turn();
    }
    world.script.holds_replies = false;
    world.script.release(usize::MAX);
    world.settle();
    (world, puts)
}

proptest! {
    #[test]
    fn each_put_is_reported_once_as_what_the_server_last_said(steps in prop::collection::vec(step(), 0..200), seed: u64) {
        let (world, puts) = play(&steps, seed);
        assert_each_once(&world, puts);
        for result in &world.results {
            prop_assert!(result.answered);
            prop_assert_eq!(Some(&result.outcome), world.script.said.get(&result.id), "{}", result.id);
            prop_assert!(!result.outcome.is_retryable());
        }
        world.script.assert_requests_kept_their_content();
        prop_assert_eq!(world.session.pending_puts(), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_trace(steps in prop::collection::vec(step(), 0..60), seed: u64) {
        let (one, _) = play(&steps, seed);
        let (other, _) = play(&steps, seed);
        prop_assert_eq!(one.trace, other.trace);
        prop_assert_eq!(one.results, other.results);
    }

    #[test]
    fn arbitrary_bytes_from_the_server_are_an_error_or_ignored(bytes in prop::collection::vec(any::<u8>(), 0..200), flips in prop::collection::vec((0usize..2000, 0u8..8), 0..4)) {
        let mut world = World::new(config());
        world.put(0, 1000);
        world.session.ask(world.now, Request::Runs(Runs)).expect("usable");
        world.connect();
        world.script.flips = flips;
        for _ in 0..8 {
            world.up(usize::MAX);
            world.down(usize::MAX);
        }
        if world.session.is_up() {
            world.session.received(world.now, &bytes);
        }
        world.script.flips.clear();
        world.settle();
        prop_assert_eq!(world.results.len(), 1);
        prop_assert_eq!(world.session.next_deadline(), None);
        prop_assert!(world.now < Time::default() + ms(30_000));
    }
}
