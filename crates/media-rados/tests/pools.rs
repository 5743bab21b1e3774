//! The conformance suite of all media, on a real cluster; and what this one adds.
#![cfg(feature = "link")]

#[path = "../../../tests/peers/ceph.rs"]
mod ceph;

use std::sync::Arc;
use std::time::Duration;

use ceph::Ceph;
use forebay_media::conformance::{self, DRIVES};
use forebay_media::{AlignedBuffer, BLOCK_BYTES, Licence, Media, MediaError, Operation, OperationId, RemoteDrive};
use forebay_media_rados::{
    Cluster, Layout, Owned, OwnerToken, Owners, Ownership, Pool, Pools, Progress, RadosDrive, RadosMedia, own,
};
use forebay_takeover::{Patience, Timing};
use forebay_types::DriveNumber;

const DRIVE: DriveNumber = DriveNumber(0);
const SLOT_BYTES: u64 = 2 << 20;
/// The least that there may be.
const DEAD_AFTER: Duration = Duration::from_secs(1);
const LAYOUT: Layout = Layout { slots_offset: 1 << 20, slot_bytes: SLOT_BYTES, bytes: 9 << 20 };

fn connect() -> Arc<Cluster> {
    Cluster::connect().expect("the cluster answers")
}

/// The lock is taken, and a drive opened with it.
fn open(cluster: &Arc<Cluster>, name: &str, slots: &str) -> (Owners, OwnerToken, Arc<RadosDrive>) {
    let owners = Owners::new(Arc::new(cluster.pool("meta", name).expect("the pool is there")));
    let token = owners.lock(1, "a test", DEAD_AFTER).expect("locked").expect("nobody has it");
    let pools = Pools::open(cluster, slots, "meta", name).expect("the pools are there");
    let listed = pools.list().expect("listed");
    let licence = Arc::new(Licence::default());
    licence.extend(Licence::now() + Duration::from_secs(3600));
    (owners, token, Arc::new(RadosDrive::open(pools, LAYOUT, token, listed, licence).expect("opened")))
}

fn lane(drive: &Arc<RadosDrive>) -> RadosMedia {
    RadosMedia::new(&[(DRIVE, Arc::clone(drive))]).expect("a media")
}

fn objects(pool: &Pool) -> Vec<String> {
    let mut names = Vec::new();
    pool.list(|name| names.push(name.to_owned())).expect("listed");
    names.sort();
    names
}

fn filled(bytes: usize, with: u8) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    buffer.fill(with);
    Arc::new(buffer)
}

fn finish(media: &mut RadosMedia) -> Vec<(OperationId, Result<(), MediaError>, Option<AlignedBuffer>)> {
    let mut completions = Vec::new();
    while media.in_flight() > 0 {
        media.wait(Duration::from_secs(1), &mut completions);
    }
    completions.into_iter().map(|completion| (completion.id, completion.result, completion.buffer)).collect()
}

fn write(media: &mut RadosMedia, offset_bytes: u64, bytes: usize, with: u8) -> Result<(), MediaError> {
    let operation = Operation::Write { drive: DRIVE, offset_bytes, buffer: filled(bytes, with), bytes };
    media.submit(OperationId(1), operation);
    finish(media).pop().expect("one").1
}

fn read(media: &mut RadosMedia, offset_bytes: u64, bytes: usize) -> Result<AlignedBuffer, MediaError> {
    let buffer = AlignedBuffer::zeroed(bytes);
    media.submit(OperationId(2), Operation::Read { drive: DRIVE, offset_bytes, buffer, bytes });
    let (_, result, buffer) = finish(media).pop().expect("one");
    result.map(|()| buffer.expect("handed back"))
}

fn is_all(buffer: &AlignedBuffer, with: u8) -> bool {
    buffer.iter().all(|byte| *byte == with)
}

#[test]
fn pools_keep_the_contract_of_all_media() {
    let Some(_ceph) = Ceph::shared() else { return };
    let cluster = connect();
    // One that takes writes anywhere, and one that takes appends of whole stripes alone.
    for slots in ["meta", "ec"] {
        let drives: Vec<_> = (0..DRIVES.len())
            .map(|drive| open(&cluster, &format!("suite-{slots}-{drive}"), slots).2)
            .zip(DRIVES)
            .map(|(drive, number)| (number, drive))
            .collect();
        conformance::run_all(|| Box::new(RadosMedia::new(&drives).expect("a media")));
    }
}

