//! Stores that must not start, and what they say.

mod common;

use std::path::PathBuf;

use common::*;
use forebay_format::{
    DriveEntry, FORMAT_VERSION, FORMAT_VERSION_OLDEST, ProgramVersion, SUPERBLOCK_STRIDE_BYTES, Superblock,
};
use forebay_store::{InitError, InitOptions, Standing, StoreConfig, examine, init, open};
use forebay_types::{DriveNumber, DriveUuid, FragmentId, PutOutcome, ReadOutcome};

fn refused(paths: &[PathBuf]) -> String {
    let before: Vec<Vec<u8>> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    let error = match open(paths, &StoreConfig::default()) {
        Ok(_) => panic!("{paths:?} open"),
        Err(error) => error.to_string(),
    };
    let after: Vec<Vec<u8>> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    assert!(before == after, "a start that is refused writes nothing");
    error
}

fn says(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "{error:?} does not say {word:?}");
    }
}

#[test]
fn a_drive_of_another_store_is_refused() {
    let (one, other) = (TestStore::new(5, 4, 1), TestStore::new(5, 4, 1));
    let mut paths = one.paths.clone();
    paths[3] = other.paths[3].clone();
    let error = refused(&paths);
    says(&error, &["drive3 belongs to store ", "drive4 belongs to store "]);
    assert!(error.ends_with(". Nothing was written. Start each store with its own drives"), "{error}");
}

#[test]
fn a_clone_of_a_drive_is_refused() {
    let store = TestStore::new(5, 4, 1);
    let clone = store.paths[0].with_file_name("clone");
    std::fs::copy(&store.paths[1], &clone).expect("copied");
    let mut paths = store.paths.clone();
    paths.push(clone.clone());
    let error = refused(&paths);
    says(&error, &[&format!("{} and {} are copies of one drive (", store.paths[1].display(), clone.display())]);
    let end = "): which of them is right cannot be told. Nothing was written. Remove the copy";
    assert!(error.ends_with(end), "{error}");
}

#[test]
fn a_missing_drive_is_warned_about_and_two_are_refused() {
    let store = TestStore::new(5, 4, 1);
    let id = FragmentId::new(1, 1, 1);
    assert_eq!(store.open().put(id, 1, b"there"), PutOutcome::Durable);
    assert_eq!(
        refused(&store.paths[2..]),
        "only 3 of the 5 members of the store were found and 4 are needed for writing; missing: drives 0, 1. Nothing was written and nothing is \
         lost by waiting. Attach the missing drives, or start with --read-only to read what 3 drives give"
    );
    let beyond_parity = "drives 0, 1 were not found: 2 of 5, and parity makes up for 1. What has pieces on more than 1 of them cannot be read \
                         while they are missing, and is answered with `unavailable`; the rest can. Nothing is lost if they come back: attach \
                         them and start again";
    let within_parity = "drive 0 is a member and was not found: what lies on it is computed from the others as far as they suffice, and \
                         when it comes back it must be taken in anew";
    for (first, warning) in [(1, within_parity), (2, beyond_parity)] {
        let mut lane = store.open_paths(&store.paths[first..], |config| config.read_only = true);
        assert_eq!(lane.control().status().warnings, [warning]);
        let expected = if first == 1 { ReadOutcome::Found } else { ReadOutcome::Unavailable };
        assert_eq!(lane.get(id).0, expected, "{warning}");
    }
    // A start without it takes it out; then it is a stale drive, read but not trusted.
    let mut lane = store.open_paths(&store.paths[1..], |_| {});
    assert_eq!(lane.put(FragmentId::new(1, 2, 1), 1, b"without it"), PutOutcome::Durable);
    drop(lane);
    let mut lane = store.open();
    assert!(lane.control().status().warnings.iter().any(|w| w.contains("taken out of the store earlier")));
    assert_eq!(lane.get(id), (ReadOutcome::Found, b"there".to_vec()));
    assert_eq!(lane.get(FragmentId::new(1, 2, 1)), (ReadOutcome::Found, b"without it".to_vec()));
}

