//! What is said of drives that are there, missing, damaged, or not the right ones.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use forebay_client::files::{Files, WriteOptions};
use serde_json::Value;

use crate::common::{Drives, forebay, noise, scratch};
use crate::look::{doctor, drive_states, drives_of, drives_with, overwrite, payload, shards, stopped, told};

#[test]
fn a_healthy_store_is_whole() {
    let drives = stopped(5);
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["last_start"]["clean"]), (&"whole".into(), &true.into()));
    assert_eq!(drive_states(&report), ["member"; 5]);
    assert!(!shards(&report).is_empty() && shards(&report).iter().all(|shard| shard["state"] == "whole"), "{report}");
    let (contents, readable) = (&report["lanes"][0]["contents"], &report["readable"]);
    assert_eq!((&contents["events_undecided"], &contents["fragment_bytes"]), (&5.into(), &100_000.into()));
    assert_eq!((&readable["fragments"], &readable["fragments_readable"]), (&5.into(), &5.into()));
    let checkpoint = &report["lanes"][0]["checkpoint"];
    assert_eq!(checkpoint["drives"], 5);
    assert!(checkpoint["sequence"].as_u64() > checkpoint["sequence_before"].as_u64());
    assert_eq!(report["start"]["refused"], serde_json::json!([]));
    assert_eq!(report["start"]["segments_closed"], 0, "it was stopped in order");
    let screen = doctor(&[], &drives.paths).expect(0);
    let screen = String::from_utf8(screen.stdout).expect("UTF-8");
    for words in ["WHOLE", "5 of the 5 drives", "all, 5 of 5 fragments", "stopped in order", "run 1: 5 events"] {
        assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
    }
    assert_eq!(doctor(&["--quick", "--json"], &drives.paths).expect(0).json()["verdict"], "whole");
    // A look leaves the store as it was.
    let server = drives.serve();
    assert_eq!(server.status()["started_clean"], true);
    assert_eq!(server.get("1/3/1").expect(0).stdout, payload(3));
}

#[test]
fn one_missing_drive_is_made_up_for_and_two_are_not() {
    let drives = stopped(5);
    let one = told(0, &drives.paths[1..]);
    assert_eq!((&one["verdict"], &one["drives_missing"][0]["number"]), (&"repairable".into(), &0.into()));
    assert_eq!(one["readable"]["fragments_readable"], 5);
    assert_eq!(one["start"]["members_taken_out"], serde_json::json!([0]));
    let missing = shards(&one).iter().filter(|shard| shard["state"] == "missing").count();
    assert_eq!(missing * 5, shards(&one).len());

    // The fragment of an event lies on several drives; without two of them it cannot be read.
    let gone: Vec<usize> = drives_of(&drives, 2).iter().take(2).map(|(drive, _)| *drive).collect();
    let left: Vec<PathBuf> = (0..5).filter(|drive| !gone.contains(drive)).map(|n| drives.paths[n].clone()).collect();
    let two = told(1, &left);
    assert_eq!((&two["verdict"], &two["exit"]), (&"out-of-reach".into(), &1.into()));
    assert!(two["start"]["refused"][0].as_str().expect("words").contains("4 are needed for writing"), "{two}");
    let readable = &two["readable"];
    let ids =
        readable["unavailable"].as_array().expect("ids").len() + readable["unknown"].as_array().expect("a list").len();
    assert!(ids > 0 && readable["fragments_lost"] == 0 && readable["lost"] == serde_json::json!([]), "{readable}");
    for by in readable["unavailable_by"].as_array().expect("a list") {
        assert_eq!((&by["needed"], by["drives"].as_array().map(Vec::len)), (&1.into(), Some(2)), "{by}");
    }
    doctor(&[], &left).expect(1).says("out of reach as long as drives are missing");
}

#[test]
fn a_drive_of_noise_is_a_drive_that_is_missing() {
    let drives = stopped(5);
    let bytes = fs::metadata(&drives.paths[3]).expect("a drive").len() as usize;
    fs::write(&drives.paths[3], noise(77, bytes)).expect("written");
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], drive_states(&report)[3]), (&"repairable".into(), "no-superblock"));
    assert_eq!(
        (&report["drives_missing"][0]["number"], &report["readable"]["fragments_readable"]),
        (&3.into(), &5.into())
    );
    // A drive without its superblock is the same, whatever else it holds.
    let drives = stopped(5);
    overwrite(&drives.paths[1], 0, &vec![0; 128 << 10]);
    let report = told(0, &drives.paths);
    assert_eq!((drive_states(&report)[1], &report["drives_missing"][0]["number"]), ("no-superblock", &1.into()));
}

