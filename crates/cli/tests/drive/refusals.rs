//! What is refused, in what words, and that nothing was changed by it.

use std::fs;
use std::path::Path;

use forebay_client::{ChangeDrive, DriveChange};
use forebay_types::DriveNumber;
use serde_json::Value;

use super::common::{Ran, Server, noise};
use super::store::{Store, drive, drive_command, list, total, wait_until, wait_until_whole};

/// Exit code 2, and the words.
#[track_caller]
fn refused(ran: Ran, words: &[&str]) {
    let ran = ran.expect(2);
    for words in words {
        ran.says(words);
    }
}

fn replace(server: &Server, drive: u16, path: &Path, more: &[&str]) -> Ran {
    let (drive, path) = (drive.to_string(), path.display().to_string());
    let words: Vec<&str> = ["replace", &drive, &path].into_iter().chain(more.iter().copied()).collect();
    drive_command(server, &words)
}

fn states(list: &Value) -> Vec<&str> {
    list["drives"].as_array().expect("a list").iter().filter_map(|drive| drive["state"].as_str()).collect()
}

#[test]
fn a_drive_that_the_store_does_not_have_is_none_to_change() {
    let store = Store::make(5, 32, "");
    let server = store.serve();
    for words in [&["fail", "9"][..], &["fail", "9", "--force"], &["retire", "9"]] {
        refused(
            drive_command(&server, words),
            &["the store has no drive 9; nothing was changed", "forebay drive list"],
        );
    }
    refused(replace(&server, 9, &store.place("new"), &[]), &["the store has no drive 9; nothing was changed"]);
    assert!(!store.place("new").exists());
    refused(drive_command(&server, &["replace", "1", "new"]), &["expected a path from the root"]);
    assert_eq!(states(&list(&server)), ["member"; 5]);
}

#[test]
fn a_drive_that_data_need_is_given_up_only_by_force_and_comes_back_with_the_next_start() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, 2000);
    let told = text(&drive_command(&server, &["fail", "2"]).expect(0));
    for words in [
        "made anew when there is a drive for it: `forebay drive replace 2 PATH`",
        "NO MORE DRIVE MAY FAIL",
        "written 3+1 instead of 4+1",
    ] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert_eq!(server.status()["drives_failed"], 1);
    let words = ["out of reach without drive 3; nothing was changed", "forebay drive retire", "--force"];
    refused(drive_command(&server, &["fail", "3"]), &words);
    assert_eq!(states(&list(&server)), ["member", "member", "failed", "member", "member"]);
    store.verify(&server);
    let told = text(&drive_command(&server, &["fail", "3", "--force"]).expect(0));
    assert!(told.contains("OUT OF REACH now") && told.contains("do not wipe it"), "{told}");
    assert_eq!(drive(&list(&server), 3)["state"], "failed");
    says_that_it_is_out_of_reach(&server);
    let (_, missing) = super::common::load::compare(&mut server.client("test"), &store.ids);
    assert!(!missing.is_empty() && missing.iter().all(|words| words.contains("unavailable")), "{missing:?}");
    let log = server.kill();
    for words in
        ["wanted to change a drive (given up)", "and was refused: something that is stored", "given up by force, as "]
    {
        assert!(log.contains(words), "{words:?} is not in {log}");
    }
    let server = store.serve();
    assert_eq!(states(&list(&server)), ["member", "member", "out", "out", "member"]);
    store.verify(&server);
    wait_until(&server, |_| total(&server, "/rebuild/segments_waiting") > 0);
    let words = ["drive 3 is no member of the store; nothing was changed", "made anew", "forebay drive replace 3 PATH"];
    refused(drive_command(&server, &["retire", "3"]), &words);
}

fn text(ran: &Ran) -> String {
    String::from_utf8(ran.stdout.clone()).expect("UTF-8")
}

