//! Reading fragments and events: what is in memory is copied once, into the reply.

use forebay_engine::Fetch;
use forebay_protocol::{
    EventLine, EventState, FLAG_MORE, FrameHeader, GetEntry, HEADER_BYTES, Kind, SourceEntry, get_event_table,
    get_reply_table,
};
use forebay_types::{EventKey, ReadOutcome, SourceId, crc32c};

use super::{Advance, Core};
use crate::connection::{Connection, Place};
use crate::lane_requests::LaneRequests;
use crate::limits::{CHUNK_BYTES, READS_BYTES_MAX, READS_MAX, RECORD_WORK_BYTES, REPLY_BYTES, REPLY_RECORDS_MAX};
use crate::request::{Body, EventBody, GetBody, Reading, Request, token};

/// Entries of the first frame of a reply, when nothing is known of the sizes.
const FIRST_ENTRIES: usize = 128;

/// The head of a frame whose payload is appended before its table is known.
struct OpenFrame {
    at: usize,
    table_bytes: usize,
}

impl OpenFrame {
    /// Leaves room for a table of at most `table_bytes`. Readers skip what lies behind the fields that they know, so that a shorter one
    /// needs no move of the payload.
    fn begin(chunk: &mut Vec<u8>, table_bytes: usize) -> OpenFrame {
        let at = chunk.len();
        chunk.resize(at + HEADER_BYTES + table_bytes, 0);
        OpenFrame { at, table_bytes }
    }

    fn payload_bytes(&self, chunk: &[u8]) -> usize {
        chunk.len() - self.at - HEADER_BYTES - self.table_bytes
    }

    fn end(self, chunk: &mut [u8], kind: Kind, more: bool, request: u64, table: &[u8]) {
        let payload_bytes = self.payload_bytes(chunk) as u32;
        let (head, rest) = chunk[self.at..].split_at_mut(HEADER_BYTES);
        rest[..table.len()].copy_from_slice(table);
        let header = FrameHeader {
            kind: kind.code(),
            flags: if more { FLAG_MORE } else { 0 },
            request,
            table_bytes: self.table_bytes as u32,
            payload_bytes,
            table_crc32c: crc32c(&rest[..self.table_bytes]),
        };
        head.copy_from_slice(&header.encode());
    }

    fn drop_from(self, chunk: &mut Vec<u8>) {
        chunk.truncate(self.at);
    }
}

impl Core {
    /// Whether the lane may have one more read from drives under way.
    pub(super) fn may_read(&self) -> bool {
        self.reads < READS_MAX && self.reads_bytes < READS_BYTES_MAX
    }

    /// What a reader waits for before it is served further.
    fn read_waits(&self, connection: &Connection) -> Option<Advance> {
        if self.is_full(connection) {
            Some(Advance::Park(Place::Out))
        } else if !self.has_room_for_replies() {
            Some(Advance::Park(Place::Replies))
        } else if !self.may_read() {
            Some(Advance::Park(Place::Reads))
        } else if connection.allowance == 0 {
            Some(Advance::Again)
        } else {
            None
        }
    }

    fn start_read(&mut self, connection: &mut Connection, reading: Reading) {
        self.reads += 1;
        self.reads_bytes += reading.bytes;
        connection.reads_bytes += reading.bytes;
    }

    pub(super) fn serve_get(
        &mut self,
        key: u64,
        number: u64,
        connection: &mut Connection,
        body: &mut GetBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        loop {
            if let Some(advance) = self.read_waits(connection) {
                return advance;
            }
            let mut chunk = connection.out.take_chunk(&mut self.chunks);
            let served = self.get_frame(key, number, connection, body, waits, lane, &mut chunk.bytes);
            connection.out.put_chunk(chunk, &mut self.chunks);
            connection.allowance = connection.allowance.saturating_sub(served);
            if body.next == body.ids.len() {
                return Advance::Done;
            }
        }
    }

