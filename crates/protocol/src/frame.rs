//! Frames: 32 bytes of header, a table, a payload.

use std::ops::RangeInclusive;

use forebay_types::crc32c;

use crate::error::FrameError;
use crate::kind::Kind;
use crate::limits::{FRAME_PAYLOAD_BYTES_MAX, FRAME_TABLE_BYTES_MAX};

/// The first four bytes of a frame: `FBY1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FBY1");

/// Bytes of the header of a frame.
pub const HEADER_BYTES: usize = 32;

/// More frames that answer the same request follow.
pub const FLAG_MORE: u16 = 1;

/// The flags that change how a frame is read; a reader that does not know one of them refuses the
/// frame. It ignores the others.
const FLAGS_TO_UNDERSTAND: u16 = 0x00FF;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The number of the kind, which may be one that this version does not know ([`Kind::from_code`]).
    pub kind: u16,
    /// [`FLAG_MORE`] and those to come.
    pub flags: u16,
    /// The request that it is, or that it answers; 0 answers none.
    pub request: u64,
    /// Bytes of the table that follows.
    pub table_bytes: u32,
    /// Bytes of the payload that follows the table.
    pub payload_bytes: u32,
    /// CRC32C of the table.
    pub table_crc32c: u32,
}

impl FrameHeader {
    /// Bytes of the whole frame, header included.
    pub const fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.table_bytes as usize + self.payload_bytes as usize
    }

    /// Whether more frames that answer the same request follow.
    pub const fn more(&self) -> bool {
        self.flags & FLAG_MORE != 0
    }

    /// The 32 bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.table_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.table_crc32c.to_le_bytes());
        let crc = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Reads a header. What it announces is within the limits when this succeeds.
pub fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if u32_at(0) != MAGIC {
        return Err(FrameError::BadMagic { found: u32_at(0) });
    }
    let (expected, found) = (u32_at(28), crc32c(&bytes[..28]));
    if expected != found {
        return Err(FrameError::HeaderChecksum { expected, found });
    }
    let header = FrameHeader {
        kind: u16_at(4),
        flags: u16_at(6),
        request: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
        table_bytes: u32_at(16),
        payload_bytes: u32_at(20),
        table_crc32c: u32_at(24),
    };
    for (part, bytes, max) in [
        ("table", header.table_bytes, FRAME_TABLE_BYTES_MAX),
        ("payload", header.payload_bytes, FRAME_PAYLOAD_BYTES_MAX),
    ] {
        if bytes as usize > max {
            return Err(FrameError::TooLarge { request: header.request, part, bytes, max });
        }
    }
    Ok(header)
}

/// Appends a header and a table to `into`, for a payload of `payload_bytes` that the caller sends from
/// where it lies.
///
/// # Panics
/// When table or payload exceed the limits: senders cut their lists.
pub fn encode_head(kind: Kind, flags: u16, request: u64, table: &[u8], payload_bytes: usize, into: &mut Vec<u8>) {
    assert!(table.len() <= FRAME_TABLE_BYTES_MAX, "a table of {} bytes exceeds a frame", table.len());
    assert!(payload_bytes <= FRAME_PAYLOAD_BYTES_MAX, "a payload of {payload_bytes} bytes exceeds a frame");
    let header = FrameHeader {
        kind: kind.code(),
        flags,
        request,
        table_bytes: table.len() as u32,
        payload_bytes: payload_bytes as u32,
        table_crc32c: crc32c(table),
    };
    into.reserve(HEADER_BYTES + table.len());
    into.extend_from_slice(&header.encode());
    into.extend_from_slice(table);
}

/// Appends a whole frame to `into`; its payload is the concatenation of `payload`.
///
/// # Panics
/// When table or payload exceed the limits: senders cut their lists.
pub fn encode_frame(kind: Kind, flags: u16, request: u64, table: &[u8], payload: &[&[u8]], into: &mut Vec<u8>) {
    let payload_bytes = payload.iter().map(|piece| piece.len()).sum();
    encode_head(kind, flags, request, table, payload_bytes, into);
    into.reserve(payload_bytes);
    for piece in payload {
        into.extend_from_slice(piece);
    }
}

