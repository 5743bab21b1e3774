//! BESIII: golden bytes of events and files, and damage that only this format has.

mod common;

use common::*;
use forebay_rawdata::{
    BesiiiFile, Container, EndRecord, EventReader, Format, PaddedText, Problem, RawEvent, RunRecord, StartRecord,
    inspect, join, join_incomplete, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId, SourceId};
use proptest::prelude::*;

/// Two ROBs of one ROS, one of another, and a ROS without any.
fn small() -> Vec<u8> {
    besiii_event(&[vec![rob(2, &[0x11, 0x12]), rob(3, &[])], vec![], vec![rob(4, &[0x41])]])
}

fn container() -> BesiiiFile {
    BesiiiFile {
        start: StartRecord { file_number: 2, date: 8_042_026, time: 120_340, blocks_max: 0, mebibytes_max: 2008 },
        application: PaddedText::new("SFO-1"),
        tag: PaddedText::new("All"),
        run: RunRecord { run: RunId(91_668), beam_energy: 7, ..RunRecord::default() },
        first_block: 199_784,
        end: EndRecord {
            date: 8_042_026,
            time: 120_631,
            events_in_run: 30,
            mebibytes_in_run: 1,
            ..EndRecord::default()
        },
    }
}

/// Owns the drawing of the module: what is stored must stay readable.
#[test]
fn the_bytes_of_an_event_are_the_drawn_ones() {
    let event = besiii_event(&[vec![rob(2, &[0x11])]]);
    #[rustfmt::skip]
    let drawn = words(&[
        0xaa12_34aa, 13 + 9 + 11 + 7 + 14, 13, 0x0300_0000, 1, 1, 0, 5, 1_775_600_000, 77, 5, 77, 0,
        0xbb12_34bb, 9 + 11 + 7 + 14, 9, 0x0300_0000, 0, 2, 0, 0, 0,
        0xcc12_34cc, 11 + 7 + 14, 11, 0x0300_0000, 0, 1, 0, 3, 5, 77, 0,
        0xdd12_34dd, 7 + 14, 7, 0x0300_0000, 2, 0, 0,
        0xee12_34ee, 9, 0x0301_0000, 2, 0, 0, 0, 0, 0, 0x11, 0x00ff_ffff, 1, 1, 1,
    ]);
    assert_eq!(event, drawn);
    let event = raw(Format::Besiii, event);
    assert_eq!(verify(Format::Besiii, &event.bytes), Ok(EventKey::new(5, 77)));
    let pieces = split(&event).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.source.0).collect::<Vec<_>>(), [0xFFFF_FFFF, 2]);
    assert_eq!(pieces[1].bytes, drawn[132..]);
    assert_eq!(pieces[0].bytes[16 + 2 * 8..], drawn[..132], "every header is in the frame");
}

#[test]
fn the_bytes_of_a_file_are_the_drawn_ones() {
    let container = Container::Besiii(Box::new(container()));
    #[rustfmt::skip]
    let head = [
        words(&[0x1234_aaaa, 8, 2, 2, 8_042_026, 120_340, 0, 2008, 0x1234_aabb, 5]), b"SFO-1   ".to_vec(),
        words(&[3]), b"All ".to_vec(),
        words(&[0x1234_bbbb, 9, 91_668, 0, 0, 0, 0, 0, 7]),
    ].concat();
    assert_eq!(container.head(), head);
    assert_eq!(container.head_bytes(), head.len() as u64);
    assert_eq!(container.before_event(1, 340), words(&[0x1234_cccc, 4, 199_785, 340]));
    let tail = words(&[0x1234_dddd, 10, 8_042_026, 120_631, 3, 2, 33, 3, 0, 0x1234_eeee]);
    assert_eq!(container.tail(3, (3 << 20) - 1), tail);

    let file = write_file(&container, &[small(), small()]);
    let mut reader = EventReader::new(Format::Besiii, file.as_slice());
    assert_eq!(reader.container(), None);
    assert_eq!(reader.by_ref().map(|event| event.unwrap().bytes).collect::<Vec<_>>(), [small(), small()]);
    assert_eq!(reader.offset(), file.len() as u64);
    assert_eq!(reader.container(), Some(&container), "the records of a file can be written again");
    assert_eq!(PaddedText::new("SFO-1").bytes(), b"SFO-1");
}

