//! Reading the bytes that are wanted and no more, without looking at headers or at the sums of units. Whoever reads so has a sum of what is wanted.

use std::ops::Range;

use forebay_format::{Extent, RowGeometry};
use forebay_media::{AlignedBuffer, OperationId};
use forebay_types::limits::BLOCK_BYTES;

use crate::flush::codec;
use crate::read::Reader;
use crate::segments::FlushSpan;

/// Bytes of a flush's data as they were read.
pub(crate) struct Unchecked {
    pub(crate) bytes: Vec<u8>,
    /// Whether some were computed from other drives than those that hold them.
    pub(crate) computed: bool,
}

/// A read on its way: so many bytes of its buffer come before what is wanted.
struct Pending {
    id: OperationId,
    skip: usize,
}

impl Reader {
    /// The bytes alone, from the drives that hold them, or, where such a drive does not answer, computed from the same places of the others; `None`
    /// when too few answer, or one fails now.
    pub(crate) async fn direct(&self, span: FlushSpan, range: Range<u64>) -> Option<Unchecked> {
        let extents: Vec<Extent> = self.geometry(span.data_bytes).locate(range.clone()).collect();
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let computed = extents.iter().any(|extent| self.is_missing(extent));
        if !computed {
            self.extents(span, &extents, &mut bytes).await?;
        } else {
            for row in extents.chunk_by(|a, b| a.row == b.row) {
                self.computed(span, row, &mut bytes).await?;
            }
        }
        Some(Unchecked { bytes, computed })
    }

    fn is_missing(&self, extent: &Extent) -> bool {
        !self.segment.shards[usize::from(extent.shard)].answers
    }

    /// Starts to read a part of a shard's units; what is asked of drives is whole blocks.
    fn start(&self, span: FlushSpan, shard: usize, offset_in_shard_bytes: u64, bytes: usize) -> Pending {
        let shard = &self.segment.shards[shard];
        let start = span.offset_bytes + u64::from(span.header_bytes) + offset_in_shard_bytes;
        let skip = (start % BLOCK_BYTES as u64) as usize;
        let bytes = (skip + bytes).next_multiple_of(BLOCK_BYTES);
        let offset = shard.slot_offset_bytes + start - skip as u64;
        Pending { id: self.io.read_reusing(self.task, shard.place.drive, offset, bytes), skip }
    }

    /// Extents of drives that answer.
    async fn extents(&self, span: FlushSpan, extents: &[Extent], into: &mut Vec<u8>) -> Option<()> {
        let start = |of: &Extent| self.start(span, usize::from(of.shard), of.offset_in_shard_bytes, of.bytes);
        let pending: Vec<Pending> = extents.iter().map(start).collect();
        let mut whole = true;
        for (Pending { id, skip }, extent) in pending.into_iter().zip(extents) {
            match self.io.result(id).await {
                Ok(buffer) => {
                    into.extend_from_slice(&buffer[skip..skip + extent.bytes]);
                    self.io.give_back(buffer);
                }
                Err(_) => whole = false,
            }
        }
        whole.then_some(())
    }

    /// Extents of one row, also when drives of them are missing: what lies at the same places of the units of k drives that answer gives the others.
    async fn computed(&self, span: FlushSpan, extents: &[Extent], into: &mut Vec<u8>) -> Option<()> {
        if !extents.iter().any(|extent| self.is_missing(extent)) {
            return self.extents(span, extents, into).await;
        }
        let data_shards = usize::from(self.segment.data_shards);
        let shards = self.segment.shards.iter().enumerate();
        let from: Vec<usize> = shards.filter(|(_, shard)| shard.answers).map(|(at, _)| at).take(data_shards).collect();
        if from.len() < data_shards {
            return None;
        }
        let start = extents.iter().map(|extent| extent.offset_in_shard_bytes).min()?;
        let end = extents.iter().map(|extent| extent.offset_in_shard_bytes + extent.bytes as u64).max()?;
        let bytes = (end - start) as usize;
        let pending: Vec<Pending> = from.iter().map(|shard| self.start(span, *shard, start, bytes)).collect();
        let skip = pending.first()?.skip;
        let (mut buffers, mut whole): (Vec<Option<AlignedBuffer>>, bool) = (Vec::new(), true);
        buffers.resize_with(self.segment.shards.len(), || None);
        for (Pending { id, .. }, shard) in pending.into_iter().zip(from) {
            buffers[shard] = self.io.result(id).await.ok();
            whole &= buffers[shard].is_some();
        }
        if whole {
            let units: Vec<Option<&[u8]>> =
                buffers.iter().map(|buffer| buffer.as_ref().map(|buffer| &buffer[skip..skip + bytes])).collect();
            self.append_extents(extents, start, &units, into);
        }
        buffers.into_iter().flatten().for_each(|buffer| self.io.give_back(buffer));
        whole.then_some(())
    }

    /// Appends extents of one row from parts of units that all begin at `start`, computing those that are not there.
    fn append_extents(&self, extents: &[Extent], start: u64, units: &[Option<&[u8]>], into: &mut Vec<u8>) {
        let bytes = units.iter().flatten().next().map_or(0, |unit| unit.len());
        let shards = extents.iter().map(|extent| usize::from(extent.shard));
        let missing: Vec<usize> = shards.filter(|shard| units[*shard].is_none()).collect();
        let mut computed = vec![0; bytes * missing.len()];
        let mut parts: Vec<&mut [u8]> = computed.chunks_exact_mut(bytes).collect();
        codec(self.segment.data_shards, self.segment.parity_shards)
            .reconstruct(units, &missing, &mut parts)
            .expect("k units are there");
        let mut computed = computed.chunks_exact(bytes);
        for extent in extents {
            let from = (extent.offset_in_shard_bytes - start) as usize;
            let unit =
                units[usize::from(extent.shard)].or_else(|| computed.next()).expect("there or computed, in order");
            into.extend_from_slice(&unit[from..from + extent.bytes]);
        }
    }

    pub(crate) fn geometry(&self, data_bytes: u64) -> RowGeometry {
        RowGeometry { data_shards: self.segment.data_shards, unit_bytes: self.segment.unit_bytes, data_bytes }
    }
}
