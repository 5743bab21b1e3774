//! Peers that do not behave.

use std::time::Duration;

use forebay_client::Class;
use forebay_protocol::{
    ErrorCode, ErrorReply, Get, HEADER_BYTES, Hello, Kind, LANE_CONTROL, Message, PROTOCOL_VERSION, Ping, PutEntry,
    encode_put,
};
use forebay_server::{Server, ServerConfig, StartError};
use forebay_telemetry::reach::ListenError;
use forebay_types::{DriveNumber, FragmentId, PutOutcome, crc32c};

use crate::world::{Raw, World, payload, results};

fn put_frame(request: u64, id: FragmentId, bytes: usize) -> Vec<u8> {
    let payload = payload(id, bytes);
    let entry = PutEntry { id, bytes: bytes as u32, crc: crc32c(&payload), expected: 0 };
    let mut frame = Vec::new();
    encode_put(request, &[entry], &[&payload], &mut frame);
    frame
}

#[test]
fn half_a_frame_harms_nobody_and_is_given_up() {
    let world = World::with(1, |world| {
        world.config.stall_timeout_ms = 1500;
        world.config.staging_bytes = 4 << 20;
    });
    let mut stalled: Vec<Raw> = (0..8).map(|_| world.raw(0, Class::Readout)).collect();
    for (at, raw) in stalled.iter_mut().enumerate() {
        let frame = put_frame(5, FragmentId::new(1, 1, at as u32), 900_000);
        raw.send(&frame[..300_000]);
    }
    let mut writer = world.client(Class::Readout);
    for event in 0..2000 {
        let id = FragmentId::new(2, event, 1);
        writer.put(id, 1, &payload(id, 3000)).expect("taken");
    }
    assert!(results(&mut writer).iter().all(|result| result.outcome == PutOutcome::Durable));
    for raw in &mut stalled {
        // Closed, with or without a reset: bytes that it sent were never read.
        let mut byte = [0];
        let gone = std::io::Read::read(&mut raw.stream, &mut byte);
        assert!(matches!(gone, Ok(0) | Err(_)));
    }
}

#[test]
fn a_reader_that_does_not_read_harms_nobody() {
    let world = World::with(1, |world| world.config.out_buffer_bytes = 1 << 20);
    let mut writer = world.client(Class::Readout);
    let ids: Vec<FragmentId> = (0..100).map(|event| FragmentId::new(1, event, 1)).collect();
    for id in &ids {
        writer.put(*id, 1, &payload(*id, 100_000)).expect("taken");
    }
    assert_eq!(results(&mut writer).len(), 100);
    let mut deaf = world.raw(0, Class::Filter);
    for request in 0..20 {
        deaf.ask(request, &Get { ids: ids.clone() });
    }
    let mut reader = world.client(Class::Monitor);
    assert_eq!(reader.get_many(&ids).expect("answered").len(), 100);
    let mut last = 0;
    // 20 answers of 10 MB wait for it all the same.
    while last < 19 {
        let answer = deaf.receive().expect("served in the end");
        assert_eq!(answer.kind, Kind::GetReply);
        last = answer.request;
    }
}

