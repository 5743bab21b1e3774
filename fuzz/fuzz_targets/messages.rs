//! Every message, of clients and of servers: an input is a frame, of which the kind says what it is.
#![no_main]

use std::collections::BTreeSet;
use std::fmt::Debug;

use forebay_fuzz::{bounded, mend_frame};
use forebay_protocol::*;
use forebay_types::Verdict;
use libfuzzer_sys::fuzz_target;

/// What memory the message of a frame may take.
fn bytes_max(frame: &Frame<'_>) -> usize {
    4 * (frame.table.len() + frame.payload.len()) + 4096
}

/// What decodes encodes to bytes that decode to the same.
fn message<M: Message + PartialEq + Debug>(frame: &Frame<'_>) {
    let Ok(message) = bounded(bytes_max(frame), || M::decode(frame.table, frame.payload)) else { return };
    let mut bytes = Vec::new();
    message.encode_with(frame.header.request, frame.header.flags & FLAG_MORE, &mut bytes);
    let again = Frame::parse(&bytes).expect("a sound frame").expect("a whole one");
    assert_eq!((again.kind(), again.header.request), (Some(M::KIND), frame.header.request));
    assert_eq!(M::decode(again.table, again.payload).as_ref(), Ok(&message));
    if let Ok(table) = M::read_table(frame.table) {
        assert_eq!(table, message);
    }
}

/// The frame that `bytes` are, whose table and payload are to mean what `frame` meant.
fn again(bytes: &[u8]) -> Frame<'_> {
    Frame::parse(bytes).expect("a sound frame").expect("a whole one")
}

fn put(frame: &Frame<'_>) {
    let Ok(put) = bounded(4096, || Put::decode(frame.table, frame.payload)) else { return };
    let (entries, payloads): (Vec<PutEntry>, Vec<&[u8]>) = put.entries().unzip();
    assert_eq!(
        (put.len(), put.is_empty(), put.payload_bytes()),
        (entries.len(), entries.is_empty(), frame.payload.len())
    );
    assert!(put.table_entries().eq(entries.iter().copied()));
    let mut bytes = Vec::new();
    encode_put(frame.header.request, &entries, &payloads, &mut bytes);
    let again = again(&bytes);
    let same = Put::decode(again.table, again.payload).expect("what was encoded");
    assert!(same.entries().eq(put.entries()));
}

fn get_reply(frame: &Frame<'_>) {
    let Ok(reply) = bounded(4096, || GetReply::decode(frame.table, frame.payload)) else { return };
    let (entries, payloads): (Vec<GetEntry>, Vec<&[u8]>) = reply.entries().unzip();
    assert_eq!((reply.len(), reply.is_empty()), (entries.len(), entries.is_empty()));
    let mut bytes = Vec::new();
    encode_get_reply(frame.header.request, 0, &entries, &payloads, &mut bytes);
    let again = again(&bytes);
    let same = GetReply::decode(again.table, again.payload).expect("what was encoded");
    assert!(same.entries().eq(reply.entries()));
}

fn get_event_reply(frame: &Frame<'_>) {
    let Ok(reply) = bounded(4096, || GetEventReply::decode(frame.table, frame.payload)) else { return };
    let lines: Vec<EventLine> = reply.lines().collect();
    let (entries, payloads): (Vec<SourceEntry>, Vec<&[u8]>) = reply.entries().unzip();
    let mut bytes = Vec::new();
    encode_get_event_reply(frame.header.request, 0, &lines, &entries, &payloads, &mut bytes);
    let again = again(&bytes);
    let same = GetEventReply::decode(again.table, again.payload).expect("what was encoded");
    assert!(same.lines().eq(lines) && same.entries().eq(reply.entries()));
}

fn file_write(frame: &Frame<'_>) {
    let Ok(write) = bounded(4096, || FileWrite::read_table(frame.table, frame.payload.len())) else { return };
    let mut bytes = Vec::new();
    write.encode(frame.header.request, frame.payload, &mut bytes);
    let again = again(&bytes);
    assert_eq!((again.kind(), again.payload), (Some(FileWrite::KIND), frame.payload));
    assert_eq!(FileWrite::read_table(again.table, again.payload.len()), Ok(write));
}

fn file_read_reply(frame: &Frame<'_>) {
    let Ok((reply, payload)) = bounded(4096, || FileReadReply::decode(frame.table, frame.payload)) else { return };
    assert_eq!(payload, frame.payload);
    let mut bytes = Vec::new();
    reply.encode(frame.header.request, payload, &mut bytes);
    let again = again(&bytes);
    assert_eq!(again.kind(), Some(FileReadReply::KIND));
    assert_eq!(FileReadReply::decode(again.table, again.payload), Ok((reply, payload)));
}

