//! A frame of each kind.

use forebay_protocol::*;
use forebay_types::{
    Attributes, BlockRule, Cursor, DecideOutcome, DriveNumber, EventId, EventKey, FileNumber, FileOutcome, Fraction,
    FragmentId, NameOutcome, NewNode, NodeKind, NodeView, PutOutcome, ReadOutcome, RunChange, RunId, RunRequest,
    SetAttributes, SourceFragments, SourceId, SourceSet, StoreUuid, StreamDefinition, StreamName, StreamRequest,
    StreamSources, crc32c,
};

pub fn frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

/// Every change of a name, as the document calls it. The first has most fields, and is that of the stored frame.
pub fn name_changes() -> Vec<(&'static str, NameChange)> {
    let (directory, other) = (FileNumber(0x3132_3334), FileNumber(0x4142_4344));
    let (name, second) = (|| b"data.raw".to_vec(), || b"../runs/7".to_vec());
    let new = NewNode { kind: NodeKind::Link, mode: 0o751, owner: 1001, group: 1002, device: 0x0103, target: second() };
    let set = SetAttributes {
        mode: Some(0o640),
        owner: Some(1003),
        group: Some(1004),
        written_unix_ns: Some(-5),
        accessed_unix_ns: Some(1_700_000_000_000_000_006),
    };
    let some = SetAttributes { group: Some(1005), accessed_unix_ns: Some(-7), ..SetAttributes::default() };
    let rename = |replace| NameChange::Rename {
        from_directory: directory,
        from: name(),
        to_directory: other,
        to: second(),
        replace,
    };
    vec![
        ("Make", NameChange::Make { directory, name: name(), new }),
        ("Link", NameChange::Link { number: other, directory, name: name() }),
        ("Remove", NameChange::Remove { directory, name: name() }),
        ("RemoveDirectory", NameChange::RemoveDirectory { directory, name: name() }),
        ("Rename", rename(true)),
        ("Rename", rename(false)),
        ("Set", NameChange::Set { number: other, set }),
        ("Set", NameChange::Set { number: other, set: some }),
    ]
}

