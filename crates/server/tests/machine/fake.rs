//! A pretended lane, and a pretended wire to it.

// Also where `fuzz/` takes this file by its path.
#[path = "fake/files.rs"]
mod files;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_engine::{
    AcceptedPage, Admission, EventFragment, EventFragments, EventPart, EventTrace, EventView, Fetch, FetchEvent,
    LaneCounters, LaneStatus, LeasedEvent, LossPage, Put, Reply, RunView, StreamView, Subscription, Token, ToldEvent,
    ToldPage,
};
use forebay_protocol::{Class, ErrorReply, Frame, FrameBuffer, HelloReply, Kind, Message};
use forebay_server::{LaneRequests, Service, ServiceConfig, Step};
use forebay_types::{
    Cursor, DecideOutcome, EventId, EventKey, FileNumber, FragmentId, PutOutcome, ReadOutcome, RunId, RunPuts,
    SourceId, StoreUuid, StreamName, Time, Verdict, crc32c,
};

pub use files::FakeFile;

/// What the lane does with the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Will {
    Take,
    Refuse,
    BeBusy,
    BeFull,
}

/// A lane that does as it is told.
#[derive(Default)]
pub struct FakeLane {
    /// What it does with the next records; when there is nothing: takes them.
    pub will: VecDeque<Will>,
    /// Fragments that were given to it, in order.
    pub given: Vec<(Token, FragmentId, Vec<u8>)>,
    /// Records that it took and has not answered.
    pub pending: Vec<Token>,
    pub decided: Vec<(Token, EventKey)>,
    /// What reads find, and whether it is in memory.
    pub stored: BTreeMap<FragmentId, (Vec<u8>, bool)>,
    pub reads: Vec<(Token, FragmentId)>,
    /// Events whose fragments lie in one record.
    pub whole: BTreeSet<EventKey>,
    pub event_reads: Vec<(Token, EventKey)>,
    pub traces: Vec<(Token, EventKey)>,
    pub replies: VecDeque<Reply>,
    pub not_serving: bool,
    pub segments_free: u64,
    pub counters: LaneCounters,
    pub fragment_bytes: u64,
    pub offers: usize,
    /// Verdicts that it was told, in order.
    pub verdicts: Vec<Verdict>,
    /// How often it was asked for lists of what it knows.
    pub lists: Cell<usize>,
    pub files: BTreeMap<FileNumber, FakeFile>,
    /// Files that ended.
    pub ended: BTreeSet<FileNumber>,
    /// Changes of files that it took and has not answered.
    pub changed: Vec<Token>,
    /// Reads of files come later.
    pub reads_files_later: bool,
    pub file_reads: Vec<(Token, ReadOutcome, Vec<u8>)>,
    /// A file that is out of reach from a byte on.
    pub out_of_reach: Option<(FileNumber, usize)>,
    /// Reads of files that were answered without a copy.
    pub shared: usize,
    /// Where bytes of a write are put before they are written.
    pub placed: Vec<u8>,
    /// Writes whose bytes were put there.
    pub placed_writes: usize,
    /// There is no room for files, but for what may take the last.
    pub is_full_of_files: bool,
    pub index_bytes_max: Option<u64>,
    /// Events of which each subscriber is told each time.
    pub told_events: u64,
    /// What holds for runs.
    pub rules: BTreeMap<RunId, (RunPuts, bool)>,
}

impl FakeLane {
    fn will(&mut self) -> Will {
        self.offers += 1;
        self.will.pop_front().unwrap_or(Will::Take)
    }

    /// Everything that was taken becomes durable.
    pub fn settle(&mut self) {
        for token in self.pending.drain(..) {
            self.replies.push_back(Reply::Stored { token, records: 1 });
        }
        for (token, _) in self.decided.drain(..) {
            self.replies.push_back(Reply::Decided { token, outcome: DecideOutcome::Done });
        }
        for token in self.changed.drain(..) {
            self.replies.push_back(Reply::Decided { token, outcome: DecideOutcome::Done });
        }
        for (token, outcome, payload) in self.file_reads.drain(..) {
            self.replies.push_back(Reply::ReadFile { token, outcome, payload });
        }
        for (token, id) in std::mem::take(&mut self.reads) {
            self.finish_read(token, id);
        }
        for (token, key) in self.traces.drain(..) {
            self.replies
                .push_back(Reply::Traced { token, trace: Box::new(EventTrace { key, ..EventTrace::default() }) });
        }
        for (token, key) in std::mem::take(&mut self.event_reads) {
            let (fragments, payload) = self.fragments_of(key);
            let parts = fragments.into_iter().map(EventPart::found).collect();
            self.replies.push_back(Reply::ReadEvent { token, outcome: ReadOutcome::Found, parts, payload });
        }
    }

