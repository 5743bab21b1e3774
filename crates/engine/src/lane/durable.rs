//! What happens when a flush is on stable media: acknowledgements, decisions that take effect, events that are complete.

use forebay_format::{RECORD_INCOMPLETE, RecordKind, RowGeometry, TableEntry};
use forebay_types::{DecideOutcome, DriveNumber, EventKey, FileNumber};

use super::Lane;
use super::compact::copied_from;
use super::write::{InFlight, Waiter};
use crate::accepted::StreamSet;
use crate::api::{Reply, Token};
use crate::cache::WrittenFlush;
use crate::ends::EventEnd;
use crate::index::EventFlags;
use crate::io::Failure;
use crate::lease::Tick;
use crate::planted::{Planted, planted};
use crate::recovery::{bury_event, decode_table};
use crate::segments::SegmentIndex;

impl Lane {
    pub(super) fn flush_shard_done(&mut self, serial: u64, shard: u8, drive: DriveNumber, result: Result<(), Failure>) {
        // Once the lane can write no more its flushes are forgotten before they are back.
        let Some(flight) = self.writer.in_flight.iter_mut().find(|f| f.serial == serial) else { return };
        if result.is_err() && planted(Planted::FailedFlushRetried) {
            return self.write_shard_again(serial, shard, drive);
        }
        flight.pending -= 1;
        if let Err(failure) = result
            && !planted(Planted::FailedWriteIgnored)
        {
            flight.failed = true;
            self.fail_drive(drive, &format!("a write failed: {failure}"));
        }
        self.acknowledge();
    }

    /// The mistake of its name.
    fn write_shard_again(&mut self, serial: u64, shard: u8, drive: DriveNumber) {
        let flight = self.writer.in_flight.iter().find(|f| f.serial == serial).expect("looked at just now");
        let place = self.segments.get(flight.segment).shards[usize::from(shard)];
        let offset = self.slot_offset(place) + flight.span.offset_bytes;
        let buffer = std::sync::Arc::clone(&flight.sealed.buffers[usize::from(shard)]);
        let owner = crate::io::Owner::Flush { serial, shard };
        self.io.write(owner, drive, offset, buffer, flight.sealed.shard_bytes);
    }

    /// Flushes are acknowledged in order, each when all of its shards are durable.
    pub(super) fn acknowledge(&mut self) {
        let enough = usize::from(planted(Planted::AckBeforeLastShard));
        let is_durable = |flight: &InFlight| flight.pending <= enough && !flight.failed;
        while self.writer.in_flight.front().is_some_and(is_durable) {
            let flight = self.writer.in_flight.pop_front().expect("looked at just now");
            self.flush_is_durable(flight);
        }
        if planted(Planted::AckOutOfOrder)
            && let Some(at) = self.writer.in_flight.iter().position(is_durable)
        {
            let flight = self.writer.in_flight.remove(at).expect("looked at just now");
            self.flush_is_durable(flight);
        }
    }

    fn flush_is_durable(&mut self, flight: InFlight) {
        let InFlight { segment: index, span, mut sealed, waiters, repeated, .. } = flight;
        let full = usize::from(self.config.geometry.data_shards) + usize::from(self.config.geometry.parity_shards);
        let segment = self.segments.get_mut(index);
        segment.durable_flushes = span.flush + 1;
        segment.durable_position = span.position + span.positions();
        let data_shards = usize::from(segment.data_shards);
        let geometry = RowGeometry {
            data_shards: segment.data_shards,
            unit_bytes: segment.unit_bytes,
            data_bytes: span.data_bytes,
        };
        let degraded = segment.shards.len() < full;
        let less_parity = segment.parity_shards < self.config.geometry.parity_shards;
        let fragments_before = self.counters.fragments_stored;
        let table = std::mem::take(&mut sealed.table);
        let copies = copied_from(&waiters);
        self.copies_are_durable(copies.len());
        for (at, entry) in decode_table(&table).enumerate() {
            let position = span.position + entry.offset_units;
            match copies.get(&at) {
                copy if entry.kind.is_of_file() => {
                    self.record_of_file_is_durable(index, position, &entry, copy.is_some());
                }
                Some(copy) => self.copy_counts(*copy, index, position, &entry),
                None => self.record_is_durable(Some(index), &entry, degraded),
            }
        }
        if less_parity {
            self.counters.fragments_stored_less_parity += self.counters.fragments_stored - fragments_before;
        }
        for (waiter, records) in waiters {
            self.replies.extend(match waiter {
                Waiter::Put(Token::NONE) | Waiter::Decision(Token::NONE) | Waiter::Copy(_) => None,
                Waiter::Put(token) => Some(Reply::Stored { token, records }),
                Waiter::Decision(token) => Some(Reply::Decided { token, outcome: DecideOutcome::Done }),
            });
        }
        self.replies.extend(repeated.into_iter().map(|token| Reply::Stored { token, records: 1 }));
        let parity = sealed.buffers.split_off(data_shards);
        self.pool.give_back_shared(parity);
        if self.config.cache_bytes == 0 {
            self.pool.give_back_shared(sealed.buffers);
        } else {
            let written = WrittenFlush { shards: sealed.buffers, header_bytes: sealed.header_bytes, geometry };
            self.cache.insert(index, span.flush, written, &mut self.pool);
            self.keep_in_budget();
        }
    }