#[test]
fn one_damaged_superblock_is_told_and_harms_nothing() {
    let drives = stopped(1);
    overwrite(&drives.paths[2], 64 << 10, &noise(5, 16 << 10));
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], drive_states(&report)), (&"repairable".into(), vec!["member"; 5]));
    assert_eq!(report["drives"][2]["superblocks_damaged"][0]["offset_bytes"], 64 << 10);
    assert!(report["warnings"][0].as_str().expect("words").contains("the other one counts"), "{report}");
}

#[test]
fn damage_is_named_by_drive_flush_and_byte() {
    let drives = stopped(5);
    let (drive, at) = drives_of(&drives, 3)[0];
    overwrite(&drives.paths[drive], at, b"rot");
    let report = told(0, &drives.paths);
    assert_eq!(report["verdict"], "repairable");
    let damaged: Vec<_> = shards(&report).into_iter().filter(|shard| shard["state"] == "damaged").collect();
    assert!(damaged.len() == 1 && damaged[0]["drive"] == drive, "{damaged:?}");
    let places = damaged[0]["damage"].as_array().expect("places");
    assert!(places.len() == 1 && places[0]["what"] == "units" && places[0]["read_failed"] == false, "{places:?}");
    let start = places[0]["offset_bytes"].as_u64().expect("a number");
    assert!((start..start + places[0]["bytes"].as_u64().expect("a number")).contains(&at), "{places:?}");
    assert_eq!(report["readable"]["fragments_readable"], 5);
    let quick = doctor(&["--quick", "--json"], &drives.paths).expect(0).json();
    assert_eq!(quick["verdict"], "whole", "units were not read");
}

#[test]
fn what_is_damaged_beyond_parity_is_lost_and_named() {
    let drives = stopped(5);
    let pieces = drives_of(&drives, 3);
    assert!(pieces.len() > 1, "20,000 bytes lie on several drives");
    for (drive, at) in &pieces[..2] {
        overwrite(&drives.paths[*drive], *at, b"rot");
    }
    let report = told(1, &drives.paths);
    assert_eq!((&report["verdict"], &report["readable"]["lost"]), (&"lost".into(), &serde_json::json!(["1/3/1"])));
    assert_eq!(
        (&report["readable"]["bytes_lost"], &report["readable"]["fragments_readable"]),
        (&20_000.into(), &4.into())
    );
    let error = report["error"].as_str().expect("words");
    assert!(error.contains("is lost") && !error.contains("no table"), "{report}");
    let screen = doctor(&[], &drives.paths).expect(1);
    assert!(String::from_utf8_lossy(&screen.stdout).contains("lost: 1/3/1"));
}

#[test]
fn where_the_table_is_gone_nobody_knows_what_was_lost() {
    let drives = stopped(3);
    for path in &drives.paths {
        // The first slot of each drive: the segment with everything.
        overwrite(path, 1 << 20, &noise(9, 1 << 20));
    }
    let report = told(1, &drives.paths);
    assert_eq!((&report["verdict"], &report["readable"]["fragments"]), (&"lost".into(), &0.into()));
    let unknown = &report["readable"]["unknown"][0];
    assert_eq!((&unknown["state"], &unknown["flushes"], &unknown["records"]), (&"lost".into(), &3.into(), &().into()));
    assert!(shards(&report).iter().all(|shard| shard["state"] == "unreadable"), "{report}");
    let screen = doctor(&[], &drives.paths).expect(1);
    assert!(String::from_utf8_lossy(&screen.stdout).contains("LOST OR UNKNOWN: lane 0, segment "));
    // As long as a drive is missing, it may be the one that has it.
    let report = told(1, &drives.paths[1..]);
    assert_eq!(
        (&report["verdict"], &report["readable"]["unknown"][0]["drives"]),
        (&"out-of-reach".into(), &serde_json::json!([0]))
    );
}

