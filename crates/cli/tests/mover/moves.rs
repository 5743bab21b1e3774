//! `forebay move`, from one directory to others.

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::place::Place;
use common::running::until;
use common::{damaged_file, faser_file, forebay, noise};
use forebay_rawdata::{Container, Format};
use forebay_types::RunId;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn what_is_there_is_moved_under_its_name_and_renamed_when_it_is_proven() {
    let place = Place::new();
    let files = [("a.dat", noise(1, 3_000_001)), ("run 7/ü.dat", noise(2, 4096)), ("run 7/empty", Vec::new())];
    for (name, bytes) in &files {
        place.write(&format!("daq/{name}"), bytes);
    }
    for left_alone in ["daq/old.dat.copied", "daq/.hidden", "daq/half.part", "daq/.git/config"] {
        place.write(left_alone, b"not to be moved");
    }
    let json = place.once(&[]).expect(0).json();
    assert_eq!((&json["found"], &json["released"], &json["left_files"]), (&3.into(), &3.into(), &0.into()), "{json}");
    for (name, bytes) in &files {
        assert_eq!(place.read(&format!("archive/{name}")).as_ref(), Some(bytes), "{name}");
        assert_eq!(place.read(&format!("daq/{name}.copied")).as_ref(), Some(bytes), "{name}");
        assert!(!place.path(&format!("daq/{name}")).exists(), "{name}");
    }
    let there = place.archived();
    assert_eq!(there.len(), files.len(), "nothing besides: {there:?}");
    // Nothing is left to be done, and nothing is done twice; a new file of an old name is another one, and is in the way of the first.
    assert_eq!(place.once(&[]).expect(0).json()["found"], 0);
    place.write("daq/a.dat", b"another");
    place.once(&[]).expect(1).says("quarantined");
    assert_eq!(place.read("archive/a.dat").as_ref(), Some(&files[0].1));
    assert_eq!(place.read("daq/a.dat").as_deref(), Some(b"another".as_slice()));
}

#[test]
fn a_name_that_no_destination_takes_is_told_and_not_taken_for_moved() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    place.write("daq/two\nlines", b"more");
    std::os::unix::fs::symlink("a.dat", place.path("daq/link")).expect("made");
    place.once(&[]).expect(1).says("control characters").says("Rename").says("link or something else");
    assert!(place.path("daq/a.dat.copied").exists() && place.path("daq/two\nlines").exists());
    fs::rename(place.path("daq/two\nlines"), place.path("daq/one line")).expect("renamed");
    place.once(&[]).expect(0);
}

#[test]
fn the_file_itself_proves_nothing_by_whatever_way_it_is_reached() {
    for linked in ["directory", "file", "hard"] {
        let place = Place::new();
        place.write("daq/run7/a.dat", b"the only copy");
        fs::create_dir_all(place.path("archive")).expect("made");
        let there = place.path("archive/run7/a.dat");
        if linked == "directory" {
            std::os::unix::fs::symlink(place.path("daq/run7"), place.path("archive/run7")).expect("made");
        } else {
            fs::create_dir(place.path("archive/run7")).expect("made");
            let from = place.path("daq/run7/a.dat");
            if linked == "file" { std::os::unix::fs::symlink(from, &there) } else { fs::hard_link(from, &there) }
                .expect("made");
        }
        place.once(&["--remove"]).expect(1).says("quarantined");
        assert_eq!(place.read("daq/run7/a.dat").as_deref(), Some(b"the only copy".as_slice()), "{linked}");
    }
}

