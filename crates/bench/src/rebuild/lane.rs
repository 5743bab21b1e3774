//! A lane that loses drives, without a network.

use std::path::Path;
use std::time::Duration;

use forebay_store::{LaneRunner, StoreConfig};
use forebay_types::DriveNumber;

use super::{FRAGMENT_BYTES, Rebuilt, Store};
use crate::engine::{Bench, OpenedStoreRest, crash, delete_events, put_all};

pub(super) struct LaneStore {
    bench: Bench,
    runner: LaneRunner,
    rest: OpenedStoreRest,
    payload: Vec<u8>,
}

impl LaneStore {
    pub(super) fn new(directory: &Path, drive_bytes: u64) -> Self {
        let bench = Bench::new(directory, drive_bytes);
        let config = StoreConfig { drive_timeout_ms: Some(60_000), scrub_period_s: 0, ..StoreConfig::default() };
        let (runner, rest) = bench.open(&config);
        let payload = (0..FRAGMENT_BYTES).map(|i| (i * 131 + i / 251) as u8).collect();
        LaneStore { bench, runner, rest, payload }
    }

    pub(super) fn crash(self) {
        crash(self.runner, self.rest);
    }
}

impl Store for LaneStore {
    fn put(&mut self, run: u32, count: u64) {
        put_all(&mut self.runner, run, count, &self.payload, |_| None);
    }

    fn delete(&mut self, run: u32, count: u64) {
        delete_events(&mut self.runner, run, count);
    }

    fn replace(&mut self, drive: u16) {
        let (control, path) = (&self.rest.control, self.bench.further(&format!("instead-of-{drive}")));
        control.fail_drive(DriveNumber(drive)).expect("it may go");
        control.replace_drive(DriveNumber(drive), &path, false, Vec::new()).expect("another may come");
        // The lane rests meanwhile: it hears of both only then.
        let over = |status: &forebay_store::ControlStatus| {
            status.replacement.as_ref().is_some_and(|replacement| matches!(replacement.state, "done" | "failed"))
        };
        assert!(control.wait_until(Duration::from_secs(600), over), "a drive is made");
        let replacement = control.status().replacement;
        assert!(replacement.as_ref().is_some_and(|replacement| replacement.state == "done"), "{replacement:?}");
        while self.rebuilt().is_whole {
            self.runner.wait(Duration::from_millis(1));
        }
    }

    fn rebuilt(&mut self) -> Rebuilt {
        let rebuild = self.runner.lane().status().rebuild;
        Rebuilt { bytes: rebuild.bytes_read + rebuild.bytes_written, is_whole: rebuild.is_whole }
    }

    fn wait(&mut self) {
        let wait = self.runner.next_wakeup().unwrap_or(Duration::from_millis(1)).min(Duration::from_millis(1));
        self.runner.wait(wait);
    }
}
