//! A scripted server and the wire to it, for the tests of the session machine.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_client::{Class, PutResult, Session, SessionConfig, SessionEvent};
use forebay_protocol::*;
use forebay_types::{FragmentId, PutOutcome, ReadOutcome, StoreUuid, Time, crc32c};

pub const CREDIT_BYTES: u32 = 4000;

pub fn config() -> SessionConfig {
    SessionConfig {
        lane: 0,
        class: Class::Readout,
        name: "test".to_owned(),
        batch_bytes: 1000,
        batch_delay: Duration::from_millis(2),
        deadline: Some(Duration::from_secs(10)),
        connect_timeout: Duration::from_secs(1),
        silence_timeout: Duration::from_secs(5),
        seed: 1,
        store: None,
    }
}

pub fn payload(event: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * 13 + event * 7) as u8).collect()
}

/// A request that the test answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub request: u64,
    pub kind: Kind,
    pub table: Vec<u8>,
    pub payload: Vec<u8>,
}

/// The server: says what it is told to, and checks what a client may do.
#[derive(Default)]
pub struct Script {
    buffer: FrameBuffer,
    greeted: bool,
    stored: BTreeMap<FragmentId, Vec<u8>>,
    /// Received puts without a reply: payload bytes, and the reply.
    held: VecDeque<(usize, Vec<u8>)>,
    to_client: Vec<u8>,
    pub holds_replies: bool,
    pub refuses_connections: bool,
    /// Answers neither Runs nor GetEvent nor Subscribe: the test does.
    pub leaves_lists_to_test: bool,
    /// The numbers of these requests, as they came.
    pub lists_asked: Vec<u64>,
    /// Requests about files and names, as they came. The test answers them.
    pub files_asked: Vec<Asked>,
    pub reply_times: usize,
    pub busy_ms: u32,
    /// A reply to a put has one outcome too many.
    pub wrong_count: bool,
    /// Said of the next fragments, before Durable.
    pub outcomes: VecDeque<PutOutcome>,
    /// Said to the next requests.
    pub errors: VecDeque<(ErrorCode, bool)>,
    /// Bits that flip on the way to the client: byte from now on, bit.
    pub flips: Vec<(usize, u8)>,
    /// What was last said of each fragment.
    pub said: BTreeMap<FragmentId, PutOutcome>,
    /// The content of each put that came, by request.
    pub requests_seen: BTreeMap<u64, Vec<Vec<(FragmentId, u32)>>>,
    pub puts_seen: u64,
    pub connections: u32,
    /// Which start of the server it is.
    pub epoch: u64,
}

impl Script {
    pub fn unanswered(&self) -> Vec<usize> {
        self.held.iter().map(|(bytes, _)| *bytes).collect()
    }

    /// Sends replies that are held.
    pub fn release(&mut self, replies: usize) {
        for _ in 0..replies.min(self.held.len()) {
            let (_, reply) = self.held.pop_front().expect("counted");
            self.send(&reply);
        }
    }

    pub fn assert_requests_kept_their_content(&self) {
        for (request, contents) in &self.requests_seen {
            assert!(contents.iter().all(|content| *content == contents[0]), "request {request} changed: {contents:?}");
        }
    }

