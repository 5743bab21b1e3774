//! kill -9 of the server under mixed load, and between two rounds drives are taken away, overwritten, replaced by what they are not, brought
//! back: as long as no more than m of them are out of order at once, all that was acknowledged is there, and what was deleted is not. It is read
//! twice: as a server gives it that goes on, and before that read-only on as few drives as the promise needs.
//!
//! The load: fragments that are put, and a file that is written, read back after each start and deleted some rounds later; beside them a readout, a filter and a
//! recorder whose events are compared with hashes that were taken before they were written. Drives that are lost are replaced, others
//! are given up or taken out of use; what they held is made anew, and what was overwritten is mended, and from then on as many may fail as before. When
//! twice as many drives have been in a store as at first it is emptied, and another one is made.
//!
//! All is seeded: `FOREBAY_KILL_SEED` chooses other faults and moments, `FOREBAY_KILL_ROUNDS` their number. The short form has 6 rounds, the
//! long one (`FOREBAY_TEST_ALL`) 40.

mod common;
#[path = "kill_drives/drives.rs"]
mod drives;
#[path = "kill_drives/life.rs"]
mod life;
#[path = "kill_drives/operator.rs"]
mod operator;
#[path = "kill_drives/path.rs"]
mod path;
#[path = "kill_drives/replaced.rs"]
mod replaced;

use common::load::{Random, from_environment, long_form};
use common::scratch;
use life::{Life, foreign_drive};

/// What a run of the test did.
#[derive(Debug, Default)]
struct Totals {
    stores: u64,
    starts: u64,
    kills: u64,
    kills_at_start: u64,
    recorder_kills: u64,
    /// Times that a store was emptied and stopped in order.
    drains: u64,
    /// Drives taken away; of these, with something else in their place; brought back.
    removed: u64,
    replaced: u64,
    returned: u64,
    /// Starts that were refused because of what was in a drive's place.
    refused: u64,
    /// Drives overwritten in part, some of them under a server, and as a whole.
    corrupted: u64,
    corrupted_while_used: u64,
    overwritten: u64,
    /// New drives put in, drives given up and taken out of use; times that all was whole after that, and that it waited for a drive or space.
    put_in: u64,
    given_up: u64,
    retired: u64,
    made_whole: u64,
    not_whole: u64,
    /// Times that something was left to be made anew when the server died.
    left_to_the_next: u64,
    /// Times that all was looked at, and what was mended by it.
    scrubs: u64,
    flushes_mended: u64,
    /// Fragments, and those unanswered at a kill.
    acknowledged: u64,
    unanswered: u64,
    /// Reads that were compared; those on as few drives as may be left; reads of what was deleted.
    verified: u64,
    verified_without: u64,
    file_bytes_verified: u64,
    seen_deleted: u64,
    /// Times that `forebay doctor` said that all can be read.
    doctor_asked: u64,
    /// As the servers counted.
    flushes_possibly_lost: u64,
    units_damaged: u64,
    read_degraded: u64,
    /// Events of the readout, all of them rejected or shipped, and those that were shipped.
    events: u64,
    events_accepted: u64,
}

#[test]
fn what_was_acknowledged_survives_the_server_and_its_drives() {
    let rounds = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 40 } else { 6 });
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    println!("seed {seed}, {rounds} rounds");
    let (mut random, mut totals) = (Random(seed), Totals::default());
    let others = scratch();
    let foreign = foreign_drive(others.path());
    let mut life = Life::begin(&foreign, &mut random, &mut totals);
    for round in 1..=rounds {
        life.round(&mut random, &mut totals);
        println!("round {round}: {}", life.drives.describe());
        if life.is_over() {
            life.end(&mut totals);
            life = Life::begin(&foreign, &mut random, &mut totals);
        }
    }
    life.end(&mut totals);
    println!("{totals:#?}");
    let harmed = totals.removed + totals.corrupted + totals.overwritten;
    assert!(totals.kills > 0 && harmed > 0 && totals.acknowledged > 0 && totals.verified > 0 && totals.events > 0);
    assert!(totals.file_bytes_verified > 0, "no file was written");
}
