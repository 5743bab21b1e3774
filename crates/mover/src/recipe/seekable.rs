//! Zstandard in its seekable format: frames that stand alone, each with its checksum, and behind them a table of their lengths in a frame that others skip.
//!
//! Every program that reads Zstandard reads it. The bytes are the same for the same level and version of the library.

use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

use crate::custody::SourceAnswer;
use crate::endpoint::Content;

/// A frame holds so much of the input, but for the last.
pub(super) const FRAME_BYTES: usize = 4 << 20;
/// What is in a frame that readers skip; the last digit is chosen by the seekable format.
const SKIPPABLE: u32 = 0x184D_2A5E;
/// The table ends in it.
const SEEKABLE: u32 = 0x8F92_EAB1;

/// Compresses what it is fed.
pub(super) struct Seekable {
    compressor: Compressor<'static>,
    /// Of the frame that is filled.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Compressed and other length of each frame, bytes.
    frames: Vec<(u32, u32)>,
}

impl Seekable {
    pub(super) fn new(level: i32) -> Result<Seekable, SourceAnswer> {
        let mut compressor = Compressor::new(level).map_err(failed)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true)).map_err(failed)?;
        Ok(Seekable { compressor, input: Vec::new(), output: Vec::new(), frames: Vec::new() })
    }

    /// Takes bytes until a frame is full, or all of them: the frame, if there is one.
    pub(super) fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<&[u8]>, SourceAnswer> {
        let (taken, rest) = bytes.split_at(bytes.len().min(FRAME_BYTES - self.input.len()));
        self.input.extend_from_slice(taken);
        *bytes = rest;
        if self.input.len() < FRAME_BYTES {
            return Ok(None);
        }
        self.output.clear();
        self.end_frame()?;
        Ok(Some(&self.output))
    }

    /// What comes behind all that was fed: the last frame, and the table.
    pub(super) fn end(&mut self) -> Result<&[u8], SourceAnswer> {
        self.output.clear();
        // Of nothing there is one frame, too.
        if !self.input.is_empty() || self.frames.is_empty() {
            self.end_frame()?;
        }
        let table_bytes = u32::try_from(8 * self.frames.len() + 9).map_err(|_| {
            SourceAnswer::Damaged(
                "it is too large for the table of a compressed file: move it without --zstd".to_owned(),
            )
        })?;
        let mut table: Vec<u32> = vec![SKIPPABLE, table_bytes];
        table.extend(self.frames.iter().flat_map(|(compressed, other)| [*compressed, *other]));
        table.push(self.frames.len() as u32);
        self.output.extend(table.into_iter().flat_map(u32::to_le_bytes));
        // The table has no checksums: the frames have them.
        self.output.push(0);
        self.output.extend(SEEKABLE.to_le_bytes());
        Ok(&self.output)
    }

    fn end_frame(&mut self) -> Result<(), SourceAnswer> {
        self.output.reserve(compress_bound(self.input.len()));
        let compressed = self.compressor.compress_to_buffer(&self.input, &mut self.output).map_err(failed)?;
        assert_eq!(compressed, self.output.len(), "a frame is all that was written");
        let of = |bytes: usize| u32::try_from(bytes).expect("a frame is small");
        self.frames.push((of(compressed), of(self.input.len())));
        self.input.clear();
        Ok(())
    }
}

/// Of bytes in memory only memory can be missing.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn failed(error: io::Error) -> SourceAnswer {
    SourceAnswer::NotNow(format!("compress with zstd: {error}"))
}

/// Content that is compressed as it is read.
pub(super) struct Compressed<C> {
    content: C,
    level: i32,
    /// Nothing before the first block, and none at its end.
    seekable: Option<Seekable>,
    /// Of the content's block, that were taken.
    taken_bytes: usize,
    block: Vec<u8>,
    is_over: bool,
}

impl<C: Content> Compressed<C> {
    pub(super) fn new(content: C, level: i32) -> Compressed<C> {
        Compressed { content, level, seekable: None, taken_bytes: 0, block: Vec::new(), is_over: false }
    }
}

