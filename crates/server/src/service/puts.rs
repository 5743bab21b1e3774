//! Fragments on their way to the lane.

use forebay_engine::{Admission, Put};
use forebay_types::PutOutcome;

use super::{Advance, Core};
use crate::connection::{Connection, Place};
use crate::lane_requests::LaneRequests;
use crate::limits::{LOOK_AHEAD_BYTES, RECORD_WORK_BYTES};
use crate::request::{Body, PutBody, Request, token};

impl Core {
    /// Offers the records of a request to the lane, as far as they have arrived and the lane takes them.
    pub(super) fn advance(
        &mut self,
        key: u64,
        connection: &mut Connection,
        request: &mut Request,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        let Request { connection: id, number, waits, body, .. } = request;
        match body {
            Body::Put(put) => self.offer_puts(key, connection, put, waits, lane),
            Body::Tell(tell) => self.offer_tells(key, connection, tell, waits, lane),
            Body::Get(get) => self.serve_get(key, *number, connection, get, waits, lane),
            Body::GetEvent(events) => self.serve_events(key, *number, connection, events, waits, lane),
            Body::File(file) => self.ask_file(key, *id, file, waits, lane),
            Body::FileWrite(write) => self.write_file(key, *id, connection, write, waits, lane),
            Body::FileRead(read) => self.read_file(key, *number, connection, read, waits, lane),
            Body::Name(name) => self.ask_names(key, name, waits, lane),
            Body::Trace(trace) => {
                *waits += 1;
                lane.trace(token(key, 0), trace.key);
                Advance::Done
            }
        }
    }

    fn offer_puts(
        &mut self,
        key: u64,
        connection: &mut Connection,
        body: &mut PutBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        let token = token(key, 0);
        let bytes_max = self.config.fragment_bytes_max as usize;
        while let Some(entry) = body.entries.get(body.next) {
            let bytes = entry.bytes as usize;
            if bytes > bytes_max {
                if let Some(advance) = skip_too_large(connection, body, bytes) {
                    return advance;
                }
                continue;
            }
            let Some(payload) = connection.receive.bytes().get(..bytes) else { return Advance::Needs(bytes) };
            if !self.rules.are_known {
                // Of some runs it must take nothing, which it will be told.
                return self.park_busy();
            }
            if self.lane_is_busy {
                // Others of its class came first and wait too.
                return Advance::Park(Place::Busy);
            }
            if connection.allowance == 0 {
                return Advance::Again;
            }
            let put = Put { id: entry.id, expected: entry.expected, crc: entry.crc };
            let outcome = match lane.put(token, &put, payload) {
                Admission::Done(outcome) => {
                    if matches!(outcome, PutOutcome::NoSpace | PutOutcome::IndexFull) {
                        self.asked = self.asked.refused();
                    }
                    Some(outcome)
                }
                Admission::Pending => {
                    *waits += 1;
                    None
                }
                Admission::Busy => return self.park_busy(),
            };
            body.outcomes.push(outcome);
            body.next += 1;
            connection.receive.consume(bytes);
            connection.moved_on();
            connection.allowance = connection.allowance.saturating_sub(bytes + RECORD_WORK_BYTES);
        }
        Advance::Done
    }

    /// The lane takes nothing now.
    pub(super) fn park_busy(&mut self) -> Advance {
        if !self.has_busy() {
            self.busy_since = self.now;
        }
        self.lane_is_busy = true;
        Advance::Park(Place::Busy)
    }
}

/// Drops what arrived of a fragment that this store does not take, without a buffer of its size.
fn skip_too_large(connection: &mut Connection, body: &mut PutBody, bytes: usize) -> Option<Advance> {
    let dropped = (bytes - body.skipped).min(connection.receive.len());
    body.skipped += dropped;
    connection.receive.consume(dropped);
    connection.allowance = connection.allowance.saturating_sub(dropped);
    if body.skipped < bytes {
        return Some(Advance::Needs(1));
    }
    connection.moved_on();
    body.skipped = 0;
    body.next += 1;
    body.outcomes.push(Some(PutOutcome::TooLarge));
    None
}

impl PutBody {
    /// How far to read into a buffer of `capacity` bytes: to the end of the last fragment that it holds whole.
    pub(super) fn read_limit(&self, capacity: usize, fragment_bytes_max: u32) -> usize {
        let mut limit = 0;
        for entry in self.entries.get(self.next..).unwrap_or_default() {
            let bytes = entry.bytes as usize;
            if entry.bytes > fragment_bytes_max {
                // It is not kept: any part of it will do.
                return (limit + bytes - self.skipped).min(capacity);
            }
            if limit + bytes > capacity {
                return limit;
            }
            limit += bytes;
        }
        // Behind the last fragment the next request may be there already.
        (limit + LOOK_AHEAD_BYTES).min(capacity)
    }
}
