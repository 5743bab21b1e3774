//! Every loss of as many drives as there are parities, and the ways to reach drives.

mod common;

use common::*;
use forebay_media::{Backend, DirectIo};
use forebay_types::{FragmentId, PutOutcome, ReadOutcome};

/// All sets of `count` of `of` drives.
fn sets(of: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with_last = |last: usize| {
        sets(last, count - 1).into_iter().map(move |mut set| {
            set.push(last);
            set
        })
    };
    (count - 1..of).flat_map(with_last).collect()
}

#[test]
fn every_loss_of_m_drives_leaves_everything_readable() {
    for (data, parity) in [(4u8, 1u8), (5, 1), (8, 2)] {
        let drives = usize::from(data + parity);
        let store = TestStore::with(drives, data, parity, |options| options.drive_bytes = Some(16 << 20));
        let ids: Vec<FragmentId> = (0..60).map(|n| FragmentId::new(1, n / 6, (n % 6) as u32)).collect();
        // One stop in order and one crash: closed segments and followed ones.
        for half in ids.chunks(30) {
            let mut lane = store.open();
            for id in half {
                assert_eq!(lane.put(*id, 6, &payload(*id, 20_000)), PutOutcome::Durable);
            }
            if half[0] == ids[0] {
                lane.stop();
            }
        }
        store.open().stop();
        let patterns = sets(drives, usize::from(parity));
        assert_eq!(patterns.len(), if parity == 1 { drives } else { drives * (drives - 1) / 2 });
        for lost in patterns {
            let left: Vec<_> =
                store.paths.iter().enumerate().filter(|(n, _)| !lost.contains(n)).map(|(_, p)| p.clone()).collect();
            let mut lane = store.open_paths(&left, |config| config.read_only = true);
            for id in &ids {
                let found = lane.get(*id);
                assert_eq!(found, (ReadOutcome::Found, payload(*id, 20_000)), "{id}, {data}+{parity} without {lost:?}");
            }
        }
        // One more than that: nothing wrong is given out, and it is said that drives are missing.
        let left: Vec<_> = store.paths.iter().skip(usize::from(parity) + 1).cloned().collect();
        let mut lane = store.open_paths(&left, |config| config.read_only = true);
        let outcomes: Vec<ReadOutcome> = ids.iter().map(|id| lane.get(*id).0).collect();
        assert!(
            outcomes.iter().all(|outcome| *outcome != ReadOutcome::Lost),
            "drives that are absent may come back: {outcomes:?}"
        );
    }
}

#[test]
fn each_way_to_the_drives_keeps_what_another_wrote() {
    let ways = [
        (Backend::Auto, DirectIo::Auto),
        (Backend::IoUring, DirectIo::On),
        (Backend::IoUring, DirectIo::Off),
        (Backend::ThreadPool, DirectIo::On),
        (Backend::ThreadPool, DirectIo::Off),
    ];
    let store = TestStore::new(5, 4, 1);
    let id = |way: usize, n: u64| FragmentId::new(way as u32, n, 1);
    for (way, (backend, direct)) in ways.into_iter().enumerate() {
        let mut lane = store.open_with(|config| {
            (config.media.backend, config.media.direct) = (backend, direct);
            config.cache_bytes = 0;
        });
        for n in 0..50 {
            assert_eq!(lane.put(id(way, n), 1, &payload(id(way, n), 9_999)), PutOutcome::Durable);
        }
        for before in 0..=way {
            for n in 0..50 {
                let id = id(before, n);
                assert_eq!(lane.get(id), (ReadOutcome::Found, payload(id, 9_999)), "{id} by {backend:?} {direct:?}");
            }
        }
    }
}

#[test]
fn noise_on_one_drive_of_a_stopped_store_is_mended_on_the_way() {
    let store = TestStore::new(5, 4, 1);
    let mut lane = store.open();
    let ids: Vec<FragmentId> = (0..100).map(|n| FragmentId::new(1, n, 0)).collect();
    for id in &ids {
        assert_eq!(lane.put(*id, 1, &payload(*id, 30_000)), PutOutcome::Durable);
    }
    lane.stop();
    for drive in 0..5 {
        // All of it, superblock and all: it is a drive that is not there.
        let kept = std::fs::read(&store.paths[drive]).expect("a drive");
        store.overwrite_with_noise(drive);
        let mut lane = store.open_with(|config| config.read_only = true);
        for id in &ids {
            assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 30_000)), "{id} with noise on drive {drive}");
        }
        drop(lane);
        // The slots alone: a drive that lies.
        let mut lying = kept.clone();
        let noise = payload(FragmentId::new(5, 5, 5), kept.len());
        lying[2 << 20..].copy_from_slice(&noise[2 << 20..]);
        std::fs::write(&store.paths[drive], &lying).expect("written");
        let mut lane = store.open_with(|config| config.read_only = true);
        for id in &ids {
            assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 30_000)), "{id} with lies on drive {drive}");
        }
        drop(lane);
        std::fs::write(&store.paths[drive], &kept).expect("written");
    }
}
