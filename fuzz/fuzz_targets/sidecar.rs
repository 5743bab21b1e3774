//! The description beside a recorded file.
#![no_main]

use forebay_fuzz::bounded;
use forebay_recorder::Sidecar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // A number of one digit takes 16 bytes in a list of ranges, and the list grows by doubling.
    let Ok(sidecar) = bounded(32 * input.len() + 4096, || Sidecar::parse(input)) else { return };
    let json = sidecar.to_json();
    assert_eq!(Sidecar::parse(&json).as_ref(), Ok(&sidecar));
    assert_eq!(sidecar.file_name().to_string(), sidecar.file);
    assert_eq!(sidecar.digest().bytes, sidecar.size);
    let keys: Vec<_> = sidecar.keys().take(1000).collect();
    assert!(keys.is_sorted() && keys.len() as u64 == sidecar.events.min(1000));
    assert_eq!(keys[0].event, sidecar.first_event);
});
