//! What a journal keeps, and what it says of rows that no mover wrote.

use std::sync::Arc;

use forebay_types::{EventKey, RunId, StoreUuid};

use super::*;
use crate::about::{About, AboutPart, Checked, Uncompressed};
use crate::custody::{DeliveryState, PartIdentity};
use crate::events::{EventKind, Events, Making};
use crate::machine::RouteIndex;
use crate::recipe::Form;
use crate::sums::Sums;

fn planned(id: u64) -> Record {
    let name: crate::Name = format!("run7/file{id}").parse().expect("a name");
    let identity = PartIdentity { bytes: u64::MAX - id, modified_ns: -5, inode: u64::MAX };
    Record::Planned {
        id: ConsignmentId(id),
        route: RouteIndex(0),
        recipe: Recipe::of_files(
            Form::Tar,
            vec![Part { name: name.clone(), identity, changed_ns: 9 }],
            (id == 2).then_some(19),
        ),
        series: Some(series(id)),
        name,
        settings: u64::MAX,
        priority: id as u16,
        deliveries: vec![("/first".to_owned(), What::File, true), ("/second".to_owned(), What::Sidecar, false)],
    }
}

fn series(number: u64) -> Series {
    Series { names: "run7/file{sequence}".to_owned(), number }
}

fn events(id: u64) -> Events {
    Events {
        store: StoreUuid::from_bytes([7; 16]),
        stream: "physics".parse().expect("a name"),
        run: RunId(7),
        kind: EventKind::Besiii,
        numbered: true,
        making: Making { sources: "3-5,9".parse().expect("sources"), kind: Some(EventKind::Plain) },
        block: Some(u64::MAX),
        sequence: id as u32,
        event_bytes: 1 << 40,
        list: [1, 2, 3, 500, u64::MAX].into_iter().collect(),
        incomplete: [500].into_iter().collect(),
    }
}

#[test]
fn a_file_of_events_is_a_row_and_is_found_by_each_of_its_events() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut journal = opened(&directory);
    let planned = |id| Record::Planned {
        id: ConsignmentId(id),
        route: RouteIndex(0),
        recipe: Recipe::of_events(events(id), Some(3)),
        series: None,
        name: format!("physics/{id}").parse().expect("a name"),
        settings: 5,
        priority: 0,
        deliveries: vec![("/first".to_owned(), What::File, true)],
    };
    let routes = ["stream".to_owned()];
    journal.write(&[planned(1)], &routes, WallTime(1)).expect("written");
    let at_work = journal.at_work().expect("read");
    assert_eq!(at_work.consignments[0].1.recipe, Recipe::of_events(events(1), Some(3)));
    assert_eq!(at_work.events, [("stream".to_owned(), RunId(7), 5)]);
    let view = View::open(journal.path()).expect("opened");
    let with = |event| view.with_event(EventKey::new(7, event)).expect("read").len();
    assert_eq!([with(1), with(3), with(4), with(500), with(u64::MAX), with(0)], [1, 1, 0, 1, 1, 0]);
    let seen = view.at_work(None).expect("read")[0].events.clone().expect("it has some");
    assert_eq!((seen.run, seen.events, seen.first, seen.last), (7, 5, 1, u64::MAX));
    // A row that does not fit together is damage.
    journal.connection.execute("UPDATE events SET events = 6", []).expect("edited");
    assert!(matches!(journal.at_work(), Err(JournalError::Damaged { .. })));
    assert!(matches!(view.with_event(EventKey::new(7, 1)), Err(JournalError::Damaged { .. })));
}

fn delivery(id: u64, to: Kept) -> Record {
    let (from, to) = (Box::new(Kept::default()), Box::new(to));
    let of = Changed::Delivery { place: 1, destination: "/second".to_owned(), what: What::Sidecar, from, to };
    Record::Change(Change { consignment: ConsignmentId(id), of, why: "it said so".to_owned() })
}

fn checked(id: u64, sums: Sums) -> Checked {
    let uncompressed = (id == 2).then_some(Uncompressed { bytes: u64::MAX, adler32: 7 });
    let parts = vec![AboutPart { at: 512, adler32: u32::MAX }];
    Checked { sums, about: Arc::new(About { parts, uncompressed, ..About::default() }) }
}

fn stage(id: u64, from: Stage, to: Stage, content: Option<Sums>) -> Record {
    let standing = |stage| Standing {
        stage,
        content: content.map(|sums| checked(id, sums)),
        registered: id == 2,
        ..Standing::default()
    };
    let (from, to) = (Box::new(standing(from)), Box::new(standing(to)));
    let of = Changed::Standing { from, to };
    Record::Change(Change { consignment: ConsignmentId(id), of, why: String::new() })
}

fn opened(directory: &tempfile::TempDir) -> Journal {
    Journal::open(&directory.path().join("journal.sqlite")).expect("opened")
}

