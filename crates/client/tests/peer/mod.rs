//! A tiny server that keeps everything in a map, for the tests of the client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use forebay_protocol::*;
use forebay_types::placement::lane_of;
use forebay_types::{
    Cursor, DecideOutcome, EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, StoreUuid, StreamName, crc32c,
};

pub const LANES: u16 = 3;

/// What outlives a restart of the server.
#[derive(Default)]
pub struct State {
    pub fragments: BTreeMap<FragmentId, (Vec<u8>, u16)>,
    pub decided: BTreeMap<EventKey, BTreeSet<StreamName>>,
    pub finished: BTreeSet<EventKey>,
    /// So many puts are answered with NoSpace before one is taken.
    pub no_space: u32,
    pub puts_seen: u64,
    pub epoch: u64,
    pub store: [u8; 16],
    /// So many of the next answers to Get carry a flipped bit.
    pub flip: u32,
    /// Events in the order in which they came in this start, and how many a subscriber is told of at most before it is too late.
    pub told: Vec<EventKey>,
    pub told_max: Option<usize>,
}

/// A running server; [`Peer::stop`] cuts all connections.
pub struct Peer {
    pub state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    /// Cut each connection after so many bytes were received on it.
    pub cut_after: Arc<AtomicU64>,
    stopping: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Peer {
    pub fn start(state: Arc<Mutex<State>>, address: &str) -> Peer {
        let listener = TcpListener::bind(address).expect("a free port on loopback");
        {
            let mut state = state.lock().expect("state");
            state.epoch += 1;
            state.told.clear();
        }
        let mut peer = Peer {
            state,
            address: listener.local_addr().expect("bound"),
            cut_after: Arc::new(AtomicU64::new(u64::MAX)),
            stopping: Arc::default(),
            sockets: Arc::default(),
            threads: Vec::new(),
        };
        let (state, stopping, sockets, cut) =
            (peer.state.clone(), peer.stopping.clone(), peer.sockets.clone(), peer.cut_after.clone());
        peer.threads.push(std::thread::spawn(move || {
            let mut workers = Vec::new();
            while let Ok((socket, _)) = listener.accept() {
                if stopping.load(Ordering::SeqCst) {
                    break;
                }
                sockets.lock().expect("sockets").push(socket.try_clone().expect("a second handle"));
                let (state, cut) = (state.clone(), cut.clone());
                workers.push(std::thread::spawn(move || drop(serve(socket, &state, &cut))));
            }
            drop(listener);
            for worker in workers {
                worker.join().expect("a connection's thread");
            }
        }));
        peer
    }

    pub fn stop(mut self) -> (Arc<Mutex<State>>, String) {
        self.stopping.store(true, Ordering::SeqCst);
        for socket in self.sockets.lock().expect("sockets").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(TcpStream::connect(self.address)); // wakes accept
        for thread in self.threads.drain(..) {
            thread.join().expect("the server's thread");
        }
        (self.state, self.address.to_string())
    }
}

fn serve(mut socket: TcpStream, state: &Mutex<State>, cut_after: &AtomicU64) -> std::io::Result<()> {
    let mut buffer = FrameBuffer::new();
    let (mut lane, mut taken) = (None, 0);
    loop {
        let bytes = socket.read(buffer.spare(64 << 10))?;
        if bytes == 0 {
            return Ok(());
        }
        buffer.filled(bytes);
        taken += bytes as u64;
        if taken > cut_after.load(Ordering::SeqCst) {
            return socket.shutdown(Shutdown::Both);
        }
        let mut out = Vec::new();
        while let Some(frame) = buffer.next_frame().expect("the client sends sound frames") {
            answer(&mut state.lock().expect("state"), &frame, &mut lane, &mut out).expect("sound messages");
        }
        socket.write_all(&out)?;
    }
}

fn answer(state: &mut State, frame: &Frame<'_>, lane: &mut Option<u16>, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let (table, payload, request) = (frame.table, frame.payload, frame.header.request);
    let here =
        |key: EventKey, lane: Option<u16>| assert_eq!(Some(lane_of(key, LANES)), lane, "{key} came to a wrong lane");
    match frame.kind().expect("a known kind") {
        Kind::Hello => {
            let hello = Hello::decode(table, payload)?;
            *lane = Some(hello.lane);
            let reply = HelloReply {
                protocol_version: PROTOCOL_VERSION,
                lanes: LANES,
                lane: hello.lane,
                read_only: false,
                store: StoreUuid::from_bytes(state.store),
                epoch: state.epoch,
                fragment_bytes_max: 1 << 20,
                frame_payload_bytes_max: 2 << 20,
                credit_bytes: 64 << 10,
                server: "peer".to_owned(),
                local: 0,
            };
            reply.encode(request, out);
        }
        Kind::Put => {
            let mut outcomes = Vec::new();
            for (entry, bytes) in Put::decode(table, payload)?.entries() {
                here(entry.id.key(), *lane);
                state.puts_seen += 1;
                outcomes.push(put(state, &entry, bytes));
            }
            PutReply { credit_bytes: 64 << 10, busy_ms: 0, outcomes }.encode(request, out);
        }
        Kind::Get => {
            let ids = Get::decode(table, payload)?.ids;
            for (index, id) in ids.iter().enumerate().rev() {
                here(id.key(), *lane);
                let flags = if index > 0 { FLAG_MORE } else { 0 };
                get(state, request, flags, index as u32, *id, out);
            }
        }
        Kind::GetEvent => get_event(state, request, &GetEvent::decode(table, payload)?, out),
        Kind::Decide => {
            let decide = Decide::decode(table, payload)?;
            let outcomes = decide.entries.iter().map(|entry| {
                here(entry.key, *lane);
                let streams: BTreeSet<_> = decide.streams_of(entry).cloned().collect();
                match state.decided.insert(entry.key, streams.clone()) {
                    None => DecideOutcome::Done,
                    Some(before) if before == streams => DecideOutcome::AlreadyDone,
                    Some(before) => {
                        state.decided.insert(entry.key, before);
                        DecideOutcome::Conflict
                    }
                }
            });
            DecideReply { outcomes: outcomes.collect() }.encode(request, out);
        }
        Kind::Delete => {
            let events = Delete::decode(table, payload)?.events;
            let outcomes = events
                .iter()
                .map(|key| if state.finished.insert(*key) { DecideOutcome::Done } else { DecideOutcome::AlreadyDone });
            DecideReply { outcomes: outcomes.collect() }.encode(request, out);
        }
        Kind::Release => {
            let release = Release::decode(table, payload)?;
            let outcomes = release.events.iter().map(|key| {
                match state.decided.get_mut(key).is_some_and(|streams| streams.remove(&release.stream)) {
                    true => DecideOutcome::Done,
                    false => DecideOutcome::NotFound,
                }
            });
            DecideReply { outcomes: outcomes.collect() }.encode(request, out);
        }
        Kind::Lease => {
            let lease = Lease::decode(table, payload)?;
            let undecided = undecided(state, *lane);
            let event = |key: &EventKey| LeasedEvent {
                key: *key,
                fragments: 1,
                expected: 1,
                attempt: 1,
                bytes: 1,
                incomplete: false,
            };
            let events = undecided.iter().take(lease.max_events as usize).map(event).collect();
            LeaseReply { events, undecided: undecided.len() as u64, retry_after_ms: 7 }.encode(request, out);
        }
        Kind::Accepted => {
            let ask = Accepted::decode(table, payload)?;
            let listed: Vec<_> = state
                .decided
                .iter()
                .filter(|(key, streams)| {
                    Some(lane_of(**key, LANES)) == *lane
                        && streams.contains(&ask.stream)
                        && ask.after.is_none_or(|after| **key > after)
                })
                .map(|(key, _)| AcceptedEvent { key: *key, fragments: 1, bytes: 1, incomplete: false })
                .collect();
            let more = listed.len() > ask.max as usize;
            let events = listed.into_iter().take(ask.max as usize).collect();
            let undecided_floor = undecided(state, *lane).first().copied();
            AcceptedReply { events, more, undecided_floor }.encode(request, out);
        }
        Kind::Subscribe => subscribe(state, *lane, &Subscribe::decode(table, payload)?).encode(request, out),
        Kind::Streams => {
            let mut counts: BTreeMap<StreamName, u64> = BTreeMap::new();
            for (_, streams) in state.decided.iter().filter(|(key, _)| Some(lane_of(**key, LANES)) == *lane) {
                for stream in streams {
                    *counts.entry(stream.clone()).or_default() += 1;
                }
            }
            let streams = counts.into_iter().map(|(name, accepted)| StreamInfo { name, accepted }).collect();
            StreamsReply { streams }.encode(request, out);
        }
        Kind::Runs => {
            let keys = lane_events(state, *lane);
            let run = |first: &EventKey, last: &EventKey| RunInfo {
                run: RunId(1),
                events: keys.len() as u64,
                undecided: undecided(state, *lane).len() as u64,
                finished: 0,
                first_event: EventId(first.event.0),
                last_event: EventId(last.event.0),
            };
            let runs = keys.first().zip(keys.last()).map(|(first, last)| run(first, last)).into_iter().collect();
            RunsReply { runs }.encode(request, out);
        }
        Kind::Status => StatusReply { json: "{\"lanes\":3}".to_owned() }.encode(request, out),
        Kind::Ping => Done.encode(request, out),
        _ => {
            let sentence = "this is not a server for tests of faults".to_owned();
            ErrorReply { code: ErrorCode::Refused, retryable: false, sentence }.encode(request, out);
        }
    }
    Ok(())
}

fn lane_events(state: &State, lane: Option<u16>) -> Vec<EventKey> {
    let keys: BTreeSet<_> = state.fragments.keys().map(|id| id.key()).collect();
    keys.into_iter().filter(|key| Some(lane_of(*key, LANES)) == lane).collect()
}

fn undecided(state: &State, lane: Option<u16>) -> Vec<EventKey> {
    let mut keys = lane_events(state, lane);
    keys.retain(|key| !state.decided.contains_key(key));
    keys
}

fn put(state: &mut State, entry: &PutEntry, bytes: &[u8]) -> PutOutcome {
    if crc32c(bytes) != entry.crc {
        return PutOutcome::ChecksumMismatch;
    }
    if state.no_space > 0 {
        state.no_space -= 1;
        return PutOutcome::NoSpace;
    }
    match state.fragments.get(&entry.id) {
        Some((before, _)) if before != bytes => PutOutcome::Conflict,
        _ => {
            let key = entry.id.key();
            if !state.fragments.keys().any(|id| id.key() == key) {
                state.told.push(key);
            }
            state.fragments.insert(entry.id, (bytes.to_vec(), entry.expected));
            PutOutcome::Durable
        }
    }
}

fn subscribe(state: &State, lane: Option<u16>, ask: &Subscribe) -> SubscribeReply {
    let told: Vec<EventKey> = state.told.iter().filter(|key| Some(lane_of(**key, LANES)) == lane).copied().collect();
    let here = Cursor { start: state.epoch, sequence: told.len() as u64 };
    let restarted = ask.after.is_some_and(|after| after.start != here.start);
    let after = if restarted { 0 } else { ask.after.unwrap_or(here).sequence as usize };
    let known = told.len() - told.len().min(state.told_max.unwrap_or(usize::MAX));
    let first = after.max(known);
    let wanted = |key: &&EventKey| ask.run.is_none_or(|run| run == key.run) && ask.fraction.has(**key);
    let passed: Vec<EventKey> = told[first..].iter().take(ask.max as usize).copied().collect();
    let event = |key: &EventKey| ToldEvent { key: *key, fragments: 1, bytes: 1, incomplete: false };
    SubscribeReply {
        events: passed.iter().filter(wanted).map(event).collect(),
        next: Cursor { sequence: (first + passed.len()) as u64, ..here },
        restarted,
        dropped: (first - after) as u64,
        gone: 0,
        retry_after_ms: if first + passed.len() < told.len() { 0 } else { 5 },
    }
}

fn get(state: &mut State, request: u64, flags: u16, index: u32, id: FragmentId, out: &mut Vec<u8>) {
    let Some((bytes, _)) = state.fragments.get(&id) else {
        let entry = GetEntry { index, outcome: ReadOutcome::NotFound, bytes: 0, crc: 0 };
        return encode_get_reply(request, flags, &[entry], &[], out);
    };
    let entry = GetEntry { index, outcome: ReadOutcome::Found, bytes: bytes.len() as u32, crc: crc32c(bytes) };
    let mut bytes = bytes.clone();
    if state.flip > 0 {
        state.flip -= 1;
        bytes[0] ^= 1;
    }
    encode_get_reply(request, flags, &[entry], &[&bytes], out);
}

fn get_event(state: &State, request: u64, ask: &GetEvent, out: &mut Vec<u8>) {
    for (index, key) in ask.events.iter().enumerate() {
        let wanted =
            |id: &FragmentId| id.key() == *key && ask.sources.as_ref().is_none_or(|all| all.contains(&id.source));
        let of_event: Vec<_> = state.fragments.iter().filter(|(id, _)| id.key() == *key).collect();
        let index = index as u32;
        // Each fragment in a frame of its own, the line last: as scattered as the protocol allows.
        for (id, (bytes, _)) in of_event.iter().filter(|(id, _)| wanted(id)).rev() {
            let entry = SourceEntry {
                index,
                source: id.source,
                outcome: ReadOutcome::Found,
                bytes: bytes.len() as u32,
                crc: crc32c(bytes),
            };
            encode_get_event_reply(request, FLAG_MORE, &[], &[entry], &[bytes], out);
        }
        let line = EventLine {
            index,
            outcome: if of_event.is_empty() { ReadOutcome::NotFound } else { ReadOutcome::Found },
            state: if of_event.is_empty() { EventState::Unknown } else { EventState::Undecided },
            expected: of_event.first().map_or(0, |(_, (_, expected))| *expected),
            fragments: of_event.len() as u32,
        };
        let flags = if index as usize + 1 < ask.events.len() { FLAG_MORE } else { 0 };
        encode_get_event_reply(request, flags, &[line], &[], &[], out);
    }
}