#[test]
fn malformed_greetings_and_frames_are_told_why() {
    let world = World::new(2);
    let hello = |lane, protocol_version| {
        let mut bytes = Vec::new();
        Hello { protocol_version, lane, class: Class::Monitor, name: "t".to_owned() }.encode(3, &mut bytes);
        bytes
    };
    let mut damaged = hello(0, PROTOCOL_VERSION);
    damaged[HEADER_BYTES + 1] ^= 1;
    let mut ping = Vec::new();
    Ping.encode(3, &mut ping);
    for (bytes, code) in [
        (&b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: curious\r\n\r\n"[..], ErrorCode::BadFrame),
        (&hello(7, PROTOCOL_VERSION), ErrorCode::WrongLane),
        (&hello(0, 99), ErrorCode::Version),
        (&damaged, ErrorCode::BadFrame),
        (&ping, ErrorCode::NotGreeted),
    ] {
        let mut raw = Raw::new(world.address());
        raw.send(bytes);
        let error: ErrorReply = raw.receive().expect("told").message();
        assert_eq!(error.code, code, "{}", error.sentence);
        assert!(raw.receive().is_none(), "and closed");
    }
    for lane in [0, LANE_CONTROL] {
        let mut raw = world.raw(lane, Class::Monitor);
        raw.send(b"this is no frame at all, and longer than a header is");
        assert_eq!(raw.receive().expect("told").message::<ErrorReply>().code, ErrorCode::BadFrame);
        assert!(raw.receive().is_none(), "and closed");

        let mut raw = world.raw(lane, Class::Monitor);
        let mut unknown = Vec::new();
        Ping.encode(8, &mut unknown);
        unknown[4] = 0x55;
        let crc = crc32c(&unknown[..28]).to_le_bytes();
        unknown[28..32].copy_from_slice(&crc);
        raw.send(&unknown);
        raw.ask(9, &Ping);
        let told = raw.receive().expect("told");
        assert_eq!((told.request, told.message::<ErrorReply>().code), (8, ErrorCode::UnknownKind));
        let done = raw.receive().expect("goes on");
        assert_eq!((done.request, done.kind), (9, Kind::Done));
    }
    let mut control = world.raw(LANE_CONTROL, Class::Monitor);
    control.ask(4, &Get { ids: vec![FragmentId::new(1, 1, 1)] });
    assert_eq!(control.receive().expect("told").message::<ErrorReply>().code, ErrorCode::WrongLane);
    control.ask(4, &forebay_protocol::Runs);
    assert_eq!(control.receive().expect("told").message::<ErrorReply>().code, ErrorCode::WrongLane);
    control.send(&put_frame(5, FragmentId::new(1, 1, 1), 100_000)[..1000]);
    assert_eq!(control.receive().expect("told").message::<ErrorReply>().code, ErrorCode::TooLarge);
    // Who is not in lane 0 is told so.
    let mut raw = world.raw(0, Class::Readout);
    raw.send(&put_frame(5, FragmentId::new(0, 128, 1), 10));
    assert_eq!(raw.receive().expect("told").message::<ErrorReply>().code, ErrorCode::WrongLane);
    // All the while others are served.
    world.client(Class::Monitor).ping().expect("answered");
}

#[test]
fn control_connections_that_stand_still_are_given_up() {
    let world = World::with(1, |world| world.config.stall_timeout_ms = 200);
    let mut half = world.raw(LANE_CONTROL, Class::Monitor);
    half.send(&put_frame(5, FragmentId::new(1, 1, 1), 1000)[..20]);
    let mut whole = world.raw(LANE_CONTROL, Class::Monitor);
    let mut deaf = world.raw(LANE_CONTROL, Class::Monitor);
    deaf.stream.set_nonblocking(true).expect("set");
    // Answers that nobody reads fill the socket and what the server holds; then it reads nothing more.
    let mut status = Vec::new();
    (0..128).for_each(|request| forebay_protocol::Status.encode(request, &mut status));
    let refused = loop {
        match std::io::Write::write(&mut deaf.stream, &status) {
            Ok(_) => std::thread::yield_now(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(error) => break error,
        }
    };
    assert!(refused.kind() != std::io::ErrorKind::WouldBlock);
    assert!(half.receive().is_none(), "half a request is given up");
    whole.ask(9, &Ping);
    assert_eq!(whole.receive().expect("an idle one is not").kind, Kind::Done);
}

#[test]
fn more_connections_than_configured_are_refused_retryably() {
    let world = World::with(1, |world| world.config.connections_max = 2);
    let (first, _second) = (world.raw(0, Class::Monitor), world.raw(0, Class::Monitor));
    let mut third = Raw::new(world.address());
    third.ask(3, &Hello { protocol_version: PROTOCOL_VERSION, lane: 0, class: Class::Monitor, name: String::new() });
    let error: ErrorReply = third.receive().expect("told").message();
    assert_eq!((error.code, error.retryable), (ErrorCode::Overloaded, true));
    drop(first);
    // The client tries again until there is room.
    world.client(Class::Monitor).ping().expect("answered");
}

#[test]
fn a_drive_that_fails_under_load_costs_nothing() {
    let world = World::new(2);
    let mut writer = world.client(Class::Readout);
    let ids: Vec<FragmentId> = (0..3000).map(|event| FragmentId::new(1, event, 1)).collect();
    let mut results_so_far = Vec::new();
    for id in &ids {
        writer.put(*id, 1, &payload(*id, 4000)).expect("taken");
        if id.event.0 == 1500 {
            world.client(Class::Monitor).inject_fault(DriveNumber(2)).expect("made to fail");
        }
        writer.take_put_results(&mut results_so_far);
    }
    results_so_far.extend(results(&mut writer));
    assert_eq!(results_so_far.len(), ids.len());
    assert!(results_so_far.iter().all(|result| result.outcome == PutOutcome::Durable));
    for (id, (_, bytes)) in ids.iter().zip(writer.get_many(&ids).expect("answered")) {
        assert!(bytes == payload(*id, 4000), "{id}");
    }
    let status: serde_json::Value = serde_json::from_str(&writer.status().expect("answered")).expect("JSON");
    assert_eq!(status["drives_failed"], 1);
    let refused = writer.inject_fault(DriveNumber(77)).expect_err("no such drive");
    assert!(refused.to_string().contains("77"), "{refused}");
}

#[test]
fn an_address_that_is_taken_is_told_before_a_drive_is_touched() {
    let mut world = World::new(1);
    world.stop();
    let other = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let listen = other.local_addr().expect("bound");
    let refused = Server::bind(&ServerConfig { listen, ..ServerConfig::default() }).err().expect("refused");
    assert!(matches!(&refused, StartError::Listen(error) if error.is_in_use()), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("nothing was started") && told.contains(&listen.port().to_string()), "{told}");
    world.start();
    let status: serde_json::Value =
        serde_json::from_str(&world.client(Class::Monitor).status().expect("answered")).expect("JSON");
    assert_eq!(status["started_clean"], true);
}

#[test]
fn it_listens_to_others_only_when_told_so() {
    let mut world = World::new(1);
    world.stop();
    let config = ServerConfig { listen: "0.0.0.0:0".parse().expect("an address"), ..ServerConfig::default() };
    let refused = Server::bind(&config).err().expect("refused");
    assert!(
        matches!(refused, StartError::Listen(ListenError::Insecure { .. }))
            && refused.to_string().contains("--insecure-network")
    );
    world.config = ServerConfig { insecure_network: vec!["192.0.2.0/24".parse().expect("a network")], ..config };
    world.start();
    let port = world.address().port();
    let mut raw = Raw::new((std::net::Ipv4Addr::LOCALHOST, port).into());
    raw.ask(1, &Hello { protocol_version: PROTOCOL_VERSION, lane: 0, class: Class::Monitor, name: String::new() });
    assert_eq!(raw.receive().expect("greeted").kind, Kind::HelloReply);
}
