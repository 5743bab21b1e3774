//! Frames whose checksums are put right.

use forebay_protocol::limits::{FRAME_PAYLOAD_BYTES_MAX, FRAME_TABLE_BYTES_MAX};
use forebay_protocol::{HEADER_BYTES, MAGIC};
use forebay_types::crc32c;

use crate::{padded, put_u32, u32_at};

/// Puts right the magic and both checksums of a frame whose table is as long as its header says.
fn seal_frame(frame: &mut [u8]) {
    let table_bytes = u32_at(frame, 16) as usize;
    let crc = crc32c(&frame[HEADER_BYTES..][..table_bytes]);
    put_u32(frame, 0, MAGIC);
    put_u32(frame, 24, crc);
    let crc = crc32c(&frame[..28]);
    put_u32(frame, 28, crc);
}

/// One whole frame of `bytes`: its header says that the table is as long as it said, or as there are bytes, and that what is left is
/// the payload.
pub fn mend_frame(bytes: &[u8]) -> Vec<u8> {
    let mut frame = padded(bytes, bytes.len().clamp(HEADER_BYTES, HEADER_BYTES + FRAME_TABLE_BYTES_MAX));
    let rest = frame.len() - HEADER_BYTES;
    let table_bytes = (u32_at(&frame, 16) as usize).min(rest);
    put_u32(&mut frame, 16, table_bytes as u32);
    put_u32(&mut frame, 20, (rest - table_bytes) as u32);
    seal_frame(&mut frame);
    frame
}

/// Frames one behind the other, as long as their headers say; what is behind the last whole one stays as it is, with a sound header if
/// it has that much.
pub fn mend_frames(stream: &mut [u8]) {
    let mut at = 0;
    while stream.len() - at >= HEADER_BYTES {
        let rest = &mut stream[at..];
        let available = rest.len() - HEADER_BYTES;
        let table_bytes = (u32_at(rest, 16) as usize).min(FRAME_TABLE_BYTES_MAX);
        let payload_bytes = (u32_at(rest, 20) as usize).min(FRAME_PAYLOAD_BYTES_MAX);
        put_u32(rest, 16, table_bytes.min(available) as u32);
        put_u32(rest, 20, payload_bytes as u32);
        seal_frame(rest);
        at += (HEADER_BYTES + table_bytes.min(available) + payload_bytes).min(rest.len());
    }
}
