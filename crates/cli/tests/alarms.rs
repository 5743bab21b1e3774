//! What an operator sees of alarms, metrics and wear.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use common::{Drives, Server, noise};

fn screen(server: &Server) -> String {
    String::from_utf8(server.run(&["status"]).expect(0).stdout).expect("UTF-8")
}

#[test]
fn a_lost_drive_is_told_by_its_code_with_what_to_type() {
    let drives = Drives::five();
    let server = drives.serve_with(&["--allow-fault-injection"], &drives.paths);
    server.put("1/1/1", &noise(1, 100_000)).expect(0);
    server.terminate().expect(0);
    let server = drives.serve_with(&[], &drives.paths[..4]);
    let text = screen(&server);
    for words in [
        "WARN: FB-101 drive-lost: 1 of 5 drives is not in use: drive 4 (not found)",
        "dmesg --level=err,warn | tail -n 50; see docs/runbook.md#fb-101-drive-lost",
        "WARN: FB-102 protection-critical: ",
    ] {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
    assert!(text.lines().count() < 40, "it fits a screen:\n{text}");
    let status = server.status();
    let reasons: Vec<&str> =
        status["health_reasons"].as_array().expect("a list").iter().filter_map(|r| r["reason"].as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.starts_with("FB-102 ")), "{reasons:?}");
    // The log has them, once each.
    let log = server.terminate().expect(0).stderr;
    assert_eq!(log.matches("FB-101").count(), 1, "{log}");
}

#[test]
fn metrics_are_served_where_the_option_says() {
    let drives = Drives::five();
    let server = drives.serve_with(&["--metrics", "127.0.0.1:0"], &drives.paths);
    let address = server.ready["metrics_address"].as_str().expect("an address").to_owned();
    let body = loop {
        let mut stream = TcpStream::connect(&address).expect("connects");
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        if answer.starts_with("HTTP/1.0 200 ") {
            break answer;
        }
    };
    assert!(body.contains("forebay_drives{state=\"member\"} 5.0\n"), "{body}");
    server.terminate().expect(0);
    let refused = drives.fail_to_serve(&["--metrics", "0.0.0.0:0"], &drives.paths).expect(2);
    refused.says("--metrics 0.0.0.0:0 can be reached").says("--insecure-network");
    assert!(drives.serve().ready["metrics_address"].is_null(), "nowhere unless it is said");
}

#[test]
fn wear_is_asked_from_smartctl_and_judged() {
    let drives = Drives::five();
    let programs = drives.directory.path().join("programs");
    fs::create_dir(&programs).expect("made");
    let program = programs.join("smartctl");
    // Drive 2 is worn; drive 3 says nonsense; the last word of the command is the drive.
    let script = r#"#!/bin/sh
for word; do drive=$word; done
case $drive in
*2) used=95 ;;
*3) echo '{"nvme_smart_health_information_log":"no"}'; exit 4 ;;
*) used=12 ;;
esac
echo "{\"nvme_smart_health_information_log\":{\"percentage_used\":$used,\"data_units_written\":1000000},\"power_on_time\":{\"hours\":77}}"
exit 64
"#;
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    let options = ["--smart-of-files", "--rated-writes-tb", "600", "--rated-writes-tb", "3:1200"];
    let server = Server::start_in(&programs, &options, &drives.paths);
    let status = loop {
        let status = server.status();
        if status["drives"][4]["used_percent"].is_u64() {
            break status;
        }
    };
    let drive = |number: usize| &status["drives"][number];
    assert_eq!((&drive(0)["used_percent"], &drive(0)["power_on_hours"]), (&12.into(), &77.into()));
    assert_eq!(drive(0)["lifetime_written_bytes"].as_u64(), Some(512_000_000_000));
    assert_eq!((&drive(0)["is_lifetime_known"], &drive(3)["is_lifetime_known"]), (&true.into(), &false.into()));
    assert!(drive(3)["used_percent"].is_null());
    assert_eq!(drive(0)["rated_bytes"].as_u64(), Some(600_000_000_000_000));
    assert_eq!(drive(3)["rated_bytes"].as_u64(), Some(1_200_000_000_000_000));
    assert_eq!(status["alarms"][0]["code"], "FB-105");
    let text = screen(&server);
    assert!(text.contains("95 % worn") && text.contains("FB-105 drive-worn: drive 2 ("), "{text}");
    server.terminate().expect(0);

    drives.fail_to_serve(&["--rated-writes-tb", "much"], &drives.paths).expect(2).says("DRIVE:TB");
}
