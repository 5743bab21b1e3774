//! Writes the seeds that are made: of the golden bytes of format and protocol, and of generated events. They begin with `made-`; what
//! fuzzing found stands beside them. For after a change of a format:
//!
//! ```text
//! cargo run --manifest-path fuzz/Cargo.toml --example seeds
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use forebay_names::{Names, Output, Rename};
use forebay_rawdata::{Container, Format, Generator, RawEvent, mdf_checksum, split};
use forebay_types::{EventId, NewNode, NodeKind, ReadOutcome, RunId, SourceId};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn seed(target: &str, name: &str, bytes: &[u8]) {
    let directory = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join(format!("made-{name}")), bytes).expect("a seed");
}

/// What `crates/format/tests/golden.rs` drew: lines of an offset and bytes, then the length.
fn structure(name: &str) -> Vec<u8> {
    let path = root().join("crates/format/testdata").join(format!("{name}.hex"));
    let text = fs::read_to_string(path).expect("golden bytes");
    let mut bytes = Vec::new();
    for line in text.lines().filter(|line| !line.ends_with("bytes")) {
        let (offset, values) = line.split_once("  ").expect("an offset and bytes");
        bytes.resize(usize::from_str_radix(offset, 16).expect("an offset"), 0);
        bytes.extend(values.split(' ').map(|value| u8::from_str_radix(value, 16).expect("a byte")));
    }
    bytes
}

/// A frame of the protocol: bytes as two digits each.
fn frame(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).expect("golden bytes");
    text.split_whitespace().map(|value| u8::from_str_radix(value, 16).expect("a byte")).collect()
}

fn frames() -> Vec<(String, Vec<u8>)> {
    let directory = fs::read_dir(root().join("crates/protocol/testdata")).expect("golden bytes");
    let mut paths: Vec<PathBuf> = directory.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), frame(path))).collect()
}