    /// Appends a frame with what is at hand; gives the work that it was.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request, borrowed apart")]
    fn get_frame(
        &mut self,
        key: u64,
        number: u64,
        connection: &mut Connection,
        body: &mut GetBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
        chunk: &mut Vec<u8>,
    ) -> usize {
        let places = body.expected_entries();
        let frame = OpenFrame::begin(chunk, 8 + places * 16);
        let mut entries = Vec::with_capacity(places);
        let first = body.next;
        while body.next < body.ids.len()
            && body.next - first < places
            && frame.payload_bytes(chunk) < REPLY_BYTES
            && self.may_read()
        {
            let (id, index) = (body.ids[body.next], body.next as u32);
            let before = chunk.len();
            match lane.get(token(key, usize::from(body.readings.next())), id, chunk) {
                Fetch::Done(outcome, crc) => {
                    let bytes = (chunk.len() - before) as u32;
                    body.found = (body.found.0 + bytes as usize, body.found.1 + 1);
                    entries.push(GetEntry { index, outcome, bytes, crc });
                }
                Fetch::Pending { bytes } => {
                    let reading = Reading { index, source: id.source, bytes: bytes as usize };
                    body.readings.insert(reading);
                    *waits += 1;
                    self.start_read(connection, reading);
                }
            }
            body.next += 1;
        }
        let served = frame.payload_bytes(chunk) + (body.next - first) * RECORD_WORK_BYTES;
        let is_last = body.next == body.ids.len() && *waits == 0;
        if entries.is_empty() && !is_last {
            frame.drop_from(chunk);
        } else {
            frame.end(chunk, Kind::GetReply, !is_last, number, &get_reply_table(&entries));
        }
        served
    }

    pub(super) fn serve_events(
        &mut self,
        key: u64,
        number: u64,
        connection: &mut Connection,
        body: &mut EventBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        loop {
            if let Some(advance) = self.read_waits(connection) {
                return advance;
            }
            let (lines, plan) = body.plan(READS_MAX - self.reads, lane);
            let mut chunk = connection.out.take_chunk(&mut self.chunks);
            let served =
                self.event_frame(key, number, connection, body, waits, lane, (&lines, &plan), &mut chunk.bytes);
            connection.out.put_chunk(chunk, &mut self.chunks);
            connection.allowance = connection.allowance.saturating_sub(served);
            if body.is_done() {
                return Advance::Done;
            }
        }
    }

    /// Appends a frame with what is at hand of a plan; gives the work that it was.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request, borrowed apart")]
    fn event_frame(
        &mut self,
        key: u64,
        number: u64,
        connection: &mut Connection,
        body: &mut EventBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
        (lines, plan): (&[EventLine], &[(u32, SourceId, u32)]),
        chunk: &mut Vec<u8>,
    ) -> usize {
        let frame = OpenFrame::begin(chunk, 8 + lines.len() * 16 + plan.len() * 24);
        let mut entries = Vec::with_capacity(plan.len());
        for (index, source, bytes) in plan.iter().copied() {
            let id = body.keys[index as usize].fragment(source);
            let before = chunk.len();
            match lane.get(token(key, usize::from(body.readings.next())), id, chunk) {
                Fetch::Done(outcome, crc) => {
                    let bytes = (chunk.len() - before) as u32;
                    entries.push(SourceEntry { index, source, outcome, bytes, crc });
                }
                Fetch::Pending { .. } => {
                    let reading = Reading { index, source, bytes: bytes as usize };
                    body.readings.insert(reading);
                    *waits += 1;
                    self.start_read(connection, reading);
                }
            }
        }
        let served = frame.payload_bytes(chunk) + (lines.len() + plan.len()) * RECORD_WORK_BYTES;
        let is_last = body.is_done() && *waits == 0;
        if lines.is_empty() && entries.is_empty() && !is_last {
            frame.drop_from(chunk);
        } else {
            frame.end(chunk, Kind::GetEventReply, !is_last, number, &get_event_table(lines, &entries));
        }
        served
    }

