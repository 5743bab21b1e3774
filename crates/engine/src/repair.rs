//! Making shards of a flush anew: on another drive when their own is gone or taken out of use, in their place when they are damaged there. They are
//! computed from the others; where their own drive can still be read and too few of the others can, they are copied from it.
//!
//! What is written is what was there: units that have the sums of the flush's header, and that header with the same digest, whose places
//! are those at which the flush was written first. So a shard that was made anew combines with those that were not, wherever it lies; where it lies
//! now, the checkpoint says.

use std::ops::Range;
use std::sync::Arc;

use forebay_format::FlushHeader;
use forebay_media::{AlignedBuffer, OperationId};
use forebay_types::{DriveNumber, DriveUuid, crc32c};

use crate::check::FlushPlace;
use crate::flush::codec;
use crate::planted::{Planted, planted};
use crate::read::{Reader, agreed};
use crate::units::{Unit, Units, bytes_in, bytes_of};

/// Which units of a shard are to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// Those of these rows, ascending.
    Rows(Vec<Range<u32>>),
}

impl Wanted {
    fn has(&self, row: u32) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Rows(rows) => rows.iter().any(|range| range.contains(&row)),
        }
    }
}

/// A shard that is to be made anew, and where.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) shard: usize,
    pub(crate) drive: DriveNumber,
    pub(crate) uuid: DriveUuid,
    pub(crate) slot_offset_bytes: u64,
    pub(crate) units: Wanted,
    pub(crate) header: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repaired {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Units that too few others are left for.
    pub(crate) units_missing: u64,
    /// No drive that answers has a header of the flush.
    pub(crate) no_header: bool,
    /// A drive did not take what was made.
    pub(crate) write_failed: bool,
    /// A unit that was read for it was not right.
    pub(crate) met_damage: bool,
}

impl Repaired {
    /// Whether all that was wanted was made.
    pub(crate) fn is_whole(&self) -> bool {
        self.units_missing == 0 && !self.no_header && !self.write_failed
    }

    fn met(&mut self, units: &Units) {
        self.met_damage |= units.found.iter().any(|unit| *unit != Unit::Right);
    }
}

/// Neighbouring units of one shard that were made anew, from the start of the buffer on.
struct Made {
    first_row: u32,
    buffer: AlignedBuffer,
    bytes: usize,
}

/// What is on its way to a drive.
struct Writing {
    id: OperationId,
    buffer: Arc<AlignedBuffer>,
}

impl Reader {
    /// Makes what the targets want of one flush. The header comes last: without it nothing that was made is found.
    pub(crate) async fn repair(&self, place: FlushPlace, targets: &[Target]) -> Repaired {
        let mut repaired = Repaired::default();
        let headers = self.headers(place.flush, place.offset_bytes, place.header_bytes).await;
        repaired.bytes_read += (headers.iter().flatten().count() * place.header_bytes) as u64;
        let Some(header) = agreed(&headers).cloned() else {
            repaired.no_header = true;
            return repaired;
        };
        let with_table = headers.iter().flatten().find(|(found, _)| found.digest == header.digest);
        let table = with_table.and_then(|(found, bytes)| found.inline_table(bytes).map(<[u8]>::to_vec));
        drop(headers);
        let step = (self.segment.step_bytes / header.unit_bytes).max(1);
        // While some rows are written, the next are read.
        let mut writes = Vec::new();
        for first in (0..header.rows).step_by(step as usize) {
            let rows = first..header.rows.min(first.saturating_add(step));
            if !targets.iter().any(|target| rows.clone().any(|row| target.units.has(row))) {
                continue;
            }
            let next = self.repair_rows(&header, rows, targets, &mut repaired).await;
            self.taken(std::mem::replace(&mut writes, next), &mut repaired).await;
            if repaired.write_failed {
                break;
            }
        }
        self.taken(writes, &mut repaired).await;
        if !repaired.write_failed {
            self.write_headers(header, table.as_deref(), place, targets, &mut repaired).await;
        }
        repaired
    }

