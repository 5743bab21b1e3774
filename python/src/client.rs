//! `forebay.Client`: fragments and events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_client::{self as native, Class, ClientConfig, ClientError, Decision, Signature};
use forebay_types::{
    EventKey, Fraction, FragmentId, ReadOutcome, RunChange, RunId, SourceId, StreamDefinition, StreamName, Verdict,
};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::buffer::{self, Given};
use crate::errors::{self, kebab};
use crate::events::{AcceptedPage, Event, Key, Lease, PutResult, keys};
use crate::runs;
use crate::shared::Shared;
use crate::subscription::Subscription;

/// So many of a million events are all of them.
const MILLION: f64 = 1_000_000.0;

/// How a client of either kind is told to behave.
pub fn config(
    address: &str,
    name: &str,
    deadline_s: Option<f64>,
    klass: &str,
    must_listen: bool,
) -> PyResult<ClientConfig> {
    let class = Class::ALL.iter().find(|class| kebab(class) == klass);
    let class = class.ok_or_else(|| {
        errors::value(format!(
            "{klass:?} is no class of clients; give \"readout\", \"filter\", \"mover\" or \"monitor\""
        ))
    })?;
    let deadline = deadline_s.map(seconds).transpose()?;
    let config = ClientConfig::new(address, name).class(*class).deadline(deadline);
    Ok(ClientConfig { must_listen, ..config })
}

/// A time that a caller gave.
pub fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| errors::value(format!("{seconds} s is no time to wait")))
}

pub fn stream_name(name: &str) -> PyResult<StreamName> {
    name.parse().map_err(|error: forebay_types::StreamNameError| errors::value(error.to_string()))
}

/// The connection that a client and its subscriptions use one after the other.
pub type Connection = Arc<Mutex<native::Client>>;

pub fn lock(connection: &Connection) -> MutexGuard<'_, native::Client> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client of one server, for fragments and events.
///
/// It has no thread of its own: what was put leaves, and answers arrive, while one of its methods runs. Other threads of Python run while a method waits; of
/// those that use the same client one waits for the other.
///
/// Args:
///     address: the server, HOST:PORT.
///     name: what the server's log calls this client.
///     deadline_s: how long a request is repeated before it is given up, seconds; None for ever. A restart of the server within it is not noticed.
///     klass: what the client is for: "readout", "filter", "mover" or "monitor". A busy server serves them in this order.
///     must_listen: whether it is an error at once when nothing listens at the address; else, and where several servers are named, that is tried until the deadline.
///
/// Raises:
///     forebay.NobodyListens: no server runs there.
///     forebay.NoAnswer: no answer before the deadline; of any method.
///     forebay.ServerError: the server refused, or is another one than before; of any method.
#[pyclass(frozen, module = "forebay")]
pub struct Client {
    connection: Shared<Connection>,
}