/// A whole frame, borrowed. The checksum of its table is right; those of its payload are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: FrameHeader,
    /// The table.
    pub table: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, or `None` when it has not arrived whole. It has
    /// [`FrameHeader::frame_bytes`] bytes.
    ///
    /// # Errors
    /// After [`FrameError::TableChecksum`] and [`FrameError::UnknownFlags`] the next frame can still be
    /// found: see [`FrameError::closes_connection`].
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = decode_header(header)?;
        let Some((table, rest)) = rest.split_at_checked(header.table_bytes as usize) else { return Ok(None) };
        let Some(payload) = rest.get(..header.payload_bytes as usize) else { return Ok(None) };
        check_sound(&header, table)?;
        Ok(Some(Frame { header, table, payload }))
    }

    /// The kind, if this version knows it.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_code(self.header.kind)
    }
}

fn check_sound(header: &FrameHeader, table: &[u8]) -> Result<(), FrameError> {
    let request = header.request;
    if header.flags & FLAGS_TO_UNDERSTAND & !FLAG_MORE != 0 {
        return Err(FrameError::UnknownFlags { request, flags: header.flags });
    }
    let (expected, found) = (header.table_crc32c, crc32c(table));
    if expected != found {
        return Err(FrameError::TableChecksum { request, expected, found });
    }
    Ok(())
}

/// A frame without its payload, which the caller receives where it is to stay ([`FrameBuffer::next_head`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHead {
    header: FrameHeader,
    table: Vec<u8>,
}

impl FrameHead {
    /// Bytes of the payload.
    pub const fn payload_bytes(&self) -> usize {
        self.header.payload_bytes as usize
    }

    /// The whole frame.
    ///
    /// # Errors
    /// Those after which the next frame can be found, as of [`Frame::parse`].
    ///
    /// # Panics
    /// When the payload has other than [`FrameHead::payload_bytes`].
    pub fn with_payload<'a>(&'a self, payload: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        assert_eq!(payload.len(), self.payload_bytes(), "a frame has the payload that it announced");
        check_sound(&self.header, &self.table)?;
        Ok(Frame { header: self.header, table: &self.table, payload })
    }
}

/// Finds frames in bytes that arrive in pieces.
///
/// Bytes are read straight into [`FrameBuffer::spare`], then [`FrameBuffer::filled`] says how many
/// came. It grows with what arrives and never by what a header merely announces.
#[derive(Default)]
pub struct FrameBuffer {
    /// Initialised over its whole length, so that reading into it needs no clearing.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameBuffer {
    /// An empty one.
    pub fn new() -> Self {
        FrameBuffer::default()
    }

    /// Room for at least `bytes` more, to read into.
    pub fn spare(&mut self, bytes: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < bytes && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < bytes {
            let wanted = (self.end + bytes).max(self.bytes.len().saturating_mul(2));
            self.bytes.resize(wanted, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// That `bytes` of [`FrameBuffer::spare`] were filled.
    ///
    /// # Panics
    /// When that is more than there was room for.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes.len() - self.end, "{bytes} bytes cannot have been read into less");
        self.end += bytes;
    }

    /// Adds bytes that lie elsewhere.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.spare(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Forgets all that arrived: the connection was lost.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Gives the memory back that large frames took, if it is more than `kept_bytes` and all that arrived is
    /// taken: for connections that have gone quiet.
    pub fn shrink(&mut self, kept_bytes: usize) {
        if self.is_empty() && self.bytes.capacity() > kept_bytes {
            *self = FrameBuffer::default();
        }
    }

    /// Bytes that arrived and are not taken.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether all that arrived is taken.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The header of the next frame, if that much of it has arrived.
    pub fn peek_header(&self) -> Result<Option<FrameHeader>, FrameError> {
        self.bytes[self.start..self.end].first_chunk::<HEADER_BYTES>().map(decode_header).transpose()
    }

    /// Takes the head of the next frame, and the bytes that are here of its payload, when that has so many bytes, and some have not arrived: the rest of them come next.
    ///
    /// # Errors
    /// Those after which nothing more can be taken.
    pub fn next_head(
        &mut self,
        payload_bytes: RangeInclusive<usize>,
    ) -> Result<Option<(FrameHead, &[u8])>, FrameError> {
        let Some(header) = self.peek_header()? else { return Ok(None) };
        let head_bytes = HEADER_BYTES + header.table_bytes as usize;
        let is_begun = (head_bytes..header.frame_bytes()).contains(&self.len());
        if !is_begun || !payload_bytes.contains(&(header.payload_bytes as usize)) {
            return Ok(None);
        }
        let (head, payload) = self.bytes[self.start..self.end].split_at(head_bytes);
        self.start = self.end;
        Ok(Some((FrameHead { header, table: head[HEADER_BYTES..].to_vec() }, payload)))
    }

    /// Takes the next frame, or `None` when it has not arrived whole.
    ///
    /// # Errors
    /// A frame whose header is sound but whose table or flags are not is taken too, so that the next
    /// call goes on behind it. After an error that [`FrameError::closes_connection`] nothing more can
    /// be taken.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some(header) = self.peek_header()? else { return Ok(None) };
        if self.len() < header.frame_bytes() {
            return Ok(None);
        }
        let from = self.start;
        self.start += header.frame_bytes();
        Frame::parse(&self.bytes[from..self.start])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_frame(Kind::Put, 0, 0x0102_0304_0506_0708, b"a table", &[b"pay", b"", b"load"], &mut bytes);
        bytes
    }

    #[test]
    fn every_flipped_bit_of_header_or_table_is_noticed() {
        let whole = sample();
        assert!(Frame::parse(&whole).expect("sound").is_some());
        for bit in 0..(HEADER_BYTES + 7) * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Frame::parse(&bytes).expect_err("damaged");
            assert_eq!(error.closes_connection(), bit < HEADER_BYTES * 8, "bit {bit}: {error}");
        }
    }

