//! A pretended store in memory that honours puts, leases, decisions and releases.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forebay_client::{
    AcceptedEvent, AcceptedPage, Decision, EventState, FetchedEvent, FetchedFragment, Lease, LeasedEvent, PutResult,
    RunInfo,
};
use forebay_emulators::{FilterStore, HashLedger, ReadoutStore, StoreError};
use forebay_mover::Sums;
use forebay_mover::custody::SourceAnswer;
use forebay_mover::endpoint::{Content, EventSource, Moved};
use forebay_mover::events::{Assembled, EventContent, Events, Examined, Making, OfRun, assemble};
use forebay_types::{
    DecideOutcome, EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, SourceId, StreamName, Verdict,
};

/// Events that are leased at once at most, so that leases are many.
const LEASE_MAX: usize = 16;

pub struct Event {
    pub fragments: BTreeMap<SourceId, Vec<u8>>,
    pub expected: u16,
    pub arrived: Instant,
    pub lease_until: Option<Instant>,
    pub attempts: u16,
    /// Streams that have not released it, and whether it is incomplete.
    pub accepted: Option<(BTreeSet<StreamName>, bool)>,
    pub verdict: Option<Verdict>,
    pub finished: bool,
}

#[derive(Default)]
pub struct State {
    pub events: BTreeMap<EventKey, Event>,
    pub streams: BTreeSet<StreamName>,
    pub known_runs: Vec<RunId>,
    /// What becomes of certain fragments.
    pub never_arrives: BTreeSet<SourceId>,
    pub reads: HashMap<SourceId, ReadOutcome>,
    pub damages: BTreeSet<FragmentId>,
    pub bytes_read: u64,
    pub puts_in_a_row_refused: usize,
    /// Another filter and the recorder are quicker than every decision.
    pub ships_at_decision: bool,
    /// Decisions that find no space.
    pub decisions_refused: usize,
    /// Nothing is taken.
    pub is_full: bool,
    /// Whatever is put must stand in this file before.
    pub ledger: Option<PathBuf>,
    /// Calls that get no answer.
    pub silent: usize,
}

/// A handle; handles of the same store share its state.
#[derive(Clone)]
pub struct Store {
    pub shared: Arc<Mutex<State>>,
    pub results: Vec<PutResult>,
    /// Fragments that the store had no room for.
    pub waiting: Vec<(FragmentId, u16, Vec<u8>, Instant)>,
    pub deadline: Option<Duration>,
    pub incomplete_after: Duration,
    pub fragment_bytes_max: u64,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            shared: Arc::default(),
            results: Vec::new(),
            waiting: Vec::new(),
            deadline: None,
            incomplete_after: Duration::from_secs(3600),
            fragment_bytes_max: 1 << 20,
        }
    }
}

impl Store {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().expect("no test panics with it")
    }

    fn answers(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.silent > 0 {
            state.silent -= 1;
            return Err(StoreError { message: "no answer".into(), retryable: true });
        }
        Ok(())
    }

    fn read(state: &mut State, id: FragmentId, payload: &[u8]) -> FetchedFragment {
        let outcome = state.reads.get(&id.source).copied().unwrap_or(ReadOutcome::Found);
        let mut payload = if outcome == ReadOutcome::Found { payload.to_vec() } else { Vec::new() };
        if state.damages.contains(&id)
            && let Some(last) = payload.last_mut()
        {
            *last ^= 0x10;
        }
        state.bytes_read += payload.len() as u64;
        FetchedFragment { source: id.source, outcome, payload }
    }

    fn fetch_one(&self, key: EventKey, sources: Option<&[SourceId]>) -> FetchedEvent {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(event) = state.events.remove(&key) else {
            return fetched(key, ReadOutcome::NotFound, EventState::Unknown);
        };
        let mut found = fetched(key, ReadOutcome::Found, EventState::Leased);
        if event.finished {
            found = fetched(key, ReadOutcome::Deleted, EventState::Finished);
        } else {
            if event.accepted.is_some() {
                found.state = EventState::Accepted;
            }
            (found.expected, found.stored) = (event.expected, event.fragments.len() as u32);
            let wanted: Vec<SourceId> =
                sources.map_or_else(|| event.fragments.keys().copied().collect(), <[SourceId]>::to_vec);
            for source in wanted {
                found.fragments.push(match event.fragments.get(&source) {
                    Some(payload) => Store::read(state, key.fragment(source), payload),
                    None => FetchedFragment { source, outcome: ReadOutcome::NotFound, payload: Vec::new() },
                });
            }
        }
        state.events.insert(key, event);
        found
    }
}

fn fetched(key: EventKey, outcome: ReadOutcome, state: EventState) -> FetchedEvent {
    FetchedEvent { key, outcome, state, expected: 0, stored: 0, fragments: Vec::new() }
}

