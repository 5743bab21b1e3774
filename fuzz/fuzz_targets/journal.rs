//! The journal of a recorder's directory: an input is its bytes; also as lines without their checksums.
#![no_main]

use forebay_fuzz::bounded;
use forebay_recorder::journal::{Ledger, Line, parse, write_header};
use forebay_types::crc32c;
use libfuzzer_sys::fuzz_target;

fn written(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_header(&mut bytes);
    lines.iter().for_each(|line| line.write(&mut bytes));
    bytes
}

fn check(bytes: &[u8]) {
    let Ok((lines, torn_bytes)) = bounded(64 * bytes.len() + 4096, || parse(bytes)) else { return };
    assert!(torn_bytes <= bytes.len());
    assert_eq!(parse(&written(&lines)), Ok((lines.clone(), 0)), "what was read is written and read again");
    let ledger = Ledger::new(lines);
    let everything = ledger.all_over();
    let rewritten = ledger.rewritten(&everything);
    assert_eq!(parse(&written(&rewritten)), Ok((rewritten.clone(), 0)), "a journal that is rewritten is one");
    assert_eq!(Ledger::new(rewritten), ledger, "rewriting a journal changes nothing of what it says");
}

fuzz_target!(|input: &[u8]| {
    check(input);
    // The checksum of each line as it is to be, where one stands and where none does.
    let mut bytes = Vec::new();
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        let (line, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |line| (line, &b"\n"[..]));
        let json = if line.get(8) == Some(&b' ') { &line[9..] } else { line };
        bytes.extend_from_slice(format!("{:08x} ", crc32c(json)).as_bytes());
        bytes.extend_from_slice(json);
        bytes.extend_from_slice(end);
    }
    check(&bytes);
});
