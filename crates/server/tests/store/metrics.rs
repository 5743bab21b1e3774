//! `/metrics`, over HTTP.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use forebay_client::Class;
use forebay_server::alarm::Alarm;
use forebay_server::{Server, ServerConfig, StartError};
use forebay_telemetry::alarm::Alarms;
use forebay_telemetry::metrics::rows;
use forebay_telemetry::reach::ListenError;
use forebay_types::{DriveNumber, FragmentId};

use crate::world::{World, payload, results};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

fn with_metrics(configure: impl FnOnce(&mut World)) -> World {
    World::with(2, |world| {
        world.config.metrics = Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        configure(world);
    })
}

/// The head and the body of the answer.
fn get(world: &World, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(world.server().metrics_addr().expect("served")).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: forebay\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// Asks until the server has looked at itself so that this holds.
fn scrape_until(world: &World, holds: impl Fn(&str) -> bool) -> String {
    loop {
        let (head, body) = get(world, "/metrics");
        if head.starts_with("HTTP/1.1 200 ") && holds(&body) {
            assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
            return body;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn value(body: &str, sample: &str) -> f64 {
    let line = body.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{sample} is not in\n{body}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

#[test]
fn what_is_told_is_what_the_page_says() {
    let world = with_metrics(|world| world.config.rated_writes_tb = vec!["600".parse().expect("understood")]);
    let mut client = world.client(Class::Readout);
    for event in 0..500 {
        let id = FragmentId::new(1, event, 1);
        client.put(id, 1, &payload(id, 20_000)).expect("taken");
    }
    assert_eq!(results(&mut client).len(), 500);
    let stored = |lane: u16| format!("forebay_fragments_stored_total{{lane=\"{lane}\"}}");
    let body = scrape_until(&world, |body| value(body, &stored(0)) + value(body, &stored(1)) == 500.0);
    assert!(body.ends_with("# EOF\n"));

    // Each line of the page: HELP, TYPE, labels. And nothing else is told.
    let mut told = BTreeSet::new();
    for row in rows(PAGE, "The server") {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, labels, help] = cells[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        let family = if kind == "counter" { name.strip_suffix("_total").expect("a counter") } else { name };
        assert!(body.contains(&format!("# HELP {family} {help}\n")), "{family}: {help} in\n{body}");
        assert!(body.contains(&format!("# TYPE {family} {kind}\n")), "{family}");
        told.insert(name);
        let samples = body.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        for sample in samples {
            let names: Vec<&str> = match sample.split_once('{') {
                Some((_, rest)) => rest
                    .split("=\"")
                    .filter_map(|part| part.rsplit([',', '"']).next())
                    .filter(|name| !name.contains('}'))
                    .collect(),
                None => Vec::new(),
            };
            assert_eq!(names.join(", "), labels, "{sample}");
        }
    }
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    for sample in samples {
        let name = sample.split(['{', ' ']).next().expect("a name");
        assert!(told.contains(name), "{sample} is not in the page");
    }

    let written = value(&body, "forebay_drive_written_bytes_total{drive=\"0\"}");
    assert!(written > 500.0 * 20_000.0 / 3.0, "{written}");
    let ratio: f64 = (0..4)
        .map(|drive| value(&body, &format!("forebay_drive_written_bytes_per_payload_byte{{drive=\"{drive}\"}}")))
        .sum();
    // 3+1, headers, and the window and checkpoints of a small store.
    assert!(ratio > 4.0 / 3.0 && ratio < 4.0, "{ratio}");
    assert_eq!(value(&body, "forebay_drive_rated_bytes{drive=\"3\"}"), 600e12);
    assert_eq!(value(&body, "forebay_drives{state=\"member\"}"), 4.0);
}

#[test]
fn every_alarm_is_there_and_is_one_while_it_is_raised() {
    let world = with_metrics(|_| {});
    let sample = |alarm: Alarm| {
        let info = alarm.info();
        let severity = format!("{:?}", info.severity).to_lowercase();
        format!("forebay_alarm{{code=\"{}\",name=\"{}\",severity=\"{severity}\"}}", info.code, info.name)
    };
    let body = scrape_until(&world, |_| true);
    for alarm in Alarm::ALL.iter().copied() {
        assert_eq!(value(&body, &sample(alarm)), 0.0, "{alarm:?}");
    }
    let mut client = world.client(Class::Readout);
    client.inject_fault(DriveNumber(1)).expect("made to fail");
    for event in 0..500 {
        let id = FragmentId::new(1, event, 1);
        client.put(id, 1, &payload(id, 20_000)).expect("taken");
    }
    assert_eq!(results(&mut client).len(), 500);
    // Nobody asks for the state: it looks at itself.
    scrape_until(&world, |body| value(body, &sample(Alarm::DriveLost)) == 1.0);
}

#[test]
fn a_stop_ends_it_and_nothing_else_is_served() {
    let mut world = with_metrics(|_| {});
    assert!(get(&world, "/").0.starts_with("HTTP/1.1 404 "));
    // One that says nothing does not hold up the stop.
    let idle = TcpStream::connect(world.server().metrics_addr().expect("served")).expect("connects");
    scrape_until(&world, |_| true);
    let address = world.server().metrics_addr().expect("served");
    assert!(world.stop().clean);
    assert!(TcpStream::connect(address).is_err());
    drop(idle);
}

#[test]
fn other_machines_are_served_only_when_they_are_named() {
    let config = ServerConfig {
        listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        metrics: Some("0.0.0.0:0".parse().expect("an address")),
        ..ServerConfig::default()
    };
    let refused = Server::bind(&config).err().expect("refused");
    assert!(matches!(refused, StartError::Listen(ListenError::Insecure { option: "--metrics", .. })), "{refused}");
    assert!(refused.to_string().starts_with("--metrics 0.0.0.0:0 can be reached"), "{refused}");
    let config = ServerConfig { insecure_network: vec!["192.0.2.0/24".parse().expect("a network")], ..config };
    assert!(Server::bind(&config).is_ok());
    // The port is taken: no drive is touched.
    let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let config = ServerConfig { metrics: Some(other.local_addr().expect("bound")), ..config };
    let refused = Server::bind(&config).err().expect("refused").to_string();
    assert!(refused.contains("nothing was started") && refused.contains("pick another --metrics"), "{refused}");
}
