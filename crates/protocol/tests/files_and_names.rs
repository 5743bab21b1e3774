//! What messages of files and names may say: names that are too long, places beyond every file, more than is taken at once, answers that
//! cannot be meant.

use forebay_protocol::*;
use forebay_types::limits::{FILE_BYTES_MAX, FRAGMENT_BYTES_MAX};
use forebay_types::{
    Attributes, FileNumber, FileOutcome, NAME_BYTES_MAX, NameOutcome, NewNode, NodeKind, NodeView, ReadOutcome,
    TARGET_BYTES_MAX,
};

/// A message as it is read.
fn read<M: Message>(message: &M) -> Result<M, FrameError> {
    let mut table = Vec::new();
    message.write_table(&mut table);
    M::decode(&table, &[])
}

#[test]
fn names_that_are_too_long_arrive_so_long_that_they_are_refused() {
    let (number, long) = (FileNumber(7), vec![b'n'; 70_000]);
    let name = long[..NAME_BYTES_MAX + 1].to_vec();
    let lookup = NameLookup { directory: None, name: long.clone() };
    assert_eq!(read(&lookup).expect("it is cut").name, name);
    let list = NameList { directory: None, after: long.clone(), max: 1 };
    assert_eq!(read(&list).expect("it is cut").after, name);
    let changed = |what| read(&ChangeName { client: 1, change: 2, waits_from: 2, what }).expect("it is cut").what;
    let new = |target| NewNode { kind: NodeKind::Link, mode: 0, owner: 0, group: 0, device: 0, target };
    let make = |name, target| NameChange::Make { directory: number, name, new: new(target) };
    assert_eq!(
        changed(make(long.clone(), long.clone())),
        make(name.clone(), long[..TARGET_BYTES_MAX + 1].to_vec()),
        "a target may be longer than a name"
    );
    let rename = |from, to| {
        let (from_directory, to_directory) = (number, FileNumber(8));
        NameChange::Rename { from_directory, from, to_directory, to, replace: false }
    };
    assert_eq!(changed(rename(long.clone(), long)), rename(name.clone(), name));
}

/// The length at this place of its table may be so much, and no more.
fn takes_at_most<M: Message>(message: &M, at: usize, most: u16) {
    let decode_with = |bytes: u16| {
        let mut table = Vec::new();
        message.write_table(&mut table);
        table[at..at + 2].copy_from_slice(&bytes.to_le_bytes());
        table.resize(table.len() + usize::from(bytes), b'x');
        M::decode(&table, &[]).map(drop)
    };
    assert_eq!(decode_with(most), Ok(()), "{} of {most}", M::KIND);
    let error = decode_with(most + 1).expect_err("too long");
    assert_eq!(error.code(), ErrorCode::TooLarge, "{}: {error}", M::KIND);
}

#[test]
fn longer_names_than_any_client_sends_are_refused() {
    let (name, target) = (NAME_BYTES_MAX as u16 + 1, TARGET_BYTES_MAX as u16 + 1);
    let change = |what| ChangeName { client: 1, change: 2, waits_from: 2, what };
    let new = NewNode { kind: NodeKind::Link, mode: 0, owner: 0, group: 0, device: 0, target: Vec::new() };
    let make = change(NameChange::Make { directory: FileNumber(1), name: Vec::new(), new });
    let remove = change(NameChange::Remove { directory: FileNumber(1), name: Vec::new() });
    let lookup = NameLookup { directory: None, name: Vec::new() };
    let list = NameList { directory: None, after: Vec::new(), max: 1 };
    let attributes = Attributes::default();
    let view = NodeView { kind: NodeKind::Link, attributes, links: 1, device: 0, target: Vec::new() };
    let node = Some(Node { number: FileNumber(1), parent: FileNumber(2), view });
    let reply = NodeReply { outcome: NameOutcome::Done, node };
    takes_at_most(&lookup, 8, name);
    takes_at_most(&list, 12, name);
    takes_at_most(&make, 80, name);
    takes_at_most(&make, 82, target);
    takes_at_most(&remove, 82, name);
    takes_at_most(&reply, 64, target - 1);
}