#[test]
fn a_slot_is_one_object_that_grows_by_whole_flushes_and_one_for_what_closes_it() {
    let Some(_ceph) = Ceph::shared() else { return };
    let cluster = connect();
    let (_owners, token, drive) = open(&cluster, "objects", "ec");
    let stripe = drive.flush_multiple_bytes();
    assert!(stripe > BLOCK_BYTES, "an erasure-coded pool takes whole stripes: {stripe}");
    let mut media = lane(&drive);
    let begin = LAYOUT.slots_offset + SLOT_BYTES;
    // Many at once, each behind the other.
    for flush in 0..16 {
        let offset_bytes = begin + (flush * 2 * stripe) as u64;
        let operation = Operation::Write {
            drive: DRIVE,
            offset_bytes,
            buffer: filled(2 * stripe, flush as u8 + 1),
            bytes: 2 * stripe,
        };
        media.submit(OperationId(flush as u64), operation);
    }
    assert!(finish(&mut media).iter().all(|(_, result, _)| result.is_ok()));
    write(&mut media, begin + SLOT_BYTES - 8192, 8192, 99).expect("written");
    let pool = cluster.pool("ec", "objects").expect("there");
    let epoch = token.epoch();
    assert_eq!(objects(&pool), [format!("1.{epoch:x}.0.0"), format!("1.{epoch:x}.1.{:x}", SLOT_BYTES - 8192)]);
    for flush in 0..16 {
        let found = read(&mut media, begin + (flush * 2 * stripe) as u64, 2 * stripe).expect("read");
        assert!(is_all(&found, flush as u8 + 1), "flush {flush}");
    }
    let hole = read(&mut media, begin + (32 * stripe) as u64, 8192).expect("read");
    assert!(is_all(&hole, 0), "what was never written is zeros");
    media.discard(DRIVE, begin, SLOT_BYTES);
    while !objects(&pool).is_empty() {
        std::thread::yield_now();
    }
    assert!(is_all(&read(&mut media, begin, 8192).expect("read"), 0));
    write(&mut media, begin, stripe, 7).expect("a slot is used again");
    assert_eq!(objects(&pool), [format!("1.{epoch:x}.2.0")]);
}

#[test]
fn the_next_owner_reads_what_the_last_one_wrote_and_the_last_one_writes_nothing_that_counts() {
    let Some(_ceph) = Ceph::shared() else { return };
    let (first_cluster, second_cluster) = (connect(), connect());
    let (owners, token, drive) = open(&first_cluster, "owners", "ec");
    let mut first = lane(&drive);
    let stripe = drive.flush_multiple_bytes();
    let slot = LAYOUT.slots_offset;
    write(&mut first, 0, 8192, 1).expect("a superblock");
    write(&mut first, slot, stripe, 2).expect("a flush");
    assert!(owners.lock(2, "a test", DEAD_AFTER).expect("asked").is_none(), "the lock is held");
    let holder = owners.holder().expect("asked").expect("held");
    assert_eq!(holder.cookie, token.to_string());
    // Broken without a fence: what a blocklist that was forgotten, or is over, leaves.
    let pulse = owners.pulse().expect("asked");
    owners.break_lock(&holder, &pulse).expect("broken");
    owners.break_lock(&holder, &pulse).expect("it is broken already");
    let (_, next, second_drive) = open(&second_cluster, "owners", "ec");
    assert_eq!(next.epoch(), token.epoch() + 1);
    let mut second = lane(&second_drive);
    assert!(is_all(&read(&mut second, 0, 8192).expect("read"), 1));
    assert!(is_all(&read(&mut second, slot, stripe).expect("read"), 2));
    // Before the slots nothing of the old one is taken any more; it learns so.
    assert!(!drive.licence().is_revoked());
    let refused = write(&mut first, 0, 8192, 66).expect_err("refused");
    assert!(refused.to_string().contains("somebody else owns the store now"), "{refused}");
    assert!(drive.licence().is_revoked());
    assert!(owners.beat(&token, 1).is_err());
    // What it writes to slots has names that the new one does not read.
    second.discard(DRIVE, slot, SLOT_BYTES);
    write(&mut second, slot, stripe, 3).expect("used again");
    let _ = write(&mut first, slot + stripe as u64, stripe, 67);
    assert!(is_all(&read(&mut second, slot, stripe).expect("read"), 3));
    assert!(is_all(&read(&mut second, slot + stripe as u64, stripe).expect("read"), 0));
    let (_, _, third_drive) = {
        let holder = owners.holder().expect("asked").expect("held");
        owners.break_lock(&holder, &owners.pulse().expect("asked")).expect("broken");
        open(&connect(), "owners", "ec")
    };
    let mut third = lane(&third_drive);
    assert!(is_all(&read(&mut third, slot, stripe).expect("read"), 3));
    assert!(is_all(&read(&mut third, slot + stripe as u64, stripe).expect("read"), 0));
}

