//! Bytes that are no frames, and frames that are not what they say.

use forebay_protocol::{
    Class, Done, ErrorCode, Get, HEADER_BYTES, InjectFault, Kind, Message, Ping, StatusReply, encode_frame,
};
use forebay_types::{DriveNumber, FragmentId};
use proptest::prelude::*;

use crate::fake::{World, config, fragment, put_frame, seal_header};

/// The code of the one error that `bytes` are answered with, and whether the connection is closed.
fn answer_to(bytes: &[u8]) -> (ErrorCode, bool, u64) {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    world.send(id, bytes);
    world.run();
    world.ask(id, 99, &Ping);
    world.run();
    let frames = world.take(id);
    let error = frames[0].error();
    let consequences = ["nothing of", "nothing was done", "drives are made to fail"];
    assert!(consequences.iter().any(|words| error.sentence.to_lowercase().contains(words)), "{error:?}");
    let ended = world.peers[&id].ended;
    // What can be read on answers the ping.
    assert_eq!(frames.get(1).is_some_and(|frame| frame.kind == Kind::Done && frame.request == 99), !ended);
    assert!(world.lane.given.is_empty(), "nothing of it was stored");
    (error.code, ended, frames[0].request)
}

#[test]
fn malformed_frames_are_told_why() {
    let put = put_frame(4, &[fragment(1, 1, 3000)]);
    assert_eq!(answer_to(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), (ErrorCode::BadFrame, true, 0));
    let mut damaged = put.clone();
    damaged[9] ^= 1;
    assert_eq!(answer_to(&damaged), (ErrorCode::BadFrame, true, 0));
    let mut damaged = put.clone();
    damaged[HEADER_BYTES + 9] ^= 1;
    assert_eq!(answer_to(&damaged), (ErrorCode::BadFrame, false, 4));
    let mut flags = put.clone();
    flags[6] |= 0x40;
    seal_header(&mut flags);
    assert_eq!(answer_to(&flags), (ErrorCode::BadFrame, false, 4));
    let mut kind = put.clone();
    kind[4..6].copy_from_slice(&0x0777u16.to_le_bytes());
    seal_header(&mut kind);
    assert_eq!(answer_to(&kind), (ErrorCode::UnknownKind, false, 4));
    let mut large = put.clone();
    large[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    seal_header(&mut large);
    assert_eq!(answer_to(&large), (ErrorCode::TooLarge, true, 4));
    // The payload and its table disagree.
    let mut short = put;
    short[20..24].copy_from_slice(&2999u32.to_le_bytes());
    short.truncate(short.len() - 1);
    seal_header(&mut short);
    assert_eq!(answer_to(&short), (ErrorCode::BadFrame, false, 4));
    let mut too_many = Vec::new();
    let mut table = 20_000u32.to_le_bytes().to_vec();
    table.resize(700_000, 0);
    encode_frame(Kind::Put, 0, 4, &table, &[], &mut too_many);
    assert_eq!(answer_to(&too_many), (ErrorCode::TooLarge, false, 4));
    let mut truncated = Vec::new();
    encode_frame(Kind::Get, 0, 4, &[9, 0, 0, 0, 0, 0, 0, 0, 1], &[], &mut truncated);
    assert_eq!(answer_to(&truncated), (ErrorCode::BadFrame, false, 4));
    let mut payload = Vec::new();
    encode_frame(Kind::Ping, 0, 4, &[], &[&[1; 70_000]], &mut payload);
    assert_eq!(answer_to(&payload), (ErrorCode::BadFrame, false, 4));
    let mut reply = Vec::new();
    Done.encode(4, &mut reply);
    assert_eq!(answer_to(&reply), (ErrorCode::UnknownKind, false, 4));
    let mut hello = Vec::new();
    encode_frame(Kind::Hello, 0, 4, &[0; 8], &[], &mut hello);
    assert_eq!(answer_to(&hello), (ErrorCode::NotGreeted, false, 4));
    let mut fault = Vec::new();
    InjectFault { drive: DriveNumber(1) }.encode(4, &mut fault);
    assert_eq!(answer_to(&fault), (ErrorCode::Refused, false, 4));
}

#[test]
fn a_request_for_another_lane_is_refused_whole() {
    let mut world = World::new(forebay_server::ServiceConfig { lanes: 4, ..config() });
    world.service.open(2, Class::Readout, 1);
    world.peers.insert(2, crate::fake::Peer::default());
    world.run();
    world.take(2);
    // Events 0 to 127 of run 0 are for lane 0, 128 to 255 for lane 1.
    let mut fragments = vec![fragment(0, 1, 10_000), fragment(1, 1, 10_000)];
    fragments.iter_mut().for_each(|(id, _)| id.run.0 = 0);
    world.send(2, &put_frame(5, &fragments));
    fragments[1].0.event.0 = 130;
    world.send(2, &put_frame(6, &fragments));
    world.ask(2, 7, &Get { ids: vec![FragmentId::new(0, 130, 1)] });
    world.run();
    let frames = world.take(2);
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.request, frame.kind)).collect();
    assert!(kinds.contains(&(5, Kind::PutReply)));
    for request in [6, 7] {
        let error = frames.iter().find(|frame| frame.request == request).expect("answered").error();
        assert_eq!((error.code, error.retryable), (ErrorCode::WrongLane, false));
        assert!(error.sentence.contains("0/130") && error.sentence.contains("lane 1"), "{}", error.sentence);
    }
    assert_eq!(world.lane.given.len(), 2);
}