#[test]
fn a_place_beyond_every_file_is_no_place_at_its_end() {
    let by = Changer { opener: Opener { client: 1, opening: 2 }, change: 4, waits_from: 3 };
    let write = |start| FileWrite { file: FileNumber(3), by, start, bytes: 0, crc: 0, appends: false };
    for (start, arrives) in [
        (None, None),
        (Some(FILE_BYTES_MAX), Some(FILE_BYTES_MAX)),
        (Some(FILE_BYTES_MAX + 1), Some(FILE_BYTES_MAX + 1)),
        // What says that it goes to the end cannot be said; this is as much too far.
        (Some(u64::MAX), Some(u64::MAX - 1)),
    ] {
        assert_eq!(FileWrite::read_table(&write(start).table(), 0), Ok(write(arrives)), "{start:?}");
    }
}

#[test]
fn answers_that_cannot_be_meant_are_refused() {
    let bad = |error: FrameError| matches!(error, FrameError::BadValue { .. });
    let beyond = FILE_BYTES_MAX + 1;
    assert!(bad(read(&FileReply { outcome: FileOutcome::Done, start: beyond }).expect_err("no such place")));
    let info = FileInfo {
        outcome: ReadOutcome::Found,
        sealed: false,
        is_written: false,
        sums: None,
        length: beyond,
        written_unix_ns: 0,
    };
    assert!(bad(read(&FileStatReply { files: vec![info] }).expect_err("no such length")));
    let reply = FileReadReply { outcome: ReadOutcome::Lost, bytes: 1, crc: 0 };
    assert!(bad(FileReadReply::decode(&reply.table(), b"x").expect_err("bytes of nothing")));

    let (number, kind) = (FileNumber(1), NodeKind::Directory);
    let view = NodeView { kind, attributes: Attributes::default(), links: 2, device: 0, target: Vec::new() };
    let node = Some(Node { number, parent: number, view });
    assert!(bad(read(&NodeReply { outcome: NameOutcome::NotFound, node }).expect_err("it was not found")));
    let listed = |outcome, name: &[u8]| {
        let entries = vec![NameEntry { number, kind, name: name.to_vec() }];
        read(&ListReply { outcome, more: false, entries })
    };
    assert!(listed(NameOutcome::Done, b"runs").is_ok());
    assert!(bad(listed(NameOutcome::NotDirectory, b"runs").expect_err("it has no names")));
    assert!(bad(listed(NameOutcome::Done, b"").expect_err("no name is empty")));
}

#[test]
fn what_is_asked_of_files_and_names_has_limits() {
    let counted = |at: usize, count: u32| {
        let mut table = vec![0; 1 << 20];
        table[at..at + 4].copy_from_slice(&count.to_le_bytes());
        table
    };
    let count = |most: usize| most as u32;
    let read = FileRead::decode(&counted(16, count(FRAGMENT_BYTES_MAX)), &[]).expect("as much as there may be");
    assert_eq!(read.bytes as usize, FRAGMENT_BYTES_MAX);
    let files = FileStat::decode(&counted(0, count(limits::FILES_MAX)), &[]).expect("as many as there may be").files;
    assert_eq!(files.len(), limits::FILES_MAX);
    for error in [
        FileRead::decode(&counted(16, count(FRAGMENT_BYTES_MAX) + 1), &[]).map(drop),
        FileStat::decode(&counted(0, count(limits::FILES_MAX) + 1), &[]).map(drop),
        FileStatReply::decode(&counted(0, count(limits::FILES_MAX) + 1), &[]).map(drop),
        ListReply::decode(&counted(4, count(limits::NAMES_MAX) + 1), &[]).map(drop),
    ] {
        let error = error.expect_err("too many");
        assert_eq!(error.code(), ErrorCode::TooLarge, "{error}");
    }
    let name = vec![0xFF; NAME_BYTES_MAX];
    let entry = NameEntry { number: FileNumber(u64::MAX), kind: NodeKind::File, name };
    let most = ListReply { outcome: NameOutcome::Done, more: true, entries: vec![entry; limits::NAMES_MAX] };
    let mut bytes = Vec::new();
    most.encode(1, &mut bytes);
    assert_eq!(
        ListReply::decode(&bytes[HEADER_BYTES..], &[]),
        Ok(most),
        "as many of the longest names as there may be"
    );
}
