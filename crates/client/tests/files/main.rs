//! Files and names through the blocking layer, against a tiny server on loopback that does what it is told.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the peer has threads and sockets")]

mod bytes;
mod local;
mod names;
mod peer;

use forebay_client::files::{Owner, WriteOptions};

fn owner() -> Owner {
    Owner { mode: 0o750, owner: 1000, group: 100 }
}

fn options() -> WriteOptions {
    WriteOptions { owner: owner(), ..WriteOptions::default() }
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * 7 + (i >> 9) + seed * 31) as u8).collect()
}