    /// Whether it has answered everything that it took.
    fn rests(&self) -> bool {
        let reads = self.reads.len() + self.event_reads.len() + self.traces.len();
        let reads = reads + self.file_reads.len() + self.changed.len();
        self.pending.is_empty() && self.decided.is_empty() && reads == 0
    }

    fn fragments_of(&self, key: EventKey) -> (Vec<EventFragment>, Vec<u8>) {
        let of_event = self.stored.range(key.fragment(SourceId(0))..=key.fragment(SourceId(u32::MAX)));
        let (mut fragments, mut payload) = (Vec::new(), Vec::new());
        for (id, (bytes, _)) in of_event {
            fragments.push(EventFragment { source: id.source, bytes: bytes.len() as u32, crc: crc32c(bytes) });
            payload.extend_from_slice(bytes);
        }
        (fragments, payload)
    }

    pub fn finish_read(&mut self, token: Token, id: FragmentId) {
        let payload = self.stored[&id].0.clone();
        let crc = crc32c(&payload);
        self.replies.push_back(Reply::Read { token, outcome: ReadOutcome::Found, payload, crc });
    }

    fn decision(&mut self, token: Token, key: EventKey) -> Admission<DecideOutcome> {
        match self.will() {
            Will::Take => {
                self.decided.push((token, key));
                Admission::Pending
            }
            Will::Refuse | Will::BeFull => Admission::Done(DecideOutcome::Conflict),
            Will::BeBusy => Admission::Busy,
        }
    }
}

impl LaneRequests for FakeLane {
    fn put(&mut self, token: Token, put: &Put, payload: &[u8]) -> Admission<PutOutcome> {
        if self.not_serving {
            return Admission::Busy;
        }
        match self.rules.get(&put.id.run).map(|(puts, _)| *puts) {
            Some(RunPuts::Wait) => return Admission::Busy,
            Some(RunPuts::Closed) => return Admission::Done(PutOutcome::RunClosed),
            Some(RunPuts::Discarded) => return Admission::Done(PutOutcome::RunDiscarded),
            _ => {}
        }
        match self.will() {
            Will::Take => {
                self.given.push((token, put.id, payload.to_vec()));
                self.pending.push(token);
                Admission::Pending
            }
            Will::Refuse => Admission::Done(PutOutcome::Late),
            Will::BeFull => Admission::Done(PutOutcome::NoSpace),
            Will::BeBusy => Admission::Busy,
        }
    }

    fn decide(&mut self, token: Token, key: EventKey, verdict: &Verdict, _: bool) -> Admission<DecideOutcome> {
        assert!(!matches!(verdict, Verdict::Accept(streams) if streams.is_empty()));
        self.verdicts.push(verdict.clone());
        self.decision(token, key)
    }

    fn delete(&mut self, token: Token, key: EventKey) -> Admission<DecideOutcome> {
        self.decision(token, key)
    }

    fn release(&mut self, token: Token, key: EventKey, _: &StreamName) -> Admission<DecideOutcome> {
        self.decision(token, key)
    }

    fn get(&mut self, token: Token, id: FragmentId, into: &mut Vec<u8>) -> Fetch {
        match self.stored.get(&id) {
            None => Fetch::Done(ReadOutcome::NotFound, 0),
            Some((payload, true)) => {
                into.extend_from_slice(payload);
                Fetch::Done(ReadOutcome::Found, crc32c(payload))
            }
            Some((payload, false)) => {
                self.reads.push((token, id));
                Fetch::Pending { bytes: payload.len() as u32 }
            }
        }
    }

    fn get_whole(&mut self, token: Token, key: EventKey, into: &mut Vec<u8>) -> FetchEvent {
        assert!(self.whole.contains(&key), "only what is one record is read as one");
        let of_event = self.stored.range(key.fragment(SourceId(0))..=key.fragment(SourceId(u32::MAX)));
        if of_event.clone().any(|(_, (_, in_memory))| !in_memory) {
            self.event_reads.push((token, key));
            return FetchEvent::Pending { bytes: of_event.map(|(_, (bytes, _))| bytes.len() as u32).sum() };
        }
        let (fragments, payload) = self.fragments_of(key);
        into.extend_from_slice(&payload);
        FetchEvent::Done(ReadOutcome::Found, fragments)
    }

