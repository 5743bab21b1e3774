//! The owner file of a store of shared files: what it says is given to a fencing command.
#![no_main]

use forebay_fuzz::bounded;
use forebay_ownership::Holder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(holder) = bounded(8 * input.len() + 4096, || Holder::decode(input)) else { return };
    assert!(holder.pid() > 1 && i32::try_from(holder.pid()).is_ok(), "a process that may be killed");
    let host = holder.host();
    assert!(!host.is_empty() && !host.starts_with('-') && host.bytes().all(|byte| byte.is_ascii_graphic()), "{host:?}");
    let again = Holder::decode(&holder.encode()).expect("what is written is an owner file");
    assert_eq!(again.encode(), holder.encode(), "and says the same");
});
