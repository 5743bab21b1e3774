//! Every message reads back what was written; arbitrary and damaged bytes are errors, never panics.

use forebay_protocol::*;
use forebay_types::limits::{FILE_BYTES_MAX, FRAGMENT_BYTES_MAX};
use forebay_types::{
    Attributes, BlockRule, Cursor, DecideOutcome, DriveNumber, EventId, EventKey, FileNumber, FileOutcome, Fraction,
    FragmentId, NAME_BYTES_MAX, NameOutcome, NewNode, NodeKind, NodeView, PutOutcome, ReadOutcome, RunChange, RunId,
    RunRequest, SetAttributes, SourceFragments, SourceId, SourceSet, StoreUuid, StreamDefinition, StreamName,
    StreamRequest, StreamSources, Verdict, crc32c,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn id() -> impl Strategy<Value = FragmentId> {
    any::<(u32, u64, u32)>().prop_map(|(run, event, source)| FragmentId::new(run, event, source))
}

fn key() -> impl Strategy<Value = EventKey> {
    any::<(u32, u64)>().prop_map(|(run, event)| EventKey::new(run, event))
}

fn stream() -> impl Strategy<Value = StreamName> {
    "[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}".prop_map(|name| name.parse().expect("a name"))
}

fn keys() -> impl Strategy<Value = Vec<EventKey>> {
    vec(key(), 0..20)
}

fn file() -> impl Strategy<Value = FileNumber> {
    any::<u64>().prop_map(FileNumber)
}

/// The number of a directory: 0 is the root.
fn directory() -> impl Strategy<Value = FileNumber> {
    (1..=u64::MAX).prop_map(FileNumber)
}

fn by() -> impl Strategy<Value = Opener> {
    any::<(u64, u32)>().prop_map(|(client, opening)| Opener { client, opening })
}

fn changer() -> impl Strategy<Value = Changer> {
    (by(), any::<(u64, u64)>()).prop_map(|(opener, (change, waits_from))| Changer { opener, change, waits_from })
}

/// A name, or what somebody takes for one.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), NAME_BYTES_MAX..=NAME_BYTES_MAX + 1)]
}

fn kind() -> impl Strategy<Value = NodeKind> {
    select(NodeKind::ALL.to_vec())
}

fn attributes() -> impl Strategy<Value = Attributes> {
    any::<(u16, u32, u32, i64, i64, i64)>().prop_map(|(mode, owner, group, changed, written, accessed)| Attributes {
        mode,
        owner,
        group,
        changed_unix_ns: changed,
        written_unix_ns: written,
        accessed_unix_ns: accessed,
    })
}

fn name_change() -> impl Strategy<Value = NameChange> {
    let new = (kind(), any::<(u16, u32, u32, u64)>(), vec(any::<u8>(), 0..60));
    let new = new.prop_map(|(kind, (mode, owner, group, device), target)| NewNode {
        kind,
        mode,
        owner,
        group,
        device,
        target,
    });
    let set = any::<(Option<u16>, Option<u32>, Option<u32>, Option<i64>, Option<i64>)>();
    let set = set.prop_map(|(mode, owner, group, written_unix_ns, accessed_unix_ns)| SetAttributes {
        mode,
        owner,
        group,
        written_unix_ns,
        accessed_unix_ns,
    });
    prop_oneof![
        (file(), name(), new).prop_map(|(directory, name, new)| NameChange::Make { directory, name, new }),
        (file(), file(), name()).prop_map(|(number, directory, name)| NameChange::Link { number, directory, name }),
        (file(), name()).prop_map(|(directory, name)| NameChange::Remove { directory, name }),
        (file(), name()).prop_map(|(directory, name)| NameChange::RemoveDirectory { directory, name }),
        (file(), name(), file(), name(), any::<bool>()).prop_map(
            |(from_directory, from, to_directory, to, replace)| {
                NameChange::Rename { from_directory, from, to_directory, to, replace }
            }
        ),
        (file(), set).prop_map(|(number, set)| NameChange::Set { number, set }),
    ]
}

