//! Bytes: written behind, read ahead.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use bytes::Bytes;
use forebay_client::ClientError;
use forebay_client::files::{FileError, ReadOptions, WriteOptions};
use forebay_protocol::Kind;
use forebay_types::{FileOutcome, ReadOutcome, SetAttributes, crc32c};

use super::peer::Peer;
use super::{content, options};

const READ: ReadOptions = ReadOptions { ahead_bytes: 2 << 20 };

#[test]
fn what_is_written_is_durable_sealed_and_read_back() {
    let peer = Peer::start();
    peer.state().reverses = true;
    let files = peer.connect();
    let all = content(1, 5_000_000);
    let mut writer = files.create("/raw", &options()).expect("made");
    for part in all.chunks(33_333) {
        writer.write_all(part).expect("taken");
    }
    assert!(writer.unanswered_bytes() > 0 || writer.acknowledged_bytes() > 0);
    writer.sync().expect("durable");
    assert_eq!((writer.acknowledged_bytes(), writer.unanswered_bytes(), writer.length()), (5_000_000, 0, 5_000_000));
    assert!(!files.stat("/raw").expect("there").is_sealed());
    writer.close().expect("sealed");
    writer.close().expect("again is good");
    let closed = writer.write(b"more").expect_err("it is closed");
    assert!(matches!(closed, FileError::Closed { .. }) && !closed.is_retryable(), "{closed}");
    let known = files.stat("/raw").expect("there");
    assert!(known.is_sealed() && peer.state().open.is_empty());
    assert_eq!(
        (known.length(), known.info.and_then(|info| info.sums).expect("known").0),
        (Some(5_000_000), crc32c(&all))
    );
    assert!(matches!(files.open_write("/raw", &options()), Err(FileError::Sealed { .. })));

    let mut reader = files.open_read("/raw", &READ).expect("there");
    let mut read = Vec::new();
    reader.read_to_end(&mut read).expect("read");
    assert!(read == all);
    let mut some = [0; 1000];
    assert_eq!(reader.read_at(4_999_500, &mut some).expect("read"), 500);
    assert_eq!(some[..500], all[4_999_500..]);
    assert_eq!(reader.seek(SeekFrom::End(-10)).expect("sought"), 4_999_990);
    assert_eq!(reader.read(&mut some).expect("read"), 10);
    assert_eq!(reader.read(&mut some).expect("read"), 0);
    drop(reader);
    files.stat("/raw").expect("there");
    assert!(peer.state().open.is_empty(), "a reader that is dropped is closed with what is asked next");
}

#[test]
fn what_is_shared_is_written_as_what_is_copied_and_let_go_of_when_it_is_durable() {
    let peer = Peer::start();
    peer.state().reverses = true;
    let files = peer.connect();
    let all = Bytes::from(content(7, 5_000_000));
    let mut writer = files.create("/raw", &options()).expect("made");
    // Whole pieces, some that a part of one comes before, and one of less.
    writer.write_shared(all.slice(..2_500_000)).expect("taken");
    writer.write(&all[2_500_000..2_600_001]).expect("taken");
    writer.write_shared(all.slice(2_600_001..)).expect("taken");
    writer.write_shared(Bytes::new()).expect("nothing is taken as well");
    assert_eq!(writer.position(), 5_000_000);
    // What waits to be sent is written over.
    writer.write_at(4_999_990, b"0123456789").expect("taken");
    writer.close().expect("sealed");
    assert!(all.is_unique(), "nobody holds what is durable");
    let expected = [&all[..4_999_990], b"0123456789"].concat();
    let info = files.stat("/raw").expect("there").info.expect("known");
    assert_eq!(info.sums.expect("known").0, crc32c(&expected));
    let mut read = Vec::new();
    files.open_read("/raw", &READ).expect("there").read_to_end(&mut read).expect("read");
    assert!(read == expected);
    assert!(matches!(writer.write_shared(all), Err(FileError::Closed { .. })));
}

