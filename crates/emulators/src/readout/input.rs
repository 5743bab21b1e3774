//! Where events come from, pass after pass.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_rawdata::{EventReader, Format, Generator, InputError, RawEvent, open};
use forebay_types::RunId;

/// What the readout writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The events of a file; its format is found out from its first bytes.
    File(PathBuf),
    /// Events that are made.
    Generated(Generated),
}

/// Events that are made; the same for the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Their format.
    pub format: Format,
    /// Whether the payload of MDF events is compressed.
    pub compressed: bool,
    /// Decides their content.
    pub seed: u64,
    /// Their run.
    pub run: RunId,
    /// How many different ones, numbered from 1; more than these are the same again under new numbers.
    pub events: u64,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::File(path) => path.display().fmt(f),
            Input::Generated(generated) => write!(f, "generated {} events, run {}", generated.format, generated.run),
        }
    }
}

/// The events of one pass.
enum Events {
    File(EventReader<BufReader<File>>),
    Made(Box<dyn Iterator<Item = RawEvent> + Send>),
}

impl Events {
    fn next(&mut self) -> Option<Result<RawEvent, InputError>> {
        match self {
            Events::File(reader) => reader.next(),
            Events::Made(events) => events.next().map(Ok),
        }
    }
}

impl Input {
    fn events(&self) -> Result<Events, InputError> {
        match self {
            Input::File(path) => Ok(Events::File(open(path)?)),
            Input::Generated(generated) => {
                let Generated { format, compressed, seed, run, events } = *generated;
                let mut generator = Generator::new(format, seed, run).compressed(compressed);
                Ok(Events::Made(Box::new((0..events).map(move |_| generator.next_event()))))
            }
        }
    }
}

/// The events of an input, again and again. What fits is kept in memory; the rest is read again.
pub(super) struct Passes {
    pub(super) input: Input,
    pass: u64,
    events_in_pass: u64,
    by_position: bool,
    reading: Option<Events>,
    cache: Vec<Arc<RawEvent>>,
    cache_bytes_left: u64,
    /// All events of the input are in the cache.
    cached: bool,
}

impl Passes {
    pub(super) fn new(input: Input, cache_bytes: u64) -> Passes {
        Passes {
            input,
            pass: 0,
            events_in_pass: 0,
            by_position: false,
            reading: None,
            cache: Vec::new(),
            cache_bytes_left: cache_bytes,
            cached: false,
        }
    }

    /// Whether the next event is one of the first pass.
    pub(super) fn is_first(&self) -> bool {
        self.pass == 0
    }

    /// Whether its events are numbered by their position.
    pub(super) fn by_position(&self) -> bool {
        self.by_position
    }

    /// The next event of this pass; `None` at its end.
    pub(super) fn next(&mut self) -> Result<Option<Arc<RawEvent>>, InputError> {
        let event = if self.cached {
            self.cache.get(self.events_in_pass as usize).cloned()
        } else {
            let events = match &mut self.reading {
                Some(events) => events,
                none => none.insert(self.input.events()?),
            };
            let event = events.next().transpose()?.map(Arc::new);
            self.by_position = matches!(events, Events::File(reader) if reader.numbers_by_position());
            event
        };
        if let Some(event) = &event {
            self.events_in_pass += 1;
            self.keep(event);
        }
        Ok(event)
    }

    fn keep(&mut self, event: &Arc<RawEvent>) {
        if self.pass > 0 {
            return;
        }
        let bytes = event.bytes.len() as u64;
        if bytes <= self.cache_bytes_left {
            self.cache_bytes_left -= bytes;
            self.cache.push(Arc::clone(event));
        } else {
            self.cache = Vec::new();
            self.cache_bytes_left = 0;
        }
    }

    /// Begins another pass; whether there is anything to pass over.
    pub(super) fn again(&mut self) -> bool {
        if self.pass == 0 {
            self.cached = self.cache.len() as u64 == self.events_in_pass;
        }
        let any = self.events_in_pass > 0;
        self.pass += 1;
        self.events_in_pass = 0;
        self.reading = None;
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(events: u64) -> Input {
        Input::Generated(Generated { format: Format::Faser, compressed: false, seed: 1, run: RunId(7), events })
    }

    #[test]
    fn passes_are_equal_cached_or_not() {
        for cache_bytes in [u64::MAX, 50_000, 0] {
            let mut passes = Passes::new(generated(5), cache_bytes);
            let mut all = Vec::new();
            for pass in 0..3 {
                assert_eq!(passes.is_first(), pass == 0);
                let mut events = Vec::new();
                while let Some(event) = passes.next().expect("good events") {
                    events.push(event);
                }
                assert!(passes.again());
                all.push(events);
            }
            assert_eq!(passes.cached, cache_bytes == u64::MAX);
            assert_eq!(all[0].len(), 5);
            assert!(all[0] == all[1] && all[1] == all[2], "{cache_bytes}");
        }
    }

    #[test]
    fn an_empty_input_has_no_second_pass() {
        let mut passes = Passes::new(generated(0), 100);
        assert_eq!(passes.next(), Ok(None));
        assert!(!passes.again());
        let missing = Passes::new(Input::File("/nonexistent/file".into()), 100).next();
        assert!(missing.expect_err("no such file").is_not_opened());
    }
}
