//! What a lane holds in memory.
//!
//! | what | at most | said by |
//! | --- | --- | --- |
//! | what is known of fragments and undecided events | 64 bytes a fragment, 1 KiB a run | `Index::bytes` |
//! | an accepted event | about 150 bytes more, until its streams have released it | `AcceptedEvents::bytes` |
//! | an accepted event that checkpoints keep | about 100 bytes more | `Carried::bytes` |
//! | a file | about 100 bytes, and 100 for each further piece or hole of it | `Files::bytes` |
//! | a file that is open for writing | about 200 bytes, and 60 for each range that writers wrote apart from others | `OpenFiles::bytes` |
//! | a file that was written in order and closed, and not sealed | about 100 bytes, a 64th of the index's memory, and 65,536 files | `OpenFiles::bytes` |
//! | finished events | about 60 bytes a range of neighbours; ranges are bounded by a checkpoint's room | `Finished::bytes` |
//! | how the newest of them ended | a 64th of the index's memory | `Ends::bytes` |
//! | flushes | 40 bytes each (80 in the open segment): each takes 8 KiB and more on every drive | `Segments::bytes` |
//! | the tables of segments that are not closed | 80 bytes a record of the segment | `Writer::table_bytes` |
//! | what is known to be lost | about 100 bytes a fragment, a 16th of the index's memory or 1 MiB in all | `Losses::bytes` |
//!
//! Together they are `index_bytes` of the status, and no new fragment is taken when they reach `LaneConfig::index_bytes`; decisions, which make
//! room, always are. Beside them there is `LaneConfig::cache_bytes` for
//!
//! - the buffers of the flush that fills and of those on their way, up to `flush_depth` + 1 times k+m of `flush_bytes` and a unit (the only one that takes
//!   more when the budget is smaller);
//! - free buffers for the next flushes: memory once taken stays, so that the beam finds it after a pause;
//! - rows that were read from drives, half of the budget at most, and four of them (1 to 8 MiB) whatever it is;
//! - and in all the rest the data of recent flushes.
//!
//! A flush that is dropped while bytes of it are sent to a reader ([`Lane::share_file`]) stays until they are, and counts for as long, so that fewer others are kept.
//!
//! What came into memory longest ago leaves it first, be it a flush or, beyond those four, a row.
//!
//! What is on its way for a moment comes on top: a checkpoint (its own size and an eighth, for each drive; up to 4 MiB of that are kept for the next one), the closing
//! flush of a segment (40 bytes a record), what is read for someone (bounded by who asks), and what steps beside requests have read of each drive of a segment, 16 MiB of
//! each at most (21 times `background_read_bytes`, of flash 1.3 MiB), and twice that of what they write. Up to 4 MiB of such buffers are kept to be used again.
//! So does what happened to events lately, 64 bytes for each of `told_events`.

use super::Lane;
use super::write::Writer;

impl Lane {
    /// Memory of all that is known of events, in bytes: what `LaneConfig::index_bytes` bounds.
    pub(super) fn index_bytes(&self) -> usize {
        let accepted = self.accepted.bytes() + self.carried.bytes();
        let events = self.index.bytes() + accepted + self.finished.bytes() + self.ends.bytes();
        let files = self.files.bytes() + self.open_files.bytes();
        events + files + self.segments.bytes() + self.writer.table_bytes() + self.losses.known.bytes()
    }

    /// Memory of buffers, in bytes, in use, free and lent, and of rows.
    fn buffer_bytes(&self) -> usize {
        self.writer.buffer_bytes() + self.pool.bytes() + self.pool.lent_bytes() + self.rows.bytes()
    }

    /// Memory that the lane holds, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index_bytes() + self.cache.bytes() + self.buffer_bytes()
    }

    /// Makes all fit in the budget: free buffers go that the next flush does not take, then what came longest ago.
    pub(super) fn keep_in_budget(&mut self) {
        while self.cache.bytes() + self.buffer_bytes() > self.config.cache_bytes {
            if self.pool.free_buffers() > self.config.drives.len() && self.pool.drop_one() {
                continue;
            }
            if !self.drop_oldest() {
                return;
            }
        }
    }

    /// Drops what was read or cached longest ago; `false` when nothing is left to drop.
    fn drop_oldest(&mut self) -> bool {
        let flush = self.cache.oldest();
        flush.is_some_and(|flush| self.rows.drop_older(flush)) || self.cache.drop_oldest(&mut self.pool)
    }

    /// Has the buffers of what came longest ago be used again where new ones would not fit: at full rate no memory is let go and asked
    /// for again.
    pub(super) fn reuse_buffers(&mut self, wanted: usize) {
        loop {
            let missing = wanted.saturating_sub(self.pool.free_buffers());
            let new_bytes = missing * self.pool.buffer_bytes();
            if missing == 0 || self.cache.bytes() + self.buffer_bytes() + new_bytes <= self.config.cache_bytes {
                return;
            }
            if !self.drop_oldest() {
                return;
            }
        }
    }
}

impl Writer {
    fn table_bytes(&self) -> usize {
        let open = self.open.iter().chain(&self.retired).map(|open| open.table.capacity());
        let flying = self.in_flight.iter().map(|flight| flight.sealed.table.capacity());
        open.chain(flying).sum()
    }

    fn buffer_bytes(&self) -> usize {
        let filling: usize = self.filling.iter().map(|filling| filling.flush.buffer_bytes()).sum();
        let flying = self.in_flight.iter().flat_map(|flight| &flight.sealed.buffers).map(|buffer| buffer.len());
        filling + flying.sum::<usize>()
    }
}
