//! The file of hashes that the emulators keep.
#![no_main]

use forebay_emulators::{EventHash, HashLedger, LedgerFile};
use forebay_fuzz::{bounded, file_of};
use forebay_types::EventKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let path = file_of(&[(0, input)], input.len() as u64);
    // The buffer of the reader, and a table that grows by doubling.
    let loaded = bounded(32 * input.len() + (64 << 10), || HashLedger::load(&path));
    let new = (EventKey::new(u32::MAX, u64::MAX), EventHash::of(input));
    let opened = LedgerFile::open(&path).map(|mut file| file.add(new.0, new.1).and_then(|()| file.flush()));
    let bytes = std::fs::read(&path).expect("the file");
    match opened {
        Err(_) => assert_eq!(bytes, input, "a file that is no ledger is left as it is"),
        Ok(added) => {
            added.expect("added");
            assert!(bytes.len() > input.len().saturating_sub(128), "only a torn line is cut off");
            // Only its first and its last line are looked at when it is continued.
            if let Ok(loaded) = loaded {
                let again = HashLedger::load(&path).expect("a ledger that was continued");
                assert_eq!(again.get(new.0), Some(new.1));
                for key in loaded.keys().into_iter().filter(|key| *key != new.0) {
                    assert_eq!(again.get(key), loaded.get(key));
                }
            }
        }
    }
});
