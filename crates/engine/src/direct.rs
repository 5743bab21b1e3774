//! Reading the bytes that are wanted and no more, without looking at headers or at the sums of units. Whoever reads so has a sum of what is wanted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use forebay_format::{Extent, RowGeometry};
use forebay_media::{AlignedBuffer, OperationId};
use forebay_types::limits::BLOCK_BYTES;

use crate::flush::codec;
use crate::pieces::{Pieces, ReadBuffer};
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

/// Extents that follow each other on a drive: one read.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    shard: usize,
    /// From the first unit of the shard.
    start: u64,
    bytes: usize,
}

/// What is read for these extents, which ascend, and for each of them in which of the reads it is. Extents are read together up to `bytes_max`.
fn runs(extents: &[Extent], bytes_max: usize) -> (Vec<Run>, Vec<usize>) {
    let (mut runs, mut run_of): (Vec<Run>, Vec<usize>) = (Vec::new(), Vec::with_capacity(extents.len()));
    for extent in extents {
        let shard = usize::from(extent.shard);
        let follows = |run: &Run| {
            run.start + run.bytes as u64 == extent.offset_in_shard_bytes && run.bytes + extent.bytes <= bytes_max
        };
        let last = runs.iter().rposition(|run| run.shard == shard).filter(|at| follows(&runs[*at]));
        let at = last.unwrap_or(runs.len());
        match runs.get_mut(at) {
            Some(run) => run.bytes += extent.bytes,
            None => runs.push(Run { shard, start: extent.offset_in_shard_bytes, bytes: extent.bytes }),
        }
        run_of.push(at);
    }
    (runs, run_of)
}

impl Reader {
    /// The bytes alone, from the drives that hold them, or, where such a drive does not answer, computed from the same places of the others; `None`
    /// when too few answer, or one fails now.
    pub(crate) async fn direct(&self, span: FlushSpan, range: Range<u64>) -> Option<Unchecked> {
        let extents: Vec<Extent> = self.geometry(span.data_bytes).locate(range.clone()).collect();
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let computed = extents.iter().any(|extent| self.is_missing(extent));
        if !computed {
            self.extents(span, &extents).await?.append_to(&mut bytes);
        } else {
            for rows in self.rows_at_once(&extents) {
                self.computed(span, rows, &mut bytes).await?;
            }
        }
        Some(Unchecked { bytes, computed })
    }

    /// As [`Reader::direct`], left where it was read.
    pub(crate) async fn pieces(&self, span: FlushSpan, range: Range<u64>) -> Option<Pieces> {
        let extents: Vec<Extent> = self.geometry(span.data_bytes).locate(range.clone()).collect();
        if extents.iter().any(|extent| self.is_missing(extent)) {
            return self.direct(span, range).await.map(|unchecked| unchecked.bytes.into());
        }
        self.extents(span, &extents).await
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
    async fn extents(&self, span: FlushSpan, extents: &[Extent]) -> Option<Pieces> {
        let (runs, run_of) = runs(extents, self.segment.step_bytes as usize);
        let start = |run: &Run| self.start(span, run.shard, run.start, run.bytes);
        let pending: Vec<Pending> = runs.iter().map(start).collect();
        let mut buffers = Vec::with_capacity(runs.len());
        for Pending { id, skip } in pending {
            let buffer = self.io.result(id).await.ok();
            buffers.push(buffer.map(|buffer| (ReadBuffer::new(self.io.clone(), buffer), skip)));
        }
        let buffers: Vec<(Rc<ReadBuffer>, usize)> = buffers.into_iter().collect::<Option<_>>()?;
        let mut pieces = Pieces::default();
        for (extent, run) in extents.iter().zip(run_of) {
            let (buffer, skip) = &buffers[run];
            let from = skip + (extent.offset_in_shard_bytes - runs[run].start) as usize;
            pieces.push(Rc::<ReadBuffer>::clone(buffer), from..from + extent.bytes);
        }
        Some(pieces)
    }

    /// Cut into rows, of which those between the first and the last, all of which is wanted, are read as many at once as background work does.
    fn rows_at_once<'a>(&self, extents: &'a [Extent]) -> impl Iterator<Item = &'a [Extent]> + use<'a> {
        let rows = (self.segment.step_bytes / self.segment.unit_bytes).max(1);
        let (first, last) = (extents.first().map_or(0, |e| e.row), extents.last().map_or(0, |e| e.row));
        let is_inner = move |extent: &Extent| first < extent.row && extent.row < last;
        extents.chunk_by(move |a, b| a.row == b.row || is_inner(a) && is_inner(b) && a.row / rows == b.row / rows)
    }

