//! The body of a checkpoint: a sequence of sections, of which a reader skips those that it does not
//! know and may do without.

use forebay_types::StreamName;
use forebay_types::limits::{SHARDS_MAX, STREAM_NAME_BYTES_MAX, STREAMS_MAX};

use super::*;

impl CheckpointBody {
    /// The body's bytes.
    ///
    /// # Panics
    /// When [`CheckpointBody::decode`] would refuse the result: a checkpoint that no start could read
    /// must never reach a drive.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("a checkpoint that could not be read must not be written: {error}");
        }
        let mut body = Vec::new();
        put_section(&mut body, section_kind::NUMBERS, &[()], |entry, ()| {
            let bytes = extend(entry, numbers::BYTES);
            numbers::NEXT_RECORD_SEQUENCE.put(bytes, self.next_record_sequence);
            numbers::NEXT_SEGMENT_COUNTER.put(bytes, self.next_segment_counter);
        });
        put_section(&mut body, section_kind::LIVE, &self.live, put_live);
        put_section(&mut body, section_kind::PLANNED, &self.planned, put_planned);
        put_section(&mut body, section_kind::FINISHED, &self.finished, put_finished);
        put_section(&mut body, section_kind::COUNTERS, &self.counters, |body, (number, value)| {
            let bytes = extend(body, counter::BYTES);
            counter::NUMBER.put(bytes, *number);
            counter::VALUE.put(bytes, *value);
        });
        put_section(&mut body, section_kind::STREAMS, &self.streams, |body, name| {
            let bytes = extend(body, stream::BYTES);
            let name = name.as_str().as_bytes();
            stream::NAME_BYTES.put(bytes, name.len() as u8);
            bytes[stream::NAME.offset()..][..name.len()].copy_from_slice(name);
        });
        put_section(&mut body, section_kind::DECISION_SETS, &self.decision_sets, |body, set| {
            let bytes = extend(body, decision_set::BYTES);
            decision_set::ACCEPTED.put(bytes, set.accepted);
            decision_set::RELEASED.put(bytes, set.released);
            decision_set::FLAGS.put(bytes, if set.incomplete { SET_INCOMPLETE } else { 0 });
        });
        put_section(&mut body, section_kind::DECIDED, &self.decided, put_decided);
        body
    }

    /// Reads the body that `header` speaks of from the start of `bytes`, which follow the header on the
    /// drive and may be longer.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(header: &CheckpointHeader, bytes: &[u8]) -> Result<CheckpointBody, FormatError> {
        let body = usize::try_from(header.body_bytes).ok().and_then(|length| bytes.get(..length));
        let body = body.ok_or(FormatError::Truncated {
            what: WHAT,
            needed: header.body_bytes,
            available: bytes.len() as u64,
        })?;
        let (expected, found) = (header.body_crc, crc32c(body));
        if expected != found {
            return Err(FormatError::Crc { what: WHAT, expected, found });
        }
        let mut reader = Reader { what: WHAT, rest: body };
        let mut state = CheckpointBody::default();
        let mut seen = 0;
        while !reader.rest.is_empty() {
            state.read_section(&mut reader, &mut seen)?;
        }
        ensure(seen == ALL_SECTIONS, WHAT, "every section that is needed is there", seen, ALL_SECTIONS)?;
        state.check()?;
        Ok(state)
    }

    fn read_section(&mut self, body: &mut Reader<'_>, seen: &mut u32) -> Result<(), FormatError> {
        let head = body.take(section::BYTES as u64)?;
        let kind = section::SECTION_KIND.get(head);
        let flags = section::FLAGS.get(head);
        only_known("section of a checkpoint", u32::from(flags), u32::from(SECTION_OPTIONAL))?;
        let count = section::COUNT.get(head);
        let mut entries =
            Reader { what: "section of a checkpoint", rest: body.take(section::SECTION_BYTES.get(head))? };
        if (section_kind::NUMBERS..=section_kind::DECIDED).contains(&kind) {
            ensure(*seen & (1 << kind) == 0, WHAT, "each section is there once", kind, kind)?;
            *seen |= 1 << kind;
        }
        match kind {
            section_kind::NUMBERS => {
                ensure(count == 1, WHAT, "the section of numbers has one entry", count, 1u8)?;
                let entry = entries.take(numbers::BYTES as u64)?;
                self.next_record_sequence = numbers::NEXT_RECORD_SEQUENCE.get(entry);
                self.next_segment_counter = numbers::NEXT_SEGMENT_COUNTER.get(entry);
            }
            section_kind::LIVE => self.live = entries.many(count, segment_entry::BYTES, get_live)?,
            section_kind::PLANNED => self.planned = entries.many(count, planned_segment::BYTES, get_planned)?,
            section_kind::FINISHED => self.finished = entries.many(count, finished_run::BYTES, get_finished)?,
            section_kind::COUNTERS => {
                self.counters = entries.many(count, counter::BYTES, |entries| {
                    let entry = entries.take(counter::BYTES as u64)?;
                    Ok((counter::NUMBER.get(entry), counter::VALUE.get(entry)))
                })?;
            }
            section_kind::STREAMS => self.streams = entries.many(count, stream::BYTES, get_stream)?,
            section_kind::DECISION_SETS => {
                self.decision_sets = entries.many(count, decision_set::BYTES, get_decision_set)?;
            }
            section_kind::DECIDED => self.decided = entries.many(count, decided_run::BYTES, get_decided)?,
            _ if flags & SECTION_OPTIONAL != 0 => return Ok(()),
            kind => return Err(FormatError::UnknownSection { kind }),
        }
        let left = entries.rest.len() as u64;
        ensure(left == 0, WHAT, "a section ends after its last entry", left, 0u8)
    }

    fn check(&self) -> Result<(), FormatError> {
        let (mut ids, mut slots) = (Vec::<SegmentId>::new(), Vec::<ShardPlace>::new());
        let live = self.live.iter().map(|s| (s.id, s.data_shards, s.parity_shards, s.unit_bytes, &s.shards));
        let planned = self.planned.iter().map(|s| (s.id, s.data_shards, s.parity_shards, s.unit_bytes, &s.shards));
        for (id, data_shards, parity_shards, unit_bytes, shards) in live.chain(planned) {
            check_width(WHAT, data_shards, parity_shards, unit_bytes)?;
            check_places(WHAT, shards, usize::from(data_shards) + usize::from(parity_shards))?;
            ids.push(id);
            slots.extend(shards);
        }
        if let Some(id) = twice(ids) {
            ensure(false, WHAT, "each segment is listed once", id.counter, id.counter)?;
        }
        if let Some(place) = twice(slots) {
            ensure(false, WHAT, "no slot belongs to two segments", place.slot, place.slot)?;
        }
        for pair in self.finished.windows(2) {
            let ascending = pair[0].run < pair[1].run;
            ensure(ascending, WHAT, "runs are ascending", pair[1].run.0, pair[0].run.0)?;
        }
        self.finished.iter().try_for_each(FinishedRun::check)?;
        for pair in self.counters.windows(2) {
            ensure(pair[0].0 < pair[1].0, WHAT, "counters are ascending", pair[1].0, pair[0].0)?;
        }
        self.check_decided()?;
        self.check_streams()
    }

    /// What a set says makes sense, each event has one, and there are not more than memory is to be taken for.
    fn check_decided(&self) -> Result<(), FormatError> {
        let sets = self.decision_sets.len() as u64;
        within("number of sets of decisions", sets, DECISION_SETS_MAX as u64)?;
        for (number, set) in self.decision_sets.iter().enumerate() {
            let part = set.released & !set.accepted == 0 && set.released != set.accepted;
            ensure(part, WHAT, "some of the streams of an event have not released it", set.released, set.accepted)?;
            let once = !self.decision_sets[..number].contains(set);
            ensure(once, WHAT, "each set of decisions is listed once", number as u64, number as u64)?;
        }
        for pair in self.decided.windows(2) {
            ensure(pair[0].run < pair[1].run, WHAT, "runs are ascending", pair[1].run.0, pair[0].run.0)?;
        }
        for run in &self.decided {
            run.check(sets)?;
        }
        let events = self.decided.iter().flat_map(|run| &run.ranges).map(|range| u64::from(range.length));
        within("number of accepted events in a checkpoint", events.sum(), DECIDED_EVENTS_MAX)
    }

    /// Records hold streams as bits by number: there are no more than bits, and each name has one number.
    fn check_streams(&self) -> Result<(), FormatError> {
        within("number of streams", self.streams.len() as u64, STREAMS_MAX as u64)?;
        for (number, name) in self.streams.iter().enumerate() {
            let earlier = self.streams[..number].iter().position(|other| other == name);
            let (number, earlier) = (number as u64, earlier.map(|earlier| earlier as u64));
            ensure(earlier.is_none(), WHAT, "each stream is listed once", number, earlier.unwrap_or(number))?;
        }
        Ok(())
    }
}