    /// A read from drives came back.
    pub(super) fn take_read(
        &mut self,
        slot: u16,
        request: &mut Request,
        connection: Option<&mut Connection>,
        outcome: ReadOutcome,
        payload: Vec<u8>,
        crc: u32,
    ) {
        let (readings, is_last) = match &mut request.body {
            Body::Get(get) => (&mut get.readings, get.next == get.ids.len()),
            Body::GetEvent(events) => {
                let is_last = events.is_done();
                (&mut events.readings, is_last)
            }
            _ => unreachable!("only reads are answered with bytes"),
        };
        let Reading { index, source, bytes } = readings.remove(slot);
        self.reads -= 1;
        self.reads_bytes -= bytes;
        let Some(connection) = connection else { return };
        connection.reads_bytes -= bytes;
        let payload = if outcome == ReadOutcome::Found { payload } else { Vec::new() };
        let bytes = payload.len() as u32;
        let (kind, table) = match &request.body {
            Body::Get(_) => (Kind::GetReply, get_reply_table(&[GetEntry { index, outcome, bytes, crc }])),
            _ => {
                let entry = SourceEntry { index, source, outcome, bytes, crc };
                (Kind::GetEventReply, get_event_table(&[], &[entry]))
            }
        };
        let is_last = is_last && request.waits == 1;
        let flags = if is_last { 0 } else { FLAG_MORE };
        connection.out.append(&mut self.chunks, |chunk| {
            forebay_protocol::encode_head(kind, flags, request.number, &table, payload.len(), chunk);
            if payload.len() < CHUNK_BYTES {
                chunk.extend_from_slice(&payload);
            }
        });
        if payload.len() >= CHUNK_BYTES {
            connection.out.push(payload);
        }
    }
}

impl GetBody {
    /// How many entries the next frame may have, judged by the sizes so far.
    fn expected_entries(&self) -> usize {
        let expected = match self.found {
            (_, 0) => FIRST_ENTRIES,
            (bytes, count) => REPLY_BYTES * count / bytes.max(1) + 1,
        };
        expected.min(REPLY_RECORDS_MAX).min(self.ids.len() - self.next)
    }
}

impl EventBody {
    /// What goes into the next frame: lines of events, and their fragments with sizes, at most `reads_max`.
    fn plan(&mut self, reads_max: usize, lane: &impl LaneRequests) -> (Vec<EventLine>, Vec<(u32, SourceId, u32)>) {
        let (mut lines, mut plan, mut bytes) = (Vec::new(), Vec::new(), 0);
        let fragments_max = reads_max.min(REPLY_RECORDS_MAX);
        while bytes < REPLY_BYTES && plan.len() < fragments_max && lines.len() < REPLY_RECORDS_MAX {
            if let Some((index, rest)) = &mut self.rest {
                match rest.pop() {
                    Some((source, size)) => {
                        plan.push((*index, source, size));
                        bytes += size as usize;
                    }
                    None => self.rest = None,
                }
                continue;
            }
            let Some(key) = self.keys.get(self.next).copied() else { break };
            let index = self.next as u32;
            self.next += 1;
            let (line, fragments) = self.look_up(index, key, lane);
            lines.push(line);
            self.rest = Some((index, fragments));
        }
        if self.rest.as_ref().is_some_and(|(_, rest)| rest.is_empty()) {
            self.rest = None;
        }
        (lines, plan)
    }

    fn look_up(&self, index: u32, key: EventKey, lane: &impl LaneRequests) -> (EventLine, Vec<(SourceId, u32)>) {
        if let Some(view) = lane.event(key) {
            let state = match (view.accepted, view.leased) {
                (true, _) => EventState::Accepted,
                (_, true) => EventState::Leased,
                _ => EventState::Undecided,
            };
            let (expected, fragments) = (view.expected, view.fragments.len() as u32);
            let line = EventLine { index, outcome: ReadOutcome::Found, state, expected, fragments };
            return (line, self.wanted(&view));
        }
        let outcome = lane.outcome_of_unknown(key);
        let state = if outcome == ReadOutcome::Deleted { EventState::Finished } else { EventState::Unknown };
        (EventLine { index, outcome, state, expected: 0, fragments: 0 }, Vec::new())
    }
}