/// Whether a table without its last `bytes` is what older versions send.
fn ends_an_older_one(kind: Kind, bytes: usize) -> bool {
    kind == Kind::HelloReply && bytes == 8
}

fn round_trip<M: Message + PartialEq + std::fmt::Debug>(message: &M) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    message.encode_with(42, FLAG_MORE, &mut bytes);
    let frame = Frame::parse(&bytes).expect("sound").expect("whole");
    prop_assert_eq!((frame.kind(), frame.header.request, frame.header.more()), (Some(M::KIND), 42, true));
    prop_assert_eq!(&M::decode(frame.table, frame.payload).expect("sound"), message);
    // What a later version appends to the table is skipped.
    if M::KIND != Kind::StatusReply {
        let extended = [frame.table, b"a later field"].concat();
        prop_assert_eq!(&M::decode(&extended, frame.payload).expect("sound"), message);
    }
    for cut in (0..frame.table.len()).filter(|cut| !ends_an_older_one(M::KIND, frame.table.len() - cut)) {
        prop_assert!(M::decode(&frame.table[..cut], frame.payload).is_err(), "cut at {}", cut);
    }
    Ok(())
}

/// Decodes as every kind; only that it returns matters.
fn decode_all(table: &[u8], payload: &[u8]) -> usize {
    fn sound<M: Message>(table: &[u8], payload: &[u8]) -> usize {
        usize::from(M::decode(table, payload).is_ok())
    }
    let mut sound_ones = [
        sound::<Hello>,
        sound::<HelloReply>,
        sound::<PutReply>,
        sound::<Get>,
        sound::<GetEvent>,
        sound::<Delete>,
        sound::<Decide>,
        sound::<Release>,
        sound::<DecideReply>,
        sound::<Lease>,
        sound::<LeaseReply>,
        sound::<Accepted>,
        sound::<AcceptedReply>,
        sound::<StreamsReply>,
        sound::<RunsReply>,
        sound::<StatusReply>,
        sound::<InjectFault>,
        sound::<Trace>,
        sound::<Losses>,
        sound::<ChangeDrive>,
        sound::<ErrorReply>,
        sound::<FileOpen>,
        sound::<FileClose>,
        sound::<FileSet>,
        sound::<FileSeal>,
        sound::<FileRead>,
        sound::<FileStat>,
        sound::<FileReply>,
        sound::<FileStatReply>,
        sound::<NameLookup>,
        sound::<NameList>,
        sound::<ChangeName>,
        sound::<NodeReply>,
        sound::<ListReply>,
        sound::<Subscribe>,
        sound::<SubscribeReply>,
        sound::<ChangeRun>,
        sound::<RunList>,
        sound::<DefineStream>,
        sound::<StreamList>,
    ]
    .iter()
    .map(|decode| decode(table, payload))
    .sum();
    if let Ok(put) = Put::decode(table, payload) {
        assert_eq!(put.entries().map(|(_, bytes)| bytes.len()).sum::<usize>(), payload.len());
        sound_ones += 1;
    }
    if let Ok(reply) = GetReply::decode(table, payload) {
        assert_eq!(reply.entries().map(|(_, bytes)| bytes.len()).sum::<usize>(), payload.len());
        sound_ones += 1;
    }
    if let Ok(reply) = GetEventReply::decode(table, payload) {
        assert_eq!(reply.entries().map(|(_, bytes)| bytes.len()).sum::<usize>(), payload.len());
        sound_ones += reply.lines().len();
    }
    if let Ok(write) = FileWrite::read_table(table, payload.len()) {
        assert_eq!(write.bytes as usize, payload.len());
        sound_ones += 1;
    }
    if let Ok((reply, bytes)) = FileReadReply::decode(table, payload) {
        assert_eq!((bytes, reply.bytes as usize), (payload, payload.len()));
        sound_ones += 1;
    }
    sound_ones
}

