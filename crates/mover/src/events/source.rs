//! A stream of a store as a source.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_client::files::Files;
use forebay_client::{AcceptedPage, Class, Client, ClientConfig, ClientError, FetchedEvent};
use forebay_types::{DecideOutcome, EventKey, RunId, SourceId, StreamName, StreamSources};

use super::{Assembled, AssembledEvent, EventContent, Events, Examined, Making, OfRun, assemble};
use crate::custody::SourceAnswer;
use crate::endpoint::{Content, EventSource, Moved};
use crate::store::{Lease, LeaseError};
use crate::sums::Sums;

/// So long one call waits for a server that is away; the mover tries again after that.
const DEADLINE: Duration = Duration::from_secs(20);
/// The same for the lease.
const LEASE_DEADLINE: Duration = Duration::from_secs(4);
/// Events that are released with one request.
const RELEASE_EVENTS_MAX: usize = 4096;
/// Of more sources all is read, and what is not wanted is left out.
const ASKED_SOURCES_MAX: u64 = 1024;
/// Where an MDF event has its number: the bank of type 16, of one of the first boards.
const NUMBER_SOURCE_FIRST: u32 = 16 << 16;
const NUMBER_SOURCES: u32 = 4;
/// So many losses are told one by one.
const LOSSES_TOLD: u64 = 16;

/// The accepted events of a stream. It is leased for as long as this lives: a second mover is refused.
pub struct StreamSource {
    address: String,
    stream: StreamName,
    idle: Mutex<Vec<Client>>,
    lease: Lease,
    losses: AtomicU64,
}

impl StreamSource {
    /// Connects and leases the stream. `token`: the journal's, by which a mover that was killed knows its own lease again.
    ///
    /// # Errors
    /// When no server answers, the store is served read-only or has no files (and so no leases), or another mover has the stream.
    pub fn open(address: &str, stream: &StreamName, token: u64) -> Result<StreamSource, LeaseError> {
        let client = connect(address, true, DEADLINE)?;
        let files = Files::new(connect(address, true, DEADLINE)?)?;
        let renewer = Files::new(connect(address, true, LEASE_DEADLINE)?)?;
        let lease =
            Lease::take(renewer, &files, &format!("/.forebay-stream-{stream}"), &format!("stream {stream}"), token)?;
        Ok(StreamSource {
            address: address.to_owned(),
            stream: stream.clone(),
            idle: Mutex::new(vec![client]),
            lease,
            losses: AtomicU64::new(0),
        })
    }

    /// Uses a connection that no other job uses; one that fails is made anew.
    fn with<T>(&self, use_it: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut client = idle.map_or_else(|| connect(&self.address, false, DEADLINE), Ok)?;
        let used = use_it(&mut client)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        Ok(used)
    }

    fn read(&self, keys: &[EventKey], making: &Making) -> Result<Vec<FetchedEvent>, ClientError> {
        let asked = asked_for(&making.sources);
        self.with(|client| client.get_events(keys, asked.as_deref()))
    }

    fn fetch(&self, keys: &[EventKey], making: &Making) -> Result<Vec<FetchedEvent>, SourceAnswer> {
        self.read(keys, making)
            .map_err(|error| SourceAnswer::NotNow(format!("read events of stream {}: {error}", self.stream)))
    }

    fn examined(&self, event: &FetchedEvent, making: &Making) -> Examined {
        match assemble(event, making) {
            Assembled::Event(assembled) => {
                if assembled.fragments_lost > 0 {
                    self.tell_loss(event.key, &assembled);
                }
                let AssembledEvent { kind, numbered, incomplete, taken_unix_us, bytes, .. } = assembled;
                Examined::Event { kind, numbered, incomplete, taken_unix_us, sums: Sums::of(&bytes) }
            }
            Assembled::Gone => Examined::Gone,
            Assembled::Unavailable => Examined::Unavailable,
        }
    }

