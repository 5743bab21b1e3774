//! `docs/format.md` is what this crate reads and writes: every table of it is compared with the
//! constants that the code uses, in both directions.

use std::collections::BTreeMap;

use forebay_types::limits;

use crate::field::Drawn;
use crate::{checkpoint, event, field, file, flush, layout, record, segment, superblock, table};

/// A structure as a list of lines, one for each field, and its length.
type Structures = BTreeMap<String, (usize, Vec<String>)>;

fn documentation() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The structures under headings such as "### `prefix` (24 bytes)".
fn documented_structures(text: &str) -> Structures {
    let mut structures = Structures::new();
    for part in text.split("\n### `").skip(1) {
        let (name, rest) = part.split_once("` (").expect("a name and a length");
        let (bytes, rest) = rest.split_once(" bytes)").expect("a length");
        let rows = rest.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| "));
        let fields = rows.map(cells).filter(|cells| cells[0].parse::<usize>().is_ok());
        let fields = fields.map(|cells| {
            assert_eq!(cells.len(), 5, "{name}: {cells:?}");
            format!("{} {} {}", cells[0], cells[1], cells[2])
        });
        let bytes = bytes.parse().expect("a length");
        let earlier = structures.insert(name.to_owned(), (bytes, fields.collect()));
        assert!(earlier.is_none(), "{name} is drawn twice");
    }
    structures
}

fn structures_of_the_code() -> Structures {
    macro_rules! all {
        ($($module:ident :: $layout:ident),+ $(,)?) => {
            [$((stringify!($layout), $module::$layout::BYTES, $module::$layout::DRAWN)),+]
        };
    }
    let all = all![
        field::prefix,
        superblock::superblock,
        superblock::start,
        superblock::drive_entry,
        checkpoint::checkpoint,
        checkpoint::section,
        checkpoint::numbers,
        checkpoint::segment_entry,
        checkpoint::planned_segment,
        checkpoint::finished_run,
        checkpoint::ordinal_range,
        checkpoint::decision_set,
        checkpoint::decided_run,
        checkpoint::decided_range,
        checkpoint::stream,
        checkpoint::counter,
        segment::segment_id,
        segment::shard_place,
        flush::flush,
        flush::digest,
        record::table_entry,
        file::piece_entry,
        file::hole_entry,
        file::state_entry,
        file::sums_entry,
        table::segment_table,
        table::flush_entry,
        event::event_directory,
        event::event_fragment,
    ];
    let line = |drawn: &Drawn| {
        let name = drawn.name.to_lowercase();
        let name = if name.starts_with("room") { "room" } else { &name };
        match drawn.kind {
            "bytes" => format!("{} bytes[{}] {name}", drawn.offset, drawn.bytes),
            kind => format!("{} {kind} {name}", drawn.offset),
        }
    };
    let structure =
        |(name, bytes, drawn): (&str, usize, &[Drawn])| (name.to_owned(), (bytes, drawn.iter().map(line).collect()));
    all.map(structure).into_iter().collect()
}

#[test]
fn every_structure_is_drawn_as_the_code_has_it() {
    let documented = documented_structures(&documentation());
    let of_the_code = structures_of_the_code();
    let names = |structures: &Structures| structures.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&of_the_code));
    for (name, structure) in &of_the_code {
        assert_eq!(&documented[name], structure, "{name} in docs/format.md");
    }
}

#[test]
fn headers_start_with_the_prefix() {
    for drawn in [superblock::superblock::DRAWN, checkpoint::checkpoint::DRAWN, flush::flush::DRAWN] {
        assert_eq!(&drawn[..field::prefix::DRAWN.len()], field::prefix::DRAWN);
    }
    let text = documentation();
    for kind in [&superblock::KIND, &checkpoint::KIND, &flush::KIND] {
        let magic = str::from_utf8(&kind.magic).expect("magics are ASCII");
        assert!(text.contains(&format!("| magic | `{magic}` |")), "{magic}");
        assert!(text.contains(&format!("\nVersion {}. ", crate::FORMAT_VERSION)), "{magic}");
    }
}