#[test]
fn what_was_written_is_there_after_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut journal = opened(&directory);
    let token = journal.token();
    let sums = Sums { bytes: u64::MAX - 2, adler32: u32::MAX, crc32c: 7 };
    let left = Kept {
        state: DeliveryState::Arrived,
        attempts: 9,
        strikes: 2,
        ours: true,
        partial: Some(9),
        left: vec![3, 8],
        words: "ü".to_owned(),
    };
    let records = [
        planned(1),
        planned(2),
        planned(3),
        stage(2, Stage::Found, Stage::Delivering, Some(sums)),
        delivery(2, left.clone()),
        Record::Renamed {
            id: ConsignmentId(2),
            route: RouteIndex(0),
            name: "run7/file00009".parse().expect("a name"),
            series: series(9),
            why: "another has it".to_owned(),
        },
        stage(1, Stage::Found, Stage::Delivering, Some(sums)),
        stage(1, Stage::Delivering, Stage::Released, Some(sums)),
        // The source let it go, and something of ours lies about still.
        delivery(3, left.clone()),
        stage(3, Stage::Found, Stage::Withdrawn, None),
    ];
    let transitions = journal.write(&records, &["daq".to_owned()], WallTime(5)).expect("written");
    assert_eq!(transitions.len(), records.len());
    let steps = |transitions: &[Transition]| -> Vec<(i64, i64, Option<String>, String)> {
        let step = |t: &Transition| (t.number, t.consignment, t.destination.clone(), t.after.clone());
        transitions.iter().map(step).collect()
    };
    assert_eq!(steps(&transitions), steps(&journal.transitions_after(0).expect("read")));
    assert!(matches!(Journal::open(journal.path()), Err(JournalError::Locked { .. })));
    drop(journal);
    let journal = opened(&directory);
    assert_eq!(journal.token(), token);
    let AtWork { consignments, series: given, next, events } = journal.at_work().expect("read");
    assert_eq!((next, given), (4, vec![("daq".to_owned(), series(0).names, 10)]));
    let ids: Vec<u64> = consignments.iter().map(|(_, consignment)| consignment.id.0).collect();
    assert_eq!((ids, events), (vec![2, 3], Vec::new()), "1 is over");
    assert_eq!(consignments[1].1.priority, 3);
    let (route, second) = &consignments[0];
    assert_eq!((route.as_str(), second.stage(), second.content()), ("daq", Stage::Delivering, Some(&sums)));
    assert_eq!(
        second.recipe.parts()[0].identity,
        PartIdentity { bytes: u64::MAX - 2, modified_ns: -5, inode: u64::MAX }
    );
    assert_eq!((second.name.as_str(), second.series()), ("run7/file00009", Some(&series(9))));
    assert_eq!((second.deliveries[1].row(), second.deliveries[1].required), (&left, false));
    assert_eq!(second.deliveries[0].row(), &Kept::default());
    // What is over is forgotten, and its number is not given again.
    let mut journal = journal;
    assert_eq!(journal.forget_before(WallTime(5)).expect("written"), 0);
    assert_eq!(journal.forget_before(WallTime(6)).expect("written"), 1);
    journal
        .write(&[planned(4), stage(4, Stage::Found, Stage::Withdrawn, None)], &["daq".to_owned()], WallTime(5))
        .expect("written");
    assert_eq!(journal.forget_before(WallTime(6)).expect("written"), 1);
    let AtWork { consignments, next, .. } = journal.at_work().expect("read");
    assert_eq!((consignments.len(), next), (2, 5));
    assert_eq!(journal.transitions_after(0).expect("read").last().map(|last| last.consignment), Some(3));
}

#[test]
fn directories_are_known_again_before_the_journal_is_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("journal.sqlite");
    assert!(Journal::places_of(&path).expect("there is none").is_empty() && !path.exists());
    let mut journal = opened(&directory);
    journal.remember_place("/data/daq", u64::MAX).expect("written");
    journal.remember_place("/data/daq", 5).expect("written");
    drop(journal);
    let known = Journal::places_of(&path).expect("read");
    assert_eq!(known.into_iter().collect::<Vec<_>>(), [("/data/daq".to_owned(), 5)]);
}

#[test]
fn rows_that_no_mover_wrote_are_damage() {
    for (damage, words) in [
        ("UPDATE deliveries SET state = 'gone'", "no delivery is"),
        ("UPDATE deliveries SET left_over = '1 x'", "are no attempts"),
        ("UPDATE deliveries SET left_over = '1 2 3'", "left something"),
        ("UPDATE consignments SET name = '../secret'", "leads elsewhere"),
        ("UPDATE parts SET name = '/etc/passwd'", "is empty"),
        ("UPDATE consignments SET stage = 'proven'", "without sums"),
        ("DELETE FROM parts", "what it is made of is not there"),
        ("UPDATE consignments SET form = 'zip'", "no form is"),
        ("UPDATE series SET next = -1", "names of it"),
        ("UPDATE consignments SET series_number = NULL", "half of a series"),
        ("UPDATE consignments SET series_number = -1", "its number is"),
        (
            "UPDATE consignments SET stage = 'proven', bytes = 1, adler32 = 1, crc32c = 1, about = '{\"parts\":[{\"at\":0,\"adler32\":1}]}'",
            "not proven",
        ),
        ("UPDATE consignments SET bytes = 1, adler32 = 1, crc32c = 1", "what is known of it"),
        ("UPDATE consignments SET bytes = 1, adler32 = 1, crc32c = 1, about = '{\"parts\":[]}'", "0 are described"),
        ("UPDATE deliveries SET what = 'twin'", "no delivery is of a"),
        ("UPDATE consignments SET zstd = 20", "compressed at level 20"),
        (
            "UPDATE consignments SET zstd = 3, bytes = 1, adler32 = 1, crc32c = 1, about = '{\"parts\":[{\"at\":0,\"adler32\":1}]}'",
            "of another form",
        ),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut journal = opened(&directory);
        journal.write(&[planned(1)], &["daq".to_owned()], WallTime(5)).expect("written");
        journal.connection.execute_batch(damage).expect("done");
        let error = journal.at_work().expect_err("it is damaged").to_string();
        assert!(error.contains("damaged") && error.contains(words), "{damage}: {error}");
    }
}
