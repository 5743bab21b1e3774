//! S3 that lies, loses, hangs and refuses, under a mover that runs: Ceph's gateway, with something between where it would not do that itself. Each is told by `forebay move show` in
//! the destination's own words, and nothing is let go.

use crate::common;
use crate::radosgw;

use std::process::Stdio;
use std::time::Duration;

use common::between::{Between, Passing};
use common::noise;
use common::place::Place;
use common::running::{Running, until};
use radosgw::Gateway;

const BYTES: usize = 300_000;

/// Does something to what is there.
type Spoils<'a> = &'a dyn Fn();

/// A source with one file, and a gateway.
struct Lying<'a> {
    place: Place,
    gateway: &'a Gateway,
}

impl Lying<'_> {
    fn new(gateway: &Gateway) -> Lying<'_> {
        let place = Place::new();
        place.write("daq/a.dat", &noise(1, BYTES));
        Lying { place, gateway }
    }

    /// A mover to a bucket, by the keys of a user; by way of what lies between, if something does.
    fn start(&self, to: &str, user: &str, between: Option<&Between>, more: &[&str]) -> Running {
        let endpoint =
            between.map_or_else(|| self.gateway.endpoint(), |between| format!("http://127.0.0.1:{}", between.port));
        let keys = self.gateway.credentials_file(user, "SECRET").display().to_string();
        let of_s3 =
            ["--s3-endpoint", &endpoint, "--s3-credentials-file", &keys, "--settle", "0", "--recheck-after", "2"];
        Running::start(self.place.arguments_to(to, &[&of_s3, more].concat()), Stdio::null())
    }

    fn shown(&self, what: &str) -> String {
        self.place.show("a.dat")["deliveries"][0][what].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until it is told, and sees that the source has its file.
    fn is_told(&self, mover: Running, words: &[&str]) {
        until(|| words.iter().all(|word| self.shown("words").contains(word)));
        assert_eq!(mover.terminate(), Some(0));
        assert!(self.place.read("daq/a.dat") == Some(noise(1, BYTES)), "{words:?}");
        assert!(!self.place.path("daq/a.dat.copied").exists(), "{words:?}");
    }
}

#[test]
fn a_service_that_lies_is_caught_whatever_it_lies_about() {
    let Some(gateway) = Gateway::own() else { return };
    gateway.make_bucket("AKID", "raw");
    let port = gateway.endpoint().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let mut flipped = noise(1, BYTES);
    flipped[7] ^= 1;
    // What becomes of the file after its first proof.
    let spoils: [(&str, Spoils<'_>, &[&str]); 3] = [
        ("dropped", &|| gateway.remove("raw/dropped/a.dat"), &["it was there, and is not 2 s later"]),
        (
            "truncated",
            &|| gateway.put("raw/truncated/a.dat", &noise(1, BYTES)[..BYTES / 2]),
            &["the destination holds 150000 bytes", "expected 300000 bytes"],
        ),
        (
            "flipped",
            &|| gateway.put("raw/flipped/a.dat", &flipped),
            &["the destination holds 300000 bytes", "expected 300000 bytes"],
        ),
    ];
    for (what, spoil, words) in spoils {
        let lying = Lying::new(&gateway);
        let mover = lying.start(&format!("s3://raw/{what}"), "AKID", None, &[]);
        until(|| lying.shown("state") == "verified");
        spoil();
        lying.is_told(mover, words);
    }
    let passing: [(&str, Passing, &[&str]); 3] = [
        ("late", Passing::Late(Duration::from_secs(3)), &["nothing happened for 1 s"]),
        ("hangs", Passing::Hangs, &["nothing happened for 1 s"]),
        ("cut", Passing::CutsAfter(BYTES / 2), &["cut"]),
    ];
    for (what, passing, words) in passing {
        let lying = Lying::new(&gateway);
        let between = Between::start(port, passing);
        let mover = lying.start(&format!("s3://raw/{what}"), "AKID", Some(&between), &["--stall-after", "1"]);
        lying.is_told(mover, words);
    }
    gateway.make_user_with_quota("SMALL", 1 << 17);
    gateway.make_bucket("SMALL", "small");
    for (to, user, words) in [("s3://small", "SMALL", "QuotaExceeded"), ("s3://raw/refused", "SMALL", "403")] {
        let lying = Lying::new(&gateway);
        let mover = lying.start(to, user, None, &[]);
        lying.is_told(mover, &[words]);
    }
    // Another ETag than follows from the parts proves nothing, nor that it is wrong: all is read back.
    let lying = Lying::new(&gateway);
    let between = Between::start(port, Passing::OtherEtag(BYTES));
    let mover = lying.start("s3://raw/etag", "AKID", Some(&between), &[]);
    until(|| lying.place.path("daq/a.dat.copied").exists() || lying.shown("state") == "quarantined");
    assert_eq!(lying.shown("state"), "proven", "{}", lying.shown("words"));
    assert_eq!(mover.terminate(), Some(0));
    assert!(gateway.get("raw/etag/a.dat") == noise(1, BYTES));
}

#[test]
fn each_file_is_there_once_whenever_the_gateway_dies() {
    const FILES: u64 = 12;
    let Some(mut gateway) = Gateway::own() else { return };
    gateway.make_bucket("AKID", "raw");
    let place = Place::new();
    for number in 0..FILES {
        let bytes = if number % 4 == 0 { 20_000_000 } else { BYTES };
        place.write(&format!("daq/file{number:02}.dat"), &noise(number, bytes));
    }
    let lying = Lying { place, gateway: &gateway };
    let mover = lying.start("s3://raw", "AKID", None, &[]);
    let place = lying.place;
    let log = || String::from_utf8(place.read("journal.sqlite.audit.jsonl").unwrap_or_default()).expect("text");
    for state in ["sending", "arrived", "verified", "proven"] {
        let seen = || log().matches(&format!("\"after\":\"{state}\"")).count();
        let before = seen();
        until(|| seen() > before);
        gateway.kill();
        // It is told, and waited for.
        until(|| log().contains("\"after\":\"sending\""));
        gateway.begin();
    }
    until(|| (0..FILES).all(|number| place.path(&format!("daq/file{number:02}.dat.copied")).exists()));
    assert_eq!(mover.terminate(), Some(0));
    for number in 0..FILES {
        let kept = place.read(&format!("daq/file{number:02}.dat.copied"));
        assert!(kept == Some(gateway.get(&format!("raw/file{number:02}.dat"))), "file{number:02}.dat");
    }
    let listed = String::from_utf8(gateway.get("raw?list-type=2")).expect("text");
    assert_eq!(listed.matches("<Key>").count() as u64, FILES, "nothing besides: {listed}");
}