#[test]
fn a_lane_without_a_checkpoint_is_lost_and_the_drives_are_told_all_the_same() {
    let drives = stopped(2);
    for path in &drives.paths {
        overwrite(path, 128 << 10, &noise(8, 896 << 10));
    }
    let report = told(1, &drives.paths);
    assert_eq!((&report["verdict"], drive_states(&report)), (&"lost".into(), vec!["member"; 5]));
    assert!(report["lanes"][0]["unreadable"].as_str().expect("words").contains("checkpoint"), "{report}");
    assert_eq!(report["readable"]["unknown"][0]["state"], "lost");
    // One drive alone that lost its checkpoints harms nothing.
    let drives = stopped(2);
    overwrite(&drives.paths[4], 128 << 10, &noise(8, 896 << 10));
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["lanes"][0]["checkpoint"]["drives"]), (&"repairable".into(), &4.into()));
    assert_eq!(report["lanes"][0]["checkpoints_damaged"][0]["drive"], 4);
}

#[test]
fn a_drive_that_was_cut_off_gives_what_it_has() {
    let drives = stopped(5);
    let places = drives_of(&drives, 4);
    let drive = places[0].0;
    let bytes = fs::metadata(&drives.paths[drive]).expect("a drive").len();
    let cut = OpenOptions::new().write(true).open(&drives.paths[drive]).expect("a drive");
    cut.set_len(places[0].1 / 4096 * 4096).expect("cut");
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], drive_states(&report)), (&"repairable".into(), vec!["member"; 5]));
    assert_eq!(report["drives"][drive]["cut_off_from_bytes"], bytes);
    assert_eq!(report["readable"]["fragments_readable"], 5);
    let damaged: Vec<_> = shards(&report).into_iter().filter(|shard| shard["state"] == "damaged").collect();
    assert!(damaged.len() == 1 && damaged[0]["drive"] == drive, "{damaged:?}");
    assert!(damaged[0]["damage"].as_array().expect("places").iter().all(|place| place["read_failed"] == true));
    // Not even a superblock is left.
    cut.set_len(8192).expect("cut");
    let report = told(0, &drives.paths);
    assert_eq!((drive_states(&report)[drive], &report["verdict"]), ("no-superblock", &"repairable".into()));
    cut.set_len(100).expect("cut");
    assert_eq!(drive_states(&told(0, &drives.paths))[drive], "not-opened");
}

#[test]
fn a_torn_tail_is_what_a_start_would_write_again() {
    let drives = Drives::five();
    let server = drives.serve();
    for event in 0..3 {
        server.put(&format!("1/{event}/1"), &payload(event)).expect(0);
    }
    server.kill();
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["last_start"]["clean"]), (&"whole".into(), &false.into()));
    let start = &report["start"];
    assert_eq!((&start["segments_closed"], &start["flushes_written_again"]), (&1.into(), &0.into()));
    // The last flush is not on all of its drives.
    let (drive, at) = drives_of(&drives, 2)[0];
    overwrite(&drives.paths[drive], at, b"torn");
    let report = told(0, &drives.paths);
    assert_eq!(report["verdict"], "whole", "what was being written is no damage");
    let start = &report["start"];
    assert_eq!((&start["flushes_written_again"], &start["records_written_again"]), (&1.into(), &1.into()));
    let segments = report["lanes"][0]["segments"].as_array().expect("segments");
    let walked = segments.iter().find(|segment| segment["found"] == "walked").expect("one was open");
    assert_eq!((&walked["at_start"], &walked["flushes_torn"]), (&"closed".into(), &serde_json::json!([2])));
    assert_eq!(report["readable"]["fragments_readable"], 3);
    // With the others, it is not known whether it was acknowledged.
    let others: Vec<PathBuf> = (0..5).filter(|n| *n != (drive + 1) % 5).map(|n| drives.paths[n].clone()).collect();
    let report = told(1, &others);
    assert_eq!(report["readable"]["possibly_acknowledged"][0]["records"], 1, "{report}");
    // A start does what was said.
    let server = drives.serve();
    for event in 0..3 {
        assert_eq!(server.get(&format!("1/{event}/1")).expect(0).stdout, payload(event));
    }
    server.terminate().expect(0);
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["start"]["segments_closed"]), (&"whole".into(), &0.into()));
}

