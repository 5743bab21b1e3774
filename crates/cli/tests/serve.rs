//! A server and its clients, as processes: what is acknowledged is there whatever happens, and what is wrong is said.

mod common;

use std::fs;

use common::{Drives, Server, forebay, noise, scratch};

#[test]
fn a_fragment_goes_in_and_comes_out() {
    let drives = Drives::five();
    let server = drives.serve();
    for (id, size) in [("1/7/256", 6), ("1/7/0x200", 0), ("4294967294/18446744073709551615/4294967295", 100_000)] {
        let payload = noise(size as u64, size);
        server.put(id, &payload).expect(0);
        assert_eq!(server.get(id).expect(0).stdout, payload, "{id}");
    }
    let put = server.run_with(&["put", "--json", "2/1/1", "-"], b"hello").expect(0).json();
    assert_eq!(
        (put["outcome"].as_str(), put["bytes"].as_u64(), put["id"].as_str()),
        (Some("durable"), Some(5), Some("2/1/1"))
    );
    assert!(put["seconds"].is_f64());

    // By files.
    let (from, to) = (drives.directory.path().join("from"), drives.directory.path().join("to"));
    fs::write(&from, b"from a file").expect("written");
    server.run(&["put", "2/1/2", &from.display().to_string()]).expect(0);
    server.run(&["get", "2/1/2", &to.display().to_string()]).expect(0);
    assert_eq!(fs::read(&to).expect("read"), b"from a file");
    server.run(&["put", "2/1/3", "/nonexistent/file"]).expect(2).says("/nonexistent/file");
    let refused = server.run(&["get", "2/1/2", "/nonexistent/file"]).expect(2);
    assert!(refused.says("still in the store").says("/nonexistent/file").stderr.matches("/nonexistent").count() == 1);
    server.run(&["get", "--json", "2/1/2", "-"]).expect(2);
    let got = server.run(&["get", "--json", "2/1/1", &to.display().to_string()]).expect(0).json();
    assert_eq!(
        (got["id"].as_str(), got["outcome"].as_str(), got["bytes"].as_u64()),
        (Some("2/1/1"), Some("found"), Some(5))
    );
    // The CRC32C of "hello".
    assert_eq!((got["crc32c"].as_str(), put["crc32c"].as_str()), (Some("9a71bb4c"), Some("9a71bb4c")));
    assert!(got["seconds"].is_f64());

    // Write once, retry safely.
    server.put("2/1/1", b"hello").expect(0);
    server.put("2/1/1", b"other").expect(1).says("other content");
    assert_eq!(server.get("2/1/1").expect(0).stdout, b"hello");
}

#[test]
fn what_is_not_there_says_why() {
    let drives = Drives::five();
    let server = drives.serve();
    server.get("1/1/1").expect(1).says("not found");
    server.run(&["delete", "1/1"]).expect(1).says("not found");
    server.put("1/1/1", b"gone soon").expect(0);
    server.run(&["delete", "1/1"]).expect(0);
    let again = server.run(&["delete", "--json", "1/1"]).expect(0).json();
    assert_eq!((again["id"].as_str(), again["outcome"].as_str()), (Some("1/1"), Some("already-deleted")));
    assert!(again["seconds"].is_f64());
    let gone = server.get("1/1/1").expect(1);
    gone.says("deleted");
    assert!(gone.stdout.is_empty());
    // A fragment that comes after the deletion is acknowledged and dropped.
    server.put("1/1/2", b"late").expect(0).says("late");
    server.get("1/1/2").expect(1);
    let large = vec![7; server_fragment_max(&drives) + 1];
    server.put("1/2/1", &large).expect(2).says("at most");
}

/// What `init` told for drives of this size.
fn server_fragment_max(drives: &Drives) -> usize {
    let directory = scratch();
    let paths = (0..5).map(|number| directory.path().join(format!("d{number}"))).collect();
    let made = Drives { directory, paths }.init(&[]).expect(0).json();
    assert_eq!(drives.paths.len(), 5);
    made["fragment_bytes_max"].as_u64().expect("a number") as usize
}

