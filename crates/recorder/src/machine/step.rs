//! What the machine asks for, what it is answered, and what it tells.

use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_mover::events::{Assembled, EventKind};
use forebay_types::{DecideOutcome, EventKey, RunId, Time};

use crate::digest::Digest;
use crate::journal::Line;
use crate::names::FileName;
use crate::sidecar::Sidecar;

/// What the driver does next. Names are those of [`FileName`], in the directory of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait until then, or until something is asked of the machine.
    Wait {
        /// When to go on.
        until: Time,
    },
    /// Ask the store for accepted events.
    List {
        /// Behind this one.
        after: Option<EventKey>,
        /// At most so many.
        max: u32,
    },
    /// Fetch events and keep what they are assembled to until the next `Fetch`.
    Fetch {
        /// Which.
        events: Vec<AcceptedEvent>,
    },
    /// Create the file under its `.part` name, with what files of its kind start with ([`FileName::container`]).
    Create {
        /// The file.
        file: FileName,
    },
    /// Append events to the file, each behind what files of its kind hold before an event.
    Append {
        /// The file, still under its `.part` name.
        file: FileName,
        /// Their places among those fetched last.
        events: Vec<usize>,
    },
    /// End the `.part` file as files of its kind end, and make its content durable.
    Sync {
        /// The file.
        file: FileName,
    },
    /// Rename the `.part` file to its final name.
    Publish {
        /// The file.
        file: FileName,
    },
    /// Make names durable.
    SyncDirectory,
    /// Read the file under its final name, past the page cache.
    ReadBack {
        /// The file.
        file: FileName,
        /// It is announced, and its events may be released: a drive that gives an error instead of bytes is
        /// trouble of the directory then, and says nothing of the file. Otherwise it is [`ReadBack::Unreadable`].
        announced: bool,
    },
    /// Append a line to the journal and make it durable.
    Journal {
        /// The line.
        line: Box<Line>,
    },
    /// Replace the journal by these lines, durably and in one step.
    RewriteJournal {
        /// The lines.
        lines: Vec<Line>,
    },
    /// Write the sidecar under its `.part` name and make its content durable.
    WriteSidecar {
        /// The sidecar.
        sidecar: Box<Sidecar>,
    },
    /// Rename the sidecar to its final name.
    PublishSidecar {
        /// The file.
        file: FileName,
    },
    /// Release events for this stream.
    Release {
        /// Which.
        events: Vec<EventKey>,
    },
    /// Rename the file to its `.bad` name, if it is there, and remove its sidecar, complete or not.
    SetAside {
        /// The file.
        file: FileName,
    },
    /// Remove this entry of the directory.
    Remove {
        /// The entry.
        name: String,
    },
    /// The end; see [`super::Machine::end`].
    Finish,
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// `List`: the page.
    Page(AcceptedPage),
    /// `Fetch`: what became of each event, in their order.
    Fetched(Vec<Fetched>),
    /// `Journal`, `RewriteJournal`: it is done, and the journal has so many bytes now.
    Journaled(u64),
    /// `Sync`: what the file holds.
    Synced(Digest),
    /// `ReadBack`: what is there.
    ReadBack(ReadBack),
    /// `Release`: an outcome for each event, in their order.
    Released(Vec<DecideOutcome>),
    /// `List`, `Fetch`, `Release`: the store gives no answer now. The step comes again.
    Busy {
        /// What the store or the client said.
        message: String,
    },
}

/// What became of an event that was to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It can be appended.
    Event {
        /// To a file of this kind.
        kind: EventKind,
        /// Whether its bytes hold its number.
        numbered: bool,
        /// Whether fragments are missing.
        incomplete: bool,
        /// How many of its fragments the store has lost.
        lost: u64,
        /// Its size.
        bytes: u64,
    },
    /// The store does not have it any more.
    Gone,
    /// It cannot be read for now.
    Unavailable,
}

impl From<&Assembled> for Fetched {
    fn from(assembled: &Assembled) -> Fetched {
        match assembled {
            Assembled::Event(event) => Fetched::Event {
                kind: event.kind,
                numbered: event.numbered,
                incomplete: event.incomplete,
                lost: event.fragments_lost,
                bytes: event.bytes.len() as u64,
            },
            Assembled::Gone => Fetched::Gone,
            Assembled::Unavailable => Fetched::Unavailable,
        }
    }
}

/// What was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// A file of good events.
    File {
        /// Of its bytes.
        digest: Digest,
        /// How many events.
        events: u64,
    },
    /// A file that does not read as events, or not at all.
    Unreadable {
        /// What is wrong.
        message: String,
    },
    /// No such file.
    Missing,
}

