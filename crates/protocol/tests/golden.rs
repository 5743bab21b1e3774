//! One frame of each kind, byte by byte, in `testdata/`; and that `docs/protocol.md` says the same.
//! `FOREBAY_BLESS=1` writes the files again: a change of one of them is a change of the protocol.
#![expect(clippy::disallowed_methods, reason = "the tests look at files")]

mod common;

use std::fmt::Write;
use std::path::Path;

use common::{frame, frames, name_changes};
use forebay_protocol::*;
use forebay_types::{
    DecideOutcome, FileOutcome, FragmentId, NAME_BYTES_MAX, NameOutcome, NodeKind, PutOutcome, ReadOutcome, RunId,
    TARGET_BYTES_MAX,
};

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{}", words.join(" ")).expect("text grows");
    }
    text
}

#[test]
fn the_bytes_are_the_stored_ones() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for (kind, bytes) in frames() {
        let path = directory.join(format!("{kind}.hex"));
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&path, hex(&bytes)).expect("written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(hex(&bytes), stored, "{kind}: the bytes on the wire have changed");
    }
}

#[test]
fn there_is_a_frame_of_every_kind() {
    let kinds: Vec<Kind> = frames().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, Kind::ALL);
    for (kind, bytes) in frames() {
        let frame = Frame::parse(&bytes).expect("sound").expect("whole");
        assert_eq!((frame.kind(), frame.header.frame_bytes()), (Some(kind), bytes.len()));
    }
}

/// The numbers and names of the table of the document whose first column is called so.
fn numbered(document: &str, column: &str) -> Vec<(u8, String)> {
    let head = format!("| {column} | name | ");
    let rows = document.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    rows.take_while(|row| row.starts_with('|'))
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            let number = cells.next().and_then(|number| number.parse().ok()).expect("a number");
            (number, cells.next().expect("a name").to_owned())
        })
        .collect()
}

#[test]
fn the_document_has_every_number() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let document = std::fs::read_to_string(path).expect("docs/protocol.md");
    let mut lines: Vec<String> = Vec::new();
    lines.extend(Kind::ALL.iter().map(|kind| format!("| `{:#06x}` | {kind} |", kind.code())));
    lines.extend(Class::ALL.iter().map(|class| format!("| {} | {class} |", class.code())));
    lines.extend(ErrorCode::ALL.iter().map(|code| format!("| {} | {code} |", code.code())));
    lines.extend(EventState::ALL.iter().map(|state| format!("| {} | {state} |", state.code())));
    lines.extend(PutOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.extend(ReadOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.extend(DecideOutcome::ALL.iter().map(|outcome| format!("| {} | {outcome:?} |", outcome.code())));
    lines.push(format!("FRAME_TABLE_BYTES_MAX | {} |", limits::FRAME_TABLE_BYTES_MAX));
    lines.push(format!("FRAME_PAYLOAD_BYTES_MAX | {} |", limits::FRAME_PAYLOAD_BYTES_MAX));
    lines.push(format!("BATCH_RECORDS_MAX | {} |", forebay_types::limits::BATCH_RECORDS_MAX));
    lines.push(format!("STREAMS_MAX | {} |", forebay_types::limits::STREAMS_MAX));
    lines.push(format!("FILES_MAX | {} |", limits::FILES_MAX));
    lines.push(format!("NAMES_MAX | {} |", limits::NAMES_MAX));
    lines.push(format!("NAME_BYTES_MAX | {NAME_BYTES_MAX} |"));
    lines.push(format!("TARGET_BYTES_MAX | {TARGET_BYTES_MAX} |"));
    lines.push(format!("PIECE_BYTES_MAX | {} |", forebay_types::limits::PIECE_BYTES_MAX));
    lines.push(format!("FRAGMENT_BYTES_MAX | {} |", forebay_types::limits::FRAGMENT_BYTES_MAX));
    lines.push(format!("FILE_BYTES_MAX | {} |", forebay_types::limits::FILE_BYTES_MAX));
    lines.push(format!("LEASE_MS_MIN | {} |", limits::LEASE_MS_MIN));
    lines.push(format!("LEASE_MS_MAX | {} |", limits::LEASE_MS_MAX));
    lines.push(format!("PEER_NAME_BYTES_MAX | {} |", limits::PEER_NAME_BYTES_MAX));
    lines.push(format!("SENTENCE_BYTES_MAX | {} |", limits::SENTENCE_BYTES_MAX));
    lines.push(format!("BUSY_MS_MAX | {} |", limits::BUSY_MS_MAX));
    for line in lines {
        assert!(document.contains(&line), "docs/protocol.md lacks {line:?}");
    }
    // Each in its own table: several have the same name for the same number.
    let file_outcomes = FileOutcome::ALL.iter().map(|outcome| (outcome.code(), format!("{outcome:?}")));
    assert_eq!(numbered(&document, "file outcome"), file_outcomes.collect::<Vec<_>>());
    let name_outcomes = NameOutcome::ALL.iter().map(|outcome| (outcome.code(), format!("{outcome:?}")));
    assert_eq!(numbered(&document, "name outcome"), name_outcomes.collect::<Vec<_>>());
    let node_kinds = NodeKind::ALL.iter().map(|kind| (kind.code(), format!("{kind:?}")));
    assert_eq!(numbered(&document, "node kind"), node_kinds.collect::<Vec<_>>());
    let mut changes: Vec<(u8, String)> = Vec::new();
    for (name, what) in name_changes() {
        let table =
            frame(|to| ChangeName { client: 1, change: 2, waits_from: 2, what }.encode(1, to)).split_off(HEADER_BYTES);
        changes.push((table[24], name.to_owned()));
    }
    changes.dedup();
    assert_eq!(numbered(&document, "change"), changes);
    let put = frames().into_iter().find(|(kind, _)| *kind == Kind::Put).expect("a put").1;
    for line in hex(&put).lines() {
        assert!(document.contains(line), "the put drawn in docs/protocol.md lacks {line:?}");
    }
}

#[test]
fn runs_are_run_numbers() {
    // A reader in another language must find the run in the first four bytes of an id.
    let bytes = frame(|to| Get { ids: vec![FragmentId::new(0x0A0B_0C0D, 1, 2)] }.encode(1, to));
    assert_eq!(&bytes[HEADER_BYTES + 8..HEADER_BYTES + 12], &0x0A0B_0C0D_u32.to_le_bytes());
    assert_eq!(Get::decode(&bytes[HEADER_BYTES..], &[]).expect("sound").ids[0].run, RunId(0x0A0B_0C0D));
}
