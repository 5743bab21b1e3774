//! All that a lane knows of one event, for whoever wants to know what happened to it.
//!
//! The index keeps no times: when a fragment arrived is told by the header of its flush, which is read from the drives when somebody asks. A fragment
//! that was moved, or written again after a crash or the loss of a drive, has the time of the flush in which it lies now.

use std::collections::{BTreeSet, VecDeque};

use forebay_format::event_directory_bytes;
use forebay_types::{EventKey, FragmentId, WallTime};
use serde::Serialize;

use super::{Lane, Read};
use crate::api::{Reply, Token};
use crate::check::{FlushCheck, FlushPlace, HeaderCheck};
use crate::ends::EventEnd;
use crate::index::{EventEntry, EventFlags, FragmentEntry};
use crate::losses::LostPart;
use crate::read::Reader;
use crate::segments::{POSITION_BYTES, SegmentIndex};

/// Late puts that are remembered.
const LATE_PUTS_MAX: usize = 1024;

/// Flushes that are told of one event and whose headers are looked at, at most.
const FLUSHES_MAX: usize = 256;

/// Neighbours whose sources tell which of the event are missing.
const NEIGHBOURS: usize = 32;

/// How far an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceState {
    /// Nothing of it was ever seen here.
    #[default]
    Unknown,
    /// It waits for a decision.
    Undecided,
    /// A filter has it.
    Leased,
    /// A stream wants it and has not released it.
    Accepted,
    /// It was rejected, deleted, or released by all of its streams.
    Over,
}

/// All that is known of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EventTrace {
    /// The event.
    #[serde(flatten)]
    pub key: EventKey,
    /// The lane that it belongs to.
    pub lane: u16,
    /// How far it is.
    pub state: TraceState,
    /// How it ended, if it did and that is remembered.
    pub end: Option<EventEnd>,
    /// How many fragments it should have, as its writers said; 0: nobody said.
    pub expected: u16,
    /// Its fragments, by source; none when they are in one record whose directory cannot be read.
    pub fragments: Vec<FragmentTrace>,
    /// How many fragments are in one record, when they are.
    pub in_one_record: Option<u32>,
    /// Sources that are missing, by what its neighbours in the run have; empty when none is, or they do not tell which.
    pub missing_sources: Vec<u32>,
    /// Where these lie: up to 256 flushes.
    pub flushes: Vec<FlushTrace>,
    /// It is offered to filters.
    pub is_offered: bool,
    /// How often it was leased since the start.
    pub attempts: u8,
    /// Seconds until its lease ends.
    pub lease_left_s: Option<f64>,
    /// A decision, deletion or release is on its way to the drives.
    pub is_deciding: bool,
    /// It was accepted without some of its sources.
    pub is_incomplete: bool,
    /// The streams that it was accepted into.
    pub streams: Vec<StreamTrace>,
    /// Puts that came when it was decided, and were dropped; the newest of the lane are remembered since the start.
    pub late_puts: Vec<LatePut>,
    /// What is known of its run in this lane; absent when nothing is.
    pub run_known: Option<RunTrace>,
}

/// A fragment of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FragmentTrace {
    /// Its source.
    pub source: u32,
    /// Its size.
    pub bytes: u32,
    /// The CRC32C that its writer computed.
    pub crc32c: u32,
    /// It is acknowledged, or may be at any moment: its flush is on stable media.
    pub is_durable: bool,
    /// It is known to be lost.
    pub is_lost: bool,
    /// The segment that holds it.
    pub segment: String,
    /// The flush in the segment; absent when its flush has not left yet.
    pub flush: Option<u32>,
    /// Where it begins in the data of its flush, in bytes.
    pub offset_bytes: u64,
}

/// A flush that holds fragments of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlushTrace {
    /// Its segment.
    pub segment: String,
    /// Its number in that.
    pub flush: u32,
    /// When it was written; absent when not known.
    pub written_unix_ms: Option<u64>,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Each shard.
    pub shards: Vec<ShardTrace>,
    /// How many more drives may fail before it is out of reach; absent when it is.
    pub failures_left: Option<u8>,
}