    /// Extents of neighbouring rows, also when drives of them are missing: what lies at the same places of the shards of k drives that answer gives
    /// the others.
    async fn computed(&self, span: FlushSpan, extents: &[Extent], into: &mut Vec<u8>) -> Option<()> {
        if !extents.iter().any(|extent| self.is_missing(extent)) {
            self.extents(span, extents).await?.append_to(into);
            return Some(());
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

    /// Appends extents from parts of shards that all begin at `start`, computing those that are not there.
    fn append_extents(&self, extents: &[Extent], start: u64, parts: &[Option<&[u8]>], into: &mut Vec<u8>) {
        let bytes = parts.iter().flatten().next().map_or(0, |part| part.len());
        let shards: BTreeSet<usize> = extents.iter().map(|extent| usize::from(extent.shard)).collect();
        let missing: Vec<usize> = shards.into_iter().filter(|shard| parts[*shard].is_none()).collect();
        let mut computed = vec![0; bytes * missing.len()];
        let mut to_compute: Vec<&mut [u8]> = computed.chunks_exact_mut(bytes).collect();
        codec(self.segment.data_shards, self.segment.parity_shards)
            .reconstruct(parts, &missing, &mut to_compute)
            .expect("k shards are there");
        let computed: Vec<&[u8]> = computed.chunks_exact(bytes).collect();
        for extent in extents {
            let (shard, from) = (usize::from(extent.shard), (extent.offset_in_shard_bytes - start) as usize);
            let part = parts[shard].or_else(|| Some(computed[missing.binary_search(&shard).ok()?]));
            into.extend_from_slice(&part.expect("there or computed")[from..from + extent.bytes]);
        }
    }

    pub(crate) fn geometry(&self, data_bytes: u64) -> RowGeometry {
        RowGeometry { data_shards: self.segment.data_shards, unit_bytes: self.segment.unit_bytes, data_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u32 = 4096;

    /// The reads for a range of four rows of three units, at most so many bytes each; all bytes of the extents are in theirs.
    fn reads(range: Range<u64>, bytes_max: usize) -> Vec<(usize, u64, usize)> {
        let geometry = RowGeometry { data_shards: 3, unit_bytes: UNIT, data_bytes: 12 * u64::from(UNIT) };
        let extents: Vec<Extent> = geometry.locate(range).collect();
        let (runs, run_of) = runs(&extents, bytes_max);
        assert_eq!(run_of.len(), extents.len());
        for (extent, run) in extents.iter().zip(run_of) {
            let (run, start) = (&runs[run], extent.offset_in_shard_bytes);
            assert_eq!(run.shard, usize::from(extent.shard));
            assert!(run.start <= start && start + extent.bytes as u64 <= run.start + run.bytes as u64);
        }
        assert_eq!(runs.iter().map(|run| run.bytes).sum::<usize>(), extents.iter().map(|extent| extent.bytes).sum());
        runs.iter().map(|run| (run.shard, run.start, run.bytes)).collect()
    }

    #[test]
    fn what_follows_on_a_drive_is_read_at_once() {
        let unit = UNIT as usize;
        assert_eq!(reads(100..200, 1 << 20), [(0, 100, 100)]);
        let all = [(0, 0, 4 * unit), (1, 0, 4 * unit), (2, 0, 4 * unit)];
        assert_eq!(reads(0..12 * 4096, 1 << 20), all);
        // From the middle of the first row's second unit to that of the last row's first.
        let some = reads(6000..10 * 4096 - 100, 1 << 20);
        assert_eq!(some, [(1, 6000 - 4096, 3 * unit - (6000 - 4096)), (2, 0, 3 * unit), (0, 4096, 3 * unit - 100)]);
    }

    #[test]
    fn but_no_more_than_is_read_at_once() {
        let halves = reads(0..12 * 4096, 2 * UNIT as usize);
        assert_eq!(halves.len(), 6);
        assert!(halves.iter().all(|(_, _, bytes)| *bytes == 2 * UNIT as usize));
        assert_eq!(reads(0..12 * 4096, 100).len(), 12, "a unit is read whole");
    }
}
