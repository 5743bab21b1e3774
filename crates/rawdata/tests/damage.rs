//! Damaged input: cut files, flipped bytes, pieces that do not belong together, plain noise.
#![expect(clippy::disallowed_methods, reason = "the tests write files")]

mod common;

use std::io::Write;

use common::*;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use forebay_rawdata::banks::BankView;
use forebay_rawdata::{
    Container, EventReader, Format, FrameError, Generator, JoinError, Problem, RawEvent, expected_pieces, frame_format,
    inspect, join, join_incomplete, open, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId, SourceId};
use proptest::prelude::*;

/// Three events each, small enough to cut at every byte.
fn small_files() -> [(Format, Vec<Vec<u8>>); 4] {
    let fragments = [faser_fragment(0x20000, b"abc"), faser_fragment(0x30000, b"defgh")];
    let banks = [bank(9, 3, 1, b"abcde", &[0, 0, 0]), odin(6, 77), bank(13, 2, 3, b"last", &[])].concat();
    let compressed = {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&odin(6, 77)).unwrap();
        let zlib = zlib.finish().unwrap();
        let header = [b'Z', b'L', 8, zlib.len() as u8, 0, 0, 48, 0, 0];
        let mut event = mdf_event(3, 1, &[&header[..], &zlib].concat());
        event[16] = 1;
        seal(event)
    };
    [
        (Format::Faser, vec![faser_event(&fragments, b""); 3]),
        (Format::Mdf, vec![seal(mdf_event(3, 1, &banks)), mdf_event(1, 0, &banks), mdf_event(2, 0, &banks)]),
        (Format::Mdf, vec![compressed; 3]),
        (Format::Besiii, vec![besiii_event(&[vec![rob(2, &[1, 2]), rob(3, &[])], vec![], vec![rob(4, &[5])]]); 3]),
    ]
}

