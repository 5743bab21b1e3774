//! The tables of offsets in `docs/protocol.md` are what the code writes: the stored frames are read by these tables alone, every byte
//! of them once, and give the values that went in.

#![expect(clippy::disallowed_methods, reason = "the tests look at files")]

mod common;

use std::collections::BTreeMap;

use common::{frame, frames, name_changes};
use forebay_protocol::{ChangeName, HEADER_BYTES, Kind, Message};

/// A row of a table: where a field lies, what it is, its words.
#[derive(Clone, Debug)]
struct Row {
    /// The bytes before, and for each variable how many more for each of it.
    at: usize,
    steps: BTreeMap<char, usize>,
    kind: String,
    words: String,
}

impl Row {
    fn parse(cells: &[&str]) -> Row {
        let (mut at, mut steps) = (0, BTreeMap::new());
        for term in cells[0].split('+').map(str::trim) {
            let (number, variable) = match term.split_once(' ') {
                Some((number, variable)) => (number, variable.chars().next()),
                None if term.parse::<usize>().is_err() => ("1", term.chars().next()),
                None => (term, None),
            };
            let number: usize = number.parse().unwrap_or_else(|_| panic!("{:?} is no offset", cells[0]));
            match variable {
                Some(variable) => drop(steps.insert(variable, number)),
                None => at += number,
            }
        }
        Row { at, steps, kind: cells[1].to_owned(), words: cells[2].to_owned() }
    }

    /// The bytes of its type, of which a field before may have said how many; `None`: as many as there are.
    fn bytes(&self, counts: &BTreeMap<char, usize>) -> Option<usize> {
        match self.kind.as_str() {
            "u8" => Some(1),
            "u16" => Some(2),
            "u32" => Some(4),
            "u64" => Some(8),
            "id" | "key" => Some(16),
            "text" | "" => None,
            kind => {
                let of = |bytes: &str| bytes.parse().ok().or_else(|| counts.get(&bytes.parse().ok()?).copied());
                let bytes = kind.strip_suffix(" bytes").and_then(of);
                Some(bytes.unwrap_or_else(|| panic!("{kind:?} is no type")))
            }
        }
    }

    /// The variable that it counts: `fragments n` counts n.
    fn counts(&self) -> Option<char> {
        let (words, variable) = self.words.split(',').next()?.rsplit_once(' ')?;
        (!words.is_empty() && variable.len() == 1).then(|| variable.chars().next())?
    }

    /// The variable that runs from 0 to a count, and that count.
    fn runs(&self, counts: &BTreeMap<char, usize>) -> Option<(char, usize)> {
        let of = |variable, count: &[char]| {
            let count = count.iter().find_map(|count| counts.get(count));
            self.steps.contains_key(&variable).then(|| (variable, *count.expect("what it runs to is counted before")))
        };
        of('i', &['n']).or_else(|| of('j', &['e', 's']))
    }
}

/// The tables of the document, by the message (or `field` for the header) that they draw.
fn documented() -> BTreeMap<String, Vec<Row>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut tables = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("| at | type | ") else { continue };
        let name = rest.split(" |").next().unwrap_or_default().to_owned();
        let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
        let rows: Vec<Row> =
            rows.map(|row| Row::parse(&row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())).collect();
        assert!(tables.insert(name.clone(), rows).is_none(), "{name} is drawn twice");
    }
    tables
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A field as text: a number, an id or key by its parts, or a text with its length.
fn value(row: &Row, bytes: &[u8]) -> String {
    match row.kind.as_str() {
        "id" => format!("{:x}/{:x}/{:x}", number(&bytes[..4]), number(&bytes[8..]), number(&bytes[4..8])),
        "key" => {
            assert_eq!(number(&bytes[4..8]), 0, "the room in a key");
            format!("{:x}/{:x}", number(&bytes[..4]), number(&bytes[8..]))
        }
        text if text == "text" || text.ends_with(" bytes") && text.starts_with(char::is_lowercase) => {
            String::from_utf8(bytes.to_vec()).expect("text, also where any bytes may be")
        }
        "" => names(bytes, &row.words),
        "16 bytes" => String::from_utf8(bytes.to_vec()).expect("the store of the frames has such a UUID"),
        _ => format!("{:#x}", number(bytes)),
    }
}