#[test]
fn what_is_no_file_at_the_destination_is_in_the_way() {
    let place = Place::new();
    place.write("daq/pipe", b"");
    place.write("daq/directory", b"bytes");
    place.write("archive/directory/file", b"of somebody");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("archive/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("made");
    place.once(&[]).expect(1).says("2 files are quarantined");
    assert!(place.path("daq/pipe").exists() && place.path("daq/directory").exists());
    assert_eq!(place.read("archive/directory/file").as_deref(), Some(b"of somebody".as_slice()));
}

#[test]
fn a_name_that_has_no_room_for_copied_is_told() {
    let place = Place::new();
    let name = "n".repeat(255);
    place.write(&format!("daq/{name}"), b"bytes");
    place.once(&[]).expect(1).says("no room for .copied").says("--remove");
    assert!(place.path(&format!("daq/{name}")).exists() && place.archived().is_empty());
    place.once(&["--remove"]).expect(0);
    assert_eq!(place.read(&format!("archive/{name}")).as_deref(), Some(b"bytes".as_slice()));
}

#[test]
fn what_cannot_be_looked_at_is_not_taken_for_moved() {
    let place = Place::new();
    let allow =
        |name: &str, mode| fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("changed");
    for directory in ["daq/closed", "daq/named", "daq/lost+found", "archive"] {
        fs::create_dir(place.path(directory)).expect("made");
    }
    place.write("daq/a.dat", b"bytes");
    place.write("daq/closed/b.dat", b"bytes");
    place.write("daq/named/c.dat", b"bytes");
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o777)).expect("changed");
    ["daq", "archive", "daq/a.dat"].iter().for_each(|name| allow(name, 0o777));
    // One that cannot be listed, one whose files cannot be looked at, and the one that every file system has.
    [("daq/closed", 0o000), ("daq/named", 0o744), ("daq/lost+found", 0o700)]
        .iter()
        .for_each(|(name, mode)| allow(name, *mode));
    let nobody = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(place.arguments(&["--once", "--recheck-after", "0.1"])).stdin(Stdio::null());
        if rustix::process::getuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let output = match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
            output => output.expect("it runs"),
        };
        Some((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let Some((code, words)) = nobody() else {
        println!("skipped: needs programs in a place where another user may run them");
        return;
    };
    assert_eq!(code, Some(1), "{words}");
    assert!(
        words.contains("closed") && words.contains("named/c.dat") && words.contains("2 files or directories"),
        "{words}"
    );
    assert!(place.path("daq/a.dat.copied").exists(), "the others are moved: {words}");
    ["daq/closed", "daq/named", "daq/closed/b.dat", "daq/named/c.dat"].iter().for_each(|name| allow(name, 0o777));
    let (code, words) = nobody().expect("it ran before");
    assert_eq!(code, Some(0), "{words}");
}

#[test]
fn a_file_that_was_written_with_its_times_set_back_is_not_let_go() {
    let place = Place::new();
    place.write("daq/a.dat", b"first");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/a.dat").exists());
    mover.terminate();
    let path = place.path("daq/a.dat");
    let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
    let file = fs::File::options().write(true).open(&path).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 0).expect("written");
    file.set_modified(modified).expect("set");
    drop(file);
    place.once(&["--remove"]).expect(1).says("quarantined");
    assert_eq!(place.read("daq/a.dat").as_deref(), Some(b"other".as_slice()));
    // What was touched and has its bytes still is let go.
    let place = Place::new();
    place.write("daq/a.dat", b"first");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/a.dat").exists());
    mover.terminate();
    fs::set_permissions(place.path("daq/a.dat"), fs::Permissions::from_mode(0o600)).expect("changed");
    place.once(&["--remove"]).expect(0);
}

#[test]
fn what_cannot_be_reached_is_left_for_the_next_time() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/a.dat").exists());
    mover.terminate();
    // The directory goes while it is waited for.
    let second = place.arguments(&["--once", "--recheck-after", "2", "--patience", "2"]);
    let waiting = std::thread::spawn(move || forebay(second));
    std::thread::sleep(Duration::from_secs(1));
    fs::rename(place.path("archive"), place.path("elsewhere")).expect("renamed");
    waiting.join().expect("it ran").expect(3).says("could not be reached").says("tried again");
    assert!(place.path("daq/a.dat").exists());
    fs::rename(place.path("elsewhere"), place.path("archive")).expect("renamed");
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/a.dat").as_deref(), Some(b"bytes".as_slice()));
}

#[test]
fn nothing_is_proven_by_a_directory_that_lost_its_path() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let mover = place.start(&["--settle", "0", "--recheck-after", "1"]);
    until(|| place.path("archive/a.dat").exists());
    // As a mount over it does.
    fs::rename(place.path("archive"), place.path("elsewhere")).expect("renamed");
    fs::create_dir(place.path("archive")).expect("made");
    let journal = place.path("journal.sqlite").display().to_string();
    let words = || {
        let show = forebay(["move", "show", "a.dat", "--journal", &journal, "--json"]).expect(0).json();
        show["files"][0]["file"]["deliveries"][0]["words"].as_str().expect("words").to_owned()
    };
    until(|| words().contains("another directory has its path"));
    assert!(place.path("daq/a.dat").exists());
    mover.terminate();
    // Nor does another start take it for the right one.
    place.once(&[]).expect(3).says("not the directory that this journal moved from or to before");
    assert!(place.archived().is_empty() && place.path("daq/a.dat").exists());
    fs::remove_dir(place.path("archive")).expect("removed");
    fs::rename(place.path("elsewhere"), place.path("archive")).expect("renamed");
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/a.dat").as_deref(), Some(b"bytes".as_slice()));
}