impl Store {
    fn put_since(&mut self, id: FragmentId, expected: u16, payload: &[u8], since: Instant) {
        let mut state = self.state();
        if state.is_full {
            drop(state);
            self.waiting.push((id, expected, payload.to_vec(), since));
            return;
        }
        if let Some(path) = &state.ledger {
            let ledger = HashLedger::load(path).expect("a ledger");
            assert!(ledger.get(id.key()).is_some(), "event {} is put before its hash is kept", id.key());
        }
        let never_arrives = state.never_arrives.contains(&id.source);
        let event = state.events.entry(id.key()).or_insert_with(|| Event {
            fragments: BTreeMap::new(),
            expected,
            arrived: Instant::now(),
            lease_until: None,
            attempts: 0,
            accepted: None,
            verdict: None,
            finished: false,
        });
        let outcome = if event.verdict.is_some() {
            PutOutcome::Late
        } else if never_arrives {
            PutOutcome::Durable
        } else {
            match event.fragments.get(&id.source) {
                Some(there) if there != payload => PutOutcome::Conflict,
                _ => {
                    event.fragments.insert(id.source, payload.to_vec());
                    PutOutcome::Durable
                }
            }
        };
        drop(state);
        self.results.push(PutResult { id, outcome, answered: true, latency: Duration::from_micros(5) });
    }
}

impl ReadoutStore for Store {
    fn fragment_bytes_max(&self) -> u64 {
        self.fragment_bytes_max
    }

    fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError> {
        let info = |run: &RunId| RunInfo {
            run: *run,
            events: 1,
            undecided: 0,
            finished: 0,
            first_event: EventId(0),
            last_event: EventId(0),
        };
        Ok(self.state().known_runs.iter().map(info).collect())
    }

    fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.puts_in_a_row_refused > 0 {
            state.puts_in_a_row_refused -= 1;
            return Err(StoreError { message: "no answer".into(), retryable: true });
        }
        drop(state);
        self.put_since(id, expected, payload, Instant::now());
        Ok(())
    }

    fn has_room(&mut self, _event: EventKey) -> bool {
        self.waiting.is_empty()
    }

    fn wait_put_results(&mut self, longest: Duration, into: &mut Vec<PutResult>) -> Result<(), StoreError> {
        if self.results.is_empty() && self.waiting.is_empty() {
            return Ok(());
        }
        // Fragments that wait for room are tried again, until their deadline.
        for (id, expected, payload, since) in std::mem::take(&mut self.waiting) {
            if self.state().is_full && self.deadline.is_some_and(|deadline| since.elapsed() >= deadline) {
                let outcome = PutOutcome::NoSpace;
                self.results.push(PutResult { id, outcome, answered: true, latency: since.elapsed() });
            } else {
                self.put_since(id, expected, &payload, since);
            }
        }
        if self.results.is_empty() {
            std::thread::sleep(longest);
        }
        into.append(&mut self.results);
        Ok(())
    }

    fn pending_puts(&self) -> usize {
        self.waiting.len() + self.results.len()
    }

    fn puts_wait_for(&self) -> Option<PutOutcome> {
        (!self.waiting.is_empty()).then_some(PutOutcome::NoSpace)
    }
}

impl FilterStore for Store {
    fn lease(
        &mut self,
        max_events: u32,
        duration: Duration,
        _filter: u64,
        run: Option<RunId>,
    ) -> Result<Lease, StoreError> {
        self.answers()?;
        let (now, incomplete_after) = (Instant::now(), self.incomplete_after);
        let mut state = self.state();
        let mut lease = Lease { events: Vec::new(), undecided: 0, retry_after: Duration::from_millis(2) };
        for (key, event) in &mut state.events {
            if event.verdict.is_some() || run.is_some_and(|run| run != key.run) {
                continue;
            }
            lease.undecided += 1;
            let complete = event.fragments.len() >= usize::from(event.expected);
            let waited = now.duration_since(event.arrived) >= incomplete_after;
            let free = event.lease_until.is_none_or(|until| until <= now);
            if free && (complete || waited) && lease.events.len() < LEASE_MAX.min(max_events as usize) {
                event.lease_until = Some(now + duration);
                event.attempts += 1;
                lease.events.push(LeasedEvent {
                    key: *key,
                    fragments: event.fragments.len() as u32,
                    expected: event.expected,
                    attempt: event.attempts,
                    bytes: event.fragments.values().map(|payload| payload.len() as u64).sum(),
                    incomplete: !complete,
                });
            }
        }
        Ok(lease)
    }

    fn get_events(
        &mut self,
        events: &[EventKey],
        sources: Option<&[SourceId]>,
    ) -> Result<Vec<FetchedEvent>, StoreError> {
        self.answers()?;
        Ok(events.iter().map(|key| self.fetch_one(*key, sources)).collect())
    }

