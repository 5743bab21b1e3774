//! What holds for the events of a run in a stream: how they are put together, where they go, and how far the run is.

use std::fmt;

use forebay_rawdata::{Format, holds_number};
use forebay_types::{
    BlockRule, EventId, RunRecord, RunState, SourceId, StreamDefinition, StreamName, StreamSources, StreamVersion,
};

use super::EventKind;

/// How an event is put together for a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Making {
    /// What of it is taken. The event's frame, and what holds its number, is always.
    pub sources: StreamSources,
    /// What it becomes; where nobody said, what it is.
    pub kind: Option<EventKind>,
}

impl Making {
    /// Whether a fragment is taken; `format`: of the event, where its frame tells.
    pub fn takes(&self, source: SourceId, format: Option<Format>) -> bool {
        match &self.sources {
            StreamSources::All => true,
            StreamSources::Part(sources) => {
                let is_needed = source == SourceId::EVENT_FRAME || format.is_some_and(|of| holds_number(of, source));
                is_needed || sources.has(source)
            }
        }
    }
}

/// Where luminosity blocks end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocks {
    /// Nowhere: a run is one.
    #[default]
    Run,
    /// After so many event numbers.
    Events(u64),
    /// After so many seconds.
    Seconds {
        /// How many.
        length_s: u64,
        /// When the first one began, in microseconds since 1970.
        began_unix_us: u64,
    },
}

impl Blocks {
    /// The block of an event, from 1; 0 where it says no time, or one before the run. None where a run is one block.
    pub fn of(self, event: EventId, taken_unix_us: Option<u64>) -> Option<u64> {
        match self {
            Blocks::Run => None,
            Blocks::Events(events) => Some((event.0 / events).saturating_add(1)),
            Blocks::Seconds { length_s, began_unix_us } => {
                let since = taken_unix_us.and_then(|taken| taken.checked_sub(began_unix_us));
                Some(since.map_or(0, |since| since / 1_000_000 / length_s + 1))
            }
        }
    }

    /// Whether nothing more of `block` is expected once there are events of `next`. Numbers ascend; times do so about.
    pub const fn are_past(self, block: u64, next: u64) -> bool {
        match self {
            Blocks::Run => false,
            Blocks::Events(_) => block < next,
            Blocks::Seconds { .. } => block.saturating_add(1) < next,
        }
    }
}

/// What holds for the events of a run in a stream, by the definition that the run was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The version of the definition; 0: the stream is not defined.
    pub version: u32,
    /// How events are put together.
    pub making: Making,
    /// Where they go; empty where nobody said.
    pub destination: String,
    /// Higher ones are moved first.
    pub priority: u16,
    /// Luminosity blocks.
    pub blocks: Blocks,
    /// No fragment of the run is taken any more.
    pub is_closed: bool,
    /// Events of the run that its run control counted, if it did and nobody signed another number off.
    pub events: Option<u64>,
}

/// What the store has of a run and of a stream: as they are now, and of the version that holds for the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfRun {
    /// The run, if it was declared.
    pub run: Option<RunRecord>,
    /// The stream, if it is defined.
    pub stream: Option<StreamVersion>,
}

/// A definition that nothing can be moved by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "version {version} of stream {stream} wants files of the format {format:?}, which no mover makes: it may be {}. Say another one to the mover (--format), and define the stream anew for later runs",
    Known
)]
pub struct TermsError {
    /// The stream.
    pub stream: StreamName,
    /// The version of its definition.
    pub version: u32,
    /// What it says.
    pub format: String,
}

struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
        f.write_str(&names.join(", "))
    }
}

impl Terms {
    /// By what the store has; `kind`: what events become, whatever the definition says.
    ///
    /// # Errors
    /// A format that no file has.
    pub fn of(OfRun { run, stream }: &OfRun, kind: Option<EventKind>) -> Result<Terms, TermsError> {
        let run = run.as_ref();
        let is_closed = run.is_some_and(|run| run.state == RunState::Closed);
        let events = run.and_then(RunRecord::counted_events);
        let Some(StreamVersion { name, version, definition, .. }) = stream else {
            let making = Making { kind, ..Making::default() };
            return Ok(Terms { is_closed, events, making, ..Terms::default() });
        };
        let StreamDefinition { sources, format, priority, destination, block, .. } = definition;
        let kind = match (kind, format.as_str()) {
            (Some(_), _) | (None, "") => kind,
            (None, text) => Some(EventKind::from_name(text).ok_or_else(|| TermsError {
                stream: name.clone(),
                version: *version,
                format: text.to_owned(),
            })?),
        };
        let began_unix_ns = run.and_then(|run| run.started.as_ref()).map_or(0, |started| started.at_unix_ns);
        Ok(Terms {
            version: *version,
            making: Making { sources: sources.clone(), kind },
            destination: destination.clone(),
            priority: *priority,
            blocks: match *block {
                BlockRule::Run => Blocks::Run,
                BlockRule::Events(events) => Blocks::Events(events.max(1)),
                BlockRule::Seconds(length_s) => Blocks::Seconds {
                    length_s: length_s.max(1),
                    began_unix_us: u64::try_from(began_unix_ns / 1000).unwrap_or(0),
                },
            },
            is_closed,
            events,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_by_number_or_by_time() {
        let of = |blocks: Blocks, event, taken| blocks.of(EventId(event), taken);
        assert_eq!(of(Blocks::Run, 7, Some(1)), None);
        assert_eq!([0, 99, 100, 250].map(|event| of(Blocks::Events(100), event, None)), [1, 1, 2, 3].map(Some));
        let seconds = Blocks::Seconds { length_s: 60, began_unix_us: 1_000_000_000 };
        let taken = [None, Some(999_999_999), Some(1_000_000_000), Some(1_059_999_999), Some(1_060_000_000)];
        assert_eq!(taken.map(|taken| of(seconds, 7, taken)), [0, 0, 1, 1, 2].map(Some));
        assert!(!Blocks::Run.are_past(1, 9) && Blocks::Events(1).are_past(1, 2));
        assert!(!seconds.are_past(1, 2) && seconds.are_past(1, 3));
    }

    #[test]
    fn a_part_of_the_sources_has_the_frame_and_the_number() {
        let making = Making { sources: "3-4".parse().expect("sources"), kind: None };
        let odin = SourceId(16 << 16);
        let taken = |source, format| making.takes(SourceId(source), format);
        assert!(taken(3, None) && taken(4, Some(Format::Faser)) && !taken(5, Some(Format::Mdf)));
        assert!(making.takes(SourceId::EVENT_FRAME, None) && making.takes(odin, Some(Format::Mdf)));
        assert!(!making.takes(odin, Some(Format::Faser)) && Making::default().takes(SourceId(5), None));
    }

    #[test]
    fn a_format_that_nobody_knows_is_told() {
        let definition = StreamDefinition { format: "hdf5".to_owned(), ..StreamDefinition::default() };
        let name = "physics".parse().expect("a name");
        let version = StreamVersion { name, version: 3, at_unix_ns: 0, by: String::new(), definition };
        let of_run = OfRun { run: None, stream: Some(version) };
        let told = Terms::of(&of_run, None).expect_err("it is none").to_string();
        let said = Terms::of(&of_run, Some(EventKind::Plain)).expect("a format is said");
        assert_eq!((said.making.kind, said.version), (Some(EventKind::Plain), 3));
        assert!(told.contains("hdf5") && told.contains("faser, mdf, besiii, plain, parts"), "{told}");
    }
}