/// Behind its length, as the targets take pieces.
fn piece(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

fn drives() {
    seed("superblock", "superblock", &structure("superblock"));
    let checkpoint = structure("checkpoint");
    seed("checkpoint", "checkpoint", &[&checkpoint[..128], &checkpoint[4096..]].concat());
    let table = structure("segment_table");
    seed("segment_table", "segment_table", &table);
    let directory = structure("event_directory");
    let record_bytes =
        directory.len() as u32 + [0u32, 7, 0x10_0000, u32::MAX].map(|source| source % 300).iter().sum::<u32>();
    seed("event_directory", "event_directory", &[&record_bytes.to_le_bytes()[..], &directory].concat());
    seed("flush_header", "inline_table", &piece(&structure("flush_inline_table")));
    seed("flush_header", "8_and_2", &piece(&structure("flush_8_and_2")));
    seed("flush_header", "closing", &[piece(&structure("flush_closing")), table].concat());
    let contents = |size: u16, place: u8, mark: &[u8]| [&size.to_le_bytes()[..], &[place], &piece(mark)].concat();
    seed("drive_contents", "empty", &[0, 0]);
    seed("drive_contents", "zeroed", &(40u16 << 6).to_le_bytes());
    seed("drive_contents", "forebay", &contents(8 << 6, 0, b"FOREBAY1"));
    seed("drive_contents", "ext", &contents(8 << 6, 2, &[&[0; 0x38][..], &[0x53, 0xEF], &[0; 60]].concat()));
    seed("drive_contents", "partitions", &contents(8 << 6, 0, &[&[0; 510][..], &[0x55, 0xAA]].concat()));
    seed("drive_contents", "gpt", &contents(8 << 6, 1 | 16, b"EFI PART\x00\x00\x01\x00\x5C\x00\x00\x00"));
    seed("drive_contents", "swap", &contents(8 << 6, 15, b"SWAPSPACE2"));
    seed("drive_contents", "lvm", &contents(8 << 6, 1, b"LABELONE\x01\x00\x00\x00\x00\x00\x00\x00LVM2 001"));
    seed("drive_contents", "raid", &contents(8 << 6, 4, b"\xFC\x4E\x2B\xA9\x01\x00\x00\x00"));
    seed("drive_contents", "text", &contents(11, 0, b"only a text"));
}

/// A journal and the snapshot that follows it, frame by frame without their heads.
fn names() {
    let mut names = Names::new(2);
    let root = names.root();
    let new =
        |kind, target: &[u8]| NewNode { kind, mode: 0o755, owner: 1, group: 2, device: 7, target: target.to_vec() };
    let directory = names.make(root, b"run1", &new(NodeKind::Directory, b""), 1).expect("made").number;
    let file = names.make(directory, b"data.mdf", &new(NodeKind::File, b""), 2).expect("made").number;
    names.make(root, b"newest", &new(NodeKind::Link, b"run1"), 3).expect("made");
    names.make(root, b"null", &new(NodeKind::CharacterDevice, b""), 4).expect("made");
    names.link(file, root, b"other", 5).expect("linked");
    let (to_directory, replace) = (directory, true);
    names
        .rename(Rename { from_directory: root, from: b"other", to_directory, to: b"data.mdf", replace }, 6)
        .expect("renamed");
    names
        .rename(Rename { from_directory: root, from: b"null", to_directory, to: b"data.mdf", replace }, 7)
        .expect("renamed");
    names.remove(root, b"newest", 8).expect("removed");
    names.begin_snapshot().expect("there are many numbers");
    while names.go_on_with_snapshot(200) {}
    let (mut journal, mut snapshot) = (vec![1], vec![1]);
    while let Some(output) = names.next_output() {
        let (into, bytes) = match output {
            Output::Journal { bytes, .. } => (&mut journal, bytes),
            Output::Snapshot { bytes, .. } => (&mut snapshot, bytes),
        };
        let mut rest = &bytes[..];
        while let Some((head, after)) = rest.split_first_chunk::<8>() {
            let body = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            into.extend(piece(&after[..body]));
            rest = &after[body..];
        }
    }
    seed("names", "journal", &journal);
    seed("names", "snapshot", &snapshot);
    seed("names", "both", &[&snapshot[..], &journal[1..]].concat());
}

fn wire() {
    let all = frames();
    let named = |name: &str| &all.iter().find(|frame| frame.0 == name).expect("a frame of each kind").1;
    for (name, bytes) in &all {
        seed("messages", name, bytes);
    }
    let replies: Vec<u8> =
        all.iter().filter(|frame| frame.0.ends_with("Reply")).flat_map(|frame| frame.1.clone()).collect();
    seed("frames", "requests", &[&[255; 4][..], named("Hello"), named("Put"), named("Ping"), named("Get")].concat());
    seed("frames", "replies", &[&[40, 3, 90, 0][..], &replies].concat());
    seed("greeting", "whole", &[&[255, 3][..], named("Hello")].concat());
    seed("greeting", "in_pieces", &[&[6, 63][..], named("Hello")].concat());
    seed("greeting", "other", &[&[255, 3][..], named("Ping")].concat());

    let requests = [
        "Put",
        "Get",
        "GetEvent",
        "Delete",
        "Decide",
        "Release",
        "Lease",
        "Accepted",
        "Streams",
        "Runs",
        "Status",
        "Trace",
        "Losses",
        "Subscribe",
    ];
    let frames_of = |names: &[&str], what: u8| -> Vec<u8> {
        names.iter().flat_map(|name| [vec![what], piece(named(name))].concat()).collect()
    };
    // Each request, then the lane answers; from one connection, from two in pieces, on a lane that is busy and has little memory.
    let settle = [7, 7, 7];
    seed("server", "requests", &[&[0, 0][..], &frames_of(&requests, 0), &settle].concat());
    let stored = [12, 100, 1, 200, 0, 1, 12, 100, 2, 0, 2, 0];
    let two =
        [&[0, 0, 15, 1, 13, 7, 40, 3, 200][..], &stored, &frames_of(&requests, 0x10), &[5, 8, 50, 5], &settle].concat();
    seed("server", "in_pieces", &two);
    let busy = [&[0x0F, 0, 11, 0b10_01_10_10, 9][..], &frames_of(&requests, 0), &[6, 5, 9], &settle].concat();
    seed("server", "busy", &busy);
    let leaves =
        [&[2, 0, 15, 2][..], &frames_of(&["Put", "Get"], 0x10), &[0x1A], &frames_of(&requests, 0), &[4, 9, 0, 1]]
            .concat();
    seed("server", "leaves", &leaves);
    seed("server", "stops", &[&[0, 0, 14, 0][..], &frames_of(&requests, 0), &settle].concat());

    // Connects by asking for something; then the greeting, and answers to what was asked.
    let greeted = [&[0, 11][..], &[4], &piece(&control_greeting(named("HelloReply")))].concat();
    let ask_all: Vec<u8> = (0..16).flat_map(|what| [0, what]).collect();
    for (name, asked) in [
        ("GetReply", 0),
        ("GetEventReply", 1),
        ("DecideReply", 3),
        ("LeaseReply", 6),
        ("AcceptedReply", 7),
        ("StreamsReply", 8),
        ("RunsReply", 9),
        ("StatusReply", 10),
        ("Done", 11),
        ("SubscribeReply", 15),
        ("Error", 0),
    ] {
        let steps = [&greeted[..], &[0, asked, 4], &piece(named(name))].concat();
        seed("session", name, &steps);
    }
    let puts = [&greeted[..], &[0x42], &[7; 160], &[3, 4], &piece(named("PutReply")), &[15, 200]].concat();
    seed("session", "PutReply", &puts);
    seed("session", "all", &[&greeted[..], &ask_all, &[12, 15, 200, 15, 200]].concat());
}

/// The greeting of a server of lane 0.
fn control_greeting(reply: &[u8]) -> Vec<u8> {
    let mut reply = reply.to_vec();
    reply[32 + 4..32 + 6].fill(0);
    reply
}

fn bank(bank_type: u8, version: u8, source_id: u16, body: &[u8]) -> Vec<u8> {
    let mut bank = vec![0xCB, 0xCB];
    bank.extend_from_slice(&(body.len() as u16 + 8).to_le_bytes());
    bank.extend_from_slice(&[bank_type, version]);
    bank.extend_from_slice(&source_id.to_le_bytes());
    bank.extend_from_slice(body);
    bank.resize(bank.len().next_multiple_of(4), 0);
    bank
}

/// A record as the generator makes it, with a few of its banks.
fn small_mdf(version: u8, has_checksum: bool) -> Vec<u8> {
    let event = Generator::new(Format::Mdf, 1, RunId(5)).next_event().bytes;
    let mut odin = [0; 40];
    odin[..4].copy_from_slice(&5u32.to_le_bytes());
    odin[16] = 9;
    let mut bytes = event[..if version == 2 { 20 } else { 48 }].to_vec();
    bytes[17] = version << 4 | 7;
    for bank in
        [bank(9, 3, 1000, &event[100..131]), bank(16, 6, 0, &odin), bank(63, 2, 7, &[]), bank(9, 3, 1000, &[1; 9])]
    {
        bytes.extend_from_slice(&bank);
    }
    let size = (bytes.len() as u32).to_le_bytes();
    [0, 4, 8].into_iter().for_each(|at| bytes[at..at + 4].copy_from_slice(&size));
    let sum = if has_checksum { mdf_checksum(&bytes[16..]) } else { 0 };
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A generated event whose fragments are short.
fn small_faser(fragments: usize) -> Vec<u8> {
    let event = Generator::new(Format::Faser, 1, RunId(5)).starting_at(EventId(77)).next_event().bytes;
    let mut bytes = event[..44].to_vec();
    let mut at = 44;
    for number in 0..fragments {
        let payload_bytes = u32::from_le_bytes(event[at + 8..at + 12].try_into().expect("four bytes")) as usize;
        let kept = 8 + number;
        let start = bytes.len();
        bytes.extend_from_slice(&event[at..at + 36 + kept]);
        bytes[start + 8..start + 12].copy_from_slice(&(kept as u32).to_le_bytes());
        at += 36 + payload_bytes;
    }
    let payload_bytes = (bytes.len() - 44) as u32;
    bytes[8..12].copy_from_slice(&payload_bytes.to_le_bytes());
    bytes[12] = fragments as u8;
    bytes
}

/// An event of BESIII with two ROSes, one of them with a ROB.
fn small_besiii() -> Vec<u8> {
    let element = |marker: u32, specific: &[u32], body: Vec<u8>| {
        let header_words = 8 + specific.len() as u32;
        let size = header_words + body.len() as u32 / 4;
        let head = [marker, size, header_words, 0x0300_0000, 7, 1, 0, specific.len() as u32];
        [head.iter().chain(specific).flat_map(|word| word.to_le_bytes()).collect(), body].concat()
    };
    let rod = [0xee12_34ee, 9, 0x0301_0000, 7, 0, 77, 0, 0, 0, 0x1234_5678, 0x00ff_ffff, 1, 1, 1u32];
    let rob = element(0xdd12_34dd, &[], rod.iter().flat_map(|word| word.to_le_bytes()).collect());
    let roses = [element(0xcc12_34cc, &[5, 77, 0], rob), element(0xcc12_34cc, &[5, 77, 0], Vec::new())].concat();
    element(0xaa12_34aa, &[1_775_600_000, 77, 5, 77], element(0xbb12_34bb, &[0], roses))
}

fn input_files() {
    let (faser, mdf) = (small_faser(3), small_mdf(3, true));
    seed("faser", "event", &faser);
    seed("faser", "two_and_a_rest", &[&faser[..], &small_faser(1), &faser[..50]].concat());
    seed("mdf", "event", &mdf);
    seed("mdf", "version_2", &small_mdf(2, true));
    seed("mdf", "two_and_a_rest", &[&mdf[..], &small_mdf(1, false), &mdf[..30]].concat());
    let besiii = small_besiii();
    let (container, bytes) = (Container::new(Format::Besiii, RunId(5), 0), besiii.len() as u64);
    let (first, second) = (container.before_event(0, bytes), container.before_event(1, bytes));
    let tail = container.tail(2, 2 * bytes);
    seed("besiii", "event", &besiii);
    seed("besiii", "file", &[container.head(), first, besiii.clone(), second, besiii.clone(), tail].concat());
    let compressed = Generator::new(Format::Mdf, 1, RunId(5)).compressed(true).next_event().bytes;
    seed("mdf", "compressed_head", &compressed[..200]);
    for (name, format, bytes) in
        [("faser", Format::Faser, faser), ("mdf", Format::Mdf, mdf), ("besiii", Format::Besiii, besiii)]
    {
        let pieces = split(&RawEvent { format, key: Default::default(), bytes }).expect("an event");
        let number = |at: usize, source| if source == SourceId::EVENT_FRAME { 0 } else { at as u8 };
        let pieces: Vec<u8> = pieces
            .iter()
            .enumerate()
            .flat_map(|(at, part)| [vec![number(at, part.source)], piece(&part.bytes)].concat())
            .collect();
        seed("join", name, &pieces);
    }
    seed("join", "frame", &[1, 5, 2, 0, 0, 12, 1, 9, 0, 3, 2, 4, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
}

fn recorded_files() {
    let sums = r#""adler32":"00c0ffee","crc32c":"00000005""#;
    let of_journal = r#""settings":"0000000000000006","journal":"0000000000000005","consignment":17}"#;
    let of_events = format!(
        r#"{{"version":1,"name":"physics/run000007-00001.raw","bytes":1234,{sums},"format":"faser","store":"00000000-0000-0000-0000-000000000007","stream":"physics","run":7,"events":4,"event_ranges":[[3,5],[9,9]],"incomplete_ranges":[[4,4]],"parts":[],{of_journal}"#
    );
    let of_files = format!(
        r#"{{"version":1,"name":"run7/files-00001.tar.zst","bytes":99,{sums},"compression":"zstd","uncompressed_bytes":2048,"uncompressed_adler32":"00000001","format":"tar","parts":[{{"name":"run7/a","bytes":9,"adler32":"00000002","at":512}}],{of_journal}"#
    );
    seed("sidecar", "events", format!("{of_events}\n").as_bytes());
    seed("sidecar", "archive", format!("{of_files}\n").as_bytes());
    let parts = [(SourceId(1), ReadOutcome::Found, &b"one"[..]), (SourceId(2), ReadOutcome::Lost, b"")];
    let event = forebay_mover::events::parts::encode(forebay_types::EventKey::new(7, 9), parts.into_iter());
    seed("parts", "two", &[&event[..], &event].concat());
    let line = |event: u64| format!("7 {event} {:032x} {}\n", u128::from(event) << 77, 20_000 + event);
    seed("ledger", "three", [line(1), line(2), line(1 << 60)].concat().as_bytes());
    seed("ledger", "torn", (line(1) + "7 2 00ab").as_bytes());
}

fn configuration() {
    let example = fs::read_to_string(root().join("crates/cli/forebay.example.toml")).expect("the example");
    let lines: Vec<&str> = example.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    seed("config", "example", (lines.join("\n") + "\n").as_bytes());
    let said = "[store]\ncache-bytes = 0\ndrive-kind = \"disk\"\nflush-bytes = 65536\nflush-interval-us = 1000000\n\
        [store.media]\ndirect = \"off\"\nbackend = \"thread-pool\"\n[server]\nlisten = \"[::1]:0\"\n\
        insecure-network = [\"10.0.0.0/8\", \"fd00::/8\"]\nmetrics = \"127.0.0.1:9420\"\nrated-writes-tb = [\"7000\", \"3:14000\"]\n";
    seed("config", "said", said.as_bytes());
}

fn main() {
    drives();
    names();
    wire();
    input_files();
    recorded_files();
    configuration();
}