    fn decide(&mut self, decisions: &[Decision]) -> Result<Vec<DecideOutcome>, StoreError> {
        self.answers()?;
        let mut guard = self.state();
        let state = &mut *guard;
        let mut decide = |decision: &Decision| {
            let Some(event) = state.events.get_mut(&decision.key) else { return DecideOutcome::NotFound };
            if state.decisions_refused > 0 {
                state.decisions_refused -= 1;
                return DecideOutcome::NoSpace;
            }
            if state.ships_at_decision && event.verdict.is_none() {
                event.verdict = Some(decision.verdict.clone());
                event.finished = true;
                return DecideOutcome::Conflict;
            }
            match &event.verdict {
                Some(verdict) if *verdict == decision.verdict => return DecideOutcome::AlreadyDone,
                Some(_) => return DecideOutcome::Conflict,
                None => {}
            }
            event.verdict = Some(decision.verdict.clone());
            match &decision.verdict {
                Verdict::Reject => {
                    event.finished = true;
                    event.fragments.clear();
                }
                Verdict::Accept(streams) => {
                    state.streams.extend(streams.iter().cloned());
                    event.accepted = Some((streams.iter().cloned().collect(), decision.incomplete));
                }
            }
            DecideOutcome::Done
        };
        Ok(decisions.iter().map(&mut decide).collect())
    }
}

/// A stream of the store, as a mover sees it.
pub struct Stream {
    pub store: Store,
    pub stream: StreamName,
    pub fragments_lost: AtomicU64,
}

impl Stream {
    fn fetch(&self, events: &[EventKey]) -> Vec<FetchedEvent> {
        events.iter().map(|key| self.store.fetch_one(*key, None)).collect()
    }
}

impl EventSource for Stream {
    fn accepted(&self, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, String> {
        let state = self.store.state();
        let undecided_floor = state.events.iter().find(|(_, event)| event.verdict.is_none()).map(|(key, _)| *key);
        let mut behind = state.events.iter().filter_map(|(key, event)| {
            let (streams, incomplete) = event.accepted.as_ref()?;
            (after.is_none_or(|after| *key > after) && streams.contains(&self.stream)).then(|| AcceptedEvent {
                key: *key,
                fragments: event.fragments.len() as u32,
                bytes: event.fragments.values().map(|payload| payload.len() as u64).sum(),
                incomplete: *incomplete,
            })
        });
        let events = behind.by_ref().take(max as usize).collect();
        Ok(AcceptedPage { events, more: behind.next().is_some(), undecided_floor })
    }

    fn of_run(&self, _run: RunId) -> Result<OfRun, String> {
        Ok(OfRun::default())
    }

    fn examine(&self, events: &[EventKey], making: &Making, _moved: &dyn Moved) -> Result<Vec<Examined>, String> {
        let examine = |event: &FetchedEvent| match assemble(event, making) {
            Assembled::Event(event) => {
                self.fragments_lost.fetch_add(event.fragments_lost, Relaxed);
                let (kind, numbered, incomplete) = (event.kind, event.numbered, event.incomplete);
                let (taken_unix_us, sums) = (event.taken_unix_us, Sums::of(&event.bytes));
                Examined::Event { kind, numbered, incomplete, taken_unix_us, sums }
            }
            Assembled::Gone => Examined::Gone,
            Assembled::Unavailable => Examined::Unavailable,
        };
        Ok(self.fetch(events).iter().map(examine).collect())
    }

    fn open<'a>(&'a self, events: &'a Events) -> Box<dyn Content + 'a> {
        Box::new(EventContent::new(events, |keys| Ok(self.fetch(keys))))
    }

    fn fragments_lost(&self) -> u64 {
        self.fragments_lost.load(Relaxed)
    }

    fn release(&self, events: &Events, _moved: &dyn Moved) -> SourceAnswer {
        let mut state = self.store.state();
        for key in events.keys() {
            let event = state.events.get_mut(&key).expect("it is there until it is released");
            let (streams, _) = event.accepted.as_mut().expect("it was accepted");
            assert!(streams.remove(&self.stream), "{key} is released once");
            if streams.is_empty() {
                event.finished = true;
                event.fragments.clear();
            }
        }
        SourceAnswer::Released
    }
}

/// The recorded files: `FOREBAY_TESTDATA`, or `../shared/data` beside the workspace when it exists. Without them the test is skipped,
/// and says so, in CI too: no package brings them, and generated files have the same form. A directory that is named must be there.
pub fn test_data() -> Option<PathBuf> {
    let named = std::env::var_os("FOREBAY_TESTDATA").map(PathBuf::from);
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let directory = named.clone().unwrap_or(beside);
    if directory.is_dir() {
        return Some(directory);
    }
    assert!(named.is_none(), "FOREBAY_TESTDATA is {} and no directory", directory.display());
    println!("skipped: needs recorded files (set FOREBAY_TESTDATA)");
    None
}