#[test]
fn other_formats_have_nothing_around_their_events() {
    for format in [Format::Faser, Format::Mdf] {
        let container = Container::new(format, RunId(5), 3);
        assert_eq!((container.head(), container.before_event(4, 5), container.tail(6, 7)), (vec![], vec![], vec![]));
        assert_eq!((container.file_bytes(6, 7), container.event_offset(2, 3)), (7, 3));
    }
}

#[test]
fn a_file_cut_anywhere_keeps_the_good_events_and_says_where_it_ends() {
    let file = file_of(Format::Besiii, &[small(), small()]);
    let container = Container::new(Format::Besiii, RunId(5), 0);
    let bytes = small().len() as u64;
    let starts = [container.event_offset(0, 0), container.event_offset(1, bytes)].map(|start| start as usize);
    for cut in 0..file.len() {
        let (read, error) = read_all(Format::Besiii, &file[..cut]);
        let whole = starts.iter().filter(|start| **start + small().len() <= cut).count();
        assert_eq!(read.len(), whole, "cut at {cut}");
        let error = error.expect("a file without its tail is damaged");
        let separator = container.head_bytes() as usize;
        // Records and events, in their order.
        let places = [0, separator, starts[0], starts[0] + small().len(), starts[1], starts[1] + small().len()];
        let place = places.iter().rfind(|place| **place <= cut).unwrap();
        assert_eq!((error.event_offset, error.events_before), (*place as u64, whole as u64), "cut at {cut}");
        let between = error.problem == Problem::NoTail || matches!(error.problem, Problem::Record { .. });
        let of_event = starts.iter().any(|start| (*start..*start + small().len()).contains(&cut));
        assert_eq!(between, !of_event, "cut at {cut}: {error}");
        assert_eq!(error.to_string().starts_with("event at byte"), of_event, "{error}");
    }
}

