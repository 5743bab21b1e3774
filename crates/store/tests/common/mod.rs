//! A store of small file drives with one lane, driven by hand.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_engine::{Admission, Fetch, Lane, LeasedEvent, Put, Reply, Token};
use forebay_store::{ControlHandle, InitOptions, LaneRunner, StoreConfig, StoreInfo, init, open};
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, StreamName, Verdict, crc32c};
use tempfile::TempDir;

/// Longer than anything takes: only a hang comes here.
const HANG: Duration = Duration::from_secs(120);

/// Bytes that belong to an id.
pub fn payload(id: FragmentId, bytes: usize) -> Vec<u8> {
    let mut state = id.event.0 << 20 ^ u64::from(id.source.0) << 8 ^ u64::from(id.run.0) ^ 0x9E37_79B9_7F4A_7C15;
    let mut payload = Vec::with_capacity(bytes + 8);
    while payload.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        payload.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    payload.truncate(bytes);
    payload
}

/// A directory in memory when there is room for some stores, else where temporary files go.
fn scratch() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&memory).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if room > 6 << 30 { TempDir::new_in(memory) } else { TempDir::new() }.expect("a directory")
}

/// Drives in a directory of their own.
pub struct TestStore {
    directory: TempDir,
    pub paths: Vec<PathBuf>,
}

impl TestStore {
    pub fn new(drives: usize, data: u8, parity: u8) -> Self {
        Self::with(drives, data, parity, |_| {})
    }

    pub fn with(drives: usize, data: u8, parity: u8, change: impl FnOnce(&mut InitOptions)) -> Self {
        let directory = scratch();
        let paths: Vec<PathBuf> = (0..drives).map(|n| directory.path().join(format!("drive{n}"))).collect();
        let mut options = InitOptions::new(data, parity);
        options.drive_bytes = Some(64 << 20);
        options.lanes = Some(1);
        change(&mut options);
        init(&paths, &options, &mut |_| {}).expect("a store can be made");
        TestStore { directory, paths }
    }

    pub fn open(&self) -> TestLane {
        self.open_with(|_| {})
    }

    pub fn open_with(&self, change: impl FnOnce(&mut StoreConfig)) -> TestLane {
        self.open_paths(&self.paths, change)
    }

    pub fn open_paths(&self, paths: &[PathBuf], change: impl FnOnce(&mut StoreConfig)) -> TestLane {
        // The machine may be busy with other tests: no drive is judged by its speed here.
        let mut config =
            StoreConfig { drive_timeout_ms: Some(30_000), fault_injection: true, ..StoreConfig::default() };
        config.cache_bytes = 16 << 20;
        change(&mut config);
        let opened = open(paths, &config).expect("the store opens");
        let seed = opened.runners.into_iter().next().expect("a store has a lane");
        let (control, info, warnings) = (opened.control, opened.info, opened.warnings);
        let mut lane = TestLane { runner: Some(seed.start()), control, info, warnings, next: 0 };
        lane.until("serving", |lane| lane.is_serving());
        lane
    }

    pub fn overwrite_with_noise(&self, drive: usize) {
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.paths[drive]).expect("a drive");
        let noise = payload(FragmentId::new(99, 99, 99), 1 << 20);
        let bytes = file.metadata().expect("a drive").len();
        for _ in 0..bytes >> 20 {
            file.write_all(&noise).expect("written");
        }
    }
}

/// An open lane; dropping it is a crash.
pub struct TestLane {
    runner: Option<LaneRunner>,
    control: ControlHandle,
    info: StoreInfo,
    warnings: Vec<String>,
    next: u64,
}

impl TestLane {
    pub fn control(&self) -> &ControlHandle {
        &self.control
    }

    pub fn info(&self) -> &StoreInfo {
        &self.info
    }

