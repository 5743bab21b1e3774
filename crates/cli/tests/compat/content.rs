//! What is in a store: what a later program must find there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_client::{Client, Decision, EventState};
use forebay_format::FORMAT_VERSION_WITH_FILES;
use forebay_types::{DecideOutcome, EventKey, FragmentId, ReadOutcome, SourceId, StreamName, Verdict, crc32c};
use serde::{Deserialize, Serialize};

use crate::common::{Server, noise};
use crate::files::StoredFiles;

/// More than all events of an image.
const EVENTS_MAX: u32 = 1000;

/// What is in a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// The format of the store.
    pub format_version: u16,
    /// The program that wrote it.
    pub program: String,
    /// Its drives, in order: the names of their files, without `.gz`.
    pub drives: Vec<String>,
    /// Whether it was stopped in order.
    pub clean: bool,
    /// What the doctor says of it.
    pub verdict: String,
    pub events: Vec<Event>,
    /// Since version 2.
    #[serde(default, skip_serializing_if = "StoredFiles::is_empty")]
    pub files: StoredFiles,
}

/// An event and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub run: u32,
    pub event: u64,
    /// How many fragments it should have; 0 when nobody said.
    pub expected: u16,
    pub state: State,
    /// Accepted without all of its fragments.
    pub incomplete: bool,
    /// Streams that accepted it and have not released it.
    pub streams: BTreeSet<String>,
    pub fragments: Vec<Fragment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Undecided,
    Accepted,
    /// Rejected, deleted, or released by all of its streams.
    Over,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragment {
    pub source: u32,
    pub bytes: usize,
    pub crc32c: u32,
}

impl Event {
    fn key(&self) -> EventKey {
        EventKey::new(self.run, self.event)
    }

    fn id(&self, fragment: &Fragment) -> FragmentId {
        self.key().fragment(SourceId(fragment.source))
    }
}

/// The bytes of a fragment. Images that are kept hold them: they never change.
fn payload(id: FragmentId, bytes: usize) -> Vec<u8> {
    noise(u64::from(id.run.0) << 40 | id.event.0 << 8 | u64::from(id.source.0), bytes)
}

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name of a stream")
}

impl Content {
    /// Of a new store on these drives.
    pub fn new(drives: usize) -> Content {
        Content {
            format_version: forebay_format::FORMAT_VERSION,
            program: forebay_format::ProgramVersion::OWN.to_string(),
            drives: (0..drives).map(|number| format!("drive{number}")).collect(),
            clean: false,
            verdict: String::new(),
            events: Vec::new(),
            files: StoredFiles::default(),
        }
    }

    /// Whether its format has files.
    pub fn has_files(&self) -> bool {
        self.format_version >= FORMAT_VERSION_WITH_FILES
    }

    /// Fragments that can be read.
    pub fn fragments(&self) -> usize {
        self.events.iter().filter(|event| event.state != State::Over).map(|event| event.fragments.len()).sum()
    }

    fn event(&mut self, key: EventKey) -> &mut Event {
        self.events.iter_mut().find(|event| event.key() == key).expect("it was put")
    }

    /// Puts an event with fragments of these sizes, from source 0 on. It may be decided after [`acknowledged`].
    pub fn put(&mut self, client: &mut Client, key: EventKey, expected: u16, sizes: &[usize]) {
        let mut fragments = Vec::new();
        for (source, &bytes) in sizes.iter().enumerate() {
            let id = key.fragment(SourceId(source as u32));
            let payload = payload(id, bytes);
            client.put(id, expected, &payload).expect("taken");
            fragments.push(Fragment { source: id.source.0, bytes, crc32c: crc32c(&payload) });
        }
        let (run, event) = (key.run.0, key.event.0);
        let streams = BTreeSet::new();
        let state = State::Undecided;
        self.events.push(Event { run, event, expected, state, incomplete: false, streams, fragments });
    }

    /// Rejects an event.
    pub fn reject(&mut self, client: &mut Client, key: EventKey) {
        self.decide(client, key, Verdict::Reject);
        self.event(key).state = State::Over;
    }

    /// Accepts an event into streams.
    pub fn accept(&mut self, client: &mut Client, key: EventKey, streams: &[&str]) {
        self.decide(client, key, Verdict::Accept(streams.iter().map(|name| stream(name)).collect()));
        let event = self.event(key);
        event.state = State::Accepted;
        event.incomplete = event.fragments.len() < usize::from(event.expected);
        event.streams = streams.iter().map(|name| (*name).to_owned()).collect();
    }

    fn decide(&mut self, client: &mut Client, key: EventKey, verdict: Verdict) {
        let event = self.event(key);
        let incomplete = event.fragments.len() < usize::from(event.expected);
        let outcomes = client.decide(&[Decision { key, verdict, incomplete }]).expect("answered");
        assert_eq!(outcomes, [DecideOutcome::Done], "{key}");
    }

    /// A stream releases an event.
    pub fn release(&mut self, client: &mut Client, key: EventKey, name: &str) {
        assert_eq!(client.release(&stream(name), &[key]).expect("answered"), [DecideOutcome::Done], "{key}");
        let event = self.event(key);
        assert!(event.streams.remove(name), "{key} is not in {name}");
        if event.streams.is_empty() {
            event.state = State::Over;
        }
    }

    /// Deletes an event.
    pub fn delete(&mut self, client: &mut Client, key: EventKey) {
        assert_eq!(client.delete(&[key]).expect("answered"), [DecideOutcome::Done], "{key}");
        self.event(key).state = State::Over;
    }

