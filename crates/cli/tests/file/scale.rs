//! Many clients of files at once, and many files: in small what `forebay-bench` measures in large.

use std::io::Read;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_client::files::{Detail, FileReader, Files, Owner, ReadOptions, WriteOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use super::common::noise;
use super::store::Store;

/// Each has a connection to the server, one to the lane of names, and half of them one to another lane for their file.
const WRITERS: usize = 120;
const APPENDS: usize = 20;
const READERS: usize = 4;
const READ_BYTES: usize = 8 << 20;

/// Clients that read at once, so many of them in each thread.
const MANY_READERS: usize = 1200;
const READERS_OF_A_THREAD: usize = 40;

const DIRECTORIES: usize = 3;
const FILES: usize = 3000;
const MAKERS: usize = 16;

fn totals(store: &Store) -> Value {
    store.server.run(&["status", "--json"]).expect(0).json()["totals"].take()
}

fn number(totals: &Value, name: &str) -> u64 {
    totals[name].as_u64().unwrap_or_else(|| panic!("the status says {name}: {totals}"))
}

/// What a writer appends at once.
fn append_of(writer: usize, append: usize) -> Vec<u8> {
    noise((writer * APPENDS + append) as u64, 500 + (writer * 131 + append * 977) % 4000)
}

fn read_whole(files: &Files, path: &str) -> Vec<u8> {
    let mut file = files.open_read(path, &ReadOptions::default()).expect("it is there");
    let mut bytes = vec![0; file.length() as usize];
    let mut at = 0;
    while at < bytes.len() {
        match file.read(&mut bytes[at..]).expect("it is read") {
            0 => break,
            more => at += more,
        }
    }
    file.close().expect("the server is told");
    bytes
}

#[test]
fn many_writers_and_fast_readers_all_get_on_and_each_gets_its_own() {
    let store = Store::start();
    let read_bytes = noise(99, READ_BYTES);
    store.put("/read", &read_bytes);
    let make = &|writer: usize| {
        let files = store.files();
        let file = files.create(format!("/written{writer}"), &WriteOptions::default()).expect("made");
        (files, file)
    };
    let writers: Vec<_> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || make(writer))).collect();
        made.into_iter().map(|made| made.join().expect("every writer has its file")).collect()
    });
    // Lanes say now and then what they have. None writes before all are seen: who has written is soon gone.
    loop {
        let status = store.server.run(&["status", "--json"]).expect(0).json();
        let connections = status["connections"].as_object().expect("by class");
        let connections: u64 = connections.values().filter_map(Value::as_u64).sum();
        if connections >= 300 && number(&status["totals"], "files_open") == WRITERS as u64 {
            break;
        }
    }
    let done = AtomicUsize::new(0);
    let (done, read_bytes) = (&done, &read_bytes);
    std::thread::scope(|scope| {
        for (writer, (files, mut file)) in writers.into_iter().enumerate() {
            scope.spawn(move || {
                for append in 0..APPENDS {
                    file.write(&append_of(writer, append)).and_then(|()| file.sync()).expect("durable");
                }
                file.close().expect("sealed");
                drop(files);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        for _ in 0..READERS {
            let store = &store;
            scope.spawn(move || {
                let files = store.files();
                // However many write, a reader gets to the end of its file, again and again.
                loop {
                    assert!(read_whole(&files, "/read") == *read_bytes);
                    if done.load(Ordering::SeqCst) == WRITERS {
                        return;
                    }
                }
            });
        }
    });
    let files = store.files();
    for writer in 0..WRITERS {
        let expected: Vec<u8> = (0..APPENDS).flat_map(|append| append_of(writer, append)).collect();
        assert!(read_whole(&files, &format!("/written{writer}")) == expected, "writer {writer}");
    }
    let totals = totals(&store);
    // Beside them there is the journal of names.
    assert!(number(&totals, "files") > WRITERS as u64);
    assert_eq!(number(&totals, "files_open"), 0);
}

/// Each client needs a descriptor for each of its connections.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to what may be");
}

#[test]
fn more_than_a_thousand_clients_read_at_once_and_each_gets_what_it_asked_for() {
    allow_descriptors();
    let store = Store::start();
    let bytes = noise(99, READ_BYTES);
    store.put("/sealed", &bytes);
    let mut growing = store.files().create("/growing", &WriteOptions::default()).expect("made");
    growing.write(&bytes[..READ_BYTES / 2]).and_then(|()| growing.sync()).expect("durable");
    // None reads before all are there.
    let all_are_open = Barrier::new(MANY_READERS / READERS_OF_A_THREAD + 1);
    let (store, bytes, all_are_open) = (&store, &bytes, &all_are_open);
    let read = |number: usize, file: &mut FileReader| {
        let (start, mut found) = (number * 6151 % (READ_BYTES / 2 - 100_000), vec![0; 1 + number * 83 % 100_000]);
        file.set_position(start as u64);
        file.read_exact(&mut found).expect("it is read");
        assert!(found == bytes[start..start + found.len()], "reader {number}");
    };
    std::thread::scope(|scope| {
        for thread in 0..MANY_READERS / READERS_OF_A_THREAD {
            scope.spawn(move || {
                let numbers = thread * READERS_OF_A_THREAD..(thread + 1) * READERS_OF_A_THREAD;
                let mut readers: Vec<_> = numbers
                    .map(|number| {
                        let (files, path) = (store.files(), ["/sealed", "/growing"][number % 2]);
                        let file = files.open_read(path, &ReadOptions::default()).expect("it is there");
                        (number, files, file)
                    })
                    .collect();
                all_are_open.wait();
                for round in 0..3 {
                    readers.iter_mut().for_each(|(number, _, file)| read(*number + round * 7919, file));
                }
                all_are_open.wait();
            });
        }
        all_are_open.wait();
        // The one who writes gets on beside them.
        growing.write(&bytes[READ_BYTES / 2..]).and_then(|()| growing.close()).expect("sealed");
        all_are_open.wait();
    });
    assert!(read_whole(&store.files(), "/growing") == *bytes);
}

#[test]
fn thousands_of_files_take_the_memory_that_is_told_and_are_there_after_a_crash() {
    let mut store = Store::start();
    let empty = totals(&store);
    let owner = Owner { mode: 0o755, owner: 0, group: 0 };
    for directory in 0..DIRECTORIES {
        store.files().make_directory(format!("/d{directory}"), &owner).expect("made");
    }
    let path = |number: usize| format!("/d{}/{number:08}", number % DIRECTORIES);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..MAKERS {
            scope.spawn(|| {
                let files = store.files();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= FILES {
                        return;
                    }
                    let mut file = files.create(path(number), &WriteOptions::default()).expect("made");
                    file.write(&noise(number as u64, 300)).and_then(|()| file.close()).expect("durable");
                }
            });
        }
    });
    let check = |store: &Store| {
        let files = store.files();
        for directory in 0..DIRECTORIES {
            let mut listing = files.list(format!("/d{directory}"), Detail::Sizes).expect("it is there");
            let mut found = 0;
            loop {
                let page = listing.next_page().expect("it is listed");
                if page.is_empty() {
                    break;
                }
                found += page.len();
                assert!(page.iter().all(|entry| entry.info.is_some_and(|info| info.length == 300 && info.sealed)));
            }
            assert_eq!(found, FILES / DIRECTORIES);
        }
        for number in (0..FILES).step_by(37) {
            assert!(read_whole(&files, &path(number)) == noise(number as u64, 300), "file {number}");
        }
        // After a start, once names have been asked for: they are read anew then.
        let full = totals(store);
        let more = |name: &str| number(&full, name) - number(&empty, name);
        assert!(more("files") >= FILES as u64 && more("names") == (FILES + DIRECTORIES) as u64, "{full}");
        // Names take less than half of the 200 bytes of docs/files.md, beside their own eight. The lane's half is told with the tables of segments that are open.
        assert!(more("names_bytes") < FILES as u64 * (90 + 8), "{full}");
        assert!(more("index_bytes") < FILES as u64 * (90 + 3 * 80), "{full}");
    };
    check(&store);
    store.restart();
    check(&store);
}
