//! Whether a flush lies on its drives as it was written: each header, and each unit by the sum that the header gives it. For whoever
//! reads everything once: the look at a stopped store, and scrub.

use std::ops::Range;

use forebay_format::{FlushHeader, ShardPlace};
use forebay_media::AlignedBuffer;
use forebay_types::WallTime;

use crate::read::{Reader, agreed, votes};
use crate::units::{Unit, bytes_of};

/// Bytes of units that are read from each drive at once at least: what a check holds in memory.
const STEP_BYTES_MIN: u32 = 256 << 10;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushCheck {
    /// The flush; `None` is the closing flush.
    pub flush: Option<u32>,
    /// On how many drives the header lies that counts; 0 when no drive that answers has one.
    pub headers: usize,
    /// Rows of the flush; 0 when no header counts.
    pub rows: u32,
    /// Rows that the drives that answer do not give back, and others could.
    pub rows_unavailable: u32,
    /// Rows that are damaged on more drives than parity can mend.
    pub rows_lost: u32,
    /// Those rows, neighbours together.
    pub lost: Vec<Range<u32>>,
    /// When the flush was written, as the header that counts says.
    pub written: WallTime,
    /// Each shard, in order.
    pub shards: Vec<ShardCheck>,
    /// Bytes that were read, from all drives.
    pub bytes_read: u64,
}

/// What one drive holds of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardCheck {
    /// Where the shard lies.
    pub place: ShardPlace,
    /// Where the header begins on the drive, in bytes.
    pub header_offset_bytes: u64,
    /// Its length, in bytes.
    pub header_bytes: u64,
    /// The header on this drive.
    pub header: HeaderCheck,
    /// The units that are not right, ascending.
    pub units: Vec<UnitsWrong>,
}

/// The header of a flush on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderCheck {
    /// It is the one on which most drives agree.
    Right,
    /// The drive is not there.
    Absent,
    /// The drive does not give it.
    Unreadable,
    /// What lies there is no header of this flush.
    Wrong,
    /// It is a header of this flush and not the one on which most drives agree.
    Differs,
}

/// Neighbouring units of one drive that are not right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitsWrong {
    /// Their rows.
    pub rows: Range<u32>,
    /// Where the first begins on the drive, in bytes.
    pub offset_bytes: u64,
    /// Their length together, in bytes.
    pub bytes: u64,
    /// Whether the drive did not give them; else they have another sum than they should.
    pub unreadable: bool,
}

/// Where the flush is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushPlace {
    /// Its number; `None` is the closing flush.
    pub(crate) flush: Option<u32>,
    /// Where its header begins in the slot.
    pub(crate) offset_bytes: u64,
    pub(crate) header_bytes: usize,
}

impl FlushCheck {
    /// Whether every drive that is there holds its shard as it was written.
    pub fn is_right(&self) -> bool {
        let right = |shard: &ShardCheck| {
            matches!(shard.header, HeaderCheck::Right | HeaderCheck::Absent) && shard.units.is_empty()
        };
        self.headers > 0 && self.shards.iter().all(right)
    }

    /// Whether all of its data can be read, with the help of parity if need be.
    pub fn is_readable(&self) -> bool {
        self.headers > 0 && self.rows_unavailable == 0 && self.rows_lost == 0
    }
}

impl Reader {
    /// Checks one flush: its headers and, with `units`, every unit.
    pub(crate) async fn check_flush(&self, place: FlushPlace, units: bool) -> FlushCheck {
        let (found, mut shards, mut bytes_read) = self.check_headers(place).await;
        let (header, headers) = match agreed(&found) {
            Some(header) => (Some(header.clone()), votes(&found, header.digest)),
            None => (None, 0),
        };
        drop(found);
        let rows = header.as_ref().map_or(0, |header| header.rows);
        let mut check = FlushCheck {
            flush: place.flush,
            headers,
            rows,
            rows_unavailable: 0,
            rows_lost: 0,
            lost: Vec::new(),
            written: header.as_ref().map_or(WallTime::default(), |header| header.written),
            shards: Vec::new(),
            bytes_read: 0,
        };
        if let Some(header) = header.filter(|_| units) {
            let step = (self.segment.step_bytes.max(STEP_BYTES_MIN) / header.unit_bytes).max(1);
            for first in (0..rows).step_by(step as usize) {
                let range = first..rows.min(first.saturating_add(step));
                bytes_read += self.check_rows(&header, range, &mut shards, &mut check).await;
            }
        }
        (check.shards, check.bytes_read) = (shards, bytes_read);
        check
    }