#[test]
fn a_blocklisted_owner_can_neither_write_nor_read() {
    let Some(_ceph) = Ceph::shared() else { return };
    let (first_cluster, second_cluster) = (connect(), connect());
    let (owners, _, drive) = open(&first_cluster, "blocklisted", "ec");
    let mut media = lane(&drive);
    let slot = LAYOUT.slots_offset;
    let stripe = drive.flush_multiple_bytes();
    write(&mut media, slot, stripe, 1).expect("a flush");
    let holder = owners.holder().expect("asked").expect("held");
    second_cluster.blocklist(&holder.address, 3600).expect("fenced");
    second_cluster.wait_for_newest_map().expect("seen");
    // A list asks every drive, by which all of them have the map.
    second_cluster.pool("ec", "blocklisted").expect("there").list(|_| ()).expect("listed");
    let refused = write(&mut media, slot + stripe as u64, stripe, 2).expect_err("refused");
    assert!(refused.to_string().contains("on the cluster's blocklist"), "{refused}");
    assert!(read(&mut media, slot, stripe).is_err());
    assert!(drive.licence().is_revoked());
}

/// Comes to own a store; before it takes the lock, `before_lock` is called.
fn take_over(cluster: &Arc<Cluster>, name: &str, mut before_lock: impl FnMut()) -> Owned {
    let pools = Pools::open(cluster, "ec", "meta", name).expect("the pools are there");
    let lock = Arc::new(cluster.pool("meta", name).expect("the pool is there"));
    let timing = (Timing::new(Duration::from_secs(1)).expect("a time"), Patience::ForEver);
    let mut tell = |progress| {
        if progress == Progress::Step("lock") {
            before_lock();
        }
    };
    own(&pools, &lock, timing, "a test", &|| false, &mut tell).unwrap_or_else(|error| panic!("{error}"))
}

/// Opens the drive of an owner, and writes a flush to its first slot.
fn write_as(cluster: &Arc<Cluster>, name: &str, owned: Owned, with: u8) -> Ownership {
    let (ownership, listed) = Ownership::keep(owned, || ());
    let pools = Pools::open(cluster, "ec", "meta", name).expect("the pools are there");
    let drive = RadosDrive::open(pools, LAYOUT, ownership.token(), listed, Arc::clone(ownership.licence()));
    let drive = Arc::new(drive.expect("opened"));
    let stripe = drive.flush_multiple_bytes();
    write(&mut lane(&drive), LAYOUT.slots_offset, stripe, with).expect("a flush");
    ownership
}

#[test]
fn a_standby_that_stood_still_after_its_list_sees_what_others_wrote_meanwhile() {
    let Some(_ceph) = Ceph::shared() else { return };
    // A dead owner.
    drop(open(&connect(), "stale-list", "ec"));
    let cluster = connect();
    let mut is_first = true;
    let owned = take_over(&cluster, "stale-list", || {
        if std::mem::take(&mut is_first) {
            // Another standby takes the store, writes, and stops in order, while this one stands still.
            let other = connect();
            let owned = take_over(&other, "stale-list", || ());
            write_as(&other, "stale-list", owned, 5).give_back().expect("given back");
        }
    });
    assert_eq!(owned.listed.len(), 1, "the object that the other one wrote");
}

