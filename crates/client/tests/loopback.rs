//! The client against a tiny server on loopback: every call, restarts, cuts, nonsense.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the peer has threads and sockets")]

mod peer;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Client, ClientConfig, ClientError, Decision, PutResult};
use forebay_types::{
    DecideOutcome, DriveNumber, EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, SourceId, StreamName, Verdict,
};
use peer::{Peer, State};

fn bytes_of(id: FragmentId) -> Vec<u8> {
    let length = 1 + (id.event.0 * 37 + u64::from(id.source.0) * 911) % 5000;
    (0..length).map(|i| (i * 31 + id.event.0 * 7 + u64::from(id.source.0)) as u8).collect()
}

fn ids(events: u64, sources: u32) -> Vec<FragmentId> {
    (0..events).flat_map(|event| (0..sources).map(move |source| FragmentId::new(1, event, source))).collect()
}

fn start() -> (Peer, Client) {
    let peer = Peer::start(Arc::new(Mutex::new(State::default())), "127.0.0.1:0");
    let client = connect(&peer);
    (peer, client)
}

fn connect(peer: &Peer) -> Client {
    let config = ClientConfig { batch_bytes: 20_000, ..ClientConfig::new(peer.address.to_string(), "test") };
    Client::connect(config).expect("the server runs")
}

fn put_all(client: &mut Client, ids: &[FragmentId]) -> Vec<PutResult> {
    for (number, id) in ids.iter().enumerate() {
        // Copied and shared in turn.
        let taken = match number % 2 {
            0 => client.put(*id, 3, &bytes_of(*id)),
            _ => client.put_bytes(*id, 3, &bytes_of(*id).into()),
        };
        taken.expect("taken");
    }
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    results
}

fn assert_each_once(results: &[PutResult], ids: &[FragmentId]) {
    assert!(results.iter().all(|result| result.outcome == PutOutcome::Durable && result.answered), "{results:?}");
    let mut reported: Vec<FragmentId> = results.iter().map(|result| result.id).collect();
    reported.sort_unstable();
    assert_eq!(reported, ids);
}

#[test]
fn what_is_put_is_read_back() {
    let (peer, mut client) = start();
    assert_eq!((client.info().lanes, client.info().fragment_bytes_max), (peer::LANES, 1 << 20));
    let ids = ids(600, 3);
    assert_each_once(&put_all(&mut client, &ids), &ids);
    assert_eq!(client.pending_puts(), 0);

    let absent = FragmentId::new(9, 1, 1);
    let mut wanted = ids.clone();
    wanted.insert(7, absent);
    for (id, (outcome, bytes)) in wanted.iter().zip(client.get_many(&wanted).expect("answered")) {
        match *id == absent {
            true => assert_eq!((outcome, bytes.len()), (ReadOutcome::NotFound, 0)),
            false => assert_eq!((outcome, bytes), (ReadOutcome::Found, bytes_of(*id)), "{id}"),
        }
    }
    let error = client.get(absent).expect_err("there is none");
    assert!(matches!(error, ClientError::Read { outcome: ReadOutcome::NotFound, .. }), "{error}");

    let too_large = client.put(absent, 0, &vec![0; (1 << 20) + 1]).expect_err("too large");
    assert!(matches!(too_large, ClientError::TooLarge { max: 1_048_576, .. }) && !too_large.is_retryable());
    drop(client);
    peer.stop();
}

#[test]
fn events_are_fetched_whole_or_by_source() {
    let (peer, mut client) = start();
    put_all(&mut client, &ids(300, 3));
    let keys: Vec<EventKey> = (0..301).rev().map(|event| EventKey::new(1, event)).collect();
    for (sources, wanted) in [(None, vec![0, 1, 2]), (Some([SourceId(2), SourceId(0)]), vec![0, 2])] {
        let events = client.get_events(&keys, sources.as_ref().map(|sources| &sources[..])).expect("answered");
        assert!(events.iter().map(|event| event.key).eq(keys.iter().copied()));
        assert_eq!((events[0].outcome, events[0].fragments.len()), (ReadOutcome::NotFound, 0));
        for event in &events[1..] {
            assert_eq!((event.outcome, event.expected, event.stored), (ReadOutcome::Found, 3, 3));
            let sources: Vec<u32> = event.fragments.iter().map(|fragment| fragment.source.0).collect();
            assert_eq!(sources, wanted, "{}", event.key);
            for fragment in &event.fragments {
                assert_eq!(fragment.payload, bytes_of(event.key.fragment(fragment.source)));
            }
        }
    }
    drop(client);
    peer.stop();
}

