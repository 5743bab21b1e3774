//! The recorder of one stream as a machine: it decides every step, and does none.
//!
//! The driver asks [`Machine::next`] for a step, does it, and tells [`Machine::complete`] how it went. A
//! step that fails for a reason of the directory (full, read-only, broken) is never completed: the driver
//! drops the machine and starts a new one from what the directory then holds, exactly as after a crash.
//! So there is one way to go on after trouble, and the tests take it after every single step.
//!
//! The life of a file, each line durable before the next begins:
//!
//! ```text
//! create .NAME.part, append, sync          nothing knows of it; removed after a crash
//! rename to NAME, sync directory           still unannounced; removed after a crash
//! read back past the page cache, compare   otherwise NAME.bad, and its events come again
//! journal: announce                        from here on it is kept and finished after a crash
//! write .NAME.json.part, sync, rename to NAME.json, sync directory
//! release the events                       the store may forget them for this stream
//! journal: released
//! ```

mod closing;
mod recovery;
mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_types::{DecideOutcome, EventKey, RunId, StoreUuid, StreamName, Time};

use crate::digest::Digest;
use crate::journal::{JOURNAL_REWRITE_BYTES, Ledger, Line};
use crate::names::{FileName, Kind};
use crate::sidecar::Sidecar;

use closing::Closing;
pub use recovery::{Found, StartError};
use walk::Walk;

/// Files of a stream that are written at the same time, one for each run and kind.
const OPEN_FILES_MAX: usize = 16;
/// Events that are fetched at once.
const FETCH_EVENTS_MAX: usize = 512;
/// The wait before a step is tried again that the store could not serve.
const RETRY: Duration = Duration::from_secs(1);

/// What the machine is told at the start.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// The stream.
    pub stream: StreamName,
    /// The store that the events come from.
    pub store: StoreUuid,
    /// A file is closed before it would grow larger, in bytes; one event alone may be larger.
    pub file_bytes: u64,
    /// A file that gets no event for so long is closed.
    pub close_after: Duration,
    /// An event that is not decided holds the accepted ones behind it back for so long at most.
    pub order_wait: Duration,
    /// The time between two looks at what is accepted.
    pub poll: Duration,
    /// Bytes that are fetched at once; one event alone may be larger.
    pub fetch_bytes: u64,
    /// End when nothing accepted is left.
    pub once: bool,
    /// With `once`: how long the store may be silent, or fragments unavailable, before it is given up.
    pub patience: Duration,
    /// How many files in a row may come back other than they were written before it is given up.
    pub mismatches_max: u32,
}

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
    /// Create the file under its `.part` name.
    Create {
        /// The file.
        file: FileName,
    },
    /// Append events to the file.
    Append {
        /// The file, still under its `.part` name.
        file: FileName,
        /// Their places among those fetched last.
        events: Vec<usize>,
    },
    /// Make the content of the `.part` file durable.
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
    /// Rename the file to its `.bad` name, and remove its sidecar.
    SetAside {
        /// The file.
        file: FileName,
    },
    /// Remove this entry of the directory.
    Remove {
        /// The entry.
        name: String,
    },
    /// The end; see [`Machine::end`].
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
    /// `Sync`: what was appended.
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
        kind: Kind,
        /// Whether its bytes hold its number.
        numbered: bool,
        /// Whether fragments are missing.
        incomplete: bool,
        /// Its size in the file.
        bytes: u64,
    },
    /// It is no longer accepted.
    Gone,
    /// It cannot be read for now.
    Unavailable,
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
    Shipped(Box<Sidecar>),
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
    /// Files that are not in the journal; they are left alone.
    Unknown(FileName),
    /// The store said for so many events of a file that they were decided otherwise.
    NotReleased {
        /// The file.
        file: FileName,
        /// How many.
        events: u64,
    },
    /// So many events cannot be read for now.
    Unavailable(u64),
}