    fn send(&mut self, frame: &[u8]) {
        for _ in 0..self.reply_times.max(1) {
            self.to_client.extend_from_slice(frame);
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(frame) = buffer.next_frame().expect("the client sends sound frames") {
            self.answer(&frame);
        }
        self.buffer = buffer;
    }

    fn answer(&mut self, frame: &Frame<'_>) {
        let (request, mut reply) = (frame.header.request, Vec::new());
        let kind = frame.kind().expect("a known kind");
        assert_eq!(self.greeted, kind != Kind::Hello, "a greeting comes first and once");
        if kind == Kind::Put {
            return self.put(request, &Put::decode(frame.table, frame.payload).expect("sound"));
        }
        if let Some(error) = (kind != Kind::Hello).then(|| self.errors.pop_front()).flatten() {
            return self.send_error(request, error);
        }
        if self.leaves_lists_to_test && matches!(kind, Kind::Runs | Kind::GetEvent | Kind::Subscribe) {
            return self.lists_asked.push(request);
        }
        if (Kind::FileOpen.code()..=Kind::ChangeName.code()).contains(&kind.code()) {
            let (table, payload) = (frame.table.to_vec(), frame.payload.to_vec());
            return self.files_asked.push(Asked { request, kind, table, payload });
        }
        match kind {
            Kind::Hello => {
                self.greeted = true;
                let hello = HelloReply {
                    protocol_version: PROTOCOL_VERSION,
                    lanes: 4,
                    lane: 0,
                    read_only: false,
                    store: StoreUuid::from_bytes([7; 16]),
                    epoch: self.epoch,
                    fragment_bytes_max: 1 << 20,
                    frame_payload_bytes_max: 1 << 20,
                    credit_bytes: CREDIT_BYTES,
                    server: "script".to_owned(),
                    local: 0,
                };
                hello.encode(request, &mut reply);
                self.to_client.extend_from_slice(&reply);
                return;
            }
            Kind::Ping => Done.encode(request, &mut reply),
            Kind::Runs => RunsReply { runs: Vec::new() }.encode(request, &mut reply),
            Kind::Delete => DecideReply { outcomes: Vec::new() }.encode(request, &mut reply),
            Kind::Get => {
                for (index, id) in Get::decode(frame.table, &[]).expect("sound").ids.iter().enumerate() {
                    let found = self.stored.get(id);
                    let (outcome, bytes) =
                        found.map_or((ReadOutcome::NotFound, &[][..]), |bytes| (ReadOutcome::Found, bytes));
                    let entry =
                        GetEntry { index: index as u32, outcome, bytes: bytes.len() as u32, crc: crc32c(bytes) };
                    let flags = if index == 0 { FLAG_MORE } else { 0 };
                    encode_get_reply(request, flags, &[entry], &[bytes], &mut reply);
                }
            }
            other => panic!("the script has no answer to {other}"),
        }
        self.send(&reply);
    }

    fn send_error(&mut self, request: u64, (code, retryable): (ErrorCode, bool)) {
        let mut reply = Vec::new();
        ErrorReply { code, retryable, sentence: "As the script says.".to_owned() }.encode(request, &mut reply);
        self.send(&reply);
    }

    fn put(&mut self, request: u64, put: &Put<'_>) {
        let bytes = put.payload_bytes();
        let unanswered: usize = self.unanswered().iter().sum();
        assert!(
            self.held.is_empty() || unanswered + bytes <= CREDIT_BYTES as usize,
            "a put of {bytes} bytes came while {unanswered} were unanswered"
        );
        let content = put.table_entries().map(|entry| (entry.id, entry.crc)).collect();
        self.requests_seen.entry(request).or_default().push(content);
        if let Some(error) = self.errors.pop_front() {
            return self.send_error(request, error);
        }
        let mut outcomes = Vec::new();
        for (entry, bytes) in put.entries() {
            assert_eq!(crc32c(bytes), entry.crc);
            self.puts_seen += 1;
            let outcome = if self.stored.contains_key(&entry.id) {
                PutOutcome::Durable
            } else {
                self.outcomes.pop_front().unwrap_or(PutOutcome::Durable)
            };
            if outcome == PutOutcome::Durable {
                self.stored.insert(entry.id, bytes.to_vec());
            }
            self.said.insert(entry.id, outcome);
            outcomes.push(outcome);
        }
        if self.wrong_count {
            outcomes.push(PutOutcome::Durable);
        }
        let mut reply = Vec::new();
        PutReply { credit_bytes: CREDIT_BYTES, busy_ms: self.busy_ms, outcomes }.encode(request, &mut reply);
        if self.holds_replies {
            self.held.push_back((bytes, reply));
        } else {
            self.send(&reply);
        }
    }

    fn lose_connection(&mut self) {
        self.buffer.clear();
        self.held.clear();
        self.to_client.clear();
        self.greeted = false;
    }
}

/// A session, a server, the wire between them, and time.
pub struct World {
    pub session: Session,
    pub script: Script,
    pub now: Time,
    pub results: Vec<PutResult>,
    pub events: Vec<SessionEvent>,
    pub bytes_up: usize,
    pub bytes_down: usize,
    /// When how many bytes went which way, and their checksum.
    pub trace: Vec<(Time, usize, u32)>,
    connected: bool,
}

impl World {
    pub fn new(config: SessionConfig) -> Self {
        let now = Time(1_000_000_000);
        World {
            session: Session::new(config, now),
            script: Script::default(),
            now,
            results: Vec::new(),
            events: Vec::new(),
            bytes_up: 0,
            bytes_down: 0,
            trace: Vec::new(),
            connected: false,
        }
    }

