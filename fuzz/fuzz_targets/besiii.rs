//! Files in the BESIII format: read with what stands around events, split, joined, renumbered.
#![no_main]

use forebay_fuzz::events::{check_event, check_file};
use forebay_fuzz::put_u32;
use forebay_rawdata::{Container, Format, RawEvent};
use forebay_types::RunId;
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 28;
const WORDS_AT: usize = 4;

fn check(event: &[u8]) {
    check_event(&RawEvent { format: Format::Besiii, key: Default::default(), bytes: event.to_vec() });
    // The event alone in a file.
    let (container, bytes) = (Container::new(Format::Besiii, RunId(5), 0), event.len() as u64);
    let file = [container.head(), container.before_event(0, bytes), event.to_vec(), container.tail(1, bytes)].concat();
    check_file(Format::Besiii, &file);
}

fuzz_target!(|input: &[u8]| {
    let _ = Format::detect(input);
    check_file(Format::Besiii, input);
    check(input);
    // One event that is as long as it says.
    if input.len() >= HEADER_BYTES {
        let mut event = input[..input.len() / 4 * 4].to_vec();
        let words = event.len() as u32 / 4;
        put_u32(&mut event, WORDS_AT, words);
        check(&event);
    }
});
