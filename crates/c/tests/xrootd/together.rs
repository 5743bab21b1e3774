//! Clients that read one file at the same time, which an XRootD server opens once for all of them.

use std::fs;
use std::path::Path;
use std::process::Child;

use forebay::*;

use crate::clients::{PYTHON, has_bindings};
use crate::common::door::{Door, Gate, client, good_client};
use crate::common::world::*;
use crate::local;

/// Copies the file by a client of its own, with these words and sums of pages or without.
fn begin(gate: &Gate, words: &[&str], pages: &str, into: &Path) -> Child {
    let mut command = client("xrdcp");
    command.env("XRD_CPUSEPGWRTRD", pages).args(["--nopbar", "--silent", "--force"]).args(words);
    command.arg(gate.url("/file")).arg(into).spawn().expect("it runs")
}

#[test]
fn clients_that_read_one_file_at_once_have_its_bytes_each() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let bytes = content(1, 24_000_001);
    let writer = create(&world.files(), b"/file", FOREBAY_WRITE_SEAL);
    good(pwrite(&writer, 0, &bytes));
    good(forebay_writer_close(Some(&writer)));
    // With room for reading ahead for all of them, for some, and for nobody.
    for options in ["", " ahead_mib=2 ahead_all_mib=4 connections=2", " ahead_all_mib=0"] {
        let gate = door.serve(&world.address(), options);
        let kinds: [(&[&str], &str); 4] =
            [(&[], "1"), (&[], "0"), (&["--streams", "4"], "0"), (&["--streams", "3"], "1")];
        let copies: Vec<_> = (0..8)
            .map(|number| {
                let (words, pages) = kinds[number % kinds.len()];
                let into = here.path().join(format!("copy{number}"));
                (begin(&gate, words, pages, &into), into)
            })
            .collect();
        for (mut copy, into) in copies {
            assert!(copy.wait().expect("it ends").success(), "{options}: {}", gate.said());
            assert!(fs::read(&into).expect("there") == bytes, "{options}");
        }
    }
}

#[test]
fn clients_of_a_file_that_is_replaced_read_the_one_that_they_opened() {
    let Some(door) = Door::shared() else { return };
    if !has_bindings() {
        return;
    }
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (gate, other) = (door.serve(&world.address(), ""), door.serve(&world.address(), ""));
    let names: Vec<String> =
        [(1, "old"), (2, "new")].iter().map(|(seed, name)| local(&here, name, &content(*seed, 12_000_000))).collect();
    good_client(&gate.xrdcp(&[&names[0], &gate.url("/file")]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xrootd/together.py");
    let said = client(PYTHON)
        .arg(script)
        .args([&gate.url("/file"), &names[0], &other.url("/file"), &names[1]])
        .output()
        .expect("it runs");
    assert_eq!(good_client(&said).trim(), "all is as it should be", "{}", gate.said());
    assert!(pread(&open_read(&world.files(), b"/file"), 0, 13_000_000) == content(2, 12_000_000));
}