#[test]
fn a_file_is_written_over_itself_in_order() {
    let peer = Peer::start();
    let files = peer.connect();
    let mut writer = files.create("/image", &WriteOptions { seal: false, ..options() }).expect("made");
    let mut expected = content(1, 300_000);
    writer.write(&expected).expect("taken");
    // A header that is known last, and bytes far away.
    for (at, seed, count) in [(0, 2, 100), (299_000, 3, 5_000), (50, 4, 70_000), (500_000, 5, 10), (0, 6, 1)] {
        let bytes = content(seed, count);
        writer.write_at(at, &bytes).expect("taken");
        let (at, end) = (at as usize, at as usize + count);
        expected.resize(expected.len().max(end), 0);
        expected[at..end].copy_from_slice(&bytes);
    }
    assert_eq!((writer.position(), writer.length()), (300_000, 500_010));
    writer.close().expect("durable");
    let file = writer.node().number;
    assert!(peer.bytes_of(file) == expected, "what was cut out of nothing holds zeros");
    // Opened again it goes on at its end.
    let mut writer = files.open_write("/image", &options()).expect("there");
    assert_eq!(writer.position(), 500_010);
    writer.write(b"the end").expect("taken");
    writer.set_length(500_014).expect("cut");
    assert_eq!(writer.length(), 500_014);
    writer.close().expect("durable");
    assert_eq!(&peer.bytes_of(file)[500_010..], b"the ");
}

#[test]
fn a_store_that_is_started_anew_costs_a_writer_and_a_reader_nothing() {
    for did_it in [true, false] {
        let peer = Peer::start();
        peer.state().did_it = did_it;
        let files = peer.connect();
        let all = content(9, 3_000_000);
        let mut writer = files.create("/raw", &options()).expect("made");
        peer.state().restart_in = Some((Kind::FileWrite, 20));
        writer.write(&all).expect("taken");
        writer.close().expect("durable");
        assert!(peer.bytes_of(writer.node().number) == all);
        let openings = peer.state().asked.iter().filter(|kind| **kind == Kind::FileOpen).count();
        assert!(openings >= 2 && peer.state().epoch == 1, "{openings} openings");

        let mut reader = files.open_read("/raw", &READ).expect("there");
        peer.state().restart_in = Some((Kind::FileRead, 2));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == all);
        assert_eq!(peer.state().open.len(), 1, "the reader has it open again");
    }
}

#[test]
fn sealing_asked_twice_is_sealing() {
    let peer = Peer::start();
    let files = peer.connect();
    let mut writer = files.create("/raw", &options()).expect("made");
    writer.write(b"bytes").expect("taken");
    peer.state().restart_in = Some((Kind::FileSeal, 1));
    writer.close().expect("sealed by the server that is gone");
    assert_eq!(peer.bytes_of(writer.node().number), b"bytes");
    files.seal("/raw").expect("it is");
}