#[test]
fn before_the_lane_serves_reads_are_refused_and_puts_wait() {
    let mut world = World::new(config());
    world.lane.not_serving = true;
    let id = world.connect(Class::Filter);
    world.ask(id, 5, &Get { ids: vec![FragmentId::new(1, 1, 1)] });
    world.ask(id, 6, &forebay_protocol::Status);
    world.send(id, &put_frame(7, &[fragment(1, 1, 10)]));
    for _ in 0..5 {
        world.turn(true);
    }
    let frames = world.take(id);
    let error = frames[0].error();
    assert_eq!((error.code, error.retryable, frames.len()), (ErrorCode::NotServing, true, 2));
    assert!(error.sentence.contains("it is still finding out"), "{}", error.sentence);
    let status: StatusReply = frames[1].message();
    assert!(
        status.json.contains("\"segments_free\":100") && status.json.contains("\"staging_bytes\""),
        "{}",
        status.json
    );
    world.lane.not_serving = false;
    world.run();
    assert_eq!(world.take(id)[0].request, 7);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        chunks in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..400),
                (any::<u16>(), any::<u16>(), 0..100usize, 0..9000usize).prop_map(|(kind, flags, table, payload)| {
                    let mut frame = Vec::new();
                    encode_frame(Kind::Put, flags & 1, 3, &vec![1; table], &[&vec![2; payload]], &mut frame);
                    let kind = if kind % 3 == 0 { kind } else { kind % 20 };
                    frame[4..6].copy_from_slice(&kind.to_le_bytes());
                    seal_header(&mut frame);
                    frame
                }),
                Just(put_frame(9, &[fragment(1, 1, 200), fragment(1, 2, 0)])),
            ],
            0..12,
        ),
        pieces in prop::collection::vec(0..300usize, 0..40),
    ) {
        let mut world = World::new(config());
        let id = world.connect(Class::Mover);
        world.peers.get_mut(&id).expect("open").pieces = pieces.into();
        for chunk in &chunks {
            if !world.peers[&id].ended {
                world.send(id, chunk);
                world.turn(true);
            }
        }
        for _ in 0..100 {
            world.lane.settle();
            world.turn(true);
        }
        world.service.close(id);
        world.lane.settle();
        world.turn(true);
        prop_assert_eq!((world.service.staging_bytes(), world.service.requests_pending()), (0, 0));
    }
}
