//! Every alarm is raised and cleared, by looks that are made up.

mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::OutOfReach;
use forebay_store::DriveCounts;
use forebay_telemetry::alarm::Alarms;
use forebay_types::Time;

use super::*;
use crate::pressure::Pressure;
use crate::smart::SmartReport;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

fn config() -> MonitorConfig {
    MonitorConfig { filter_silent: Duration::from_secs(60), recorder_stuck: Duration::from_secs(600) }
}

/// A server on six drives, 4+2, with nothing wrong.
fn well() -> Observation {
    let lane = |lane| SeenLane {
        lane,
        state: "serving",
        failures_left: Some(2),
        capacity_bytes: 100_000,
        free_bytes: 90_000,
        segments: 100,
        segments_free: 90,
        index_bytes: 10,
        index_bytes_max: 100,
        ..SeenLane::default()
    };
    let drive = |number| SeenDrive { number, path: Some(format!("/d{number}")), in_use: true, ..SeenDrive::default() };
    Observation {
        parity_shards: 2,
        started_clean: true,
        uptime: Duration::from_secs(60),
        drives: (0..6).map(drive).collect(),
        lanes: vec![lane(0), lane(1)],
        ..Observation::default()
    }
}

#[test]
fn a_drive_that_was_made_up_for_is_not_told_for_ever() {
    let mut world = World::new();
    world.seen.shards = 5;
    world.seen.drives[3].in_use = false;
    assert!(world.after(1).contains(&Alarm::DriveLost), "what it held is not made anew yet");
    world.seen.lanes.iter_mut().for_each(|lane| lane.is_whole = true);
    assert!(!world.after(120).contains(&Alarm::DriveLost), "nothing is missing any more");
    world.seen.shards = 6;
    assert!(world.after(1).contains(&Alarm::DriveLost), "new data are narrower without it");
}

/// A monitor that is shown one look after the other.
struct World {
    monitor: Monitor,
    now: u64,
    seen: Observation,
}

impl World {
    fn new() -> World {
        World { monitor: Monitor::new(config()), now: 0, seen: well() }
    }

    /// The alarms that are raised after so many more seconds.
    fn after(&mut self, seconds: u64) -> Vec<Alarm> {
        self.now += seconds;
        self.monitor.observe(at(self.now), &self.seen);
        let raised = &self.monitor.findings().alarms;
        Alarm::ALL
            .iter()
            .copied()
            .filter(|alarm| raised.iter().any(|raised| raised.code == alarm.info().code))
            .collect()
    }

    fn words(&self, alarm: Alarm) -> &str {
        let raised = self.monitor.findings().alarms.iter().find(|raised| raised.code == alarm.info().code);
        &raised.expect("raised").words
    }
}

#[test]
fn a_store_that_is_well_raises_nothing() {
    let mut world = World::new();
    for _ in 0..1000 {
        assert_eq!(world.after(1), []);
    }
}

#[test]
fn alarms_come_and_go_once_and_tell_since_when() {
    let mut monitor = Monitor::new(config());
    let mut seen = well();
    seen.drives[1].in_use = false;
    seen.lanes[0].failures_left = Some(1);
    let changes = monitor.observe(at(0), &seen);
    assert_eq!(changes.len(), 1);
    assert!(changes[0].alarm == Alarm::DriveLost && changes[0].words.is_some());
    assert_eq!(monitor.observe(at(90), &seen), []);
    let raised = &monitor.findings().alarms[0];
    assert_eq!((raised.code.as_str(), raised.name.as_str(), raised.raised_s), ("FB-101", "drive-lost", 90.0));
    assert_eq!(raised.runbook, "docs/runbook.md#fb-101-drive-lost");
    assert_eq!(monitor.observe(at(91), &well()), [Change { alarm: Alarm::DriveLost, words: None }]);
    assert!(monitor.findings().alarms.is_empty());
}

