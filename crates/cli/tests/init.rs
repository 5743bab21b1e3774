//! `init` refuses what it does not know, by name, and writes nothing then.

mod common;

use std::fs;

use common::{Drives, forebay, scratch};

#[test]
fn a_store_is_described() {
    let directory = scratch();
    let paths = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
    let made = Drives { directory, paths }.init(&[]).expect(0).json();
    assert_eq!((made["data_shards"].as_u64(), made["parity_shards"].as_u64()), (Some(4), Some(1)));
    assert!(made["store"].as_str().is_some_and(|store| store.len() == 36), "{made}");
    assert!(made["capacity_bytes"].as_u64().is_some_and(|bytes| bytes > 100 << 20), "{made}");
    assert!(made["seconds"].is_f64(), "{made}");
}

#[test]
fn a_drive_that_holds_something_is_refused_and_named() {
    let drives = Drives::five();
    let mut ext4 = vec![0; 1 << 20];
    ext4[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xEF]);
    let contents: [(&[u8], &str); 5] = [
        (b"\x1f\x8b compressed", "gzip"),
        (b"somebody's thesis", "text"),
        (&[0, 0, 0, 0xA5, 0x5A], "unknown data (from byte 3: a5 5a)"),
        (&ext4, "ext"),
        (b"\x7fELF program", "ELF"),
    ];
    for (bytes, named) in contents {
        let directory = scratch();
        let paths: Vec<_> = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
        fs::write(&paths[3], bytes).expect("written");
        let ran = Drives { directory, paths: paths.clone() };
        let refused = ran.init(&[]).expect(2);
        refused.says(named).says("Nothing was written").says("drive3").says("--force");
        assert_eq!(fs::read(&paths[3]).expect("read"), bytes, "it is as it was");
        assert!(!paths[0].exists(), "no other drive was made");
    }
    drives.init(&[]).expect(2).says("Nothing was written");
}

#[test]
fn a_used_drive_can_be_forced() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"old").expect(0);
    let old = server.ready["store"].clone();
    // A drive that a server has open is refused whatever is said.
    drives.init(&["--force"]).expect(2).says("in use");
    server.terminate().expect(0);
    drives.init(&[]).expect(2).says("a drive of a Forebay store");
    drives.init(&["--force"]).expect(0);
    let server = drives.serve();
    assert_ne!(server.ready["store"], old);
    server.get("1/1/1").expect(1).says("not found");
}

#[test]
fn options_that_make_no_store_are_refused() {
    let directory = scratch();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let five: Vec<String> = (0..5).map(|number| path(&format!("d{number}"))).collect();
    let init = |options: &[&str], drives: &[String]| {
        forebay(["init"].into_iter().chain(options.iter().copied()).chain(drives.iter().map(String::as_str)))
    };
    let size = ["--drive-bytes", "32MiB"];
    let with = |more: &[&'static str]| [&["--data", "4", "--parity", "1"], more].concat();
    init(&with(&size), &five[..4]).expect(2).says("needs at least 5");
    init(&with(&[]), &five).expect(2).says("--drive-bytes");
    init(&with(&["--drive-bytes", "1MiB"]), &five).expect(2).says("Nothing was written");
    let memory = ["--drive-bytes", "32MiB", "--index-bytes", "4KiB"];
    init(&with(&memory), &five).expect(2).says("--index-bytes").says("Nothing was written");
    let tiny =
        ["--drive-bytes", "32MiB", "--index-bytes", "1MiB", "--fragment-bytes-mean", "1MiB", "--unit-bytes", "100"];
    init(&with(&tiny), &five).expect(2).says("multiples of 4096");
    let mut twice = five.clone();
    twice[4].clone_from(&five[0]);
    init(&with(&size), &twice).expect(2).says("twice");
    init(&["--data", "0", "--parity", "1"], &five).expect(2).says("no width");
    let folder = [path("."), five[1].clone(), five[2].clone(), five[3].clone(), five[4].clone()];
    init(&with(&size), &folder).expect(2).says("directory");
    assert!(fs::read_dir(directory.path()).expect("read").next().is_none(), "nothing was made");
}