/// Why the machine gave up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Too many files in a row did not come back as they were written.
    #[error(
        "{files} files in a row did not come back as they were written, the last is {file}: expected {expected}, found {found}. \
         The files are kept under names that end in .bad; none of their events was released, the store still \
         holds them. Check the disk under the directory, then start again"
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
    /// Events cannot be read for now.
    #[error(
        "{events} accepted events cannot be read for now: too few of the drives that hold them answer. They were not released and \
         stay in the store; bring the drives back, then start again"
    )]
    Unavailable {
        /// How many.
        events: u64,
    },
}

impl MachineError {
    /// Whether the same may succeed later.
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, MachineError::Mismatch { .. })
    }
}

/// Where an event goes: the run, the kind, and whether its bytes hold its number.
type Target = (RunId, Kind, bool);

/// A file that grows.
struct OpenFile {
    name: FileName,
    bytes: u64,
    events: u64,
    /// Ascending; both ends included.
    ranges: Vec<[u64; 2]>,
    incomplete: Vec<u64>,
    last_append: Time,
}

impl OpenFile {
    fn last_event(&self) -> Option<u64> {
        self.ranges.last().map(|range| range[1])
    }

    fn takes(&self, event: &Waiting, file_bytes: u64) -> bool {
        let ascends = self.last_event().is_none_or(|last| last < event.key.event.0);
        ascends && (self.events == 0 || self.bytes.saturating_add(event.bytes) <= file_bytes)
    }

    fn append(&mut self, event: &Waiting, now: Time) {
        let number = event.key.event.0;
        assert!(self.last_event().is_none_or(|last| last < number), "the events of {} ascend", self.name);
        match self.ranges.last_mut() {
            Some(range) if range[1].checked_add(1) == Some(number) => range[1] = number,
            _ => self.ranges.push([number, number]),
        }
        if event.incomplete {
            self.incomplete.push(number);
        }
        self.events += 1;
        self.bytes += event.bytes;
        self.last_append = now;
    }
}

/// An event that was fetched and is not yet appended.
struct Waiting {
    place: usize,
    key: EventKey,
    target: Target,
    incomplete: bool,
    bytes: u64,
}

/// The recorder of one stream.
pub struct Machine {
    config: MachineConfig,
    ledger: Ledger,
    /// What the start must do before anything else.
    chores: VecDeque<Step>,
    /// Files that were announced and not released, each with whether its sidecar is there.
    adopt: VecDeque<(Sidecar, bool)>,
    open: BTreeMap<Target, OpenFile>,
    closing: Option<Closing>,
    /// Fetched, in their order.
    waiting: VecDeque<Waiting>,
    walk: Walk,
    /// In a file that is not released: still listed by the store.
    taken: BTreeSet<EventKey>,
    outstanding: Option<Step>,
    notices: Vec<Notice>,
    retry_at: Option<Time>,
    busy_since: Option<Time>,
    unavailable_since: Option<Time>,
    /// Files in a row that did not come back.
    mismatches: u32,
    journal_bytes: u64,
    /// The size of the journal after it was last rewritten.
    journal_rewritten_bytes: u64,
    stopping: bool,
    end: Option<Result<(), MachineError>>,
}

impl Machine {
    /// Finish the files that are open, then end, whatever else is accepted.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// End when nothing accepted is left, as with `once`.
    pub fn drain(&mut self) {
        self.config.once = true;
    }

    /// How it ended, once the step is [`Step::Finish`].
    pub fn end(&self) -> Option<&Result<(), MachineError>> {
        self.end.as_ref()
    }

    /// What happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The next step. It must be completed before the next one is asked for; `Wait` and `Finish` are not
    /// completed.
    pub fn next(&mut self, now: Time) -> Step {
        assert!(self.outstanding.is_none(), "a step at a time: {:?} is not completed", self.outstanding);
        let step = self.decide(now);
        if !matches!(step, Step::Wait { .. } | Step::Finish) {
            self.outstanding = Some(step.clone());
        }
        step
    }