/// Everywhere: nothing is lost, something cannot be read now, and drives 2 and 3 would bring it.
fn says_that_it_is_out_of_reach(server: &Server) {
    let status = server.run(&["status", "--json"]).expect(3).json();
    let totals = &status["totals"];
    assert!(totals["out_of_reach"]["segments"].as_u64() > Some(0), "{totals}");
    assert!(totals["out_of_reach"]["bytes"].as_u64() > Some(0), "{totals}");
    assert_eq!((&status["health"], &status["drives_failed"]), (&"ERR".into(), &2.into()));
    let alarms = status["alarms"].as_array().expect("a list");
    let alarm = alarms.iter().find(|alarm| alarm["code"] == "FB-106").expect("it is raised");
    let words = alarm["words"].as_str().expect("words");
    assert!(words.starts_with("out of reach, and not lost: ") && words.contains("put back drives 2, 3"), "{words}");
    let screen = text(&server.run(&["status"]).expect(3));
    for words in ["put back drives 2, 3", "some of what is stored is OUT OF REACH", "out of reach already"] {
        assert!(screen.contains(words), "{words:?} is not in\n{screen}");
    }
    assert!(!screen.contains("more drives may fail"), "{screen}");
    server.run(&["lost"]).expect(3).says("Nothing was found to be lost since this start");
    assert_eq!(list(server)["out_of_reach"]["drives"], serde_json::json!([2, 3]));
}

#[test]
fn a_server_that_only_reads_changes_no_drive() {
    let store = Store::make(5, 32, "");
    let server = store.serve_on(&["--read-only"], &store.paths);
    for words in [&["fail", "1"][..], &["fail", "1", "--force"], &["retire", "1"]] {
        refused(drive_command(&server, words), &["started read-only and changes no drive; nothing was changed"]);
    }
    assert!(!server.run(&["drive", "fail", "1"]).stderr.contains("--force"), "what is advised is not refused");
}

#[test]
fn so_many_drives_stay_that_the_store_can_write() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, 100);
    drive_command(&server, &["retire", "0"]).expect(0);
    let told = text(&drive_command(&server, &["retire", "1"]).expect(0));
    let words =
        "Drives in use: 3, and a segment takes 5: what lives on it is made anew only when a new drive is put in";
    assert!(told.contains(words), "{told}");
    let words = ["without drive 2 2 of 3 members would be left", "nothing was changed. Put a new drive in first"];
    refused(drive_command(&server, &["retire", "2"]), &words);
    refused(drive_command(&server, &["fail", "2", "--force"]), &words);
    let ran = drive_command(&server, &["fail", "2"]).expect(2);
    assert!(ran.stderr.contains("Put a new drive in first") && !ran.stderr.contains("--force"), "{}", ran.stderr);
    store.fill(&server, 2, 100);
    store.verify(&server);
    store.replace(&server, 0, "new");
    drive_command(&server, &["retire", "2"]).expect(0);
    store.fill(&server, 3, 100);
    store.verify(&server);
}

#[test]
fn what_the_server_has_open_is_no_new_drive() {
    let store = Store::make(5, 32, "");
    let server = store.serve();
    for more in [&[][..], &["--force"]] {
        let words = ["is drive 3 of this store, which this server has open; nothing was changed"];
        refused(replace(&server, 1, &store.paths[3], more), &words);
    }
    // Under other names it is the same.
    let link = store.place("link");
    std::os::unix::fs::symlink(&store.paths[3], &link).expect("made");
    fs::create_dir(store.place("directory")).expect("made");
    for name in [link, store.place("directory/../drive3")] {
        let words = ["is drive 3 of this store, which this server has open; nothing was changed"];
        refused(replace(&server, 1, &name, &["--force"]), &words);
    }
    assert_eq!(states(&list(&server)), ["member"; 5]);
    server.put("1/1/1", &noise(1, 100_000)).expect(0);
    assert_eq!(server.get("1/1/1").expect(0).stdout, noise(1, 100_000));
    server.terminate().expect(0);
    assert_eq!(states(&list(&store.serve())), ["member"; 5]);
}

#[test]
fn one_drive_is_replaced_at_a_time() {
    let store = Store::make(5, 32, "");
    let server = store.serve();
    let mut client = server.client("test");
    let replace = |client: &mut forebay_client::Client, drive: u16, name: String| {
        let (drive, path) = (DriveNumber(drive), store.place(&name).display().to_string());
        client.change_drive(ChangeDrive { drive, change: DriveChange::Replace { path, force: false } })
    };
    // The first may be over already when the second comes.
    for round in 0.. {
        replace(&mut client, 2 * round, format!("first{round}")).expect("none is replaced");
        let second = replace(&mut client, 2 * round + 1, format!("second{round}"));
        wait_until(&server, |_| {
            ["done", "failed"].iter().any(|state| server.status()["replacement"]["state"] == **state)
        });
        if let Err(error) = second {
            let error = error.to_string();
            assert!(error.contains("another drive is being replaced; nothing was changed"), "{error}");
            assert!(!store.place(&format!("second{round}")).exists());
            assert_eq!(server.status()["replacement"]["state"], "done");
            return;
        }
    }
}