    /// What the start said.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub fn lane(&mut self) -> &mut Lane {
        self.runner().lane()
    }

    pub fn runner(&mut self) -> &mut LaneRunner {
        self.runner.as_mut().expect("open until dropped")
    }

    pub fn now_ms(&mut self) -> u64 {
        self.runner().now().0 / 1_000_000
    }

    fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next)
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Lane) -> bool) {
        let start = Instant::now();
        while !done(self.lane()) {
            self.runner().wait(Duration::from_millis(5));
            assert!(start.elapsed() < HANG, "{what} does not come: {:?}", self.lane().status());
        }
    }

    pub fn run_for_ms(&mut self, ms: u64) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(ms) {
            self.runner().wait(Duration::from_millis(2));
        }
    }

    fn reply(&mut self) -> Reply {
        let mut reply = None;
        self.until("a reply", |lane| {
            reply = lane.next_reply();
            reply.is_some()
        });
        reply.expect("waited for")
    }

    pub fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> PutOutcome {
        self.put_with_crc(id, expected, payload, crc32c(payload))
    }

    pub fn put_with_crc(&mut self, id: FragmentId, expected: u16, payload: &[u8], crc: u32) -> PutOutcome {
        let token = self.token();
        let put = Put { id, expected, crc };
        let mut admission = Admission::Busy;
        self.until("a put", |lane| {
            admission = lane.put(token, &put, payload);
            admission != Admission::Busy
        });
        match admission {
            Admission::Done(outcome) => outcome,
            _ => match self.reply() {
                Reply::Stored { token: of, records: 1 } if of == token => PutOutcome::Durable,
                Reply::Refused { token: of, records: 1, outcome } if of == token => outcome,
                other => panic!("{other:?} is no answer to a put"),
            },
        }
    }

    fn decided(&mut self, mut ask: impl FnMut(&mut Lane, Token) -> Admission<DecideOutcome>) -> DecideOutcome {
        let token = self.token();
        let mut admission = Admission::Busy;
        self.until("a decision", |lane| {
            admission = ask(lane, token);
            admission != Admission::Busy
        });
        match admission {
            Admission::Done(outcome) => outcome,
            _ => match self.reply() {
                Reply::Decided { token: of, outcome } if of == token => outcome,
                other => panic!("{other:?} is no answer to a decision"),
            },
        }
    }

    pub fn decide(&mut self, key: EventKey, verdict: &Verdict) -> DecideOutcome {
        self.decided(|lane, token| lane.decide(token, key, verdict, false))
    }

    pub fn delete(&mut self, key: EventKey) -> DecideOutcome {
        self.decided(|lane, token| lane.delete(token, key))
    }

    pub fn release(&mut self, key: EventKey, stream: &StreamName) -> DecideOutcome {
        self.decided(|lane, token| lane.release(token, key, stream))
    }

    pub fn get(&mut self, id: FragmentId) -> (ReadOutcome, Vec<u8>) {
        let token = self.token();
        let mut payload = Vec::new();
        match self.lane().get(token, id, &mut payload) {
            Fetch::Done(outcome, _) => (outcome, payload),
            Fetch::Pending { .. } => match self.reply() {
                Reply::Read { token: of, outcome, payload, .. } if of == token => (outcome, payload),
                other => panic!("{other:?} is no answer to a read"),
            },
        }
    }

    pub fn lease(&mut self, max_events: usize, duration_ms: u64) -> Vec<LeasedEvent> {
        self.runner().turn();
        let mut events = Vec::new();
        self.lane().lease(max_events, Duration::from_millis(duration_ms), None, &mut events);
        events
    }

    pub fn stop(mut self) {
        self.lane().stop();
        self.until("the stop", |lane| lane.is_stopped());
        let control = self.control.clone();
        self.runner().turn();
        assert!(control.wait_until(HANG, |status| status.clean), "the stop is marked: {:?}", control.status());
    }
}

impl Drop for TestLane {
    fn drop(&mut self) {
        drop(self.runner.take());
        // The drives are let go when the last thread that has them is gone.
        assert!(self.control.wait_until(HANG, |status| status.ended), "the control thread ends");
    }
}
