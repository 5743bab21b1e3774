//! Two clients that write one file.

use forebay_client::files::{FileError, FileWriter, WriteOptions};

use super::common::noise;
use super::store::Store;

/// What a client writes at once.
const STRIPE_BYTES: usize = 300_000;

/// Writes every other stripe, with many on their way.
fn write_stripes(writer: &mut FileWriter, content: &[u8], first: usize) {
    for (number, stripe) in content.chunks(STRIPE_BYTES).enumerate().skip(first).step_by(2) {
        writer.write_at((number * STRIPE_BYTES) as u64, stripe).expect("taken");
    }
}

#[test]
fn disjoint_ranges_never_meet_and_what_overlaps_is_a_conflict_that_changes_nothing() {
    let store = Store::start();
    let (one, other) = (store.files(), store.files());
    let options = WriteOptions { seal: false, ..WriteOptions::default() };
    let mut content = noise(5, 10 * STRIPE_BYTES);
    let mut first = one.create("/shared", &options).expect("made");
    let mut second = other.open_write("/shared", &options).expect("opened beside the first");
    write_stripes(&mut first, &content, 0);
    write_stripes(&mut second, &content, 1);
    first.sync().expect("durable");
    second.sync().expect("durable");
    assert!(store.cat("/shared") == content, "each byte is of whoever wrote it");

    // Over its own bytes each writes again; one byte of the other's is enough to refuse all of a write.
    let own = noise(6, STRIPE_BYTES);
    second.write_at(STRIPE_BYTES as u64, &own).expect("taken");
    second.sync().expect("its own");
    content[STRIPE_BYTES..2 * STRIPE_BYTES].copy_from_slice(&own);
    let start = 2 * STRIPE_BYTES as u64 - 10;
    second.write_at(start, b"one too far").expect("taken");
    let refused = second.sync().expect_err("the last byte is of the first");
    assert!(matches!(&refused, FileError::Conflict { start: at, bytes: 11, .. } if *at == start), "{refused:?}");
    let words = refused.to_string();
    for said in ["/shared: another writer that has the file open", "11 bytes", "were not written", "Write elsewhere"] {
        assert!(words.contains(said), "{words}");
    }
    assert!(!refused.is_retryable() && second.sync().is_err(), "it is told until somebody does something about it");
    assert!(store.cat("/shared") == content, "nothing of it was written, and nothing of the other's changed");

    // The first notices nothing, and when it has closed the file its bytes are everybody's.
    first.write_at(0, b"still mine").expect("taken");
    first.close().expect("all of it is durable");
    content[..10].copy_from_slice(b"still mine");
    second.abandon().expect("closed");
    let mut second = other.open_write("/shared", &WriteOptions::default()).expect("opened again");
    second.write_at(start, b"one too far").expect("taken");
    second.close().expect("sealed");
    content[start as usize..][..11].copy_from_slice(b"one too far");
    assert!(store.cat("/shared") == content);
}