    /// The step given last is done.
    pub fn complete(&mut self, now: Time, reply: Reply) {
        let step = self.outstanding.take().expect("a step is completed once");
        if let Reply::Busy { message } = reply {
            self.busy(now, &step, message);
            return;
        }
        if matches!(step, Step::List { .. } | Step::Fetch { .. }) {
            self.busy_since = None;
        }
        let reply = match reply {
            Reply::Journaled(bytes) => {
                self.journal_bytes = bytes;
                if matches!(step, Step::RewriteJournal { .. }) {
                    self.journal_rewritten_bytes = bytes;
                }
                Reply::Done
            }
            reply => reply,
        };
        match (step, reply) {
            (Step::List { .. }, Reply::Page(page)) => {
                let taken = &self.taken;
                self.walk.page(page, &self.config, |key| taken.contains(key));
            }
            (Step::Fetch { events }, Reply::Fetched(fetched)) => self.fetched(&events, &fetched),
            (Step::Create { file }, Reply::Done) => self.created(file, now),
            (Step::Append { file, events }, Reply::Done) => self.appended(file, events.len(), now),
            (step, reply) if self.closing.is_some() => self.closing_done(now, &step, reply),
            (Step::Remove { name }, Reply::Done) => self.notices.push(Notice::Removed(name)),
            (Step::Journal { .. } | Step::RewriteJournal { .. } | Step::SetAside { .. } | Step::SyncDirectory, _) => {}
            (step, reply) => panic!("{reply:?} is no reply to {step:?}"),
        }
    }

    fn decide(&mut self, now: Time) -> Step {
        if self.end.is_some() {
            return Step::Finish;
        }
        if let Some(until) = self.retry_at.filter(|until| *until > now) {
            // Whatever is announced and not released is finished at the next start.
            return if self.stopping { self.finish(Ok(())) } else { Step::Wait { until } };
        }
        self.retry_at = None;
        if let Some(step) = self.chores.pop_front() {
            return step;
        }
        if let Some(step) = self.closing_step().or_else(|| self.adopt_next()) {
            return step;
        }
        if let Some(step) = self.shorten_journal().or_else(|| self.place_waiting()) {
            return step;
        }
        let nothing_left = self.waiting.is_empty() && self.walk.found_nothing(&self.config);
        if self.stopping || nothing_left {
            return match self.open.keys().next().copied() {
                Some(target) => self.begin_closing(target),
                None => self.finish(Ok(())),
            };
        }
        if let Some(target) = self.due_for_closing(now) {
            return self.begin_closing(target);
        }
        if let Some(error) = self.out_of_patience(now) {
            return self.finish(Err(error));
        }
        if let Some(events) = self.walk.take_batch(self.config.fetch_bytes) {
            return Step::Fetch { events };
        }
        let idle_until = self.open.values().map(|file| file.last_append + self.config.close_after).min();
        match self.walk.next(now, &self.config) {
            Step::Wait { until } => Step::Wait { until: idle_until.map_or(until, |idle| idle.min(until)) },
            step => step,
        }
    }

    /// Between two files, when most of the journal is about what is over.
    fn shorten_journal(&self) -> Option<Step> {
        let long = self.journal_bytes > JOURNAL_REWRITE_BYTES && self.journal_bytes / 2 > self.journal_rewritten_bytes;
        // Released files may have been taken away since; those that have leave the journal at the next start.
        long.then(|| Step::RewriteJournal { lines: self.ledger.rewritten(&self.ledger.all_over()) })
    }

    fn finish(&mut self, end: Result<(), MachineError>) -> Step {
        self.end = Some(end);
        Step::Finish
    }

    /// The store gives no answer: the same step again, later.
    fn busy(&mut self, now: Time, step: &Step, message: String) {
        let since = *self.busy_since.get_or_insert(now);
        self.retry_at = Some(now + RETRY);
        if let Step::Fetch { events } = step {
            self.walk.put_back(events);
        }
        if self.config.once && now.since(since) >= self.config.patience {
            self.end = Some(Err(MachineError::Silent { waited: now.since(since), message }));
        }
    }

