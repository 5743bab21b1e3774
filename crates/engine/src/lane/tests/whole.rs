//! Events that are one record, of which a drive has something else.

use std::ops::Range;
use std::time::Duration;

use forebay_format::{Extent, event_directory_bytes};
use forebay_types::{DriveNumber, EventKey, ReadOutcome, SourceId, Verdict, crc32c};

use super::Driven;
use crate::api::{Admission, EventPart, FetchEvent, Put, Reply, Token};
use crate::index::FragmentEntry;

/// Together with it the lane is two thirds full.
const EVENTS: u64 = 700;
/// One of so many survives.
const SURVIVES: u64 = 10;
/// Of its fragments.
const SIZES: [usize; 3] = [500, 500, 49_000];

fn key(event: u64) -> EventKey {
    EventKey::new(1, event)
}

fn payload(event: u64, source: usize) -> Vec<u8> {
    vec![(event * 7) as u8 ^ source as u8; SIZES[source]]
}

/// A lane in which what was accepted is in records of whole events.
fn joined() -> Driven {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..EVENTS {
        for source in 0..SIZES.len() {
            let payload = payload(event, source);
            let id = key(event).fragment(SourceId(source as u32));
            let put = Put { id, expected: SIZES.len() as u16, crc: crc32c(&payload) };
            assert_eq!(driven.lane.put(Token(1), &put, &payload), Admission::Pending);
        }
        driven.replies_to(SIZES.len());
    }
    let accept = Verdict::Accept(vec!["physics".parse().expect("a name")]);
    for event in 0..EVENTS {
        let token = driven.token();
        if event % SURVIVES > 0 {
            driven.delete(key(event));
            continue;
        }
        while let Admission::Busy = driven.lane.decide(token, key(event), &accept, false) {
            driven.turn();
        }
        assert!(matches!(driven.reply(), Reply::Decided { .. }));
    }
    for _ in 0..5000 {
        driven.pass(Duration::from_millis(1));
    }
    driven
}

impl Driven {
    fn whole(&self, event: u64) -> Option<FragmentEntry> {
        self.lane.index.event(key(event)).and_then(|event| event.whole()).copied()
    }

    fn joined_events(&self) -> Vec<u64> {
        (0..EVENTS).filter(|event| self.whole(*event).is_some()).collect()
    }

    /// Where a part of the record of an event lies: its data in units, and these on the drives.
    fn places(&self, event: u64, part: Range<u64>) -> Vec<(DriveNumber, Range<u64>)> {
        let whole = self.whole(event).expect("it is one record");
        let (span, range) = self.lane.span_of(&whole).expect("it is durable");
        let segment = self.lane.read_segment(whole.segment);
        let geometry = forebay_format::RowGeometry {
            data_shards: segment.data_shards,
            unit_bytes: segment.unit_bytes,
            data_bytes: span.data_bytes,
        };
        let place = |Extent { shard, offset_in_shard_bytes, bytes, .. }| {
            let shard = &segment.shards[usize::from(shard)];
            let units = shard.slot_offset_bytes + span.offset_bytes + u64::from(span.header_bytes);
            let start = units + offset_in_shard_bytes;
            (shard.place.drive, start..start + bytes as u64)
        };
        geometry.locate(range.start + part.start..range.start + part.end).map(place).collect()
    }

    /// The units of the row in which a byte of the record of an event lies, on two of the drives.
    fn row_of(&self, event: u64, at: u64) -> Vec<(DriveNumber, Range<u64>)> {
        let whole = self.whole(event).expect("it is one record");
        let (span, range) = self.lane.span_of(&whole).expect("it is durable");
        let segment = self.lane.read_segment(whole.segment);
        let unit = u64::from(segment.unit_bytes);
        let row = (range.start + at) / (unit * u64::from(segment.data_shards));
        let place = |shard: &crate::read::ReadShard| {
            let start = shard.slot_offset_bytes + span.offset_bytes + u64::from(span.header_bytes) + row * unit;
            (shard.place.drive, start..start + unit)
        };
        segment.shards[..2].iter().map(place).collect()
    }

    fn bytes(&self, places: &[(DriveNumber, Range<u64>)]) -> Vec<u8> {
        let of = |(drive, range): &(DriveNumber, Range<u64>)| {
            self.drives.contents(*drive)[range.start as usize..range.end as usize].to_vec()
        };
        places.iter().flat_map(of).collect()
    }

    fn overwrite(&mut self, places: &[(DriveNumber, Range<u64>)], mut bytes: &[u8]) {
        for (drive, range) in places {
            let mut contents = self.drives.contents(*drive);
            let (now, behind) = bytes.split_at((range.end - range.start) as usize);
            contents[range.start as usize..range.end as usize].copy_from_slice(now);
            self.drives.restore(*drive, &contents);
            bytes = behind;
        }
    }

    fn read_whole(&mut self, event: u64) -> (ReadOutcome, Vec<EventPart>, Vec<u8>) {
        let token = self.token();
        assert!(matches!(self.lane.get_whole(token, key(event), &mut Vec::new()), FetchEvent::Pending { .. }));
        match self.reply() {
            Reply::ReadEvent { token: of, outcome, parts, payload } if of == token => (outcome, parts, payload),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_drive_that_has_the_record_of_another_event_where_this_one_lies_is_not_believed() {
    let mut driven = joined();
    let events = driven.joined_events();
    let mut seen = 0;
    for pair in events.chunks_exact(2) {
        let (of, instead) = (pair[0], pair[1]);
        // Its directory and its first two fragments.
        let part = 0..event_directory_bytes(SIZES.len()) as u64 + 2 * SIZES[0] as u64;
        let (places, other) = (driven.places(of, part.clone()), driven.bytes(&driven.places(instead, part)));
        if places.len() > 1 {
            continue;
        }
        driven.overwrite(&places, &other);
        for source in 0..SIZES.len() {
            let read = driven.read(key(of), source as u32);
            assert!(read == (ReadOutcome::Found, payload(of, source)), "{of}/{source}: {:?}", read.0);
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen} of {}", events.len());
}

#[test]
fn of_an_event_that_is_lost_in_part_the_rest_is_read() {
    let mut driven = joined();
    let events = driven.joined_events();
    let of = events[0];
    // In the middle of the large one: more than parity makes up for.
    let middle = event_directory_bytes(SIZES.len()) as u64 + 2 * SIZES[0] as u64 + 20_000;
    for (drive, units) in driven.row_of(of, middle) {
        driven.drives.corrupt(drive, units, 1);
    }
    let (outcome, parts, bytes) = driven.read_whole(of);
    assert_eq!(outcome, ReadOutcome::Found);
    let outcomes: Vec<ReadOutcome> = parts.iter().map(|part| part.outcome).collect();
    assert_eq!(outcomes, [ReadOutcome::Found, ReadOutcome::Found, ReadOutcome::Lost]);
    assert_eq!(bytes, [payload(of, 0), payload(of, 1)].concat());
    assert_eq!(driven.lane.status().counters.fragments_lost, 1);
    // The bytes alone, of all and of each fragment, and each row once from each drive; headers a few times.
    driven.reads = 0;
    driven.read_whole(of);
    assert!(driven.reads < 80, "{} reads", driven.reads);
}