#[test]
fn a_directory_whose_mount_is_missing_is_not_taken_for_an_empty_one() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    place.once(&[]).expect(0);
    place.write("daq/b.dat", b"more");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/b.dat").exists());
    mover.terminate();
    for of in ["daq", "archive"] {
        // What lies below a mount shows when it is missing.
        let (path, mounted) = (place.path(of), place.path("mounted"));
        fs::rename(&path, &mounted).expect("renamed");
        place.once(&[]).expect(if of == "daq" { 2 } else { 3 });
        assert!(of == "daq" || !path.exists(), "nothing is made in its place");
        fs::create_dir(&path).expect("made");
        let refused = place.once(&[]).expect(3);
        refused
            .says("not the directory that this journal moved from or to before")
            .says("Is its file system not mounted?");
        assert_eq!(fs::read_dir(&path).expect("listed").count(), 0, "nothing is put there");
        assert_eq!(place.show("b.dat")["state"], "verified", "nothing is taken for gone");
        fs::remove_dir(&path).expect("removed");
        fs::rename(&mounted, &path).expect("renamed");
    }
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/b.dat").as_deref(), Some(b"more".as_slice()));
    // Another one on purpose: it says how that is said.
    fs::rename(place.path("archive"), place.path("full")).expect("renamed");
    fs::create_dir(place.path("archive")).expect("made");
    place.write("daq/c.dat", b"last");
    let refused = place.once(&[]).expect(3).stderr;
    let command = refused.split("on purpose: ").nth(1).and_then(|words| words.lines().next()).expect("it says how");
    assert!(Command::new("sh").args(["-c", command]).status().expect("it runs").success(), "{command}");
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/c.dat").as_deref(), Some(b"last".as_slice()));
}

#[test]
fn every_step_is_a_line_of_the_audit_log() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    place.once(&["--remove"]).expect(0);
    assert!(!place.path("daq/a.dat").exists() && !place.path("daq/a.dat.copied").exists());
    let log = String::from_utf8(place.read("journal.sqlite.audit.jsonl").expect("a log")).expect("text");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let after: Vec<&str> = lines.iter().map(|line| line["after"].as_str().expect("a state")).collect();
    assert_eq!(after, ["found", "delivering", "sending", "arrived", "verified", "proven", "proven", "released"]);
    assert!(lines.iter().enumerate().all(|(at, line)| line["number"] == at as u64 + 1));
    assert_eq!(lines[7]["adler32"], "066c0228", "{}", lines[7]);
}

#[test]
fn two_destinations_must_both_have_it() {
    let place = Place::new();
    place.write("daq/a.dat", &noise(3, 100_000));
    let second = place.path("second").display().to_string();
    // A file of somebody else has the name at one of them.
    place.write("second/a.dat", b"of somebody else");
    let failed = place.once(&["--to", &second]).expect(1);
    failed.says("quarantined");
    let json = failed.json();
    let words = json["left"][0]["words"].as_str().expect("words");
    assert!(words.contains("another file has its name there") && words.contains("16 bytes"), "{words}");
    assert_eq!(place.read("second/a.dat").as_deref(), Some(b"of somebody else".as_slice()));
    assert!(place.path("daq/a.dat").exists());
    // Out of the way.
    fs::remove_file(place.path("second/a.dat")).expect("removed");
    fs::remove_file(place.path("journal.sqlite")).expect("removed");
    place.once(&["--to", &second]).expect(0);
    assert_eq!(place.read("second/a.dat"), place.read("archive/a.dat"));
    assert!(place.path("daq/a.dat.copied").exists());
}

#[test]
fn what_is_there_already_and_right_is_not_sent_again() {
    let place = Place::new();
    place.write("daq/a.dat", &noise(4, 100_000));
    place.write("archive/a.dat", &noise(4, 100_000));
    place.once(&[]).expect(0);
    let log = String::from_utf8(place.read("journal.sqlite.audit.jsonl").expect("a log")).expect("text");
    assert!(log.contains("it was there already") && !log.contains("sending"), "{log}");
}

