//! A mount that is unmounted while its server stands still.
//!
//! It is the only test of its process: a program that any other test starts meanwhile has the file of this one open, and closing it, which starting
//! a program does, waits for the server as any close does.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};

use common::mounted::{Mounted, has_fuse, is_mounted};
use common::{Drives, noise};
use forebay_client::ClientConfig;
use forebay_client::files::{Files, ReadOptions};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn what_was_taken_is_written_though_it_is_unmounted_while_the_server_stands_still() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &["--patience-s", "1000"]);
    let bytes = noise(3, 3 << 20);
    let mut file = File::create(mounted.join("file")).expect("made");
    file.write_all(&bytes[..1 << 20]).and_then(|()| file.sync_all()).expect("synchronised");
    server.freeze();
    file.write_all(&bytes[1 << 20..]).expect("taken");
    // Closing it waits for what became of its bytes, and nothing else does.
    let closes = std::thread::spawn(move || drop(file));
    let directory = mounted.path().to_owned();
    mounted.ask_to_end();
    while is_mounted(&directory) {
        std::thread::yield_now();
    }
    // The machine goes on, and the place is free.
    File::open(&directory).and_then(|place| place.sync_all()).expect("synchronised");
    fs::write(directory.join("of another"), b"bytes").expect("a directory as before");
    fs::remove_file(directory.join("of another")).expect("removed");
    kill_process(Pid::from_raw(server.pid().cast_signed()).expect("a process"), Signal::CONT).expect("a signal");
    closes.join().expect("no panic");
    let (ran, _) = mounted.end();
    ran.expect(0);
    let files = Files::connect(ClientConfig::new(server.address.clone(), "test")).expect("the server answers");
    assert!(files.stat("/file").expect("there").is_sealed());
    let mut found = Vec::new();
    files.open_read("/file", &ReadOptions::default()).expect("there").read_to_end(&mut found).expect("read");
    assert!(found == bytes, "{} of {} bytes are there", found.len(), bytes.len());
}
