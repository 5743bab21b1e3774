//! Reading what a drive has damaged.

use forebay_types::{DriveNumber, EventKey, ReadOutcome, SourceId, crc32c};

use super::{DRIVE_BYTES, Driven};
use crate::api::{Admission, Fetch, Put, Reply, Token};

const SOURCES: u32 = 300;

fn payload(source: u32) -> Vec<u8> {
    vec![source as u8; 40]
}

fn read(driven: &mut Driven, key: EventKey, source: u32) -> (ReadOutcome, Vec<u8>) {
    let mut into = Vec::new();
    match driven.lane.get(Token(1 << 40), key.fragment(SourceId(source)), &mut into) {
        Fetch::Done(outcome, _) => (outcome, into),
        Fetch::Pending { .. } => match driven.reply() {
            Reply::Read { outcome, payload, .. } => (outcome, payload),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn a_damaged_row_is_put_right_once_for_all_of_its_fragments() {
    let mut found = 0;
    for damaged in 0..3 {
        let mut driven = Driven::new(|config| config.cache_bytes = 0);
        let key = EventKey::new(1, 1);
        for source in 0..SOURCES {
            let payload = payload(source);
            let put = Put { id: key.fragment(SourceId(source)), expected: SOURCES as u16, crc: crc32c(&payload) };
            assert_eq!(driven.lane.put(Token(1), &put, &payload), Admission::Pending);
        }
        let mut stored = 0;
        while stored < SOURCES {
            let Reply::Stored { records, .. } = driven.reply() else { panic!("a put was refused") };
            stored += records;
        }
        driven.drives.corrupt(DriveNumber(damaged), 0..DRIVE_BYTES, 1);
        driven.reads = 0;
        for source in 0..SOURCES {
            assert_eq!(read(&mut driven, key, source), (ReadOutcome::Found, payload(source)), "source {source}");
        }
        // 300 fragments lie in two flushes with a few rows: each row is read twice at most, the second time with the headers.
        assert!(driven.reads < 60, "{} reads with drive {damaged} damaged", driven.reads);
        let counters = driven.lane.status().counters;
        assert!(counters.units_damaged < 8 && counters.fragments_lost == 0, "{counters:?}");
        // A drive whose header is damaged gives no units at all.
        let named = (damaged, counters.units_damaged);
        assert!(counters.units_damaged == 0 || counters.units_damaged_by_drive.into_iter().eq([named]));
        found += counters.units_damaged;
    }
    assert!(found > 0);
}
