//! What the client gives back of fragments and events.

use forebay_client as native;
use forebay_types::EventKey;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::buffer;
use crate::errors::kebab;

/// An event as a pair of run and event.
pub type Key = (u32, u64);

/// The pair of a key.
pub fn pair(key: EventKey) -> Key {
    (key.run.0, key.event.0)
}

/// The keys of pairs.
pub fn keys(pairs: &[Key]) -> Vec<EventKey> {
    pairs.iter().map(|(run, event)| EventKey::new(*run, *event)).collect()
}

/// What became of a put.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct PutResult {
    pub run: u32,
    pub event: u64,
    pub source: u32,
    /// `durable`, `late`, or why it is not stored (`no-space`, `conflict`, ..).
    pub outcome: String,
    /// Only when this is true may the writer forget the fragment.
    pub acknowledged: bool,
    /// Whether the server said so of every attempt; if not, the fragment may be stored or not, and putting it again is safe.
    pub answered: bool,
    /// From the call of put to the answer, seconds.
    pub latency_s: f64,
}

impl From<native::PutResult> for PutResult {
    fn from(result: native::PutResult) -> Self {
        PutResult {
            run: result.id.run.0,
            event: result.id.event.0,
            source: result.id.source.0,
            outcome: kebab(result.outcome),
            acknowledged: result.outcome.is_acknowledged(),
            answered: result.answered,
            latency_s: result.latency.as_secs_f64(),
        }
    }
}

#[pymethods]
impl PutResult {
    fn __repr__(&self) -> String {
        let PutResult { run, event, source, outcome, .. } = self;
        format!("PutResult({run}/{event}/{source}: {outcome})")
    }
}

/// A fragment of an event that was read.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Fragment {
    pub source: u32,
    /// `found`, or why its bytes are not here.
    pub outcome: String,
    /// Its bytes, checked; empty unless found. A view of what the library owns: `numpy.frombuffer` copies nothing.
    pub payload: Py<PyMemoryView>,
}

#[pymethods]
impl Fragment {
    fn __repr__(&self) -> String {
        format!("Fragment(source {}: {})", self.source, self.outcome)
    }
}

/// An event that was read.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Event {
    pub run: u32,
    pub event: u64,
    /// `found` when the server knows the event and has not finished it; its fragments have outcomes of their own.
    pub outcome: String,
    /// `unknown`, `undecided`, `leased`, `accepted` or `finished`.
    pub state: String,
    /// How many fragments it should have, as its writers said; 0 when not known.
    pub expected: u16,
    /// How many fragments of it are stored, whatever sources were asked for.
    pub stored: u32,
    /// Its fragments, ascending by source.
    pub fragments: Vec<Py<Fragment>>,
}

impl Event {
    pub fn of(py: Python<'_>, event: native::FetchedEvent) -> PyResult<Event> {
        let fragment = |fragment: native::FetchedFragment| {
            let payload = buffer::view(py, fragment.payload)?;
            Py::new(py, Fragment { source: fragment.source.0, outcome: kebab(fragment.outcome), payload })
        };
        let (run, number) = pair(event.key);
        Ok(Event {
            run,
            event: number,
            outcome: kebab(event.outcome),
            state: kebab(event.state),
            expected: event.expected,
            stored: event.stored,
            fragments: event.fragments.into_iter().map(fragment).collect::<PyResult<_>>()?,
        })
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let Event { run, event, outcome, state, fragments, .. } = self;
        format!("Event({run}/{event}: {outcome}, {state}, {} fragments)", fragments.len())
    }
}

/// An event that a filter has until its lease runs out.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct LeasedEvent {
    pub run: u32,
    pub event: u64,
    /// Fragments that are stored.
    pub fragments: u32,
    /// Fragments that it should have; 0 when not known.
    pub expected: u16,
    /// How often it was leased, this time included.
    pub attempt: u16,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Whether it is handed out without all its fragments, as it waited long enough.
    pub incomplete: bool,
}

/// Events leased to a filter.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Lease {
    pub events: Vec<Py<LeasedEvent>>,
    /// Events without a decision, leased or not.
    pub undecided: u64,
    /// When it is worth to ask again for those that are missing, seconds.
    pub retry_after_s: f64,
}

impl Lease {
    pub fn of(py: Python<'_>, lease: native::Lease) -> PyResult<Lease> {
        let leased = |event: native::LeasedEvent| {
            let (run, number) = pair(event.key);
            let native::LeasedEvent { fragments, expected, attempt, bytes, incomplete, .. } = event;
            Py::new(py, LeasedEvent { run, event: number, fragments, expected, attempt, bytes, incomplete })
        };
        Ok(Lease {
            events: lease.events.into_iter().map(leased).collect::<PyResult<_>>()?,
            undecided: lease.undecided,
            retry_after_s: lease.retry_after.as_secs_f64(),
        })
    }
}

/// An event that a stream has and has not released.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct AcceptedEvent {
    pub run: u32,
    pub event: u64,
    pub fragments: u32,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Whether it was decided without all fragments.
    pub incomplete: bool,
}

/// Accepted events of a stream.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct AcceptedPage {
    /// Ascending by run and event, none left out between them.
    pub events: Vec<Py<AcceptedEvent>>,
    /// Whether there are more behind the last one now.
    pub more: bool,
    /// The smallest undecided event of the store: no event below it that is there now will still be accepted. None: there is no undecided event.
    pub undecided_floor: Option<Key>,
}

impl AcceptedPage {
    pub fn of(py: Python<'_>, page: native::AcceptedPage) -> PyResult<AcceptedPage> {
        let accepted = |event: native::AcceptedEvent| {
            let (run, number) = pair(event.key);
            let native::AcceptedEvent { fragments, bytes, incomplete, .. } = event;
            Py::new(py, AcceptedEvent { run, event: number, fragments, bytes, incomplete })
        };
        Ok(AcceptedPage {
            events: page.events.into_iter().map(accepted).collect::<PyResult<_>>()?,
            more: page.more,
            undecided_floor: page.undecided_floor.map(pair),
        })
    }
}