    /// A record took effect: in a segment, or by a checkpoint alone.
    pub(super) fn record_is_durable(&mut self, segment: Option<SegmentIndex>, entry: &TableEntry, degraded: bool) {
        let key = entry.key();
        let incomplete = entry.flags & RECORD_INCOMPLETE != 0;
        match entry.kind {
            RecordKind::Fragment => {
                self.counters.fragments_stored += 1;
                self.counters.fragment_bytes_stored += u64::from(entry.bytes);
                self.counters.fragments_stored_degraded += u64::from(degraded);
                self.offer_and_tell(key);
            }
            // Written again after a crash; copies of the running store come by another way.
            RecordKind::Event => self.offer_and_tell(key),
            RecordKind::Accept => {
                self.counters.events_accepted += 1;
                self.counters.events_incomplete += u64::from(incomplete);
                let streams = StreamSet::of_record(entry);
                let needed = self.accepted.accept(key, streams, incomplete, segment);
                if needed && let Some(segment) = segment {
                    self.segments.revive(segment, 0);
                }
                self.index.accept(key, incomplete);
                if needed {
                    self.tell_accepted(key, streams, incomplete);
                }
            }
            RecordKind::Release => {
                let needed = self.accepted.release(key, StreamSet::of_record(entry), segment);
                if needed && let Some(segment) = segment {
                    self.segments.revive(segment, 0);
                }
                if self.accepted.get(key).is_some_and(|a| a.is_over() || planted(Planted::ReleasedByOne)) {
                    self.counters.events_released += 1;
                    self.finish_event(key, EventEnd::Released);
                } else if let Some(event) = self.index.event_mut(key) {
                    event.flags.set(EventFlags::DECIDING, false);
                }
            }
            RecordKind::Reject => {
                self.counters.events_rejected += 1;
                self.counters.events_incomplete += u64::from(incomplete);
                self.finish_event(key, EventEnd::Rejected);
            }
            RecordKind::End => self.file_is_over(FileNumber(key.event.0)),
            RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums => {
                unreachable!("records of files take effect by another way")
            }
            RecordKind::Delete => {
                self.counters.events_deleted += 1;
                self.finish_event(key, EventEnd::Deleted);
            }
        }
    }

    /// The event is over: it leaves the index in one step.
    fn finish_event(&mut self, key: EventKey, end: EventEnd) {
        self.carried.remove(key);
        self.finished.insert(key);
        self.ends.insert(key, end);
        self.losses.known.forget_event(key);
        if let Some(event) = bury_event(key, &mut self.index, &mut self.accepted, &mut self.segments) {
            self.fragment_bytes -= event.record_bytes();
        }
    }

    fn offer_and_tell(&mut self, key: EventKey) {
        if self.offer(key) && !planted(Planted::ToldBeforeDurable) {
            self.tell_offered(key, false);
        }
    }

    /// A fragment of the event is durable: filters may have it when it has all of them, or when it has waited for them. Gives back whether they may
    /// from now on.
    pub(super) fn offer(&mut self, key: EventKey) -> bool {
        let Some(event) = self.index.event(key) else { return false };
        if [EventFlags::ACCEPTED, EventFlags::READY, EventFlags::LEASED].iter().any(|flag| event.flags.has(*flag)) {
            return false;
        }
        if event.is_complete() && self.is_durable(event) {
            self.index.offer(key);
            return true;
        }
        if !event.flags.has(EventFlags::TIMED) {
            self.index.wait(key, Tick::not_before(self.now + self.config.incomplete_after));
        }
        false
    }
}
