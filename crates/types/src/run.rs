//! Runs and streams as objects of a store: what is declared of a run, what became of it, and what a stream is defined to be.

mod sources;
mod stream;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{RunId, StreamName};
pub use sources::{ParseSourcesError, SourceFragments, SourceSet};
pub use stream::{BlockRule, ParseStreamError, StreamDefinition, StreamSources, StreamVersion};

/// How far a run is. The numbers are stored, and are never given another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum RunState {
    /// Its number is taken, and its sources are known.
    Declared = 1,
    /// Data are taken.
    Running = 2,
    /// No more data are taken; fragments may still be on their way.
    Stopped = 3,
    /// All of it is there, or somebody signed the difference off: no fragment of it is taken any more.
    Closed = 4,
    /// Nothing of it is wanted: what is left of it goes, and no fragment of it is taken any more.
    Discarded = 5,
}

impl RunState {
    /// Every state, in the order of their numbers.
    pub const ALL: &[RunState] =
        &[RunState::Declared, RunState::Running, RunState::Stopped, RunState::Closed, RunState::Discarded];

    /// The number that is stored.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state with this number.
    pub fn from_code(code: u8) -> Option<RunState> {
        RunState::ALL.iter().copied().find(|state| state.code() == code)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunState::Declared => "declared",
            RunState::Running => "running",
            RunState::Stopped => "stopped",
            RunState::Closed => "closed",
            RunState::Discarded => "discarded",
        })
    }
}

/// That something was done with a run: when, by whom, and why, as far as they said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// When the server took it, in nanoseconds since 1970.
    pub at_unix_ns: i64,
    /// Who did it, as they said; empty when they did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, as they said; empty when they did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A run that is, or was, held: nothing of it is freed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHold {
    /// Its beginning.
    pub begun: RunStep,
    /// Its end; `None` while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RunStep>,
}

/// How many events of a run a store knows, over all of its lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// Events that are known: undecided, accepted or finished.
    pub events: u64,
    /// Of these, not decided.
    pub undecided: u64,
    /// Of these, over: rejected, deleted, or released by all of their streams.
    pub finished: u64,
}

impl RunCounts {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: RunCounts) -> RunCounts {
        RunCounts {
            events: self.events.saturating_add(other.events),
            undecided: self.undecided.saturating_add(other.undecided),
            finished: self.finished.saturating_add(other.finished),
        }
    }
}

/// All that is kept of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// How far it is.
    pub state: RunState,
    /// How often it was changed, its declaration included.
    pub changes: u32,
    /// The sources that it is expected to have.
    pub sources: SourceSet,
    /// When it was declared.
    pub declared: RunStep,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<RunStep>,
    /// When it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<RunStep>,
    /// When it was closed. A reason says why a difference was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<RunStep>,
    /// When it was discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<RunStep>,
    /// The newest hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<RunHold>,
    /// Events that the run control counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_events: Option<u64>,
    /// Fragments that it counted, by source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_fragments: Vec<SourceFragments>,
    /// What the store counted when it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<RunCounts>,
    /// The streams that were defined when it was started, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<RunStream>,
}

impl RunRecord {
    /// One whose number was just taken.
    pub const fn declared(run: RunId, sources: SourceSet, step: RunStep) -> RunRecord {
        RunRecord {
            run,
            state: RunState::Declared,
            changes: 1,
            sources,
            declared: step,
            started: None,
            stopped: None,
            closed: None,
            discarded: None,
            hold: None,
            expected_events: None,
            expected_fragments: Vec::new(),
            counted: None,
            streams: Vec::new(),
        }
    }

    /// How many events it has: as its run control counted, or as the store did when a person signed another number off. None before it is stopped.
    pub fn counted_events(&self) -> Option<u64> {
        self.expected_events.max(self.counted.map(|counted| counted.events))
    }

    /// Whether nothing of it may be freed now.
    pub fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.ended.is_none())
    }
}

/// A stream of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStream {
    /// Its name.
    pub name: StreamName,
    /// The version of its definition.
    pub version: u32,
}