#[test]
fn drives_that_do_not_belong_together_are_told_apart() {
    let (drives, others) = (stopped(3), stopped(1));
    // Two copies of a drive: none of them counts.
    let copy = drives.directory.path().join("copy");
    fs::copy(&drives.paths[1], &copy).expect("copied");
    let mut paths = drives.paths.clone();
    paths.push(copy.clone());
    let report = told(1, &paths);
    assert_eq!(drive_states(&report), ["member", "copy", "member", "member", "member", "copy"]);
    assert_eq!((&report["verdict"], &report["readable"]["fragments_readable"]), (&"repairable".into(), &3.into()));
    assert!(report["error"].as_str().expect("words").contains("copies of one drive"), "{report}");
    // A copy alone is as good as the drive.
    paths.remove(1);
    assert_eq!(told(0, &paths)["verdict"], "whole");

    // A drive of another store.
    paths = drives.paths.clone();
    paths[0] = others.paths[0].clone();
    let report = told(2, &paths);
    assert_eq!(drive_states(&report), ["other-store", "member", "member", "member", "member"]);
    assert_eq!(
        (&report["store"], &report["readable"]["fragments_readable"]),
        (&report["drives"][1]["store"], &3.into())
    );
    assert!(report["start"]["refused"][0].as_str().expect("words").contains("belongs to store"), "{report}");

    // One that a newer version wrote.
    for offset in [8, (64 << 10) + 8] {
        overwrite(&drives.paths[4], offset, &[99]);
    }
    let report = told(2, &drives.paths);
    assert_eq!((drive_states(&report)[4], &report["verdict"]), ("newer", &"repairable".into()));
}

#[test]
fn a_drive_that_was_taken_out_is_read_where_it_helps() {
    let drives = stopped(3);
    let server = drives.serve_with(&[], &drives.paths[1..]);
    server.put("1/9/1", &payload(9)).expect(0);
    server.terminate().expect(0);
    let report = told(0, &drives.paths);
    assert_eq!(drive_states(&report), ["out", "member", "member", "member", "member"]);
    // What it holds is on no member: a start has it made anew.
    assert_eq!(report["verdict"], "repairable", "{report}");
    let on_it = shards(&report).iter().filter(|shard| shard["drive"] == 0 && shard["state"] == "whole").count();
    assert!(on_it > 0 && report["start"]["shards_made_anew"] == on_it, "{report}");
    let screen = doctor(&[], &drives.paths).expect(0);
    assert!(String::from_utf8_lossy(&screen.stdout).contains("anew of drives that were taken out"));
    let widths: Vec<_> =
        report["lanes"][0]["segments"].as_array().expect("segments").iter().map(|s| &s["data_shards"]).collect();
    assert!(widths.contains(&&4.into()) && widths.contains(&&3.into()), "{widths:?}");
    let report = told(0, &drives.paths[1..]);
    assert_eq!((&report["verdict"], &report["drives_missing"][0]["member"]), (&"repairable".into(), &false.into()));
    assert!(report["drives_missing"][0]["segments"].as_u64() > Some(0), "{report}");
    let screen = doctor(&[], &drives.paths[1..]).expect(0);
    assert!(String::from_utf8_lossy(&screen.stdout).contains("taken out earlier; something that is stored lies on it"));
}

#[test]
fn a_drive_that_left_and_holds_nothing_is_not_missing() {
    let drives = stopped(0);
    let without = &drives.paths[1..];
    let server = drives.serve_with(&[], without);
    server.put("1/9/1", &payload(9)).expect(0);
    server.terminate().expect(0);
    let report = told(0, without);
    assert_eq!((&report["verdict"], &report["drives_missing"]), (&"whole".into(), &serde_json::json!([])));
    assert_eq!((&report["drives_left"][0]["number"], &report["drives_left"][0]["segments"]), (&0.into(), &0.into()));
    let screen = doctor(&[], without).expect(0);
    let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(!screen.contains("MISSING") && screen.contains("4 of the 4 drives of the store are here"), "{screen}");
    assert!(screen.contains("nothing that is stored lies on it"), "{screen}");
    // As long as a lane cannot be read, nobody knows that.
    for path in without {
        overwrite(path, 128 << 10, &noise(8, 896 << 10));
    }
    let report = told(1, without);
    assert_eq!((&report["drives_missing"][0]["number"], &report["drives_left"]), (&0.into(), &serde_json::json!([])));
}