/// Names with their lengths, before each a number and a kind where the words say so.
fn names(mut bytes: &[u8], words: &str) -> String {
    let heads = [("u64 ", 8), ("u8 node kind", 1)].into_iter().filter(|(word, _)| words.contains(word));
    let heads: Vec<usize> = heads.map(|(_, bytes)| bytes).collect();
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let mut fields = Vec::new();
        for head in &heads {
            let (field, rest) = bytes.split_at(*head);
            fields.push(number(field).to_string());
            bytes = rest;
        }
        let (name, rest) = bytes[1..].split_at(usize::from(bytes[0]));
        fields.push(str::from_utf8(name).expect("a name").to_owned());
        all.push(fields.join(" "));
        bytes = rest;
    }
    all.join(", ")
}

/// Reads the bytes as the rows say: the first words of each field with its value. Room for later is left out; it is 0.
fn read(name: &str, rows: &[Row], table: &[u8]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    let mut seen = vec![false; table.len()];
    let mut values = Vec::new();
    for row in rows {
        let run = row.runs(&counts);
        for index in 0..run.map_or(1, |(_, count)| count) {
            let step = |(variable, step): (&char, &usize)| match run {
                Some((running, _)) if running == *variable => step * index,
                _ => step * counts.get(variable).unwrap_or_else(|| panic!("{name}: {variable} is not counted before")),
            };
            let from = row.at + row.steps.iter().map(step).sum::<usize>();
            let to = row.bytes(&counts).map_or(table.len(), |bytes| from + bytes);
            assert!(to <= table.len(), "{name}: {:?} goes to {to} of {} bytes", row.words, table.len());
            for at in &mut seen[from..to] {
                assert!(!std::mem::replace(at, true), "{name}: {:?} lies on another field", row.words);
            }
            if row.words == "reserved" {
                assert!(table[from..to].iter().all(|byte| *byte == 0), "{name}: room for later is 0");
                continue;
            }
            if let Some(variable) = row.counts() {
                counts.insert(variable, number(&table[from..to]) as usize);
            }
            let words = row.words.split([',', ':', ';']).next().unwrap_or_default();
            values.push(format!("{words} = {}", value(row, &table[from..to])));
        }
    }
    let missing = seen.iter().position(|seen| !seen);
    assert_eq!(missing, None, "{name}: no field lies there");
    values
}

const KEY: &str = "1920/102030405060708";
const ID: &str = "1920/102030405060708/12345";
const KEY_2: &str = "1921/11121314";
const ID_2: &str = "1922/21222324/2345";