/// A frame of each kind that can be sent. Lists have two entries, and numbers that mean different things differ.
pub fn frames() -> Vec<(Kind, Vec<u8>)> {
    let key = EventKey::new(0x1920, 0x0102_0304_0506_0708);
    let id = FragmentId { run: key.run, event: key.event, source: SourceId(0x0001_2345) };
    let (key_2, id_2) = (EventKey::new(0x1921, 0x1112_1314), FragmentId::new(0x1922, 0x2122_2324, 0x2345));
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
        EventLine { index: 6, outcome: ReadOutcome::Found, state: EventState::Leased, expected: 3, fragments: 2 };
    let line_2 = EventLine {
        index: 5,
        outcome: ReadOutcome::Deleted,
        state: EventState::Finished,
        expected: 0x708,
        fragments: 0x607,
    };
    let source = SourceEntry {
        index: 0,
        source: id.source,
        outcome: ReadOutcome::Found,
        bytes: two.len() as u32,
        crc: crc32c(two),
    };
    let source_2 = SourceEntry { index: 4, source: id_2.source, outcome: ReadOutcome::Lost, bytes: 0, crc: 0x0A0B };
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
        local: 0x0102_0304_0506_0708,
    };
    let decide = Decide {
        streams: vec![stream("physics"), stream("debug")],
        entries: vec![
            DecideEntry { key, streams: 0b11, incomplete: true },
            DecideEntry { key: EventKey::new(1, 2), streams: 0, incomplete: false },
        ],
    };
    let change_drive = ChangeDrive {
        drive: DriveNumber(2),
        change: DriveChange::Replace { path: "/dev/sdx".to_owned(), force: true },
    };
    let lease = Lease { max_events: 100, duration_ms: 30_000, filter: 9, run: Some(key.run) };
    let leased = LeasedEvent { key, fragments: 2, expected: 3, attempt: 1, bytes: 4096, incomplete: true };
    let leased_2 = LeasedEvent { key: key_2, fragments: 7, expected: 8, attempt: 9, bytes: 5000, incomplete: false };
    let accepted = AcceptedEvent { key, fragments: 3, bytes: 8192, incomplete: true };
    let accepted_2 = AcceptedEvent { key: key_2, fragments: 4, bytes: 9000, incomplete: false };
    let run = RunInfo {
        run: key.run,
        events: 10,
        undecided: 4,
        finished: 5,
        first_event: EventId(1),
        last_event: EventId(12),
    };
    let run_2 = RunInfo {
        run: key_2.run,
        events: 20,
        undecided: 14,
        finished: 6,
        first_event: EventId(2),
        last_event: EventId(22),
    };
    let hello =
        Hello { protocol_version: PROTOCOL_VERSION, lane: 2, class: Class::Filter, name: "filter-1".to_owned() };
    let error = ErrorReply { code: ErrorCode::ShuttingDown, retryable: true, sentence: "Try again.".to_owned() };
    let outcomes = vec![DecideOutcome::Done, DecideOutcome::Conflict];
    let put_reply =
        PutReply { credit_bytes: 1 << 20, busy_ms: 50, outcomes: vec![PutOutcome::Durable, PutOutcome::NoSpace] };
    let (file, file_2) = (FileNumber(0x5152_5354), FileNumber(0x6162_6364_6566_6768));
    let by = Opener { client: 0x7172_7374_7576_7778, opening: 0x8182 };
    let changer = Changer { opener: by, change: 0x8384_8586, waits_from: 0x8788 };
    let write = FileWrite {
        file,
        by: changer,
        start: Some(0x9192_9394),
        bytes: one.len() as u32,
        crc: crc32c(one),
        appends: false,
    };
    let read = FileReadReply { outcome: ReadOutcome::Found, bytes: two.len() as u32, crc: crc32c(two) };
    let set = FileSet { file, by: Some(changer), length: Some(0x1_0000_0001), written_unix_ns: Some(-2) };
    let info = FileInfo {
        outcome: ReadOutcome::Found,
        sealed: true,
        is_written: false,
        sums: Some((0xA1A2_A3A4, 0xB1B2_B3B4)),
        length: 0xC1C2_C3C4,
        written_unix_ns: 1_700_000_000_000_000_001,
    };
    let info_2 = FileInfo {
        outcome: ReadOutcome::NotFound,
        sealed: false,
        is_written: true,
        sums: None,
        length: 0,
        written_unix_ns: -3,
    };
    let change =
        ChangeName { client: by.client, change: 0xD1D2_D3D4, waits_from: 0xC1C2, what: name_changes().remove(0).1 };
    let attributes = Attributes {
        mode: 0o777,
        owner: 1001,
        group: 1002,
        changed_unix_ns: 1_700_000_000_000_000_002,
        written_unix_ns: 1_700_000_000_000_000_003,
        accessed_unix_ns: -4,
    };
    let view = NodeView { kind: NodeKind::Link, attributes, links: 3, device: 0x0103, target: b"../runs/7".to_vec() };
    let node = NodeReply {
        outcome: NameOutcome::Done,
        node: Some(Node { number: file_2, parent: FileNumber(0x3132_3334), view }),
    };
    let entry = |number, kind, name: &[u8]| NameEntry { number, kind, name: name.to_vec() };
    let listed = ListReply {
        outcome: NameOutcome::Done,
        more: true,
        entries: vec![entry(file, NodeKind::File, b"data.raw"), entry(file_2, NodeKind::Directory, b"runs")],
    };
    let after = Cursor { start: 0x17, sequence: 0xE1E2_E3E4 };
    let subscribe = Subscribe {
        max: 100,
        fraction: Fraction::from_millionths(50_000).expect("a part"),
        run: Some(key.run),
        after: Some(after),
        stream: Some(stream("physics")),
    };
    let told = SubscribeReply {
        events: vec![
            ToldEvent { key, fragments: 3, bytes: 8192, incomplete: true },
            ToldEvent { key: key_2, fragments: 4, bytes: 9000, incomplete: false },
        ],
        next: Cursor { start: 0x18, sequence: 0xF1F2 },
        restarted: true,
        dropped: 0x2_0000_0003,
        gone: 5,
        retry_after_ms: 50,
    };
    let sources = |first: u32| {
        let ranges = [(SourceId(first), SourceId(first + 0x0F)), (SourceId(first + 0x20), SourceId(first + 0x2F))];
        SourceSet::from_ranges(&ranges).expect("they ascend")
    };
    let fragments =
        |first: u32, fragments| SourceFragments { first: SourceId(first), last: SourceId(first + 7), fragments };
    let change_run = ChangeRun(RunRequest {
        run: key.run,
        changes: 0x0304,
        token: 0x1718_1920_2122,
        by: "kim".to_owned(),
        reason: "beam is gone".to_owned(),
        what: RunChange::Stop {
            events: Some(0x0506_0708),
            fragments: vec![fragments(0x100, 0x4142), fragments(0x200, 0x4344)],
        },
    });
    let define_stream = DefineStream(StreamRequest {
        name: stream("physics"),
        version: 0x0304,
        token: 0x1718_1920_2122,
        by: "kim".to_owned(),
        definition: StreamDefinition {
            sources: StreamSources::Part(sources(0x100)),
            prescale: 0x0A0B,
            format: "mdf".to_owned(),
            priority: 0x0C0D,
            destination: "root://eos.example//data".to_owned(),
            block: BlockRule::Seconds(0x3C),
        },
    });
    let run_list = RunList { after: Some(RunId(0x1921)), max: 100 };
    vec![
        (Kind::Hello, frame(|to| hello.encode(1, to))),
        (Kind::Put, frame(|to| encode_put(2, &puts, &[one, two], to))),
        (Kind::Get, frame(|to| Get { ids: vec![id, id_2] }.encode(3, to))),
        (
            Kind::GetEvent,
            frame(|to| {
                GetEvent { events: vec![key, key_2], sources: Some(vec![id.source, id_2.source]) }.encode(4, to)
            }),
        ),
        (Kind::Delete, frame(|to| Delete { events: vec![key, key_2] }.encode(5, to))),
        (Kind::Decide, frame(|to| decide.encode(6, to))),
        (Kind::Release, frame(|to| Release { stream: stream("physics"), events: vec![key, key_2] }.encode(7, to))),
        (Kind::Lease, frame(|to| lease.encode(8, to))),
        (Kind::Accepted, frame(|to| Accepted { stream: stream("physics"), after: Some(key), max: 50 }.encode(9, to))),
        (Kind::Streams, frame(|to| Streams.encode(10, to))),
        (Kind::Runs, frame(|to| Runs.encode(11, to))),
        (Kind::Status, frame(|to| Status.encode(12, to))),
        (Kind::Ping, frame(|to| Ping.encode(13, to))),
        (Kind::InjectFault, frame(|to| InjectFault { drive: DriveNumber(3) }.encode(14, to))),
        (Kind::ChangeDrive, frame(|to| change_drive.encode(15, to))),
        (Kind::Scrub, frame(|to| Scrub.encode(16, to))),
        (Kind::Trace, frame(|to| Trace { key }.encode(17, to))),
        (Kind::Losses, frame(|to| Losses { from: 100, max: 50 }.encode(18, to))),
        (Kind::FileOpen, frame(|to| FileOpen { file, by, write: true }.encode(19, to))),
        (Kind::FileClose, frame(|to| FileClose { file, by }.encode(20, to))),
        (Kind::FileWrite, frame(|to| write.encode(21, one, to))),
        (Kind::FileSet, frame(|to| set.encode(22, to))),
        (Kind::FileSeal, frame(|to| FileSeal { file, by: Some(changer), unless_written: true }.encode(23, to))),
        (Kind::FileRead, frame(|to| FileRead { file, start: 0x9192_9394, bytes: 0x2122 }.encode(24, to))),
        (Kind::FileStat, frame(|to| FileStat { files: vec![file, file_2] }.encode(25, to))),
        (
            Kind::NameLookup,
            frame(|to| NameLookup { directory: Some(file_2), name: b"data.raw".to_vec() }.encode(26, to)),
        ),
        (
            Kind::NameList,
            frame(|to| NameList { directory: Some(file_2), after: b"calib".to_vec(), max: 100 }.encode(27, to)),
        ),
        (Kind::ChangeName, frame(|to| change.encode(28, to))),
        (Kind::Subscribe, frame(|to| subscribe.encode(29, to))),
        (Kind::ChangeRun, frame(|to| change_run.encode(30, to))),
        (Kind::RunList, frame(|to| run_list.encode(31, to))),
        (Kind::DefineStream, frame(|to| define_stream.encode(32, to))),
        (Kind::StreamList, frame(|to| StreamList { stream: Some(stream("physics")) }.encode(33, to))),
        (Kind::HelloReply, frame(|to| hello_reply.encode(1, to))),
        (Kind::PutReply, frame(|to| put_reply.encode(2, to))),
        (Kind::GetReply, frame(|to| encode_get_reply(3, FLAG_MORE, &gets, &[one], to))),
        (
            Kind::GetEventReply,
            frame(|to| encode_get_event_reply(4, 0, &[line, line_2], &[source, source_2], &[two], to)),
        ),
        (Kind::DecideReply, frame(|to| DecideReply { outcomes }.encode(5, to))),
        (
            Kind::LeaseReply,
            frame(|to| LeaseReply { events: vec![leased, leased_2], undecided: 77, retry_after_ms: 20 }.encode(8, to)),
        ),
        (
            Kind::AcceptedReply,
            frame(|to| {
                AcceptedReply { events: vec![accepted, accepted_2], more: true, undecided_floor: Some(key_2) }
                    .encode(9, to)
            }),
        ),
        (
            Kind::StreamsReply,
            frame(|to| {
                let info = |name, accepted| StreamInfo { name: stream(name), accepted };
                StreamsReply { streams: vec![info("physics", 6), info("debug", 7)] }.encode(10, to)
            }),
        ),
        (Kind::RunsReply, frame(|to| RunsReply { runs: vec![run, run_2] }.encode(11, to))),
        (Kind::StatusReply, frame(|to| StatusReply { json: "{\"lanes\":4}".to_owned() }.encode(12, to))),
        (Kind::Done, frame(|to| Done.encode(13, to))),
        (Kind::FileReply, frame(|to| FileReply { outcome: FileOutcome::Conflict, start: 0x9192_9394 }.encode(21, to))),
        (Kind::FileReadReply, frame(|to| read.encode(24, two, to))),
        (Kind::FileStatReply, frame(|to| FileStatReply { files: vec![info, info_2] }.encode(25, to))),
        (Kind::NodeReply, frame(|to| node.encode(28, to))),
        (Kind::ListReply, frame(|to| listed.encode(27, to))),
        (Kind::SubscribeReply, frame(|to| told.encode(29, to))),
        (Kind::Error, frame(|to| error.encode(14, to))),
    ]
}