#[test]
fn damaged_events_are_kept_where_they_are() {
    let place = Place::new();
    let (damaged, at) = damaged_file();
    place.write("daq/good.raw", &faser_file().0);
    place.write("daq/bad.raw", &damaged);
    // BESIII, under the ending that the experiment gives, and under ours: without their tails.
    let besiii = Container::new(Format::Besiii, RunId(5), 0).head();
    place.write("daq/cut.raw", &besiii);
    place.write("daq/cut.besiii", &besiii);
    let failed = place.once(&[]).expect(1);
    let json = failed.json();
    let left: Vec<String> =
        json["left"].as_array().expect("files").iter().map(|file| file["words"].to_string()).collect();
    assert_eq!(left.len(), 3, "{json}");
    for (name, damage) in
        [("bad.raw", format!("event at byte {at}")), ("cut.raw", "byte 92".into()), ("cut.besiii", "byte 92".into())]
    {
        assert!(left.iter().any(|words| words.contains(name) && words.contains(&damage)), "{left:?}");
    }
    assert!(place.path("archive/good.raw").exists() && !place.path("archive/bad.raw").exists());
    assert_eq!(place.read("daq/bad.raw"), Some(damaged));
}

#[test]
fn a_file_is_complete_when_its_json_is_there_or_nobody_touches_it() {
    let place = Place::new();
    for name in ["a.raw", "a.json", "b.dat", "b.dat.json", "growing.dat"] {
        place.write(&format!("daq/{name}"), name.as_bytes());
    }
    let mover = place.start(&["--settle", "3600", "--recheck-after", "0.1"]);
    until(|| {
        ["a.raw", "a.json", "b.dat", "b.dat.json"].iter().all(|name| place.path(&format!("daq/{name}.copied")).exists())
    });
    assert!(place.path("daq/growing.dat").exists());
    assert_eq!(mover.terminate(), Some(0), "it parks");
    let mover = place.start(&["--settle", "0.1", "--recheck-after", "0.1"]);
    until(|| place.path("daq/growing.dat.copied").exists());
    assert_eq!(mover.terminate(), Some(0));
    assert_eq!(place.archived().len(), 5);
}

#[test]
fn what_is_proven_once_is_not_let_go_before_the_second_time() {
    let place = Place::new();
    place.write("daq/a.dat", &noise(5, 100_000));
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/a.dat").exists());
    // Nobody else may work there meanwhile.
    place.once(&[]).expect(3).says("another mover");
    let text = |name: &str| place.path(name).display().to_string();
    let other =
        ["move", "--once", "--from", &text("daq"), "--to", &text("archive"), "--journal", &text("other.sqlite")];
    forebay(other).expect(3).says("another mover");
    assert!(place.path("daq/a.dat").exists());
    mover.terminate();
    // The destination loses it in between.
    fs::remove_file(place.path("archive/a.dat")).expect("removed");
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/a.dat"), Some(noise(5, 100_000)));
    let log = String::from_utf8(place.read("journal.sqlite.audit.jsonl").expect("a log")).expect("text");
    assert!(log.contains("it was there, and is not"), "{log}");
}

#[test]
fn a_file_that_the_destination_changed_is_sent_again_in_its_place() {
    let place = Place::new();
    place.write("daq/a.dat", &noise(6, 100_000));
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    let verified = || {
        place.read("journal.sqlite.audit.jsonl").is_some_and(|log| String::from_utf8_lossy(&log).contains("verified"))
    };
    until(verified);
    mover.terminate();
    place.write("archive/a.dat", &noise(7, 100_000));
    place.once(&[]).expect(0);
    assert_eq!(place.read("archive/a.dat"), Some(noise(6, 100_000)));
    assert_eq!(place.archived().len(), 1);
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let text = |name: &str| place.path(name).display().to_string();
    let journal = text("daq/journal.sqlite");
    forebay(["move", "--once", "--from", &text("daq"), "--to", &text("archive"), "--journal", &journal])
        .expect(2)
        .says("would lie in");
    let below = text("daq/below");
    let journal = text("journal.sqlite");
    forebay(["move", "--once", "--from", &text("daq"), "--to", &below, "--journal", &journal])
        .expect(2)
        .says("lies in");
    forebay(["move", "--once", "--from", &text("none"), "--to", &text("archive"), "--journal", &journal])
        .expect(2)
        .says("--from");
    forebay(["move", "--once", "--from", &text("daq"), "--to", &text("none/below"), "--journal", &journal])
        .expect(2)
        .says("--to");
    place.write("journal.sqlite", &noise(8, 5000));
    place.once(&[]).expect(2).says("no journal");
    assert_eq!(place.read("daq/a.dat").as_deref(), Some(b"bytes".as_slice()));
    assert!(place.archived().is_empty());
}