/// Something that happened and that people want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A file is complete, verified and announced, and its events are released.
    Shipped {
        /// What it holds.
        sidecar: Box<Sidecar>,
        /// Fragments of its events that the store has lost, as far as this start wrote them.
        lost: u64,
    },
    /// A file did not come back as it was written, and is kept under its `.bad` name.
    Mismatch {
        /// The file.
        file: FileName,
        /// What was written.
        expected: Digest,
        /// What came back.
        found: String,
        /// It was announced by an earlier start: the store may have released some of its events already,
        /// and these are in this file alone.
        announced: bool,
    },
    /// A file was announced before the start and is no longer there: whoever took it has its events.
    TakenAway(FileName),
    /// A remnant of an interrupted start was removed; its events come again.
    Removed(String),
    /// A file that is not in the journal; it is left alone.
    Unknown(FileName),
    /// The journal ended in a torn line of so many bytes: what it would have said has not happened.
    JournalTorn(u64),
    /// The store did not know so many events of a file as accepted into this stream.
    NotKnown {
        /// The file.
        file: FileName,
        /// How many.
        events: u64,
        /// The first of them.
        first: EventKey,
    },
    /// The store had forgotten so many events of a file for this stream before they were released the first time.
    ReleasedBefore {
        /// The file.
        file: FileName,
        /// How many.
        events: u64,
        /// The first of them.
        first: EventKey,
    },
    /// The store answers to the release of the events of a file, and does not take it; it is asked again.
    NotTaken {
        /// The file.
        file: FileName,
        /// What it answers.
        outcome: DecideOutcome,
    },
    /// So many events cannot be read for now.
    Unavailable(u64),
    /// So many events are listed as accepted, and the store does not find them.
    Gone(u64),
}

/// Why the machine gave up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Too many files in a row did not come back as they were written.
    #[error(
        "{files} files in a row did not come back as they were written, the last is {file}: expected {expected}, found {found}. \
         The files are kept under names that end in .bad. {}. Check the disk under the directory, then start again",
        released_before(.announced)
    )]
    Mismatch {
        /// How many.
        files: u32,
        /// The last.
        file: FileName,
        /// What was written to it.
        expected: Digest,
        /// What came back.
        found: String,
        /// Those of them that an earlier start announced: the store may have released events of theirs.
        announced: Vec<FileName>,
    },
    /// The store gave no answer.
    #[error(
        "the store gave no answer for {waited:.0?}: {message}. What was released is recorded and verified; start again to record the rest"
    )]
    Silent {
        /// How long.
        waited: Duration,
        /// The last words.
        message: String,
    },
    /// The store answered, but took no release.
    #[error(
        "the store released no event of {file} for {waited:.0?}, it answers: {outcome}. The file is complete and announced, and its events \
         are still in the store too; when the store takes releases again, start again to finish"
    )]
    NotTaken {
        /// The file whose events were to be released.
        file: FileName,
        /// How long.
        waited: Duration,
        /// What it answers.
        outcome: DecideOutcome,
    },
    /// The store is served read-only.
    #[error(
        "the store is served read-only, so the events of {file} cannot be released. The file is complete and announced, and its events \
         are still in the store too. Start the server for writing, then start again to finish"
    )]
    ReadOnly {
        /// The file whose events were to be released.
        file: FileName,
    },
    /// Events cannot be read for now.
    #[error(
        "{events} accepted events cannot be read for now: too few of the drives that hold them answer, or the store lists them and does \
         not find them. They were not released and stay in the store; bring the drives back, then start again"
    )]
    Unavailable {
        /// How many.
        events: u64,
    },
    /// The largest sequence number is used.
    #[error(
        "the directory holds a file of run {run} with the number {}, the largest there is: there is no name for the next file. Nothing of \
         the run was released since. Move that file away, or record into another directory",
        u32::MAX
    )]
    NoNumberLeft {
        /// The run.
        run: RunId,
    },
}

fn released_before(announced: &[FileName]) -> String {
    match announced {
        [] => "None of their events was released, the store still holds them".to_owned(),
        files => {
            let names: Vec<String> = files.iter().map(FileName::bad).collect();
            format!(
                "Events that the store released before the last stop are in {} alone: keep them; all others are still in the store",
                names.join(", ")
            )
        }
    }
}

impl MachineError {
    /// Whether the same may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, MachineError::Silent { .. } | MachineError::NotTaken { .. } | MachineError::Unavailable { .. })
    }

    /// Whether something must be asked for in another way, and no data is in danger: exit code 2.
    pub const fn is_usage(&self) -> bool {
        matches!(self, MachineError::ReadOnly { .. } | MachineError::NoNumberLeft { .. })
    }
}