#[test]
fn protection_is_what_the_worst_lane_has_left() {
    let mut world = World::new();
    world.seen.drives[1].in_use = false;
    assert_eq!(world.after(1), [Alarm::DriveLost], "a drive is gone, and everything has its shards");
    assert!(world.words(Alarm::DriveLost).contains("drive 1 (/d1); all that is stored is whole"));
    world.seen.lanes[1].failures_left = Some(1);
    assert_eq!(world.after(1), [Alarm::DriveLost]);
    assert!(world.words(Alarm::DriveLost).contains("1 more drive may fail (the store was made for the loss of 2)"));
    world.seen.lanes[1].failures_left = Some(0);
    assert_eq!(world.after(1), [Alarm::DriveLost, Alarm::ProtectionCritical]);
    // All drives are there again, and what they missed is not made yet.
    world.seen.drives[1].in_use = true;
    world.seen.lanes[1].failures_left = Some(1);
    assert_eq!(world.after(1), [Alarm::DriveLost]);
    assert!(world.words(Alarm::DriveLost).contains("not all of its shards"));
    // Nobody knows yet.
    world.seen.drives[1].in_use = false;
    world.seen.lanes.iter_mut().for_each(|lane| (lane.state, lane.failures_left) = ("recovering", None));
    assert_eq!(world.after(1), [Alarm::DriveLost]);
    assert!(world.words(Alarm::DriveLost).contains("known when all lanes have recovered"));
    world.seen = well();
    // Nothing is stored.
    world.seen.lanes.iter_mut().for_each(|lane| lane.failures_left = None);
    assert_eq!(world.after(1), []);
    // Two of three are as bad as the last.
    world.seen.parity_shards = 3;
    world.seen.lanes[0].failures_left = Some(1);
    assert_eq!(world.after(1), [Alarm::DriveLost, Alarm::ProtectionCritical]);
    // A store without parity has lost none.
    world.seen.parity_shards = 0;
    world.seen.lanes[0].failures_left = Some(0);
    assert_eq!(world.after(1), []);
}

#[test]
fn damage_is_told_for_a_day_after_the_last() {
    let mut world = World::new();
    world.seen.lanes[0].units_damaged = 3;
    world.seen.drives[2].units_damaged = 3;
    assert_eq!(world.after(1), [Alarm::DamageFound]);
    assert!(world.words(Alarm::DamageFound).contains("3 of them on drive 2 (/d2); 0 units were written again."));
    // What stays damaged is met again and again, and it is not said to be right.
    (world.seen.lanes[0].units_mended, world.seen.lanes[0].lost.fragments) = (2, 1);
    assert_eq!(world.after(0), [Alarm::DamageFound, Alarm::DataLost]);
    let words = world.words(Alarm::DamageFound);
    assert!(words.contains("2 units were written again, and what is damaged on more drives than parity"), "{words}");
    world.seen.lanes[0].lost.fragments = 0;
    assert_eq!(world.after(DAY - 10), [Alarm::DamageFound]);
    world.seen.lanes[1].units_damaged = 1;
    assert_eq!(world.after(5), [Alarm::DamageFound]);
    assert_eq!(world.after(DAY - 1), [Alarm::DamageFound]);
    assert_eq!(world.after(1), []);
}

#[test]
fn losses_are_told_as_long_as_they_last() {
    for which in 0..4 {
        let mut world = World::new();
        let lost = &mut world.seen.lanes[0].lost;
        *[&mut lost.flushes, &mut lost.segments, &mut lost.fragments, &mut lost.flushes_possibly][which] = 5;
        assert_eq!(world.after(1), [Alarm::DataLost]);
        assert!(world.words(Alarm::DataLost).starts_with("5 "));
        world.seen.lanes[0].lost = SeenLosses::default();
        assert_eq!(world.after(1), []);
    }
}

