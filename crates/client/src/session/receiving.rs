//! What arrives: frames, of which a large payload is received where it stays, so that it is not copied.

use std::time::Duration;

use bytes::Bytes;
use forebay_protocol::{Frame, FrameBuffer, FrameError, FrameHead};
use forebay_types::Time;
use forebay_types::limits::PIECE_BYTES_MAX;

use crate::blocks::{BLOCK_USE_BYTES_MIN, Block, Blocks};

/// Behind a large payload usually the head of another one follows: no more is read with it than it may have, so that what comes behind it goes where it stays.
const HEAD_READ_BYTES: usize = 4 << 10;

/// Blocks that nobody refers to are kept, at most so many: more than several files that are read ahead at once usually have. A session that nothing arrives for keeps what
/// it has.
const BLOCKS_MAX: usize = 64;

/// Blocks that were not needed for so long are given back when something arrives. Not at once when nothing is waited for: that is so after each answer for who asks for one
/// thing after the other.
const BLOCKS_KEPT: Duration = Duration::from_secs(1);

/// Memory of what is read of files.
pub(super) struct ReadBlocks {
    blocks: Blocks,
    gave_back: Time,
}

impl ReadBlocks {
    pub(super) fn new(now: Time) -> ReadBlocks {
        ReadBlocks { blocks: Blocks::new(PIECE_BYTES_MAX, BLOCKS_MAX), gave_back: now }
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Gives back what was not needed for a while.
    pub(super) fn give_back_unused(&mut self, now: Time) {
        if now.since(self.gave_back) >= BLOCKS_KEPT {
            self.gave_back = now;
            self.blocks.give_back_unused();
        }
    }
}

/// Bytes that arrived and are not taken.
#[derive(Default)]
pub(super) struct Receiving {
    buffer: FrameBuffer,
    large: Option<Large>,
    /// Whether a large payload came last, and nothing behind it.
    was_large: bool,
}

/// A frame whose payload fills a block.
struct Large {
    head: FrameHead,
    block: Block,
}

impl Large {
    fn missing(&self) -> usize {
        self.head.payload_bytes() - self.block.len()
    }
}

/// A frame that is here whole.
pub(super) enum Received<'a> {
    Small(Frame<'a>),
    Large(FrameHead, Bytes),
}

impl Receiving {
    /// Room to read into: `bytes` or more, unless fewer are best.
    pub(super) fn space(&mut self, bytes: usize) -> &mut [u8] {
        match &mut self.large {
            Some(large) => {
                let missing = large.missing();
                &mut large.block.rest()[..missing]
            }
            None if self.was_large => &mut self.buffer.spare(HEAD_READ_BYTES)[..HEAD_READ_BYTES],
            None => self.buffer.spare(bytes),
        }
    }

    /// That so many bytes were read into [`Receiving::space`].
    pub(super) fn filled(&mut self, bytes: usize) {
        match &mut self.large {
            Some(large) => large.block.fill(bytes),
            None => {
                self.buffer.filled(bytes);
                self.was_large = false;
            }
        }
    }

    /// Takes the next frame, or `None` when it has not arrived whole.
    ///
    /// # Errors
    /// Those of [`FrameBuffer::next_frame`].
    pub(super) fn next(&mut self, blocks: &Blocks) -> Result<Option<Received<'_>>, FrameError> {
        if self.large.is_none()
            && let Some((head, begun)) = self.buffer.next_head(BLOCK_USE_BYTES_MIN..=blocks.block_bytes())?
        {
            let mut block = blocks.take();
            block.extend(begun);
            self.large = Some(Large { head, block });
        }
        if let Some(large) = self.large.take_if(|large| large.missing() == 0) {
            self.was_large = true;
            return Ok(Some(Received::Large(large.head, large.block.share())));
        }
        if self.large.is_some() {
            return Ok(None);
        }
        Ok(self.buffer.next_frame()?.map(Received::Small))
    }

    /// Forgets all that arrived: the connection was lost.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        (self.large, self.was_large) = (None, false);
    }

    /// Gives memory back: [`FrameBuffer::shrink`].
    pub(super) fn shrink(&mut self, kept_bytes: usize) {
        self.buffer.shrink(kept_bytes);
    }
}