    fn event(&self, key: EventKey) -> Option<EventView> {
        let (fragments, payload) = self.fragments_of(key);
        let (count, bytes) = (fragments.len() as u32, payload.len() as u32);
        (count > 0).then_some(EventView {
            fragments: match self.whole.contains(&key) {
                true => EventFragments::Whole { fragments: count, bytes },
                false => EventFragments::Each(fragments.iter().map(|f| (f.source, f.bytes)).collect()),
            },
            expected: 9,
            leased: false,
            accepted: false,
            incomplete: false,
        })
    }

    fn outcome_of_unknown(&self, key: EventKey) -> ReadOutcome {
        if key.event.0 >= 1000 { ReadOutcome::Deleted } else { ReadOutcome::NotFound }
    }

    fn lease(&mut self, max_events: usize, _: Duration, _: Option<RunId>, into: &mut Vec<LeasedEvent>) {
        let event = |key| LeasedEvent { key, fragments: 1, expected: 1, bytes: 1, incomplete: false, attempt: 1 };
        into.extend((0..max_events.min(3) as u64).map(|n| event(EventKey::new(1, n))));
    }

    fn told(&self, wanted: &Subscription, events_max: usize) -> ToldPage {
        self.lists.set(self.lists.get() + 1);
        let behind = wanted.after.map_or(0, |after| after.sequence);
        let event = |n| ToldEvent { key: EventKey::new(1, n), fragments: 1, bytes: 1, incomplete: false };
        let told = if wanted.after.is_some() { self.told_events.min(events_max as u64) } else { 0 };
        ToldPage {
            events: (behind..behind + told).map(event).collect(),
            next: Cursor { start: 7, sequence: behind + told },
            restarted: wanted.after.is_some_and(|after| after.start != 7),
            dropped: 0,
            gone: 0,
            more: told == events_max as u64,
        }
    }

    fn accepted(&self, _: &StreamName, _: Option<EventKey>, _: usize) -> AcceptedPage {
        self.lists.set(self.lists.get() + 1);
        AcceptedPage::default()
    }

    fn streams(&self) -> Vec<StreamView> {
        Vec::new()
    }

    fn runs(&self) -> Vec<RunView> {
        vec![RunView { run: RunId(1), events: 50, undecided: 40, finished: 7, range: Some((1, 60)) }]
    }

    fn rule_run(&mut self, run: RunId, puts: RunPuts, is_held: bool) {
        self.rules.insert(run, (puts, is_held));
    }

    fn events_of_run(&self, run: RunId, from: EventId, events_max: usize, into: &mut Vec<EventKey>) {
        let mut events: Vec<EventKey> = self.stored.keys().map(|id| id.key()).collect();
        events.dedup();
        events.retain(|key| key.run == run && key.event >= from);
        into.extend(events.into_iter().take(events_max));
    }

    fn trace(&mut self, token: Token, key: EventKey) {
        self.traces.push((token, key));
    }

    fn losses(&mut self, from: u32, max: u32) -> LossPage {
        LossPage { losses: Vec::new(), next: from.checked_add(max), not_remembered: 3, being_named: 0 }
    }

    fn status(&self) -> LaneStatus {
        LaneStatus {
            lane: 0,
            state: "serving",
            reason: None,
            events: 0,
            events_undecided: 0,
            events_accepted: 0,
            events_finished: 0,
            fragments: 0,
            fragment_bytes: self.fragment_bytes,
            files: 0,
            files_unsealed: 0,
            file_bytes: 0,
            index_bytes: 0,
            cache_bytes: 0,
            memory_bytes: 0,
            segments: 0,
            slots_free: self.segments_free * 5 + 10,
            slots_total: 500,
            segments_total: 102,
            segments_free: self.segments_free,
            segments_reserved: 2,
            capacity_bytes: 100 << 20,
            free_bytes: self.segments_free << 20,
            index_bytes_max: self.index_bytes_max.unwrap_or(1 << 24),
            cache_bytes_max: 1 << 20,
            drives_written: Vec::new(),
            drives_read: Vec::new(),
            width: Some((4, 1)),
            failures_left: None,
            out_of_reach: Default::default(),
            flushes_possibly_lost: 0,
            flushes_unavailable: 0,
            flushes_lost: 0,
            segments_unreadable: 0,
            segments_unavailable: 0,
            fragments_known_lost: 0,
            oldest_undecided_s: None,
            oldest_accepted_s: None,
            rebuild: Default::default(),
            scrub: Default::default(),
            compaction: Default::default(),
            drive_health: Vec::new(),
            counters: self.counters.clone(),
        }
    }

    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    fn serves_reads(&self) -> Result<(), &str> {
        if self.not_serving { Err("it is still finding out") } else { Ok(()) }
    }
}