impl<C: Content> Content for Compressed<C> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block.clear();
        if self.is_over {
            return Ok(false);
        }
        let seekable = match &mut self.seekable {
            Some(seekable) => seekable,
            none => none.insert(Seekable::new(self.level)?),
        };
        loop {
            let block = self.content.block();
            let mut left = &block[self.taken_bytes..];
            while !left.is_empty() {
                let frame = seekable.feed(&mut left)?;
                self.taken_bytes = block.len() - left.len();
                if let Some(frame) = frame {
                    self.block.extend_from_slice(frame);
                    return Ok(true);
                }
            }
            self.taken_bytes = 0;
            if !self.content.refill()? {
                self.block.extend_from_slice(seekable.end()?);
                (self.seekable, self.is_over) = (None, true);
                return Ok(true);
            }
        }
    }

    fn block(&self) -> &[u8] {
        &self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in blocks of some length.
    struct Blocks {
        bytes: Vec<u8>,
        given: usize,
        block: std::ops::Range<usize>,
        block_bytes: usize,
    }

    impl Content for Blocks {
        fn refill(&mut self) -> Result<bool, SourceAnswer> {
            let end = (self.given + self.block_bytes).min(self.bytes.len());
            self.block = self.given..end;
            self.given = end;
            Ok(!self.block.is_empty())
        }

        fn block(&self) -> &[u8] {
            &self.bytes[self.block.clone()]
        }
    }

    fn compressed(bytes: &[u8], block_bytes: usize, level: i32) -> Vec<u8> {
        let content = Blocks { bytes: bytes.to_vec(), given: 0, block: 0..0, block_bytes };
        let (mut content, mut whole) = (Compressed::new(content, level), Vec::new());
        while let Some(block) = content.next_block().expect("memory suffices") {
            whole.extend_from_slice(block);
        }
        whole
    }

    /// Compresses well, and has no end of its own.
    fn text(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b"abcdefgh"[(state >> 61) as usize]
        })
        .take(bytes)
        .collect()
    }

    fn u32_at(bytes: &[u8], at: usize) -> usize {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize
    }

    #[test]
    fn each_frame_stands_alone_and_the_table_says_where_it_is() {
        for bytes in [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES + 12_345] {
            let original = text(bytes);
            let whole = compressed(&original, 1 << 20, 3);
            // As the format describes it, from its end.
            let footer = whole.len() - 9;
            let frames = u32_at(&whole, footer);
            assert_eq!((frames, whole[footer + 4]), (bytes.div_ceil(FRAME_BYTES).max(1), 0));
            assert_eq!(u32_at(&whole, footer + 5), 0x8F92_EAB1);
            let table = footer - 8 * frames;
            assert_eq!((u32_at(&whole, table - 8), u32_at(&whole, table - 4)), (0x184D_2A5E, 8 * frames + 9));
            let (mut at, mut read) = (0, 0);
            for frame in 0..frames {
                let (length, other) = (u32_at(&whole, table + 8 * frame), u32_at(&whole, table + 8 * frame + 4));
                let one = zstd::bulk::decompress(&whole[at..at + length], FRAME_BYTES).expect("a frame");
                assert!(other <= FRAME_BYTES && one.len() == other && one == original[read..read + other], "{bytes}");
                (at, read) = (at + length, read + other);
            }
            assert_eq!((at, read), (table - 8, bytes), "frames, and the table behind them");
            assert!(bytes < 1000 || whole.len() < bytes / 2, "{bytes} bytes became {}", whole.len());
        }
    }

    #[test]
    fn blocks_make_no_difference_and_levels_do() {
        let original = text(FRAME_BYTES + 100_000);
        let whole = compressed(&original, 1 << 20, 3);
        assert!(whole == compressed(&original, 77_777, 3) && whole == compressed(&original, usize::MAX >> 1, 3));
        assert_ne!(whole.len(), compressed(&original, 1 << 20, 1).len());
    }
}
