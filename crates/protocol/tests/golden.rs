//! One frame of each kind, byte by byte, in `testdata/`; and that `docs/protocol.md` says the same.
//! `FOREBAY_BLESS=1` writes the files again: a change of one of them is a change of the protocol.
#![expect(clippy::disallowed_methods, reason = "the tests look at files")]

use std::fmt::Write;
use std::path::Path;

use forebay_protocol::*;
use forebay_types::{
    DecideOutcome, DriveNumber, EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, SourceId, StoreUuid,
    StreamName, crc32c,
};

fn frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

/// A frame of each kind that can be sent.
fn frames() -> Vec<(Kind, Vec<u8>)> {
    let key = EventKey::new(0x1920, 0x0102_0304_0506_0708);
    let id = FragmentId { run: key.run, event: key.event, source: SourceId(0x0001_2345) };
    let (one, two) = (&b"fragment one"[..], &b"two"[..]);
    let put_entry =
        |id, bytes: &[u8], expected| PutEntry { id, bytes: bytes.len() as u32, crc: crc32c(bytes), expected };
    let puts = [put_entry(id, one, 2), put_entry(FragmentId { source: SourceId::EVENT_FRAME, ..id }, two, 0)];
    let found = |index, bytes: &[u8]| GetEntry {
        index,
        outcome: ReadOutcome::Found,
        bytes: bytes.len() as u32,
        crc: crc32c(bytes),
    };
    let gets = [found(1, one), GetEntry { index: 0, outcome: ReadOutcome::Lost, bytes: 0, crc: 0 }];
    let line =
        EventLine { index: 0, outcome: ReadOutcome::Found, state: EventState::Leased, expected: 3, fragments: 2 };
    let source = SourceEntry {
        index: 0,
        source: id.source,
        outcome: ReadOutcome::Found,
        bytes: two.len() as u32,
        crc: crc32c(two),
    };
    let hello_reply = HelloReply {
        protocol_version: PROTOCOL_VERSION,
        lanes: 4,
        lane: 2,
        read_only: true,
        store: StoreUuid::from_bytes(*b"0123456789abcdef"),
        epoch: 7,
        fragment_bytes_max: 1 << 20,
        frame_payload_bytes_max: 4 << 20,
        credit_bytes: 8 << 20,
        server: "forebay 0.1.0".to_owned(),
    };
    let decide = Decide {
        streams: vec![stream("physics"), stream("debug")],
        entries: vec![
            DecideEntry { key, streams: 0b11, incomplete: true },
            DecideEntry { key: EventKey::new(1, 2), streams: 0, incomplete: false },
        ],
    };
    let lease = Lease { max_events: 100, duration_ms: 30_000, filter: 9, run: Some(key.run) };
    let leased = LeasedEvent { key, fragments: 2, expected: 3, attempt: 1, bytes: 4096, incomplete: true };
    let accepted = AcceptedEvent { key, fragments: 3, bytes: 8192, incomplete: true };
    let run = RunInfo {
        run: key.run,
        events: 10,
        undecided: 4,
        finished: 5,
        first_event: EventId(1),
        last_event: EventId(12),
    };
    let hello =
        Hello { protocol_version: PROTOCOL_VERSION, lane: 2, class: Class::Filter, name: "filter-1".to_owned() };
    let error = ErrorReply { code: ErrorCode::ShuttingDown, retryable: true, sentence: "Try again.".to_owned() };
    let outcomes = vec![DecideOutcome::Done, DecideOutcome::Conflict];
    let put_reply =
        PutReply { credit_bytes: 1 << 20, busy_ms: 50, outcomes: vec![PutOutcome::Durable, PutOutcome::NoSpace] };
    vec![
        (Kind::Hello, frame(|to| hello.encode(1, to))),
        (Kind::Put, frame(|to| encode_put(2, &puts, &[one, two], to))),
        (Kind::Get, frame(|to| Get { ids: vec![id] }.encode(3, to))),
        (Kind::GetEvent, frame(|to| GetEvent { events: vec![key], sources: Some(vec![id.source]) }.encode(4, to))),
        (Kind::Delete, frame(|to| Delete { events: vec![key] }.encode(5, to))),
        (Kind::Decide, frame(|to| decide.encode(6, to))),
        (Kind::Release, frame(|to| Release { stream: stream("physics"), events: vec![key] }.encode(7, to))),
        (Kind::Lease, frame(|to| lease.encode(8, to))),
        (Kind::Accepted, frame(|to| Accepted { stream: stream("physics"), after: Some(key), max: 50 }.encode(9, to))),
        (Kind::Streams, frame(|to| Streams.encode(10, to))),
        (Kind::Runs, frame(|to| Runs.encode(11, to))),
        (Kind::Status, frame(|to| Status.encode(12, to))),
        (Kind::Ping, frame(|to| Ping.encode(13, to))),
        (Kind::InjectFault, frame(|to| InjectFault { drive: DriveNumber(3) }.encode(14, to))),
        (Kind::HelloReply, frame(|to| hello_reply.encode(1, to))),
        (Kind::PutReply, frame(|to| put_reply.encode(2, to))),
        (Kind::GetReply, frame(|to| encode_get_reply(3, FLAG_MORE, &gets, &[one], to))),
        (Kind::GetEventReply, frame(|to| encode_get_event_reply(4, 0, &[line], &[source], &[two], to))),
        (Kind::DecideReply, frame(|to| DecideReply { outcomes }.encode(5, to))),
        (
            Kind::LeaseReply,
            frame(|to| LeaseReply { events: vec![leased], undecided: 77, retry_after_ms: 20 }.encode(8, to)),
        ),
        (
            Kind::AcceptedReply,
            frame(|to| AcceptedReply { events: vec![accepted], more: true, undecided_floor: Some(key) }.encode(9, to)),
        ),
        (
            Kind::StreamsReply,
            frame(|to| {
                StreamsReply { streams: vec![StreamInfo { name: stream("physics"), accepted: 6 }] }.encode(10, to)
            }),
        ),
        (Kind::RunsReply, frame(|to| RunsReply { runs: vec![run] }.encode(11, to))),
        (Kind::StatusReply, frame(|to| StatusReply { json: "{\"lanes\":4}".to_owned() }.encode(12, to))),
        (Kind::Done, frame(|to| Done.encode(13, to))),
        (Kind::Error, frame(|to| error.encode(14, to))),
    ]
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{}", words.join(" ")).expect("text grows");
    }
    text
}

