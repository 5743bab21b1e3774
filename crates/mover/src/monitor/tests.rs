//! Every alarm is raised and cleared, by looks that are made up, and what is told is a number that fits.

use super::*;
use crate::custody::ConsignmentId;
use crate::machine::{DestinationSurvey, PlaceSurvey, RouteSurvey};

const ALARM_AFTER: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(86_400);

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

/// A mover that has one route to one destination, with one file of 1000 bytes that is to be sent, and nothing wrong.
fn well() -> Observation {
    let one = Amount { files: 1, bytes: 1000 };
    let place = PlaceSurvey { streams_max: 4, ..PlaceSurvey::default() };
    let survey = RouteSurvey {
        states: BTreeMap::from([("found", one)]),
        oldest: Some(ConsignmentId(1)),
        oldest_unproven: Some(ConsignmentId(1)),
        to_send_bytes: 1000,
        registry: place,
        ..RouteSurvey::default()
    };
    let space = Space { free_bytes: 60_000, capacity_bytes: 100_000, told: Told::NotFilling };
    let route = SeenRoute {
        name: "daq".to_owned(),
        from: "/data".to_owned(),
        recheck_after: Duration::from_secs(900),
        survey,
        space: Some(space),
        ..SeenRoute::default()
    };
    let survey = DestinationSurvey { waiting: one, place, ..DestinationSurvey::default() };
    let destination = SeenDestination { address: "/archive".to_owned(), survey, ..SeenDestination::default() };
    let journal = SeenJournal { free_bytes: Some(10 << 30), ..SeenJournal::default() };
    Observation { routes: vec![route], destinations: vec![destination], journal, ..Observation::default() }
}

struct World {
    monitor: Monitor,
    seconds: u64,
}

impl World {
    fn new() -> World {
        World { monitor: Monitor::new(MonitorConfig { alarm_after: ALARM_AFTER }), seconds: 0 }
    }

    /// It is so for so many seconds, at whose end these are raised.
    fn raises(&mut self, seconds: u64, seen: &Observation, wanted: &[MoverAlarm]) -> Report {
        let mut last = None;
        for _ in 0..=seconds {
            last = Some(self.monitor.observe(at(self.seconds), seen).0);
            self.seconds += 1;
        }
        let report = last.expect("it was looked at once");
        let codes: Vec<&str> = report.alarms.iter().map(|alarm| alarm.code.as_str()).collect();
        let wanted: Vec<&str> = wanted.iter().map(|alarm| alarm.info().code).collect();
        assert_eq!(codes, wanted, "{:?}", report.alarms);
        report
    }
}

fn with(change: impl FnOnce(&mut Observation)) -> Observation {
    let mut seen = well();
    change(&mut seen);
    seen
}

