//! How the data of a flush lie on its drives: rows of units, the last row with shorter units.

use std::ops::Range;

use forebay_types::limits::BLOCK_BYTES;

/// The rows of a flush. Data fill row 0's unit of shard 0, then of shard 1, and so on, then row 1. All
/// rows have units of `unit_bytes` but the last, whose units shrink in steps of a block to what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGeometry {
    /// Data shards; at least 1.
    pub data_shards: u8,
    /// Bytes of a unit; whole blocks.
    pub unit_bytes: u32,
    /// Bytes of data, before padding.
    pub data_bytes: u64,
}

/// A piece of the data that lies in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The data shard that holds it.
    pub shard: u8,
    /// The row that it lies in.
    pub row: u32,
    /// Where it begins, from the first unit of the shard.
    pub offset_in_shard_bytes: u64,
    /// Its length.
    pub bytes: usize,
    /// Where it begins in the data.
    pub data_offset: u64,
}

impl RowGeometry {
    fn row_bytes(&self) -> u64 {
        u64::from(self.data_shards) * u64::from(self.unit_bytes)
    }

    /// Number of rows; 0 for no data.
    ///
    /// # Panics
    /// When there would be 2^32 rows or more, which no slot holds.
    pub fn rows(&self) -> u32 {
        self.checked_rows().expect("a flush has fewer than 2^32 rows")
    }

    /// Number of rows, or `None` when it does not fit.
    pub(crate) fn checked_rows(&self) -> Option<u32> {
        u32::try_from(self.data_bytes.div_ceil(self.row_bytes())).ok()
    }

    /// Bytes of each unit of the last row; 0 for no data.
    pub fn last_unit_bytes(&self) -> u32 {
        match self.data_bytes % self.row_bytes() {
            0 if self.data_bytes == 0 => 0,
            0 => self.unit_bytes,
            rest => {
                let unit = rest.div_ceil(u64::from(self.data_shards)).next_multiple_of(BLOCK_BYTES as u64);
                u32::try_from(unit).expect("at most unit_bytes, which is whole blocks")
            }
        }
    }

    /// Bytes of each unit of `row`.
    pub fn unit_bytes_of_row(&self, row: u32) -> u32 {
        let rows = self.rows();
        assert!(row < rows, "row {row} of {rows}");
        if row + 1 == rows { self.last_unit_bytes() } else { self.unit_bytes }
    }

    /// Where the unit of `row` begins on every shard, from the shard's first unit.
    pub fn unit_offset_bytes(&self, row: u32) -> u64 {
        u64::from(row) * u64::from(self.unit_bytes)
    }

    /// Bytes of units on each drive.
    pub fn shard_bytes(&self) -> u64 {
        match self.rows() {
            0 => 0,
            rows => self.unit_offset_bytes(rows - 1) + u64::from(self.last_unit_bytes()),
        }
    }

    /// Bytes of units on each drive, or `None` when the rows do not fit their number.
    pub(crate) fn checked_shard_bytes(&self) -> Option<u64> {
        self.checked_rows().map(|_| self.shard_bytes())
    }

    /// Cuts a range of the data into the pieces that lie in one unit each, in order.
    ///
    /// # Panics
    /// When the range does not lie in the data: ranges from a drive are checked when the table is read.
    pub fn locate(&self, range: Range<u64>) -> impl Iterator<Item = Extent> + use<> {
        assert!(
            range.start <= range.end && range.end <= self.data_bytes,
            "{range:?} of {} bytes of data",
            self.data_bytes
        );
        let geometry = *self;
        let last_row = u64::from(self.rows().saturating_sub(1));
        let last_unit_bytes = u64::from(self.last_unit_bytes());
        let mut data_offset = range.start;
        std::iter::from_fn(move || {
            if data_offset == range.end {
                return None;
            }
            let row = (data_offset / geometry.row_bytes()).min(last_row);
            let unit_bytes = if row == last_row { last_unit_bytes } else { u64::from(geometry.unit_bytes) };
            let in_row = data_offset - row * geometry.row_bytes();
            let in_unit = in_row % unit_bytes;
            let bytes = (unit_bytes - in_unit).min(range.end - data_offset);
            let extent = Extent {
                shard: u8::try_from(in_row / unit_bytes).expect("the padded row holds all data of the row"),
                row: row as u32,
                offset_in_shard_bytes: row * u64::from(geometry.unit_bytes) + in_unit,
                bytes: bytes as usize,
                data_offset,
            };
            data_offset += bytes;
            Some(extent)
        })
    }
}