#[test]
fn each_damage_of_an_event_has_its_name() {
    let event = small();
    let with = |word: usize, value: u32| {
        let mut event = event.clone();
        event[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
        inspect(Format::Besiii, &event).unwrap_err().problem
    };
    // Words where the elements start: event, sub-detector, ROS, ROB, ROD.
    let (sub, ros, first, rod) = (13, 22, 33, 40);
    let total = event.len() as u32 / 4;
    let at = |word: usize| word as u64 * 4;
    let marker = |what, word, expected| Problem::Marker { what, at: at(word), expected, found: 9 };
    assert_eq!(with(0, 9), marker("event", 0, 0xaa12_34aa));
    assert_eq!(with(sub, 9), marker("sub-detector", sub, 0xbb12_34bb));
    assert_eq!(with(ros, 9), marker("ROS", ros, 0xcc12_34cc));
    assert_eq!(with(first, 9), marker("ROB", first, 0xdd12_34dd));
    assert_eq!(with(rod, 9), marker("ROD", rod, 0xee12_34ee));
    let expected = "0x03000000 to 0x0300ffff";
    assert_eq!(with(3, 0x0201_0000), Problem::Version { what: "event", at: 12, expected, found: 0x0201_0000 });
    assert_eq!(with(first + 3, 4), Problem::Version { what: "ROB", at: at(first + 3), expected, found: 4 });

    let bytes = event.len() as u64;
    assert_eq!(with(1, total + 1), Problem::Length { expected: bytes + 4, found: bytes });
    assert_eq!(with(1, 6), Problem::TooSmall { expected: 28, found: 24 });
    let found = 4 * u64::from(u32::MAX);
    assert_eq!(with(1, u32::MAX), Problem::TooLarge { expected: 512 << 20, found });
    let short = |what, word, expected, found| Problem::Short { what, at: at(word), expected, found };
    assert_eq!(with(2, 6), short("event header", 0, 28, 24));
    assert_eq!(with(2, total + 1), short("event", 0, bytes + 4, bytes));
    assert_eq!(with(first + 1, 6), short("ROB", first, 28, 24));
    let nested = |what, word, expected, found| Problem::Nested { what, at: at(word), expected, found };
    let ros_left = u64::from(u32::from_le_bytes(event[at(ros + 1) as usize..][..4].try_into().unwrap())) * 4 - 44;
    assert_eq!(with(first + 1, 1000), nested("ROB", first, 4000, ros_left));
    assert_eq!(with(ros + 1, 0x4000_0000), nested("ROS", ros, 1 << 32, ros_left + 44));
    // One word less of the ROS: a word is left in the sub-detector.
    let words = ros_left as u32 / 4 + 11;
    assert_eq!(with(ros + 1, words - 1), nested("ROB", first + 22, 80, 76));
    assert_eq!(with(sub + 1, words + 9 + 1), nested("ROS header", sub + 9 + words as usize, 28, 4));

    let header = |what, word, expected, found| Problem::HeaderWords { what, at: at(word), expected, found };
    assert_eq!(with(5, 7), header("event", 0, 14, 13), "more status words than its header has");
    assert_eq!(with(5, u32::MAX), header("event", 0, 7 + u64::from(u32::MAX), 13));
    assert_eq!(with(7, 6), header("event", 0, 14, 13));
    assert_eq!(with(7, u32::MAX), header("event", 0, 8 + u64::from(u32::MAX), 13));
    assert_eq!(with(ros + 7, 2), header("ROS", ros, 10, 11));
    assert_eq!(with(rod + 1, 8), short("ROD header", rod, 36, 32));
    assert_eq!(with(rod + 1, 10), Problem::RodWords { at: at(rod), expected: 15, found: 16 });
    assert_eq!(
        with(rod + 13, u32::MAX),
        Problem::RodWords { at: at(rod), expected: 15, found: 13 + u64::from(u32::MAX) }
    );
    let few = besiii_element(0xaa12_34aa, 1, &[0], &[1, 77], &[]);
    let problem = inspect(Format::Besiii, &few).unwrap_err().problem;
    assert_eq!(problem, short("event header", 0, 44, 40), "without a run");
    let stub = besiii_event(&[vec![besiii_element(0xdd12_34dd, 2, &[0], &[], &[0; 44])]]);
    assert_eq!(inspect(Format::Besiii, &stub).unwrap_err().problem, short("ROD", 41, 48, 44));
}

#[test]
fn a_rob_that_reports_an_error_or_is_empty_may_hold_anything() {
    let noise = besiii_element(0xdd12_34dd, 2, &[0, 0x10], &[], &[7; 12]);
    let empty = besiii_element(0xdd12_34dd, 3, &[0], &[], &[]);
    let event = raw(Format::Besiii, besiii_event(&[vec![noise.clone(), empty]]));
    assert_eq!(inspect(Format::Besiii, &event.bytes).unwrap().fragments, 2);
    let pieces = split(&event).unwrap();
    assert_eq!(pieces[1].bytes, noise);
    assert_eq!(join(&borrowed(&pieces)), Ok((Format::Besiii, event.bytes)));
}

#[test]
fn each_damage_around_events_has_its_name() {
    let file = file_of(Format::Besiii, &[small()]);
    let head = Container::new(Format::Besiii, RunId(5), 0).head_bytes() as usize;
    let tail = file.len() - 40;
    let with = |at: usize, value: u32| {
        let mut file = file.clone();
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let error = read_all(Format::Besiii, &file).1.expect("damage");
        (error.event_offset as usize, error.problem)
    };
    let record = |record, at, problem| (at, Problem::Record { record, problem: Box::new(problem) });
    let in_head = |problem| record("file header", 0, problem);
    let marker = |what, at, expected| Problem::Marker { what, at, expected, found: 9 };
    let length = |what, at, expected| Problem::RecordWords { what, at, expected, found: 9 };
    assert_eq!(with(0, 9), in_head(marker("file", 0, 0x1234_aaaa)));
    assert_eq!(with(4, 9), in_head(length("file", 0, 8)));
    assert_eq!(with(8, 3), in_head(Problem::Version { what: "file", at: 8, expected: "2", found: 3 }));
    assert_eq!(with(32, 9), in_head(marker("file names", 32, 0x1234_aabb)));
    assert_eq!(with(36, 4097), in_head(Problem::NameLength { at: 36, expected: 4096, found: 4097 }));
    let run = head - 36;
    assert_eq!(with(run - 8, u32::MAX), in_head(Problem::NameLength { at: 48, expected: 4096, found: u32::MAX }));
    assert_eq!(with(run, 9), in_head(marker("run parameters", run as u64, 0x1234_bbbb)));
    assert!(with(run + 4, 8).1.to_string().contains("expected 9 words of run parameters at byte 56 of it"));
    let separator = |problem| record("data separator", head, problem);
    assert_eq!(with(head, 9), separator(marker("data separator", 0, 0x1234_cccc)));
    assert_eq!(with(head + 4, 9), separator(length("data separator", 0, 4)));
    let bytes = small().len() as u64;
    assert_eq!(with(head + 12, 9), (head + 16, Problem::BlockBytes { expected: 9, found: bytes }));
    let in_tail = |problem| record("tail of the file", tail, problem);
    assert_eq!(with(tail + 4, 9), in_tail(length("file tail", 0, 10)));
    assert_eq!(with(tail + 16, 2), in_tail(Problem::TailEvents { expected: 2, found: 1 }));
    assert_eq!(with(tail + 36, 9), in_tail(marker("end of file", 36, 0x1234_eeee)));
    let (read, error) = read_all(Format::Besiii, &[&file[..], b"x"].concat());
    let error = error.unwrap();
    assert_eq!((read.len(), error.event_offset as usize, &error.problem), (1, file.len(), &Problem::AfterTail));
    assert!(error.to_string().starts_with(&format!("byte {}: expected the end of the file", file.len())), "{error}");
}

#[test]
fn an_incomplete_event_is_an_event_again() {
    let robs = [rob(2, &[0x11, 0x12]), rob(3, &[]), rob(4, &[0x41])];
    let with = |kept: [bool; 3]| {
        let some = |at: usize| kept[at].then(|| robs[at].clone());
        let mut event =
            besiii_event(&[[some(0), some(1)].into_iter().flatten().collect(), vec![], some(2).into_iter().collect()]);
        event[24] |= 4;
        event
    };
    let pieces = split(&raw(Format::Besiii, small())).unwrap();
    let given = borrowed(&pieces);
    assert_eq!(sources(given[0].1), Ok(vec![SourceId(2), SourceId(3), SourceId(4)]));
    for kept in [[false, true, true], [true, false, true], [false, false, true], [true, true, false], [false; 3]] {
        let left: Vec<_> = [true, kept[0], kept[1], kept[2]]
            .into_iter()
            .zip(&given)
            .filter(|(kept, _)| *kept)
            .map(|(_, p)| *p)
            .collect();
        let (format, bytes, missing) = join_incomplete(&left).unwrap();
        assert_eq!((format, missing.len()), (Format::Besiii, given.len() - left.len()));
        assert_eq!(bytes, with(kept), "{kept:?}");
        assert_eq!(verify(format, &bytes), Ok(EventKey::new(5, 77)));
    }
}

#[test]
fn renumbering_changes_the_header_of_the_event_alone() {
    let mut event = raw(Format::Besiii, small());
    renumber(&mut event, RunId(u32::MAX), EventId(9)).unwrap();
    let changed: Vec<usize> =
        (0..event.bytes.len() / 4).filter(|at| event.bytes[at * 4..][..4] != small()[at * 4..][..4]).collect();
    assert_eq!(changed, [9, 10, 11]);
    assert_eq!(verify(Format::Besiii, &event.bytes), Ok(EventKey::new(u32::MAX, 9)));

    let other_l1 = besiii_element(0xaa12_34aa, 1, &[], &[1, 77, 5, 76], &[]);
    let without_l1 = besiii_element(0xaa12_34aa, 1, &[], &[1, 77, 5], &[]);
    for bytes in [other_l1, without_l1] {
        let mut event: RawEvent = raw(Format::Besiii, bytes.clone());
        renumber(&mut event, RunId(5), EventId(9)).unwrap();
        assert_eq!(event.bytes[32], 9);
        assert_eq!(event.bytes[40..], bytes[40..], "an L1 id that is another number stays");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn damaged_besiii_files_never_panic(changes in changes(), cut in prop::option::of(any::<usize>())) {
        let (format, events) = (Format::Besiii, [small(), small(), small()]);
        let mut file = file_of(format, &events);
        mutate(&mut file, &changes, cut);
        let mut reader = EventReader::new(format, file.as_slice());
        let mut read = Vec::new();
        let error = reader.by_ref().find_map(|event| event.map(|event| read.push(event.bytes)).err());
        prop_assert!(reader.offset() <= file.len() as u64);
        match error {
            None => {
                prop_assert_eq!(reader.offset(), file.len() as u64);
                prop_assert_eq!(read.len(), 3);
            }
            Some(error) => prop_assert_eq!(error.event_offset, reader.offset()),
        }
    }
}