    /// Waits until the drives took what is on its way to them.
    async fn taken(&self, writes: Vec<Writing>, repaired: &mut Repaired) {
        for Writing { id, buffer } in writes {
            repaired.write_failed |= self.io.written(id).await.is_err();
            // Of a write that was given up, the media has it still.
            if let Ok(buffer) = Arc::try_unwrap(buffer) {
                self.io.give_back(buffer);
            }
        }
    }

    /// Starts to write what was made.
    fn write(&self, target: &Target, offset_bytes: u64, buffer: AlignedBuffer, bytes: usize) -> Writing {
        let buffer = Arc::new(buffer);
        let id = self.io.write_for(self.task, target.drive, offset_bytes, buffer.clone(), bytes);
        Writing { id, buffer }
    }

    /// Makes units in these rows; gives what is on its way to the drives.
    async fn repair_rows(
        &self,
        header: &FlushHeader,
        rows: Range<u32>,
        targets: &[Target],
        repaired: &mut Repaired,
    ) -> Vec<Writing> {
        let k = usize::from(header.data_shards);
        // Those first of which nothing is wanted here.
        let wants = |shard: usize| {
            targets.iter().any(|target| target.shard == shard && rows.clone().any(|row| target.units.has(row)))
        };
        let mut sources: Vec<usize> = (0..self.segment.shards.len()).collect();
        sources.retain(|shard| self.segment.shards[*shard].answers);
        sources.sort_by_key(|shard| wants(*shard));
        let (first, rest) = sources.split_at(k.min(sources.len()));
        let mut units: Vec<Option<Units>> = Vec::new();
        units.resize_with(self.segment.shards.len(), || None);
        self.read_units(header, first, rows.clone(), &mut units, repaired).await;
        // What is made is compared with its sum, so what it is made from need not be.
        let (mut made, mut missing) = self.make_all(header, &units, targets, rows.clone());
        if missing > 0 {
            check_units(header, &mut units, rows.clone());
            let enough = |row: (usize, u32)| row_units(header, &units, rows.clone(), row.0, row.1).0 >= k;
            if !rows.clone().enumerate().all(enough) {
                self.read_units(header, rest, rows.clone(), &mut units, repaired).await;
                check_units(header, &mut units, rows.clone());
            }
            units.iter().flatten().for_each(|units| repaired.met(units));
            made.into_iter().for_each(|(_, run)| self.io.give_back(run.buffer));
            (made, missing) = self.make_all(header, &units, targets, rows);
        }
        repaired.units_missing += missing;
        let mut writes = Vec::new();
        for (target, Made { first_row, buffer, bytes }) in made {
            let offset = target.slot_offset_bytes + header.units_offset_bytes;
            let offset = offset + header.geometry().unit_offset_bytes(first_row);
            repaired.bytes_written += bytes as u64;
            writes.push(self.write(target, offset, buffer, bytes));
        }
        units.into_iter().flatten().for_each(|units| self.io.give_back(units.bytes));
        writes
    }

    /// Reads units of these shards, without comparing them with their sums.
    async fn read_units(
        &self,
        header: &FlushHeader,
        shards: &[usize],
        rows: Range<u32>,
        units: &mut [Option<Units>],
        repaired: &mut Repaired,
    ) {
        let reads: Vec<_> =
            shards.iter().map(|shard| (*shard, self.start_units(header, *shard, rows.clone()))).collect();
        for (shard, read) in reads {
            let Some(read) = read else { continue };
            let found = self.units_unchecked(read, header, shard, rows.clone()).await;
            repaired.bytes_read += bytes_of(header, &rows) as u64;
            units[shard] = Some(found);
        }
    }