/// A shard of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShardTrace {
    /// The drive.
    pub drive: u16,
    /// The slot on it.
    pub slot: u32,
    /// Where the flush begins on the drive, in bytes.
    pub offset_bytes: u64,
    /// What is there.
    pub state: ShardState,
}

/// What a drive holds of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardState {
    /// Its header is there.
    There,
    /// The drive is not there.
    DriveMissing,
    /// The drive does not give it.
    Unreadable,
    /// Something else lies there.
    Damaged,
    /// It was not looked at.
    NotLookedAt,
}

/// A stream that an event was accepted into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamTrace {
    /// Its name.
    pub name: String,
    /// It has the event elsewhere.
    pub is_released: bool,
}

/// A put that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LatePut {
    /// Its source.
    pub source: u32,
    /// Its size.
    pub bytes: u64,
    /// When it came; absent when not known.
    pub came_unix_ms: Option<u64>,
}

/// A run, as a lane knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunTrace {
    /// Events of it that are here.
    pub events: u64,
    /// Of these, not decided.
    pub undecided: u64,
    /// Events of it that are over.
    pub over: u64,
    /// Smallest and largest event of those that are here.
    pub range: Option<(u64, u64)>,
}

/// The newest puts that came too late.
#[derive(Default)]
pub(super) struct LatePuts {
    newest: VecDeque<(FragmentId, u64, WallTime)>,
}

impl LatePuts {
    pub(super) fn note(&mut self, id: FragmentId, bytes: usize, at: WallTime) {
        if self.newest.len() == LATE_PUTS_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back((id, bytes as u64, at));
    }

    fn of(&self, key: EventKey) -> Vec<LatePut> {
        let of_event = self.newest.iter().filter(|(id, ..)| id.key() == key);
        let put = |(id, bytes, at): &(FragmentId, u64, WallTime)| LatePut {
            source: id.source.0,
            bytes: *bytes,
            came_unix_ms: at.unix_ms(),
        };
        of_event.map(put).collect()
    }
}

impl Lane {
    /// Tells all that is known of an event; [`Reply::Traced`] has it when the drives have answered. To be asked of a lane that
    /// [serves reads](Lane::serves_reads): no other knows.
    pub fn trace(&mut self, token: Token, key: EventKey) {
        self.is_asked();
        let mut trace = Box::new(self.known_of(key));
        let places = self.places_of(key, &mut trace);
        let whole = self.index.event(key).and_then(|event| event.whole()).copied();
        let whole = whole.and_then(|whole| Some((whole, self.span_of(&whole)?)));
        let pinned: Vec<SegmentIndex> = places.iter().map(|(segment, ..)| *segment).collect();
        pinned.iter().for_each(|segment| self.segments.get_mut(*segment).pins += 1);
        let task = self.tasks.reserve();
        let reader = |segment| Reader { io: self.io.clone(), task, segment: self.read_segment(segment) };
        let whole = whole.map(|(whole, place)| (reader(whole.segment), whole, place));
        let looks: Vec<_> = places.iter().map(|(segment, place, at)| (reader(*segment), *place, *at)).collect();
        let look = async move {
            for (reader, place, at) in looks {
                let check = reader.check_flush(place, false).await;
                trace.flushes[at].take(&check);
            }
            if let Some((reader, whole, (span, range))) = whole {
                let contents = reader.contents(span, range, whole).await.unwrap_or_default();
                trace.tell_contents(&contents);
            }
            Read::Traced(token, trace, pinned)
        };
        if let Some(over) = self.tasks.start(task, Box::pin(look)) {
            self.read_is_over(task, over);
        }
    }