#[test]
fn two_histories_are_told() {
    let drives = stopped(2);
    let kept: Vec<Vec<u8>> = drives.paths.iter().map(|path| fs::read(path).expect("read")).collect();
    drives.hold("1/50/1", b"in one history");
    let first = fs::read(&drives.paths[0]).expect("read");
    for (path, bytes) in drives.paths.iter().zip(&kept) {
        fs::write(path, bytes).expect("written");
    }
    drives.hold("1/51/1", b"in another");
    fs::write(&drives.paths[0], first).expect("written");
    let report = told(1, &drives.paths);
    assert_eq!(drive_states(&report).iter().filter(|state| **state == "other-history").count(), 1, "{report}");
    assert!(report["error"].as_str().expect("words").contains("different histories"), "{report}");
}

#[test]
fn without_a_drive_of_a_store_there_is_nothing_to_tell() {
    forebay(["doctor"]).expect(2);
    let directory = scratch();
    let path = directory.path().join("drive");
    doctor(&[], std::slice::from_ref(&path)).expect(3).says("none of the drives");
    fs::write(&path, vec![0; 1 << 20]).expect("written");
    let report = told(1, std::slice::from_ref(&path));
    assert_eq!((&report["verdict"], drive_states(&report)), (&"no-store".into(), vec!["no-superblock"]));
    let reason = report["drives"][0]["reason"].as_str().expect("words");
    assert!(reason.contains("it is no drive of Forebay, or its beginning was overwritten"), "{reason}");
    doctor(&[], std::slice::from_ref(&path)).expect(1).says("Name the drives of the store");
    doctor(&[], &[directory.path().to_owned()]).expect(2).says("is a directory");
    doctor(&[], &[path.clone(), path]).expect(2).says("given twice");
}

#[test]
fn drives_of_a_running_server_are_refused() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"served").expect(0);
    let words = ["doctor", "--json"].into_iter().map(Into::into);
    let ran = forebay(words.chain(drives.paths.iter().map(|path| path.as_os_str().to_owned()))).expect(3);
    ran.says("in use").says("`forebay lost`").says("or stop that first");
    assert_eq!(ran.json()["exit"], 3);
    assert_eq!(server.get("1/1/1").expect(0).stdout, b"served");
    server.terminate().expect(0);
    assert_eq!(told(0, &drives.paths)["verdict"], "whole");
}

#[test]
fn files_are_looked_at_as_fragments_are() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/3/1", &payload(3)).expect(0);
    let files = Files::new(server.client("files")).expect("random numbers");
    let content = noise(50, 20_000);
    for name in ["/a", "/b"] {
        let mut writer = files.create(name, &WriteOptions::default()).expect("made");
        writer.write(if name == "/a" { &content } else { b"of no interest" }).expect("taken");
        writer.close().expect("sealed");
    }
    server.terminate().expect(0);
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["geometry"]["format_version"]), (&"whole".into(), &2.into()));
    let counted = |report: &Value| {
        let lanes = report["lanes"].as_array().expect("lanes").clone();
        let sum = |what: &str| lanes.iter().filter_map(|lane| lane["contents"][what].as_u64()).sum::<u64>();
        (sum("files"), sum("file_bytes"))
    };
    let (count, bytes) = counted(&report);
    assert!(count > 2 && bytes > 20_014, "theirs and those of the names: {count}, {bytes} bytes");
    assert_eq!(report["lanes"][0]["contents"]["runs"].as_array().map(Vec::len), Some(1), "none is a run: {report}");
    let screen = String::from_utf8(doctor(&[], &drives.paths).expect(0).stdout).expect("UTF-8");
    assert!(screen.contains(&format!("{count} files")), "{screen}");

    let pieces = drives_with(&drives, &content);
    overwrite(&drives.paths[pieces[0].0], pieces[0].1, b"rot");
    let report = told(0, &drives.paths);
    assert_eq!((&report["verdict"], &report["readable"]["files_lost"]), (&"repairable".into(), &0.into()));
    overwrite(&drives.paths[pieces[1].0], pieces[1].1, b"rot");
    let report = told(1, &drives.paths);
    let readable = &report["readable"];
    assert_eq!(
        (&report["verdict"], &readable["files_lost"], &readable["fragments_lost"]),
        (&"lost".into(), &1.into(), &0.into())
    );
    let named = readable["lost"][0].as_str().expect("a name");
    assert!(named.starts_with("/a (file ") && named.ends_with(", from byte 0 on"), "{named}");
    doctor(&[], &drives.paths).expect(1).says("nor all of 1 file");
}