#[test]
fn an_owner_that_stood_still_before_it_took_the_places_does_not_take_them_from_the_next() {
    let Some(_ceph) = Ceph::shared() else { return };
    let (first_cluster, second_cluster) = (connect(), connect());
    let owners = Owners::new(Arc::new(first_cluster.pool("meta", "late").expect("the pool is there")));
    let token = owners.lock(1, "a test", DEAD_AFTER).expect("locked").expect("nobody has it");
    // It stands still, is replaced, and nobody remembers the fence.
    let (holder, pulse) = (owners.holder().expect("asked").expect("held"), owners.pulse().expect("asked"));
    owners.break_lock(&holder, &pulse).expect("broken");
    let (_, _, next) = open(&second_cluster, "late", "ec");
    let late = Pools::open(&first_cluster, "ec", "meta", "late").expect("the pools are there");
    let listed = late.list().expect("listed");
    let refused = RadosDrive::open(late, LAYOUT, token, listed, Arc::default()).err().expect("refused");
    assert!(refused.to_string().contains("somebody else owns the store now"), "{refused}");
    let late = Pools::open(&first_cluster, "ec", "meta", "late").expect("the pools are there");
    assert!(late.remove_all(token).is_err(), "nor does it remove them");
    write(&mut lane(&next), 0, 8192, 1).expect("the places are the next owner's still");
}

#[test]
fn a_lock_is_broken_only_of_an_owner_whose_pulse_stands_still_and_ends_the_pulse() {
    let Some(_ceph) = Ceph::shared() else { return };
    let cluster = connect();
    let owners = Owners::new(Arc::new(cluster.pool("meta", "pulse").expect("the pool is there")));
    let token = owners.lock(1, "a test", DEAD_AFTER).expect("locked").expect("nobody has it");
    let (holder, seen) = (owners.holder().expect("asked").expect("held"), owners.pulse().expect("asked"));
    // He was slow, and his fence is gone: he lives.
    owners.beat(&token, 1).expect("his");
    assert!(owners.break_lock(&holder, &seen).is_err(), "his pulse is another");
    owners.beat(&token, 2).expect("his still");
    owners.break_lock(&holder, &owners.pulse().expect("asked")).expect("broken");
    // Nobody has named himself yet, and he may answer nobody any more.
    assert!(owners.beat(&token, 3).is_err());
}

#[test]
fn nothing_is_taken_from_an_owner_that_counts_as_dead_later_than_who_waits_for_it() {
    let Some(_ceph) = Ceph::shared() else { return };
    let cluster = connect();
    let owners = Owners::new(Arc::new(cluster.pool("meta", "slow").expect("the pool is there")));
    assert_eq!(owners.dead_after().expect("asked"), None);
    let token = owners.lock(1, "a test", 2 * DEAD_AFTER).expect("locked").expect("nobody has it");
    assert_eq!(owners.dead_after().expect("asked"), Some(2 * DEAD_AFTER));
    let pools = Pools::open(&cluster, "ec", "meta", "slow").expect("the pools are there");
    let lock = Arc::new(cluster.pool("meta", "slow").expect("the pool is there"));
    let timing = Timing::new(DEAD_AFTER).expect("a time");
    let is_told = std::cell::Cell::new(0);
    let taken = own(&pools, &lock, (timing, Patience::None), "a test", &|| is_told.get() > 2, &mut |progress| {
        assert!(!matches!(progress, Progress::Fencing(_)), "it is left alone");
        if let Progress::WaitsLonger(_, said) = progress {
            assert_eq!(said, 2 * DEAD_AFTER);
            is_told.set(is_told.get() + 1);
        }
    });
    assert!(taken.is_err(), "it gave up");
    owners.beat(&token, 1).expect("it is the owner still");
}

#[test]
fn a_store_that_is_removed_leaves_the_count_of_its_owners() {
    let Some(_ceph) = Ceph::shared() else { return };
    let cluster = connect();
    let (owners, token, drive) = open(&cluster, "removed", "ec");
    write(&mut lane(&drive), 0, 8192, 1).expect("a superblock");
    write(&mut lane(&drive), LAYOUT.slots_offset, drive.flush_multiple_bytes(), 2).expect("a flush");
    drop(drive);
    Pools::open(&cluster, "ec", "meta", "removed").expect("there").remove_all(token).expect("removed");
    owners.unlock(&token).expect("given back");
    assert!(objects(&cluster.pool("ec", "removed").expect("there")).is_empty());
    assert_eq!(objects(&cluster.pool("meta", "removed").expect("there")), ["lock"]);
    let (_, next, drive) = open(&cluster, "removed", "ec");
    assert_eq!(next.epoch(), token.epoch() + 1);
    assert!(is_all(&read(&mut lane(&drive), 0, 8192).expect("read"), 0));
}

#[test]
fn errors_say_what_is_missing() {
    let Some(_ceph) = Ceph::shared() else { return };
    let error = connect().pool("none", "x").err().expect("there is no such pool");
    assert!(error.to_string().contains("pool none (`ceph osd pool ls`"), "{error}");
}
