//! A lane on real files: what is acknowledged is there after a crash, with a drive lost, and after both.

mod common;

use common::*;
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, Verdict};

#[test]
fn what_is_acknowledged_is_read_back_from_memory_and_from_the_drives() {
    for cache_bytes in [64 << 20, 0] {
        let store = TestStore::new(5, 4, 1);
        let mut lane = store.open_with(|config| config.cache_bytes = cache_bytes);
        for event in 0..200 {
            for source in 0..5 {
                let id = FragmentId::new(7, event, source);
                assert_eq!(lane.put(id, 5, &payload(id, 9_000)), PutOutcome::Durable);
            }
        }
        for event in 0..200 {
            for source in 0..5 {
                let id = FragmentId::new(7, event, source);
                assert_eq!(lane.get(id), (ReadOutcome::Found, payload(id, 9_000)), "{id}");
            }
        }
        assert_eq!(lane.get(FragmentId::new(7, 200, 0)).0, ReadOutcome::NotFound);
    }
}

#[test]
fn a_crash_loses_nothing_that_was_acknowledged() {
    let store = TestStore::new(5, 4, 1);
    let mut expected = Vec::new();
    for start in 0..6u64 {
        let mut lane = store.open();
        for id in &expected {
            assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 3_000)), "{id} at start {start}");
        }
        for event in 0..150 {
            let id = FragmentId::new(1, start * 1_000 + event, 9);
            assert_eq!(lane.put(id, 1, &payload(id, 3_000)), PutOutcome::Durable);
            expected.push(id);
        }
        // Dropped without a stop.
    }
}

#[test]
fn a_clean_stop_leaves_nothing_to_recover() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let id = FragmentId::new(1, 1, 1);
    assert_eq!(lane.put(id, 1, b"the one"), PutOutcome::Durable);
    lane.stop();
    let mut lane = store.open();
    assert!(lane.control().status().started_clean);
    assert_eq!(lane.get(id), (ReadOutcome::Found, b"the one".to_vec()));
}

#[test]
fn written_once_and_late_puts() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let id = FragmentId::new(1, 1, 1);
    assert_eq!(lane.put(id, 2, b"first"), PutOutcome::Durable);
    assert_eq!(lane.put(id, 2, b"first"), PutOutcome::Durable);
    assert_eq!(lane.put(id, 2, b"other"), PutOutcome::Conflict);
    assert_eq!(lane.put_with_crc(FragmentId::new(1, 1, 2), 2, b"damaged", 1), PutOutcome::ChecksumMismatch);
    assert_eq!(lane.decide(id.key(), &Verdict::Reject), DecideOutcome::Done);
    assert_eq!(lane.put(FragmentId::new(1, 1, 3), 2, b"too late"), PutOutcome::Late);
    assert_eq!(lane.get(id).0, ReadOutcome::Deleted);
    assert_eq!(lane.decide(id.key(), &Verdict::Reject), DecideOutcome::AlreadyDone);
    drop(lane);
    let mut lane = store.open();
    assert_eq!(lane.get(id).0, ReadOutcome::Deleted, "deleted stays deleted");
    assert_eq!(lane.put(id, 2, b"first"), PutOutcome::Late);
}

#[test]
fn an_event_of_two_streams_is_freed_when_both_have_it() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let key = EventKey::new(3, 4);
    let id = key.fragment(forebay_types::SourceId(1));
    assert_eq!(lane.put(id, 1, b"wanted"), PutOutcome::Durable);
    let streams = ["physics", "calibration"].map(|name| name.parse().expect("a stream")).to_vec();
    assert_eq!(lane.decide(key, &Verdict::Accept(streams.clone())), DecideOutcome::Done);
    assert_eq!(lane.decide(key, &Verdict::Reject), DecideOutcome::Conflict);
    assert_eq!(lane.release(key, &streams[0]), DecideOutcome::Done);
    assert_eq!(lane.release(key, &streams[0]), DecideOutcome::AlreadyDone);
    drop(lane);
    let mut lane = store.open();
    assert_eq!(lane.get(id), (ReadOutcome::Found, b"wanted".to_vec()));
    assert_eq!(lane.lane().accepted(&streams[0], None, 10).events.len(), 0);
    assert_eq!(lane.lane().accepted(&streams[1], None, 10).events.len(), 1);
    assert_eq!(lane.release(key, &streams[1]), DecideOutcome::Done);
    assert_eq!(lane.get(id).0, ReadOutcome::Deleted);
    drop(lane);
    assert_eq!(store.open().get(id).0, ReadOutcome::Deleted);
}

#[test]
fn a_drive_that_dies_under_load_costs_nothing_acknowledged() {
    for drives in [5, 7] {
        let store = TestStore::new(drives, 4, 1);
        let mut lane = store.open_with(|config| config.cache_bytes = 0);
        let mut expected = Vec::new();
        for event in 0..400 {
            if event == 200 {
                store.overwrite_with_noise(2);
                lane.control().inject_fault(forebay_types::DriveNumber(2)).expect("a drive of the store");
            }
            let id = FragmentId::new(1, event, 0);
            assert_eq!(lane.put(id, 1, &payload(id, 20_000)), PutOutcome::Durable, "{id}");
            expected.push(id);
        }
        assert_eq!(lane.control().status().drives_failed, 1);
        for id in &expected {
            assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 20_000)), "{id}");
        }
        drop(lane);
        let mut lane = store.open();
        for id in &expected {
            assert_eq!(
                lane.get(*id),
                (ReadOutcome::Found, payload(*id, 20_000)),
                "{id} after a start without the drive"
            );
        }
    }
}

