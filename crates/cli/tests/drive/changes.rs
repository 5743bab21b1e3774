//! Drives that fail, are taken out of use and are replaced.

use std::fs;

use super::store::{Store, drive, drive_command, list, screen, total, wait_until_whole};

/// Over several segments of each lane.
const FRAGMENTS: u64 = 16_000;

/// How many more drives may fail before something is out of reach.
fn failures_left(store: &Store, server: &super::common::Server) -> u64 {
    assert!(!store.ids.is_empty(), "of nothing nothing is lost");
    server.status()["totals"]["failures_left"].as_u64().expect("something is stored")
}

#[test]
fn what_a_failed_drive_held_is_made_anew_on_the_one_that_replaces_it() {
    replace_a_failed_drive("");
}

#[test]
fn drives_are_replaced_where_threads_reach_them_too() {
    replace_a_failed_drive("[store.media]\nbackend = \"thread-pool\"\n");
}

fn replace_a_failed_drive(config: &str) {
    let mut store = Store::make(5, 32, config);
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    drive_command(&server, &["fail", "2"]).expect(0);
    let told = list(&server);
    assert_eq!((&drive(&told, 2)["state"], &told["whole"]), (&"failed".into(), &false.into()), "{told}");
    assert_eq!(failures_left(&store, &server), 0);
    assert!(screen(&server).contains("the rebuild waits for a drive"), "{}", screen(&server));
    store.verify(&server);
    let number = store.replace(&server, 2, "new");
    assert_eq!(number, 5, "numbers are never given again");
    // Data go on coming.
    store.fill(&server, 2, 100);
    let told = wait_until_whole(&server);
    assert!(drive(&told, number)["segments_alive"].as_u64() > Some(2), "{told}");
    assert_eq!((&drive(&told, 2)["segments_alive"], failures_left(&store, &server)), (&0.into(), 1));
    assert!(screen(&server).contains("nothing lives on drive 2 any more: it may be taken away"), "{}", screen(&server));
    assert_eq!(total(&server, "/rebuild/segments_stuck"), 0);
    server.kill();

    // The new drive is one of those that are needed now.
    let (two, zero) = (store.paths[2].clone(), store.paths[0].clone());
    let server = store.serve_on(&[], &store.without(&[&two, &zero]));
    store.verify(&server);
    assert_eq!(drive(&list(&server), number)["state"], "member");
    server.terminate().expect(0).says("marked clean");

    // Without it the store is as one that lost a drive.
    let server = store.serve_on(&["--read-only"], &store.without(&[&store.place("new")]));
    assert_eq!(drive(&list(&server), number)["state"], "absent");
    let warnings = server.ready["warnings"].to_string();
    assert!(warnings.contains(&format!("drive {number} is a member and was not found")), "{warnings}");
    store.verify(&server);
}

#[test]
fn with_more_drives_than_shards_nothing_has_to_be_put_in() {
    let mut store = Store::make(7, 32, "");
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    drive_command(&server, &["fail", "3"]).expect(0);
    let told = wait_until_whole(&server);
    assert_eq!(drive(&told, 3)["segments_alive"], 0, "{told}");
    assert!(total(&server, "/rebuild/segments_rebuilt") > 0);
    server.kill();
    let (three, five) = (store.paths[3].clone(), store.paths[5].clone());
    let server = store.serve_on(&[], &store.without(&[&three, &five]));
    store.verify(&server);
    // What lay on that one is made anew as well.
    wait_until_whole(&server);
    server.kill();
    let zero = store.paths[0].clone();
    let server = store.serve_on(&[], &store.without(&[&three, &five, &zero]));
    store.verify(&server);
}

#[test]
fn more_drives_than_parity_makes_up_for_that_come_back_leave_everything_protected() {
    let mut store = Store::make(8, 32, "");
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    for words in [&["fail", "2", "--force"][..], &["fail", "3", "--force"]] {
        drive_command(&server, words).expect(0);
    }
    server.kill();
    // They are read where that helps, and what they hold is made anew on those that are in use.
    let server = store.serve();
    store.verify(&server);
    let told = wait_until_whole(&server);
    assert_eq!(
        (drive(&told, 2)["segments_alive"].as_u64(), drive(&told, 3)["segments_alive"].as_u64()),
        (Some(0), Some(0))
    );
    server.kill();
    let (two, three, seven) = (store.paths[2].clone(), store.paths[3].clone(), store.paths[7].clone());
    let server = store.serve_on(&[], &store.without(&[&two, &three, &seven]));
    store.verify(&server);
}

#[test]
fn a_retired_drive_is_read_until_nothing_lives_on_it() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    drive_command(&server, &["retire", "1"]).expect(0);
    let told = list(&server);
    assert_eq!(drive(&told, 1)["state"], "retired", "{told}");
    assert!(drive(&told, 1)["segments_alive"].as_u64() > Some(2), "{told}");
    assert!(!screen(&server).contains("may be taken away"), "{}", screen(&server));
    assert_eq!(failures_left(&store, &server), 1, "it is read");
    store.verify(&server);
    assert_eq!(total(&server, "/counters/fragments_read_degraded"), 0);
    server.kill();

    // A start reads it as well.
    let server = store.serve();
    assert_eq!(drive(&list(&server), 1)["state"], "out");
    store.verify(&server);
    assert_eq!((total(&server, "/counters/fragments_read_degraded"), failures_left(&store, &server)), (0, 1));
    store.replace(&server, 1, "new");
    wait_until_whole(&server);
    assert!(screen(&server).contains("nothing lives on drive 1 any more: it may be taken away"), "{}", screen(&server));
    fs::remove_file(&store.paths[1]).expect("taken away");
    store.verify(&server);
    assert_eq!(total(&server, "/counters/fragments_read_degraded"), 0);
    server.kill();
    let (one, four) = (store.paths[1].clone(), store.paths[4].clone());
    let server = store.serve_on(&[], &store.without(&[&one, &four]));
    store.verify(&server);
}

#[test]
fn a_member_is_replaced_without_a_time_of_less_protection() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    store.replace(&server, 4, "new");
    assert_eq!(drive(&list(&server), 4)["state"], "retired");
    assert_eq!(failures_left(&store, &server), 1);
    wait_until_whole(&server);
    assert_eq!(total(&server, "/counters/fragments_read_degraded"), 0);
    store.verify(&server);
    server.kill();
    let four = store.paths[4].clone();
    store.verify(&store.serve_on(&[], &store.without(&[&four])));
}

#[test]
fn a_new_drive_may_take_the_very_place_of_the_old_one() {
    let mut store = Store::make(5, 32, "");
    let server = store.serve();
    store.fill(&server, 1, 2000);
    drive_command(&server, &["fail", "4"]).expect(0);
    fs::rename(&store.paths[4], store.place("taken-out")).expect("moved");
    store.replace(&server, 4, "drive4");
    wait_until_whole(&server);
    store.verify(&server);
}
