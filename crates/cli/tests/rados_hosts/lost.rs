//! Two hosts of twelve are killed: the demo, files, a mount and a mover go on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::ceph::Ceph;
use crate::common::mounted::{Mounted, has_fuse};
use crate::common::pools::{MEDIA, init, serve};
use crate::common::running::{files_below, until};
use crate::common::{Ran, Server, forebay, noise, scratch};
use crate::{CLUSTER, ask_json, objects};

const LOST: [&str; 2] = ["osd.3", "osd.7"];

fn demo(name: &str, more: &[&str]) -> Ran {
    let directory = scratch();
    let dir = directory.path().display().to_string();
    let words = ["demo", "--json", "--media", MEDIA, "--name", name, "--drive-bytes", "128MiB", "--dir", &dir];
    let ran = forebay(words.iter().chain(more));
    let left: Vec<_> = fs::read_dir(directory.path()).expect("read").collect();
    assert!(left.is_empty(), "{left:?} is left; {ran:?}");
    ran
}

/// What a demo leaves: the object that counts the store's owners.
#[track_caller]
fn expect_removed(name: &str) {
    assert_eq!((objects("ec", name), objects("meta", name)), (Vec::new(), vec!["lock".to_owned()]));
}

#[track_caller]
fn expect_balance(ran: &Ran, events: u64) {
    let ledger = ran.json();
    let number = |key: &str| ledger[key].as_u64().unwrap_or_else(|| panic!("{key} in {ledger}"));
    for key in ["lost", "mismatched", "events_incomplete", "drives_failed", "fragments_from_parity"] {
        assert_eq!(number(key), 0, "{key} in {ledger}");
    }
    assert_eq!(number("fragments_written"), number("fragments_acknowledged"), "{ledger}");
    assert_eq!((number("events_built"), number("events_accepted") + number("events_rejected")), (events, events));
    assert_eq!(number("events_accepted"), number("events_shipped"), "{ledger}");
}

fn hosts_up() -> u64 {
    let stat = ask_json("ceph", &["osd", "stat", "-f", "json"]);
    stat["num_up_osds"].as_u64().expect("a number")
}

/// Files of a store, which a mount has too, where there is FUSE.
struct Files {
    server: Server,
    mounted: Option<Mounted>,
    expected: BTreeMap<String, Vec<u8>>,
}

impl Files {
    fn start() -> Files {
        init("files").expect(0);
        let server = serve("files");
        let mounted = has_fuse().then(|| Mounted::start(&server.address, &[]));
        server.run(&["file", "mkdir", "forebay:/daq"]).expect(0);
        Files { server, mounted, expected: BTreeMap::new() }
    }

    /// Two files by the mount, and one by the program.
    fn write(&mut self, seed: u64) {
        for (number, bytes) in [(0, 2_500_001), (1, 70_000), (2, 4_200_000)] {
            let (name, bytes) = (format!("{seed}-{number}.dat"), noise(seed * 10 + number, bytes));
            match self.mounted.as_ref().filter(|_| number < 2) {
                Some(mounted) => {
                    let path = mounted.join("daq").join(&name);
                    fs::write(&path, &bytes).and_then(|()| fs::File::open(path)?.sync_all()).expect("written");
                }
                None => {
                    let to = format!("forebay:/daq/{name}");
                    self.server.run_with(&["file", "cp", "-", &to], &bytes).expect(0);
                }
            }
            self.expected.insert(name, bytes);
        }
    }

    /// All of them, by the program and by the mount.
    #[track_caller]
    fn compare(&self) {
        for (name, bytes) in &self.expected {
            let from = format!("forebay:/daq/{name}");
            let read = self.server.run(&["file", "cat", &from]).expect(0).stdout;
            assert!(read == *bytes, "{name}: {} of {} bytes", read.len(), bytes.len());
        }
        if let Some(mounted) = &self.mounted {
            assert!(files_below(&mounted.join("daq")) == self.expected, "the mount has other bytes");
        }
    }

    /// All of them to a directory; the store lets them go.
    fn move_to(&self, place: &Path) {
        for name in self.expected.keys() {
            self.server.run(&["file", "seal", &format!("forebay:/daq/{name}")]).expect(0);
        }
        let text = |name: &str| place.join(name).display().to_string();
        let (archive, journal) = (text("archive"), text("journal.sqlite"));
        let words = ["move", "--from", "forebay:/daq", "--to", &archive, "--journal", &journal, "--json"];
        let moved = self.server.run(&[&words[..], &["--once", "--recheck-after", "0.1"]].concat()).expect(0).json();
        assert_eq!(moved["released"].as_u64(), Some(self.expected.len() as u64), "{moved}");
        assert!(files_below(Path::new(&archive)) == self.expected, "the mover's files are others");
    }
}

#[test]
fn two_hosts_of_twelve_may_be_lost_half_way() {
    let Some(ceph) = Ceph::of_hosts() else { return };
    let _alone = CLUSTER.write();
    // What is there stays as it is, and what a demo that fails made is removed.
    init("there").expect(0);
    demo("there", &["--events", "10"]).expect(2).says("holds a store. Nothing was written");
    assert!(objects("meta", "there").contains(&"place.0".to_owned()));
    let fails = ["--events", "10", "--half-way", "echo the ladder is gone >&2; exit 7"];
    demo("fails", &fails).expect(7).says("the ladder is gone").says("exit status: 7");
    expect_removed("fails");

    let mut files = Files::start();
    files.write(1);
    files.compare();
    let command = format!("kill -9 {} {}", ceph.process(LOST[0]), ceph.process(LOST[1]));
    let ran = demo("lost-hosts", &["--events", "1500", "--half-way", &command]).expect(0);
    expect_balance(&ran, 1500);
    expect_removed("lost-hosts");
    until(|| hosts_up() == 10);

    files.compare();
    files.write(2);
    files.compare();
    // A new server finds all of it, too; the mount's server is gone with the old one.
    if let Some(mounted) = files.mounted.take() {
        mounted.terminate().expect(0);
    }
    files.server.terminate().expect(0);
    files.server = serve("files");
    files.compare();
    let place = scratch();
    files.move_to(place.path());
    files.server.terminate().expect(0);
    ceph.heal();
}
