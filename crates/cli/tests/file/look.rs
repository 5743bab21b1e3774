//! `forebay file ls`, `stat` and `du`.

use forebay_client::files::{Owner, WriteOptions};
use forebay_types::{Adler32, crc32c};

use super::common::{forebay, noise};
use super::store::Store;

#[test]
fn what_is_there_is_listed_told_and_counted() {
    let store = Store::start();
    store.file(&["mkdir", "-p", "/run17/calibration"]).expect(0);
    let bytes = noise(1, 100_000);
    store.put("/run17/raw.dat", &bytes);
    store.put("/run17/calibration/empty", b"");
    assert_eq!(store.list(&["/run17"]), ["calibration/", "raw.dat"]);
    assert_eq!(store.list(&["/run17/calibration", "/run17/raw.dat"]), ["/run17/calibration/empty", "/run17/raw.dat"]);
    let long = store.list(&["-l", "forebay:/run17"]);
    assert!(long[0].starts_with("drwxr-xr-x   2 ") && long[0].ends_with(" -             calibration/"), "{long:?}");
    assert!(long[1].starts_with("-rw-r--r--   1 ") && long[1].contains(" 100,000 "), "{long:?}");
    assert!(long[1].ends_with(" UTC sealed        raw.dat"), "{long:?}");
    let all = ["/run17/", "/run17/calibration/", "/run17/calibration/empty", "/run17/raw.dat"];
    assert_eq!(store.list(&["-R"]), all);
    let told = store.file(&["ls", "-lR", "--json", "/"]).expect(0).json();
    let states: Vec<_> = told["entries"].as_array().expect("a list").iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, [&serde_json::Value::Null, &().into(), &"sealed".into(), &"sealed".into()]);

    let known = store.stat("/run17/raw.dat");
    let mut adler32 = Adler32::default();
    adler32.update(&bytes);
    assert_eq!(known["crc32c"], format!("{:08x}", crc32c(&bytes)));
    assert_eq!(known["adler32"], format!("{:08x}", adler32.finish()));
    assert_eq!((&known["kind"], &known["bytes"], &known["mode"]), (&"file".into(), &100_000.into(), &"0644".into()));
    assert_eq!(known["owner"], rustix::process::getuid().as_raw());
    let ran = store.file(&["stat", "/run17/raw.dat", "/run17"]).expect(0);
    let words = String::from_utf8(ran.stdout).expect("UTF-8");
    for line in
        ["  state     sealed: it never changes again", "  bytes     100,000 (97.7 KiB)", "  kind      directory"]
    {
        assert!(words.contains(line), "{line:?} is not in {words}");
    }

    let counted = store.file(&["du", "--json"]).expect(0).json();
    let counted: Vec<_> = counted["entries"].as_array().expect("a list").clone();
    let paths: Vec<_> = counted.iter().map(|entry| (&entry["path"], &entry["bytes"], &entry["files"])).collect();
    let expected = [("/run17/calibration", 0, 1), ("/run17", 100_000, 2), ("/", 100_000, 2)];
    for ((path, bytes, files), found) in expected.into_iter().zip(&paths) {
        assert_eq!(*found, (&path.into(), &bytes.into(), &files.into()));
    }
    assert_eq!(paths.len(), 3);
    let summary = String::from_utf8(store.file(&["du", "-s", "/run17", "/run17/raw.dat"]).expect(0).stdout);
    let summary = summary.expect("UTF-8");
    assert_eq!(summary, "  97.7 KiB          2 files  /run17\n  97.7 KiB           1 file  /run17/raw.dat\n");
}

#[test]
fn what_is_not_there_is_told_and_the_rest_done() {
    let store = Store::start();
    store.put("/here", b"bytes");
    for command in ["ls", "stat", "du"] {
        let ran = store.file(&[command, "/gone", "/here"]).expect(1);
        ran.says("/gone: there is no such file");
        assert!(String::from_utf8_lossy(&ran.stdout).contains("/here"), "{ran:?}");
        let told = store.file(&[command, "--json", "/gone", "/here", "/away"]).expect(1).json();
        assert_eq!((told["entries"].as_array().map(Vec::len), &told["exit"]), (Some(1), &1.into()), "{told}");
        assert!(told["error"].as_str().is_some_and(|error| error.starts_with("with 2 names")), "{told}");
    }
    store.file(&["ls", "/here/x"]).expect(2).says("not a directory");
}

#[test]
fn a_directory_of_many_pages_is_listed_counted_and_removed() {
    const NAMES: usize = 3500;
    let store = Store::start();
    let owner = Owner { mode: 0o755, owner: 0, group: 0 };
    store.file(&["mkdir", "/many"]).expect(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let files = store.files();
            scope.spawn(move || {
                for number in (thread..NAMES).step_by(4) {
                    files.symlink(b"nowhere", format!("/many/{number:05}"), &owner).expect("made");
                }
            });
        }
    });
    let listed = store.list(&["/many"]);
    assert!(listed.len() == NAMES && listed.iter().enumerate().all(|(place, name)| *name == format!("{place:05}")));
    let told = store.file(&["ls", "-l", "--json", "/many"]).expect(0).json();
    assert_eq!(told["entries"].as_array().map(Vec::len), Some(NAMES));
    assert_eq!(told["entries"][NAMES - 1]["target"], "nowhere");
    let removed = store.file(&["rm", "-r", "--json", "/many"]).expect(0).json();
    assert_eq!(removed["removed"], NAMES + 1);
    assert!(store.list(&["/"]).is_empty());
}

#[test]
fn a_file_that_is_left_is_told_as_not_sealed_and_one_that_is_closed_so_too() {
    let store = Store::start();
    let files = store.files();
    let options = WriteOptions { seal: false, ..WriteOptions::default() };
    let mut writer = files.create("/open", &options).expect("made");
    assert_eq!(store.stat("/open")["state"], "being-written");
    writer.write(b"bytes").expect("taken");
    writer.close().expect("durable");
    assert_eq!((&store.stat("/open")["state"], &store.stat("/open")["bytes"]), (&"not-sealed".into(), &5.into()));
}

#[test]
fn every_command_has_examples_and_says_when_no_server_is_there() {
    for command in ["ls", "stat", "cat", "cp", "rm", "mv", "mkdir", "seal", "du"] {
        let help = String::from_utf8(forebay(["file", command, "--help"]).expect(0).stdout).expect("UTF-8");
        assert!(help.contains(&format!("Usage: forebay file {command}")) && help.contains("Examples:"), "{help}");
    }
    // Nobody listens on port 1 of this machine.
    let words: [&[&str]; 4] =
        [&["file", "ls"], &["file", "rm", "/a"], &["file", "cp", "forebay:/a", "/nowhere/a"], &["tail", "-f", "/a"]];
    for words in words {
        forebay(words.iter().chain(&["--server", "127.0.0.1:1"])).expect(3).says("nothing listens at 127.0.0.1:1");
    }
    for words in
        [&["file", "cp", "a", "b"][..], &["file", "cp", "forebay://host/a", "b"], &["file", "cat"], &["tail", ""]]
    {
        forebay(words).expect(2);
    }
    forebay(["file", "cp", "a", "b"]).expect(2).says("both sides are local");
}