#[test]
fn without_room_writing_waits_and_is_told_when_that_was_long_enough() {
    let peer = Peer::start();
    let files = peer.connect();
    let mut writer = files.create("/raw", &options()).expect("made");
    let refusals =
        [FileOutcome::NoSpace, FileOutcome::Unavailable, FileOutcome::ChecksumMismatch, FileOutcome::IndexFull];
    peer.state().file_outcomes.extend(refusals);
    writer.write(b"some bytes").expect("taken");
    writer.sync().expect("there was room");
    // And when there is none: what was acknowledged is told, the rest is kept.
    let patience = Some(Duration::from_millis(200));
    let mut writer = files.create("/more", &WriteOptions { patience, ..options() }).expect("made");
    writer.write(b"first").expect("taken");
    writer.sync().expect("durable");
    peer.state().file_outcomes.extend([FileOutcome::NoSpace; 1000]);
    writer.write(&content(3, 200_000)).expect("taken");
    let error = writer.sync().expect_err("there is no room");
    assert!(matches!(error, FileError::NoSpace { acknowledged: Some(5), .. }) && error.is_retryable(), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(writer.unanswered_bytes(), 200_000);
    peer.state().file_outcomes.clear();
    writer.close().expect("there is room again");
    assert!(peer.bytes_of(writer.node().number) == [&b"first"[..], &content(3, 200_000)].concat());
}

#[test]
fn bytes_of_another_writer_are_not_written_over() {
    let peer = Peer::start();
    let files = peer.connect();
    let mut writer = files.create("/raw", &options()).expect("made");
    writer.write(b"some bytes").expect("taken");
    peer.state().file_outcomes.push_back(FileOutcome::Conflict);
    for _ in 0..2 {
        let error = writer.sync().expect_err("refused");
        assert!(matches!(error, FileError::Conflict { start: 0, bytes: 10, .. }) && !error.is_retryable(), "{error}");
    }
    assert!(writer.write(b"more").is_err() && writer.close().is_err(), "it stays");
    // Two of one program are two writers.
    let one = files.open_write("/raw", &options()).expect("there");
    let other = files.open_write("/raw", &options()).expect("there");
    assert_eq!(peer.state().open.len(), 3);
    drop((one, other));
    // Who gives up says so, whatever is left of it.
    writer.abandon().expect("told");
    writer.abandon().expect("again is good");
    assert!(matches!(writer.write(b"more"), Err(FileError::Closed { .. })));
    let node = writer.node().number;
    let state = peer.state();
    assert_eq!((state.open.len(), state.files.get(&node.0).is_some_and(|file| file.sealed)), (2, false));
}

#[test]
fn a_writer_that_was_abandoned_is_done_though_no_server_heard_of_it() {
    let peer = Peer::start();
    let files = peer.connect_with(Duration::from_millis(300));
    let mut writer = files.create("/raw", &options()).expect("made");
    drop(peer);
    writer.write(b"some bytes").expect("taken");
    for _ in 0..2 {
        assert!(writer.abandon().expect_err("nobody answers").is_retryable());
        // What it had asked is forgotten: nothing would ever come of waiting for it.
        assert!(matches!(writer.sync(), Err(FileError::Closed { .. })));
        assert!(matches!(writer.close(), Err(FileError::Closed { .. })));
        assert!(matches!(writer.write(b"more"), Err(FileError::Closed { .. })));
    }
}

#[test]
fn an_append_of_which_nobody_knows_is_told_and_not_made_twice() {
    let peer = Peer::start();
    let files = peer.connect();
    let append = WriteOptions { append: true, seal: false, ..options() };
    let mut log = files.create("/log", &append).expect("made");
    let mut other = files.open_write("/log", &append).expect("there");
    for number in 0..20 {
        log.write(format!("one {number}\n").as_bytes()).expect("taken");
        other.write(format!("other {number}\n").as_bytes()).expect("taken");
        if number % 5 == 0 {
            log.sync().expect("durable");
            other.sync().expect("durable");
        }
    }
    log.sync().expect("durable");
    other.close().expect("durable");
    let text = String::from_utf8(peer.bytes_of(log.node().number)).expect("whole lines");
    let of = |who: &str| text.lines().filter(|line| line.starts_with(who)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(of("one "), (0..20).map(|number| format!("one {number}")).collect::<Vec<_>>());
    assert_eq!(of("other "), (0..20).map(|number| format!("other {number}")).collect::<Vec<_>>());

    peer.state().restart_in = Some((Kind::FileWrite, 1));
    log.write(b"lost?").expect("taken");
    let error = log.sync().expect_err("nobody knows");
    assert!(matches!(error, FileError::AppendUnknown { bytes: 5, .. }), "{error}");
    log.write(b"and on").expect("taken");
    log.close().expect("durable");
    assert!(peer.bytes_of(log.node().number).ends_with(b"lost?and on"));
}

#[test]
fn damaged_bytes_and_more_than_asked_for_are_never_given_out() {
    let peer = Peer::start();
    let files = peer.connect();
    let all = content(1, 100_000);
    let mut writer = files.create("/raw", &options()).expect("made");
    writer.write(&all).expect("taken");
    writer.close().expect("durable");
    peer.state().flips = 2;
    let mut read = Vec::new();
    files.open_read("/raw", &READ).expect("there").read_to_end(&mut read).expect("read");
    assert!(read == all && peer.state().flips == 0);
    peer.state().flips = 100;
    let error = files.open_read("/raw", &READ).expect("there").read_at(7, &mut [0; 9]).expect_err("damaged");
    assert!(matches!(error, FileError::Client { error: ClientError::Damaged { times: 3, .. }, .. }), "{error}");
    peer.state().flips = 0;
    // Once it may be the network.
    peer.state().too_long = 1;
    let mut some = [0; 9];
    assert_eq!(files.open_read("/raw", &READ).expect("there").read_at(7, &mut some).expect("read"), 9);
    assert_eq!(some, all[7..16]);
    peer.state().too_long = 100;
    let error = files.open_read("/raw", &READ).expect("there").read_at(7, &mut some).expect_err("it lies");
    assert!(matches!(error, FileError::Client { error: ClientError::Broken { .. }, .. }), "{error}");
}

#[test]
fn what_cannot_be_read_is_told_from_which_byte_on() {
    let peer = Peer::start();
    let files = peer.connect();
    let all = content(1, 200_000);
    let mut writer = files.create("/raw", &options()).expect("made");
    writer.write(&all).expect("taken");
    writer.close().expect("durable");
    let file = writer.node().number.0;
    for (why, lost) in [(ReadOutcome::Lost, true), (ReadOutcome::Unavailable, false)] {
        peer.state().files.get_mut(&file).expect("there").unreadable = Some((150_000, why));
        let mut reader = files.open_read("/raw", &READ).expect("there");
        let mut read = Vec::new();
        let error = loop {
            let mut some = [0; 7_000];
            match reader.read(&mut some) {
                Ok(count) => read.extend_from_slice(&some[..count]),
                Err(error) => break error,
            }
        };
        assert!(read == all[..150_000]);
        match error {
            FileError::Lost { offset: 150_000, .. } => assert!(lost),
            FileError::OutOfReach { offset: 150_000, .. } => assert!(!lost),
            other => panic!("{other}"),
        }
        // What is before it comes, and the error with the next call.
        let mut some = [0; 1_000];
        assert_eq!(reader.read_at(149_500, &mut some).expect("some"), 500);
        assert!(reader.read_at(150_000, &mut some).is_err());
    }
    peer.state().files.get_mut(&file).expect("there").unreadable = Some((0, ReadOutcome::Deleted));
    let mut reader = files.open_read("/raw", &READ).expect("there");
    assert!(matches!(reader.read(&mut [0; 10]), Err(FileError::Removed { .. })));
}

#[test]
fn a_file_that_grows_is_read_on() {
    let peer = Peer::start();
    let files = peer.connect();
    let mut writer = files.create("/grows", &WriteOptions { seal: false, ..options() }).expect("made");
    let mut reader = files.open_read("/grows", &READ).expect("there");
    let (mut read, mut expected) = (Vec::new(), Vec::new());
    for round in 0..20 {
        assert_eq!(reader.read(&mut [0; 10]).expect("read"), 0, "it ends here");
        let more = content(round, 1 + round as usize * 9_999);
        writer.write(&more).expect("taken");
        writer.sync().expect("durable");
        expected.extend_from_slice(&more);
        reader.read_to_end(&mut read).expect("read");
        assert!(read == expected, "round {round}");
    }
    // Of one that nobody wrote to, too.
    let empty = files.create("/empty", &options()).expect("made");
    assert_eq!(files.open_read("/empty", &READ).expect("there").read(&mut [0; 10]).expect("read"), 0);
    drop(empty);
}

#[test]
fn what_is_no_file_has_no_bytes() {
    let peer = Peer::start();
    let files = peer.connect();
    files.make_directory("/d", &options().owner).expect("made");
    assert!(matches!(files.open_read("/d", &READ), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.open_write("/d", &options()), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.create("/d", &options()), Err(FileError::Exists { .. })));
    assert!(matches!(files.create("/x/", &options()), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.open_read("/x", &READ), Err(FileError::NotFound { .. })));
    assert!(matches!(files.seal("/d"), Err(FileError::IsDirectory { .. })));
    files.set("/d", &SetAttributes::default()).expect("nothing to do");
    assert!(peer.state().open.is_empty());
}