#[test]
fn drives_that_left_earlier_are_no_reason_for_a_warning() {
    let store = TestStore::new(5, 4, 1);
    for (first, warnings) in [(1, 1), (1, 0), (2, 1), (2, 0)] {
        let lane = store.open_paths(&store.paths[first..], |_| {});
        let status = lane.control().status();
        // More of them than parity makes up for, in the end, and all that is stored lies on the others.
        assert_eq!(status.warnings.len(), warnings, "{first}: {:?}", status.warnings);
        let gone: Vec<&str> = status.drives[..first].iter().map(|drive| drive.state).collect();
        let expected = match (first, warnings) {
            (1, 1) => vec!["absent"],
            (1, _) => vec!["gone"],
            (_, 1) => vec!["gone", "absent"],
            _ => vec!["gone", "gone"],
        };
        assert_eq!(gone, expected);
    }
}

#[test]
fn two_histories_are_refused() {
    let store = TestStore::new(5, 4, 1);
    let kept: Vec<Vec<u8>> = store.paths.iter().map(|path| std::fs::read(path).expect("a drive")).collect();
    store.open().stop();
    let first = std::fs::read(&store.paths[0]).expect("a drive");
    for (path, bytes) in store.paths.iter().zip(&kept) {
        std::fs::write(path, bytes).expect("written");
    }
    store.open().stop();
    std::fs::write(&store.paths[0], first).expect("written");
    says(&refused(&store.paths), &["different histories", "Nothing was written"]);
}

