//! Reading fragments and events: what is in memory is copied once, into the reply.

use forebay_engine::{EventFragments, EventPart, Fetch, FetchEvent, JOINED_FRAGMENTS_MAX};
use forebay_protocol::{
    Class, EventLine, EventState, FLAG_MORE, FrameHeader, GetEntry, HEADER_BYTES, Kind, SourceEntry, get_event_table,
    get_reply_table,
};
use forebay_types::{EventKey, ReadOutcome, crc32c};

use super::{Advance, Core};
use crate::connection::{Connection, Place};
use crate::lane_requests::LaneRequests;
use crate::limits::{CHUNK_BYTES, READS_BYTES_MAX, READS_MAX, RECORD_WORK_BYTES, REPLY_BYTES, REPLY_RECORDS_MAX};
use crate::request::{Body, EventBody, GetBody, Piece, Reading, Request, token};
use crate::schedule::class_place;

/// Entries of the first frame of a reply, when nothing is known of the sizes.
const FIRST_ENTRIES: usize = 128;

const _: () = assert!(JOINED_FRAGMENTS_MAX <= REPLY_RECORDS_MAX, "an event that is one record is told in one frame");

/// The head of a frame whose payload is appended before its table is known.
pub(super) struct OpenFrame {
    at: usize,
    table_bytes: usize,
}

impl OpenFrame {
    /// Leaves room for a table of at most `table_bytes`. Readers skip what lies behind the fields that they know, so that a shorter one
    /// needs no move of the payload.
    pub(super) fn begin(chunk: &mut Vec<u8>, table_bytes: usize) -> OpenFrame {
        let at = chunk.len();
        chunk.resize(at + HEADER_BYTES + table_bytes, 0);
        OpenFrame { at, table_bytes }
    }

    fn payload_bytes(&self, chunk: &[u8]) -> usize {
        chunk.len() - self.at - HEADER_BYTES - self.table_bytes
    }

    pub(super) fn end(self, chunk: &mut [u8], kind: Kind, more: bool, request: u64, table: &[u8]) {
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

    pub(super) fn drop_from(self, chunk: &mut Vec<u8>) {
        chunk.truncate(self.at);
    }
}

impl Core {
    /// Whether the lane may have one more read from drives under way, whoever asks.
    pub(super) fn has_room_for_reads(&self) -> bool {
        self.reads.iter().sum::<usize>() < READS_MAX && self.reads_bytes.iter().sum::<usize>() < READS_BYTES_MAX
    }

    /// Whether it may have one more for this class.
    pub(super) fn may_read(&self, class: Class) -> bool {
        let (reads, bytes) = self.asked.step.reads_max(class);
        let place = class_place(class);
        self.has_room_for_reads() && self.reads[place] < reads && self.reads_bytes[place] < bytes
    }

    /// How many more reads it may have for this class.
    fn reads_left(&self, class: Class) -> usize {
        let all = READS_MAX.saturating_sub(self.reads.iter().sum());
        all.min(self.asked.step.reads_max(class).0.saturating_sub(self.reads[class_place(class)]))
    }

    /// What a reader waits for before it is served further.
    pub(super) fn read_waits(&self, connection: &Connection) -> Option<Advance> {
        if self.is_full(connection) {
            Some(Advance::Park(Place::Out))
        } else if !self.has_room_for_replies() {
            Some(Advance::Park(Place::Replies))
        } else if !self.may_read(connection.class) {
            Some(Advance::Park(Place::Reads))
        } else if connection.allowance == 0 {
            Some(Advance::Again)
        } else {
            None
        }
    }

    /// Drives are read for a connection.
    pub(super) fn begin_reading(&mut self, connection: &mut Connection, bytes: usize) {
        let place = class_place(connection.class);
        self.reads[place] += 1;
        self.reads_bytes[place] += bytes;
        connection.reads_bytes += bytes;
    }

