//! Reading ahead.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_client::files::{ReadAhead, ReadFailure, Taken};
use forebay_client::{Request, SessionError};
use forebay_types::ReadOutcome;
use proptest::prelude::*;

use super::FILE;

const MIB: u64 = 1 << 20;

fn content(length: u64) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + (i >> 13)) as u8).collect()
}

/// A file that is read: what is asked is answered out of `content`.
struct Reading {
    machine: ReadAhead,
    content: Vec<u8>,
    in_flight: BTreeMap<u64, (u64, u32)>,
    asked: Vec<(u64, u32)>,
    most_held: u64,
}

impl Reading {
    fn new(length: u64, sealed: bool, window: u64) -> Reading {
        let machine = ReadAhead::new(FILE, length, sealed, window);
        Reading { machine, content: content(length), in_flight: BTreeMap::new(), asked: Vec::new(), most_held: 0 }
    }

    fn pump(&mut self) {
        for number in self.machine.take_forgotten() {
            assert!(self.in_flight.remove(&number).is_some(), "{number} was asked");
        }
        while let Some((number, request)) = self.machine.next_request() {
            let Request::FileRead(read) = request else { panic!("{request:?}") };
            assert!(read.bytes > 0 && u64::from(read.bytes) <= MIB);
            self.asked.push((read.start, read.bytes));
            self.in_flight.insert(number, (read.start, read.bytes));
        }
        self.most_held = self.most_held.max(self.machine.held_bytes());
    }

    fn answer_with(
        &mut self,
        which: usize,
        answer: impl FnOnce(&[u8], u64, u32) -> Result<(ReadOutcome, Bytes), SessionError>,
    ) {
        let Some(number) = self.in_flight.keys().nth(which % self.in_flight.len().max(1)).copied() else { return };
        let (start, bytes) = self.in_flight.remove(&number).expect("just found");
        self.machine.answered(number, answer(&self.content, start, bytes));
    }

    fn answer(&mut self, which: usize) {
        self.answer_with(which, |content, start, bytes| {
            let at = (start as usize).min(content.len());
            let end = (at + bytes as usize).min(content.len());
            Ok((ReadOutcome::Found, Bytes::copy_from_slice(&content[at..end])))
        });
    }

    /// Reads, answering in this order until there is something.
    fn read(&mut self, offset: u64, into: &mut [u8], mut order: usize) -> Result<usize, ReadFailure> {
        loop {
            self.machine.want(offset, into.len());
            self.pump();
            match self.machine.take(offset, into) {
                Taken::Bytes(count) => return Ok(count),
                Taken::End => return Ok(0),
                Taken::Failed(failure) => return Err(failure),
                Taken::Wait => {
                    assert!(!self.in_flight.is_empty(), "something is waited for at {offset}");
                    self.answer(order);
                    order = order.wrapping_mul(7).wrapping_add(3);
                }
            }
        }
    }
}

#[test]
fn who_reads_in_order_has_more_and_more_on_its_way_and_never_more_than_the_window() {
    for window in [MIB, 3 * MIB, 8 * MIB] {
        let mut reading = Reading::new(20 * MIB + 12_345, true, window);
        let (mut all, mut buffer, mut most_in_flight) = (Vec::new(), vec![0; 100_000], 0);
        loop {
            let count = reading.read(all.len() as u64, &mut buffer, all.len()).expect("it can be read");
            if count == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..count]);
            most_in_flight = most_in_flight.max(reading.in_flight.len() as u64);
        }
        assert!(all == reading.content);
        assert!(reading.most_held <= window + MIB, "{} bytes of {window}", reading.most_held);
        assert!(most_in_flight <= window / MIB && most_in_flight + 1 >= window / MIB, "{most_in_flight} of {window}");
        assert_eq!(reading.asked.len(), 21, "each part is asked for once");
    }
}

#[test]
fn who_reads_a_part_is_asked_for_nothing_behind_it() {
    let mut reading = Reading::new(20 * MIB, true, 8 * MIB);
    let (start, end) = (MIB / 2, 9 * MIB + 100);
    let (mut part, mut found) = (vec![0; (end - start) as usize], 0);
    while found < part.len() {
        reading.machine.read_no_further();
        found += reading.read(start + found as u64, &mut part[found..], found).expect("it can be read");
    }
    assert!(part == reading.content[start as usize..end as usize]);
    let asked: u64 = reading.asked.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    assert_eq!(asked, end - start, "and for each byte of it once");
}

#[test]
fn nothing_is_read_ahead_where_somebody_else_reads() {
    for (ahead_end, most) in [(5 * MIB + 100, 5 * MIB + 100), (0, 3 * MIB), (u64::MAX, 6 * MIB)] {
        let mut reading = Reading::new(20 * MIB, true, 8 * MIB);
        reading.machine.read_ahead_until(ahead_end);
        let (mut buffer, mut at) = (vec![0; 100_000], 0);
        while at + 100_000 <= 3 * MIB {
            let count = reading.read(at, &mut buffer, 0).expect("it can be read");
            assert!(buffer[..count] == reading.content[at as usize..][..count]);
            at += count as u64;
        }
        let behind = reading.asked.iter().map(|(start, bytes)| start + u64::from(*bytes)).max();
        assert!(behind <= Some(most) && behind > Some(most - MIB), "{behind:?} of {ahead_end}");
        // What is wanted there is read all the same.
        let count = reading.read(6 * MIB, &mut buffer, 0).expect("it can be read");
        assert!(count > 0 && buffer[..count] == reading.content[6 * MIB as usize..][..count]);
    }
}