#[test]
fn the_bytes_are_the_stored_ones() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for (kind, bytes) in frames() {
        let path = directory.join(format!("{kind}.hex"));
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&path, hex(&bytes)).expect("written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(hex(&bytes), stored, "{kind}: the bytes on the wire have changed");
    }
}

#[test]
fn there_is_a_frame_of_every_kind() {
    let kinds: Vec<Kind> = frames().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, Kind::ALL);
    for (kind, bytes) in frames() {
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        assert_eq!((frame.kind(), frame.header.frame_bytes()), (Some(kind), bytes.len()));
    }
}

#[test]
fn the_document_has_every_number() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let document = std::fs::read_to_string(path).expect("docs/protocol.md");
    let mut lines: Vec<String> = Vec::new();
    lines.extend(Kind::ALL.iter().map(|kind| format!("| `{:#06x}` | {kind} |", kind.code())));
    lines.extend(Class::ALL.iter().map(|class| format!("| {} | {class} |", class.code())));
    lines.extend(ErrorCode::ALL.iter().map(|code| format!("| {} | {code} |", code.code())));
    lines.extend(EventState::ALL.iter().map(|state| format!("| {} | {state} |", state.code())));
    lines.extend(PutOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.extend(ReadOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.extend(DecideOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.push(format!("FRAME_TABLE_BYTES_MAX | {} |", limits::FRAME_TABLE_BYTES_MAX));
    lines.push(format!("FRAME_PAYLOAD_BYTES_MAX | {} |", limits::FRAME_PAYLOAD_BYTES_MAX));
    lines.push(format!("BATCH_RECORDS_MAX | {} |", forebay_types::limits::BATCH_RECORDS_MAX));
    lines.push(format!("PEER_NAME_BYTES_MAX | {} |", limits::PEER_NAME_BYTES_MAX));
    lines.push(format!("SENTENCE_BYTES_MAX | {} |", limits::SENTENCE_BYTES_MAX));
    lines.push(format!("BUSY_MS_MAX | {} |", limits::BUSY_MS_MAX));
    for line in lines {
        assert!(document.contains(&line), "docs/protocol.md lacks {line:?}");
    }
    let put = frames().into_iter().find(|(kind, _)| *kind == Kind::Put).expect("a put").1;
    for line in hex(&put).lines() {
        assert!(document.contains(line), "the put drawn in docs/protocol.md lacks {line:?}");
    }
}

#[test]
fn runs_are_run_numbers() {
    // A reader in another language must find the run in the first four bytes of an id.
    let bytes = frame(|to| Get { ids: vec![FragmentId::new(0x0A0B_0C0D, 1, 2)] }.encode(1, to));
    assert_eq!(&bytes[HEADER_BYTES + 8..HEADER_BYTES + 12], &0x0A0B_0C0D_u32.to_le_bytes());
    assert_eq!(Get::decode(&bytes[HEADER_BYTES..], &[]).expect("sound").ids[0].run, RunId(0x0A0B_0C0D));
}
