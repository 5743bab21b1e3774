//! `forebay file cat` and `forebay tail`.

use forebay_client::files::WriteOptions;

use super::common::noise;
use super::store::Store;

#[test]
fn bytes_are_written_to_stdout_from_anywhere_and_behind_the_end_there_are_none() {
    let store = Store::start();
    let bytes = noise(1, 3_000_000);
    store.put("/a", &bytes);
    store.put("/b", b"of b");
    assert!(store.cat("/a") == bytes);
    let cat = |words: &[&str]| store.file(&[&["cat"], words].concat()).expect(0).stdout;
    assert!(cat(&["/a", "forebay:/b"]) == [&bytes[..], b"of b"].concat());
    assert!(cat(&["--offset", "1MiB", "--bytes", "1234567", "/a"]) == bytes[1 << 20..][..1_234_567]);
    assert!(cat(&["--offset", "2999990", "/a"]) == bytes[2_999_990..]);
    for offset in ["3000000", "3000001", "281474976710656", "18446744073709551615"] {
        assert!(cat(&["--offset", offset, "/a"]).is_empty(), "from {offset}");
    }
    assert!(cat(&["--bytes", "0", "/a"]).is_empty());
    store.file(&["cat", "/gone"]).expect(1).says("there is no such file");
    store.file(&["cat", "/"]).expect(2).says("it is a directory");
    store.file(&["cat", "--json", "/a"]).expect(2).says("both want stdout");
    store.server.run_full(&["file", "cat", "/a"]).expect(3).says("stdout cannot be written");
}

#[test]
fn the_end_of_a_file_is_printed() {
    let store = Store::start();
    let bytes = noise(2, 10_000);
    store.put("/a", &bytes);
    let tail = |words: &[&str]| store.server.run(&[&["tail"], words].concat()).expect(0).stdout;
    assert!(tail(&["/a"]) == bytes[10_000 - 4096..]);
    assert!(tail(&["--bytes", "10", "/a"]) == bytes[9_990..]);
    assert!(tail(&["--bytes", "1GiB", "/a"]) == bytes);
    assert!(tail(&["--from", "9000", "/a"]) == bytes[9_000..]);
    assert!(tail(&["--from", "10001", "/a"]).is_empty());
    assert!(tail(&["-f", "--from", "0", "/a"]) == bytes, "what is sealed is at its end");
    store.server.run(&["tail", "/gone"]).expect(1);
    store.server.run(&["tail", "--from", "0", "--bytes", "1", "/a"]).expect(2);
}

#[test]
fn a_file_is_followed_under_other_names_and_over_restarts_until_it_is_sealed() {
    let mut store = Store::start();
    let files = store.files();
    let bytes = noise(3, 600_000);
    let mut writer = files.create("/log", &WriteOptions::default()).expect("made");
    let mut tail = store.begin(&["tail", "--follow", "--from", "0", "/log"]);
    let mut at = 0;
    for round in 0..6 {
        writer.write(&bytes[at..at + 100_000]).expect("taken");
        writer.sync().expect("durable");
        let told = tail.read(100_000);
        assert!(told == bytes[at..at + 100_000], "round {round}");
        at += 100_000;
        match round {
            1 | 3 => store.restart(),
            2 => drop(store.file(&["mv", "/log", "/other"]).expect(0)),
            _ => {}
        }
    }
    writer.close().expect("sealed");
    let ran = tail.end().expect(0);
    assert!(ran.stdout.is_empty() && !ran.stderr.contains("cut"), "{ran:?}");
}

#[test]
fn who_follows_a_file_that_is_removed_is_told_so_and_has_all_of_it() {
    let store = Store::start();
    let files = store.files();
    for (path, remove) in [("/log", &["rm", "/log"][..]), ("/old", &["mv", "--force", "/new", "/old"])] {
        let mut writer = files.create(path, &WriteOptions::default()).expect("made");
        let mut tail = store.begin(&["tail", "-f", path]);
        writer.write(b"some bytes").expect("taken");
        writer.sync().expect("durable");
        assert_eq!(tail.read(10), b"some bytes");
        if path == "/old" {
            store.put("/new", b"other bytes");
        }
        store.file(remove).expect(0);
        let ran = tail.end().expect(1);
        ran.says("before it was sealed; it was printed up to byte 10");
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_followed_is_followed_from_its_new_end() {
    let store = Store::start();
    let mut writer = store.files().create("/log", &WriteOptions::default()).expect("made");
    writer.write(b"first").expect("taken");
    writer.sync().expect("durable");
    let mut tail = store.begin(&["tail", "-f", "/log"]);
    assert_eq!(tail.read(5), b"first");
    writer.set_length(2).expect("cut");
    // Before it has grown again this must have been seen.
    let mut told = vec![0; b"forebay: /log: it was cut to 2 bytes".len()];
    std::io::Read::read_exact(tail.0.stderr.as_mut().expect("a pipe"), &mut told).expect("told");
    assert_eq!(told, b"forebay: /log: it was cut to 2 bytes");
    writer.set_position(2);
    writer.write(b"second").expect("taken");
    writer.close().expect("sealed");
    assert_eq!(tail.read(6), b"second");
    tail.end().expect(0);
}
