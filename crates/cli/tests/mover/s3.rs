//! `forebay move` to S3, with Ceph's gateway.

use crate::common;
use crate::radosgw;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{forebay, noise, scratch};
use radosgw::Gateway;

fn arguments(gateway: &Gateway, place: &Path, to: &str) -> Vec<String> {
    let of = |name: &str| place.join(name).display().to_string();
    let keys = gateway.credentials_file("AKID", "SECRET").display().to_string();
    let (from, journal, endpoint) = (of("daq"), of("journal.sqlite"), gateway.endpoint());
    ["move", "--from", &from, "--to", to, "--journal", &journal, "--once", "--recheck-after", "1", "--json"]
        .into_iter()
        .chain(["--s3-endpoint", &endpoint, "--s3-credentials-file", &keys])
        .map(str::to_owned)
        .collect()
}

#[test]
fn files_go_to_ceph_whole_and_a_mover_that_is_killed_in_the_middle_leaves_nothing_behind() {
    let Some(gateway) = Gateway::own() else { return };
    gateway.make_bucket("AKID", "raw");
    let place = scratch();
    let files = [("a.dat", noise(1, 50_000_001)), ("run 7/b.dat", noise(2, 4096)), ("run 7/empty", Vec::new())];
    for (name, bytes) in &files {
        let path = place.path().join("daq").join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    let arguments = arguments(&gateway, place.path(), "s3://raw/2026");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut mover = command.spawn().expect("it starts");
    // Some marker is there: something is on its way.
    while !String::from_utf8_lossy(&gateway.get("raw?list-type=2")).contains(".part") {
        assert_eq!(mover.try_wait().expect("looked at"), None, "it ended before it sent anything");
    }
    mover.kill().expect("killed");
    mover.wait().expect("it ends");
    forebay(&arguments).expect(0);
    for (name, bytes) in &files {
        assert_eq!(&gateway.get(&format!("raw/2026/{}", name.replace(' ', "%20"))), bytes, "{name}");
        assert!(place.path().join("daq").join(format!("{name}.copied")).exists(), "{name}");
    }
    let listed = String::from_utf8(gateway.get("raw?list-type=2")).expect("text");
    assert_eq!(listed.matches("<Key>").count(), files.len(), "nothing besides: {listed}");
    // What another has put there is left alone.
    gateway.put("raw/2026/c.dat", b"another's");
    fs::write(place.path().join("daq/c.dat"), b"ours").expect("written");
    forebay(&arguments).expect(1).says("quarantined");
    assert_eq!(gateway.get("raw/2026/c.dat"), b"another's");
}