    /// What can be made for all targets in these rows; and how many units could not be made.
    fn make_all<'a>(
        &self,
        header: &FlushHeader,
        units: &[Option<Units>],
        targets: &'a [Target],
        rows: Range<u32>,
    ) -> (Vec<(&'a Target, Made)>, u64) {
        let (mut all, mut missing) = (Vec::new(), 0);
        for target in targets {
            let (made, not_made) = self.make_units(header, units, target, rows.clone());
            all.extend(made.into_iter().map(|run| (target, run)));
            missing += not_made;
        }
        (all, missing)
    }

    /// The units of one target in these rows, neighbours together; and how many could not be made.
    fn make_units(
        &self,
        header: &FlushHeader,
        units: &[Option<Units>],
        target: &Target,
        rows: Range<u32>,
    ) -> (Vec<Made>, u64) {
        let codec = codec(header.data_shards, header.parity_shards);
        let (mut made, mut missing): (Vec<Made>, u64) = (Vec::new(), 0);
        let mut next_row = None;
        for (at, row) in rows.clone().enumerate().filter(|(_, row)| target.units.has(*row)) {
            let (_, mut present) = row_units(header, units, rows.clone(), at, row);
            if planted(Planted::OwnShardUnread) {
                present[target.shard] = None;
            }
            let unit_bytes = header.geometry().unit_bytes_of_row(row) as usize;
            if next_row != Some(row) {
                let buffer = self.io.buffer(bytes_of(header, &(row..rows.end)));
                made.push(Made { first_row: row, buffer, bytes: 0 });
            }
            let run = made.last_mut().expect("begun at the latest just now");
            let unit = &mut run.buffer[run.bytes..run.bytes + unit_bytes];
            let is_there = match present[target.shard] {
                Some(found) => {
                    unit.copy_from_slice(found);
                    true
                }
                None => codec.reconstruct(&present, &[target.shard], &mut [&mut *unit]).is_ok(),
            };
            let crc = header.unit_crcs[target.shard * header.rows as usize + row as usize];
            if is_there && crc32c(unit) == crc {
                run.bytes += unit_bytes;
                next_row = Some(row + 1);
            } else {
                missing += 1;
                next_row = None;
            }
        }
        let (made, unmade): (Vec<_>, Vec<_>) = made.into_iter().partition(|run| run.bytes > 0);
        unmade.into_iter().for_each(|run| self.io.give_back(run.buffer));
        (made, missing)
    }

    async fn write_headers(
        &self,
        mut header: FlushHeader,
        table: Option<&[u8]>,
        place: FlushPlace,
        targets: &[Target],
        repaired: &mut Repaired,
    ) {
        let mut writes = Vec::new();
        for target in targets.iter().filter(|target| target.header) {
            (header.drive, header.shard) = (target.uuid, target.shard as u8);
            header.offset_bytes = target.slot_offset_bytes + place.offset_bytes;
            let mut buffer = AlignedBuffer::zeroed(place.header_bytes);
            header.encode_into(table, &mut buffer);
            repaired.bytes_written += place.header_bytes as u64;
            writes.push(self.write(target, header.offset_bytes, buffer, place.header_bytes));
        }
        self.taken(writes, repaired).await;
    }
}

/// Compares with their sums the units that were not yet.
fn check_units(header: &FlushHeader, units: &mut [Option<Units>], rows: Range<u32>) {
    for (shard, units) in units.iter_mut().enumerate() {
        units.iter_mut().for_each(|units| units.check(header, shard, rows.clone()));
    }
}

/// The units of a row that are right, or were not compared with their sums, `at` rows behind the start of `rows`, as the codec takes them, and how many they are.
fn row_units<'a>(
    header: &FlushHeader,
    units: &'a [Option<Units>],
    rows: Range<u32>,
    at: usize,
    row: u32,
) -> (usize, Vec<Option<&'a [u8]>>) {
    let bytes = bytes_in(header, &rows, row);
    let may_be_right = |found: &&Units| matches!(found.found[at], Unit::Right | Unit::Unchecked);
    let right = |found: &'a Option<Units>| found.as_ref().filter(may_be_right).map(|found| &found.bytes[bytes.clone()]);
    let row: Vec<Option<&[u8]>> = units.iter().map(right).collect();
    (row.iter().flatten().count(), row)
}
