//! Generated events, and events made by hand for what generated ones do not have.

mod common;

use std::collections::BTreeSet;

use common::*;
use forebay_rawdata::banks::BankView;
use forebay_rawdata::{
    Container, FRAME_ENTRY_BYTES, Format, Generator, NumberUnknown, Problem, RenumberError, SplitError, frame_format,
    inspect, join, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId, SourceId};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn events_are_read_split_joined_and_renumbered(
        seed: u64, run in 0u32..=0x00FF_FFFF, first: u64, other_run in 0u32..=0x00FF_FFFF, number: u64, file_number: u32,
    ) {
        for (kind, generator) in generators(seed, run).into_iter().enumerate() {
            // BESIII has 32 bits for the number.
            let (first, number) = if kind == 3 { (first >> 32, number >> 32) } else { (first, number) };
            let mut generator = generator.starting_at(EventId(first));
            let made = [generator.next_event(), generator.next_event()];
            let container = Container::new(made[0].format, RunId(run), file_number);
            let file = write_file(&container, &made.each_ref().map(|event| event.bytes.clone()));
            let second = container.event_offset(1, made[0].bytes.len() as u64) as usize;
            prop_assert!(file[second..].starts_with(&made[1].bytes));
            prop_assert_eq!(Format::detect(&file), Some(made[0].format));
            let (read, error) = read_all(made[0].format, &file);
            prop_assert_eq!(error, None);
            prop_assert!(read == made);

            let [event, _] = made;
            let pieces = split(&event).unwrap();
            prop_assert_eq!(pieces[0].source, SourceId::EVENT_FRAME);
            prop_assert_eq!(frame_format(&pieces[0].bytes), Ok(event.format));
            let mut given = borrowed(&pieces);
            given.rotate_left(pieces.len() / 2);
            prop_assert!(join(&given) == Ok((event.format, event.bytes.clone())));

            let key = EventKey::new(other_run, number);
            let mut renumbered = event.clone();
            renumber(&mut renumbered, key.run, key.event).unwrap();
            prop_assert_eq!(renumbered.key, key);
            let compressed = kind == 2;
            prop_assert_eq!(verify(event.format, &renumbered.bytes), Ok(if compressed { event.key } else { key }));
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_events() {
    for kind in 0..4 {
        let make = |seed| generators(seed, 9).into_iter().nth(kind).map(|mut g| [g.next_event(), g.next_event()]);
        assert!(make(1) == make(1));
        assert!(make(1) != make(2));
    }
}

/// Stored by their sums, so that a change of the generator shows. (Compressed bytes depend on the zlib used.)
#[test]
fn generated_bytes_are_the_same_everywhere() {
    let sums = generators(1, 9).map(|mut generator| forebay_types::crc32c(&generator.next_event().bytes));
    assert_eq!([sums[0], sums[1], sums[3]], [0x0336_9922, 0xBBD9_D3B5, 0xED69_69BF], "{sums:#010x?}");
}

#[test]
fn sizes_and_sources_are_like_those_of_recorded_events() {
    for seed in 0..8 {
        let mut generator = Generator::new(Format::Faser, seed, RunId(1));
        let named: BTreeSet<_> = (0..5)
            .map(|_| {
                let event = generator.next_event();
                assert!((20_000..24_000).contains(&event.bytes.len()), "{}", event.bytes.len());
                sources(&split(&event).unwrap()[0].bytes).unwrap()
            })
            .collect();
        assert_eq!(named.len(), 1, "the sources of a run do not change");
        assert!([11, 14].contains(&named.first().unwrap().len()));
    }
    let mut generator = Generator::new(Format::Besiii, 1, RunId(1));
    for _ in 0..5 {
        let event = generator.next_event();
        assert!((9_000..16_000).contains(&event.bytes.len()), "{}", event.bytes.len());
        assert_eq!(inspect(Format::Besiii, &event.bytes).unwrap().fragments, 42);
        assert_eq!(split(&event).unwrap().len(), 43);
    }
    let mut generator = Generator::new(Format::Mdf, 1, RunId(1));
    let mut compressed = Generator::new(Format::Mdf, 1, RunId(1)).compressed(true);
    for _ in 0..5 {
        let event = generator.next_event();
        assert!((100_000..450_000).contains(&event.bytes.len()), "{}", event.bytes.len());
        assert!((1235..=1238).contains(&inspect(Format::Mdf, &event.bytes).unwrap().fragments));
        let event = compressed.next_event();
        assert!((30_000..120_000).contains(&event.bytes.len()), "{}", event.bytes.len());
        assert_eq!(inspect(Format::Mdf, &event.bytes).unwrap().fragments, 1025);
    }
}

#[test]
fn the_frame_costs_about_eight_bytes_a_bank() {
    let event = Generator::new(Format::Mdf, 3, RunId(1)).next_event();
    let pieces = split(&event).unwrap();
    let held: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let added = held - event.bytes.len();
    assert!(added < (FRAME_ENTRY_BYTES + 2) * pieces.len(), "{added} bytes for {} pieces", pieces.len());
}

#[test]
fn odd_bytes_of_mdf_come_back() {
    let payload = [
        bank(9, 3, 1, b"abcde", &[0xD1, 0xD2, 0xD3]), // padding that is not zero
        odin(6, 77),
        bank(9, 3, 1, b"again", &[0, 0, 0]), // the same source a second time
        bank(9, 3, 2, b"", &[]),
        bank(13, 2, 3, b"last", &[]),
        b"\xCB\xCBtail".to_vec(), // less than a bank's header
    ];
    let event = raw(Format::Mdf, seal(mdf_event(3, 1, &payload.concat())));
    let pieces = split(&event).unwrap();
    let named: Vec<u32> = pieces.iter().map(|piece| piece.source.0).collect();
    assert_eq!(named, [0xFFFF_FFFF, 0x0009_0001, 0x0010_0000, 0x0009_0002, 0x000D_0003]);
    assert_eq!(pieces[1].bytes, [&payload[0][..13], &payload[2][..13]].concat());
    assert_eq!(join(&borrowed(&pieces)), Ok((Format::Mdf, event.bytes.clone())));
    assert_eq!(verify(Format::Mdf, &event.bytes), Ok(EventKey::new(5, 77)));

    let mut unpadded = payload[..2].concat();
    unpadded.extend(bank(9, 3, 7, b"x", &[0xEE])); // the last bank lacks two bytes of padding
    let event = raw(Format::Mdf, mdf_event(1, 0, &unpadded));
    assert_eq!(join(&borrowed(&split(&event).unwrap())), Ok((Format::Mdf, event.bytes.clone())));
}

#[test]
fn odd_bytes_of_faser_come_back() {
    let fragments = [faser_fragment(0x20000, b"abc"), faser_fragment(0x30000, b""), faser_fragment(0x20000, b"d")];
    let event = raw(Format::Faser, faser_event(&fragments, b"trailing"));
    let pieces = split(&event).unwrap();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[1].bytes, [fragments[0].clone(), fragments[2].clone()].concat());
    assert_eq!(join(&borrowed(&pieces)), Ok((Format::Faser, event.bytes.clone())));
    assert_eq!(verify(Format::Faser, &event.bytes), Ok(EventKey::new(5, 77)));
}

#[test]
fn the_number_of_the_frame_is_no_source() {
    let fragments = [faser_fragment(7, b"abc"), faser_fragment(0xFFFF_FFFF, b"d")];
    let event = raw(Format::Faser, faser_event(&fragments, b""));
    assert_eq!(split(&event), Err(SplitError::ReservedSource { at: 44 + 39 }));
}

#[test]
fn payloads_that_are_no_banks_stay_one_piece() {
    let mep = raw(Format::Mdf, mdf_event(3, 2, b"anything at all"));
    let mut compressed_faser = faser_event(&[faser_fragment(1, b"not to be seen")], b"");
    compressed_faser[35] |= 0x08;
    let compressed_faser = raw(Format::Faser, compressed_faser);
    for event in [mep, compressed_faser] {
        let pieces = split(&event).unwrap();
        assert_eq!(pieces.len(), 1);
        assert_eq!(join(&borrowed(&pieces)), Ok((event.format, event.bytes.clone())));
        let mut renumbered = event.clone();
        renumber(&mut renumbered, RunId(u32::MAX), EventId(3)).unwrap();
        assert_eq!((renumbered.key, renumbered.bytes), (EventKey::new(u32::MAX, 3), event.bytes));
    }
}

#[test]
fn headers_of_all_versions_give_run_and_number() {
    let number = 0x0123_4567_89AB_CDEF;
    for (header_version, data_type) in [(1, 0), (1, 1), (2, 0), (3, 1)] {
        for odin_version in [2, 6] {
            let bytes = mdf_event(header_version, data_type, &odin(odin_version, number));
            let mut event = raw(Format::Mdf, bytes);
            assert_eq!(verify(Format::Mdf, &event.bytes), Ok(EventKey::new(5, number)));
            renumber(&mut event, RunId(6), EventId(u64::MAX)).unwrap();
            assert_eq!(verify(Format::Mdf, &event.bytes), Ok(EventKey::new(6, u64::MAX)));
            assert_eq!(event.bytes[12..16], [0; 4], "no checksum stays none");
            let tail = event.bytes.len() - 20;
            assert_eq!(event.bytes[tail..], [0xEE; 20], "the GPS time and what follows is left alone");
        }
    }
}

#[test]
fn events_without_a_number_say_why() {
    let problem = |payload: &[u8]| verify(Format::Mdf, &mdf_event(3, 1, payload)).unwrap_err().problem;
    assert_eq!(problem(&bank(9, 3, 1, b"", &[])), Problem::EventNumber(NumberUnknown::NoOdin));
    assert_eq!(problem(&odin(9, 1)), Problem::EventNumber(NumberUnknown::OdinVersion { found: 9 }));
    let short = bank(16, 6, 0, &[0; 16], &[]);
    assert_eq!(problem(&short), Problem::EventNumber(NumberUnknown::OdinShort { expected: 20, found: 16 }));
    let mep = verify(Format::Mdf, &mdf_event(3, 2, b"")).unwrap_err().problem;
    assert_eq!(mep, Problem::EventNumber(NumberUnknown::Mep));
    let no_run = verify(Format::Mdf, &mdf_event(2, 1, &bank(9, 3, 1, b"", &[]))).unwrap_err().problem;
    assert_eq!(no_run, Problem::Run);
}

#[test]
fn files_whose_first_event_has_no_number_are_numbered_by_position() {
    let unnumbered = mdf_event(3, 1, &odin(9, 500));
    let numbered = mdf_event(3, 1, &odin(6, 500));
    let keys = |file: &[Vec<u8>]| {
        let (events, error) = read_all(Format::Mdf, &file.concat());
        (events.iter().map(|event| event.key.event.0).collect::<Vec<_>>(), error)
    };
    assert_eq!(keys(&[unnumbered.clone(), numbered.clone(), unnumbered.clone()]), (vec![0, 1, 2], None));
    let (read, error) = keys(&[numbered.clone(), numbered.clone(), unnumbered]);
    let error = error.unwrap();
    assert_eq!(read, [500, 500]);
    assert_eq!((error.event_offset, error.events_before), (2 * numbered.len() as u64, 2));
    assert_eq!(error.problem, Problem::EventNumber(NumberUnknown::OdinVersion { found: 9 }));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let mut event = Generator::new(Format::Faser, 1, RunId(1)).next_event();
    let refused = RenumberError::RunTooLarge { run: RunId(1 << 24), format: Format::Faser, largest: (1 << 24) - 1 };
    assert_eq!(renumber(&mut event, RunId(1 << 24), EventId(1)), Err(refused));
    assert_eq!(event.key, EventKey::new(1, 1));

    let mut event = Generator::new(Format::Besiii, 1, RunId(1)).next_event();
    let before = event.clone();
    let number = EventId(1 << 32);
    let refused = RenumberError::EventTooLarge { event: number, format: Format::Besiii, largest: u64::from(u32::MAX) };
    assert_eq!(renumber(&mut event, RunId(1), number), Err(refused));
    assert_eq!(event, before);
    let mut generator = Generator::new(Format::Besiii, 1, RunId(1)).starting_at(EventId(u32::MAX.into()));
    let numbers = [generator.next_event(), generator.next_event()].map(|event| verify(event.format, &event.bytes));
    assert_eq!(numbers, [Ok(EventKey::new(1, u32::MAX.into())), Ok(EventKey::new(1, 0))]);
}

#[test]
fn inflating_stops_at_the_stated_size() {
    let event = Generator::new(Format::Mdf, 1, RunId(1)).compressed(true).next_event().bytes;
    assert_eq!(BankView::of(&event).unwrap().iter().count(), 1025);
    let raw_bytes = u32::from_le_bytes([event[54], event[55], event[56], 0]);
    let stated = |raw_bytes: u32| {
        let mut event = event.clone();
        event[54..57].copy_from_slice(&raw_bytes.to_le_bytes()[..3]);
        BankView::of(&seal(event)).map(|_| ()).unwrap_err()
    };
    let expected = u64::from(raw_bytes) - 1;
    let detail = "the zlib stream goes on";
    assert_eq!(stated(raw_bytes - 1), Problem::Inflate { expected, found: expected + 1, detail });
    let detail = "the zlib stream ends";
    assert_eq!(stated(0xFF_FFFF), Problem::Inflate { expected: 0xFF_FFFF, found: u64::from(raw_bytes), detail });
}
