//! A store with events, and where they are moved to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_client::{Client, Decision};
use forebay_rawdata::{EventReader, Format, Generator, split};
use forebay_types::{EventKey, Verdict};
use tempfile::TempDir;

use super::running::files_below;
use super::{Drives, Ran, Server, forebay, scratch};

/// A store that is served, and a directory beside.
pub struct Buffer {
    pub drives: Drives,
    pub server: Server,
    pub place: TempDir,
    /// All events that were put, by their numbers.
    pub events: BTreeMap<EventKey, Vec<u8>>,
}

impl Buffer {
    pub fn new() -> Buffer {
        let drives = Drives::five();
        let server = drives.serve();
        Buffer { drives, server, place: scratch(), events: BTreeMap::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn put(&mut self, generator: &mut Generator, count: usize) -> Vec<EventKey> {
        let mut client = self.server.client("readout");
        let mut keys = Vec::new();
        for _ in 0..count {
            let event = generator.next_event();
            let pieces = split(&event).expect("a generated event");
            for piece in &pieces {
                client.put(event.key.fragment(piece.source), pieces.len() as u16, &piece.bytes).expect("taken");
            }
            keys.push(event.key);
            self.events.insert(event.key, event.bytes);
        }
        client.flush().expect("answered");
        keys
    }

    pub fn arguments(&self, journal: &str, stream: &str, more: &[&str]) -> Vec<String> {
        let (text, from) = (|name: &str| self.path(name).display().to_string(), format!("stream:{stream}"));
        let arguments = ["move", "--from", &from, "--server", &self.server.address, "--to", &text("archive")];
        let arguments = arguments.into_iter().chain(["--journal"]).map(str::to_owned).chain([text(journal)]);
        arguments.chain(more.iter().map(|more| (*more).to_owned())).collect()
    }

    pub fn once(&self, more: &[&str]) -> Ran {
        let arguments = [&["--once", "--recheck-after", "0.1", "--json"], more].concat();
        forebay(self.arguments("journal.sqlite", "physics", &arguments))
    }

    /// The events that are in the files there, by number; each as it was put, and of one run in a file.
    pub fn archived(&self) -> BTreeMap<EventKey, u32> {
        let mut there: BTreeMap<EventKey, u32> = BTreeMap::new();
        for (name, bytes) in files_below(&self.path("archive")) {
            if name.contains("/.") {
                continue;
            }
            let format =
                Format::detect(&bytes[..12.min(bytes.len())]).unwrap_or_else(|| panic!("{name} has no events"));
            let mut runs = Vec::new();
            for event in EventReader::new(format, bytes.as_slice()) {
                let event = event.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(self.events[&event.key] == event.bytes, "{} is another in {name}", event.key);
                *there.entry(event.key).or_default() += 1;
                runs.push(event.key);
            }
            assert!(runs.is_sorted() && runs.first().map(|key| key.run) == runs.last().map(|key| key.run), "{name}");
        }
        there
    }
}

/// Accepts events into streams, or rejects them.
pub fn decide(client: &mut Client, keys: &[EventKey], streams: &[&str]) {
    let streams: Vec<_> = streams.iter().map(|stream| stream.parse().expect("a name")).collect();
    let verdict = if streams.is_empty() { Verdict::Reject } else { Verdict::Accept(streams) };
    let decisions: Vec<Decision> =
        keys.iter().map(|key| Decision { key: *key, verdict: verdict.clone(), incomplete: false }).collect();
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
}
