//! The session machine asks about files and names: what it sends, again and how often, and what it believes.

mod script;

use std::time::Duration;

use bytes::Bytes;
use forebay_client::{Answer, Part, Request, SessionConfig, SessionError, SessionEvent};
use forebay_protocol::*;
use forebay_types::limits::FILE_BYTES_MAX;
use forebay_types::{
    Attributes, FileNumber, FileOutcome, NameOutcome, NodeKind, NodeView, ReadOutcome, SetAttributes, crc32c,
};
use proptest::prelude::*;
use script::{Asked, World, config};

const FILE: FileNumber = FileNumber(7);
const BY: Opener = Opener { client: 5, opening: 1 };
const CHANGER: Changer = Changer { opener: BY, change: 1, waits_from: 1 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn write(start: Option<u64>, bytes: &'static [u8]) -> Request {
    let write =
        FileWrite { file: FILE, by: CHANGER, start, bytes: bytes.len() as u32, crc: crc32c(bytes), appends: false };
    Request::FileWrite(write, Bytes::from_static(bytes))
}

fn read(start: u64, bytes: u32) -> Request {
    Request::FileRead(FileRead { file: FILE, start, bytes })
}

/// What became of the requests so far.
fn ends(world: &World) -> Vec<(u64, Result<&Answer, &SessionError>)> {
    let mut ends = Vec::new();
    for event in &world.events {
        match event {
            SessionEvent::Answer { request, answer } => ends.push((*request, Ok(answer))),
            SessionEvent::Failed { request, error } => ends.push((*request, Err(error))),
            _ => {}
        }
    }
    ends
}

/// Asks, has it sent, and gives its number.
fn ask(world: &mut World, request: Request) -> u64 {
    let number = world.session.ask(world.now, request).expect("usable");
    world.run();
    number
}

/// Says this frame, and takes what comes of it.
fn say(world: &mut World, frame: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    frame(&mut bytes);
    world.session.received(world.now, &bytes);
    world.take();
}

fn say_bytes(world: &mut World, request: u64, bytes: &[u8], crc: u32) {
    let reply = FileReadReply { outcome: ReadOutcome::Found, bytes: bytes.len() as u32, crc };
    say(world, |frame| reply.encode(request, bytes, frame));
}

fn node(kind: NodeKind) -> Node {
    let view = NodeView { kind, attributes: Attributes::default(), links: 1, device: 0, target: Vec::new() };
    Node { number: FILE, parent: FileNumber(1), view }
}

#[test]
fn a_write_has_its_bytes_and_is_sent_again_as_it_was() {
    let mut world = World::new(config());
    let payload = b"what the detector said";
    let number = ask(&mut world, write(Some(9), payload));
    let first = world.script.files_asked.clone();
    let read = FileWrite::read_table(&first[0].table, payload.len()).expect("a write");
    assert_eq!(
        (read.start, read.by, read.crc, &first[0].payload[..]),
        (Some(9), CHANGER, crc32c(payload), &payload[..])
    );
    world.cut();
    world.advance(ms(10));
    world.run();
    assert_eq!(world.script.files_asked[1], first[0], "also with the same number");
    // Refused for now: the same under another one.
    let sentence = "later".to_owned();
    let error = ErrorReply { code: ErrorCode::NotServing, retryable: true, sentence };
    say(&mut world, |frame| error.encode(number, frame));
    while world.script.files_asked.len() == 2 {
        world.advance(ms(1));
        world.run();
    }
    let again = world.script.files_asked[2].clone();
    assert_eq!((&again.table, &again.payload), (&first[0].table, &first[0].payload));
    assert_ne!(again.request, first[0].request);
    let reply = FileReply { outcome: FileOutcome::Done, start: 9 };
    say(&mut world, |frame| reply.encode(again.request, frame));
    assert_eq!(ends(&world), [(number, Ok(&Answer::File(reply)))]);
    assert!(!world.session.has_work());
}

#[test]
fn a_write_cut_at_any_byte_arrives_once_it_is_repeated() {
    let payload = b"some bytes of a file, and some more of them";
    let mut whole = World::new(config());
    ask(&mut whole, write(Some(0), payload));
    for cut in 0..=whole.bytes_up {
        let mut world = World::new(config());
        world.session.ask(world.now, write(Some(0), payload)).expect("usable");
        world.run_until_moved(cut, usize::MAX);
        world.cut();
        world.advance(ms(10));
        world.run();
        let asked = world.script.files_asked.last().expect("it came");
        assert_eq!((asked.kind, &asked.payload[..]), (Kind::FileWrite, &payload[..]), "cut after {cut}");
    }
}

#[test]
fn answers_may_come_in_any_order() {
    let mut world = World::new(config());
    let requests: Vec<u64> = (0..9).map(|start| ask(&mut world, write(Some(start * 4), b"four"))).collect();
    for place in [3, 8, 0, 1, 7, 2, 5, 4, 6] {
        let reply = FileReply { outcome: FileOutcome::Done, start: place * 4 };
        say(&mut world, |frame| reply.encode(requests[place as usize], frame));
    }
    assert_eq!(ends(&world).len(), 9);
    assert!(ends(&world).iter().all(|(_, end)| matches!(end, Ok(Answer::File(_)))));
}

#[test]
fn an_append_that_may_have_been_taken_is_sent_again_to_the_server_that_remembers_it_alone() {
    let mut whole = World::new(config());
    ask(&mut whole, write(None, b"appended"));
    let all = whole.bytes_up;
    for (cut, is_started_anew) in (0..=all).flat_map(|cut| [(cut, false), (cut, true)]) {
        let mut world = World::new(config());
        world.session.ask(world.now, write(None, b"appended")).expect("usable");
        world.run_until_moved(cut, usize::MAX);
        world.cut();
        world.script.epoch += u64::from(is_started_anew);
        world.advance(ms(10));
        world.run();
        let unknown = matches!(ends(&world)[..], [(_, Err(SessionError::Unknown { request: "FileWrite", .. }))]);
        assert_eq!(unknown, cut == all && is_started_anew, "cut after {cut} of {all}, anew: {is_started_anew}");
        let asked = &world.script.files_asked;
        assert_eq!(asked.len(), if cut == all && !is_started_anew { 2 } else { 1 }, "cut after {cut}");
        assert!(asked.iter().all(|again| again.table == asked[0].table), "under its number");
    }
    // Whatever is said then but that it is done, or was refused, says nothing of what became of it.
    let in_doubt = || {
        let mut world = World::new(config());
        let number = ask(&mut world, write(None, b"appended"));
        world.cut();
        world.advance(ms(10));
        world.run();
        (world, number)
    };
    let (mut world, number) = in_doubt();
    let reply = FileReply { outcome: FileOutcome::NotOpen, start: 0 };
    say(&mut world, |frame| reply.encode(number, frame));
    assert!(matches!(ends(&world)[..], [(_, Err(SessionError::Unknown { .. }))]), "{:?}", ends(&world));
    let (mut world, number) = in_doubt();
    let error = ErrorReply { code: ErrorCode::ReadOnly, retryable: false, sentence: "no more".to_owned() };
    say(&mut world, |frame| error.encode(number, frame));
    assert!(matches!(ends(&world)[..], [(_, Err(SessionError::Unknown { .. }))]), "{:?}", ends(&world));
    let (mut world, number) = in_doubt();
    let reply = FileReply { outcome: FileOutcome::NoSpace, start: 0 };
    say(&mut world, |frame| reply.encode(number, frame));
    assert_eq!(ends(&world), [(number, Ok(&Answer::File(reply)))]);
    let (mut world, _) = in_doubt();
    while world.session.has_work() {
        world.now = world.session.next_deadline().expect("it waits").max(world.now);
        world.cut();
        world.script.refuses_connections = true;
        world.turn();
    }
    assert!(matches!(ends(&world)[..], [(_, Err(SessionError::Unknown { .. }))]), "{:?}", ends(&world));
    // What the server refuses for now it has not done.
    let mut world = World::new(config());
    let number = ask(&mut world, write(None, b"appended"));
    let error = ErrorReply { code: ErrorCode::Overloaded, retryable: true, sentence: "later".to_owned() };
    say(&mut world, |frame| error.encode(number, frame));
    world.cut();
    world.advance(ms(100));
    world.run();
    assert_eq!((world.script.files_asked.len(), ends(&world).len()), (2, 0));
}

#[test]
fn damaged_bytes_are_asked_for_again_and_never_given_out() {
    let mut world = World::new(config());
    let number = ask(&mut world, read(100, 64));
    say_bytes(&mut world, number, b"damaged", crc32c(b"right"));
    assert!(ends(&world).is_empty());
    while world.script.files_asked.len() == 1 {
        world.advance(ms(1));
        world.run();
    }
    assert_eq!(world.script.files_asked[1].table, world.script.files_asked[0].table);
    let again = world.script.files_asked[1].request;
    say_bytes(&mut world, again, b"right", crc32c(b"right"));
    assert_eq!(ends(&world), [(number, Ok(&Answer::FileBytes(ReadOutcome::Found, Bytes::from_static(b"right"))))]);

    let mut world = World::new(config());
    ask(&mut world, read(100, 64));
    while world.session.has_work() {
        let asked = world.script.files_asked.last().expect("asked").request;
        say_bytes(&mut world, asked, b"damaged", 1);
        world.advance(ms(1000));
        world.run();
    }
    let [(_, Err(SessionError::Damaged { part, times: 3, .. }))] = ends(&world)[..] else {
        panic!("{:?}", ends(&world))
    };
    assert_eq!(*part, Part::File { file: FILE, start: 100 });
}

/// Says something wrong three times; that the answer is not believed, and the session ends.
#[track_caller]
fn not_believed(request: Request, wrong: impl Fn(u64, &mut Vec<u8>)) {
    let mut world = World::new(SessionConfig { deadline: None, ..config() });
    world.session.ask(world.now, request).expect("usable");
    for _ in 0..3 {
        let before = world.script.files_asked.len();
        while world.script.files_asked.len() == before {
            world.advance(ms(10));
            world.run();
        }
        let asked = world.script.files_asked.last().expect("asked").request;
        say(&mut world, |frame| wrong(asked, frame));
        assert!(
            world.script.connections < 3 || world.session.failure().is_some(),
            "it was believed: {:?}",
            world.events
        );
    }
    assert!(
        matches!(ends(&world)[..], [(_, Err(SessionError::Broken(_) | SessionError::Protocol(_)))]),
        "{:?}",
        world.events
    );
}

#[test]
fn answers_that_were_not_asked_for_are_not_believed() {
    // More bytes than asked for, and of another kind.
    not_believed(read(0, 4), |request, frame| {
        FileReadReply { outcome: ReadOutcome::Found, bytes: 5, crc: crc32c(b"bytes") }.encode(request, b"bytes", frame);
    });
    not_believed(read(0, 4), |request, frame| Done.encode(request, frame));
    not_believed(read(0, 4), |request, frame| {
        let table = FileReadReply { outcome: ReadOutcome::Found, bytes: 2, crc: crc32c(b"by") }.table();
        encode_frame(Kind::FileReadReply, FLAG_MORE, request, &table, &[b"by"], frame);
    });
    // A write that was done elsewhere, or beyond all files.
    let elsewhere = FileReply { outcome: FileOutcome::Done, start: 4 };
    not_believed(write(Some(3), b"four"), |request, frame| elsewhere.encode(request, frame));
    let beyond = FileReply { outcome: FileOutcome::Done, start: FILE_BYTES_MAX };
    let mut world = World::new(config());
    ask(&mut world, write(None, b"four"));
    while ends(&world).is_empty() {
        let asked = world.script.files_asked.last().expect("asked").request;
        say(&mut world, |frame| beyond.encode(asked, frame));
        world.advance(ms(1000));
        world.run();
    }
    assert!(matches!(ends(&world)[..], [(_, Err(SessionError::Unknown { .. }))]), "it was done, nobody knows where");
    // Too few and too many files, and one that is too long.
    let info = |length| FileInfo {
        outcome: ReadOutcome::Found,
        sealed: true,
        is_written: false,
        sums: None,
        length,
        written_unix_ns: 1,
    };
    for files in [vec![], vec![info(1); 2], vec![info(FILE_BYTES_MAX + 1)]] {
        not_believed(Request::FileStat(FileStat { files: vec![FILE] }), |request, frame| {
            FileStatReply { files: files.clone() }.encode(request, frame);
        });
    }
    // Found, and nothing there; not done, and something there.
    let lookup = Request::NameLookup(NameLookup { directory: None, name: b"a".to_vec() });
    not_believed(lookup.clone(), |request, frame| {
        NodeReply { outcome: NameOutcome::Done, node: None }.encode(request, frame);
    });
    let strange = NodeReply { outcome: NameOutcome::NotFound, node: Some(node(NodeKind::File)) };
    not_believed(lookup, |request, frame| strange.encode(request, frame));
    let what = NameChange::Set { number: FILE, set: SetAttributes::default() };
    not_believed(Request::ChangeName(ChangeName { client: 5, change: 1, waits_from: 1, what }), |request, frame| {
        strange.encode(request, frame);
    });
}

#[test]
fn a_page_of_names_is_in_order_and_no_longer_than_asked_for() {
    let list = |after: &[u8]| Request::NameList(NameList { directory: None, after: after.to_vec(), max: 3 });
    let entry = |name: &[u8]| NameEntry { number: FILE, kind: NodeKind::File, name: name.to_vec() };
    let page = |names: &[&[u8]], more| ListReply {
        outcome: NameOutcome::Done,
        more,
        entries: names.iter().map(|name| entry(name)).collect(),
    };
    let good: [(&[u8], ListReply); 4] = [
        (b"", page(&[], false)),
        (b"", page(&[b"\x01", b"a", b"a\xff"], true)),
        (b"a", page(&[b"aa"], false)),
        (b"", ListReply { outcome: NameOutcome::NotDirectory, ..page(&[], false) }),
    ];
    for (after, reply) in good {
        let mut world = World::new(config());
        let number = ask(&mut world, list(after));
        say(&mut world, |frame| reply.encode(number, frame));
        assert_eq!(ends(&world), [(number, Ok(&Answer::Names(reply)))]);
    }
    let wrong: [(&[u8], ListReply); 12] = [
        (b"", page(&[b"b", b"a"], false)),
        (b"", page(&[b"a", b"a"], false)),
        (b"b", page(&[b"a"], false)),
        (b"a", page(&[b"a"], false)),
        (b"", page(&[b"a", b"b", b"c", b"d"], false)),
        (b"", page(&[], true)),
        (b"", page(&[b""], false)),
        (b"", page(&[b"."], false)),
        (b"", page(&[b".."], false)),
        (b"", page(&[b"a/b"], false)),
        (b"", page(&[b"a\0"], false)),
        (b"", ListReply { outcome: NameOutcome::NotFound, ..page(&[b"a"], false) }),
    ];
    for (after, reply) in wrong {
        not_believed(list(after), |request, frame| reply.encode(request, frame));
    }
}

#[test]
fn names_that_are_too_long_travel_as_far_as_the_names_need_to_say_so() {
    let mut world = World::new(config());
    let name = vec![b'n'; 70_000];
    let number = ask(&mut world, Request::NameLookup(NameLookup { directory: Some(FILE), name }));
    let asked = NameLookup::read_table(&world.script.files_asked[0].table).expect("a lookup");
    assert_eq!(asked.name.len(), 256);
    let reply = NodeReply { outcome: NameOutcome::TooLong, node: None };
    say(&mut world, |frame| reply.encode(number, frame));
    assert_eq!(ends(&world), [(number, Ok(&Answer::Node(reply)))]);
}

/// Bytes of an answer that is asked for `start`.
fn noise(start: u64, bytes: u32) -> Vec<u8> {
    (0..u64::from(bytes)).map(|at| ((start + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect()
}

fn answer_to(asked: &Asked) -> Vec<u8> {
    let (read, mut frame) = (FileRead::decode(&asked.table, &[]).expect("a read"), Vec::new());
    let bytes = noise(read.start, read.bytes);
    let reply = FileReadReply { outcome: ReadOutcome::Found, bytes: read.bytes, crc: crc32c(&bytes) };
    reply.encode(asked.request, &bytes, &mut frame);
    frame
}

/// Lengths below, at and above those that go where they stay without a copy, and what fits into no block.
fn lengths() -> impl Strategy<Value = Vec<u32>> {
    let large = 256u32 << 10;
    let length = prop_oneof![0u32..200, large - 3..large + 3, large..(1 << 20) + 2, Just(1 << 20)];
    prop::collection::vec(length, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pieces, and however they are handed over: each answer has its bytes. Where the connection is cut they are asked for again, where something is
    /// damaged, too.
    #[test]
    fn large_answers_arrive_in_any_pieces(
        lengths in lengths(),
        pieces in prop::collection::vec(1usize..700_000, 1..5),
        in_place in any::<bool>(),
        cut in prop::option::of(0usize..3_000_000),
        flipped in prop::option::of(0usize..3_000_000),
    ) {
        let mut world = World::new(config());
        let asked: Vec<(u64, u32)> = lengths.iter().enumerate().map(|(at, length)| (at as u64 * 1000, *length)).collect();
        let numbers: Vec<u64> = asked.iter().map(|(start, length)| ask(&mut world, read(*start, *length))).collect();
        let mut stream: Vec<u8> = world.script.files_asked.drain(..).flat_map(|asked| answer_to(&asked)).collect();
        if let Some(byte) = flipped.and_then(|at| stream.get_mut(at)) {
            *byte ^= 4;
        }
        let arrived = cut.map_or(stream.len(), |cut| cut.min(stream.len()));
        let mut pieces = pieces.iter().copied().cycle();
        let mut rest = &stream[..arrived];
        while !rest.is_empty() && world.session.wants_connection() {
            let (mut piece, behind) = rest.split_at(pieces.next().expect("without end").min(rest.len()));
            rest = behind;
            if !in_place {
                world.session.received(world.now, piece);
            }
            while in_place && !piece.is_empty() {
                let space = world.session.read_space(256 << 10);
                let (now, later) = piece.split_at(piece.len().min(space.len()));
                space[..now.len()].copy_from_slice(now);
                world.session.received_in_place(world.now, now.len());
                piece = later;
            }
        }
        world.take();
        if arrived < stream.len() {
            world.cut();
        }
        // What is missing is asked for again, and answered at once.
        while world.session.has_work() {
            world.run();
            let again: Vec<u8> = world.script.files_asked.drain(..).flat_map(|asked| answer_to(&asked)).collect();
            world.session.received(world.now, &again);
            world.take();
            if let Some(due) = world.session.next_deadline() {
                world.now = world.now.max(due);
            }
        }
        let found = ends(&world);
        prop_assert_eq!(found.len(), numbers.len());
        for (number, (start, length)) in numbers.into_iter().zip(asked) {
            let end = found.iter().find(|(of, _)| *of == number).map(|(_, end)| end);
            let Some(Ok(Answer::FileBytes(ReadOutcome::Found, bytes))) = end else { panic!("{number}: {end:?}") };
            prop_assert!(bytes[..] == noise(start, length), "{} bytes from {}", length, start);
        }
    }
}