    pub(super) fn is_traced(&mut self, token: Token, mut trace: Box<EventTrace>, pinned: Vec<SegmentIndex>) {
        let key = trace.key;
        for fragment in trace.fragments.iter_mut().filter(|_| trace.in_one_record.is_some()) {
            let (id, bytes) = (key.fragment(forebay_types::SourceId(fragment.source)), fragment.bytes);
            let lost = |flush| LostPart::Fragment { flush, id, bytes };
            let segment = pinned.first().map(|segment| self.segments.get(*segment).id);
            fragment.is_lost = segment.is_some_and(|id| self.losses.known.has(id, lost(fragment.flush.unwrap_or(0))));
        }
        pinned.into_iter().for_each(|segment| self.segments.get_mut(segment).pins -= 1);
        self.replies.push_back(Reply::Traced { token, trace });
    }

    /// What is in memory.
    fn known_of(&self, key: EventKey) -> EventTrace {
        let event = self.index.event(key);
        let has = |flag| event.is_some_and(|event| event.flags.has(flag));
        let state = match event {
            None if self.finished.contains(key) => TraceState::Over,
            None => TraceState::Unknown,
            Some(_) if has(EventFlags::ACCEPTED) => TraceState::Accepted,
            Some(_) if has(EventFlags::LEASED) => TraceState::Leased,
            Some(_) => TraceState::Undecided,
        };
        let lease_ends = event.and_then(EventEntry::lease_ends);
        EventTrace {
            key,
            lane: self.config.lane,
            state,
            end: self.ends.get(key).filter(|_| state == TraceState::Over),
            expected: event.map_or(0, |event| event.expected),
            fragments: Vec::new(),
            in_one_record: event.and_then(|event| event.whole()).map(|whole| whole.source.0),
            missing_sources: event.map_or(Vec::new(), |event| self.missing_sources(key, event)),
            flushes: Vec::new(),
            is_offered: has(EventFlags::READY),
            attempts: event.map_or(0, |event| event.attempts),
            lease_left_s: lease_ends.map(|ends| ends.since(self.now).as_secs_f64()),
            is_deciding: has(EventFlags::DECIDING),
            is_incomplete: has(EventFlags::INCOMPLETE),
            streams: self.streams_of(key),
            late_puts: self.late_puts.of(key),
            run_known: self.run_known(key),
        }
    }

    fn streams_of(&self, key: EventKey) -> Vec<StreamTrace> {
        let stream = |(name, is_released): (&forebay_types::StreamName, bool)| StreamTrace {
            name: name.to_string(),
            is_released,
        };
        self.accepted.streams_of(key).map(stream).collect()
    }

    fn run_known(&self, key: EventKey) -> Option<RunTrace> {
        let run = self.runs().into_iter().find(|view| view.run == key.run)?;
        Some(RunTrace { events: run.events, undecided: run.undecided, over: run.finished, range: run.range })
    }

    /// Sources that the events behind it have and it has not, when fragments of it are missing.
    fn missing_sources(&self, key: EventKey, event: &EventEntry) -> Vec<u32> {
        if event.expected == 0 || event.is_complete() || event.whole().is_some() {
            return Vec::new();
        }
        let near = EventKey { event: forebay_types::EventId(key.event.0.saturating_sub(NEIGHBOURS as u64)), ..key };
        let neighbours = self.index.events_from(near).take(2 * NEIGHBOURS).filter(|(other, _)| other.run == key.run);
        let sources = neighbours
            .flat_map(|(_, other)| other.fragments().unwrap_or_default().iter().map(|fragment| fragment.source));
        let sources: BTreeSet<_> = sources.filter(|source| event.fragment(*source).is_none()).collect();
        let missing = usize::from(event.expected) - event.fragment_count();
        // More than are missing: nobody knows which of them.
        if sources.len() > missing { Vec::new() } else { sources.into_iter().map(|source| source.0).collect() }
    }

