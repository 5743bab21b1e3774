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
//! write .NAME.json.part, sync              the sidecar, as nobody sees it yet
//! journal: written                         a file NAME is ours from here on
//! rename to NAME, sync directory
//! read back past the page cache, compare   otherwise NAME.bad, and its events come again
//! journal: announced                       from here on it is kept and finished after a crash
//! rename to NAME.json, sync directory      for others the file is complete
//! release the events                       the store may forget them for this stream
//! journal: released
//! ```
//!
//! No name is ever taken from another file, and a file that is not in the journal is never touched. All that
//! needs room comes before the announcement: whoever makes room by deleting files without a `.json` deletes
//! nothing that is announced, unless it is within the rename, and that a start can tell (`closing`).

mod closing;
mod filling;
mod recovery;
mod step;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_client::AcceptedEvent;
use forebay_mover::events::walk::{Next, Pace, Walk};
use forebay_types::{EventKey, StoreUuid, StreamName, Time};

use crate::journal::{JOURNAL_REWRITE_BYTES, Ledger};
use crate::names::FileName;
use crate::sidecar::Sidecar;

use closing::{Closing, FoundSidecar};
use filling::{OpenFile, Target, Waiting};
pub use recovery::{Found, StartError};
pub use step::{Fetched, MachineError, Notice, ReadBack, Reply, Step};

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

impl MachineConfig {
    fn pace(&self) -> Pace {
        Pace { order_wait: self.order_wait, poll: self.poll, once: self.once }
    }
}

/// The recorder of one stream.
pub struct Machine {
    config: MachineConfig,
    ledger: Ledger,
    /// What the start must do before anything else.
    chores: VecDeque<Step>,
    /// Files of an earlier start that are not released, and whether they were announced.
    adopt: VecDeque<(Sidecar, bool, FoundSidecar)>,
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
    /// Files in a row that did not come back, and those of them that an earlier start announced.
    mismatches: u32,
    announced_mismatches: Vec<FileName>,
    /// When it was last told that the store takes no release.
    not_taken_told: Option<Time>,
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
        if !std::mem::replace(&mut self.config.once, true) {
            // What was found before this call says nothing of what was accepted before it.
            self.walk.start_over();
        }
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
                self.walk.page(page, &self.config.pace(), |key| taken.contains(key));
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
        let nothing_left = self.waiting.is_empty() && self.walk.found_nothing(&self.config.pace());
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
        match self.walk.next(now, &self.config.pace()) {
            Next::Wait { until } => Step::Wait { until: idle_until.map_or(until, |idle| idle.min(until)) },
            Next::List { after, max } => Step::List { after, max },
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
        match step {
            Step::Fetch { events } => self.walk.put_back(events),
            Step::Release { .. } => self.release_unanswered(),
            _ => {}
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
        let (mut unavailable, mut gone) = (0, 0);
        for (place, (event, fetched)) in events.iter().zip(fetched).enumerate() {
            match *fetched {
                Fetched::Event { kind, numbered, incomplete, lost, bytes } => self.waiting.push_back(Waiting {
                    place,
                    key: event.key,
                    target: (event.key.run, kind, numbered),
                    incomplete: incomplete || event.incomplete,
                    lost,
                    bytes: bytes + kind.container(event.key.run, 0).before_event_bytes(),
                }),
                Fetched::Gone => gone += 1,
                Fetched::Unavailable => unavailable += 1,
            }
        }
        // What is gone for good is not listed again: another walk tells.
        self.walk.saw_unavailable(unavailable + gone);
        self.notices.extend((unavailable > 0).then_some(Notice::Unavailable(unavailable)));
        self.notices.extend((gone > 0).then_some(Notice::Gone(gone)));
    }

    fn due_for_closing(&self, now: Time) -> Option<Target> {
        let due = |file: &OpenFile| {
            file.bytes >= self.config.file_bytes || now.since(file.last_append) >= self.config.close_after
        };
        self.open.iter().find(|(_, file)| due(file)).map(|(target, _)| *target)
    }

    fn begin_closing(&mut self, target: Target) -> Step {
        let file = self.open.remove(&target).expect("an open file is closed");
        self.closing = Some(Closing::open(file));
        self.closing_step().expect("a file that is closed has steps")
    }

    fn adopt_next(&mut self) -> Option<Step> {
        let (sidecar, announced, found) = self.adopt.pop_front()?;
        self.closing = Some(Closing::adopted(sidecar, announced, found));
        self.closing_step()
    }
}
