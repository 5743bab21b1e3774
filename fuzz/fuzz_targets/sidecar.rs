//! The description beside a file that was moved.
#![no_main]

use forebay_fuzz::bounded;
use forebay_mover::sidecar::Sidecar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // A number of one digit takes 16 bytes in a list of ranges, and a part of few bytes a hundred; the lists grow by doubling.
    let Ok(sidecar) = bounded(64 * input.len() + 4096, || Sidecar::parse(input)) else { return };
    let json = serde_json::to_vec(&sidecar).expect("text and numbers");
    assert_eq!(Sidecar::parse(&json).as_ref(), Ok(&sidecar));
    assert_eq!(sidecar.sums().bytes, sidecar.bytes);
    let keys: Vec<_> = sidecar.keys().take(1000).collect();
    let is_of_a_stream = sidecar.stream.is_some();
    assert!(!is_of_a_stream || keys.is_sorted());
    for (number, key) in keys.iter().enumerate() {
        let place = sidecar.place_of(*key).expect("it is there");
        assert!(if is_of_a_stream { place == number as u64 } else { place <= number as u64 });
    }
});