    #[test]
    fn frames_are_found_whatever_the_pieces() {
        let whole = [sample(), sample(), sample()].concat();
        for piece in 1..whole.len() {
            let mut buffer = FrameBuffer::new();
            let mut found = 0;
            for part in whole.chunks(piece) {
                buffer.extend(part);
                while let Some(frame) = buffer.next_frame().expect("sound") {
                    assert_eq!(
                        (frame.kind(), frame.table, frame.payload),
                        (Some(Kind::Put), &b"a table"[..], &b"payload"[..])
                    );
                    found += 1;
                }
            }
            assert_eq!((found, buffer.is_empty()), (3, true), "pieces of {piece}");
            buffer.shrink(usize::MAX);
            assert_ne!(buffer.bytes.capacity(), 0);
            buffer.shrink(0);
            assert_eq!(buffer.bytes.capacity(), 0);
        }
    }

    #[test]
    fn a_payload_is_received_elsewhere_when_some_of_it_is_missing() {
        let (whole, table_end) = (sample(), HEADER_BYTES + b"a table".len());
        for arrived in 0..=whole.len() {
            let mut buffer = FrameBuffer::new();
            buffer.extend(&whole[..arrived]);
            assert_eq!(buffer.next_head(8..=100), Ok(None), "it has seven bytes");
            let head = buffer.next_head(7..=7).expect("sound").map(|(head, begun)| (head, begun.to_vec()));
            assert_eq!(head.is_some(), (table_end..whole.len()).contains(&arrived), "{arrived} bytes arrived");
            let Some((mut head, mut payload)) = head else {
                assert_eq!(buffer.next_frame().expect("sound").is_some(), arrived == whole.len());
                continue;
            };
            assert!(buffer.is_empty() && head.payload_bytes() == 7);
            payload.extend_from_slice(&whole[arrived..]);
            assert_eq!(head.with_payload(&payload), Frame::parse(&whole).map(|frame| frame.expect("whole")));
            head.table[0] ^= 1;
            assert!(matches!(head.with_payload(&payload), Err(FrameError::TableChecksum { .. })));
        }
    }

    #[test]
    fn the_frame_behind_a_damaged_table_is_found() {
        let mut bytes = sample();
        bytes[HEADER_BYTES] ^= 1;
        let mut buffer = FrameBuffer::new();
        buffer.extend(&bytes);
        buffer.extend(&sample());
        let error = buffer.next_frame().expect_err("damaged");
        assert_eq!(error.request(), Some(0x0102_0304_0506_0708));
        assert!(buffer.next_frame().expect("sound").is_some());
    }

    #[test]
    fn what_a_header_announces_is_not_reserved() {
        let header = FrameHeader {
            kind: Kind::Put.code(),
            flags: 0,
            request: 1,
            table_bytes: FRAME_TABLE_BYTES_MAX as u32,
            payload_bytes: FRAME_PAYLOAD_BYTES_MAX as u32,
            table_crc32c: 0,
        };
        let mut buffer = FrameBuffer::new();
        buffer.extend(&header.encode());
        assert_eq!(buffer.next_frame(), Ok(None));
        assert!(buffer.bytes.len() <= 4 * HEADER_BYTES);
        let too_large = FrameHeader { payload_bytes: FRAME_PAYLOAD_BYTES_MAX as u32 + 1, ..header };
        let error = decode_header(&too_large.encode()).expect_err("too large");
        assert!(matches!(error, FrameError::TooLarge { part: "payload", .. }) && error.closes_connection());
    }
}
