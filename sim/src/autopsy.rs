//! What would be there if drives were gone now: asked at every crash, of the drives as the crash left them.
//!
//! A run goes on in one of the ways in which it may; here it is looked at what the others would have found. Lanes are opened for reading
//! alone, without some of the drives, and everything that was promised must be there.

use std::collections::BTreeSet;

use forebay_engine::{Fetch, FetchFile, Lane, LaneConfig, OpenRequest, Reply, Token, plan_open};
use forebay_types::placement::lane_of;
use forebay_types::{DriveNumber, EventKey, FileNumber, FragmentId, ReadOutcome, StreamName, Time};

use crate::census::Known;
use crate::drives::Drives;
use crate::files::PromisedFile;
use crate::opening::{found_drives, lane_config};
use crate::scenario::Scenario;
use crate::truth::Truth;

/// Turns after which recovery goes nowhere.
const TURNS_MAX: usize = 1_000_000;

/// A lane opened for reading alone.
struct Opened<'a> {
    lane: Lane,
    drives: &'a Drives,
}

impl Opened<'_> {
    fn turn(&mut self) {
        self.lane.pump(Time(0));
        while let Some((id, operation)) = self.lane.next_operation() {
            let completion = self.drives.read_now(id, operation);
            self.lane.complete(Time(0), completion);
        }
        while self.lane.next_event().is_some() {}
    }

    fn recover(&mut self, gone: &BTreeSet<DriveNumber>) {
        let mut turns = 0;
        while self.lane.status().state == "recovering" {
            self.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "recovery without {gone:?} does not end");
        }
    }

    fn read(&mut self, file: FileNumber, bytes: usize) -> (ReadOutcome, Vec<u8>) {
        let mut found = Vec::new();
        match self.lane.read_file(Token(1), file, 0, bytes as u32, &mut found) {
            FetchFile::Done(outcome, _) => (outcome, found),
            FetchFile::Pending { .. } => self.hear(|reply| match reply {
                Reply::ReadFile { outcome, payload, .. } => Some((outcome, payload)),
                _ => None,
            }),
        }
    }

    fn get(&mut self, id: FragmentId) -> (ReadOutcome, Vec<u8>) {
        let mut bytes = Vec::new();
        match self.lane.get(Token(1), id, &mut bytes) {
            Fetch::Done(outcome, _) => (outcome, bytes),
            Fetch::Pending { .. } => self.hear(|reply| match reply {
                Reply::Read { outcome, payload, .. } => Some((outcome, payload)),
                _ => None,
            }),
        }
    }

    /// The reply that is waited for.
    fn hear<T>(&mut self, is_it: impl Fn(Reply) -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            self.turn();
            if let Some(heard) = self.lane.next_reply().and_then(&is_it) {
                return heard;
            }
        }
        panic!("a read does not end")
    }
}

/// What must be found.
pub(crate) struct Promised {
    pub(crate) fragments: Vec<(FragmentId, Vec<u8>)>,
    pub(crate) over: Vec<EventKey>,
    pub(crate) accepted: Vec<(EventKey, StreamName)>,
    pub(crate) files: Vec<PromisedFile>,
    /// And nothing at all is out of reach.
    pub(crate) everything: bool,
}

/// Opens the store without the drives of `gone` and looks whether what was promised is there.
pub(crate) fn look(drives: &mut Drives, scenario: &Scenario, gone: &BTreeSet<DriveNumber>, promised: &Promised) {
    let found = found_drives(drives, gone);
    if found.is_empty() {
        return;
    }
    let plan = plan_open(&found, OpenRequest { read_only: true });
    let plan = plan.unwrap_or_else(|error| panic!("without {gone:?} it cannot be read: {error}"));
    for lane in 0..scenario.lanes {
        let config =
            LaneConfig { read_only: true, ..lane_config(scenario, &plan.superblock, lane, plan.drives.clone(), 0) };
        look_at_lane(Opened { lane: Lane::new(config, Time(0)), drives }, lane, scenario.lanes, gone, promised);
    }
}

/// Opens the store for reading after the worst and compares what it gives with what the drives hold.
pub(crate) fn look_beyond(
    drives: &mut Drives,
    scenario: &Scenario,
    gone: &BTreeSet<DriveNumber>,
    known: &Known,
    truth: &Truth,
) {
    let found = found_drives(drives, gone);
    let plan = plan_open(&found, OpenRequest { read_only: true }).expect("what is there can be read");
    for lane in 0..scenario.lanes {
        let config =
            LaneConfig { read_only: true, ..lane_config(scenario, &plan.superblock, lane, plan.drives.clone(), 0) };
        let mut opened = Opened { lane: Lane::new(config, Time(0)), drives };
        opened.recover(gone);
        let status = opened.lane.status();
        if status.state != "read-only" {
            assert!(truth.lanes[usize::from(lane)].is_gone, "lane {lane} has a checkpoint: {:?}", status.reason);
            continue;
        }
        let ids = known.fragments.keys().filter(|id| lane_of(id.key(), scenario.lanes) == lane);
        for id in ids {
            let (outcome, bytes) = opened.get(*id);
            known.check(*id, outcome, &bytes, truth, "opened for reading");
        }
        for key in known.over.iter().filter(|key| lane_of(**key, scenario.lanes) == lane) {
            let over = opened.lane.is_finished(*key) || !known.stays_over(*key, truth);
            assert!(over, "opened for reading: {key} is over");
        }
    }
}

fn look_at_lane(mut opened: Opened<'_>, lane: u16, lanes: u16, gone: &BTreeSet<DriveNumber>, promised: &Promised) {
    opened.recover(gone);
    let status = opened.lane.status();
    assert_eq!(status.state, "read-only", "without {gone:?}: {:?}", status.reason);
    assert_eq!(status.flushes_lost, 0, "lost without {gone:?}: {status:?}");
    let unreadable = status.segments_unreadable;
    assert!(unreadable == 0 || !promised.everything, "{unreadable} unreadable without {gone:?}: {status:?}");
    for (id, bytes) in promised.fragments.iter().filter(|(id, _)| lane_of(id.key(), lanes) == lane) {
        let (outcome, found) = opened.get(*id);
        assert_eq!(outcome, ReadOutcome::Found, "{id} was acknowledged; without {gone:?} it is {outcome:?}");
        assert!(found == *bytes, "{id}: without {gone:?} it has other bytes");
    }
    for file in promised.files.iter().filter(|file| lane_of(file.number.key(), lanes) == lane) {
        match opened.read(file.number, file.bytes_max()) {
            (ReadOutcome::Found, found) => file.check(&found),
            (ReadOutcome::NotFound, _) if !file.is_certain() => {}
            (outcome, _) => panic!("file {} has a name; without {gone:?} it is {outcome:?}", file.number),
        }
    }
    for (key, stream) in promised.accepted.iter().filter(|(key, _)| lane_of(*key, lanes) == lane) {
        let listed = opened.lane.accepted(stream, None, usize::MAX).events.iter().any(|event| event.key == *key);
        assert!(listed, "{key} is accepted into {stream}; without {gone:?} it is not");
    }
    for key in promised.over.iter().filter(|key| lane_of(**key, lanes) == lane) {
        assert!(opened.lane.is_finished(*key), "{key} is over; without {gone:?} it is not");
    }
}