#[test]
fn what_is_wrong_at_once_is_told_at_once_and_over_when_it_is() {
    type Fault = (MoverAlarm, &'static str, fn(&mut Observation));
    let faults: [Fault; 7] = [
        (MoverAlarm::FileQuarantined, "run7/a.raw and 2 more are quarantined: /archive: it is short", |seen| {
            let survey = &mut seen.routes[0].survey;
            survey.quarantined = 3;
            survey.first_quarantined = Some(("run7/a.raw".to_owned(), "/archive: it is short".to_owned()));
        }),
        (MoverAlarm::SourceSilent, "/data could not be looked at for 5 min: no such directory", |seen| {
            seen.routes[0].survey.failing_for = Some(ALARM_AFTER);
            seen.routes[0].failing_words = Some("no such directory".to_owned());
        }),
        (MoverAlarm::TapeLate, "has waited for tape for 24 h", |seen| seen.routes[0].tape = Some(DAY)),
        (MoverAlarm::JournalAtRisk, "100 MiB are free", |seen| seen.journal.free_bytes = Some(100 << 20)),
        (MoverAlarm::JournalAtRisk, "no space left", |seen| seen.journal.failure = Some("no space left".to_owned())),
        (MoverAlarm::RegisteringFails, "2 proven files could not be registered for 5 min", |seen| {
            seen.routes[0].survey.unregistered = 2;
            seen.routes[0].survey.registry.failing_for = Some(ALARM_AFTER);
        }),
        (MoverAlarm::HeldForLong, "has been held for 24 h", |seen| seen.routes[0].held = Some(DAY)),
    ];
    for (alarm, words, fault) in faults {
        let mut world = World::new();
        world.raises(0, &well(), &[]);
        let report = world.raises(0, &with(fault), &[alarm]);
        assert!(report.alarms[0].words.contains(words), "{words:?} in {:?}", report.alarms[0].words);
        world.raises(0, &well(), &[]);
    }
}

#[test]
fn a_destination_is_away_when_it_has_been_for_a_while_and_something_waits_for_it() {
    let away = |seconds, files| {
        with(move |seen| {
            let to = &mut seen.destinations[0];
            to.survey.waiting.files = files;
            to.survey.place.away = true;
            to.survey.place.failing_for = Some(Duration::from_secs(seconds));
            to.last_words = Some(("connection refused".to_owned(), Duration::ZERO));
        })
    };
    let mut world = World::new();
    world.raises(0, &away(299, 3), &[]);
    let report = world.raises(0, &away(300, 3), &[MoverAlarm::DestinationAway]);
    assert_eq!(
        report.alarms[0].words,
        "/archive has not answered for 5 min (connection refused): 3 files wait for it, and stay at their source"
    );
    assert_eq!((report.destinations[0].away, report.destinations[0].failing_s), (true, Some(300.0)));
    world.raises(0, &away(400, 0), &[]);
    world.raises(0, &well(), &[]);
}

#[test]
fn nothing_was_proven_for_long_though_files_wait() {
    let mut world = World::new();
    world.raises(900 + 3600 - 1, &well(), &[]);
    world.raises(0, &well(), &[MoverAlarm::NothingProven]);
    let proven = with(|seen| seen.routes[0].tally.proven.files = 1);
    world.raises(900 + 3600 - 1, &proven, &[]);
    // What a person holds, or tape keeps waiting, is another alarm.
    let held = with(|seen| {
        seen.routes[0].tally.proven.files = 1;
        seen.routes[0].survey.states = BTreeMap::from([("held", Amount { files: 1, bytes: 1000 })]);
    });
    world.raises(10_000, &held, &[]);
}

#[test]
fn names_that_need_somebody_are_told_when_they_stay() {
    let left = with(|seen| {
        seen.routes[0].survey.left_alone = 2;
        seen.routes[0].left_alone_names = vec!["\"a\\n\": its name has a control character".to_owned()];
    });
    let mut world = World::new();
    world.raises(299, &left, &[]);
    let report = world.raises(0, &left, &[MoverAlarm::NamesLeftAlone]);
    assert!(report.alarms[0].words.starts_with("route daq: 2 names are left alone, \"a\\n\": its name"));
    world.raises(0, &well(), &[]);
    let refused =
        with(|seen| seen.routes[0].survey.refusals = vec![(7, "no stream of it".to_owned()), (8, String::new())]);
    world.raises(299, &refused, &[]);
    let report = world.raises(0, &refused, &[MoverAlarm::NamesLeftAlone]);
    let wanted = "route daq: events of run 7 are left in the store: no stream of it, and those of 1 more runs";
    assert_eq!(report.alarms[0].words, wanted);
    world.raises(0, &well(), &[]);
    let blocked = with(|seen| seen.routes[0].survey.blocked = 1);
    world.raises(3599, &blocked, &[]);
    world.raises(0, &blocked, &[MoverAlarm::NamesLeftAlone]);
}

#[test]
fn a_journal_has_room_again_only_when_it_has_some() {
    let free = |mib: u64| with(|seen| seen.journal.free_bytes = Some(mib << 20));
    let mut world = World::new();
    world.raises(0, &free(300), &[]);
    world.raises(0, &free(255), &[MoverAlarm::JournalAtRisk]);
    world.raises(0, &free(300), &[MoverAlarm::JournalAtRisk]);
    world.raises(0, &free(512), &[]);
}

/// One that takes so many bytes still of 100,000, and says of itself when it is full.
fn filling(free_bytes: u64, told: Told) -> Observation {
    with(|seen| seen.routes[0].space = Some(Space { free_bytes, capacity_bytes: 100_000, told }))
}

#[test]
fn a_source_that_is_full_before_its_backlog_is_gone_is_told() {
    let mut world = World::new();
    // Nothing is sent, and it is full in ten hours: too late, once that has been so for a while.
    let late = filling(90_000, Told::FullIn(36_000.0));
    world.raises(299, &late, &[]);
    let report = world.raises(0, &late, &[MoverAlarm::SourceFilling]);
    assert_eq!(
        report.alarms[0].words,
        "route daq: /data is full in 10 h at this rate, and 1 files wait, and none is sent"
    );
    assert_eq!(report.routes[0].space.expect("known").full_in_s, Some(36_000.0));
    world.raises(0, &filling(90_000, Told::NotFilling), &[]);
    // A burst into one that is half empty is none.
    let quiet = |seen: &mut Observation| {
        seen.routes[0].survey.states.clear();
        (seen.routes[0].survey.oldest_unproven, seen.routes[0].survey.to_send_bytes) = (None, 0);
    };
    let mut burst = filling(60_000, Told::FullIn(1200.0));
    quiet(&mut burst);
    world.raises(1000, &burst, &[]);
    let mut soon = filling(40_000, Told::FullIn(1200.0));
    quiet(&mut soon);
    world.raises(299, &soon, &[]);
    let report = world.raises(0, &soon, &[MoverAlarm::SourceFilling]);
    assert!(report.alarms[0].words.ends_with("full in 20 min at this rate, and nothing waits to be moved"));
    world.raises(0, &filling(500, Told::NotFilling), &[MoverAlarm::SourceFilling]);
}

#[test]
fn a_backlog_that_is_gone_in_time_is_no_alarm() {
    let mut world = World::new();
    let mut seen = filling(90_000, Told::FullIn(36_000.0));
    // 100,000 bytes wait, and 10 are sent a second: 10,000 s, and the wait for the second proof.
    seen.routes[0].survey.to_send_bytes = 100_000;
    let mut report = Report::default();
    for second in 0..400 {
        seen.routes[0].tally.sent_bytes.insert("/archive".to_owned(), 10 * second);
        report = world.raises(0, &seen, &[]);
    }
    let route = &report.routes[0];
    assert!((route.rates.sent_bytes - 10.0).abs() < 0.2, "{route:?}");
    assert!((route.backlog_s.expect("it is sent") - 10_900.0).abs() < 200.0, "{route:?}");
    assert!((report.destinations[0].sent_bytes_per_s - 10.0).abs() < 0.2);
    seen.routes[0].survey.to_send_bytes = 0;
    assert_eq!(world.raises(0, &seen, &[]).routes[0].backlog_s, Some(900.0), "all was sent, and waits for its proof");
}

#[test]
fn how_long_a_directory_lasts_is_told_by_what_it_lost_in_the_last_minutes() {
    let mut world = World::new();
    let full_in = |world: &mut World, free| {
        let report = world.raises(0, &filling(free, Told::Nothing), &[]);
        report.routes[0].space.expect("known").full_in_s
    };
    for second in 0..20 {
        assert_eq!(full_in(&mut world, 80_000 - second / 10), None, "too early to tell");
    }
    let mut last = None;
    for second in 20..600 {
        last = full_in(&mut world, 80_000 - second / 10);
    }
    let seconds = last.expect("it fills");
    assert!((700_000.0..900_000.0).contains(&seconds), "a tenth of a byte a second, 80,000 left: {seconds}");
    for _ in 0..400 {
        last = full_in(&mut world, 79_940);
    }
    assert_eq!(last, None, "it does not fill any more");
}

#[test]
fn a_report_is_read_as_it_was_written() {
    let report = World::new().raises(0, &with(|seen| seen.journal.free_bytes = Some(1)), &[MoverAlarm::JournalAtRisk]);
    let text = serde_json::to_string(&report).expect("text and numbers");
    assert_eq!(serde_json::from_str::<Report>(&text).expect("as it was written"), report);
    assert_eq!(serde_json::from_str::<Report>("{\"later\": 1}").expect("of another version"), Report::default());
}
