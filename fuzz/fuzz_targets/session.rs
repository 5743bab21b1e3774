//! The client's side of a connection, to a server that says what it likes: an input is steps. Requests are asked, frames of any kind come as
//! their answers, the connection is cut, time goes on.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_client::{Class, Request, Session, SessionConfig, SessionEvent};
use forebay_fuzz::{Parts, bounded, mend_frame};
use forebay_protocol::*;
use forebay_types::{Cursor, DriveNumber, EventKey, Fraction, FragmentId, SourceId, Time, crc32c};
use libfuzzer_sys::fuzz_target;

const STEPS_MAX: usize = 300;
const DEADLINE: Duration = Duration::from_secs(10);

fn config() -> SessionConfig {
    SessionConfig {
        lane: 0,
        class: Class::Monitor,
        name: "fuzz".to_owned(),
        batch_bytes: 1000,
        batch_delay: Duration::from_millis(2),
        deadline: Some(DEADLINE),
        connect_timeout: Duration::from_secs(1),
        silence_timeout: Duration::from_secs(5),
        seed: 1,
        store: None,
    }
}

/// A request; the ids in it are those that the golden frames have.
fn request(what: u8) -> Request {
    let key = EventKey::new(0x1920, 0x0102_0304_0506_0708);
    let events = vec![key, EventKey::new(0x1921, 0x1112_1314)];
    let source = SourceId(0x0001_2345);
    let stream = "physics".parse().expect("a name");
    match what % 16 {
        0 => Request::Get(Get { ids: vec![key.fragment(source), FragmentId::new(0x1922, 0x2122_2324, 0x2345)] }),
        1 => Request::GetEvent(GetEvent { events, sources: None }),
        2 => Request::GetEvent(GetEvent { events, sources: Some(vec![source]) }),
        3 => Request::Delete(Delete { events }),
        4 => Request::Decide(Decide { streams: Vec::new(), entries: Vec::new() }),
        5 => Request::Release(Release { stream, events }),
        6 => Request::Lease(Lease { max_events: 2, duration_ms: 1000, filter: 1, run: None }),
        7 => Request::Accepted(Accepted { stream, after: None, max: 2 }),
        8 => Request::Streams(Streams),
        9 => Request::Runs(Runs),
        10 => Request::Status(Status),
        11 => Request::Ping(Ping),
        12 => Request::Trace(Trace { key }),
        13 => Request::Losses(Losses { from: 0, max: 2 }),
        14 => Request::InjectFault(InjectFault { drive: DriveNumber(3) }),
        _ => {
            let after = Some(Cursor { start: 0x18, sequence: 0xF1E0 });
            Request::Subscribe(Subscribe { max: 2, fraction: Fraction::ALL, run: None, after, stream: None })
        }
    }
}

/// The session, and what is known of it from outside.
struct Case {
    session: Session,
    now: Time,
    /// What it sent on this connection and in all.
    sent: FrameBuffer,
    requests: Vec<u64>,
    asked: BTreeSet<u64>,
    puts: usize,
    put_results: usize,
}

impl Case {
    fn new() -> Case {
        let now = Time(1);
        Case {
            session: Session::new(config(), now),
            now,
            sent: FrameBuffer::new(),
            requests: Vec::new(),
            asked: BTreeSet::new(),
            puts: 0,
            put_results: 0,
        }
    }

    /// What a driver does when nothing has happened.
    fn drive(&mut self) {
        if self.session.next_deadline().is_some_and(|at| at <= self.now) {
            self.session.tick(self.now);
        }
        if self.session.should_connect(self.now) {
            self.session.connecting(self.now);
            self.session.connected(self.now);
            self.sent.clear();
        }
        let bytes: Vec<u8> = self.session.pieces_to_send().flatten().copied().collect();
        self.session.sent(self.now, bytes.len());
        self.sent.extend(&bytes);
        while let Some(frame) = self.sent.next_frame().expect("a client sends sound frames") {
            let kind = frame.kind().expect("of a kind that there is");
            assert!(!kind.is_reply());
            self.requests.push(frame.header.request);
        }
        while let Some(event) = self.session.take_event() {
            if let SessionEvent::Answer { request, .. } | SessionEvent::Failed { request, .. } = event {
                assert!(self.asked.remove(&request), "request {request} ended twice");
            }
        }
        let mut results = Vec::new();
        self.session.take_put_results(&mut results);
        self.put_results += results.len();
    }

    fn step(&mut self, parts: &mut Parts<'_>) {
        let what = parts.byte();
        match what & 15 {
            0 | 1 => {
                if self.asked.len() < 40
                    && let Ok(number) = self.session.ask(self.now, request(parts.byte()))
                {
                    self.asked.insert(number);
                }
            }
            2 => {
                let payload = parts.bytes(usize::from(what >> 4) * 40);
                let id = FragmentId::new(1, self.puts as u64, 2);
                if self.session.has_room() && self.session.put(self.now, id, 1, payload, crc32c(payload)).is_ok() {
                    self.puts += 1;
                }
            }
            3 => self.session.flush(self.now),
            // An answer to one of the requests that were sent last.
            4..=10 => {
                let mut frame = mend_frame(parts.piece());
                let back = usize::from(what >> 4) + 1;
                if let Some(at) = self.requests.len().checked_sub(back) {
                    frame[8..16].copy_from_slice(&self.requests[at].to_le_bytes());
                    frame = mend_frame(&frame);
                }
                self.session.received(self.now, &frame);
            }
            11 => self.session.received(self.now, parts.piece()),
            12 => self.session.disconnected(self.now, "cut"),
            _ => self.now.0 += u64::from(parts.byte()) * 10_000_000,
        }
        self.drive();
    }

    /// The server says nothing any more: everything ends at its deadline.
    fn end(mut self) {
        for _ in 0..1000 {
            if !self.session.has_work() {
                break;
            }
            self.now.0 += 1_000_000_000;
            self.drive();
        }
        self.drive();
        assert!(self.asked.is_empty(), "each request ends: {:?}", self.asked);
        assert_eq!(self.put_results, self.puts, "each put is reported once");
    }
}

fuzz_target!(|input: &[u8]| {
    bounded(16 * input.len() + (4 << 20), || {
        let mut parts = Parts::of(input);
        let mut case = Case::new();
        for _ in 0..STEPS_MAX {
            if parts.is_empty() {
                break;
            }
            case.step(&mut parts);
        }
        case.end();
    });
});