#[test]
fn what_is_out_of_reach_is_told_apart_from_what_is_lost_with_the_drives_that_bring_it() {
    let mut world = World::new();
    world.seen.lanes.iter_mut().for_each(|lane| lane.failures_left = Some(0));
    world.seen.drives[2].in_use = false;
    world.seen.drives[3].in_use = false;
    let lost = &mut world.seen.lanes[0].lost;
    lost.out_of_reach = OutOfReach { segments: 7, bytes: 20 << 20, drives: vec![2] };
    world.seen.lanes[1].lost.out_of_reach = OutOfReach { segments: 1, bytes: 5 << 20, drives: vec![2, 3] };
    assert_eq!(world.after(1), [Alarm::DriveLost, Alarm::ProtectionCritical, Alarm::DataLost]);
    assert_eq!(
        world.words(Alarm::DataLost),
        "out of reach, and not lost: 8 segments with 25.0 MiB: put back drives 2, 3, as they are, and start the server with them; `forebay lost` \
         names what can be named; wipe no drive"
    );
    for alarm in [Alarm::DriveLost, Alarm::ProtectionCritical] {
        let words = world.words(alarm);
        assert!(words.contains("out of reach already") && !words.contains("would put"), "{words}");
    }
    // What the start could not read was acknowledged: nothing is perhaps.
    world.seen.lanes[0].lost = SeenLosses { flushes_unavailable: 13, ..SeenLosses::default() };
    world.seen.lanes[1].lost =
        SeenLosses { out_of_reach: OutOfReach { drives: vec![3], ..OutOfReach::default() }, ..SeenLosses::default() };
    assert!(world.after(1).contains(&Alarm::DataLost));
    let words = world.words(Alarm::DataLost);
    assert!(words.contains("13 flushes that the start could not read: put back drive 3, as it is"), "{words}");
    assert!(!words.contains("perhaps") && !words.contains("unclean"), "{words}");
}

#[test]
fn drives_that_left_long_ago_are_missed_only_when_something_lies_on_them() {
    let mut world = World::new();
    world.seen.shards = 4;
    for drive in 0..2 {
        (world.seen.drives[drive].in_use, world.seen.drives[drive].left_earlier) = (false, true);
        world.seen.drives[drive].path = None;
    }
    // As at every start of such a store: its lanes have not found out what they hold.
    for lane in &mut world.seen.lanes {
        (lane.state, lane.failures_left) = ("recovering", None);
    }
    assert_eq!(world.after(1), []);
    for lane in &mut world.seen.lanes {
        (lane.state, lane.failures_left, lane.is_whole) = ("serving", Some(2), true);
    }
    assert_eq!(world.after(1), []);
    world.seen.lanes[0].is_whole = false;
    world.seen.drives[1].segments_alive = 3;
    assert_eq!(world.after(1), [Alarm::DriveLost]);
    let words = world.words(Alarm::DriveLost);
    assert!(words.starts_with("1 of 5 drives is not in use: drive 1 (not found); "), "{words}");
    // Nothing lies on them, and there are too few others.
    world.seen.drives[1].segments_alive = 0;
    world.seen.shards = 6;
    assert_eq!(world.after(1), [Alarm::DriveLost]);
    let words = world.words(Alarm::DriveLost);
    assert!(words.starts_with("4 drives are in use, and a segment at full width takes 6; "), "{words}");
}

#[test]
fn a_server_that_only_reads_is_not_asked_to_ship() {
    let mut world = World::new();
    (world.seen.read_only, world.seen.lanes[0].failures_left) = (true, Some(0));
    world.after(1);
    let words = world.words(Alarm::ProtectionCritical);
    assert!(words.contains("this server only reads") && !words.contains("ship"), "{words}");
    let raised = &world.monitor.findings().alarms;
    let critical = raised.iter().find(|raised| raised.code == "FB-102").expect("raised");
    assert!(critical.command.starts_with("dmesg"), "{}", critical.command);
}