/// What is to be done later than this waits for the end of an opening, and not for the lane.
const OPENING_EXPIRES_MIN: Duration = Duration::from_secs(1);

/// The largest fragment of the pretended store.
pub const FRAGMENT_BYTES_MAX: u32 = 1 << 20;

pub fn config() -> ServiceConfig {
    ServiceConfig {
        store: StoreUuid::from_bytes([7; 16]),
        epoch: 3,
        lanes: 1,
        lane: 0,
        fragment_bytes_max: FRAGMENT_BYTES_MAX,
        read_only: false,
        has_files: true,
        staging_bytes: 4 << 20,
        out_buffer_bytes: 1 << 20,
        credit_bytes: 16 << 20,
        stall_timeout: Duration::from_secs(10),
        placed_bytes_min: 64 << 10,
        local: 0,
    }
}

/// A frame that came back.
#[derive(Clone, Debug)]
pub struct Received {
    pub kind: Kind,
    pub request: u64,
    pub more: bool,
    pub table: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Received {
    pub fn message<M: Message>(&self) -> M {
        assert_eq!(self.kind, M::KIND);
        M::decode(&self.table, &self.payload).expect("sound")
    }

    pub fn error(&self) -> ErrorReply {
        self.message()
    }
}

/// One side of a connection.
#[derive(Default)]
pub struct Peer {
    /// What it sent and the service has not read.
    pub wire: VecDeque<u8>,
    /// How many bytes a read gives; 0: as many as there is room for.
    pub pieces: VecDeque<usize>,
    /// It does not read what it is sent.
    pub deaf: bool,
    received: FrameBuffer,
    pub frames: Vec<Received>,
    /// It was told its end.
    pub ended: bool,
}

pub struct World {
    pub service: Service,
    pub lane: FakeLane,
    pub peers: BTreeMap<u64, Peer>,
    pub now: Time,
    /// The most bytes of receive buffers that were ever in use.
    pub staging_most: usize,
    /// Connections that were ever opened: none gets a number of another one.
    opened: u64,
}

impl World {
    pub fn new(config: ServiceConfig) -> World {
        let lane = FakeLane { segments_free: 100, ..FakeLane::default() };
        let service = Service::new(config);
        let mut world = World { service, lane, peers: BTreeMap::new(), now: Time(0), staging_most: 0, opened: 0 };
        world.turn(false);
        world
    }

    /// Opens a connection and takes its greeting.
    pub fn connect(&mut self, class: Class) -> u64 {
        self.opened += 1;
        let id = self.opened + 1;
        self.service.open(id, class, 1);
        self.peers.insert(id, Peer::default());
        self.turn(false);
        let hello: HelloReply = self.take(id).remove(0).message();
        assert_eq!((hello.lane, hello.lanes, hello.epoch), (0, 1, 3));
        id
    }

    pub fn send(&mut self, id: u64, bytes: &[u8]) {
        self.peers.get_mut(&id).expect("open").wire.extend(bytes);
    }

    pub fn ask(&mut self, id: u64, request: u64, message: &impl Message) {
        let mut bytes = Vec::new();
        message.encode(request, &mut bytes);
        self.send(id, &bytes);
    }

    pub fn take(&mut self, id: u64) -> Vec<Received> {
        std::mem::take(&mut self.peers.get_mut(&id).expect("open").frames)
    }

