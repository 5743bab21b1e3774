//! Units of one shard, as its drive gives them: read some rows at once, compared with their sums. Where a drive does not give the whole of what
//! was asked for, each unit is asked for by itself: one bad sector takes one unit along, not its neighbours.

use std::ops::Range;

use forebay_format::FlushHeader;
use forebay_media::{AlignedBuffer, OperationId};
use forebay_types::crc32c;

use crate::read::Reader;

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// It has its sum.
    Right,
    /// It was read, and not compared with its sum.
    Unchecked,
    /// It has another.
    Wrong,
    /// Its drive does not give it.
    Unreadable,
    /// Its drive is not there.
    Absent,
}

/// Units of one shard in some rows.
pub(crate) struct Units {
    /// Row after row, the bytes that are right, and others.
    pub(crate) bytes: AlignedBuffer,
    /// Row by row, what they are.
    pub(crate) found: Vec<Unit>,
}

impl Reader {
    /// Where a unit begins on its drive.
    pub(crate) fn unit_offset(&self, header: &FlushHeader, shard: usize, row: u32) -> u64 {
        let slot = self.segment.shards[shard].slot_offset_bytes;
        slot + header.units_offset_bytes + header.geometry().unit_offset_bytes(row)
    }

    /// Starts to read the units of a shard in these rows, for [`Reader::units`]; `None` when its drive is not there.
    pub(crate) fn start_units(&self, header: &FlushHeader, shard: usize, rows: Range<u32>) -> Option<OperationId> {
        let place = &self.segment.shards[shard];
        let offset = self.unit_offset(header, shard, rows.start);
        let bytes = bytes_of(header, &rows);
        place.answers.then(|| self.io.read_reusing(self.task, place.place.drive, offset, bytes))
    }

    /// What a read of such units came to. The buffer is to be given back.
    pub(crate) async fn units(&self, read: OperationId, header: &FlushHeader, shard: usize, rows: Range<u32>) -> Units {
        let mut units = self.units_unchecked(read, header, shard, rows.clone()).await;
        units.check(header, shard, rows);
        units
    }

    /// The same for whoever compares what he makes of them with its own sum, which it has only when they are right.
    pub(crate) async fn units_unchecked(
        &self,
        read: OperationId,
        header: &FlushHeader,
        shard: usize,
        rows: Range<u32>,
    ) -> Units {
        if let Ok(bytes) = self.io.result(read).await {
            return Units { found: vec![Unit::Unchecked; rows.len()], bytes };
        }
        let mut bytes = self.io.buffer(bytes_of(header, &rows));
        if rows.len() == 1 {
            return Units { bytes, found: vec![Unit::Unreadable] };
        }
        let mut found = Vec::with_capacity(rows.len());
        for row in rows.clone() {
            let read = match self.start_units(header, shard, row..row + 1) {
                Some(read) => self.io.result(read).await.ok(),
                None => None,
            };
            let Some(buffer) = read else {
                found.push(Unit::Unreadable);
                continue;
            };
            let at = bytes_in(header, &rows, row);
            bytes[at.clone()].copy_from_slice(&buffer[..at.len()]);
            found.push(Unit::Unchecked);
            self.io.give_back(buffer);
        }
        Units { bytes, found }
    }
}

impl Units {
    /// Compares with their sums those that were not yet.
    pub(crate) fn check(&mut self, header: &FlushHeader, shard: usize, rows: Range<u32>) {
        for (found, row) in self.found.iter_mut().zip(rows.clone()).filter(|(found, _)| **found == Unit::Unchecked) {
            let crc = header.unit_crcs[shard * header.rows as usize + row as usize];
            let is_right = crc32c(&self.bytes[bytes_in(header, &rows, row)]) == crc;
            *found = if is_right { Unit::Right } else { Unit::Wrong };
        }
    }
}

/// The length of a shard's units in these rows, of which there is one at least, in bytes.
pub(crate) fn bytes_of(header: &FlushHeader, rows: &Range<u32>) -> usize {
    bytes_in(header, rows, rows.end - 1).end
}

/// Where the unit of a row lies among those of `rows`.
pub(crate) fn bytes_in(header: &FlushHeader, rows: &Range<u32>, row: u32) -> Range<usize> {
    let geometry = header.geometry();
    let start = (geometry.unit_offset_bytes(row) - geometry.unit_offset_bytes(rows.start)) as usize;
    start..start + geometry.unit_bytes_of_row(row) as usize
}