#[test]
fn a_lane_that_cannot_write_or_does_not_answer_is_told() {
    let mut world = World::new();
    world.seen.failure = Some("3 of 6 drives are left".to_owned());
    assert_eq!(world.after(1), [Alarm::WritingStopped]);
    assert!(world.words(Alarm::WritingStopped).contains("3 of 6"));
    world.seen.failure = None;
    world.seen.lanes[1].state = "unavailable";
    world.seen.lanes[1].reason = Some("its drives are gone".to_owned());
    assert_eq!(world.after(1), [Alarm::WritingStopped]);
    assert!(world.words(Alarm::WritingStopped).contains("lane 1 can write no more: its drives are gone"));
    world.seen = well();
    assert_eq!(world.after(1), []);
    world.seen.lanes.pop();
    world.seen.silent_lanes = vec![1];
    assert_eq!(world.after(1), [], "it may have much to do");
    assert_eq!(world.after(5), [Alarm::WritingStopped]);
    assert!(world.words(Alarm::WritingStopped).starts_with("lane 1 does not answer"));
    world.seen.stopping = true;
    assert_eq!(world.after(5), [], "a stop is no fault");
}

#[test]
fn an_unclean_start_is_told_for_a_day() {
    let mut world = World::new();
    world.seen.started_clean = false;
    assert_eq!(world.after(1), [Alarm::UncleanStart]);
    world.seen.uptime = Duration::from_secs(DAY - 1);
    assert_eq!(world.after(1), [Alarm::UncleanStart]);
    world.seen.uptime = Duration::from_secs(DAY);
    assert_eq!(world.after(1), []);
}

#[test]
fn filling_begins_and_ends_at_different_levels() {
    let mut world = World::new();
    let mut with = |segments_free, time_left_s, free_bytes| {
        let lane = &mut world.seen.lanes[0];
        (lane.segments_free, lane.time_left_s, lane.free_bytes) = (segments_free, time_left_s, free_bytes);
        world.seen.lanes[1].free_bytes = free_bytes;
        world.after(1)
    };
    assert_eq!(with(10, None, 90_000), []);
    assert_eq!(with(9, None, 90_000), [Alarm::Filling]);
    assert_eq!(with(12, None, 90_000), [Alarm::Filling], "it must have more room to be over");
    assert_eq!(with(15, None, 90_000), []);
    assert_eq!(with(0, None, 90_000), [Alarm::Filling], "on the last segment");
    assert_eq!(with(90, None, 90_000), []);
    // By time.
    assert_eq!(with(90, Some(3000.0), 60_000), [], "a burst into a store with much room");
    assert_eq!(with(90, Some(3000.0), 40_000), [Alarm::Filling]);
    assert_eq!(with(90, Some(5000.0), 40_000), [Alarm::Filling]);
    assert_eq!(with(90, Some(7300.0), 40_000), []);
    assert_eq!(with(90, Some(5000.0), 40_000), []);
    assert_eq!(with(90, Some(f64::INFINITY), 40_000), []);
}

#[test]
fn filling_and_full_tell_who_is_slowed_in_the_fullest_lane() {
    let mut world = World::new();
    let lanes = &mut world.seen.lanes;
    (lanes[0].segments_free, lanes[0].pressure) = (9, Pressure::MonitorsSlowed);
    (lanes[1].segments_free, lanes[1].pressure, lanes[1].put_wait_ms) = (8, Pressure::MoversSlowed, 56);
    assert_eq!(world.after(1), [Alarm::Filling]);
    let words = "; writers are asked to wait 56 ms after each put, reads of monitors and movers are slowed; ";
    assert!(world.words(Alarm::Filling).contains(words), "{}", world.words(Alarm::Filling));
    (world.seen.lanes[1].segments_free, world.seen.lanes[1].puts_no_space) = (0, 1);
    assert_eq!(world.after(1), [Alarm::Full]);
    assert!(world.words(Alarm::Full).contains(words), "{}", world.words(Alarm::Full));
}