    /// They were.
    pub(super) fn end_reading_of(&mut self, class: Class, bytes: usize) {
        let place = class_place(class);
        self.reads[place] -= 1;
        self.reads_bytes[place] -= bytes;
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
            && self.may_read(connection.class)
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
                    let what = Piece::Fragment(id.source, bytes);
                    let reading = Reading { index, what, bytes: bytes as usize };
                    body.readings.insert(reading);
                    *waits += 1;
                    self.begin_reading(connection, reading.bytes);
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
            let (lines, plan) = body.plan(self.reads_left(connection.class), lane);
            let mut chunk = connection.out.take_chunk(&mut self.chunks);
            let served = self.event_frame(key, number, connection, body, waits, lane, (lines, &plan), &mut chunk.bytes);
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
        (mut lines, plan): (Vec<EventLine>, &[(u32, Piece)]),
        chunk: &mut Vec<u8>,
    ) -> usize {
        let places: usize = plan.iter().map(|(_, piece)| piece.entries()).sum();
        let wholes = plan.iter().filter(|(_, piece)| matches!(piece, Piece::Whole(..))).count();
        let frame = OpenFrame::begin(chunk, 8 + (lines.len() + wholes) * 16 + places * 24);
        let mut entries = Vec::with_capacity(places);
        for (index, what) in plan.iter().copied() {
            let (event, before) = (body.keys[index as usize], chunk.len());
            let token = token(key, usize::from(body.readings.next()));
            let is_pending = match what {
                Piece::Fragment(source, _) => match lane.get(token, event.fragment(source), chunk) {
                    Fetch::Done(outcome, crc) => {
                        let bytes = (chunk.len() - before) as u32;
                        entries.push(SourceEntry { index, source, outcome, bytes, crc });
                        false
                    }
                    Fetch::Pending { .. } => true,
                },
                Piece::Whole(line, _) => match lane.get_whole(token, event, chunk) {
                    FetchEvent::Done(outcome, fragments) => {
                        lines.push(line_of_whole(line, outcome));
                        let parts: Vec<EventPart> = fragments.into_iter().map(EventPart::found).collect();
                        keep_wanted(body, &parts, chunk, before);
                        entries.extend(entries_of_whole(body, index, &parts));
                        false
                    }
                    FetchEvent::Pending { .. } => true,
                },
            };
            if is_pending {
                let reading = Reading { index, what, bytes: what.bytes() as usize };
                body.readings.insert(reading);
                *waits += 1;
                self.begin_reading(connection, reading.bytes);
            }
        }
        let served = frame.payload_bytes(chunk) + (lines.len() + places) * RECORD_WORK_BYTES;
        let is_last = body.is_done() && *waits == 0;
        if lines.is_empty() && entries.is_empty() && !is_last {
            frame.drop_from(chunk);
        } else {
            frame.end(chunk, Kind::GetEventReply, !is_last, number, &get_event_table(&lines, &entries));
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
        let Reading { index, what, bytes } = self.end_reading(slot, request);
        let Some(connection) = connection else { return };
        connection.reads_bytes -= bytes;
        let payload = if outcome == ReadOutcome::Found { payload } else { Vec::new() };
        let bytes = payload.len() as u32;
        let (kind, table) = match (&request.body, what) {
            (Body::GetEvent(_), Piece::Fragment(source, _)) => {
                let entry = SourceEntry { index, source, outcome, bytes, crc };
                (Kind::GetEventReply, get_event_table(&[], &[entry]))
            }
            _ => (Kind::GetReply, get_reply_table(&[GetEntry { index, outcome, bytes, crc }])),
        };
        self.answer_read(connection, request, kind, &table, payload);
    }

    /// A read of a whole event from drives came back.
    pub(super) fn take_event(
        &mut self,
        slot: u16,
        request: &mut Request,
        connection: Option<&mut Connection>,
        outcome: ReadOutcome,
        parts: &[EventPart],
        mut payload: Vec<u8>,
    ) {
        let Reading { index, what, bytes } = self.end_reading(slot, request);
        let Some(connection) = connection else { return };
        connection.reads_bytes -= bytes;
        let (Body::GetEvent(body), Piece::Whole(line, _)) = (&request.body, what) else {
            unreachable!("whole events are read for who asks for events")
        };
        keep_wanted(body, parts, &mut payload, 0);
        let entries: Vec<SourceEntry> = entries_of_whole(body, index, parts).collect();
        let table = get_event_table(&[line_of_whole(line, outcome)], &entries);
        self.answer_read(connection, request, Kind::GetEventReply, &table, payload);
    }

    fn end_reading(&mut self, slot: u16, request: &mut Request) -> Reading {
        let readings = match &mut request.body {
            Body::Get(get) => &mut get.readings,
            Body::GetEvent(events) => &mut events.readings,
            _ => unreachable!("only reads are answered with bytes"),
        };
        let reading = readings.remove(slot);
        self.end_reading_of(request.class, reading.bytes);
        reading
    }

    /// A frame with what one read gave.
    fn answer_read(
        &mut self,
        connection: &mut Connection,
        request: &Request,
        kind: Kind,
        table: &[u8],
        payload: Vec<u8>,
    ) {
        let is_last = match &request.body {
            Body::Get(get) => get.next == get.ids.len(),
            Body::GetEvent(events) => events.is_done(),
            _ => unreachable!("only reads are answered with bytes"),
        };
        let flags = if is_last && request.waits == 1 { 0 } else { FLAG_MORE };
        self.send_bytes(connection, kind, flags, request.number, table, payload);
    }

    /// A frame whose payload is sent from where it lies when it is long.
    pub(super) fn send_bytes(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        flags: u16,
        number: u64,
        table: &[u8],
        payload: Vec<u8>,
    ) {
        connection.out.append(&mut self.chunks, |chunk| {
            forebay_protocol::encode_head(kind, flags, number, table, payload.len(), chunk);
            if payload.len() < CHUNK_BYTES {
                chunk.extend_from_slice(&payload);
            }
        });
        if payload.len() >= CHUNK_BYTES {
            connection.out.push(payload);
        }
    }
}

/// The line of an event whose one record was read. How many fragments are stored is told also when it cannot be read which they are.
fn line_of_whole(line: EventLine, outcome: ReadOutcome) -> EventLine {
    let is_stored = !matches!(outcome, ReadOutcome::NotFound | ReadOutcome::Deleted);
    let fragments = if is_stored { line.fragments } else { 0 };
    EventLine { outcome, fragments, ..line }
}

/// Bytes of a fragment that came with its event.
fn bytes_of(part: &EventPart) -> u32 {
    if part.outcome == ReadOutcome::Found { part.fragment.bytes } else { 0 }
}

/// Of the bytes of an event's fragments, which begin at `start` of `bytes`, those that are asked for.
fn keep_wanted(body: &EventBody, parts: &[EventPart], bytes: &mut Vec<u8>, start: usize) {
    let (mut from, mut to) = (start, start);
    for part in parts {
        let end = from + bytes_of(part) as usize;
        if body.wants(part.fragment.source) {
            bytes.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    bytes.truncate(to);
}

fn entries_of_whole<'a>(
    body: &'a EventBody,
    index: u32,
    parts: &'a [EventPart],
) -> impl Iterator<Item = SourceEntry> + 'a {
    let entry = move |part: &EventPart| {
        let EventPart { fragment, outcome } = *part;
        SourceEntry { index, source: fragment.source, outcome, bytes: bytes_of(part), crc: fragment.crc }
    };
    parts.iter().filter(|part| body.wants(part.fragment.source)).map(entry)
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
    /// What goes into the next frame: lines of events, and pieces of these with sizes, at most `reads_max`.
    fn plan(&mut self, reads_max: usize, lane: &impl LaneRequests) -> (Vec<EventLine>, Vec<(u32, Piece)>) {
        let (mut lines, mut plan, mut bytes, mut entries) = (Vec::new(), Vec::new(), 0, 0);
        while bytes < REPLY_BYTES
            && plan.len() < reads_max
            && entries < REPLY_RECORDS_MAX
            && lines.len() < REPLY_RECORDS_MAX
        {
            if let Some((index, rest)) = &mut self.rest {
                match rest.last() {
                    Some(piece) if entries > 0 && entries + piece.entries() > REPLY_RECORDS_MAX => break,
                    Some(piece) => {
                        plan.push((*index, *piece));
                        bytes += piece.bytes() as usize;
                        entries += piece.entries();
                        rest.pop();
                    }
                    None => self.rest = None,
                }
                continue;
            }
            let Some(key) = self.keys.get(self.next).copied() else { break };
            let index = self.next as u32;
            self.next += 1;
            let (line, pieces) = self.look_up(index, key, lane);
            lines.extend(line);
            self.rest = Some((index, pieces));
        }
        if self.rest.as_ref().is_some_and(|(_, rest)| rest.is_empty()) {
            self.rest = None;
        }
        (lines, plan)
    }

    /// What is known of an event, and what is to be read of it, last first. The line of one that is read whole goes with that.
    fn look_up(&self, index: u32, key: EventKey, lane: &impl LaneRequests) -> (Option<EventLine>, Vec<Piece>) {
        let Some(view) = lane.event(key) else {
            let outcome = lane.outcome_of_unknown(key);
            let state = if outcome == ReadOutcome::Deleted { EventState::Finished } else { EventState::Unknown };
            return (Some(EventLine { index, outcome, state, expected: 0, fragments: 0 }), Vec::new());
        };
        let state = match (view.accepted, view.leased) {
            (true, _) => EventState::Accepted,
            (_, true) => EventState::Leased,
            _ => EventState::Undecided,
        };
        let line =
            |fragments| EventLine { index, outcome: ReadOutcome::Found, state, expected: view.expected, fragments };
        match view.fragments {
            EventFragments::Whole { fragments, bytes } => (None, vec![Piece::Whole(line(fragments), bytes)]),
            EventFragments::Each(fragments) => {
                let wanted = fragments.iter().rev().filter(|(source, _)| self.wants(*source));
                let pieces = wanted.map(|(source, bytes)| Piece::Fragment(*source, *bytes)).collect();
                (Some(line(fragments.len() as u32)), pieces)
            }
        }
    }
}