#[test]
fn a_lease_that_is_short_of_events_says_when_to_ask_again() {
    let (peer, mut client) = start();
    // Lanes that were asked for none, or gave all, do not say.
    for asked in [1, 2, 3, 50] {
        let lease = client.lease(asked, Duration::from_secs(1), 7, None).expect("answered");
        assert_eq!((lease.events.len(), lease.retry_after), (0, Duration::from_millis(7)), "{asked} asked for");
    }
    put_all(&mut client, &ids(500, 1));
    for (asked, retry_after) in [(0, 0), (1, 0), (30, 0), (2000, 7)] {
        let lease = client.lease(asked, Duration::from_secs(1), 7, None).expect("answered");
        assert_eq!(lease.retry_after, Duration::from_millis(retry_after), "{asked} asked for");
    }
    drop(client);
    peer.stop();
}

#[test]
fn events_are_leased_decided_listed_and_released_over_all_lanes() {
    let (peer, mut client) = start();
    put_all(&mut client, &ids(500, 1));
    let lease = client.lease(500, Duration::from_secs(1), 7, None).expect("answered");
    let mut leased: Vec<u64> = lease.events.iter().map(|event| event.key.event.0).collect();
    leased.sort_unstable();
    leased.dedup();
    assert_eq!((lease.undecided, lease.retry_after), (500, Duration::ZERO));
    assert!(leased.len() > 300, "the shares of three lanes, at least: {}", leased.len());

    let stream: StreamName = "physics".parse().expect("a name");
    let verdict =
        |event: u64| if event.is_multiple_of(2) { Verdict::Accept(vec![stream.clone()]) } else { Verdict::Reject };
    let decide = |event| Decision { key: EventKey::new(1, event), verdict: verdict(event), incomplete: false };
    let decisions: Vec<Decision> = (0..400).map(decide).collect();
    assert_eq!(client.decide(&decisions).expect("answered"), vec![DecideOutcome::Done; 400]);
    assert_eq!(client.decide(&decisions).expect("answered"), vec![DecideOutcome::AlreadyDone; 400]);
    let no_stream = Decision { verdict: Verdict::Accept(Vec::new()), ..decide(450) };
    assert!(matches!(client.decide(&[no_stream]), Err(ClientError::Streams { streams: 0, .. })));

    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = client.accepted(&stream, after, 30).expect("answered");
        assert_eq!(page.undecided_floor, Some(EventKey::new(1, 400)));
        listed.extend(page.events.iter().map(|event| event.key));
        after = listed.last().copied();
        if !page.more {
            break;
        }
    }
    let even: Vec<EventKey> = (0..200).map(|half| EventKey::new(1, 2 * half)).collect();
    assert_eq!(listed, even);

    let streams = client.streams().expect("answered");
    assert_eq!((streams.len(), streams[0].accepted), (1, 200));
    let runs = client.runs().expect("answered");
    assert_eq!((runs.len(), runs[0].events, runs[0].undecided, runs[0].last_event), (1, 500, 100, EventId(499)));
    assert_eq!(client.release(&stream, &even).expect("answered"), vec![DecideOutcome::Done; 200]);
    assert_eq!(client.release(&stream, &even[..1]).expect("answered"), [DecideOutcome::NotFound]);
    assert_eq!(client.delete(&even[..2]).expect("answered"), [DecideOutcome::Done; 2]);
    assert_eq!(client.status().expect("answered"), "{\"lanes\":3}");
    client.ping().expect("answered");
    let refused = client.inject_fault(DriveNumber(1)).expect_err("no server for tests");
    assert!(matches!(refused, ClientError::Refused { retryable: false, .. }), "{refused}");
    drop(client);
    peer.stop();
}

#[test]
fn puts_and_reads_survive_a_restart_of_the_server() {
    let (peer, mut client) = start();
    let ids = ids(900, 2);
    let (first, rest) = ids.split_at(700);
    for id in first {
        client.put(*id, 2, &bytes_of(*id)).expect("taken");
    }
    let (state, address) = peer.stop();
    let again = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        Peer::start(state, &address)
    });
    for id in rest {
        client.put(*id, 2, &bytes_of(*id)).expect("taken while the server is away");
    }
    client.flush().expect("answered after the restart");
    let peer = again.join().expect("restarted");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert_each_once(&results, &ids);
    assert_eq!(client.get(ids[5]).expect("there"), bytes_of(ids[5]));
    let (state, address) = peer.stop();
    let peer = Peer::start(state, &address);
    assert_eq!(client.get_many(&ids).expect("answered after another restart").len(), ids.len());
    client.ping().expect("alive");
    assert_eq!(client.info().epoch, 3);
    drop(client);
    peer.stop();
}

#[test]
fn connections_that_are_cut_again_and_again_lose_and_double_nothing() {
    let (peer, mut client) = start();
    peer.cut_after.store(90_000, Ordering::SeqCst);
    let ids = ids(400, 2);
    assert_each_once(&put_all(&mut client, &ids), &ids);
    drop(client);
    peer.stop();
}

#[test]
fn a_full_store_is_waited_for() {
    let (peer, mut client) = start();
    peer.state.lock().expect("state").no_space = 50;
    let ids = ids(40, 2);
    assert_each_once(&put_all(&mut client, &ids), &ids);
    assert_eq!(peer.state.lock().expect("state").puts_seen, 130);
    drop(client);
    peer.stop();
}