    /// Enters the fragments of an event and their flushes; which of these are to be looked at, and where they stand in the trace.
    fn places_of(&self, key: EventKey, trace: &mut EventTrace) -> Vec<(SegmentIndex, FlushPlace, usize)> {
        let Some(event) = self.index.event(key) else { return Vec::new() };
        let (mut places, mut seen) = (Vec::new(), BTreeSet::new());
        for fragment in event.records() {
            let segment = self.segments.get(fragment.segment);
            let span = segment.flush_at(fragment.position).map(|(_, span)| *span);
            trace.fragments.push(self.fragment_trace(key, fragment));
            let Some(span) = span.filter(|_| fragment.position < segment.durable_position) else { continue };
            let flush = (fragment.segment, span.flush);
            if places.len() == FLUSHES_MAX || !seen.insert(flush) {
                continue;
            }
            let header_bytes = span.header_bytes as usize;
            let place = FlushPlace { flush: Some(span.flush), offset_bytes: span.offset_bytes, header_bytes };
            places.push((fragment.segment, place, trace.flushes.len()));
            let shard = |place: &forebay_format::ShardPlace| ShardTrace {
                drive: place.drive.0,
                slot: place.slot,
                offset_bytes: self.slot_offset(*place) + span.offset_bytes,
                state: if self.answers(place.drive) { ShardState::NotLookedAt } else { ShardState::DriveMissing },
            };
            trace.flushes.push(FlushTrace {
                segment: segment.id.to_string(),
                flush: span.flush,
                written_unix_ms: None,
                data_shards: segment.data_shards,
                parity_shards: segment.parity_shards,
                shards: segment.shards.iter().map(shard).collect(),
                failures_left: None,
            });
        }
        trace.flushes.iter_mut().for_each(FlushTrace::count);
        places
    }

    fn fragment_trace(&self, key: EventKey, fragment: &FragmentEntry) -> FragmentTrace {
        let segment = self.segments.get(fragment.segment);
        let span = segment.flush_at(fragment.position).map(|(_, span)| span);
        let flush = span.map(|span| span.flush);
        let id = key.fragment(fragment.source);
        let part = LostPart::Fragment { flush: flush.unwrap_or(0), id, bytes: fragment.bytes };
        FragmentTrace {
            source: fragment.source.0,
            bytes: fragment.bytes,
            crc32c: fragment.crc,
            is_durable: fragment.position < segment.durable_position,
            is_lost: self.losses.known.has(segment.id, part),
            segment: segment.id.to_string(),
            flush,
            offset_bytes: span.map_or(0, |span| u64::from(fragment.position - span.position) * POSITION_BYTES),
        }
    }
}

impl EventTrace {
    /// The one record that was entered holds these fragments; none: nobody knows.
    fn tell_contents(&mut self, contents: &[forebay_format::EventFragment]) {
        let Some(record) = self.fragments.pop() else { return };
        let mut offset_bytes = record.offset_bytes + event_directory_bytes(contents.len()) as u64;
        for fragment in contents {
            let (source, bytes, crc32c) = (fragment.source.0, fragment.bytes, fragment.crc);
            self.fragments.push(FragmentTrace { source, bytes, crc32c, offset_bytes, ..record.clone() });
            offset_bytes += u64::from(bytes);
        }
    }
}

impl FlushTrace {
    /// Takes in what lies on the drives.
    fn take(&mut self, check: &FlushCheck) {
        self.written_unix_ms = check.written.unix_ms();
        for (shard, found) in self.shards.iter_mut().zip(&check.shards) {
            shard.state = match found.header {
                HeaderCheck::Right => ShardState::There,
                HeaderCheck::Absent => ShardState::DriveMissing,
                HeaderCheck::Unreadable => ShardState::Unreadable,
                HeaderCheck::Wrong | HeaderCheck::Differs => ShardState::Damaged,
            };
        }
        self.count();
    }

    fn count(&mut self) {
        let is_there = |shard: &&ShardTrace| matches!(shard.state, ShardState::There | ShardState::NotLookedAt);
        let there = self.shards.iter().filter(is_there).count();
        let left = there.checked_sub(usize::from(self.data_shards));
        self.failures_left = left.map(|left| u8::try_from(left).unwrap_or(u8::MAX));
    }
}
