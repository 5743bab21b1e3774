//! How a run ends: nothing goes wrong any more, and everything must come right by itself.

use std::time::Duration;

use super::{Totals, World};
use crate::server::Process;

impl World {
    pub(super) fn end(mut self) -> Totals {
        self.model.calm = true;
        self.wait_for_space();
        self.model.assert_all_is_over();
        let status = self.process.as_ref().expect("it serves").status();
        for lane in &status {
            let left = (lane.events, lane.fragments, lane.flushes_lost, lane.segments_unreadable);
            assert_eq!(left, (0, 0, 0, 0), "something is left: {lane:?}");
        }
        let process = self.process.as_ref().expect("it serves");
        for drive in process.members() {
            assert!(!self.drives.is_dead(drive), "drive {drive} is dead, and a member still");
        }
        let mut faults = self.counts;
        faults.add(&self.drives.counts);
        faults.add(&self.network.counts);
        Totals {
            answers: self.model.answers,
            faults,
            media_operations: self.drives.operations,
            starts: self.processes,
            seconds: self.now.0 / 1_000_000_000,
            trace: self.trace.hash(),
        }
    }

    /// All space comes back, if need be after a stop in order.
    fn wait_for_space(&mut self) {
        let is_back = |process: &Process| {
            let status = process.status();
            !status.is_empty()
                && status.iter().all(|lane| lane.slots_free == lane.slots_total && lane.state == "serving")
        };
        for attempt in 0..3 {
            let until = self.now + Duration::from_secs(20);
            while self.now < until {
                if self.process.as_ref().is_some_and(is_back) {
                    return;
                }
                self.step();
            }
            if attempt < 2
                && let Some(process) = &mut self.process
            {
                process.stop();
            }
        }
        panic!("space does not come back: {:?}", self.process.as_ref().map(Process::status));
    }
}
