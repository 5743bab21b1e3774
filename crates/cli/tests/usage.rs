//! Command lines that cannot be done as they are, and help.

mod common;

use common::{forebay, forebay_with};

#[test]
fn usage_errors_end_with_2() {
    let wrong: [&[&str]; 34] = [
        &[],
        &["fly"],
        &["init", "--data", "4"],
        &["init", "--data", "4", "--parity", "1", "--drive-bytes", "1G", "x"],
        &["serve"],
        &["put", "1/2", "-"],
        &["get", "1/2/x", "-"],
        &["delete", "1/2/3"],
        &["status", "--timeout", "soon"],
        &["filter", "--stream", "physics=2"],
        &["demo", "--events", "0"],
        // What would hang, do nothing, or hurt.
        &["put", "--expected", "0", "1/2/3", "-"],
        &["status", "--timeout", "0"],
        &["status", "--timeout", "-1"],
        &["readout", "--generate", "faser", "--writers", "0"],
        &["readout", "--generate", "faser", "--writers", "100000"],
        &["readout", "--generate", "faser", "--producers", "0"],
        &["readout", "--generate", "faser", "--events", "0"],
        &["readout", "--generate", "faser", "--generate-events", "0"],
        &["readout", "--generate", "faser", "--rate", "0"],
        &["readout", "--generate", "faser", "--rate", "NaN"],
        &["readout", "--generate", "faser", "--deadline", "0"],
        &["filter", "--readers", "0"],
        &["filter", "--batch-events", "0"],
        &["filter", "--lease", "0"],
        &["filter", "--lease", "0.2"],
        &["filter", "--events", "0"],
        &["filter", "--early", "0.5"],
        &["filter", "--steps", "25%", "--early", "-0.5"],
        &["mount", "127.0.0.1:7420"],
        &["subscribe", "--fraction", "0"],
        &["subscribe", "--fraction", "1.5"],
        &["subscribe", "--count", "0"],
        &["mount", "--patience-s", "0", "127.0.0.1:7420", "/mnt"],
    ];
    for words in wrong {
        let ran = forebay(words);
        assert_eq!(ran.exit, 2, "{words:?}: {ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{words:?}: {ran:?}");
    }
}

#[test]
fn a_negative_number_is_a_wrong_value_and_no_unknown_option() {
    forebay(["status", "--timeout", "-1"]).expect(2).says("'-1' for '--timeout").says("above 0");
    forebay(["filter", "--seed", "-1"]).expect(2).says("'-1' for '--seed");
    forebay(["drive", "fail", "-1"]).expect(2).says("'-1' for '<DRIVE>'");
    forebay(["trace", "-1/7"]).expect(2).says("invalid value '-1/7'").says("from 0 on");
}

#[test]
fn with_json_an_error_is_one_object_on_stdout_and_words_on_stderr() {
    for (words, exit) in [
        (&["get", "--json", "1/2/x", "-"][..], 2),
        (&["delete", "1/2", "--json", "--server", "127.0.0.1:1", "--timeout", "0.3"], 3),
    ] {
        let ran = forebay(words).expect(exit);
        let object = ran.json();
        assert_eq!(object["exit"], exit, "{object}");
        assert!(object["error"].as_str().is_some_and(|error| error.len() > 10), "{object}");
        assert!(!ran.stderr.is_empty());
    }
    let missing = forebay(["init", "--json"]).expect(2).json();
    assert!(
        missing["error"].as_str().is_some_and(|error| error.ends_with("--data <K> --parity <M> <DRIVE>...")),
        "{missing}"
    );
}

#[test]
fn help_and_version_are_no_errors_and_have_examples() {
    forebay(["--version"]).expect(0);
    let help = forebay(["--help"]).expect(0);
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    assert!(help.contains("Exit codes") && help.contains("forebay demo"), "{help}");
    for command in [
        "init",
        "serve",
        "put",
        "get",
        "delete",
        "readout",
        "filter",
        "record",
        "status",
        "demo",
        "file",
        "tail",
        "subscribe",
        "upgrade",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is listed");
        let own = forebay([command, "--help"]).expect(0);
        let own = String::from_utf8(own.stdout).expect("UTF-8");
        assert!(own.contains(&format!("Usage: forebay {command}")) && own.contains("Example"), "{own}");
    }
}

#[test]
fn a_server_that_is_not_there_means_try_again() {
    let commands: [&[&str]; 8] = [
        &["put", "1/2/3", "-"],
        &["get", "1/2/3", "-"],
        &["delete", "1/2"],
        &["status"],
        &["readout", "--generate", "faser"],
        &["filter", "--until-idle", "1"],
        &["subscribe"],
        &["record", "--out", "/nonexistent/out", "--once"],
    ];
    for words in commands {
        // Nobody listens on port 1 of this machine.
        let more = ["--server", "127.0.0.1:1", "--timeout", "0.3"];
        let ran = forebay_with(words.iter().chain(&more), b"bytes").expect(3);
        ran.says("127.0.0.1:1");
    }
    forebay(["status", "--server", "no-port"]).expect(2).says("HOST:PORT");
}

#[test]
fn where_nothing_listens_that_is_said_at_once() {
    let commands: [&[&str]; 6] = [
        &["status"],
        &["lost"],
        &["trace", "1/2"],
        &["get", "1/2/3", "-"],
        &["drive", "list"],
        &["drive", "fail", "3"],
    ];
    for words in commands {
        // Whoever waited would do so for ever.
        let (command, rest) = words.split_first().expect("a command");
        let server = ["--server", "127.0.0.1:1", "--timeout", "1000000"];
        // Also behind the command of a command.
        for words in [[&[*command], &server[..], rest].concat(), [words, &server].concat()] {
            let ran = forebay(words).expect(3);
            ran.says("nothing listens at 127.0.0.1:1").says("Nothing was asked or changed").says("forebay doctor");
            assert!(!ran.stderr.contains("Ping") && !ran.stderr.contains("stored"), "{ran:?}");
        }
    }
}

#[cfg(not(feature = "rados"))]
#[test]
fn a_program_without_ceph_says_how_to_get_one_with_it() {
    const STORE: [&str; 4] = ["--media", "rados:ec,meta", "--name", "x"];
    for command in [&["serve"][..], &["init", "--drive-bytes", "1TiB"], &["takeover"]] {
        let words: Vec<&str> = command.iter().chain(&STORE).copied().collect();
        forebay(words).expect(2).says("built without Ceph. Nothing was done").says("--features rados");
    }
}

#[test]
fn a_store_in_pools_has_two_pools_and_a_name_and_no_drives() {
    for wrong in [
        &["serve", "--media", "rados:ec,meta"][..],
        &["serve", "--media", "rados:ec", "--name", "x"],
        &["serve", "--media", "rados:ec,meta", "--name", "x", "drive0"],
        &["serve", "--standby", "drive0"],
        &["init", "--media", "rados:ec,meta", "--name", "x", "--data", "4", "--parity", "1"],
        &["takeover"],
    ] {
        forebay(wrong).expect(2);
    }
}