fn decide(frame: &Frame<'_>) {
    message::<Decide>(frame);
    let Ok(decide) = Decide::decode(frame.table, frame.payload) else { return };
    // The names of up to 64 streams for each decision: the first hundred are enough.
    let verdicts: Vec<_> = decide.entries.iter().take(100).map(|entry| decide.verdict(entry)).collect();
    let decisions = decide.entries.iter().zip(&verdicts).map(|(entry, verdict)| (entry.key, verdict, entry.incomplete));
    let (same, taken) = decide_from_verdicts(decisions).expect("no decision accepts into no stream");
    assert_eq!(taken, verdicts.len());
    // A stream that a client named twice is named once.
    let streams = |verdict: &Verdict| match verdict {
        Verdict::Accept(streams) => streams.iter().cloned().collect(),
        Verdict::Reject => BTreeSet::new(),
    };
    assert!(
        same.entries.iter().zip(&verdicts).all(|(entry, verdict)| streams(&same.verdict(entry)) == streams(verdict))
    );
}

fn check(frame: &Frame<'_>) {
    match frame.kind() {
        None => {}
        Some(Kind::Put) => put(frame),
        Some(Kind::GetReply) => get_reply(frame),
        Some(Kind::GetEventReply) => get_event_reply(frame),
        Some(Kind::FileWrite) => file_write(frame),
        Some(Kind::FileReadReply) => file_read_reply(frame),
        Some(Kind::Decide) => decide(frame),
        Some(Kind::Hello) => message::<Hello>(frame),
        Some(Kind::Get) => message::<Get>(frame),
        Some(Kind::GetEvent) => message::<GetEvent>(frame),
        Some(Kind::Delete) => message::<Delete>(frame),
        Some(Kind::Release) => message::<Release>(frame),
        Some(Kind::Lease) => message::<Lease>(frame),
        Some(Kind::Accepted) => message::<Accepted>(frame),
        Some(Kind::Streams) => message::<Streams>(frame),
        Some(Kind::Runs) => message::<Runs>(frame),
        Some(Kind::Status) => message::<Status>(frame),
        Some(Kind::Ping) => message::<Ping>(frame),
        Some(Kind::InjectFault) => message::<InjectFault>(frame),
        Some(Kind::ChangeDrive) => message::<ChangeDrive>(frame),
        Some(Kind::Scrub) => message::<Scrub>(frame),
        Some(Kind::Trace) => message::<Trace>(frame),
        Some(Kind::Losses) => message::<Losses>(frame),
        Some(Kind::FileOpen) => message::<FileOpen>(frame),
        Some(Kind::FileClose) => message::<FileClose>(frame),
        Some(Kind::FileSet) => message::<FileSet>(frame),
        Some(Kind::FileSeal) => message::<FileSeal>(frame),
        Some(Kind::FileRead) => message::<FileRead>(frame),
        Some(Kind::FileStat) => message::<FileStat>(frame),
        Some(Kind::NameLookup) => message::<NameLookup>(frame),
        Some(Kind::NameList) => message::<NameList>(frame),
        Some(Kind::ChangeName) => message::<ChangeName>(frame),
        Some(Kind::ChangeRun) => message::<ChangeRun>(frame),
        Some(Kind::RunList) => message::<RunList>(frame),
        Some(Kind::DefineStream) => message::<DefineStream>(frame),
        Some(Kind::StreamList) => message::<StreamList>(frame),
        Some(Kind::Subscribe) => message::<Subscribe>(frame),
        Some(Kind::HelloReply) => message::<HelloReply>(frame),
        Some(Kind::PutReply) => message::<PutReply>(frame),
        Some(Kind::DecideReply) => message::<DecideReply>(frame),
        Some(Kind::LeaseReply) => message::<LeaseReply>(frame),
        Some(Kind::AcceptedReply) => message::<AcceptedReply>(frame),
        Some(Kind::StreamsReply) => message::<StreamsReply>(frame),
        Some(Kind::RunsReply) => message::<RunsReply>(frame),
        Some(Kind::StatusReply) => status_reply(frame),
        Some(Kind::Done) => message::<Done>(frame),
        Some(Kind::FileReply) => message::<FileReply>(frame),
        Some(Kind::FileStatReply) => message::<FileStatReply>(frame),
        Some(Kind::NodeReply) => message::<NodeReply>(frame),
        Some(Kind::ListReply) => message::<ListReply>(frame),
        Some(Kind::SubscribeReply) => message::<SubscribeReply>(frame),
        Some(Kind::Error) => message::<ErrorReply>(frame),
    }
}

/// The state has a checksum of its own in the table.
fn status_reply(frame: &Frame<'_>) {
    message::<StatusReply>(frame);
    let mut table = frame.table.to_vec();
    if table.len() >= 8 {
        table[..4].copy_from_slice(&(frame.payload.len() as u32).to_le_bytes());
        table[4..8].copy_from_slice(&forebay_types::crc32c(frame.payload).to_le_bytes());
        if let Ok(reply) = StatusReply::decode(&table, frame.payload) {
            assert_eq!(reply.json.as_bytes(), frame.payload);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(Some(frame)) = Frame::parse(input) {
        check(&frame);
    }
    let mended = mend_frame(input);
    match Frame::parse(&mended) {
        Ok(Some(frame)) => check(&frame),
        Ok(None) => panic!("a mended frame is whole"),
        Err(error) => {
            assert!(matches!(error, FrameError::UnknownFlags { .. } | FrameError::TooLarge { .. }), "{error}")
        }
    }
});