#[test]
fn a_file_cut_anywhere_keeps_the_good_events_and_says_where_it_ends() {
    for (format, events) in small_files().into_iter().filter(|(format, _)| *format != Format::Besiii) {
        let file = events.concat();
        let ends: Vec<usize> = events
            .iter()
            .scan(0, |end, event| {
                *end += event.len();
                Some(*end)
            })
            .collect();
        for cut in 0..=file.len() {
            let (read, error) = read_all(format, &file[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let start = if whole == 0 { 0 } else { ends[whole - 1] };
            assert_eq!(read.len(), whole, "cut at {cut}");
            assert!(read.iter().zip(&events).all(|(read, event)| read.bytes == *event));
            if cut == start {
                assert_eq!(error, None, "cut at {cut}");
                continue;
            }
            let error = error.expect("a cut event is an error");
            assert_eq!((error.event_offset, error.events_before), (start as u64, whole as u64), "cut at {cut}");
            let Problem::Truncated { expected, found } = error.problem else { panic!("cut at {cut}: {error}") };
            assert_eq!(found, (cut - start) as u64);
            assert!(expected > found && expected <= events[whole].len() as u64, "{expected} at {cut}");
        }
    }
}

/// Its place is one of the inflated payload, which may be larger than the whole event.
#[test]
fn a_damaged_bank_in_a_compressed_event_is_found_where_it_is() {
    let mut payload = [bank(16, 6, 0, &[0; 40], b""), bank(1, 0, 2, &[7; 3000], b"")].concat();
    let at = payload.len();
    payload.extend_from_slice(&bank(1, 0, 3, &[7; 40], b""));
    payload[at] ^= 1;
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut zlib, &payload).unwrap();
    let zlib = zlib.finish().unwrap();
    let u24 = |n: usize| [n as u8, (n >> 8) as u8, (n >> 16) as u8];
    let header = [&b"ZL\x08"[..], &u24(zlib.len()), &u24(payload.len())].concat();
    let mut event = mdf_event(3, 1, &[&header[..], &zlib].concat());
    event[16] = 1;
    let event = seal(event);
    assert!(at > event.len(), "it lies behind the end of the event in the file");
    let (_, error) = read_all(Format::Mdf, &event);
    let error = error.expect("a damaged bank");
    let Problem::InPayload { raw_bytes, problem } = &error.problem else { panic!("{error}") };
    assert_eq!(*raw_bytes, payload.len() as u64);
    assert!(matches!(**problem, Problem::Marker { at: found, .. } if found == at as u64), "{error}");
    assert!(error.to_string().contains("inflated") && !error.to_string().contains("of the event"), "{error}");
}

#[test]
fn a_reader_ends_for_good_after_an_error() {
    let (format, mut events) = small_files()[1].clone();
    events[1][30] ^= 1; // no checksum, and nothing depends on the trigger mask
    events[2][12] = 1; // a checksum that is wrong
    events.push(events[0].clone());
    let file = events.concat();
    let mut reader = EventReader::new(format, file.as_slice());
    assert!(matches!((reader.next(), reader.next()), (Some(Ok(_)), Some(Ok(_)))));
    let error = reader.next().unwrap().unwrap_err();
    assert!(matches!(error.problem, Problem::Checksum { expected: 1, .. }), "{error}");
    assert_eq!(error.event_offset, reader.offset());
    assert!(reader.next().is_none() && reader.next().is_none());
}

#[test]
fn errors_tell_what_happened_what_it_means_and_what_to_do() {
    let (format, events) = small_files()[0].clone();
    let file = events.concat();
    let (_, error) = read_all(format, &file[..file.len() - 1]);
    let size = events[0].len();
    assert_eq!(
        error.unwrap().to_string(),
        format!(
            "event at byte {}: expected {size} bytes, found {}: the file ends within the event. The 2 good events \
             before it are kept; nothing from this byte on was taken. Compare the file's size with that of its \
             origin and copy it again; if the origin is cut too, its last event is gone.",
            2 * size,
            size - 1
        )
    );
}

#[test]
fn sizes_beyond_the_limit_are_refused_before_memory_is_taken() {
    let mut event = faser_event(&[], b"");
    event[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let (_, error) = read_all(Format::Faser, &event);
    let found = 44 + u64::from(u32::MAX);
    assert_eq!(error.unwrap().problem, Problem::TooLarge { expected: 512 << 20, found });

    let mut event = mdf_event(3, 1, &[]);
    event[..12].copy_from_slice(&(500u32 << 20).to_le_bytes().repeat(3));
    let (_, error) = read_all(Format::Mdf, &event);
    assert_eq!(error.unwrap().problem, Problem::Truncated { expected: 500 << 20, found: 48 });
}

#[test]
fn each_damage_has_its_name() {
    let fragments = [faser_fragment(0x20000, b"abc"), faser_fragment(0x30000, b"defgh")];
    let faser = faser_event(&fragments, b"");
    let mdf = mdf_event(3, 1, &[odin(6, 77), bank(9, 3, 1, b"abcd", &[])].concat());
    let with = |event: &[u8], at: usize, byte: u8| {
        let format = Format::detect(event).unwrap();
        let mut event = event.to_vec();
        event[at] = byte;
        inspect(format, &event).unwrap_err().problem
    };
    let marker = |what, at, expected, found| Problem::Marker { what, at, expected, found };
    let version = |what, at, expected, found| Problem::Version { what, at, expected, found };
    let short = |what, at, expected, found| Problem::Short { what, at, expected, found };
    let overrun = |what, at, expected, found| Problem::Overrun { what, at, expected, found };
    assert_eq!(with(&faser, 0, 0), marker("event", 0, 0xBB, 0));
    assert_eq!(with(&faser, 4, 2), version("event header", 4, "1", 2));
    assert_eq!(with(&faser, 6, 43), short("event header", 0, 44, 43));
    assert_eq!(with(&faser, 8, 1), Problem::Length { expected: 45, found: 124 });
    assert_eq!(with(&faser, 12, 1), Problem::FragmentCount { expected: 1, at: 83 });
    assert_eq!(with(&faser, 12, 3), overrun("fragment header", 124, 36, 0));
    assert_eq!(with(&faser, 83, 0), marker("fragment", 83, 0xAA, 0));
    assert_eq!(with(&faser, 83 + 4, 3), version("fragment", 87, "1 or 0x101", 3));
    assert_eq!(with(&faser, 83 + 6, 35), short("fragment header", 83, 36, 35));
    assert_eq!(with(&faser, 83 + 8, 6), overrun("fragment", 83, 42, 41));

    assert_eq!(with(&mdf, 17, 0x40), version("record header", 17, "1, 2 or 3", 4));
    assert_eq!(with(&mdf, 18, 3), Problem::DataType { found: 3 });
    assert_eq!(with(&mdf, 12, 1), Problem::Checksum { expected: 1, found: forebay_rawdata::mdf_checksum(&mdf[16..]) });
    assert_eq!(with(&mdf, 96, 0), marker("bank", 96, 0xCBCB, 0xCB00));
    assert_eq!(with(&mdf, 98, 7), short("bank", 96, 8, 7));
    assert_eq!(with(&mdf, 98, 13), overrun("bank", 96, 13, 12));
    let mut sizes = mdf.clone();
    sizes[4] += 1;
    let problem = inspect(Format::Mdf, &sizes).unwrap_err().problem;
    assert_eq!(problem, Problem::SizeCopies { found: [108, 109, 108] });
}

#[test]
fn files_of_no_known_format_are_refused() {
    let directory = std::env::temp_dir().join(format!("forebay-rawdata-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("input");
    for content in [&b""[..], b"\xBB", b"not an event at all"] {
        std::fs::write(&path, content).unwrap();
        let error = open(&path).map(|_| ()).unwrap_err();
        let found = content[..content.len().min(12)].to_vec();
        assert_eq!(error.problem, Problem::UnknownFormat { found }, "{error}");
    }
    std::fs::write(&path, small_files()[1].1.concat()).unwrap();
    assert_eq!(open(&path).unwrap().filter(Result::is_ok).count(), 3);
    std::fs::remove_file(&path).unwrap();
    for path in [&path, &directory] {
        let error = open(path).map(|_| ()).unwrap_err();
        assert!(error.is_not_opened() && !error.to_string().contains("at byte"), "{error}");
    }
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn pieces_that_do_not_make_an_event_are_refused() {
    let event = raw(Format::Faser, small_files()[0].1[0].clone());
    let pieces = split(&event).unwrap();
    let given = borrowed(&pieces);
    let source_id = given[1].0;
    assert_eq!(join(&given[1..]), Err(JoinError::NoFrame { pieces: 2 }));
    assert_eq!(join(&[]), Err(JoinError::NoFrame { pieces: 0 }));
    assert_eq!(join(&given[..1]), Err(JoinError::Missing { sources: vec![given[1].0, given[2].0] }));
    assert_eq!(join(&[given[0], given[2]]), Err(JoinError::Missing { sources: vec![source_id] }));
    assert_eq!(join(&[given[0], given[1], given[2], given[1]]), Err(JoinError::Duplicate { source_id }));
    let frame = SourceId::EVENT_FRAME;
    assert_eq!(join(&[given[0], given[0]]), Err(JoinError::Duplicate { source_id: frame }));
    let stranger = SourceId(5);
    assert_eq!(join(&[given[0], (stranger, b"")]), Err(JoinError::Unexpected { source_id: stranger }));
    let (expected, found) = (given[1].1.len() as u64, given[1].1.len() as u64 - 1);
    let short = (source_id, &given[1].1[1..]);
    assert_eq!(join(&[given[0], short, given[2]]), Err(JoinError::Length { source_id, expected, found }));
    assert_eq!(join_incomplete(&[given[0], short]), Err(JoinError::Length { source_id, expected, found }));
    let cut = (frame, &given[0].1[..20]);
    let problem = FrameError::Short { expected: 40, found: 20 };
    assert_eq!(join(&[cut, given[1], given[2]]), Err(JoinError::Frame(problem)));
}

#[test]
fn an_incomplete_faser_event_says_that_it_is() {
    let event = raw(Format::Faser, small_files()[0].1[0].clone());
    let pieces = split(&event).unwrap();
    let given = borrowed(&pieces);
    let (format, bytes, missing) = join_incomplete(&[given[2], given[0]]).unwrap();
    assert_eq!((format, missing), (Format::Faser, vec![given[1].0]));
    let mut expected = faser_event(&[given[2].1.to_vec()], b"");
    expected[34] = 0x80;
    assert_eq!(bytes, expected);
    assert_eq!(verify(format, &bytes), Ok(EventKey::new(5, 77)));
    assert_eq!(join_incomplete(&given), Ok((Format::Faser, event.bytes.clone(), vec![])));
}

#[test]
fn an_incomplete_mdf_event_is_a_record_again() {
    let banks = |kept: &[usize]| {
        let all = [
            bank(9, 3, 1, b"abcde", &[1, 2, 3]),
            odin(6, 77),
            bank(9, 3, 2, b"xy", &[4, 5]),
            bank(9, 3, 1, b"f", &[6]), // lacks padding: the last
        ];
        seal(mdf_event(3, 1, &kept.iter().flat_map(|at| all[*at].clone()).collect::<Vec<u8>>()))
    };
    let event = raw(Format::Mdf, banks(&[0, 1, 2, 3]));
    let pieces = split(&event).unwrap();
    let [frame, first, odin, second] = borrowed(&pieces)[..] else { panic!("four pieces") };
    let without = |given: &[_]| join_incomplete(given).map(|(_, bytes, missing)| (bytes, missing));
    assert_eq!(without(&[frame, odin, second]), Ok((banks(&[1, 2]), vec![first.0])));
    assert_eq!(without(&[first, frame, odin]), Ok((banks(&[0, 1, 3]), vec![second.0])));
    assert_eq!(without(&[frame, first, second]), Ok((banks(&[0, 2, 3]), vec![odin.0])));
    assert_eq!(without(&[frame]), Ok((banks(&[]), vec![first.0, odin.0, second.0])));
}

/// Everything that takes bytes, on bytes that may be anything. Nothing may panic, and what is split
/// must come back.
fn try_all(event: &RawEvent) {
    let _ = Format::detect(&event.bytes);
    let _ = BankView::of(&event.bytes).map(|view| view.iter().count());
    let inspected = inspect(event.format, &event.bytes);
    let mut renumbered = event.clone();
    if renumber(&mut renumbered, RunId(3), EventId(4)).is_ok() {
        assert_eq!(inspect(event.format, &renumbered.bytes).map(|i| i.fragments), inspected.map(|i| i.fragments));
    }
    let (read, error) = read_all(event.format, &event.bytes);
    let container = Container::new(event.format, RunId(5), 0);
    if container == Container::Plain {
        let good: usize = read.iter().map(|event| event.bytes.len()).sum();
        assert_eq!(error.is_none(), good == event.bytes.len());
    } else {
        let (read, error) = read_all(event.format, &write_file(&container, std::slice::from_ref(&event.bytes)));
        assert_eq!(
            (read.len(), error.is_none()),
            if inspect(event.format, &event.bytes).is_ok() { (1, true) } else { (0, false) }
        );
    }
    if let Ok(pieces) = split(event) {
        assert_eq!(join(&borrowed(&pieces)), Ok((event.format, event.bytes.clone())));
    }
}

fn try_frame(frame: &[u8], others: &[(SourceId, &[u8])]) {
    let named = (expected_pieces(frame).ok(), sources(frame).map(|s| s.len() + 1).ok());
    assert_eq!(named.0, named.1);
    assert_eq!(frame_format(frame).is_ok(), named.0.is_some());
    for count in [others.len(), others.len() / 2, 0] {
        let given: Vec<_> = others[..count].iter().copied().chain([(SourceId::EVENT_FRAME, frame)]).collect();
        let _ = join(&given);
        if let Ok((format, bytes, missing)) = join_incomplete(&given) {
            assert!(
                missing.is_empty()
                    || matches!(inspect(format, &bytes).map_err(|e| e.problem), Ok(_) | Err(Problem::Run))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn damaged_small_events_never_panic(
        kind in 0..4usize, number in 0..3usize, changes in changes(), cut in prop::option::of(any::<usize>()), resealed: bool,
    ) {
        let (format, events) = small_files()[kind].clone();
        let mut bytes = events[number].clone();
        mutate(&mut bytes, &changes, cut);
        if format == Format::Mdf && resealed && bytes.len() >= 48 {
            // Past the sizes and the checksum, where the banks are.
            let size = (bytes.len() as u32).to_le_bytes().repeat(3);
            bytes[..12].copy_from_slice(&size);
            bytes = seal(bytes);
        }
        if format == Format::Besiii && resealed && bytes.len() >= 28 {
            // Past the size, where the elements are.
            bytes.truncate(bytes.len() / 4 * 4);
            let size = (bytes.len() as u32 / 4).to_le_bytes();
            bytes[4..8].copy_from_slice(&size);
        }
        try_all(&raw(format, bytes));
    }

    #[test]
    fn damaged_frames_never_panic(
        kind in prop::sample::select(vec![0usize, 1, 3]), changes in changes(), cut in prop::option::of(any::<usize>()),
    ) {
        let (format, events) = small_files()[kind].clone();
        let pieces = split(&raw(format, events[0].clone())).unwrap();
        let mut frame = pieces[0].bytes.clone();
        mutate(&mut frame, &changes, cut);
        try_frame(&frame, &borrowed(&pieces)[1..]);
    }

    #[test]
    fn noise_never_panics(format in prop::sample::select(&Format::ALL[..]), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        try_all(&raw(format, bytes.clone()));
        try_frame(&bytes, &[(SourceId(1), &bytes)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn damaged_generated_events_never_panic(
        seed in 0u64..4, kind in 0..4usize, changes in changes(), cut in prop::option::of(any::<usize>()),
    ) {
        let generator: Option<Generator> = generators(seed, 9).into_iter().nth(kind);
        let mut event = generator.unwrap().next_event();
        mutate(&mut event.bytes, &changes, cut);
        try_all(&event);
    }

    #[test]
    fn events_that_lost_sources_are_well_formed(seed: u64, kind in prop::sample::select(vec![0usize, 1, 3]), keep: u64) {
        let event = generators(seed, 9).into_iter().nth(kind).unwrap().next_event();
        let pieces = split(&event).unwrap();
        let kept = |at: usize| at == 0 || keep >> (at % 64) & 1 == 1;
        let given: Vec<_> = borrowed(&pieces).into_iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, p)| p).collect();
        let (format, bytes, missing) = join_incomplete(&given).unwrap();
        let info = inspect(format, &bytes).unwrap();
        prop_assert_eq!(info.fragments, given.len() - 1);
        prop_assert_eq!(missing.len(), pieces.len() - given.len());
        prop_assert_eq!(info.run, RunId(9));
    }
}