#[test]
fn every_stored_number_is_documented_as_the_code_has_it() {
    let text = documentation();
    let (_, rows) = text.split_once("\n## Stored numbers\n").expect("the section");
    let documented: Vec<String> = rows
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(cells)
        .filter(|cells| cells[2].parse::<u64>().is_ok())
        .map(|cells| cells.join(" | "))
        .collect();
    assert_eq!(documented, numbers_of_the_code());
}

fn numbers_of_the_code() -> Vec<String> {
    let number = |what: &str, name: &str, number: u64| format!("{what} | {name} | {number}");
    let mut numbers = vec![
        number("place", "superblock bytes", layout::SUPERBLOCK_BYTES as u64),
        number("place", "superblock stride bytes", layout::SUPERBLOCK_STRIDE_BYTES),
        number("place", "checkpoints offset", layout::CHECKPOINTS_OFFSET),
        number("place", "slots alignment bytes", layout::SLOTS_ALIGNMENT_BYTES),
        number("place", "slots per lane at least", u64::from(layout::SLOTS_PER_LANE_MIN)),
        number("place", "superblock history offset", superblock::HISTORY_OFFSET as u64),
        number("place", "superblock drives offset", superblock::DRIVES_OFFSET as u64),
        number("place", "flush shards offset", flush::flush::BYTES as u64),
        number("limit", "block bytes", limits::BLOCK_BYTES as u64),
        number("limit", "shards", limits::SHARDS_MAX as u64),
        number("limit", "drives", limits::DRIVES_MAX as u64),
        number("limit", "lanes", limits::LANES_MAX as u64),
        number("limit", "starts in the history", superblock::HISTORY_MAX as u64),
        number("limit", "flush header bytes", flush::FLUSH_HEADER_BYTES_MAX as u64),
        number("limit", "unit bytes of a store", u64::from(superblock::UNIT_BYTES_MAX)),
        number("limit", "fragment bytes", limits::FRAGMENT_BYTES_MAX as u64),
        number("limit", "bytes of a piece of a file", limits::PIECE_BYTES_MAX as u64),
        number("limit", "bytes of a file", limits::FILE_BYTES_MAX),
        number("limit", "streams", limits::STREAMS_MAX as u64),
        number("limit", "sets of decisions", checkpoint::DECISION_SETS_MAX as u64),
        number("limit", "decided events", checkpoint::DECIDED_EVENTS_MAX),
    ];
    use checkpoint::{SegmentState, section_kind};
    use superblock::DriveState;
    let drive_states = [DriveState::Member, DriveState::Out];
    let segment_states = [SegmentState::Open, SegmentState::Closed, SegmentState::Walk];
    let name = |variant: &dyn std::fmt::Debug| format!("{variant:?}").to_lowercase();
    numbers.extend(drive_states.map(|state| number("drive state", &name(&state), state as u64)));
    numbers.extend(segment_states.map(|state| number("segment state", &name(&state), state as u64)));
    numbers.extend([
        number("section kind", "numbers", section_kind::NUMBERS.into()),
        number("section kind", "live", section_kind::LIVE.into()),
        number("section kind", "planned", section_kind::PLANNED.into()),
        number("section kind", "finished", section_kind::FINISHED.into()),
        number("section kind", "counters", section_kind::COUNTERS.into()),
        number("section kind", "streams", section_kind::STREAMS.into()),
        number("section kind", "decision sets", section_kind::DECISION_SETS.into()),
        number("section kind", "decided", section_kind::DECIDED.into()),
        number("section flag", "optional", checkpoint::SECTION_OPTIONAL.into()),
        number("finished run flag", "closed", checkpoint::RUN_CLOSED.into()),
        number("set of decisions flag", "incomplete", checkpoint::SET_INCOMPLETE.into()),
        number("flush flag", "closing", flush::FLUSH_CLOSING.into()),
        number("flush flag", "inline table", flush::FLUSH_INLINE_TABLE.into()),
        number("flush flag", "table has sequences (kept)", flush::FLUSH_TABLE_HAS_SEQUENCES.into()),
    ]);
    numbers.extend(record::RecordKind::ALL.map(|kind| number("record kind", &name(&kind), kind as u64)));
    numbers.extend([
        number("record flag", "incomplete", record::RECORD_INCOMPLETE.into()),
        number("record flag", "appended", record::RECORD_APPENDED.into()),
        number("record flag", "sealed", record::RECORD_SEALED.into()),
    ]);
    numbers
}