impl FinishedRun {
    fn check(&self) -> Result<(), FormatError> {
        for range in &self.ranges {
            let last = range.length.checked_sub(1).and_then(|more| range.start.checked_add(more));
            ensure(last.is_some(), WHAT, "a range has at least one ordinal and none above 2^64", range.length, 1u8)?;
        }
        for pair in self.ranges.windows(2) {
            let last = pair[0].start + (pair[0].length - 1);
            let apart = pair[1].start.checked_sub(last).is_some_and(|step| step >= 2);
            ensure(apart, WHAT, "ranges are ascending and do not touch", pair[1].start, last)?;
        }
        Ok(())
    }
}

impl DecidedRun {
    fn check(&self, sets: u64) -> Result<(), FormatError> {
        let mut free = Some(0);
        for range in &self.ranges {
            within("set of decisions of a range", u64::from(range.set) + 1, sets)?;
            let last = range.length.checked_sub(1).and_then(|more| range.first.checked_add(u64::from(more)));
            let apart = free.is_some_and(|free| range.first >= free) && last.is_some();
            let rule = "ranges of decided events are ascending, of one event or more, and none below 2^64";
            ensure(apart, WHAT, rule, range.first, free.unwrap_or(u64::MAX))?;
            free = last.and_then(|last| last.checked_add(1));
        }
        Ok(())
    }
}