    fn tell_loss(&self, key: EventKey, event: &AssembledEvent) {
        match self.losses.fetch_add(1, Relaxed) {
            told if told < LOSSES_TOLD => {
                let sources: Vec<String> = event.lost.iter().map(ToString::to_string).collect();
                tracing::error!(
                    "event {key} of stream {} lost {} of its fragments in the store{}: what is left of it is moved, and marked incomplete. `forebay lost` has all of them",
                    self.stream,
                    event.fragments_lost,
                    if sources.is_empty() { String::new() } else { format!(" (sources {})", sources.join(", ")) }
                );
            }
            LOSSES_TOLD => tracing::error!("fragments of more events are lost; `forebay lost` has all of them"),
            _ => {}
        }
    }
}

impl EventSource for StreamSource {
    fn accepted(&self, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, String> {
        self.lease.check()?;
        self.with(|client| client.accepted(&self.stream, after, max)).map_err(|error| error.to_string())
    }

    fn of_run(&self, run: RunId) -> Result<OfRun, String> {
        self.with(|client| {
            let run = client.run(run)?;
            let versions = client.stream_versions(&self.stream)?;
            let stream = match run.as_ref().filter(|run| run.started.is_some()) {
                Some(run) => {
                    let of_ours = run.streams.iter().find(|of| of.name == self.stream).map(|of| of.version);
                    versions.into_iter().find(|version| Some(version.version) == of_ours)
                }
                None => versions.into_iter().next_back(),
            };
            Ok(OfRun { run, stream })
        })
        .map_err(|error| error.to_string())
    }

    fn examine(&self, events: &[EventKey], making: &Making, moved: &dyn Moved) -> Result<Vec<Examined>, String> {
        let fetched = self.read(events, making).map_err(|error| error.to_string())?;
        let examine = |event: &FetchedEvent| {
            moved.moved(event.fragments.iter().map(|fragment| fragment.payload.len() as u64).sum());
            self.examined(event, making)
        };
        Ok(fetched.iter().map(examine).collect())
    }

    fn open<'a>(&'a self, events: &'a Events) -> Box<dyn Content + 'a> {
        Box::new(EventContent::new(events, |keys| self.fetch(keys, &events.making)))
    }

    fn release(&self, events: &Events, moved: &dyn Moved) -> SourceAnswer {
        let keys: Vec<EventKey> = events.keys().collect();
        for keys in keys.chunks(RELEASE_EVENTS_MAX) {
            if let Err(words) = self.lease.check() {
                return SourceAnswer::NotNow(words);
            }
            let outcomes = match self.with(|client| client.release(&self.stream, keys)) {
                Ok(outcomes) => outcomes,
                Err(error) => return SourceAnswer::NotNow(format!("release events of {}: {error}", self.stream)),
            };
            let unknown =
                |outcome: &DecideOutcome| matches!(outcome, DecideOutcome::NotFound | DecideOutcome::Conflict);
            if let Some(first) = outcomes.iter().position(unknown) {
                tracing::warn!(
                    "{} events of stream {}, {} for one, were not there to be released any more: somebody deleted them. They are at the destinations",
                    outcomes.iter().filter(|outcome| unknown(outcome)).count(),
                    self.stream,
                    keys[first]
                );
            }
            if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.is_done() && !unknown(outcome)) {
                return SourceAnswer::NotNow(format!(
                    "the store does not release events of {}: {outcome}",
                    self.stream
                ));
            }
            moved.moved(0);
        }
        SourceAnswer::Released
    }
}

/// What is asked for of each event, where that is less than all. The numbers of MDF events are in a bank of which boards have few.
fn asked_for(sources: &StreamSources) -> Option<Vec<SourceId>> {
    let StreamSources::Part(sources) = sources else { return None };
    if sources.count() > ASKED_SOURCES_MAX {
        return None;
    }
    let ranges = sources.ranges().iter().flat_map(|(first, last)| first.0..=last.0);
    let number = (0..NUMBER_SOURCES).map(|board| NUMBER_SOURCE_FIRST + board);
    let mut asked: Vec<SourceId> = ranges.chain(number).chain([SourceId::EVENT_FRAME.0]).map(SourceId).collect();
    asked.sort_unstable();
    asked.dedup();
    Some(asked)
}

fn connect(address: &str, must_listen: bool, deadline: Duration) -> Result<Client, ClientError> {
    let mut config = ClientConfig::new(address, "forebay move").class(Class::Mover).deadline(Some(deadline));
    config.must_listen = must_listen;
    Client::connect(config)
}