/// A drive that got its superblock, as number 5 of the store, just before the process that put it in fell.
fn put_in_half(store: &TestStore) -> PathBuf {
    let mut bytes = std::fs::read(&store.paths[0]).expect("a drive");
    let places = [0, SUPERBLOCK_STRIDE_BYTES as usize];
    let read = places.iter().filter_map(|place| Superblock::decode(&bytes[*place..]).ok());
    let mut superblock = read.max_by_key(|superblock| superblock.generation).expect("the newest");
    superblock.generation += 1;
    superblock.membership += 1;
    (superblock.drive, superblock.number) = (DriveUuid::from_random_bytes([77; 16]), DriveNumber(5));
    let entry = DriveEntry { uuid: superblock.drive, number: superblock.number, ..superblock.drives[0] };
    superblock.drives.push(entry);
    bytes.fill(0);
    let place = places[(superblock.generation % 2) as usize];
    let encoded = superblock.encode();
    bytes[place..place + encoded.len()].copy_from_slice(&encoded);
    let path = store.paths[0].with_file_name("drive5");
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn a_drive_that_was_being_put_in_is_a_member_if_the_next_start_finds_it() {
    let store = TestStore::new(5, 4, 1);
    let id = FragmentId::new(1, 1, 1);
    assert_eq!(store.open().put(id, 1, b"there"), PutOutcome::Durable);
    let new = put_in_half(&store);
    // Also without the one that it was put in for: the others are enough to go on.
    let paths: Vec<PathBuf> = store.paths[1..].iter().chain([&new]).cloned().collect();
    let mut lane = store.open_paths(&paths, |_| {});
    assert_eq!(lane.get(id), (ReadOutcome::Found, b"there".to_vec()));
    assert_eq!(lane.put(FragmentId::new(1, 2, 1), 1, b"more"), PutOutcome::Durable);
    let status = lane.control().status();
    assert_eq!((status.drives[5].state, status.drives[0].state == "member"), ("member", false), "{status:?}");
}

#[test]
fn a_drive_that_was_being_put_in_is_not_used_when_the_store_went_on_without_it() {
    let store = TestStore::new(5, 4, 1);
    let id = FragmentId::new(1, 1, 1);
    let new = put_in_half(&store);
    assert_eq!(store.open().put(id, 1, b"there"), PutOutcome::Durable);
    let paths: Vec<PathBuf> = store.paths.iter().chain([&new]).cloned().collect();
    let before = std::fs::read(&new).expect("a drive");
    let mut lane = store.open_paths(&paths, |_| {});
    assert_eq!(lane.get(id), (ReadOutcome::Found, b"there".to_vec()));
    let status = lane.control().status();
    assert_eq!(
        status.warnings,
        [format!(
            "{} was being put in when the store fell, and is no part of it: it is not used and holds nothing of what is stored. Put it in \
             once more with `forebay drive replace --force`, or leave it out",
            new.display()
        )]
    );
    assert_eq!(status.drives.len(), 5);
    drop(lane);
    assert!(before == std::fs::read(&new).expect("a drive"), "nothing is written to it");
    let examined = examine(&paths, &StoreConfig::default()).expect("they can be looked at");
    assert_eq!(examined.drives[5].standing, Standing::NeverJoined);
    assert!(examined.refusals.is_empty(), "{:?}", examined.refusals);
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let store = TestStore::new(5, 4, 1);
    for path in &store.paths {
        let mut bytes = std::fs::read(path).expect("a drive");
        for place in [0, SUPERBLOCK_STRIDE_BYTES as usize] {
            // The version stands behind the magic.
            bytes[place + 8] = 99;
        }
        std::fs::write(path, bytes).expect("written");
    }
    let own = ProgramVersion::OWN;
    let version = format!(
        ": superblock has format version 99, written by Forebay {own}, and this program, Forebay {own}, reads versions \
         {FORMAT_VERSION_OLDEST} to {FORMAT_VERSION}: nothing is wrong with the data, start the version of the program that wrote it. \
         Nothing was written. If the others are of this version, and this one is only damaged, leave it out: what it held is computed from \
         the others"
    );
    assert_eq!(refused(&store.paths), format!("{}{version}", store.paths[0].display()));
    // One of them is enough: it may be the newest of the store, and must not be taken out of it.
    let other = TestStore::new(5, 4, 1);
    let mut bytes = std::fs::read(&other.paths[3]).expect("a drive");
    bytes[SUPERBLOCK_STRIDE_BYTES as usize + 8] = 99;
    std::fs::write(&other.paths[3], bytes).expect("written");
    assert_eq!(refused(&other.paths), format!("{}{version}", other.paths[3].display()));
    let left: Vec<PathBuf> = other.paths.iter().filter(|path| **path != other.paths[3]).cloned().collect();
    assert_eq!(other.open_paths(&left, |_| {}).put(FragmentId::new(1, 1, 1), 1, b"without it"), PutOutcome::Durable);
}

/// The first warning of a start with a drive that was cut off to so many bytes; all that is stored is read, and more is written.
fn start_with_cut_off_drive(bytes: u64) -> (String, TestStore) {
    let store = TestStore::new(5, 4, 1);
    let ids: Vec<FragmentId> = (0..200).map(|n| FragmentId::new(1, n, 1)).collect();
    let mut lane = store.open();
    for id in &ids[..100] {
        assert_eq!(lane.put(*id, 1, &payload(*id, 100_000)), PutOutcome::Durable);
    }
    lane.stop();
    let drive = std::fs::File::options().write(true).open(&store.paths[2]).expect("a drive");
    drive.set_len(bytes).expect("cut off");
    let mut lane = store.open_with(|config| config.cache_bytes = 0);
    for id in &ids[100..] {
        assert_eq!(lane.put(*id, 1, &payload(*id, 100_000)), PutOutcome::Durable);
    }
    for id in &ids {
        assert_eq!(lane.get(*id), (ReadOutcome::Found, payload(*id, 100_000)), "{id}");
    }
    let status = lane.control().status();
    assert_ne!(status.drives[2].state, "member", "{status:?}");
    let warnings = lane.warnings().to_vec();
    drop(lane);
    (warnings[0].clone(), store)
}

#[test]
fn a_drive_that_was_cut_off_is_named_and_the_store_goes_on_without_it() {
    let (warning, store) = start_with_cut_off_drive(4 << 20);
    let path = store.paths[2].display();
    assert_eq!(
        warning,
        format!(
            "{path} (drive 2) has 4194304 bytes and had 67108864 when the store was made: it was cut off. What lay behind is computed from \
             the other drives while no more of them are missing than there is parity; the drive is taken out as soon as it is needed there: \
             replace it"
        )
    );
    // Not even its superblock.
    let (warning, store) = start_with_cut_off_drive(8192);
    let path = store.paths[2].display();
    let none = |bytes, place| format!("the drive ended after {bytes} of 16384 bytes at byte {place}");
    assert_eq!(
        warning,
        format!(
            "{path} holds no superblock of a store that can be read ({}; {}); going on without it",
            none(8192, 0),
            none(0, 65536)
        )
    );
    let (warning, store) = start_with_cut_off_drive(2048);
    let path = store.paths[2].display();
    assert_eq!(
        warning,
        format!(
            "drive {path} has 2048 bytes, less than one block of 4096; it was never initialised or has been cut off; going on without it"
        )
    );
}

#[test]
fn one_drive_under_two_names_is_refused_at_once() {
    let store = TestStore::new(5, 4, 1);
    // In use, which is not what is wrong.
    let _lane = store.open();
    let (hard, soft) = (store.paths[0].with_file_name("hard"), store.paths[0].with_file_name("soft"));
    std::fs::hard_link(&store.paths[1], &hard).expect("linked");
    std::os::unix::fs::symlink(&store.paths[1], &soft).expect("linked");
    for other in [&store.paths[1], &hard, &soft] {
        let mut paths = store.paths.clone();
        paths.push(other.clone());
        let (first, second) = (store.paths[1].display(), other.display());
        assert_eq!(
            refused(&paths),
            format!("{first} and {second} are one drive, given twice. Nothing was written. Name each drive once")
        );
    }
}

#[test]
fn drives_in_use_are_refused() {
    let store = TestStore::new(5, 4, 1);
    let _lane = store.open();
    says(&refused(&store.paths), &["in use"]);
}

#[test]
fn cut_off_drives_and_files_that_are_none() {
    let store = TestStore::new(5, 4, 1);
    for path in &store.paths {
        std::fs::write(path, b"not a drive").expect("written");
    }
    says(&refused(&store.paths), &["no drive of a store could be used"]);
    let missing = refused(&[PathBuf::from("/nonexistent/drive")]);
    assert_eq!(
        missing,
        "no drive of a store could be used:\ncannot open drive /nonexistent/drive: No such file or directory (os error 2); its data were not \
         touched; check the path, its permissions and the cabling"
    );
}

#[test]
fn init_names_what_it_would_destroy() {
    let store = TestStore::new(5, 4, 1);
    let options = InitOptions::new(4, 1);
    let error = init(&store.paths, &options, &mut |_| {}).expect_err("drives of a store").to_string();
    says(&error, &["a drive of a Forebay store", "Nothing was written", "--force"]);
    let text = store.paths[0].with_file_name("letter");
    std::fs::write(&text, "Dear Sir or Madam,\n".repeat(10_000)).expect("written");
    let mut paths = store.paths.clone();
    paths[2] = text.clone();
    let error = init(&paths, &InitOptions { force: false, ..options.clone() }, &mut |_| {}).expect_err("a letter");
    assert!(matches!(error, InitError::NotEmpty { .. }), "{error}");
    assert_eq!(std::fs::read(&text).expect("still there"), "Dear Sir or Madam,\n".repeat(10_000).as_bytes());
    init(&store.paths, &InitOptions { force: true, ..options.clone() }, &mut |_| {}).expect("forced");
    assert_eq!(store.open().get(FragmentId::new(1, 1, 1)).0, ReadOutcome::NotFound);
    let hungry = InitOptions { force: true, index_bytes: Some(1000), ..options };
    let error = init(&store.paths, &hungry, &mut |_| {}).expect_err("no memory").to_string();
    says(&error, &["1000 are configured", "Nothing was written"]);
}