    /// Reads the rest of a piece to where the lane has a place for it, if all of it is there.
    fn read_piece(&mut self, id: u64) -> bool {
        let peer = self.peers.get_mut(&id).expect("open");
        let Some(awaited) = self.service.awaited_of_piece(id).filter(|awaited| *awaited <= peer.wire.len()) else {
            return false;
        };
        if !peer.pieces.is_empty() {
            return false;
        }
        let Some(parts) = self.service.place_of_piece(id, &mut self.lane) else { return false };
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), awaited, "there is a place for all of it");
        for part in parts {
            let of_part = peer.wire.drain(..part.len());
            part.iter_mut().zip(of_part).for_each(|(place, byte)| *place = byte);
        }
        self.service.piece_is_placed(id);
        true
    }

    /// One turn as a driver makes it.
    pub fn turn(&mut self, moved: bool) {
        self.service.take_replies(&mut self.lane, self.now, moved);
        for (id, peer) in &self.peers {
            if !peer.wire.is_empty() {
                self.service.readable(*id);
            }
        }
        while let Some(id) = self.service.next_connection() {
            loop {
                let peer = self.peers.get_mut(&id).expect("open");
                let step = self.service.work(id, &mut self.lane, !peer.wire.is_empty());
                self.staging_most = self.staging_most.max(self.service.staging_bytes());
                if step != Step::Read {
                    break;
                }
                if self.read_piece(id) {
                    continue;
                }
                let peer = self.peers.get_mut(&id).expect("open");
                let space = self.service.read_space(id);
                assert!(!space.is_empty(), "there is room to read into");
                let piece = peer.pieces.pop_front().filter(|piece| *piece > 0).unwrap_or(usize::MAX);
                let bytes = space.len().min(piece).min(peer.wire.len());
                for (space, byte) in space.iter_mut().zip(peer.wire.drain(..bytes)) {
                    *space = byte;
                }
                self.service.received(id, bytes);
            }
        }
        self.service.tend_files(&mut self.lane);
        let mut messages = Vec::new();
        self.service.take_messages(&mut messages);
        for (lane, message) in messages {
            // There is one lane, whatever the others would be told.
            if lane == 0 {
                self.service.message(message, &mut self.lane);
            }
        }
        self.service.take_dirty(&mut Vec::new());
        let ids: Vec<u64> = self.peers.keys().copied().collect();
        for id in ids {
            self.receive(id);
        }
    }

    fn receive(&mut self, id: u64) {
        let peer = self.peers.get_mut(&id).expect("open");
        if peer.deaf {
            return;
        }
        let bytes: Vec<u8> = self.service.pieces_to_send(id).flatten().copied().collect();
        self.service.sent(id, bytes.len());
        peer.received.extend(&bytes);
        while let Some(Frame { header, table, payload }) =
            peer.received.next_frame().expect("the server's frames are sound")
        {
            peer.frames.push(Received {
                kind: Kind::from_code(header.kind).expect("known"),
                request: header.request,
                more: header.more(),
                table: table.to_vec(),
                payload: payload.to_vec(),
            });
        }
        if !peer.ended && self.service.is_closing(id) {
            peer.ended = true;
            self.service.close(id);
        }
    }

    /// Turns until nothing moves any more at this time; what the lane took becomes durable.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            self.lane.settle();
            let before: usize = self.peers.values().map(|peer| peer.wire.len() + peer.frames.len()).sum();
            self.turn(true);
            let after: usize = self.peers.values().map(|peer| peer.wire.len() + peer.frames.len()).sum();
            // Openings of clients that are gone end in their time, not by turns.
            let waits = self.service.next_retry().is_none_or(|at| at >= self.now + OPENING_EXPIRES_MIN);
            if before == after && self.lane.rests() && !self.service.has_work() && waits {
                return;
            }
        }
        let (rests, retry) = (self.lane.rests(), self.service.next_retry());
        panic!(
            "it never comes to rest: the lane rests {rests}, has work {}, tries again at {retry:?}",
            self.service.has_work()
        );
    }
}

/// The frame of a put of these fragments.
pub fn put_frame(request: u64, fragments: &[(FragmentId, Vec<u8>)]) -> Vec<u8> {
    let entry = |(id, payload): &(FragmentId, Vec<u8>)| forebay_protocol::PutEntry {
        id: *id,
        bytes: payload.len() as u32,
        crc: crc32c(payload),
        expected: 0,
    };
    let entries: Vec<_> = fragments.iter().map(entry).collect();
    let payloads: Vec<&[u8]> = fragments.iter().map(|(_, payload)| &payload[..]).collect();
    let mut bytes = Vec::new();
    forebay_protocol::encode_put(request, &entries, &payloads, &mut bytes);
    bytes
}

/// Fragment `source` of event `event`, with `bytes` bytes that only it has.
pub fn fragment(event: u64, source: u32, bytes: usize) -> (FragmentId, Vec<u8>) {
    let payload = (0..bytes).map(|at| (at as u64 * 31 + event * 7 + u64::from(source)) as u8).collect();
    (FragmentId::new(1, event, source), payload)
}

/// Makes the header of a frame right again after a change of it.
pub fn seal_header(frame: &mut [u8]) {
    let crc = crc32c(&frame[..28]).to_le_bytes();
    frame[28..32].copy_from_slice(&crc);
}