#[test]
fn a_put_that_finds_no_space_until_its_deadline_says_so() {
    let peer = Peer::start(Arc::new(Mutex::new(State { no_space: u32::MAX, ..State::default() })), "127.0.0.1:0");
    let config = ClientConfig::new(peer.address.to_string(), "test").deadline(Some(Duration::from_millis(200)));
    let mut client = Client::connect(config).expect("the server runs");
    client.put(FragmentId::new(1, 1, 1), 0, b"bytes").expect("taken");
    client.flush().expect("the server did answer");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].outcome, results[0].answered), (PutOutcome::NoSpace, true));
    assert!(results[0].latency >= Duration::from_millis(200));
    drop(client);
    peer.stop();
}

#[test]
fn wrong_bytes_are_asked_for_again_and_never_given() {
    let (peer, mut client) = start();
    let id = FragmentId::new(1, 1, 1);
    put_all(&mut client, &[id]);
    peer.state.lock().expect("state").flip = 2;
    assert_eq!(client.get(id).expect("the third answer is right"), bytes_of(id));
    peer.state.lock().expect("state").flip = u32::MAX;
    let error = client.get(id).expect_err("never right");
    assert!(matches!(error, ClientError::Damaged { times: 3, .. }), "{error}");
    drop(client);
    peer.stop();
}

#[test]
fn a_server_that_is_gone_is_reported_at_the_deadline() {
    let (peer, client) = start();
    drop(client);
    let config = ClientConfig::new(peer.address.to_string(), "test").deadline(Some(Duration::from_millis(300)));
    let mut client = Client::connect(config.clone()).expect("the server runs");
    client.put(FragmentId::new(1, 1, 1), 0, b"bytes").expect("taken");
    peer.stop();
    let error = client.flush().expect_err("nobody answers");
    assert!(matches!(error, ClientError::PutsUnanswered { puts: 1, .. }) && error.is_retryable(), "{error}");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert_eq!((results.len(), results[0].outcome, results[0].answered), (1, PutOutcome::Unavailable, false));
    let error = client.get(FragmentId::new(1, 1, 1)).expect_err("nobody answers");
    assert!(matches!(error, ClientError::Deadline { request: "Get", .. }) && error.is_retryable(), "{error}");
    let error = Client::connect(config.clone()).err().expect("nobody answers");
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
    // Whoever does not wait for a server that may come is told so at once.
    let error = Client::connect(ClientConfig { must_listen: true, ..config.deadline(None) }).err().expect("nobody");
    assert!(matches!(error, ClientError::NobodyListens { .. }) && error.is_retryable(), "{error}");
}

#[test]
fn of_several_servers_one_may_come_later() {
    let two: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    let addresses: Vec<String> = two.iter().map(|one| one.local_addr().expect("bound").to_string()).collect();
    drop(two);
    let mut config = ClientConfig::new(addresses.join(","), "test").deadline(Some(Duration::from_millis(100)));
    config.must_listen = true;
    let error = Client::connect(config.clone()).err().expect("nobody came");
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
    let waiting = std::thread::spawn(move || Client::connect(config.deadline(Some(Duration::from_secs(60)))));
    // Most probably it has found nobody by now.
    std::thread::sleep(Duration::from_millis(50));
    let peer = Peer::start(Arc::default(), &addresses[1]);
    drop(waiting.join().expect("no panic").expect("one has come"));
    peer.stop();
}

#[test]
fn something_else_behind_the_port_is_named() {
    for nonsense in [&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..], &[0; 100], &[0xFF; 33]] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let other = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            let mut hello = [0; 32];
            socket.read_exact(&mut hello).expect("a greeting");
            socket.write_all(nonsense).expect("written");
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = Client::connect(ClientConfig::new(address, "test")).err().expect("no Forebay server");
        assert!(matches!(error, ClientError::Protocol { .. }) && !error.is_retryable(), "{error}");
        other.join().expect("the other server");
    }
    let error = Client::connect(ClientConfig::new("no port", "test")).err().expect("no address");
    assert!(matches!(error, ClientError::Address { .. }), "{error}");
}

#[test]
fn another_store_behind_the_address_is_refused() {
    let (peer, mut client) = start();
    put_all(&mut client, &ids(10, 1));
    let (_, address) = peer.stop();
    let other = Arc::new(Mutex::new(State { store: [9; 16], ..State::default() }));
    let peer = Peer::start(other.clone(), &address);
    client.put(FragmentId::new(1, 1, 1), 0, b"bytes").expect("taken");
    let error = client.flush().expect_err("another store");
    let ClientError::PutsRefused { puts: 1, reason } = &error else { panic!("{error}") };
    assert!(matches!(**reason, ClientError::OtherStore { .. }), "{error}");
    assert_eq!(other.lock().expect("state").puts_seen, 0);
    assert!(client.put(FragmentId::new(1, 1, 1), 0, b"bytes").is_err());
    drop(client);
    peer.stop();
}