#[test]
fn status_is_one_screen_or_one_object() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"something").expect(0);
    let status = server.status();
    assert_eq!((status["state"].as_str(), status["drives_failed"].as_u64()), (Some("serving"), Some(0)));
    assert_eq!(status["store"], server.ready["store"]);
    assert_eq!(status["totals"]["events_undecided"].as_u64(), Some(1));
    let screen = server.run(&["status"]).expect(0);
    let screen = String::from_utf8(screen.stdout).expect("UTF-8");
    for words in ["health      OK", "5 of 5 in use", "1 undecided", "writing 4+1", server.address.as_str()] {
        assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
    }
    assert!(screen.lines().count() < 40, "{screen}");
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let drives = Drives::five();
    let mut acknowledged = Vec::new();
    for start in 1..=3u64 {
        let server = drives.serve();
        assert_eq!(server.ready["lanes"].as_u64(), Some(1));
        for source in 0..5 {
            let id = format!("{start}/{start}/{source}");
            server.put(&id, &noise(start * 100 + source, 5000)).expect(0);
            acknowledged.push((id, noise(start * 100 + source, 5000)));
        }
        server.kill();
    }
    let server = drives.serve();
    for (id, payload) in &acknowledged {
        assert_eq!(&server.get(id).expect(0).stdout, payload, "{id}");
    }
    let status = server.status();
    assert_eq!(status["started_clean"].as_bool(), Some(false));
    assert_eq!((&status["alarms"][0]["code"], &status["health"]), (&"FB-401".into(), &"WARN".into()));
}

#[test]
fn sigterm_stops_in_order_and_the_next_start_knows() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"kept").expect(0);
    server.terminate().expect(0).says("marked clean");
    let server = drives.serve();
    assert_eq!(server.status()["started_clean"].as_bool(), Some(true));
    assert_eq!(server.get("1/1/1").expect(0).stdout, b"kept");
    assert_eq!(server.ready["epoch"].as_u64(), Some(3), "init and two starts");
}

#[test]
fn a_server_stops_when_the_program_that_started_it_is_gone() {
    let drives = Drives::five();
    let server = drives.serve_with(&["--stop-at-stdin-end"], &drives.paths);
    server.put("1/1/1", b"kept").expect(0);
    server.leave().expect(0).says("is gone");
}

#[test]
fn one_missing_drive_is_a_warning_and_two_mean_try_again() {
    let drives = Drives::five();
    drives.hold("1/1/1", &noise(1, 50_000));

    // Two missing: nothing is started, and nothing is lost by waiting.
    let refused = drives.fail_to_serve(&[], &drives.paths[2..]).expect(3);
    refused.says("missing: drives 0, 1").says("nothing is lost").says("--read-only");
    let json = drives.fail_to_serve(&["--json"], &drives.paths[2..]).expect(3).json();
    assert_eq!(json["exit"], 3);

    let mut four = drives.paths.clone();
    four.remove(3);
    let server = drives.serve_with(&[], &four);
    assert_eq!(server.ready["warnings"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get("1/1/1").expect(0).stdout, noise(1, 50_000), "computed from the others");
    server.put("1/1/2", b"degraded").expect(0);
    let screen = String::from_utf8(server.run(&["status"]).expect(0).stdout).expect("UTF-8");
    assert!(
        screen.contains("health      WARN") && screen.contains("drive 3 is a member and was not found"),
        "{screen}"
    );
    server.terminate().expect(0).says("drive 3 is a member and was not found");
}

#[test]
fn a_drive_that_was_cut_off_is_named_and_nothing_is_lost() {
    let drives = Drives::five();
    drives.hold("1/1/1", &noise(1, 300_000));
    let whole = fs::metadata(&drives.paths[2]).expect("a drive").len();
    fs::OpenOptions::new().write(true).open(&drives.paths[2]).expect("opened").set_len(whole / 2).expect("cut");
    let server = drives.serve();
    assert_eq!(server.get("1/1/1").expect(0).stdout, noise(1, 300_000));
    server.put("1/1/2", b"without it").expect(0);
    server.terminate().expect(0).says("drive2");
}

#[test]
fn too_few_drives_still_give_what_they_can_read_only() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"small").expect(0);
    server.put("1/1/3", &noise(3, 300_000)).expect(0);
    server.terminate().expect(0);
    let server = drives.serve_with(&["--read-only"], &drives.paths[..4]);
    assert_eq!(server.ready["read_only"].as_bool(), Some(true));
    assert_eq!(server.get("1/1/1").expect(0).stdout, b"small");
    server.put("1/1/2", b"refused").expect(2).says("read-only");
    server.run(&["delete", "1/1"]).expect(2).says("read-only");
    let out = drives.directory.path().join("files");
    let refused = server.run(&["record", "--once", "--out", &out.display().to_string()]).expect(2);
    refused.says("read-only").says("releases nothing").says("forebay doctor --export");
    assert!(!out.exists(), "no file was begun that would be recorded again");
    server.terminate().expect(0);
    let server = drives.serve_with(&["--read-only"], &drives.paths[..2]);
    // It lies on all data drives; the small one on a single drive, which may be one of these two.
    server.get("1/1/3").expect(3).says("unavailable");
    let small = server.get("1/1/1");
    assert!(small.exit == 3 || small.exit == 0 && small.stdout == b"small", "{small:?}");
    server.terminate().expect(0).says("drives 2, 3, 4 were not found: 3 of 5, and parity makes up for 1");
    drives.serve().terminate().expect(0);
}

