//! Events as they come.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_client::{self as native, FetchedEvent};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::{Connection, lock};
use crate::errors;
use crate::events::Event;
use crate::shared::Shared;

/// How long is waited before Python may see that somebody wants it to end.
const TURN: Duration = Duration::from_millis(200);

struct Looking {
    connection: Connection,
    subscription: native::Subscription,
    waiting: VecDeque<FetchedEvent>,
}

impl Looking {
    fn next(&mut self, longest: Duration) -> Result<Option<FetchedEvent>, native::ClientError> {
        if self.waiting.is_empty() {
            self.waiting = lock(&self.connection).next_events(&mut self.subscription, longest)?.into();
        }
        Ok(self.waiting.pop_front())
    }
}

/// Somebody who looks on: an iterator over events with their fragments. Best effort: what is missed is counted, and nothing waits for it.
#[pyclass(frozen, module = "forebay")]
pub struct Subscription {
    looking: Shared<Looking>,
    idle: Option<Duration>,
}

impl Subscription {
    pub fn new(connection: Connection, subscription: native::Subscription, idle: Option<Duration>) -> Self {
        Subscription { looking: Shared::new(Looking { connection, subscription, waiting: VecDeque::new() }), idle }
    }
}

#[pymethods]
impl Subscription {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let since = Instant::now();
        loop {
            let left = self.idle.map_or(TURN, |idle| idle.saturating_sub(since.elapsed()).min(TURN));
            let next = self.looking.run(py, |looking| looking.next(left))?.map_err(errors::of_client)?;
            match next {
                Some(event) => return Event::of(py, event).map(Some),
                None if self.idle.is_some_and(|idle| since.elapsed() >= idle) => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }

    /// What became of the events so far.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.looking.run(py, |looking| looking.subscription.counts())?;
        let dict = PyDict::new(py);
        let all = [
            ("told", counts.told),
            ("read", counts.read),
            ("gone", counts.gone),
            ("unreadable", counts.unreadable),
            ("dropped", counts.dropped),
            ("restarts", counts.restarts),
        ];
        for (name, count) in all {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }
}
