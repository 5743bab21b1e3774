//! A server that is killed again and again while it makes anew what a drive held.

use std::fs;

use forebay_types::RunId;

use super::common::Server;
use super::common::load::{Random, delete_run, from_environment};
use super::store::{Store, list, total, wait_until_whole};

/// About fifty segments.
const FRAGMENTS: u64 = 150_000;

/// Segments that are made anew at most between two kills.
const REBUILT_MAX: u64 = 6;

fn is_whole(server: &Server) -> bool {
    list(server)["whole"] == true
}

#[test]
fn a_rebuild_that_is_killed_goes_on_and_leaks_no_slot() {
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random(seed);
    // Where who puts is slow, flushes are less full: half as much room again as they take at best.
    let mut store = Store::make(6, 96, "rebuild-percent = 25\n");
    let server = store.serve();
    store.fill(&server, 1, FRAGMENTS);
    let segments = total(&server, "/segments");
    server.kill();
    let mut kills = 0;
    for drive in 0..2 {
        // Nothing helps that lies on it.
        fs::remove_file(&store.paths[drive]).expect("taken away");
        loop {
            let server = store.serve();
            let most = random.below(REBUILT_MAX);
            // While somebody reads, it goes slowly.
            let mut client = server.client("test");
            let some = &store.ids[random.below(FRAGMENTS - 100) as usize..][..100];
            let over = loop {
                client.get_many(some).expect("answered");
                let over = is_whole(&server);
                if over || total(&server, "/rebuild/segments_rebuilt") > most {
                    break over;
                }
            };
            server.kill();
            if over {
                break;
            }
            kills += 1;
        }
        if drive == 0 {
            let server = store.serve();
            store.replace(&server, 0, "new");
            server.kill();
        }
    }
    println!("{segments} segments, {kills} kills before they were whole");
    assert!(kills >= 4, "{kills} kills");
    let server = store.serve();
    wait_until_whole(&server);
    store.verify(&server);
    delete_run(&mut server.client("test"), RunId(1));
    server.terminate().expect(0).says("marked clean");
    let server = store.serve();
    assert_eq!(total(&server, "/segments"), 0);
    assert_eq!(total(&server, "/slots_free"), total(&server, "/slots_total"));
}