proptest! {
    #[test]
    fn greetings(version: u16, lane: u16, class in select(Class::ALL), name in "[a-z é]{0,30}",
        lanes in 1u16..=64, read_only: bool, store: [u8; 16], epoch: u64, sizes: (u32, u32, u32)) {
        round_trip(&Hello { protocol_version: version, lane, class, name: name.clone() })?;
        round_trip(&HelloReply {
            protocol_version: version, lanes, lane, read_only, store: StoreUuid::from_bytes(store), epoch,
            fragment_bytes_max: sizes.0, frame_payload_bytes_max: sizes.1, credit_bytes: sizes.2, server: name, local: epoch / 3,
        })?;
    }

    #[test]
    fn a_greeting_of_an_older_server_names_no_socket(server in "[a-z é]{0,30}", local: u64) {
        let mut bytes = Vec::new();
        let reply = HelloReply {
            protocol_version: 1, lanes: 2, lane: 1, read_only: false, store: StoreUuid::from_bytes([3; 16]), epoch: 4,
            fragment_bytes_max: 5, frame_payload_bytes_max: 6, credit_bytes: 7, server, local,
        };
        reply.encode(1, &mut bytes);
        let older = HelloReply::decode(&bytes[HEADER_BYTES..bytes.len() - 8], &[]).expect("it ends where older ones end");
        prop_assert_eq!(older, HelloReply { local: 0, ..reply });
    }

    #[test]
    fn long_names_are_cut_between_characters(name in "\\PC{0,200}") {
        let mut bytes = Vec::new();
        Hello { protocol_version: 1, lane: 0, class: Class::Mover, name: name.clone() }.encode(1, &mut bytes);
        let read = Hello::decode(&bytes[HEADER_BYTES..], &[]).expect("sound");
        prop_assert!(name.starts_with(&read.name) && read.name.len() <= limits::PEER_NAME_BYTES_MAX);
        prop_assert!(name.len() - read.name.len() < 4 || read.name.len() > limits::PEER_NAME_BYTES_MAX - 4);
    }

    #[test]
    fn puts(items in vec((id(), vec(any::<u8>(), 0..100), any::<u16>()), 0..20)) {
        let entries: Vec<PutEntry> = items.iter().map(|(id, bytes, expected)| PutEntry {
            id: *id, bytes: bytes.len() as u32, crc: crc32c(bytes), expected: *expected,
        }).collect();
        let pieces: Vec<&[u8]> = items.iter().map(|(_, bytes, _)| &bytes[..]).collect();
        let mut bytes = Vec::new();
        encode_put(7, &entries, &pieces, &mut bytes);
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        let put = Put::decode(frame.table, frame.payload).expect("sound");
        prop_assert_eq!((put.len(), put.is_empty(), put.payload_bytes()), (items.len(), items.is_empty(), frame.payload.len()));
        prop_assert!(put.entries().eq(entries.into_iter().zip(pieces)));
        if !frame.payload.is_empty() {
            let error = Put::decode(frame.table, &frame.payload[1..]).expect_err("short");
            let is_length = matches!(error, FrameError::PayloadLength { .. });
            prop_assert!(is_length);
        }
    }

    #[test]
    fn reads(items in vec((any::<u32>(), any::<u32>(), option::of(vec(any::<u8>(), 0..100))), 0..20),
        ids in vec(id(), 0..20), events in keys(), sources in option::of(vec(any::<u32>().prop_map(SourceId), 0..9)),
        state in select(EventState::ALL), expected: u16) {
        round_trip(&Get { ids })?;
        round_trip(&GetEvent { events, sources })?;
        let pieces: Vec<&[u8]> = items.iter().map(|(_, _, bytes)| bytes.as_deref().unwrap_or_default()).collect();
        let outcome = |bytes: &Option<Vec<u8>>| if bytes.is_some() { ReadOutcome::Found } else { ReadOutcome::Unavailable };
        let gets: Vec<GetEntry> = items.iter().zip(&pieces).map(|((index, crc, bytes), piece)| GetEntry {
            index: *index, outcome: outcome(bytes), bytes: piece.len() as u32, crc: *crc,
        }).collect();
        let mut bytes = Vec::new();
        encode_get_reply(1, 0, &gets, &pieces, &mut bytes);
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        let reply = GetReply::decode(frame.table, frame.payload).expect("sound");
        prop_assert_eq!((reply.len(), reply.is_empty()), (items.len(), items.is_empty()));
        prop_assert!(reply.entries().eq(gets.into_iter().zip(pieces.iter().copied())));

        let entries: Vec<SourceEntry> = items.iter().zip(&pieces).map(|((index, crc, bytes), piece)| SourceEntry {
            index: *index, source: SourceId(*crc), outcome: outcome(bytes), bytes: piece.len() as u32, crc: *crc,
        }).collect();
        let lines: Vec<EventLine> = items.iter().map(|(index, fragments, bytes)| EventLine {
            index: *index, outcome: outcome(bytes), state, expected, fragments: *fragments,
        }).collect();
        let mut bytes = Vec::new();
        encode_get_event_reply(1, FLAG_MORE, &lines, &entries, &pieces, &mut bytes);
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        let reply = GetEventReply::decode(frame.table, frame.payload).expect("sound");
        prop_assert!(reply.lines().eq(lines));
        prop_assert!(reply.entries().eq(entries.into_iter().zip(pieces)));
    }

    #[test]
    fn outcomes(puts in vec(select(PutOutcome::ALL), 0..50), decided in vec(select(DecideOutcome::ALL), 0..50),
        credit_bytes: u32, busy_ms: u32) {
        round_trip(&PutReply { credit_bytes, busy_ms, outcomes: puts })?;
        round_trip(&DecideReply { outcomes: decided })?;
    }

    #[test]
    fn events(events in keys(), stream in stream(), after in option::of(key()), max: u32, duration_ms: u32, filter: u64,
        run in option::of(any::<u32>().prop_map(RunId))) {
        round_trip(&Delete { events: events.clone() })?;
        round_trip(&Release { stream: stream.clone(), events })?;
        round_trip(&Accepted { stream: stream.clone(), after, max })?;
        round_trip(&Lease { max_events: max, duration_ms, filter, run })?;
        let fraction = Fraction::from_millionths(duration_ms % 1_000_001).expect("a part");
        let cursor = after.map(|key| Cursor { start: filter, sequence: key.event.0 });
        round_trip(&Subscribe { max, fraction, run, after: cursor, stream: None })?;
        round_trip(&Subscribe { max, fraction, run, after: cursor, stream: Some(stream.clone()) })?;
        round_trip(&RunList { after: run, max })?;
        round_trip(&StreamList { stream: run.map(|_| stream) })?;
    }

    #[test]
    fn changes_of_runs(ids in any::<(u32, u32, u64)>(), by in "[a-zé ]{0,40}", reason in "[a-zé ]{0,80}", events in option::of(any::<u64>()),
        sources in vec(any::<u16>(), 0..30), counts in vec((any::<u16>(), any::<u64>()), 0..30), accept_difference: bool) {
        let text: Vec<String> = sources.iter().map(u16::to_string).collect();
        let sources = SourceSet::try_from(text.join(",")).expect("sources");
        let fragments = SourceFragments::of_counts(counts.into_iter().map(|(s, c)| (SourceId(s.into()), c))).expect("few");
        for what in [
            RunChange::Declare { sources },
            RunChange::Start,
            RunChange::Stop { events, fragments },
            RunChange::Close { accept_difference },
            RunChange::Hold,
            RunChange::EndHold,
            RunChange::Discard,
        ] {
            let (by, reason) = (by.clone(), reason.clone());
            round_trip(&ChangeRun(RunRequest { run: RunId(ids.0), changes: ids.1, token: ids.2, by, reason, what }))?;
        }
    }

    #[test]
    fn definitions_of_streams(name in stream(), ids in any::<(u32, u64)>(), by in "[a-z]{0,20}", part in vec(any::<u16>(), 0..30), prescale: u32,
        format in "[a-z]{0,20}", priority: u16, destination in "[ -~]{0,60}", block in (0..3u8, any::<u64>())) {
        let text: Vec<String> = part.iter().map(u16::to_string).collect();
        let part = SourceSet::try_from(text.join(",")).expect("sources");
        let sources = if part.is_empty() { StreamSources::All } else { StreamSources::Part(part) };
        let block = match block {
            (0, _) => BlockRule::Run,
            (1, events) => BlockRule::Events(events),
            (_, seconds) => BlockRule::Seconds(seconds),
        };
        let definition = StreamDefinition { sources, prescale, format, priority, destination, block };
        round_trip(&DefineStream(StreamRequest { name, version: ids.0, token: ids.1, by, definition }))?;
    }

    #[test]
    fn decisions(decisions in vec((key(), option::of(vec(stream(), 1..4)), any::<bool>()), 0..60)) {
        let verdicts: Vec<(EventKey, Verdict, bool)> = decisions.into_iter().map(|(key, streams, incomplete)| {
            (key, streams.map_or(Verdict::Reject, Verdict::Accept), incomplete)
        }).collect();
        let mut left = &verdicts[..];
        while !left.is_empty() {
            let (decide, taken) =
                decide_from_verdicts(left.iter().map(|(key, verdict, flag)| (*key, verdict, *flag))).expect("some streams");
            prop_assert!(taken > 0 && decide.entries.len() == taken);
            round_trip(&decide)?;
            for (entry, (key, verdict, incomplete)) in decide.entries.iter().zip(left) {
                prop_assert_eq!((entry.key, entry.incomplete), (*key, *incomplete));
                let sorted = |verdict: &Verdict| match verdict {
                    Verdict::Reject => Vec::new(),
                    Verdict::Accept(names) => {
                        let mut names = names.clone();
                        names.sort();
                        names.dedup();
                        names
                    }
                };
                prop_assert_eq!(sorted(&decide.verdict(entry)), sorted(verdict));
            }
            left = &left[taken..];
        }
    }

    #[test]
    fn lists(items in vec((key(), any::<(u32, u16, u16, u64, bool)>()), 0..20), names in vec((stream(), any::<u64>()), 0..20),
        more: bool, undecided_floor in option::of(key()), undecided: u64, retry_after_ms: u32) {
        let leased = items.iter().map(|(key, (fragments, expected, attempt, bytes, incomplete))| LeasedEvent {
            key: *key, fragments: *fragments, expected: *expected, attempt: *attempt, bytes: *bytes, incomplete: *incomplete,
        });
        round_trip(&LeaseReply { events: leased.collect(), undecided, retry_after_ms })?;
        let accepted = items.iter().map(|(key, (fragments, _, _, bytes, incomplete))| AcceptedEvent {
            key: *key, fragments: *fragments, bytes: *bytes, incomplete: *incomplete,
        });
        round_trip(&AcceptedReply { events: accepted.collect(), more, undecided_floor })?;
        let told = items.iter().map(|(key, (fragments, _, _, bytes, incomplete))| ToldEvent {
            key: *key, fragments: *fragments, bytes: *bytes, incomplete: *incomplete,
        });
        let next = Cursor { start: undecided, sequence: !undecided };
        round_trip(&SubscribeReply {
            events: told.collect(), next, restarted: more, dropped: undecided, gone: retry_after_ms, retry_after_ms,
        })?;
        let runs = items.iter().map(|(key, (_, _, _, number, _))| RunInfo {
            run: key.run, events: *number, undecided, finished: *number, first_event: key.event, last_event: EventId(*number),
        });
        round_trip(&RunsReply { runs: runs.collect() })?;
        let streams = names.into_iter().map(|(name, accepted)| StreamInfo { name, accepted });
        round_trip(&StreamsReply { streams: streams.collect() })?;
    }

    #[test]
    fn control(json in "\\PC{0,300}", sentence in "[ -~]{0,500}", code in select(ErrorCode::ALL), retryable: bool, drive: u16) {
        round_trip(&ErrorReply { code, retryable, sentence })?;
        round_trip(&InjectFault { drive: DriveNumber(drive) })?;
        let changes = [
            DriveChange::Fail { force: drive % 3 == 0 },
            DriveChange::Retire,
            DriveChange::Replace { path: "/dev/disk/by-id/é".to_owned(), force: drive % 2 == 0 },
        ];
        for change in changes {
            round_trip(&ChangeDrive { drive: DriveNumber(drive), change })?;
        }
        round_trip(&Streams)?;
        round_trip(&Runs)?;
        round_trip(&Status)?;
        round_trip(&Trace { key: EventKey::new(u32::from(drive), u64::MAX - 7) })?;
        round_trip(&Losses { from: u32::from(drive), max: u32::MAX })?;
        round_trip(&Ping)?;
        round_trip(&Scrub)?;
        round_trip(&Done)?;
        let mut bytes = Vec::new();
        StatusReply { json: json.clone() }.encode(1, &mut bytes);
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        prop_assert_eq!(StatusReply::decode(frame.table, frame.payload).expect("sound"), StatusReply { json });
    }

    #[test]
    fn files(file in file(), by in by(), changer in changer(), write: bool, length in option::of(any::<u64>()), written_unix_ns in option::of(any::<i64>()),
        start: u64, bytes in 0..=FRAGMENT_BYTES_MAX as u32, files in vec(file(), 0..20)) {
        round_trip(&FileOpen { file, by, write })?;
        round_trip(&FileClose { file, by })?;
        for by in [None, Some(changer).filter(|by| by.opener.client != 0)] {
            round_trip(&FileSet { file, by, length, written_unix_ns })?;
            round_trip(&FileSeal { file, by, unless_written: write })?;
        }
        round_trip(&FileRead { file, start, bytes })?;
        round_trip(&FileStat { files })?;
    }

    #[test]
    fn bytes_of_files(file in file(), by in changer(), start in option::of(0..u64::MAX), appends: bool, payload in vec(any::<u8>(), 0..100), request: u64) {
        let (bytes, crc) = (payload.len() as u32, crc32c(&payload));
        let write = FileWrite { file, by, start, bytes, crc, appends };
        let mut whole = Vec::new();
        write.encode(request, &payload, &mut whole);
        let frame = Frame::parse(&whole).expect("sound").expect("whole");
        prop_assert_eq!((frame.kind(), frame.header.request, frame.payload), (Some(Kind::FileWrite), request, &payload[..]));
        let read = |table: &[u8], payload_bytes| FileWrite::read_table(table, payload_bytes);
        prop_assert_eq!(read(frame.table, payload.len()), Ok(write));
        prop_assert_eq!(read(&[frame.table, b"a later field"].concat(), payload.len()), Ok(write));
        for cut in 0..frame.table.len() {
            prop_assert!(read(&frame.table[..cut], payload.len()).is_err(), "cut at {}", cut);
        }
        let is_length = matches!(read(frame.table, payload.len() + 1), Err(FrameError::PayloadLength { .. }));
        prop_assert!(is_length);

        let reply = FileReadReply { outcome: ReadOutcome::Found, bytes, crc };
        let mut whole = Vec::new();
        reply.encode(request, &payload, &mut whole);
        let frame = Frame::parse(&whole).expect("sound").expect("whole");
        prop_assert_eq!((frame.kind(), frame.header.request), (Some(Kind::FileReadReply), request));
        prop_assert_eq!(FileReadReply::decode(frame.table, frame.payload), Ok((reply, &payload[..])));
        let extended = [frame.table, b"a later field"].concat();
        prop_assert_eq!(FileReadReply::decode(&extended, frame.payload), Ok((reply, &payload[..])));
        for cut in 0..frame.table.len() {
            prop_assert!(FileReadReply::decode(&frame.table[..cut], frame.payload).is_err(), "cut at {}", cut);
        }
        let longer = [frame.payload, b"x"].concat();
        let is_length = matches!(FileReadReply::decode(frame.table, &longer), Err(FrameError::PayloadLength { .. }));
        prop_assert!(is_length);
    }

    #[test]
    fn answers_about_files(outcome in select(FileOutcome::ALL), start in 0..=FILE_BYTES_MAX, files in vec(
        (select(ReadOutcome::ALL), any::<(bool, bool, Option<(u32, u32)>)>(), 0..=FILE_BYTES_MAX, any::<i64>()), 0..20)) {
        round_trip(&FileReply { outcome, start })?;
        let files = files.into_iter().map(|(outcome, (sealed, is_written, sums), length, written_unix_ns)| FileInfo {
            outcome, sealed, is_written, sums, length, written_unix_ns,
        });
        round_trip(&FileStatReply { files: files.collect() })?;
    }

    #[test]
    fn names(directory in option::of(directory()), name in name(), max: u32, client: u64, change: u64, what in name_change()) {
        round_trip(&NameLookup { directory, name: name.clone() })?;
        round_trip(&NameList { directory, after: name, max })?;
        round_trip(&ChangeName { client, change, waits_from: change / 2, what })?;
    }

    #[test]
    fn answers_about_names(number in file(), parent in file(), kind in kind(), attributes in attributes(), links: u32, device: u64,
        target in vec(any::<u8>(), 0..60), more: bool, outcome in select(NameOutcome::ALL),
        entries in vec((file(), self::kind(), vec(any::<u8>(), 1..20)), 0..9)) {
        let view = NodeView { kind, attributes, links, device, target };
        round_trip(&NodeReply { outcome: NameOutcome::Done, node: Some(Node { number, parent, view }) })?;
        round_trip(&NodeReply { outcome, node: None })?;
        let entries = entries.into_iter().map(|(number, kind, name)| NameEntry { number, kind, name });
        round_trip(&ListReply { outcome: NameOutcome::Done, more, entries: entries.collect() })?;
        round_trip(&ListReply { outcome, more, entries: Vec::new() })?;
    }

    #[test]
    fn arbitrary_bytes_are_no_harm(table in vec(any::<u8>(), 0..400), payload in vec(any::<u8>(), 0..40)) {
        decode_all(&table, &payload);
        decode_all(&table, &[]);
        let mut buffer = FrameBuffer::new();
        buffer.extend(&table);
        prop_assert!(!matches!(buffer.next_frame(), Ok(Some(_))));
    }

    /// Tables whose first words are small read as counts get further into the decoders.
    #[test]
    fn arbitrary_tables_with_plausible_counts_are_no_harm(
        counts in vec(0u32..20, 4), rest in vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..800), payload in vec(any::<u8>(), 0..9)) {
        let mut table: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        table.extend(rest);
        decode_all(&table, &payload);
        decode_all(&table, &[]);
    }
}