#[test]
fn full_is_told_while_puts_are_refused() {
    let mut world = World::new();
    world.seen.lanes[1].segments_free = 0;
    assert_eq!(world.after(1), [Alarm::Filling]);
    world.seen.lanes[1].puts_no_space = 7;
    assert_eq!(world.after(1), [Alarm::Full]);
    assert!(world.words(Alarm::Full).starts_with("lane 1 is full"));
    assert_eq!(world.after(HOUR), [Alarm::Full], "nobody tries any more");
    world.seen.lanes[1].segments_free = 90;
    assert_eq!(world.after(1), []);
    world.seen.lanes[1].puts_no_space = 8;
    assert_eq!(world.after(1), [Alarm::Full]);
    assert_eq!(world.after(9), [Alarm::Full], "full and not full in turns is full");
    assert_eq!(world.after(1), []);
    // What is open for reading alone is never full.
    world.seen.lanes.iter_mut().for_each(|lane| (lane.state, lane.segments_free) = ("read-only", 0));
    assert_eq!(world.after(1), []);
}

#[test]
fn the_index_is_near_its_end_and_then_full() {
    let mut world = World::new();
    let mut with = |index_bytes, refused| {
        (world.seen.lanes[1].index_bytes, world.seen.lanes[1].puts_index_full) = (index_bytes, refused);
        world.after(20)
    };
    assert_eq!(with(89, 0), []);
    assert_eq!(with(90, 0), [Alarm::IndexNearFull]);
    assert_eq!(with(85, 0), [Alarm::IndexNearFull]);
    assert_eq!(with(84, 0), []);
    assert_eq!(with(97, 3), [Alarm::IndexFull]);
    assert_eq!(with(97, 3), [Alarm::IndexFull]);
    assert_eq!(with(94, 3), [Alarm::IndexNearFull]);
    assert_eq!(with(50, 3), []);
}

#[test]
fn filters_that_say_nothing_are_told() {
    let mut world = World::new();
    world.seen.lanes[0].undecided = 10;
    assert_eq!(world.after(1), []);
    assert_eq!(world.after(59), []);
    // Every word counts: a decision, or an event that is lent.
    world.seen.lanes[1].leased_since = 1;
    assert_eq!(world.after(1), []);
    assert_eq!(world.after(59), []);
    assert_eq!(world.after(1), [Alarm::FilterSilent]);
    assert!(world.words(Alarm::FilterSilent).starts_with("10 events wait for a decision, and for 60 s no filter"));
    world.seen.lanes[0].ended_since = 1;
    assert_eq!(world.after(1), []);
    world.seen.lanes[0].undecided = 0;
    assert_eq!(world.after(HOUR), [], "nothing waits");
    world.seen.lanes[0].undecided = 1;
    assert_eq!(world.after(1), [], "it begins to wait now");
}

#[test]
fn who_cannot_be_served_is_not_blamed() {
    let mut world = World::new();
    world.seen.lanes[0].undecided = 10;
    assert_eq!(world.after(1), []);
    world.seen.lanes[1].state = "recovering";
    assert_eq!(world.after(HOUR), []);
    world.seen.lanes[1].state = "serving";
    assert_eq!(world.after(1), []);
    assert_eq!(world.after(60), [Alarm::FilterSilent]);
    world.seen.stopping = true;
    assert_eq!(world.after(1), []);
}

