//! Why something is not done. Whatever is refused has changed nothing.

use forebay_types::limits::{
    BOOKS_BYTES_MAX, PERSON_BYTES_MAX, REASON_BYTES_MAX, RUNS_MAX, STREAM_VERSIONS_MAX, STREAMS_MAX,
};
use forebay_types::{ParseStreamError, RunCounts, RunId, RunState, StreamName};

/// Why something is not done with a run or a stream. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No run has this number.
    #[error(
        "run {0} is no number of a run that can be declared: 0 stands for no run, and 4294967295 is kept for files. Take another number"
    )]
    NoRunNumber(RunId),
    /// Nobody declared it.
    #[error(
        "run {0} was never declared, and nothing was changed. `forebay run declare {0} --sources LIST` declares a run before its data come; one whose data came \
         undeclared goes on without"
    )]
    NotDeclared(RunId),
    /// The number was used.
    #[error(
        "run {run} was declared before and is {state}: a number is used once, and nothing was changed. Take another number; `forebay run show {run}` tells of this one"
    )]
    Used {
        /// The run.
        run: RunId,
        /// How far it is.
        state: RunState,
    },
    /// There are events of it.
    #[error(
        "the store knows {} events of run {run} already ({} of them over): a number is used once, and nothing was changed. Take another number",
        counts.events,
        counts.finished
    )]
    HasEvents {
        /// The run.
        run: RunId,
        /// What is known.
        counts: RunCounts,
    },
    /// It must be in another state for that.
    #[error("run {run} is {state} and cannot be {wanted}: nothing was changed. {}", advice(*run, *state, wanted))]
    State {
        /// The run.
        run: RunId,
        /// How far it is.
        state: RunState,
        /// What was asked for.
        wanted: &'static str,
    },
    /// What the store knows is not what was counted.
    #[error("run {run} was not closed: {}. {}", difference(*expected, counts), what_to_do(*run, *expected, counts))]
    Differs {
        /// The run.
        run: RunId,
        /// What the run control counted.
        expected: Option<u64>,
        /// What the store knows.
        counts: RunCounts,
    },
    /// It is held.
    #[error("run {run} is held{}: nothing was changed. `forebay run hold {run} --end` ends that", by_whom(by))]
    Held {
        /// The run.
        run: RunId,
        /// By whom.
        by: String,
    },
    /// It is not held.
    #[error("run {0} is not held: nothing was changed")]
    NotHeld(RunId),
    /// It needs a reason.
    #[error("a run is not {0} without a reason: nothing was changed. Give one (`--reason TEXT`)")]
    NoReason(&'static str),
    /// No sources.
    #[error(
        "run {0} is declared with the sources that it is expected to have, and none were given: nothing was changed"
    )]
    NoSources(RunId),
    /// Somebody else was faster.
    #[error(
        "run {0} was changed by somebody else at the same time: nothing was changed by this. Look at it (`forebay run show {0}`) and ask again"
    )]
    Changed(RunId),
    /// The same of a stream.
    #[error(
        "stream {0} was defined by somebody else at the same time: nothing was changed by this. Look at it (`forebay stream show {0}`) and ask again"
    )]
    Defined(StreamName),
    /// A text is too long, or has what no text should have.
    #[error("{what} has at most {max} bytes and no control characters: nothing was changed. Make it shorter")]
    Text {
        /// Which.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A definition that means nothing.
    #[error("{0}. Nothing was changed")]
    Definition(#[from] ParseStreamError),
    /// As many runs as there may be.
    #[error(
        "the books of this store have {RUNS_MAX} runs, which is all that they can have, as no number may be used twice: nothing was changed. Data of runs that are \
         not declared are taken as before; a new store begins with empty books"
    )]
    TooManyRuns,
    /// As much as there may be.
    #[error(
        "the books of runs and streams take {BOOKS_BYTES_MAX} bytes of memory, which is all that they may: nothing was changed. Runs that are there can be started, stopped, closed and discarded"
    )]
    BooksFull,
    /// As many streams as there may be.
    #[error(
        "a store has {STREAMS_MAX} streams at most, and so many are defined: nothing was changed. Define one of these anew (`forebay stream list`)"
    )]
    TooManyStreams,
    /// As many versions as there may be.
    #[error(
        "stream {0} has {STREAM_VERSIONS_MAX} versions, which is all that it can have: nothing was changed. Define one with another name"
    )]
    TooManyVersions(StreamName),
    /// The memory of names is used up.
    #[error(
        "the memory for files, names, runs and streams (`index-bytes`) is used up: nothing was changed. Remove files, or give more at the next start; runs that are there can be stopped, closed and discarded"
    )]
    IndexFull,
    /// The store is full.
    #[error(
        "the store is full: nothing was changed. Runs that are there can be stopped, closed and discarded; `forebay status` says what takes the room"
    )]
    NoSpace,
}

impl Refusal {
    /// A person whose name is no name.
    pub(crate) const PERSON: Refusal = Refusal::Text { what: "the name of a person", max: PERSON_BYTES_MAX };
    /// A reason that is none.
    pub(crate) const REASON: Refusal = Refusal::Text { what: "a reason", max: REASON_BYTES_MAX };
}

fn by_whom(by: &str) -> String {
    if by.is_empty() { String::new() } else { format!(" by {by}") }
}

/// What can be done with a run in a state when it was to be something else.
fn advice(run: RunId, state: RunState, wanted: &str) -> String {
    match state {
        RunState::Declared => format!(
            "It was not started: `forebay run start {run}`, or `forebay run discard {run}` when it is not wanted any more"
        ),
        RunState::Running => format!("Stop it first: `forebay run stop {run}`"),
        RunState::Stopped if wanted == "started" => "A run is started once: declare another one".to_owned(),
        RunState::Stopped => format!("It was stopped before: `forebay run close {run}` is next"),
        RunState::Closed => format!("Nothing more comes to it; `forebay run discard {run}` deletes what is left of it"),
        RunState::Discarded => "That is for ever".to_owned(),
    }
}

fn difference(expected: Option<u64>, counts: &RunCounts) -> String {
    let RunCounts { events, undecided, .. } = counts;
    match expected {
        None => format!(
            "nobody said how many events it has; the store knows {events} of them, {undecided} of these undecided"
        ),
        Some(expected) => {
            format!(
                "the run control counted {expected} events, the store knows {events} of them, {undecided} of these undecided"
            )
        }
    }
}

fn what_to_do(run: RunId, expected: Option<u64>, counts: &RunCounts) -> String {
    let RunCounts { events, undecided, .. } = *counts;
    let accept = format!("`forebay run close {run} --accept-difference REASON` closes it as it is, signed by you");
    match expected {
        Some(expected) if events < expected => {
            let missing = expected - events;
            format!("{missing} have not arrived: see whether readout still has them, and ask again. {accept}")
        }
        Some(expected) if events > expected => {
            format!(
                "{} more arrived than were counted: see whether another run used this number. {accept}",
                events - expected
            )
        }
        Some(_) => format!("{undecided} wait for filters: see that these run, and ask again. {accept}"),
        None => accept,
    }
}