/// What the stored frame of a kind says, field by field.
fn expected(kind: Kind) -> Vec<String> {
    let frame_id = "1920/102030405060708/ffffffff";
    let text = match kind {
        Kind::Hello => "protocol version = 0x1|lane = 0x2|class = 0x2|bytes of the name = 0x8|name of the client = filter-1".to_owned(),
        Kind::HelloReply => "protocol version that is spoken = 0x1|lanes of the store = 0x4|lane of this connection = 0x2\
            |bit 0 = 0x1|UUID of the store = 0123456789abcdef|epoch = 0x7\
            |bytes of the largest fragment that the store takes = 0x100000\
            |bytes of the largest payload of a frame that the server takes = 0x400000|credit = 0x800000\
            |bytes of the server's name n = 0xd|name and version of the server = forebay 0.1.0|number of the socket for clients [on the same machine](#on-one-machine) = 0x102030405060708"
            .to_owned(),
        Kind::Put => format!(
            "fragments n = 0x2|fragment = {ID}|fragment = {frame_id}|bytes = 0xc|bytes = 0x3|CRC32C = 0x9b1a7b77\
             |CRC32C = 0x52d8b3a3|expected = 0x2|expected = 0x0"
        ),
        Kind::PutReply => "credit = 0x100000|busy_ms = 0x32|outcomes n = 0x2\
            |put outcome of fragment i = 0x0|put outcome of fragment i = 0x3"
            .to_owned(),
        Kind::Get => format!("fragments n = 0x2|fragment = {ID}|fragment = {ID_2}"),
        Kind::GetReply => "entries n = 0x2|index of the fragment in the Get = 0x1|index of the fragment in the Get = 0x0\
            |read outcome = 0x0|read outcome = 0x4|bytes in the payload = 0xc|bytes in the payload = 0x0\
            |CRC32C that the writer computed = 0x9b1a7b77|CRC32C that the writer computed = 0x0"
            .to_owned(),
        Kind::GetEvent => format!(
            "events n = 0x2|sources s = 0x2|bit 0 = 0x0|event = {KEY}|event = {KEY_2}|source = 0x12345|source = 0x2345"
        ),
        Kind::GetEventReply => "lines n = 0x2|entries e = 0x2|line = 0x6|line = 0x5|read outcome of the event = 0x0\
            |read outcome of the event = 0x2|event state = 0x2|event state = 0x4|expected fragments = 0x3|expected fragments = 0x708\
            |fragments that are stored = 0x2|fragments that are stored = 0x607|entry = 0x0|entry = 0x4|source = 0x12345|source = 0x2345\
            |read outcome of the fragment = 0x0|read outcome of the fragment = 0x4|bytes in the payload = 0x3|bytes in the payload = 0x0\
            |CRC32C that the writer computed = 0x52d8b3a3|CRC32C that the writer computed = 0xa0b"
            .to_owned(),
        Kind::Delete => format!("events n = 0x2|event = {KEY}|event = {KEY_2}"),
        Kind::Decide => "decisions n = 0x2|streams s = 0x2|run = 0x1920|run = 0x1|0 = 0x1|0 = 0x0|bit 0 = 0x1|bit 0 = 0x0\
            |event = 0x102030405060708|event = 0x2|bit j = 0x3|bit j = 0x0|s times = physics, debug"
            .to_owned(),
        Kind::Release => {
            format!("events n = 0x2|bytes of the stream's name = 0x7|event = {KEY}|event = {KEY_2}|stream = physics")
        }
        Kind::DecideReply => {
            "outcomes n = 0x2|decide outcome of event i = 0x0|decide outcome of event i = 0x2".to_owned()
        }
        Kind::Lease => "at most so many events = 0x64|duration = 0x7530|filter = 0x9|bit 0 = 0x1|run = 0x1920".to_owned(),
        Kind::LeaseReply => "events n = 0x2|ask again after so many ms if these were too few = 0x14\
            |events of this lane (and run) that are not decided = 0x4d|run = 0x1920|run = 0x1921\
            |fragments that are stored = 0x2|fragments that are stored = 0x7|event = 0x102030405060708|event = 0x11121314\
            |bytes of the fragments = 0x1000|bytes of the fragments = 0x1388|expected fragments = 0x3|expected fragments = 0x8\
            |attempt = 0x1|attempt = 0x9|bit 0 = 0x1|bit 0 = 0x0"
            .to_owned(),
        Kind::Accepted => {
            format!("at most so many events = 0x32|bit 0 = 0x1|bytes of the stream's name = 0x7|event = {KEY}|stream = physics")
        }
        Kind::AcceptedReply => format!(
            "events n = 0x2|bit 0 = 0x3|smallest undecided event of this lane = {KEY_2}|run = 0x1920|run = 0x1921|fragments = 0x3\
             |fragments = 0x4|event = 0x102030405060708|event = 0x11121314|bytes of the fragments = 0x2000\
             |bytes of the fragments = 0x2328|bit 0 = 0x1|bit 0 = 0x0"
        ),
        Kind::StreamsReply => "streams n = 0x2|n times = 6 physics, 7 debug".to_owned(),
        Kind::RunsReply => "runs n = 0x2|run = 0x1920|run = 0x1921|events = 0xa|events = 0x14|undecided events = 0x4\
            |undecided events = 0xe|finished events = 0x5|finished events = 0x6|smallest event that is not finished = 0x1\
            |smallest event that is not finished = 0x2|largest event that is not finished = 0xc|largest event that is not finished = 0x16"
            .to_owned(),
        Kind::StatusReply => "bytes of the payload = 0xb|CRC32C of the payload = 0xae0813df".to_owned(),
        Kind::Trace => format!("event = {KEY}"),
        Kind::Losses => "so many are left out = 0x64|at most so many = 0x32".to_owned(),
        Kind::InjectFault => "drive that is to fail = 0x3".to_owned(),
        Kind::ChangeDrive => "drive that is changed = 0x2|1 give it up = 0x3|bit 0 = 0x1|bytes of the path = 0x8\
            |where the new one is = /dev/sdx"
            .to_owned(),
        Kind::FileOpen => "file = 0x51525354|client = 0x7172737475767778|opening = 0x8182|bit 0 = 0x1".to_owned(),
        Kind::FileClose => "file = 0x51525354|client = 0x7172737475767778|opening = 0x8182".to_owned(),
        Kind::FileWrite => "file = 0x51525354|client = 0x7172737475767778|place = 0x91929394|opening = 0x8182\
            |bytes in the payload = 0xc|CRC32C = 0x9b1a7b77|bit 0 = 0x0|change of this client = 0x83848586|smallest change of this client that it waits for = 0x8788"
            .to_owned(),
        Kind::FileSet => format!("file = 0x51525354|client that has it open for writing = 0x7172737475767778|opening of this client = 0x8182|bit 0 = 0x3|length = 0x100000001|written last = {:#x}|change of this client = 0x83848586|smallest change of this client that it waits for = 0x8788", -2i64),
        Kind::FileSeal => "file = 0x51525354|client that has it open for writing = 0x7172737475767778|opening of this client = 0x8182|bit 0 = 0x1\
            |change of this client = 0x83848586|smallest change of this client that it waits for = 0x8788"
            .to_owned(),
        Kind::FileRead => "file = 0x51525354|place = 0x91929394|at most so many bytes = 0x2122".to_owned(),
        Kind::FileStat => "files n = 0x2|file = 0x51525354|file = 0x6162636465666768".to_owned(),
        Kind::NameLookup => "directory = 0x6162636465666768|bytes of the name n = 0x8|name = data.raw".to_owned(),
        Kind::NameList => "directory = 0x6162636465666768|at most so many names = 0x64|bytes of the name n = 0x5\
            |name behind which the list begins = calib"
            .to_owned(),
        Kind::ChangeName => "client = 0x7172737475767778|change of this client = 0xd1d2d3d4\
            |smallest change of this client that it waits for = 0xc1c2|what is changed = 0x1|bits = 0x0|mode = 0x1e9\
            |owner = 0x3e9|group = 0x3ea|node kind = 0x3|directory = 0x31323334|other number = 0x0|device = 0x103|written last = 0x0\
            |read last = 0x0|bytes of the name n = 0x8|bytes of the second name m = 0x9|name = data.raw|second name = ../runs/7"
            .to_owned(),
        Kind::FileReply => {
            "file outcome = 0x3|place where a write that was done begins = 0x91929394".to_owned()
        }
        Kind::FileReadReply => "read outcome = 0x0|bytes in the payload = 0x3|CRC32C of these bytes = 0x52d8b3a3".to_owned(),
        Kind::FileStatReply => format!(
            "files n = 0x2|read outcome = 0x0|read outcome = 0x1|bit 0 = 0x5|bit 0 = 0x2|CRC32C of the whole file = 0xa1a2a3a4\
             |CRC32C of the whole file = 0x0|adler32 of the whole file = 0xb1b2b3b4|adler32 of the whole file = 0x0\
             |length = 0xc1c2c3c4|length = 0x0|written last = {:#x}|written last = {:#x}",
            1_700_000_000_000_000_001i64, -3i64
        ),
        Kind::NodeReply => format!(
            "name outcome = 0x0|node kind = 0x3|mode = 0x1ff|owner = 0x3e9|group = 0x3ea|links = 0x3|number = 0x6162636465666768\
             |parent = 0x31323334|device = 0x103|changed last = {:#x}|written last = {:#x}|read last = {:#x}\
             |bytes of the target n = 0x9|target of a link = ../runs/7",
            1_700_000_000_000_000_002i64, 1_700_000_000_000_000_003i64, -4i64
        ),
        Kind::ListReply => "name outcome = 0x0|bit 0 = 0x1|names n = 0x2\
            |n times = 1364349780 1 data.raw, 7017280452245743464 2 runs"
            .to_owned(),
        Kind::Subscribe => "at most so many events = 0x64|so many of a million events = 0xc350|bit 0 = 0x3|bytes of the stream's name = 0x7\
            |run = 0x1920|start = 0x17|sequence = 0xe1e2e3e4|stream = physics"
            .to_owned(),
        Kind::SubscribeReply => "events n = 0x2|bit 0 = 0x1|start = 0x18|sequence = 0xf1f2\
            |events that were forgotten before they were looked at = 0x200000003|events that were wanted and are over = 0x5\
            |ask again after so many ms = 0x32|run = 0x1920|run = 0x1921|fragments = 0x3|fragments = 0x4|event = 0x102030405060708\
            |event = 0x11121314|bytes of the fragments = 0x2000|bytes of the fragments = 0x2328|bit 0 = 0x1|bit 0 = 0x0"
            .to_owned(),
        Kind::ChangeRun => "run = 0x1920|changes that the run had = 0x304|token = 0x171819202122|events that the run control counted = 0x5060708\
            |what is done = 0x3|bit 0 = 0x1|bytes of the name m = 0x3|bytes of the reason r = 0xc|ranges of sources n = 0x0\
            |ranges of counted sources s = 0x2|first source = 0x100|first source = 0x200|last source = 0x107|last source = 0x207\
            |fragments of each = 0x4142|fragments of each = 0x4344|who asks = kim|reason = beam is gone"
            .to_owned(),
        Kind::DefineStream => "token = 0x171819202122|versions that the stream had = 0x304|prescale = 0xa0b|length of a luminosity block = 0x3c\
            |priority = 0xc0d|where a luminosity block ends = 0x2|bit 0 = 0x1|ranges of sources n = 0x2|bytes of the stream's name m = 0x7|bytes of the person's name p = 0x3\
            |bytes of the format f = 0x3|bytes of the destination d = 0x18|first source = 0x100|first source = 0x120|last source = 0x10f|last source = 0x12f\
            |stream = physics|who asks = kim|format = mdf|destination = root://eos.example//data"
            .to_owned(),
        Kind::RunList => "bit 0 = 0x1|run = 0x1921|at most so many runs = 0x64".to_owned(),
        Kind::StreamList => "bytes of the stream's name m = 0x7|stream = physics".to_owned(),
        Kind::Error => "error code = 0x8|bit 0 = 0x1|bytes of the sentence = 0xa|what happened = Try again.".to_owned(),
        Kind::Streams | Kind::Runs | Kind::Status | Kind::Ping | Kind::Scrub | Kind::Done => return Vec::new(),
    };
    text.split('|').map(str::to_owned).collect()
}

