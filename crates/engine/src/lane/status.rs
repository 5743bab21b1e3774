//! The state of a lane in numbers.

use forebay_types::RunId;

use super::{Lane, State};
use crate::api::{LaneCounters, LaneStatus};

/// What fits the lane, in segments; those that the loss of drives would cost are not counted.
#[derive(Default)]
struct Room {
    total: u64,
    reserved: u64,
    free: u64,
    /// Payload of a full segment, about.
    segment_bytes: u64,
}

impl Room {
    /// What fragments and files may take, in bytes.
    fn capacity_bytes(&self) -> u64 {
        self.total.saturating_sub(self.reserved).saturating_mul(self.segment_bytes)
    }
}

impl LaneCounters {
    /// Bytes of fragments and of files made durable.
    pub fn payload_bytes_stored(&self) -> u64 {
        self.fragment_bytes_stored + self.file_bytes_stored
    }
}

impl LaneStatus {
    /// Bytes of fragments and of files that are here.
    pub fn payload_bytes(&self) -> u64 {
        self.fragment_bytes + self.file_bytes
    }
}

impl Lane {
    /// What an operator should know.
    pub fn status(&self) -> LaneStatus {
        let (slots_free, slots_total) = self.slots.occupancy();
        let room = self.room();
        LaneStatus {
            lane: self.config.lane,
            state: self.state_name(),
            reason: match &self.state {
                State::Unavailable(reason) => Some(reason.clone()),
                _ => None,
            },
            events: self.index.events(),
            events_undecided: self.index.undecided(),
            events_accepted: self.accepted.len() as u64,
            events_finished: self.finished.events().saturating_sub(self.files_finished()),
            fragments: self.index.fragments(),
            fragment_bytes: self.fragment_bytes,
            files: self.files.len() as u64,
            files_unsealed: (self.files.len() - self.files.sealed()) as u64,
            file_bytes: self.files.piece_bytes(),
            index_bytes: self.index_bytes() as u64,
            cache_bytes: self.cache.bytes() as u64,
            memory_bytes: self.memory_bytes() as u64,
            segments: self.segments.len() as u64,
            slots_free,
            slots_total,
            segments_total: room.total,
            segments_free: room.free,
            segments_reserved: room.reserved,
            capacity_bytes: room.capacity_bytes(),
            free_bytes: room.free.saturating_mul(room.segment_bytes),
            index_bytes_max: self.config.index_bytes as u64,
            cache_bytes_max: self.config.cache_bytes as u64,
            drives_written: self.members().into_iter().map(|drive| drive.0).collect(),
            drives_read: self
                .config
                .drives
                .iter()
                .map(|d| d.number)
                .filter(|d| self.answers(*d))
                .map(|d| d.0)
                .collect(),
            width: self.width().filter(|_| !self.config.read_only).map(|width| (width.data, width.parity)),
            failures_left: self.segments.failures_left(|drive| self.answers(drive)),
            out_of_reach: self.out_of_reach_status(),
            flushes_possibly_lost: self.flushes_possibly_lost,
            flushes_unavailable: self.flushes_unavailable,
            flushes_lost: self.flushes_lost,
            segments_unreadable: self.segments_unreadable,
            segments_unavailable: self.losses.segments_unavailable,
            fragments_known_lost: self.losses.known.fragments(),
            oldest_undecided_s: self.age_of(self.index.undecided_floor()),
            oldest_accepted_s: self.age_of(self.accepted.first()),
            rebuild: self.rebuild_status(),
            scrub: self.scrub_status(),
            compaction: self.compaction_status(),
            drive_health: self.drive_health(),
            counters: self.counters.clone(),
        }
    }

    /// Files that are over: they stand among the events that are.
    fn files_finished(&self) -> u64 {
        if self.config.has_files { self.finished.events_of(RunId::FILES) } else { 0 }
    }

    /// For how many seconds an event has been whole, at least: its segments were last written to so long ago.
    fn age_of(&self, event: Option<forebay_types::EventKey>) -> Option<f64> {
        let event = self.index.event(event?)?;
        let written = event.records().iter().map(|record| self.segments.get(record.segment).written);
        let written = written.max().filter(|written| written.unix_ms().is_some())?;
        self.wall.since(written).map(|age| age.as_secs_f64())
    }

    /// What fragments and files may take of the lane, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.room().capacity_bytes()
    }

    /// What a segment that is opened now holds, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.room().segment_bytes
    }

    fn room(&self) -> Room {
        let Some(width) = self.width() else { return Room::default() };
        let space = self.space(width);
        let total = self.slots.total_after_losses(width, self.config.geometry.data_shards_min) as u64;
        let reserved = (space.kept_from_fragments() as u64).min(total);
        let free = space.free_for_fragments() as u64;
        let slots_bytes = u64::from(width.data) * self.config.geometry.slot_bytes;
        // The rest is for headers, tables, and what a last flush leaves empty.
        let segment_bytes = slots_bytes - slots_bytes / 32;
        Room { total, reserved, free, segment_bytes }
    }

    /// Whether requests are served.
    pub fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving | State::ReadOnly)
    }

    /// Whether the lane knows what is stored and answers for it: reads, lists and leases tell the truth. A lane that can write no more
    /// still does, unless that came about before recovery was at its end: then it knows nothing, and *not found* would be a lie.
    ///
    /// # Errors
    /// Why not, for whoever asked.
    pub fn serves_reads(&self) -> Result<(), &str> {
        match &self.state {
            State::Recovering(_) | State::Preparing => Err("it is still recovering what was stored"),
            State::Stopped => Err("it has stopped"),
            State::Unavailable(reason) if !self.recovered => Err(reason),
            State::Serving | State::ReadOnly | State::Stopping | State::Unavailable(_) => Ok(()),
        }
    }

    /// Whether the lane does nothing more.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped)
    }

    fn state_name(&self) -> &'static str {
        match self.state {
            State::Recovering(_) | State::Preparing => "recovering",
            State::Serving => "serving",
            State::ReadOnly => "read-only",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
            State::Unavailable(_) => "unavailable",
        }
    }
}