#[test]
fn an_operator_may_let_writing_go_on_with_less_parity() {
    let drives = Drives::five();
    drives.init(&["--data-min", "4", "--force"]).expect(0);
    let four = &drives.paths[..4];
    drives.hold("1/1/1", &noise(1, 50_000));

    drives.fail_to_serve(&[], four).expect(3).says("4 drives are left and at least 5").says("--parity-min 0");
    drives.fail_to_serve(&["--parity-min", "2"], &drives.paths).expect(2).says("made with 1 parities");
    let server = drives.serve_with(&["--parity-min", "0"], four);
    assert_eq!(server.get("1/1/1").expect(0).stdout, noise(1, 50_000));
    server.put("1/1/2", b"without parity").expect(0);
    let screen = String::from_utf8(server.run(&["status"]).expect(0).stdout).expect("UTF-8");
    assert!(screen.contains("written 4+0 instead of 4+1") && screen.contains("1 fragments were stored"), "{screen}");
    server.terminate().expect(0).says("--parity-min 0").says("put drives back and start without it");
    let server = drives.serve_with(&["--parity-min", "0"], four);
    assert_eq!(server.get("1/1/2").expect(0).stdout, b"without parity");
    server.terminate().expect(0);
}

#[test]
fn drives_of_two_stores_are_refused() {
    let (drives, others) = (Drives::five(), Drives::five());
    let mut mixed = drives.paths.clone();
    mixed[2] = others.paths[2].clone();
    let before = fs::read(&mixed[2]).expect("read");
    drives.fail_to_serve(&[], &mixed).expect(2).says("belongs to store").says("Nothing was written");
    assert!(before == fs::read(&mixed[2]).expect("read"), "nothing was written");
    drives.serve().terminate().expect(0);
}

#[test]
fn two_copies_of_a_drive_are_refused() {
    let drives = Drives::five();
    let copy = drives.directory.path().join("copy");
    fs::copy(&drives.paths[1], &copy).expect("copied");
    let mut paths = drives.paths.clone();
    paths[4] = copy;
    drives.fail_to_serve(&[], &paths).expect(1).says("copies of one drive").says("Nothing was written");
}

#[test]
fn what_is_no_drive_is_said() {
    let drives = Drives::five();
    let directory = scratch();
    let junk = directory.path().join("junk");
    fs::write(&junk, noise(9, 1 << 20)).expect("written");
    drives.fail_to_serve(&[], std::slice::from_ref(&junk)).expect(1).says("junk").says("forebay init");
    drives.fail_to_serve(&[], &[directory.path().join("none")]).expect(3).says("none");
    // Among good ones it counts as missing.
    let mut paths = drives.paths.clone();
    paths[0] = junk;
    let server = drives.serve_with(&[], &paths);
    let warnings = server.status()["warnings"].clone();
    assert_eq!(warnings, server.ready["warnings"], "what is said at the start is there for whoever looks later");
    assert!(warnings.to_string().contains("junk"), "{warnings}");
    assert!(server.terminate().expect(0).stderr.contains("junk"));
}

#[test]
fn what_is_no_list_of_drives_is_refused_at_once() {
    let drives = Drives::five();
    let server = drives.serve();
    let mut twice = drives.paths.clone();
    let link = drives.directory.path().join("link");
    std::os::unix::fs::symlink(&drives.paths[0], &link).expect("linked");
    twice.push(link);
    // The drives are in use, and that is not what is wrong with the list.
    drives.fail_to_serve(&[], &twice).expect(2).says("link are one drive, given twice");
    let directory = drives.directory.path().to_owned();
    drives.fail_to_serve(&["--json"], std::slice::from_ref(&directory)).expect(2).says("is a directory").json();
    drop(server);
}

#[test]
fn the_ready_file_is_there_only_while_the_store_is_served() {
    let drives = Drives::five();
    let ready = drives.directory.path().join("ready");
    let name = ready.display().to_string();
    fs::write(&ready, "127.0.0.1:1\n").expect("written");
    drives.fail_to_serve(&["--ready-file", &name], &drives.paths[2..]).expect(3);
    assert!(!ready.exists(), "an old address is worse than none");
    let server = drives.serve_with(&["--ready-file", &name], &drives.paths);
    while !ready.exists() {
        std::thread::yield_now();
    }
    server.terminate().expect(0);
    assert!(!ready.exists());
    drives.fail_to_serve(&["--ready-file", "/nonexistent/dir/ready"], &drives.paths).expect(2).says("/nonexistent/dir");
}