    async fn check_headers(
        &self,
        place: FlushPlace,
    ) -> (Vec<Option<(FlushHeader, AlignedBuffer)>>, Vec<ShardCheck>, u64) {
        let reads: Vec<_> = self
            .segment
            .shards
            .iter()
            .map(|shard| {
                let offset = shard.slot_offset_bytes + place.offset_bytes;
                shard.answers.then(|| self.io.read(self.task, shard.place.drive, offset, place.header_bytes))
            })
            .collect();
        let (mut found, mut checks, mut bytes_read) = (Vec::new(), Vec::new(), 0);
        for (number, read) in reads.into_iter().enumerate() {
            let (header, state) = match read {
                None => (None, HeaderCheck::Absent),
                Some(id) => match self.io.result(id).await {
                    Err(_) => (None, HeaderCheck::Unreadable),
                    Ok(buffer) => {
                        bytes_read += place.header_bytes as u64;
                        let header = self.check_header(number, place.flush, place.offset_bytes, buffer);
                        let state = if header.is_some() { HeaderCheck::Right } else { HeaderCheck::Wrong };
                        (header, state)
                    }
                },
            };
            let shard = &self.segment.shards[number];
            checks.push(ShardCheck {
                place: shard.place,
                header_offset_bytes: shard.slot_offset_bytes + place.offset_bytes,
                header_bytes: place.header_bytes as u64,
                header: state,
                units: Vec::new(),
            });
            found.push(header);
        }
        if let Some(digest) = agreed(&found).map(|header| header.digest) {
            for (check, header) in checks.iter_mut().zip(&found) {
                if header.as_ref().is_some_and(|(header, _)| header.digest != digest) {
                    check.header = HeaderCheck::Differs;
                }
            }
        }
        (found, checks, bytes_read)
    }

    /// Checks some rows; gives the bytes that were read.
    async fn check_rows(
        &self,
        header: &FlushHeader,
        rows: Range<u32>,
        shards: &mut [ShardCheck],
        check: &mut FlushCheck,
    ) -> u64 {
        let geometry = header.geometry();
        let reads: Vec<_> = (0..shards.len()).map(|shard| self.start_units(header, shard, rows.clone())).collect();
        let (mut units, mut bytes_read) = (Vec::with_capacity(shards.len()), 0);
        for (shard, read) in reads.into_iter().enumerate() {
            let Some(read) = read else {
                units.push(vec![Unit::Absent; rows.len()]);
                continue;
            };
            let read = self.units(read, header, shard, rows.clone()).await;
            bytes_read += bytes_of(header, &rows) as u64;
            self.io.give_back(read.bytes);
            units.push(read.found);
        }
        for (at, row) in rows.enumerate() {
            let count = |wanted: Unit| units.iter().filter(|shard| shard[at] == wanted).count();
            let right = count(Unit::Right);
            let silent = count(Unit::Absent) + count(Unit::Unreadable);
            let enough = usize::from(header.data_shards);
            check.rows_unavailable += u32::from(right < enough && right + silent >= enough);
            if right + silent < enough {
                check.rows_lost += 1;
                match check.lost.last_mut() {
                    Some(last) if last.end == row => last.end += 1,
                    _ => check.lost.push(row..row + 1),
                }
            }
            for (number, shard) in shards.iter_mut().enumerate() {
                let unit = units[number][at];
                if matches!(unit, Unit::Wrong | Unit::Unreadable) {
                    let offset_bytes = self.unit_offset(header, number, row);
                    let bytes = u64::from(geometry.unit_bytes_of_row(row));
                    note(shard, row, offset_bytes, bytes, unit == Unit::Unreadable);
                }
            }
        }
        bytes_read
    }
}

/// Adds a unit to those of a shard that are not right.
fn note(shard: &mut ShardCheck, row: u32, offset_bytes: u64, bytes: u64, unreadable: bool) {
    match shard.units.last_mut() {
        Some(last) if last.rows.end == row && last.unreadable == unreadable => {
            last.rows.end += 1;
            last.bytes += bytes;
        }
        _ => shard.units.push(UnitsWrong { rows: row..row + 1, offset_bytes, bytes, unreadable }),
    }
}
