//! The memory of a piece that fills.

use bytes::{Bytes, BytesMut};

use crate::blocks::{BLOCK_USE_BYTES_MIN, Block, Blocks};

/// Few bytes have memory of their own, more a block: such memory is used again, and a server on this machine takes it without its being sent.
pub(super) enum Filling {
    Few(BytesMut),
    Block(Block),
}

impl Default for Filling {
    fn default() -> Filling {
        Filling::Few(BytesMut::new())
    }
}

impl Filling {
    /// For about so many bytes.
    pub(super) fn of(bytes: usize, blocks: &Blocks) -> Filling {
        if is_for_block(bytes, blocks) {
            Filling::Block(blocks.take())
        } else {
            Filling::Few(BytesMut::with_capacity(bytes))
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Filling::Few(bytes) => bytes.len(),
            Filling::Block(block) => block.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes, of which a piece has no more than a block.
    pub(super) fn extend(&mut self, more: &[u8], blocks: &Blocks) {
        if let Filling::Few(bytes) = self
            && is_for_block(bytes.len() + more.len(), blocks)
        {
            let mut block = blocks.take();
            block.extend(bytes);
            *self = Filling::Block(block);
        }
        match self {
            Filling::Few(bytes) => bytes.extend_from_slice(more),
            Filling::Block(block) => block.extend(more),
        }
    }

    /// Writes over what is there.
    pub(super) fn write_over(&mut self, at: usize, bytes: &[u8]) {
        let filled = match self {
            Filling::Few(filled) => &mut filled[..],
            Filling::Block(block) => block.filled_mut(),
        };
        filled[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes; it is empty then.
    pub(super) fn take(&mut self) -> Bytes {
        match std::mem::take(self) {
            Filling::Few(bytes) => bytes.freeze(),
            Filling::Block(block) => block.share(),
        }
    }
}

fn is_for_block(bytes: usize, blocks: &Blocks) -> bool {
    (BLOCK_USE_BYTES_MIN..=blocks.block_bytes()).contains(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_wherever_they_lie() {
        let (blocks, bytes): (Blocks, Vec<u8>) =
            (Blocks::new(1 << 20, 2), (0..1u32 << 20).map(|at| (at / 7) as u8).collect());
        for (usual, steps) in [(10, 1000), (10, 300_000), (1 << 20, 4096), (1 << 20, 1 << 20), (300_000, 70_000)] {
            let mut filling = Filling::of(usual, &blocks);
            for part in bytes.chunks(steps) {
                filling.extend(part, &blocks);
            }
            assert!(matches!(filling, Filling::Block(_)), "so many are no few");
            filling.write_over(777, b"other bytes");
            assert_eq!(filling.len(), bytes.len());
            let taken = filling.take();
            assert!(filling.is_empty());
            assert_eq!(
                (&taken[..777], &taken[777..788], &taken[788..]),
                (&bytes[..777], &b"other bytes"[..], &bytes[788..])
            );
        }
        let mut few = Filling::of(10, &blocks);
        few.extend(b"few", &blocks);
        few.write_over(1, b"i");
        assert!(matches!(few, Filling::Few(_)));
        assert_eq!(few.take(), b"fiw"[..]);
    }
}