#[test]
fn output_that_cannot_be_written_is_said_and_means_try_again() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"bytes").expect(0);
    let commands: [&[&str]; 6] = [
        &["status"],
        &["status", "--json"],
        &["status", "--watch"],
        &["get", "1/1/1", "-"],
        &["put", "1/1/1", "/dev/null"],
        &["delete", "1/1", "--json"],
    ];
    for words in commands {
        let ran = server.run_full(words);
        let exit = if words[0] == "put" { 1 } else { 3 };
        assert_eq!(ran.exit, exit, "{words:?}: {ran:?}");
        ran.says(if exit == 3 { "stdout cannot be written" } else { "other content" });
    }
    // A server whose start nobody hears of is not left running.
    let others = Drives::five();
    let mut command: Vec<String> = ["serve", "--listen", "127.0.0.1:0"].map(str::to_owned).into();
    command.extend(others.paths.iter().map(|path| path.display().to_string()));
    common::forebay_full(&command).expect(3).says("stopped in order");
}

#[test]
fn a_server_whose_log_nobody_reads_goes_on() {
    let drives = Drives::five();
    let mut server = drives.serve_with(&["-vv", "--allow-fault-injection"], &drives.paths);
    server.close_stderr();
    for event in 0..20 {
        server.put(&format!("1/{event}/1"), b"bytes").expect(0);
    }
    assert_eq!(server.status()["totals"]["events_undecided"].as_u64(), Some(20));
    server.terminate().expect(0);
}

#[test]
fn the_configuration_that_is_printed_is_taken() {
    let printed = forebay(["serve", "--print-config"]).expect(0).stdout;
    let drives = Drives::five();
    let file = drives.directory.path().join("forebay.toml");
    fs::write(&file, &printed).expect("written");
    drives.serve_with(&["--config", &file.display().to_string()], &drives.paths).terminate().expect(0);
    forebay(["serve", "--print-config", "--json"]).expect(2);
}

#[test]
fn one_drive_has_one_server_and_one_address_too() {
    let drives = Drives::five();
    let server = drives.serve();
    drives.fail_to_serve(&[], &drives.paths).expect(3).says("in use");
    let others = Drives::five();
    let taken = forebay(
        ["serve", "--listen", &server.address]
            .into_iter()
            .map(Into::into)
            .chain(others.paths.iter().map(|p| p.as_os_str().to_owned())),
    );
    taken.expect(3).says("cannot listen");
    let open = forebay(
        ["serve", "--listen", "0.0.0.0:0"]
            .into_iter()
            .map(Into::into)
            .chain(others.paths.iter().map(|p| p.as_os_str().to_owned())),
    );
    open.expect(2).says("--insecure-network");
}

#[test]
fn the_configuration_is_read_and_unknown_keys_are_refused_by_name() {
    let drives = Drives::five();
    let file = drives.directory.path().join("forebay.toml");
    let name = file.display().to_string();
    for (text, words) in [
        ("[store]\ncache-byte = 1\n", "cache-byte"),
        ("[server]\nlisten = \"x\"\n", "listen"),
        ("[", "forebay.toml"),
        ("[store]\ndrive-timeout-ms = 0\n", "store.drive-timeout-ms = 0 cannot be. From 100 to 600000."),
        ("[server]\nconnections-max = 0\n", "server.connections-max = 0 cannot be. From 1 to 1000000."),
    ] {
        fs::write(&file, text).expect("written");
        drives.fail_to_serve(&["--config", &name], &drives.paths).expect(2).says(words).says("no drive was touched");
    }
    drives.fail_to_serve(&["--config", "/dev/zero"], &drives.paths).expect(2).says("/dev/zero");
    drives.fail_to_serve(&["--config", "/nonexistent.toml"], &drives.paths).expect(2).says("/nonexistent.toml");
    fs::write(&file, "[store]\ncache-bytes = 4194304\n[store.media]\nbackend = \"thread-pool\"\n").expect("written");
    let ready = drives.directory.path().join("ready");
    let server = drives.serve_with(&["--config", &name, "--ready-file", &ready.display().to_string()], &drives.paths);
    // The file comes after the line.
    while !ready.exists() {
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(&ready).expect("read").trim(), server.address);
    server.put("1/1/1", b"by threads").expect(0);
}

#[test]
fn faults_are_injected_only_where_it_was_allowed() {
    let drives = Drives::five();
    let server: Server = drives.serve_with(&["--allow-fault-injection"], &drives.paths);
    assert!(server.terminate().expect(0).stderr.contains("FAULT INJECTION IS ON"));
    assert!(!drives.serve().terminate().expect(0).stderr.contains("FAULT"));
}