#[test]
fn a_recorder_that_is_stuck_is_told_though_another_works() {
    let mut world = World::new();
    for second in 0..1500 {
        for lane in &mut world.seen.lanes {
            let stream = |waiting, released| SeenStream { waiting, released };
            lane.streams = BTreeMap::from([
                ("calibration".to_owned(), stream(5, 0)),
                ("empty".to_owned(), stream(0, 0)),
                ("physics".to_owned(), stream(7, second / 300)),
            ]);
        }
        let raised = world.after(1);
        assert_eq!(raised, if second < 600 { vec![] } else { vec![Alarm::RecorderStuck] }, "{second}");
    }
    let words = world.words(Alarm::RecorderStuck);
    assert!(
        words.starts_with("10 accepted events of stream calibration wait") && !words.contains("physics"),
        "{words}"
    );
    world.seen.lanes[1].streams.get_mut("calibration").expect("a stream").released = 1;
    assert_eq!(world.after(1), []);
}

#[test]
fn the_age_of_what_waits_is_never_told_too_high() {
    let mut world = World::new();
    let ages = |world: &World| (world.monitor.findings().oldest_undecided, world.monitor.findings().oldest_accepted);
    world.after(1);
    assert_eq!(ages(&world), (None, None));
    // An event a second comes and is decided 100 s later; what is accepted waits for 30 s more.
    let (mut undecided, mut accepted) = (0, 0);
    for second in 1..1000_u64 {
        let decided = second.saturating_sub(100);
        let shipped = second.saturating_sub(130);
        let lane = &mut world.seen.lanes[0];
        (lane.undecided, lane.ended_since) = (second - decided, decided);
        (lane.accepted, lane.accepted_since) = (decided - shipped, decided);
        world.after(1);
        let (oldest_undecided, oldest_accepted) = ages(&world);
        undecided = oldest_undecided.expect("some wait").as_secs();
        accepted = oldest_accepted.map_or(0, |age| age.as_secs());
        assert!(undecided <= 100 && accepted <= 30, "{second}: {undecided}, {accepted}");
    }
    assert!(undecided >= 90 && accepted >= 25, "{undecided}, {accepted}");
    // What was here at the start is as old as that at least.
    let mut world = World::new();
    world.seen.lanes[0].undecided = 3;
    world.after(1);
    world.after(500);
    assert_eq!(ages(&world), (Some(Duration::from_secs(500)), None));
}

/// Each drive does so many writes a second; those of drive 3 take `slow_ms`, all others `ms`.
fn write(world: &mut World, slow_ms: u64, ms: u64) -> Vec<Alarm> {
    let mut raised = Vec::new();
    for _ in 0..2 * MINUTE {
        for drive in &mut world.seen.drives {
            let each = if drive.number == 3 { slow_ms } else { ms };
            drive.counts.writes += 10;
            drive.counts.write_ns += 10 * each * 1_000_000;
            drive.counts.bytes_written += 10 << 20;
        }
        raised = world.after(1);
    }
    raised
}

#[test]
fn a_drive_is_slow_beside_the_others_or_by_itself() {
    let mut world = World::new();
    assert_eq!(write(&mut world, 10, 1), [], "ten times as slow, and fast enough");
    assert_eq!(write(&mut world, 30, 12), [], "all are slow");
    assert_eq!(write(&mut world, 50, 12), [Alarm::DriveSlow]);
    assert!(world.words(Alarm::DriveSlow).starts_with("drive 3 (/d3): 50 ms a write, - a read"));
    assert!(world.monitor.findings().drives[&3].is_slow && !world.monitor.findings().drives[&2].is_slow);
    assert_eq!(write(&mut world, 30, 12), [Alarm::DriveSlow], "it must be much faster to be over");
    assert_eq!(write(&mut world, 20, 12), []);
    assert_eq!(write(&mut world, 300, 290), [Alarm::DriveSlow], "no drive may be so slow");
    // A drive that is gone is not slow.
    world.seen.drives.iter_mut().for_each(|drive| drive.in_use = false);
    assert_eq!(world.after(1), [Alarm::DriveLost]);
}