    pub fn put(&mut self, event: u64, bytes: usize) {
        let (id, bytes) = (FragmentId::new(1, event, 1), Bytes::from(payload(event, bytes)));
        let crc = crc32c(&bytes);
        // Copied and shared in turn.
        let put = match event.is_multiple_of(2) {
            true => self.session.put(self.now, id, 0, &bytes[..], crc),
            false => self.session.put(self.now, id, 0, &bytes, crc),
        };
        put.expect("usable");
    }

    pub fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub fn connect(&mut self) {
        self.session.connecting(self.now);
        if self.script.refuses_connections {
            self.session.disconnected(self.now, "connection refused");
        } else {
            self.connected = true;
            self.script.connections += 1;
            self.session.connected(self.now);
        }
    }

    pub fn cut(&mut self) {
        self.connected = false;
        self.script.lose_connection();
        self.session.disconnected(self.now, "the test cut the connection");
    }

    /// Up to `bytes` from the client to the server.
    pub fn up(&mut self, mut bytes: usize) {
        while self.connected && bytes > 0 && !self.session.to_send().is_empty() {
            let piece = self.session.to_send();
            let piece = piece[..piece.len().min(bytes)].to_vec();
            self.session.sent(self.now, piece.len());
            self.trace.push((self.now, piece.len(), crc32c(&piece)));
            self.script.receive(&piece);
            bytes -= piece.len();
            self.bytes_up += piece.len();
        }
    }

    /// Up to `bytes` from the server to the client.
    pub fn down(&mut self, bytes: usize) {
        let bytes = bytes.min(self.script.to_client.len());
        if self.connected && bytes > 0 {
            let mut piece: Vec<u8> = self.script.to_client.drain(..bytes).collect();
            for (at, bit) in &self.script.flips {
                if let Some(byte) = at.checked_sub(self.bytes_down).and_then(|at| piece.get_mut(at)) {
                    *byte ^= 1 << bit;
                }
            }
            self.trace.push((self.now, bytes, crc32c(&piece)));
            self.session.received(self.now, &piece);
            self.bytes_down += bytes;
        }
        self.take();
    }

    pub fn take(&mut self) {
        self.session.take_put_results(&mut self.results);
        self.events.extend(std::iter::from_fn(|| self.session.take_event()));
    }

    /// What a driver does in one turn, without moving bytes.
    pub fn turn(&mut self) {
        self.session.tick(self.now);
        if self.connected && !self.session.wants_connection() {
            self.connected = false;
            self.script.lose_connection();
        }
        if !self.connected && self.session.should_connect(self.now) {
            self.connect();
        }
        self.take();
    }

    /// Moves bytes until none move, at the same time.
    pub fn run(&mut self) {
        self.run_until_moved(usize::MAX, usize::MAX);
    }

    /// The same until so many bytes moved since the beginning.
    pub fn run_until_moved(&mut self, up: usize, down: usize) {
        loop {
            self.turn();
            let before = (self.bytes_up, self.bytes_down, self.script.connections);
            self.up(up - self.bytes_up.min(up));
            self.down(down - self.bytes_down.min(down));
            if (self.bytes_up, self.bytes_down, self.script.connections) == before {
                return;
            }
        }
    }

    /// Lets time pass from one deadline to the next until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            self.run();
            if !self.session.has_work() {
                return;
            }
            let due = self.session.next_deadline().expect("work without an answer has a deadline or a retry");
            self.now = self.now.max(due);
        }
        panic!("the session does not come to rest: {}", self.session.last_problem());
    }
}