    fn out_of_patience(&mut self, now: Time) -> Option<MachineError> {
        let Some(events) = self.walk.only_unavailable()? else {
            self.unavailable_since = None;
            return None;
        };
        let since = *self.unavailable_since.get_or_insert(now);
        let over = self.config.once && now.since(since) >= self.config.patience;
        over.then_some(MachineError::Unavailable { events })
    }

    fn fetched(&mut self, events: &[AcceptedEvent], fetched: &[Fetched]) {
        assert_eq!(events.len(), fetched.len(), "an answer for each event");
        let mut unavailable = 0;
        for (place, (event, fetched)) in events.iter().zip(fetched).enumerate() {
            match *fetched {
                Fetched::Event { kind, numbered, incomplete, bytes } => self.waiting.push_back(Waiting {
                    place,
                    key: event.key,
                    target: (event.key.run, kind, numbered),
                    incomplete: incomplete || event.incomplete,
                    bytes,
                }),
                Fetched::Gone => {}
                Fetched::Unavailable => unavailable += 1,
            }
        }
        if unavailable > 0 {
            self.walk.saw_unavailable(unavailable);
            self.notices.push(Notice::Unavailable(unavailable));
        }
    }

    /// Brings the first event that waits to its file: makes room, creates, appends.
    fn place_waiting(&mut self) -> Option<Step> {
        let first = self.waiting.front()?;
        let target = first.target;
        let Some(file) = self.open.get(&target) else {
            if self.open.len() < OPEN_FILES_MAX {
                return Some(Step::Create { file: self.next_name(target) });
            }
            let oldest = self.open.iter().min_by_key(|(_, file)| file.last_append).map(|(target, _)| *target);
            return Some(self.begin_closing(oldest.expect("there are open files")));
        };
        if !file.takes(first, self.config.file_bytes) {
            return Some(self.begin_closing(target));
        }
        let (mut last, mut bytes) = (first.key, file.bytes + first.bytes);
        let more = self.waiting.iter().skip(1).take_while(|event| {
            bytes = bytes.saturating_add(event.bytes);
            let fits = event.target == target && event.key > last && bytes <= self.config.file_bytes;
            last = event.key;
            fits
        });
        let events = std::iter::once(first.place).chain(more.map(|event| event.place)).collect();
        Some(Step::Append { file: file.name, events })
    }

    fn next_name(&self, (run, kind, _): Target) -> FileName {
        FileName { run, sequence: self.ledger.next_sequence.get(&run).copied().unwrap_or(0), kind }
    }

    fn created(&mut self, name: FileName, now: Time) {
        self.ledger.saw(name.run, name.sequence);
        let target = self.waiting.front().expect("a file is created for an event").target;
        let file = OpenFile { name, bytes: 0, events: 0, ranges: Vec::new(), incomplete: Vec::new(), last_append: now };
        assert!(self.open.insert(target, file).is_none(), "one open file for a run and kind");
    }

    fn appended(&mut self, name: FileName, events: usize, now: Time) {
        for _ in 0..events {
            let event = self.waiting.pop_front().expect("appended events were waiting");
            let file = self.open.get_mut(&event.target).expect("the file is open");
            assert_eq!(file.name, name, "an event goes where it was sent");
            file.append(&event, now);
            assert!(self.taken.insert(event.key), "event {} is taken once", event.key);
            self.walk.took();
        }
    }

    fn due_for_closing(&self, now: Time) -> Option<Target> {
        let due = |file: &OpenFile| {
            file.bytes >= self.config.file_bytes || now.since(file.last_append) >= self.config.close_after
        };
        self.open.iter().find(|(_, file)| due(file)).map(|(target, _)| *target)
    }

    fn begin_closing(&mut self, target: Target) -> Step {
        let file = self.open.remove(&target).expect("an open file is closed");
        self.closing = Some(Closing::written(file));
        self.closing_step().expect("a file that is closed has steps")
    }

    fn adopt_next(&mut self) -> Option<Step> {
        let (sidecar, has_sidecar) = self.adopt.pop_front()?;
        self.closing = Some(Closing::adopted(sidecar, has_sidecar));
        self.closing_step()
    }
}