    /// Everything that was stored is right, what was decided is known, and what is said again changes nothing.
    pub fn verify(&self, server: &Server) {
        self.verify_reads(server);
        let mut client = server.client("compat");
        self.verify_undecided(&mut client);
        self.verify_said_again(&mut client);
    }

    /// The part of it that a server gives which may not write.
    pub fn verify_reads(&self, server: &Server) {
        let mut client = server.client("compat");
        let keys: Vec<EventKey> = self.events.iter().map(Event::key).collect();
        for (event, fetched) in self.events.iter().zip(client.get_events(&keys, None).expect("answered")) {
            let key = event.key();
            if event.state == State::Over {
                assert_eq!(fetched.outcome, ReadOutcome::Deleted, "{key}");
                continue;
            }
            assert_eq!(fetched.outcome, ReadOutcome::Found, "{key}");
            assert_eq!((fetched.expected, fetched.stored as usize), (event.expected, event.fragments.len()), "{key}");
            assert_eq!(fetched.state == EventState::Accepted, event.state == State::Accepted, "{key}");
            for (fragment, found) in event.fragments.iter().zip(&fetched.fragments) {
                let id = event.id(fragment);
                assert_eq!((found.source.0, found.outcome), (fragment.source, ReadOutcome::Found), "{id}");
                assert_eq!(crc32c(&found.payload), fragment.crc32c, "{id}");
                assert!(found.payload == payload(id, fragment.bytes), "{id} has other bytes than were put");
            }
        }
        self.verify_streams(&mut client);
        if self.has_files() {
            self.files.verify(server);
        }
    }

    /// Each stream has what it was given and did not release.
    fn verify_streams(&self, client: &mut Client) {
        let mut expected: BTreeMap<&str, Vec<(EventKey, bool)>> = BTreeMap::new();
        for event in &self.events {
            for name in &event.streams {
                expected.entry(name).or_default().push((event.key(), event.incomplete));
            }
        }
        let names = client.streams().expect("answered");
        for (name, events) in &mut expected {
            events.sort();
            assert!(names.iter().any(|info| info.name == stream(name)), "{name} is not in {names:?}");
            let page = client.accepted(&stream(name), None, EVENTS_MAX).expect("answered");
            let found: Vec<(EventKey, bool)> = page.events.iter().map(|event| (event.key, event.incomplete)).collect();
            assert_eq!((&found, page.more), (&*events, false), "{name}");
        }
        let stored: u64 = names.iter().map(|info| info.accepted).sum();
        assert_eq!(stored as usize, expected.values().map(Vec::len).sum::<usize>(), "{names:?}");
    }

    /// What is undecided is offered to filters, complete or not, and nothing else is.
    fn verify_undecided(&self, client: &mut Client) {
        let mut wanted: BTreeSet<(EventKey, bool)> = self
            .events
            .iter()
            .filter(|event| event.state == State::Undecided)
            .map(|event| (event.key(), event.expected as usize != event.fragments.len()))
            .collect();
        while !wanted.is_empty() {
            let lease = client.lease(EVENTS_MAX, Duration::from_millis(100), 1, None).expect("answered");
            for event in lease.events {
                // One whose lease ran out may come again before the last one came at all.
                let known = self.events.iter().find(|known| known.key() == event.key);
                assert_eq!(known.map(|known| known.state), Some(State::Undecided), "{event:?}");
                wanted.remove(&(event.key, event.incomplete));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What was put may be put again, other bytes may not; what was decided stays.
    fn verify_said_again(&self, client: &mut Client) {
        for event in &self.events {
            let (key, over) = (event.key(), event.state == State::Over);
            for fragment in &event.fragments {
                let id = event.id(fragment);
                client.put(id, event.expected, &payload(id, fragment.bytes)).expect("taken");
            }
            acknowledged(client);
            let reject = Decision { key, verdict: Verdict::Reject, incomplete: false };
            if event.state == State::Accepted {
                assert_eq!(client.decide(&[reject]).expect("answered"), [DecideOutcome::Conflict], "{key}");
            }
            if over {
                let outcomes = client.delete(&[key]).expect("answered");
                assert!(outcomes[0].is_done() || outcomes[0] == DecideOutcome::NotFound, "{key}: {outcomes:?}");
            }
        }
    }

    /// More comes, and what is there goes its way.
    pub fn go_on(&mut self, server: &Server, round: u64) {
        let mut client = server.client("compat");
        let first = 1000 * round;
        for event in first..first + 12 {
            self.put(&mut client, EventKey::new(1, event), 2, &[700, 5000]);
        }
        acknowledged(&mut client);
        if self.has_files() {
            self.files.go_on(server, round);
        }
        self.reject(&mut client, EventKey::new(1, first));
        self.accept(&mut client, EventKey::new(1, first + 1), &["physics", "new"]);
        let waiting = self.events.iter().find(|event| event.streams.contains("physics") && event.event < first);
        let released = waiting.expect("each image has one").key();
        self.release(&mut client, released, "physics");
        let undecided = self.events.iter().find(|event| event.state == State::Undecided && event.event < first);
        let rejected = undecided.expect("each image has some").key();
        self.reject(&mut client, rejected);
    }
}

/// Waits until all puts are acknowledged.
pub fn acknowledged(client: &mut Client) {
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert!(!results.is_empty() && client.pending_puts() == 0);
    assert!(results.iter().all(|result| result.outcome.is_acknowledged()), "{results:?}");
}
