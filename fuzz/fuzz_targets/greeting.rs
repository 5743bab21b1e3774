//! The first frame of a connection, which comes in pieces from somebody who is not known: an input is how it is cut, the lanes of the
//! store, then the frame.
#![no_main]

use forebay_fuzz::{Parts, bounded, mend_frame};
use forebay_protocol::{ErrorReply, Hello, LANE_CONTROL, Message, PROTOCOL_VERSION};
use forebay_server::{Greeting, NotGreeted};
use libfuzzer_sys::fuzz_target;

/// What comes of it, and how many bytes were taken.
fn greet(mut bytes: &[u8], piece: usize, lanes: u16) -> (Result<Option<(Hello, u64)>, NotGreeted>, usize) {
    let (mut greeting, mut taken) = (Greeting::default(), 0);
    loop {
        let space = greeting.space();
        assert!(!space.is_empty(), "it is asked for as long as something is missing");
        let read = space.len().min(piece).min(bytes.len());
        if read == 0 {
            return (Ok(None), taken);
        }
        space[..read].copy_from_slice(&bytes[..read]);
        bytes = &bytes[read..];
        taken += read;
        match greeting.filled(read, lanes) {
            Ok(None) => {}
            end => return (end, taken),
        }
    }
}

fn check(bytes: &[u8], piece: usize, lanes: u16) {
    // The largest table of a greeting, once more for its name, and a sentence.
    let (end, taken) = bounded(32 << 10, || greet(bytes, piece, lanes));
    assert_eq!(greet(bytes, usize::MAX, lanes), (end.clone(), taken), "it does not depend on the pieces");
    match end {
        Ok(None) => assert_eq!(taken, bytes.len()),
        Ok(Some((hello, request))) => {
            assert_eq!(hello.protocol_version, PROTOCOL_VERSION);
            assert!(hello.lane < lanes || hello.lane == LANE_CONTROL);
            let mut again = Vec::new();
            hello.encode(request, &mut again);
            assert_eq!(greet(&again, usize::MAX, lanes).0, Ok(Some((hello, request))));
        }
        Err(refused) => {
            let mut table = Vec::new();
            refused.error.write_table(&mut table);
            assert_eq!(ErrorReply::read_table(&table), Ok(refused.error), "the answer can be sent whole");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::of(input);
    let (piece, lanes) = (usize::from(parts.byte()) + 1, u16::from(parts.byte() % 64) + 1);
    let bytes = parts.rest();
    check(bytes, piece, lanes);
    check(&mend_frame(bytes), piece, lanes);
});
