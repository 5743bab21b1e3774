//! Recorded files: everything that holds for generated events must hold for these.
#![expect(clippy::disallowed_methods, reason = "the tests read files")]

mod common;

use std::path::Path;

use common::{borrowed, test_data, write_file};
use forebay_rawdata::banks::BankView;
use forebay_rawdata::{
    Container, Format, RawEvent, expected_pieces, inspect, join, open, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId};

struct Recorded {
    path: &'static str,
    format: Format,
    run: u32,
    first_event: u64,
    /// Fragments, banks or ROBs of all ten events.
    fragments: usize,
    whole: bool,
}

const FILES: [Recorded; 6] = [
    faser("faser/Faser-Physics-001920-filtered.raw", 1920, 49_054, 110),
    faser("faser/Faser-Physics-006525-filtered.raw", 6525, 1, 140),
    faser("faser/Faser-Physics-pilot_tracks-filtered.raw", 4993, 25_707, 110),
    mdf("lhcb/MiniBrunel_2018_MinBias_FTv4_DIGI_retinacluster_v1.mdf", 12_364, false),
    mdf("lhcb/upgrade_mc_minbias_scifi_v5.mdf", 10_250, true),
    Recorded {
        path: "besiii/test_raw_data.raw",
        format: Format::Besiii,
        run: 91_668,
        first_event: 199_781,
        fragments: 420,
        whole: false,
    },
];

const fn faser(path: &'static str, run: u32, first_event: u64, fragments: usize) -> Recorded {
    Recorded { path, format: Format::Faser, run, first_event, fragments, whole: false }
}

const fn mdf(path: &'static str, fragments: usize, whole: bool) -> Recorded {
    Recorded { path, format: Format::Mdf, run: 6_718_861, first_event: 6001, fragments, whole }
}

fn events(directory: &Path, file: &Recorded) -> Vec<RawEvent> {
    read(directory, file).0
}

fn read(directory: &Path, file: &Recorded) -> (Vec<RawEvent>, Container) {
    let mut reader = open(&directory.join(file.path)).expect(file.path);
    assert_eq!(reader.format(), file.format, "{}", file.path);
    let events = reader.by_ref().collect::<Result<_, _>>().expect(file.path);
    (events, reader.container().expect("a file with events").clone())
}

#[test]
fn every_event_is_read_and_the_file_can_be_written_again() {
    let Some(directory) = test_data() else { return };
    for file in &FILES {
        let (events, container) = read(&directory, file);
        assert_eq!(events.len(), 10, "{}", file.path);
        assert_eq!(events[0].key, EventKey::new(file.run, file.first_event), "{}", file.path);
        let written = write_file(&container, &events.iter().map(|event| event.bytes.clone()).collect::<Vec<_>>());
        assert!(written == std::fs::read(directory.join(file.path)).expect(file.path), "{} differs", file.path);
        for event in &events {
            assert_eq!(verify(event.format, &event.bytes), Ok(event.key), "{}", file.path);
        }
        if file.format == Format::Mdf {
            let numbers: Vec<u64> = events.iter().map(|event| event.key.event.0).collect();
            assert_eq!(numbers, (6001..=6010).collect::<Vec<_>>(), "{}", file.path);
        }
    }
}

#[test]
fn splitting_and_joining_give_back_every_byte() {
    let Some(directory) = test_data() else { return };
    for file in &FILES {
        let (mut fragments, mut pieces_total) = (0, 0);
        for event in events(&directory, file) {
            let info = inspect(event.format, &event.bytes).expect(file.path);
            assert_eq!(info.whole, file.whole, "{}", file.path);
            fragments += info.fragments;
            let pieces = split(&event).expect(file.path);
            assert_eq!(expected_pieces(&pieces[0].bytes), Ok(pieces.len()));
            assert_eq!(sources(&pieces[0].bytes).map(|s| s.len()), Ok(pieces.len() - 1));
            pieces_total += pieces.len() - 1;
            let mut given = borrowed(&pieces);
            given.reverse();
            assert!(join(&given) == Ok((file.format, event.bytes.clone())), "{} differs", file.path);
        }
        assert_eq!(fragments, file.fragments, "{}", file.path);
        assert_eq!(pieces_total, if file.whole { 0 } else { file.fragments }, "{}", file.path);
    }
}

#[test]
fn renumbered_events_verify_under_their_new_numbers() {
    let Some(directory) = test_data() else { return };
    for file in &FILES {
        for (position, event) in events(&directory, file).into_iter().enumerate() {
            let mut other = event.clone();
            let first = if file.format == Format::Besiii { 7 << 16 } else { 7 << 32 };
            let key = EventKey::new(0x00AB_CDEF, first + position as u64);
            renumber(&mut other, key.run, key.event).expect(file.path);
            assert_eq!(other.key, key);
            if file.whole {
                assert_eq!(other.bytes, event.bytes, "a compressed event keeps its bytes");
                continue;
            }
            assert_eq!(verify(other.format, &other.bytes), Ok(key), "{}", file.path);
            renumber(&mut other, event.key.run, event.key.event).expect(file.path);
            assert!(other == event, "{}: renumbering back does not give the same event", file.path);
        }
    }
}

#[test]
fn events_of_besiii_are_out_of_order_and_their_blocks_count_on() {
    let Some(directory) = test_data() else { return };
    let (events, container) = read(&directory, &FILES[5]);
    let numbers = events.iter().map(|event| event.key.event.0 - 199_700);
    assert_eq!(numbers.collect::<Vec<_>>(), [81, 84, 85, 87, 88, 86, 90, 89, 93, 94]);
    let Container::Besiii(file) = container else { panic!("a BESIII file") };
    assert_eq!((file.start.date, file.start.time, file.start.mebibytes_max), (8_042_026, 120_340, 2008));
    assert_eq!((file.application.bytes(), file.tag.bytes()), (&b"SFO-1"[..], &b"All"[..]));
    assert_eq!((file.run.run, file.first_block), (RunId(91_668), 199_784));
    assert_eq!((file.end.date, file.end.time, file.end.events_in_run), (8_042_026, 120_631, 0));
}

#[test]
fn banks_of_a_compressed_event_can_be_seen() {
    let Some(directory) = test_data() else { return };
    let file = &FILES[4];
    let mut banks = 0;
    for event in events(&directory, file) {
        let view = BankView::of(&event.bytes).expect(file.path);
        banks += view.iter().count();
        let odin = view.iter().find(|bank| bank.bank_type == 16).expect("ODIN");
        assert_eq!((odin.version, odin.source_id, odin.range.len()), (6, 0, 48));
        assert_eq!(view.bytes()[odin.body()][..4], file.run.to_le_bytes());
    }
    assert_eq!(banks, file.fragments);
}

#[test]
fn runs_of_faser_are_as_large_as_their_field() {
    let Some(directory) = test_data() else { return };
    let mut event = events(&directory, &FILES[0]).swap_remove(0);
    let before = event.clone();
    let error = renumber(&mut event, RunId(0x0100_0000), EventId(1)).unwrap_err();
    assert!(error.to_string().contains("16777216") && error.to_string().contains("16777215"), "{error}");
    assert_eq!(event, before);
}
