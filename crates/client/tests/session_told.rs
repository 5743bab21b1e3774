//! What a session believes of what it is told of events.

mod script;

use std::time::Duration;

use forebay_client::{Answer, Request, SessionEvent};
use forebay_protocol::*;
use forebay_types::{Cursor, EventKey, Fraction};
use script::{World, config};

const AFTER: Cursor = Cursor { start: 3, sequence: 10 };

/// What a request for at most 4 events comes to when this is the answer.
fn answer(after: Option<Cursor>, reply: &SubscribeReply) -> Option<SubscribeReply> {
    let mut world = World::new(config());
    world.script.leaves_lists_to_test = true;
    let ask = Subscribe { max: 4, fraction: Fraction::ALL, run: None, after, stream: None };
    let request = world.session.ask(world.now, Request::Subscribe(ask)).expect("usable");
    world.connect();
    world.run_until_moved(usize::MAX, usize::MAX);
    let mut bytes = Vec::new();
    reply.encode(request, &mut bytes);
    world.session.received(world.now, &bytes);
    world.take();
    match world.events.pop() {
        Some(SessionEvent::Answer { answer: Answer::Told(reply), .. }) => Some(reply),
        // The connection is made anew, and the same asked again.
        _ => {
            assert!(!world.session.is_up());
            assert!(world.session.next_deadline().is_some_and(|at| at < world.now + Duration::from_secs(10)));
            None
        }
    }
}

fn reply(events: u64, start: u64, sequence: u64) -> SubscribeReply {
    let event = |n| ToldEvent { key: EventKey::new(1, n), fragments: 1, bytes: 1, incomplete: false };
    SubscribeReply {
        events: (0..events).map(event).collect(),
        next: Cursor { start, sequence },
        restarted: false,
        dropped: 0,
        gone: 0,
        retry_after_ms: 0,
    }
}

#[test]
fn what_fits_between_the_places_is_believed() {
    let told = SubscribeReply { dropped: 20, gone: 3, ..reply(4, 3, 37) };
    assert_eq!(answer(Some(AFTER), &told), Some(told), "27 are accounted for");
    let restarted = SubscribeReply { restarted: true, dropped: 1, ..reply(2, 4, 3) };
    assert_eq!(answer(Some(AFTER), &restarted), Some(restarted));
    let begun = reply(0, 3, 10);
    assert_eq!(answer(None, &begun), Some(begun));
}

#[test]
fn what_cannot_be_is_not() {
    let cases = [
        reply(5, 3, 100),
        reply(0, 3, 9),
        reply(3, 3, 12),
        reply(0, 4, 12),
        SubscribeReply { dropped: 8, ..reply(3, 3, 20) },
        SubscribeReply { gone: 8, dropped: u64::MAX, ..reply(3, 3, 20) },
        SubscribeReply { restarted: true, ..reply(3, 4, 2) },
    ];
    for told in cases {
        assert_eq!(answer(Some(AFTER), &told), None, "{told:?}");
    }
    assert_eq!(answer(None, &reply(1, 3, 10)), None, "nothing was told yet");
}