#[test]
fn the_tables_of_the_document_read_what_the_code_writes() {
    let documented = documented();
    for (kind, bytes) in frames() {
        let table_bytes = number(&bytes[16..20]) as usize;
        let table = &bytes[HEADER_BYTES..HEADER_BYTES + table_bytes];
        let name = kind.name();
        let Some(rows) = documented.get(name) else {
            assert!(table.is_empty(), "{name} has a table, and docs/protocol.md draws none");
            continue;
        };
        assert_eq!(read(name, rows, table), expected(kind), "{name} in docs/protocol.md");
    }
    let is_kind = |name: &str| Kind::ALL.iter().any(|kind| kind.name() == name);
    let strangers: Vec<_> = documented.keys().filter(|name| *name != "field" && !is_kind(name)).collect();
    assert!(strangers.is_empty(), "docs/protocol.md draws what is no message: {strangers:?}");
}

#[test]
fn every_change_of_a_name_has_the_fields_that_are_drawn() {
    let rows = &documented()["ChangeName"];
    let make = "mode = 0x1e9|owner = 0x3e9|group = 0x3ea|node kind = 0x3|directory = 0x31323334|device = 0x103\
        |bytes of the name n = 0x8|bytes of the second name m = 0x9|name = data.raw|second name = ../runs/7";
    let rename = "directory = 0x31323334|other number = 0x41424344|bytes of the name n = 0x8|bytes of the second name m = 0x9\
        |name = data.raw|second name = ../runs/7";
    let set = format!(
        "bits = 0x1f|mode = 0x1a0|owner = 0x3eb|group = 0x3ec|other number = 0x41424344|written last = {:#x}|read last = {:#x}",
        -5i64, 1_700_000_000_000_000_006i64
    );
    let expected = [
        format!("what is changed = 0x1|{make}"),
        "what is changed = 0x2|directory = 0x31323334|other number = 0x41424344|bytes of the name n = 0x8|name = data.raw".to_owned(),
        "what is changed = 0x3|directory = 0x31323334|bytes of the name n = 0x8|name = data.raw".to_owned(),
        "what is changed = 0x4|directory = 0x31323334|bytes of the name n = 0x8|name = data.raw".to_owned(),
        format!("what is changed = 0x5|bits = 0x1|{rename}"),
        format!("what is changed = 0x5|{rename}"),
        format!("what is changed = 0x6|{set}"),
        format!("what is changed = 0x6|bits = 0x14|group = 0x3ed|other number = 0x41424344|read last = {:#x}", -7i64),
    ];
    let changes = name_changes();
    assert_eq!(changes.len(), expected.len());
    for ((name, what), expected) in changes.into_iter().zip(expected) {
        let bytes = frame(|to| ChangeName { client: 0, change: 0, waits_from: 0, what }.encode(1, to));
        let says_something = |value: &String| !value.ends_with(" = 0x0") && !value.ends_with(" = ");
        let values: Vec<_> = read(name, rows, &bytes[HEADER_BYTES..]).into_iter().filter(says_something).collect();
        assert_eq!(values.join("|"), expected, "{name}");
    }
}

#[test]
fn the_header_is_drawn_as_it_is() {
    let rows = &documented()["field"];
    let (_, bytes) = frames().into_iter().find(|(kind, _)| *kind == Kind::Put).expect("a put");
    let values = read("the header", rows, &bytes[..HEADER_BYTES]);
    assert_eq!(
        values,
        [
            "magic = 0x31594246",
            "kind = 0x2",
            "flags = 0x0",
            "request = 0x2",
            "table_bytes = 0x48",
            "payload_bytes = 0xf",
            "table_crc32c = 0x270116ea",
            "header_crc32c = 0xf695e087",
        ]
    );
}