#[test]
fn who_jumps_is_asked_for_what_it_wants_alone() {
    let mut reading = Reading::new(20 * MIB, true, 8 * MIB);
    let mut buffer = [0; 5000];
    for at in [7 * MIB + 11, 3, 19 * MIB, 12 * MIB + 5] {
        let count = reading.read(at, &mut buffer, 0).expect("it can be read");
        assert_eq!(buffer[..count], reading.content[at as usize..][..count]);
        assert_eq!(reading.asked.pop(), Some((at, 5000)));
        assert!(reading.in_flight.is_empty());
    }
    // From there on in order.
    for step in 1..40 {
        let at = 12 * MIB + 5 + step * 5000;
        assert!(reading.read(at, &mut buffer, 0).expect("it can be read") > 0);
    }
    assert!(reading.asked.iter().all(|(_, bytes)| u64::from(*bytes) > 5000), "{:?}", reading.asked);
}

#[test]
fn a_small_file_is_one_question_and_one_that_grows_is_read_on() {
    let mut reading = Reading::new(1000, true, 8 * MIB);
    let mut buffer = [0; 4096];
    assert_eq!(reading.read(0, &mut buffer, 0), Ok(1000));
    assert_eq!(reading.read(1000, &mut buffer, 0), Ok(0));
    assert_eq!(reading.asked, [(0, 1000)]);

    let mut reading = Reading::new(1000, false, 8 * MIB);
    assert_eq!(reading.read(0, &mut buffer, 0), Ok(1000));
    assert_eq!(reading.read(1000, &mut buffer, 0), Ok(0));
    assert_eq!(reading.read(1000, &mut buffer, 0), Ok(0));
    assert_eq!(reading.asked.len(), 3, "whether it has grown is asked each time");
    reading.content = content(3000);
    assert_eq!(reading.read(1000, &mut buffer, 0), Ok(2000));
    assert_eq!(buffer[..2000], reading.content[1000..]);
    assert_eq!(reading.read(3000, &mut buffer, 0), Ok(0));
    // And one that is cut ends where it ends.
    reading.content.truncate(500);
    assert_eq!(reading.read(400, &mut buffer, 0), Ok(100));
    assert_eq!(reading.read(500, &mut buffer, 0), Ok(0));
}

#[test]
fn what_cannot_be_read_is_told_where_it_begins_and_what_is_around_it_is_read() {
    let mut reading = Reading::new(8 * MIB, true, 8 * MIB);
    let (lost, mut buffer) = (2 * MIB + 77, vec![0; 300_000]);
    let answer = |reading: &mut Reading| {
        reading.answer_with(0, |content, start, bytes| {
            let end = start + u64::from(bytes);
            if start == lost {
                return Ok((ReadOutcome::Lost, Bytes::new()));
            }
            let end = if (start..end).contains(&lost) { lost } else { end };
            Ok((ReadOutcome::Found, Bytes::copy_from_slice(&content[start as usize..end as usize])))
        });
    };
    let mut at = 0;
    let failure = loop {
        reading.machine.want(at, buffer.len());
        reading.pump();
        match reading.machine.take(at, &mut buffer) {
            Taken::Bytes(count) => {
                assert_eq!(buffer[..count], reading.content[at as usize..][..count]);
                at += count as u64;
            }
            Taken::Wait => answer(&mut reading),
            Taken::Failed(failure) => break failure,
            Taken::End => panic!("it does not end at {at}"),
        }
    };
    assert_eq!((at, failure), (lost, ReadFailure::Outcome(ReadOutcome::Lost)));
    // The same again, and behind it.
    reading.machine.want(lost, 10);
    reading.pump();
    while !reading.in_flight.is_empty() {
        answer(&mut reading);
    }
    assert!(matches!(reading.machine.take(lost, &mut buffer[..10]), Taken::Failed(_)));
    reading.machine.want(lost + 1, 10);
    reading.pump();
    while !reading.in_flight.is_empty() {
        answer(&mut reading);
    }
    assert_eq!(reading.machine.take(lost + 1, &mut buffer[..10]), Taken::Bytes(10));
    assert_eq!(buffer[..10], reading.content[lost as usize + 1..][..10]);
}

proptest! {
    /// Wherever it is read, in pieces of any size and with answers in any order: the right bytes come, and memory stays bounded.
    #[test]
    fn the_right_bytes_are_read(
        length in 0u64..4 * MIB,
        sealed: bool,
        reads in prop::collection::vec((0u64..5 * MIB, 1usize..2_000_000, 0usize..9, any::<bool>()), 1..30),
    ) {
        let mut reading = Reading::new(length, sealed, 2 * MIB);
        let mut at = 0;
        for (jump, bytes, order, goes_on) in reads {
            at = if goes_on { at } else { jump };
            let mut buffer = vec![0; bytes];
            let count = reading.read(at, &mut buffer, order).expect("it can be read");
            let expected = reading.content.get(at as usize..).unwrap_or_default();
            prop_assert!(count > 0 || expected.is_empty());
            prop_assert!(buffer[..count] == expected[..count]);
            at += count as u64;
        }
        prop_assert!(reading.most_held <= 5 * MIB);
    }
}