#[test]
fn what_holds_something_is_destroyed_only_by_force() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, 2000);
    let path = store.place("used");
    let bytes = fs::metadata(&store.paths[0]).expect("a drive").len() as usize;
    fs::write(&path, noise(7, bytes)).expect("written");
    refused(replace(&server, 1, &path, &[]), &["holds unknown data", "Nothing was written", "--force"]);
    assert!(fs::read(&path).expect("read") == noise(7, bytes), "it is as it was");
    assert_eq!(states(&list(&server)), ["member"; 5]);
    replace(&server, 1, &path, &["--force"]).expect(0);
    assert_eq!(states(&list(&server)), ["member", "retired", "member", "member", "member", "member"]);
    wait_until_whole(&server);
    server.kill();
    store.paths[1] = path;
    let zero = store.paths[0].clone();
    store.verify(&store.serve_on(&[], &store.without(&[&zero])));
}

#[test]
fn what_is_too_small_or_cannot_be_made_is_not_taken() {
    let store = Store::make(5, 32, "");
    let server = store.serve();
    let small = store.place("small");
    fs::write(&small, vec![0; 16 << 20]).expect("written");
    let words = ["room for the", "bytes, and", "are needed", "too small", "Nothing was written"];
    refused(replace(&server, 1, &small, &[]), &words);
    assert_eq!(fs::metadata(&small).expect("there").len(), 16 << 20);
    refused(replace(&server, 1, &store.place("nowhere/new"), &[]), &["nowhere does not exist"]);
    refused(replace(&server, 1, Path::new("/dev/null"), &[]), &["a character device"]);
    assert_eq!(states(&list(&server)), ["member"; 5]);
}

#[test]
fn a_drive_of_the_store_is_never_overwritten_while_something_is_out_of_reach() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, 2000);
    drive_command(&server, &["fail", "2"]).expect(0);
    drive_command(&server, &["fail", "3", "--force"]).expect(0);
    server.kill();
    let (two, three) = (store.paths[2].clone(), store.paths[3].clone());
    let before = fs::read(&three).expect("read");
    let server = store.serve_on(&[], &store.without(&[&two, &three]));
    let words = ["is drive 3 of this store", "may be out of reach", "Nothing was written", "Start the server with it"];
    for more in [&[][..], &["--force"]] {
        refused(replace(&server, 3, &three, more), &words);
        refused(replace(&server, 2, &three, more), &words);
    }
    server.kill();
    assert!(fs::read(&three).expect("read") == before, "it is as it was");
    store.verify(&store.serve());
}

#[test]
fn a_drive_of_a_store_is_named_before_it_is_destroyed() {
    let (mut store, other) = (Store::make(5, 32, ""), Store::make(5, 32, ""));
    let server = store.serve();
    store.fill(&server, 1, 2000);
    server.terminate().expect(0);
    let two = store.paths[2].clone();
    let server = store.serve_on(&[], &store.without(&[&two]));
    let words = ["is drive 2 of this store. Nothing was written", "Start the server with it", "--force"];
    refused(replace(&server, 2, &two, &[]), &words);
    refused(replace(&server, 2, &other.paths[4], &[]), &["is drive 4 of another store, ", "Nothing was written"]);
    store.verify(&server);
    // Nothing is missed but what it held itself.
    replace(&server, 2, &two, &["--force"]).expect(0);
    wait_until_whole(&server);
    server.kill();
    let zero = store.paths[0].clone();
    store.verify(&store.serve_on(&[], &store.without(&[&zero])));
    other.serve().terminate().expect(0);
}

#[test]
fn a_drive_is_replaced_once() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.replace(&server, 1, "new");
    let words = ["drive 1 was replaced by drive 5 already; nothing was changed"];
    refused(replace(&server, 1, &store.place("newer"), &[]), &words);
    assert!(!store.place("newer").exists());
    store.replace(&server, 5, "newer");
}