#[test]
fn a_journal_with_files_of_another_route_is_not_forgotten() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("archive/a.dat").exists());
    mover.terminate();
    let other = place.path("other").display().to_string();
    place.once(&["--to", &other]).expect(2).says("by route");
    place.once(&[]).expect(0);
}

#[test]
fn what_waits_for_its_second_proof_says_so_and_for_how_long() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(place.arguments(&["--once", "--recheck-after", "3600"])).stdin(Stdio::null()).stdout(Stdio::piped());
    let mover = command.spawn().expect("it starts");
    let journal = place.path("journal.sqlite").display().to_string();
    let verified = || forebay(["move", "list", "--state", "verified", "--json", "--journal", &journal]);
    until(|| place.path("journal.sqlite").exists() && String::from_utf8_lossy(&verified().stdout).contains("a.dat"));
    kill_process(Pid::from_child(&mover), Signal::TERM).expect("it runs");
    let ended = mover.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(3), "{told}");
    let words = "to be asked for once more in 3";
    assert!(told.contains(words) && told.contains("s (--recheck-after), then let go"), "{told}");
}

#[test]
fn people_look_at_the_journal_and_ask_the_mover_through_it() {
    let place = Place::new();
    place.write("daq/a.dat", &noise(9, 1000));
    place.write("archive/a.dat", b"in the way");
    place.write("daq/b.dat", &noise(10, 2000));
    let journal = place.path("journal.sqlite").display().to_string();
    let ask = |words: &[&str]| {
        let (first, rest) = words.split_first().expect("a word");
        forebay([&["move", first, "--journal", &journal, "--json"], rest].concat())
    };
    ask(&["list"]).expect(2).says("no journal");
    let mover = place.start(&["--settle", "0", "--recheck-after", "3600"]);
    until(|| place.path("journal.sqlite").exists() && ask(&["list"]).exit == 0);
    let state = |name: &str| {
        let list = ask(&["list"]).expect(0).json();
        let files = list["files"].as_array().expect("files").clone();
        files.iter().find(|file| file["name"] == name).map(|file| file["state"].as_str().expect("a state").to_owned())
    };
    until(|| state("a.dat").as_deref() == Some("quarantined") && state("b.dat").as_deref() == Some("verified"));
    let show = ask(&["show", "a.dat"]).expect(0).json();
    let words = show["files"][0]["file"]["deliveries"][0]["words"].as_str().expect("words");
    assert!(words.contains("10 bytes") && words.contains("1000 bytes"), "{words}");
    assert!(show["files"][0]["steps"].as_array().expect("steps").len() >= 3);
    ask(&["show", "none"]).expect(1);
    ask(&["retry", "none"]).expect(1).says("nothing was asked for");
    ask(&["retry", "b.dat"]).expect(1).says("not quarantined");
    ask(&["list", "--state", "foo"]).expect(2);
    // Out of the way: it is sent now.
    fs::remove_file(place.path("archive/a.dat")).expect("removed");
    ask(&["retry", "--all"]).expect(0);
    until(|| state("a.dat").as_deref() == Some("verified"));
    ask(&["hold", "b.dat", "--reason", "another look"]).expect(0);
    until(|| state("b.dat").as_deref() == Some("held"));
    ask(&["go-on", "b.dat"]).expect(0);
    until(|| state("b.dat").as_deref() == Some("verified"));
    // Somebody answers for it.
    ask(&["release", "--name", "a.dat", "--reason", "it is on two tapes"]).expect(0);
    until(|| place.path("daq/a.dat.copied").exists());
    mover.terminate();
    assert!(place.path("daq/b.dat").exists());
    let log = String::from_utf8(place.read("journal.sqlite.audit.jsonl").expect("a log")).expect("text");
    assert!(log.contains("released by a person: it is on two tapes"), "{log}");
    // What is asked for while no mover runs is taken up by the next one.
    ask(&["hold", "b.dat", "--reason", "not yet"]).expect(0);
    place.once(&[]).expect(1);
    assert_eq!(state("b.dat").as_deref(), Some("held"));
    ask(&["go-on", "b.dat"]).expect(0);
    place.once(&[]).expect(0);
    let states = ask(&["status"]).expect(0).json();
    assert_eq!(states["states"]["released"]["files"], 2, "{states}");
}
