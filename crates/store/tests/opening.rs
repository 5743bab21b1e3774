//! Stores that must not start, and what they say.

mod common;

use std::path::PathBuf;

use common::*;
use forebay_format::SUPERBLOCK_STRIDE_BYTES;
use forebay_store::{InitError, InitOptions, StoreConfig, init, open};
use forebay_types::{FragmentId, PutOutcome, ReadOutcome};

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
    says(&refused(&paths), &["belongs to store", "Nothing was written"]);
}

#[test]
fn a_clone_of_a_drive_is_refused() {
    let store = TestStore::new(5, 4, 1);
    let clone = store.paths[0].with_file_name("clone");
    std::fs::copy(&store.paths[1], &clone).expect("copied");
    let mut paths = store.paths.clone();
    paths.push(clone);
    says(&refused(&paths), &["copies of one drive", "clone", "Remove the copy"]);
}

#[test]
fn a_missing_drive_is_warned_about_and_two_are_refused() {
    let store = TestStore::new(5, 4, 1);
    let id = FragmentId::new(1, 1, 1);
    assert_eq!(store.open().put(id, 1, b"there"), PutOutcome::Durable);
    says(&refused(&store.paths[2..]), &["3 of the 5 members", "4 are needed", "0, 1", "--read-only"]);
    let opened = open(&store.paths[1..], &StoreConfig { read_only: true, ..StoreConfig::default() }).expect("opens");
    assert!(
        opened.warnings.iter().any(|w| w.contains("drive 0 is a member and was not found")),
        "{:?}",
        opened.warnings
    );
    let control = opened.control.clone();
    drop(opened);
    assert!(control.wait_until(std::time::Duration::from_secs(60), |status| status.ended));
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

#[test]
fn a_newer_format_is_refused_and_named() {
    let store = TestStore::new(5, 4, 1);
    for path in &store.paths {
        let mut bytes = std::fs::read(path).expect("a drive");
        for place in [0, SUPERBLOCK_STRIDE_BYTES as usize] {
            // The version stands behind the magic; its sum must be right for the version to be believed.
            bytes[place + 8] = 99;
        }
        std::fs::write(path, bytes).expect("written");
    }
    says(&refused(&store.paths), &["99", "superblock"]);
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
    says(&refused(&[PathBuf::from("/nonexistent/drive")]), &["/nonexistent/drive"]);
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
