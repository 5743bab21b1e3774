//! Files of events that could not be put together.
#![no_main]

use forebay_fuzz::bounded;
use forebay_mover::events::parts::{PartsReader, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The bytes of an event, again as its parts, and a list of those.
    let (mut events, mut is_damaged) = (Vec::new(), false);
    bounded(10 * input.len() + 4096, || {
        for event in PartsReader::new(input) {
            match event {
                Ok(event) => events.push(event),
                Err(_) => is_damaged = true,
            }
        }
    });
    let mut read_bytes = 0;
    for (key, parts) in &events {
        let bytes = encode(*key, parts.iter().map(|part| (part.source, part.outcome, part.bytes.as_slice())));
        read_bytes += bytes.len();
        let again: Vec<_> = PartsReader::new(&bytes[..]).collect();
        assert_eq!(again, [Ok((*key, parts.clone()))]);
    }
    assert!(read_bytes <= input.len());
    assert!(is_damaged || read_bytes == input.len(), "nothing is left out in silence");
});
