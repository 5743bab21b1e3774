//! Frames in a stream that arrives in pieces: an input is how the stream is cut, then the stream.
#![no_main]

use forebay_fuzz::{Parts, bounded, mend_frames};
use forebay_protocol::{Frame, FrameBuffer, FrameError, FrameHeader};
use libfuzzer_sys::fuzz_target;

/// What was found: frames, and those that were no frames but had an end.
type Found = Vec<Result<(FrameHeader, Vec<u8>, Vec<u8>), FrameError>>;

fn owned(frame: Frame<'_>) -> (FrameHeader, Vec<u8>, Vec<u8>) {
    assert_eq!(frame.header.frame_bytes(), forebay_protocol::HEADER_BYTES + frame.table.len() + frame.payload.len());
    assert_eq!(forebay_protocol::decode_header(&frame.header.encode()), Ok(frame.header));
    (frame.header, frame.table.to_vec(), frame.payload.to_vec())
}

/// As they lie one behind the other.
fn found_whole(mut stream: &[u8]) -> (Found, usize) {
    let mut found = Found::new();
    loop {
        let frame = match Frame::parse(stream) {
            Ok(None) => return (found, stream.len()),
            Ok(Some(frame)) => Ok(owned(frame)),
            Err(error) => Err(error),
        };
        let is_end = matches!(&frame, Err(error) if error.closes_connection());
        if !is_end {
            let header = forebay_protocol::decode_header(stream.first_chunk().expect("it was parsed"));
            stream = &stream[header.expect("sound").frame_bytes()..];
        }
        found.push(frame);
        if is_end {
            return (found, stream.len());
        }
    }
}

fn found_in_pieces(stream: &[u8], pieces: &[u8]) -> (Found, usize) {
    let (mut buffer, mut found) = (FrameBuffer::new(), Found::new());
    let mut pieces = pieces.iter().map(|piece| usize::from(*piece) + 1).cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let piece = pieces.next().unwrap_or(usize::MAX).min(rest.len());
        let (arrived, behind) = rest.split_at(piece);
        buffer.extend(arrived);
        rest = behind;
        loop {
            match buffer.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => found.push(Ok(owned(frame))),
                Err(error) => {
                    let is_end = error.closes_connection();
                    found.push(Err(error));
                    if is_end {
                        return (found, buffer.len() + rest.len());
                    }
                }
            }
        }
    }
    (found, buffer.len())
}

/// In pieces, where payloads that have not arrived whole go elsewhere.
fn found_with_payloads_elsewhere(stream: &[u8], pieces: &[u8]) -> (Found, usize) {
    let (mut buffer, mut found) = (FrameBuffer::new(), Found::new());
    let mut pieces = pieces.iter().map(|piece| usize::from(*piece) + 1).cycle();
    let mut rest = stream;
    loop {
        let left = buffer.len() + rest.len();
        let head = match buffer.next_head(0..=usize::MAX) {
            Ok(head) => head.map(|(head, begun)| (head, begun.to_vec())),
            Err(_) => None, // which the next frame says once more
        };
        if let Some((head, mut payload)) = head {
            let Some((more, behind)) = rest.split_at_checked(head.payload_bytes() - payload.len()) else {
                return (found, left);
            };
            payload.extend_from_slice(more);
            rest = behind;
            found.push(head.with_payload(&payload).map(owned));
            continue;
        }
        match buffer.next_frame() {
            Ok(None) if rest.is_empty() => return (found, left),
            Ok(None) => {
                let (arrived, behind) = rest.split_at(pieces.next().unwrap_or(usize::MAX).min(rest.len()));
                buffer.extend(arrived);
                rest = behind;
            }
            Ok(Some(frame)) => found.push(Ok(owned(frame))),
            Err(error) => {
                let is_end = error.closes_connection();
                found.push(Err(error));
                if is_end {
                    return (found, left);
                }
            }
        }
    }
}

fn check(stream: &[u8], pieces: &[u8]) {
    let whole = found_whole(stream);
    // The buffer, what is found, and room to grow.
    let in_pieces = bounded(64 * stream.len() + 4096, || found_in_pieces(stream, pieces));
    assert_eq!(in_pieces, whole, "what is found does not depend on the pieces");
    assert_eq!(found_with_payloads_elsewhere(stream, pieces), whole, "nor on where payloads go");
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::of(input);
    let pieces = parts.bytes(4);
    let mut stream = parts.rest().to_vec();
    check(&stream, pieces);
    mend_frames(&mut stream);
    check(&stream, pieces);
});
