//! The store behind stock XRootD servers, used by the field's own clients.

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod copies;
mod kept;
mod kills;
mod secure;
mod together;

use std::fs;
use std::time::Duration;

/// Bytes in a file of this machine.
fn local(directory: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("written");
    path.to_str().expect("text").to_owned()
}

fn adler32(bytes: &[u8]) -> String {
    let mut sum = forebay_types::Adler32::default();
    sum.update(bytes);
    format!("{:08x}", sum.finish())
}

/// Looks until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_can_be_killed() {
    common::process::serve_when_asked();
}