#[test]
fn wear_is_told_by_what_the_drive_was_made_for() {
    let mut world = World::new();
    let finding = |world: &World| world.monitor.findings().drives[&3].clone();
    for drive in &mut world.seen.drives {
        drive.rated_bytes = Some(600_000_000_000_000);
    }
    let written = 100_000_000_000_000;
    let smart =
        SmartReport { used_percent: Some(16), written_bytes: Some(written), power_on_hours: Some(7), is_well: None };
    world.seen.drives[3].smart = Some(smart);
    world.after(1);
    assert_eq!(
        (finding(&world).worn_out_in_s, finding(&world).written_bytes_per_s),
        (None, None),
        "one look tells no rate"
    );
    assert_eq!(write(&mut world, 1, 1), []);
    let rate = (10 << 20) as f64;
    let found = finding(&world);
    assert!((found.written_bytes_per_s.expect("a rate") / rate - 1.0).abs() < 0.02, "{found:?}");
    assert!((found.worn_out_in_s.expect("a time") / (500e12 / rate) - 1.0).abs() < 0.02, "{found:?}");
    assert!(found.is_lifetime_known && found.used_percent == Some(16));
    // The others count from this start.
    let other = world.monitor.findings().drives[&2].clone();
    assert!(!other.is_lifetime_known && other.lifetime_written_bytes == 2 * MINUTE * (10 << 20));
    // Without a rating, by the drive's own count.
    world.seen.drives[3].rated_bytes = None;
    world.after(1);
    assert!((finding(&world).worn_out_in_s.expect("a time") / (525e12 / rate) - 1.0).abs() < 0.05);
}

#[test]
fn a_drive_that_is_worn_is_told() {
    let mut world = World::new();
    let smart = |used_percent| Some(SmartReport { used_percent: Some(used_percent), ..SmartReport::default() });
    world.seen.drives[3].smart = smart(89);
    assert_eq!(world.after(1), []);
    world.seen.drives[3].smart = smart(90);
    assert_eq!(world.after(1), [Alarm::DriveWorn]);
    assert!(world.words(Alarm::DriveWorn).starts_with("drive 3 (/d3) has used 90 % of its life: have a replacement"));
    world.seen.drives[3].smart = None;
    assert_eq!(world.after(1), []);
    world.seen.drives[3].smart = Some(SmartReport { is_well: Some(false), ..SmartReport::default() });
    assert_eq!(world.after(1), [Alarm::DriveWorn]);
    assert!(world.words(Alarm::DriveWorn).starts_with("drive 3 (/d3) says of itself that it fails"));
    world.seen.drives[3].smart = None;
    assert_eq!(world.after(1), []);
    // 100 days at this rate, then 80.
    world.seen.drives[3].rated_bytes = Some(100 * DAY * (10 << 20));
    assert_eq!(write(&mut world, 1, 1), []);
    world.seen.drives[3].rated_bytes = Some(80 * DAY * (10 << 20));
    assert_eq!(world.after(1), [Alarm::DriveWorn]);
    assert!(world.words(Alarm::DriveWorn).contains("will have written what it was made for in"));
    world.seen.drives[3].rated_bytes = Some(100 * DAY * (10 << 20));
    assert_eq!(world.after(1), [Alarm::DriveWorn]);
    world.seen.drives[3].rated_bytes = Some(140 * DAY * (10 << 20));
    assert_eq!(world.after(1), []);
    world.seen.drives[3].rated_bytes = Some(1);
    assert_eq!(world.after(1), [Alarm::DriveWorn]);
    assert!(world.words(Alarm::DriveWorn).contains("has written what it was made for"));
}

#[test]
fn counters_that_go_back_harm_nothing() {
    let mut world = World::new();
    write(&mut world, 1, 1);
    for drive in &mut world.seen.drives {
        drive.counts = DriveCounts::default();
    }
    world.seen.lanes.iter_mut().for_each(|lane| lane.undecided = 3);
    assert_eq!(world.after(1), []);
    world.seen = Observation::default();
    world.after(1);
}