#[test]
fn a_count_beyond_the_limit_is_an_error_with_the_numbers() {
    let mut table = 16_385u32.to_le_bytes().to_vec();
    table.resize(1 << 20, 0);
    for error in [
        Put::decode(&table, &[]).expect_err("too many"),
        Get::decode(&table, &[]).map(drop).expect_err("too many"),
        Decide::decode(&table, &[]).map(drop).expect_err("too many"),
    ] {
        assert_eq!(error.code(), ErrorCode::TooLarge);
        assert!(error.to_string().contains("16385") && error.to_string().contains("16384"), "{error}");
    }
    let announced = [&16_384u32.to_le_bytes()[..], &[0; 100]].concat();
    assert!(matches!(Get::decode(&announced, &[]), Err(FrameError::Truncated { wanted: 262_144, left: 96, .. })));
}

#[test]
fn a_decision_for_no_stream_or_an_unnamed_one_is_refused() {
    assert_eq!(decide_from_verdicts([(EventKey::new(1, 1), &Verdict::Accept(Vec::new()), false)]), Err(0));
    let decide = Decide {
        streams: vec!["physics".parse().expect("a name")],
        entries: vec![DecideEntry { key: EventKey::new(1, 1), streams: 0b10, incomplete: false }],
    };
    let mut bytes = Vec::new();
    decide.encode(1, &mut bytes);
    let error = Decide::decode(&bytes[HEADER_BYTES..], &[]).expect_err("bit 1 has no name");
    assert!(matches!(error, FrameError::BadValue { value: 2, .. }), "{error}");
}