#[test]
fn a_full_store_says_so_and_deletes_make_room() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let mut stored = Vec::new();
    for event in 0.. {
        let id = FragmentId::new(1, event, 0);
        match lane.put(id, 1, &payload(id, 100_000)) {
            PutOutcome::Durable => stored.push(id),
            outcome => {
                assert_eq!(outcome, PutOutcome::NoSpace);
                break;
            }
        }
    }
    assert!(stored.len() > 500, "{} fragments of 100 kB in 5 drives of 64 MiB", stored.len());
    drop(lane);
    let mut lane = store.open();
    for id in &stored {
        assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 100_000)), "{id}");
    }
    for id in &stored {
        assert_eq!(lane.delete(id.key()), DecideOutcome::Done, "{id}");
    }
    for round in 0..3 {
        for event in 0..400 {
            let id = FragmentId::new(2 + round, event, 0);
            assert_eq!(lane.put(id, 1, &payload(id, 100_000)), PutOutcome::Durable, "{id}");
        }
        for event in 0..400 {
            assert_eq!(lane.delete(EventKey::new(2 + round, event)), DecideOutcome::Done);
        }
    }
    drop(lane);
    let mut lane = store.open();
    for id in &stored {
        assert_eq!(lane.get(*id).0, ReadOutcome::Deleted, "{id}");
    }
}

#[test]
fn large_and_empty_fragments() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let max = lane.info().fragment_bytes_max as usize;
    for (event, bytes) in [0, 1, 7, 8, 4095, 4096, 131_072, 131_073, max - 1, max].into_iter().enumerate() {
        let id = FragmentId::new(1, event as u64, 0);
        assert_eq!(lane.put(id, 1, &payload(id, bytes)), PutOutcome::Durable, "{bytes} bytes");
        assert_eq!(lane.get(id), (ReadOutcome::Found, payload(id, bytes)), "{bytes} bytes");
    }
    assert_eq!(lane.put(FragmentId::new(1, 99, 0), 1, &vec![0; max + 1]), PutOutcome::TooLarge);
    drop(lane);
    let mut lane = store.open();
    for (event, bytes) in [0, 1, 7, 8, 4095, 4096, 131_072, 131_073, max - 1, max].into_iter().enumerate() {
        let id = FragmentId::new(1, event as u64, 0);
        assert_eq!(lane.get(id), (ReadOutcome::Found, payload(id, bytes)), "{bytes} bytes after a crash");
    }
}

#[test]
fn a_filter_that_falls_silent_loses_no_event() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open_with(|config| config.incomplete_after_ms = 50);
    let (complete, incomplete) = (EventKey::new(1, 1), EventKey::new(1, 2));
    for source in 0..2 {
        let id = complete.fragment(forebay_types::SourceId(source));
        assert_eq!(lane.put(id, 2, b"x"), PutOutcome::Durable);
    }
    assert_eq!(lane.put(incomplete.fragment(forebay_types::SourceId(0)), 2, b"x"), PutOutcome::Durable);
    let first = lane.lease(10, 30);
    assert_eq!(first.iter().map(|e| (e.key, e.incomplete, e.attempt)).collect::<Vec<_>>(), [(complete, false, 1)]);
    assert!(lane.lease(10, 30).is_empty() || lane.now_ms() > 30, "leased to one filter at a time");
    lane.run_for_ms(120);
    let mut again: Vec<_> = lane.lease(10, 1000).iter().map(|e| (e.key, e.incomplete, e.attempt)).collect();
    again.sort();
    assert_eq!(again, [(complete, false, 2), (incomplete, true, 1)]);
    assert_eq!(lane.decide(complete, &Verdict::Reject), DecideOutcome::Done);
    assert_eq!(lane.decide(incomplete, &Verdict::Reject), DecideOutcome::Done);
    assert!(lane.lease(10, 30).is_empty());
}

/// The header of a large fragment's flush is longer than others, and no power of two.
#[test]
fn large_flushes_are_found_after_a_crash_whatever_the_configuration() {
    let store = TestStore::with(5, 4, 1, |options| {
        options.unit_bytes = Some(4096);
        options.slot_bytes = Some(16 << 20);
        options.drive_bytes = Some(100 << 20);
    });
    let mut lane = store.open();
    let sizes = [100, 8 << 20, 100, 5 << 20, 3 << 20, 100];
    for (event, bytes) in sizes.into_iter().enumerate() {
        let id = FragmentId::new(1, event as u64, 0);
        assert_eq!(lane.put(id, 1, &payload(id, bytes)), PutOutcome::Durable, "{bytes} bytes");
    }
    drop(lane);
    let mut lane = store.open_with(|config| config.flush_bytes = Some(64 << 10));
    for (event, bytes) in sizes.into_iter().enumerate() {
        let id = FragmentId::new(1, event as u64, 0);
        assert_eq!(lane.get(id), (ReadOutcome::Found, payload(id, bytes)), "{bytes} bytes");
    }
}