const ALL_SECTIONS: u32 = (1 << section_kind::NUMBERS)
    | (1 << section_kind::LIVE)
    | (1 << section_kind::PLANNED)
    | (1 << section_kind::FINISHED)
    | (1 << section_kind::COUNTERS)
    | (1 << section_kind::STREAMS)
    | (1 << section_kind::DECISION_SETS)
    | (1 << section_kind::DECIDED);

const _: () = assert!(stream::NAME.offset() + STREAM_NAME_BYTES_MAX == stream::BYTES);
const _: () = assert!(STREAMS_MAX <= u64::BITS as usize, "records hold sets of streams in 64 bits");

/// The fewest bytes that a place takes on a drive bound how much memory `Vec::with_capacity` may take.
const _: () = assert!(SHARDS_MAX * shard_place::BYTES <= BLOCK_BYTES);

/// One that is there more than once.
fn twice<T: Copy + Ord>(mut all: Vec<T>) -> Option<T> {
    all.sort_unstable();
    all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn extend(bytes: &mut Vec<u8>, by: usize) -> &mut [u8] {
    let start = bytes.len();
    bytes.resize(start + by, 0);
    &mut bytes[start..]
}

fn put_section<T>(body: &mut Vec<u8>, kind: u16, entries: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    let start = body.len();
    extend(body, section::BYTES);
    for entry in entries {
        put(body, entry);
    }
    let bytes = (body.len() - start - section::BYTES) as u64;
    let head = &mut body[start..start + section::BYTES];
    section::SECTION_KIND.put(head, kind);
    section::COUNT.put(head, u32::try_from(entries.len()).expect("a lane has fewer than 2^32 of anything"));
    section::SECTION_BYTES.put(head, bytes);
}

fn get_stream(entries: &mut Reader<'_>) -> Result<StreamName, FormatError> {
    let entry = entries.take(stream::BYTES as u64)?;
    let bytes = stream::NAME_BYTES.get(entry);
    let name = stream::NAME.get(entry);
    let name = name.get(..usize::from(bytes)).and_then(|name| std::str::from_utf8(name).ok());
    let name = name.and_then(|name| name.parse().ok());
    name.ok_or(FormatError::Inconsistent {
        what: WHAT,
        rule: "the name of a stream is 1 to 64 letters, digits, '_', '-' or '.', and does not begin with '.'",
        found: u64::from(bytes),
        expected: STREAM_NAME_BYTES_MAX as u64,
    })
}

fn put_places(body: &mut Vec<u8>, places: &[ShardPlace]) {
    for place in places {
        place.put(extend(body, shard_place::BYTES));
    }
}

fn put_live(body: &mut Vec<u8>, segment: &SegmentEntry) {
    use segment_entry as field;
    let entry = extend(body, field::BYTES);
    segment.id.put(&mut entry[field::SEGMENT.offset()..][..16]);
    field::FIRST_SEQUENCE.put(entry, segment.first_sequence);
    field::UNIT_BYTES.put(entry, segment.unit_bytes);
    field::FLUSHES.put(entry, segment.flushes);
    field::DATA_SHARDS.put(entry, segment.data_shards);
    field::PARITY_SHARDS.put(entry, segment.parity_shards);
    field::STATE.put(entry, segment.state as u8);
    put_places(body, &segment.shards);
}

fn get_live(entries: &mut Reader<'_>) -> Result<SegmentEntry, FormatError> {
    use segment_entry as field;
    let entry = entries.take(field::BYTES as u64)?;
    only_known("live segment", u32::from(field::FLAGS.get(entry)), 0)?;
    let (data_shards, parity_shards) = (field::DATA_SHARDS.get(entry), field::PARITY_SHARDS.get(entry));
    Ok(SegmentEntry {
        id: SegmentId::get(&field::SEGMENT.get(entry)),
        state: SegmentState::from_number(field::STATE.get(entry))?,
        data_shards,
        parity_shards,
        unit_bytes: field::UNIT_BYTES.get(entry),
        flushes: field::FLUSHES.get(entry),
        first_sequence: field::FIRST_SEQUENCE.get(entry),
        shards: entries.places(data_shards, parity_shards)?,
    })
}

fn put_planned(body: &mut Vec<u8>, segment: &PlannedSegment) {
    use planned_segment as field;
    let entry = extend(body, field::BYTES);
    segment.id.put(&mut entry[field::SEGMENT.offset()..][..16]);
    field::UNIT_BYTES.put(entry, segment.unit_bytes);
    field::DATA_SHARDS.put(entry, segment.data_shards);
    field::PARITY_SHARDS.put(entry, segment.parity_shards);
    put_places(body, &segment.shards);
}

fn get_planned(entries: &mut Reader<'_>) -> Result<PlannedSegment, FormatError> {
    use planned_segment as field;
    let entry = entries.take(field::BYTES as u64)?;
    only_known("planned segment", u32::from(field::FLAGS.get(entry)), 0)?;
    let (data_shards, parity_shards) = (field::DATA_SHARDS.get(entry), field::PARITY_SHARDS.get(entry));
    Ok(PlannedSegment {
        id: SegmentId::get(&field::SEGMENT.get(entry)),
        data_shards,
        parity_shards,
        unit_bytes: field::UNIT_BYTES.get(entry),
        shards: entries.places(data_shards, parity_shards)?,
    })
}

fn put_finished(body: &mut Vec<u8>, finished: &FinishedRun) {
    use finished_run as field;
    let entry = extend(body, field::BYTES);
    field::RUN.put(entry, finished.run.0);
    field::FLAGS.put(entry, if finished.closed { RUN_CLOSED } else { 0 });
    let ranges = u32::try_from(finished.ranges.len()).expect("a run has fewer than 2^32 ranges");
    field::RANGE_COUNT.put(entry, ranges);
    for range in &finished.ranges {
        let entry = extend(body, ordinal_range::BYTES);
        ordinal_range::START.put(entry, range.start);
        ordinal_range::LENGTH.put(entry, range.length);
    }
}

fn get_finished(entries: &mut Reader<'_>) -> Result<FinishedRun, FormatError> {
    use finished_run as field;
    let entry = entries.take(field::BYTES as u64)?;
    let flags = field::FLAGS.get(entry);
    only_known("finished run", flags, RUN_CLOSED)?;
    let ranges = entries.many(field::RANGE_COUNT.get(entry), ordinal_range::BYTES, |entries| {
        let entry = entries.take(ordinal_range::BYTES as u64)?;
        Ok(OrdinalRange { start: ordinal_range::START.get(entry), length: ordinal_range::LENGTH.get(entry) })
    })?;
    Ok(FinishedRun { run: RunId(field::RUN.get(entry)), closed: flags & RUN_CLOSED != 0, ranges })
}

fn get_decision_set(entries: &mut Reader<'_>) -> Result<DecisionSet, FormatError> {
    let entry = entries.take(decision_set::BYTES as u64)?;
    let flags = decision_set::FLAGS.get(entry);
    only_known("set of decisions", flags, SET_INCOMPLETE)?;
    let (accepted, released) = (decision_set::ACCEPTED.get(entry), decision_set::RELEASED.get(entry));
    Ok(DecisionSet { accepted, released, incomplete: flags & SET_INCOMPLETE != 0 })
}

fn put_decided(body: &mut Vec<u8>, decided: &DecidedRun) {
    let entry = extend(body, decided_run::BYTES);
    decided_run::RUN.put(entry, decided.run.0);
    let ranges = u32::try_from(decided.ranges.len()).expect("a run has fewer than 2^32 ranges");
    decided_run::RANGE_COUNT.put(entry, ranges);
    for range in &decided.ranges {
        let entry = extend(body, decided_range::BYTES);
        decided_range::FIRST_EVENT.put(entry, range.first);
        decided_range::LENGTH.put(entry, range.length);
        decided_range::SET.put(entry, range.set);
    }
}

fn get_decided(entries: &mut Reader<'_>) -> Result<DecidedRun, FormatError> {
    let entry = entries.take(decided_run::BYTES as u64)?;
    only_known("run of decided events", decided_run::FLAGS.get(entry), 0)?;
    let ranges = entries.many(decided_run::RANGE_COUNT.get(entry), decided_range::BYTES, |entries| {
        let entry = entries.take(decided_range::BYTES as u64)?;
        let (first, length) = (decided_range::FIRST_EVENT.get(entry), decided_range::LENGTH.get(entry));
        Ok(DecidedRange { first, length, set: decided_range::SET.get(entry) })
    })?;
    Ok(DecidedRun { run: RunId(decided_run::RUN.get(entry)), ranges })
}

/// Bytes that are taken from the front.
struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], FormatError> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let Some((taken, rest)) = split else {
            let available = self.rest.len() as u64;
            return Err(FormatError::Truncated { what: self.what, needed: bytes, available });
        };
        self.rest = rest;
        Ok(taken)
    }

    /// `count` entries of at least `entry_bytes` each: that many bytes must be there before memory is
    /// taken for them.
    fn many<T>(
        &mut self,
        count: u32,
        entry_bytes: usize,
        get: impl Fn(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let needed = u64::from(count) * entry_bytes as u64;
        let available = self.rest.len() as u64;
        if needed > available {
            return Err(FormatError::Truncated { what: self.what, needed, available });
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            entries.push(get(self)?);
        }
        Ok(entries)
    }

    fn places(&mut self, data_shards: u8, parity_shards: u8) -> Result<Vec<ShardPlace>, FormatError> {
        let shards = u64::from(data_shards) + u64::from(parity_shards);
        within("number of shards", shards, SHARDS_MAX as u64)?;
        let bytes = self.take(shards * shard_place::BYTES as u64)?;
        Ok(bytes.chunks_exact(shard_place::BYTES).map(ShardPlace::get).collect())
    }
}