impl Client {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut native::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.connection.run(py, |connection| ask(&mut lock(connection)))?.map_err(errors::of_client)
    }

    fn change_run<'py>(
        &self,
        py: Python<'py>,
        run: u32,
        what: RunChange,
        by: &str,
        reason: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let signature = Signature { by: by.to_owned(), reason: reason.to_owned() };
        let record = self.ask(py, |client| client.change_run(RunId(run), what, &signature))?;
        runs::object(py, &record)
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address = "127.0.0.1:7420", *, name = "python", deadline_s = Some(60.0), klass = "readout", must_listen = true))]
    fn new(
        py: Python<'_>,
        address: &str,
        name: &str,
        deadline_s: Option<f64>,
        klass: &str,
        must_listen: bool,
    ) -> PyResult<Client> {
        let config = config(address, name, deadline_s, klass, must_listen)?;
        let client = py.detach(|| native::Client::connect(config)).map_err(errors::of_client)?;
        Ok(Client { connection: Shared::new(Arc::new(Mutex::new(client))) })
    }

    /// Puts a fragment into the batch of its lane. What becomes of it says `take_results`.
    ///
    /// Args:
    ///     run, event, source: its id.
    ///     expected: how many fragments the event should have; 0 when not known.
    ///     payload: its bytes: anything with a contiguous buffer (bytes, bytearray, memoryview, an array of any shape and dtype), taken as it lies in memory. It
    ///         must not change during the call. A bytes object of 8 KiB or more is not copied, and kept until it is acknowledged.
    ///
    /// Raises:
    ///     forebay.ServerError: the fragment was not taken: larger than this store takes.
    ///     BufferError: the bytes do not lie together.
    #[pyo3(signature = (run, event, source, expected, payload))]
    fn put(&self, py: Python<'_>, run: u32, event: u64, source: u32, expected: u16, payload: Given) -> PyResult<()> {
        let id = FragmentId::new(run, event, source);
        match payload.shared() {
            Ok(bytes) => self.ask(py, |client| client.put_bytes(id, expected, &bytes)),
            Err(given) => {
                let bytes = given.bytes();
                self.ask(py, |client| client.put(id, expected, bytes))
            }
        }
    }

    /// Sends what is batched and waits until every put has its result, which `take_results` hands out.
    ///
    /// Raises:
    ///     forebay.NoAnswer: puts were given up without an answer; they may be stored or not, and putting them again is safe.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, native::Client::flush)
    }

    /// The results of puts that are there; each put is told once. With `wait_s` it waits so many seconds for the first of them.
    #[pyo3(signature = (wait_s = 0.0))]
    fn take_results(&self, py: Python<'_>, wait_s: f64) -> PyResult<Vec<PutResult>> {
        let wait = seconds(wait_s)?;
        let results = self.ask(py, |client| {
            let mut results = Vec::new();
            match wait.is_zero() {
                true => client.take_put_results(&mut results),
                false => client.wait_put_results(wait, &mut results)?,
            }
            Ok(results)
        })?;
        Ok(results.into_iter().map(PutResult::from).collect())
    }

    /// Puts without a result.
    fn pending_puts(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |client| Ok(client.pending_puts()))
    }

    /// Reads a fragment: a read-only memoryview of bytes (shape `(bytes,)`, format "B") over memory of the library. `numpy.frombuffer(view, dtype)` copies nothing,
    /// and `bytes(view)` copies.
    ///
    /// Raises:
    ///     forebay.ReadError: there is no such fragment for now (`retryable`) or for ever; `code` says why.
    fn get(&self, py: Python<'_>, run: u32, event: u64, source: u32) -> PyResult<Py<PyMemoryView>> {
        let bytes = self.ask(py, |client| client.get(FragmentId::new(run, event, source)))?;
        buffer::view(py, bytes)
    }

    /// Reads fragments, over all lanes at once.
    ///
    /// Args:
    ///     ids: triples of run, event and source.
    ///
    /// Returns:
    ///     for each, in this order, a pair of its outcome ("found", "not-found", "deleted", "unavailable", "lost") and its bytes, as `get` gives them; none unless
    ///     found.
    fn get_many(&self, py: Python<'_>, ids: Vec<(u32, u64, u32)>) -> PyResult<Vec<(String, Py<PyMemoryView>)>> {
        let ids: Vec<_> = ids.into_iter().map(|(run, event, source)| FragmentId::new(run, event, source)).collect();
        let found = self.ask(py, |client| client.get_many(&ids))?;
        let given = |(outcome, bytes): (ReadOutcome, Vec<u8>)| Ok((kebab(outcome), buffer::view(py, bytes)?));
        found.into_iter().map(given).collect()
    }

    /// Reads events, or some sources of them, over all lanes at once.
    ///
    /// Args:
    ///     events: pairs of run and event.
    ///     sources: the sources that are wanted; None for all.
    ///
    /// Returns:
    ///     an Event for each, in this order.
    #[pyo3(signature = (events, sources = None))]
    fn get_events(&self, py: Python<'_>, events: Vec<Key>, sources: Option<Vec<u32>>) -> PyResult<Vec<Event>> {
        let events = keys(&events);
        let sources: Option<Vec<SourceId>> = sources.map(|sources| sources.into_iter().map(SourceId).collect());
        let found = self.ask(py, |client| client.get_events(&events, sources.as_deref()))?;
        found.into_iter().map(|event| Event::of(py, event)).collect()
    }

    /// Leases up to `max_events` undecided events. One that is not decided within `duration_s` (0.1 s to an hour) goes to another filter.
    ///
    /// Args:
    ///     filter: the number of this filter, the same after a restart of it.
    ///     run: of this run alone.
    #[pyo3(signature = (max_events, duration_s = 30.0, *, filter = 1, run = None))]
    fn lease(
        &self,
        py: Python<'_>,
        max_events: u32,
        duration_s: f64,
        filter: u64,
        run: Option<u32>,
    ) -> PyResult<Lease> {
        let duration = seconds(duration_s)?;
        let lease = self.ask(py, |client| client.lease(max_events, duration, filter, run.map(RunId)))?;
        Lease::of(py, lease)
    }

    /// Tells decisions, durably.
    ///
    /// Args:
    ///     decisions: triples of run, event, and the names of the streams that take it, 64 at most; none to reject it.
    ///     incomplete: whether they were made without all fragments.
    ///
    /// Returns:
    ///     the outcome of each, in this order: "done", "already-done", or why not ("conflict", "not-found", "held", ..).
    ///
    /// Raises:
    ///     ValueError: a name that no stream may have; nothing was sent.
    #[pyo3(signature = (decisions, *, incomplete = false))]
    fn decide(
        &self,
        py: Python<'_>,
        decisions: Vec<(u32, u64, Vec<String>)>,
        incomplete: bool,
    ) -> PyResult<Vec<String>> {
        let decision = |(run, event, streams): (u32, u64, Vec<String>)| {
            let streams: Vec<StreamName> = streams.iter().map(|name| stream_name(name)).collect::<PyResult<_>>()?;
            let verdict = if streams.is_empty() { Verdict::Reject } else { Verdict::Accept(streams) };
            Ok(Decision { key: EventKey::new(run, event), verdict, incomplete })
        };
        let decisions: Vec<Decision> = decisions.into_iter().map(decision).collect::<PyResult<_>>()?;
        let outcomes = self.ask(py, |client| client.decide(&decisions))?;
        Ok(outcomes.into_iter().map(kebab).collect())
    }

    /// Drops events (pairs of run and event), whatever was decided; the outcomes are those of `decide`.
    fn delete(&self, py: Python<'_>, events: Vec<Key>) -> PyResult<Vec<String>> {
        let outcomes = self.ask(py, |client| client.delete(&keys(&events)))?;
        Ok(outcomes.into_iter().map(kebab).collect())
    }

    /// Accepted events of a stream that it has not released, behind the event `after` (a pair of run and event), at most `max`.
    #[pyo3(signature = (stream, after = None, max = 1000))]
    fn accepted(&self, py: Python<'_>, stream: &str, after: Option<Key>, max: u32) -> PyResult<AcceptedPage> {
        let (stream, after) = (stream_name(stream)?, after.map(|(run, event)| EventKey::new(run, event)));
        let page = self.ask(py, |client| client.accepted(&stream, after, max))?;
        AcceptedPage::of(py, page)
    }

    /// Says that a stream has these events (pairs of run and event) safely elsewhere; the outcomes are those of `decide`.
    fn release(&self, py: Python<'_>, stream: &str, events: Vec<Key>) -> PyResult<Vec<String>> {
        let stream = stream_name(stream)?;
        let outcomes = self.ask(py, |client| client.release(&stream, &keys(&events)))?;
        Ok(outcomes.into_iter().map(kebab).collect())
    }

    /// Looks on from now on: an iterator over events with their fragments, when they are accepted into `stream`, or else as soon as filters may have them. Best
    /// effort: nothing waits for it, and `counts` says what was missed. The client should be of the class "monitor".
    ///
    /// Args:
    ///     run: of this run alone.
    ///     fraction: of these, such a part, 0 to 1; which events these are says their number.
    ///     idle_s: the iteration ends when no event came for so many seconds; None for never.
    #[pyo3(signature = (run = None, stream = None, fraction = 1.0, *, idle_s = None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        run: Option<u32>,
        stream: Option<&str>,
        fraction: f64,
        idle_s: Option<f64>,
    ) -> PyResult<Subscription> {
        let stream = stream.map(stream_name).transpose()?;
        let part = Some(fraction)
            .filter(|fraction| (0.0..=1.0).contains(fraction))
            .map(|fraction| (fraction * MILLION).round() as u32);
        let part = part.and_then(Fraction::from_millionths);
        let part = part
            .ok_or_else(|| errors::value(format!("{fraction} is no part of all events; give a number from 0 to 1")))?;
        let idle = idle_s.map(seconds).transpose()?;
        let subscription = self.ask(py, |client| client.subscribe(run.map(RunId), stream, part))?;
        let connection = self.connection.run(py, |connection| Arc::clone(connection))?;
        Ok(Subscription::new(connection, subscription, idle))
    }

    /// Takes a run number, durably, for a run of these sources. All that is done with runs is kept with who did it (`by`) and why (`reason`), as far as that is said.
    ///
    /// Args:
    ///     sources: as text, such as "0-15,32" or "0x100-0x1ff".
    ///
    /// Returns:
    ///     the run as it is then, as `forebay run show --json` has it; so do the other calls that change a run.
    ///
    /// Raises:
    ///     forebay.ServerError: it may not be done: the message has what is so and what to do, and nothing was changed. So do the other calls.
    #[pyo3(signature = (run, sources, *, by = "", reason = ""))]
    fn declare_run<'py>(
        &self,
        py: Python<'py>,
        run: u32,
        sources: &str,
        by: &str,
        reason: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sources = runs::sources(sources)?;
        self.change_run(py, run, RunChange::Declare { sources }, by, reason)
    }

    /// Data of the run are taken from now on, and it has the streams that are defined now.
    #[pyo3(signature = (run, *, by = "", reason = ""))]
    fn start_run<'py>(&self, py: Python<'py>, run: u32, by: &str, reason: &str) -> PyResult<Bound<'py, PyAny>> {
        self.change_run(py, run, RunChange::Start, by, reason)
    }

    /// No more data of the run are taken.
    ///
    /// Args:
    ///     events: how many events the run control counted, which `close_run` compares; None: nobody counted, and closing needs a signature.
    ///     fragments: how many fragments it counted, by source; they are kept and shown.
    #[pyo3(signature = (run, events = None, fragments = None, *, by = "", reason = ""))]
    fn stop_run<'py>(
        &self,
        py: Python<'py>,
        run: u32,
        events: Option<u64>,
        fragments: Option<BTreeMap<u32, u64>>,
        by: &str,
        reason: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fragments = runs::fragments(fragments.unwrap_or_default())?;
        self.change_run(py, run, RunChange::Stop { events, fragments }, by, reason)
    }

    /// No fragment of the run is taken any more. It is refused unless the store knows as many events as were counted, all of them decided; with `accept_difference` it is closed as it is, and
    /// `reason` says why.
    #[pyo3(signature = (run, *, accept_difference = false, by = "", reason = ""))]
    fn close_run<'py>(
        &self,
        py: Python<'py>,
        run: u32,
        accept_difference: bool,
        by: &str,
        reason: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.change_run(py, run, RunChange::Close { accept_difference }, by, reason)
    }

    /// Nothing of the run is freed until `end_hold`.
    #[pyo3(signature = (run, reason, *, by = ""))]
    fn hold_run<'py>(&self, py: Python<'py>, run: u32, reason: &str, by: &str) -> PyResult<Bound<'py, PyAny>> {
        self.change_run(py, run, RunChange::Hold, by, reason)
    }

    /// Ends the hold of a run: what is to go may go again.
    #[pyo3(signature = (run, *, by = "", reason = ""))]
    fn end_hold<'py>(&self, py: Python<'py>, run: u32, by: &str, reason: &str) -> PyResult<Bound<'py, PyAny>> {
        self.change_run(py, run, RunChange::EndHold, by, reason)
    }

    /// Deletes what is left of a run, for good, and takes no fragment of it any more. It is refused while the run is held or running.
    #[pyo3(signature = (run, reason, *, by = ""))]
    fn discard_run<'py>(&self, py: Python<'py>, run: u32, reason: &str, by: &str) -> PyResult<Bound<'py, PyAny>> {
        self.change_run(py, run, RunChange::Discard, by, reason)
    }

    /// A run with what the store knows of it now, as `forebay run show --json` has it; None when it was never declared.
    fn run<'py>(&self, py: Python<'py>, run: u32) -> PyResult<Bound<'py, PyAny>> {
        let known = self.ask(py, |client| client.known_run(RunId(run)))?;
        runs::object(py, &known)
    }

    /// The runs that were declared, from this number on, ascending, each as `run` gives it.
    #[pyo3(signature = (first = 0))]
    fn runs<'py>(&self, py: Python<'py>, first: u32) -> PyResult<Bound<'py, PyAny>> {
        let runs = self.ask(py, |client| client.known_runs(Some(RunId(first))))?;
        runs::object(py, &runs)
    }

    /// Defines a stream, durably: version 1, or one more than the newest. Runs that are started from then on have it.
    ///
    /// Args:
    ///     sources: those that it is shipped with: "all", or some, such as "0-15,32".
    ///     prescale: one event in so many is kept; the store applies it, and all else is for whoever ships.
    ///     format: of its files; empty: what its events are.
    ///     priority: streams with a higher one are shipped first.
    ///     destination: where it goes; empty: where the mover is told.
    ///     block_events, block_s: a luminosity block has so many event numbers, or lasts so many seconds; without both a run is one block.
    ///     by: who defines it, as it is kept with the version.
    ///
    /// Returns:
    ///     the version that this is, as `forebay stream show --json` has it.
    ///
    /// Raises:
    ///     ValueError: no stream can be so; nothing was asked.
    #[pyo3(signature = (name, *, sources = "all", prescale = 1, format = "", priority = 0, destination = "", block_events = None, block_s = None, by = ""))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn define_stream<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        sources: &str,
        prescale: u32,
        format: &str,
        priority: u16,
        destination: &str,
        block_events: Option<u64>,
        block_s: Option<u64>,
        by: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = stream_name(name)?;
        let definition = runs::checked(StreamDefinition {
            sources: runs::stream_sources(sources)?,
            prescale,
            format: format.to_owned(),
            priority,
            destination: destination.to_owned(),
            block: runs::block(block_events, block_s)?,
        })?;
        let version = self.ask(py, |client| client.define_stream(&name, definition, by))?;
        runs::object(py, &version)
    }

    /// The newest version of each stream that is defined, as `forebay stream list --json` has them.
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let streams = self.ask(py, native::Client::stream_definitions)?;
        runs::object(py, &streams)
    }

    /// All versions of a stream, the oldest first; none when it is not defined.
    fn stream_versions<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let name = stream_name(name)?;
        let streams = self.ask(py, |client| client.stream_versions(&name))?;
        runs::object(py, &streams)
    }

    /// The definitions that hold for a run, of the versions that it was started with; the newest for one that was not declared or not started.
    fn streams_of_run<'py>(&self, py: Python<'py>, run: u32) -> PyResult<Bound<'py, PyAny>> {
        let streams = self.ask(py, |client| client.streams_of_run(RunId(run)))?;
        runs::object(py, &streams)
    }

    /// The state of the server, as `forebay status --json` has it.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &self.ask(py, native::Client::status)?)
    }

    /// All that the store knows of an event: what arrived when, where it lies, what was decided; also of one that is over.
    fn trace<'py>(&self, py: Python<'py>, run: u32, event: u64) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &self.ask(py, |client| client.trace(EventKey::new(run, event)))?)
    }

    /// Waits for a sign of life.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, native::Client::ping)
    }

    /// Ends the connections. Puts without a result are given up.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let connection = self.connection.take(py)?;
        py.detach(|| drop(connection));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

/// JSON of the server as objects of Python.
pub fn parsed<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