/// What is to be done with a run. The numbers are those of the wire, and are never given another meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// Takes the number, for a run of these sources.
    Declare {
        /// The sources.
        sources: SourceSet,
    },
    /// Data are taken from now on.
    Start,
    /// No more data are taken.
    Stop {
        /// Events that the run control counted, if it did.
        events: Option<u64>,
        /// Fragments that it counted by source, ascending.
        fragments: Vec<SourceFragments>,
    },
    /// All of it is there; `accept_difference`: also when it is not, for the reason that is given.
    Close {
        /// Whether a difference is signed off.
        accept_difference: bool,
    },
    /// Nothing of it is freed from now on.
    Hold,
    /// What is to go may go again.
    EndHold,
    /// What is left of it is deleted.
    Discard,
}

impl RunChange {
    /// The number on the wire.
    pub const fn code(&self) -> u8 {
        match self {
            RunChange::Declare { .. } => 1,
            RunChange::Start => 2,
            RunChange::Stop { .. } => 3,
            RunChange::Close { .. } => 4,
            RunChange::Hold => 5,
            RunChange::EndHold => 6,
            RunChange::Discard => 7,
        }
    }
}

/// Something that is asked of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The run.
    pub run: RunId,
    /// How often the run had been changed when whoever asks looked at it; 0: it was not declared. It is changed only when that is so still.
    pub changes: u32,
    /// A number that no other request has. One that is repeated has the same, and is done once.
    pub token: u64,
    /// Who asks; may be empty. At most [`crate::limits::PERSON_BYTES_MAX`] bytes.
    pub by: String,
    /// Why; may be empty where no reason is demanded. At most [`crate::limits::REASON_BYTES_MAX`] bytes.
    pub reason: String,
    /// What is to be done.
    pub what: RunChange,
}

/// A definition of a stream that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The stream.
    pub name: StreamName,
    /// The newest version when whoever asks looked; 0: it was not defined. It is defined only when that is so still.
    pub version: u32,
    /// As [`RunRequest::token`].
    pub token: u64,
    /// As [`RunRequest::by`].
    pub by: String,
    /// What the stream is from then on.
    pub definition: StreamDefinition,
}

/// Whether a lane takes fragments of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPuts {
    /// It does.
    #[default]
    Taken,
    /// Not now, perhaps later: what becomes of the run is being found out.
    Wait,
    /// Not any more: the run is closed. What the lane knows already is answered as ever.
    Closed,
    /// Not any more: the run is discarded.
    Discarded,
}

/// What a lane must know of a run that somebody declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRule {
    /// Whether fragments are taken.
    pub puts: RunPuts,
    /// Nothing is freed by releases and deletions.
    pub is_held: bool,
    /// Of each of these streams one event in so many is kept.
    pub prescales: Arc<[(StreamName, u32)]>,
}

impl RunRule {
    /// Whether it says nothing: a run of which a lane knows nothing has this one.
    pub fn is_empty(&self) -> bool {
        self.puts == RunPuts::Taken && !self.is_held && self.prescales.is_empty()
    }
}

/// Whether a prescale of one event in `prescale` keeps an event with this number. It is the same for whoever asks, and however often.
pub const fn is_prescaled_in(event: crate::EventId, prescale: u32) -> bool {
    prescale <= 1 || event.0.is_multiple_of(prescale as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;

    #[test]
    fn states_read_back() {
        for (place, state) in RunState::ALL.iter().enumerate() {
            assert_eq!((usize::from(state.code()), RunState::from_code(state.code())), (place + 1, Some(*state)));
        }
        assert_eq!((RunState::from_code(0), RunState::from_code(6)), (None, None));
    }

    #[test]
    fn a_prescale_keeps_one_event_in_so_many() {
        let kept = |prescale| (0..1000).filter(|event| is_prescaled_in(EventId(*event), prescale)).count();
        assert_eq!((kept(0), kept(1), kept(10), kept(1000)), (1000, 1000, 100, 1));
    }
}
