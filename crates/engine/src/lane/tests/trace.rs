//! What a lane tells of an event.

use std::time::Duration;

use forebay_media::MemoryMedia;
use forebay_types::{DriveNumber, EventKey, StreamName, Verdict, WallTime, crc32c};

use super::{Driven, Lane, Token};
use crate::api::{Admission, Put, Reply};
use crate::ends::EventEnd;
use crate::lane::{EventTrace, ShardState, TraceState};

const NOON: u64 = 1_790_000_000_000;

impl Driven {
    pub(super) fn trace(&mut self, event: u64) -> EventTrace {
        let token = self.token();
        self.lane.trace(token, EventKey::new(1, event));
        match self.reply() {
            Reply::Traced { token: of, trace } if of == token => *trace,
            other => panic!("{other:?}"),
        }
    }

    fn at(&mut self, seconds: u64) {
        self.lane.set_wall_time(WallTime(NOON + 1000 * seconds));
    }

    pub(super) fn reopen(&mut self, read_only: bool) {
        let mut config = self.lane.config.clone();
        (config.read_only, config.epoch) = (read_only, config.epoch + 1);
        self.media = MemoryMedia::new(&self.drives);
        let wall = self.lane.wall;
        self.lane = Lane::new(config, self.now);
        self.lane.set_wall_time(wall);
        while !self.lane.is_serving() {
            self.turn();
        }
    }

    fn decided(&mut self, ask: impl Fn(&mut Lane, Token) -> Admission<forebay_types::DecideOutcome>) {
        let token = self.token();
        while let Admission::Busy = ask(&mut self.lane, token) {
            self.turn();
        }
        assert!(matches!(self.reply(), Reply::Decided { token: of, .. } if of == token));
    }

    fn decide(&mut self, event: u64, verdict: &Verdict) {
        self.decided(|lane, token| lane.decide(token, EventKey::new(1, event), verdict, false));
    }
}

fn physics() -> StreamName {
    "physics".parse().expect("a name")
}

fn written(trace: &EventTrace) -> Vec<Option<u64>> {
    trace.flushes.iter().map(|flush| flush.written_unix_ms.map(|ms| (ms - NOON) / 1000)).collect()
}

#[test]
fn an_event_is_told_from_its_arrival_to_its_end() {
    let mut driven = Driven::new(|_| {});
    driven.at(10);
    (1..=3).for_each(|source| driven.put(EventKey::new(1, 7), source, 3, 5000));
    driven.at(20);
    driven.put(EventKey::new(1, 8), 1, 3, 5000);
    driven.at(30);
    driven.put(EventKey::new(1, 8), 3, 3, 6000);
    driven.at(40);

    let trace = driven.trace(8);
    assert_eq!((trace.state, trace.is_offered, trace.expected), (TraceState::Undecided, false, 3));
    assert_eq!(trace.fragments.iter().map(|f| (f.source, f.bytes)).collect::<Vec<_>>(), [(1, 5000), (3, 6000)]);
    assert!(trace.fragments.iter().all(|fragment| fragment.is_durable && !fragment.is_lost));
    assert_eq!(trace.fragments[0].crc32c, crc32c(&[1; 5000]));
    assert_eq!(trace.missing_sources, [2], "as its neighbour has it");
    assert_eq!(written(&trace), [Some(20), Some(30)]);
    for flush in &trace.flushes {
        assert_eq!((flush.failures_left, flush.shards.len()), (Some(1), 3));
        assert!(flush.shards.iter().all(|shard| shard.state == ShardState::There));
    }
    let status = driven.lane.status();
    assert_eq!(
        (status.oldest_undecided_s, status.oldest_accepted_s),
        (Some(10.0), None),
        "since the segment was written to"
    );

    assert_eq!(driven.lease(1, None)[0].key, EventKey::new(1, 7));
    let trace = driven.trace(7);
    assert_eq!((trace.state, trace.attempts), (TraceState::Leased, 1));
    assert!(trace.lease_left_s.is_some_and(|left| (29.0..31.0).contains(&left)), "{trace:?}");

    driven.decide(7, &Verdict::Accept(vec![physics()]));
    let trace = driven.trace(7);
    assert_eq!((trace.state, trace.lease_left_s), (TraceState::Accepted, None));
    assert_eq!(
        trace.streams.iter().map(|s| (s.name.as_str(), s.is_released)).collect::<Vec<_>>(),
        [("physics", false)]
    );
    assert!(driven.lane.status().oldest_accepted_s.is_some());

    let late = Put { id: EventKey::new(1, 7).fragment(forebay_types::SourceId(9)), expected: 3, crc: crc32c(b"late") };
    assert!(matches!(driven.lane.put(Token(77), &late, b"late"), Admission::Done(forebay_types::PutOutcome::Late)));
    driven.decided(|lane, token| lane.release(token, EventKey::new(1, 7), &physics()));
    let trace = driven.trace(7);
    assert_eq!((trace.state, trace.end), (TraceState::Over, Some(EventEnd::Released)));
    assert_eq!(
        trace.late_puts.iter().map(|put| (put.source, put.bytes, put.came_unix_ms)).collect::<Vec<_>>(),
        [(9, 4, Some(NOON + 40_000))]
    );

    driven.decide(8, &Verdict::Reject);
    assert_eq!(driven.trace(8).end, Some(EventEnd::Rejected));
    driven.put(EventKey::new(1, 9), 1, 1, 10);
    driven.delete(EventKey::new(1, 9));
    let trace = driven.trace(9);
    assert_eq!((trace.state, trace.end, trace.fragments.len()), (TraceState::Over, Some(EventEnd::Deleted), 0));

    let trace = driven.trace(10);
    let run = trace.run_known.expect("the run is known");
    assert_eq!((trace.state, run.events, run.over), (TraceState::Unknown, 0, 3));
}

#[test]
fn times_and_ends_are_known_after_a_start_as_long_as_the_drives_tell_them() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..40 {
        driven.at(event);
        driven.put(EventKey::new(1, event), 1, 1, 50_000);
    }
    driven.at(100);
    driven.decide(3, &Verdict::Reject);
    for read_only in [true, false, true] {
        driven.reopen(read_only);
        for event in (0..40).filter(|event| *event != 3) {
            let trace = driven.trace(event);
            // What the crash tore was written again, later; these flushes came one after the other.
            assert_eq!((trace.state, written(&trace)), (TraceState::Undecided, vec![Some(event)]), "event {event}");
        }
        let trace = driven.trace(3);
        assert_eq!((trace.state, trace.end), (TraceState::Over, Some(EventEnd::Rejected)));
        // Of the oldest event, the segment was last written to so long ago at least.
        let age = driven.lane.status().oldest_undecided_s.expect("known");
        assert!((60.0..=100.0).contains(&age), "{age}");
    }
}

#[test]
fn what_a_drive_does_not_hold_is_told_with_what_may_still_fail() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    driven.put(EventKey::new(1, 1), 1, 1, 20_000);
    let shard = driven.trace(1).flushes[0].shards[1];
    driven.drives.corrupt(DriveNumber(shard.drive), shard.offset_bytes..shard.offset_bytes + 4096, 3);
    let flush = &driven.trace(1).flushes[0];
    assert_eq!((flush.shards[1].state, flush.failures_left), (ShardState::Damaged, Some(0)));

    let gone = flush.shards[0].drive;
    driven.drives.fail_drive(DriveNumber(gone));
    let flush = &driven.trace(1).flushes[0];
    assert_eq!((flush.shards[0].state, flush.failures_left), (ShardState::Unreadable, None));
    driven.pass(Duration::from_millis(10));
}
