//! Drives the machine of one stream on a real directory and a real store. It decides nothing.
#![expect(clippy::disallowed_methods, reason = "this module is where the machine's time comes from")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use forebay_mover::events::EventKind;
use forebay_types::{EventKey, SourceId, StreamName, Time};

use crate::config::{Counters, Mode, RecorderConfig, RecorderControl, RecorderProgress, ShippedFile};
use crate::directory::StreamDirectory;
use crate::error::RecorderError;
use crate::machine::{Fetched, Machine, MachineConfig, Notice, ReadBack, Reply, Step};
use crate::read_back::ReadMode;
use crate::sidecar::Sidecar;
use crate::store::{AcceptedStore, StoreError};
use forebay_mover::events::{Assembled, AssembledEvent, Making, assemble};

/// The longest sleep before the control is looked at again.
const SLEEP: Duration = Duration::from_millis(20);

/// Sources of lost fragments that are named.
const LOST_SHOWN: usize = 8;

/// The recorder of one stream.
pub(crate) struct StreamRecorder<'a> {
    pub(crate) stream: StreamName,
    pub(crate) config: &'a RecorderConfig,
    pub(crate) control: &'a RecorderControl,
    pub(crate) progress: &'a RecorderProgress,
}

impl StreamRecorder<'_> {
    /// Records until the mode or the control says that it is over.
    pub(crate) fn run(&self, store: &mut impl AcceptedStore) -> Result<(), RecorderError> {
        loop {
            match self.attempt(store) {
                Err(RecorderError::Directory(error)) if self.keeps_trying() && error.may_pass() => {
                    self.count(|counters| &counters.troubles, 1);
                    tracing::error!(stream = %self.stream, "{error}. Tried again in {:?}", self.config.retry);
                    self.sleep(self.config.retry);
                    if self.control.is_stopping() {
                        return Err(RecorderError::Directory(error));
                    }
                }
                end => return end,
            }
        }
    }

    fn keeps_trying(&self) -> bool {
        self.config.mode == Mode::Continuous && !self.control.is_stopping() && !self.control.is_draining()
    }

    fn sleep(&self, duration: Duration) {
        let start = Instant::now();
        while start.elapsed() < duration && !self.control.is_stopping() {
            std::thread::sleep(SLEEP.min(duration.saturating_sub(start.elapsed())));
        }
    }

    fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64, count: u64) {
        counter(&self.progress.all).fetch_add(count, Relaxed);
        counter(&self.progress.stream(&self.stream)).fetch_add(count, Relaxed);
    }

    fn machine_config(&self, store: &impl AcceptedStore) -> MachineConfig {
        MachineConfig {
            stream: self.stream.clone(),
            store: store.store(),
            file_bytes: self.config.file_bytes,
            close_after: self.config.close_after,
            order_wait: self.config.order_wait,
            poll: self.config.poll,
            fetch_bytes: self.config.fetch_bytes,
            once: self.config.mode == Mode::Once,
            patience: self.config.patience,
            mismatches_max: self.config.mismatches_max,
        }
    }

    /// One life of a machine, from what the directory holds to the end or to trouble.
    fn attempt(&self, store: &mut impl AcceptedStore) -> Result<(), RecorderError> {
        let path = self.config.directory.join(self.stream.as_str());
        let (directory, found) = StreamDirectory::open(&path)?;
        let machine = Machine::new(self.machine_config(store), found);
        let mut machine = machine.map_err(|source| RecorderError::Start { path: path.clone(), source })?;
        let start = Instant::now();
        let now = || Time(start.elapsed().as_nanos() as u64);
        let mut hands = Hands { recorder: self, path, directory, store, fetched: Vec::new(), read_mode: None };
        loop {
            if self.control.is_stopping() {
                machine.stop();
            }
            if self.control.is_draining() {
                machine.drain();
            }
            match machine.next(now()) {
                Step::Wait { until } => std::thread::sleep(until.since(now()).min(SLEEP)),
                Step::Finish => {
                    hands.tell(machine.take_notices());
                    return match machine.end() {
                        Some(Err(error)) => {
                            Err(RecorderError::Stream { stream: self.stream.clone(), source: Box::new(error.clone()) })
                        }
                        _ => Ok(()),
                    };
                }
                step => {
                    let reply = hands.take(step)?;
                    machine.complete(now(), reply);
                }
            }
            hands.tell(machine.take_notices());
        }
    }
}

/// What the machine's steps are done with.
struct Hands<'a, S> {
    recorder: &'a StreamRecorder<'a>,
    path: PathBuf,
    directory: StreamDirectory,
    store: &'a mut S,
    /// The bytes of the events fetched last.
    fetched: Vec<Vec<u8>>,
    /// How the last file was read back.
    read_mode: Option<ReadMode>,
}

impl<S: AcceptedStore> Hands<'_, S> {
    fn take(&mut self, step: Step) -> Result<Reply, RecorderError> {
        let stream = &self.recorder.stream;
        match step {
            Step::Wait { .. } | Step::Finish => unreachable!("these are not done"),
            Step::List { after, max } => {
                let page = self.store.accepted(stream, after, max);
                return self.answer(page, Reply::Page);
            }
            Step::Fetch { events } => {
                let keys: Vec<_> = events.iter().map(|event| event.key).collect();
                self.fetched.clear();
                let fetched = self.store.fetch(&keys).map(|events| {
                    events
                        .into_iter()
                        .map(|event| self.assembled(event.key, assemble(&event, &Making::default())))
                        .collect()
                });
                return self.answer(fetched, Reply::Fetched);
            }
            Step::Release { events } => {
                let outcomes = self.store.release(stream, &events);
                return self.answer(outcomes, Reply::Released);
            }
            Step::Create { file } => self.directory.create(file)?,
            Step::Append { file, events } => {
                for place in events {
                    let bytes = std::mem::take(&mut self.fetched[place]);
                    self.directory.append(file, &bytes)?;
                }
            }
            Step::Sync { file } => return Ok(Reply::Synced(self.directory.sync(file)?)),
            Step::Publish { file } => self.directory.rename(&file.part(), &file.to_string())?,
            Step::SyncDirectory => self.directory.sync_directory()?,
            Step::ReadBack { file, announced } => {
                let (found, mode) = self.directory.read_back(file, announced)?;
                tracing::debug!(%stream, %file, "read back: {mode}");
                self.read_mode = (found != ReadBack::Missing).then_some(mode);
                return Ok(Reply::ReadBack(found));
            }
            Step::Journal { line } => return Ok(Reply::Journaled(self.directory.journal(&line)?)),
            Step::RewriteJournal { lines } => return Ok(Reply::Journaled(self.directory.rewrite_journal(&lines)?)),
            Step::WriteSidecar { sidecar } => self.directory.write_sidecar(&sidecar)?,
            Step::PublishSidecar { file } => self.directory.rename(&file.sidecar_part(), &file.sidecar())?,
            Step::SetAside { file } => self.directory.set_aside(file)?,
            Step::Remove { name } => self.directory.remove(&name)?,
        }
        Ok(Reply::Done)
    }

    fn answer<T>(&self, answer: Result<T, StoreError>, reply: impl FnOnce(T) -> Reply) -> Result<Reply, RecorderError> {
        match answer {
            Ok(answer) => Ok(reply(answer)),
            Err(error) if error.retryable => {
                self.recorder.count(|counters| &counters.troubles, 1);
                tracing::warn!(stream = %self.recorder.stream, "{error}");
                Ok(Reply::Busy { message: error.message })
            }
            Err(error) => Err(RecorderError::Store(error)),
        }
    }

    fn assembled(&mut self, key: EventKey, event: Assembled) -> Fetched {
        if let Assembled::Event(event) = &event
            && event.fragments_lost > 0
        {
            self.recorder.progress.losses.add(|| losses(key, event));
        }
        let fetched = Fetched::from(&event);
        self.fetched.push(event.into_bytes());
        fetched
    }

    fn tell(&self, notices: Vec<Notice>) {
        let stream = &self.recorder.stream;
        let directory = self.path.display();
        for notice in notices {
            match notice {
                Notice::Shipped { sidecar, lost } => self.shipped(*sidecar, lost),
                Notice::Mismatch { file, expected, found, announced } => {
                    self.recorder.count(|counters| &counters.mismatched, 1);
                    let events = if announced {
                        "it was announced before the last stop: those of its events that the store had released by then are in it alone, \
                         the others are recorded again"
                    } else {
                        "its events were not released and are recorded again"
                    };
                    tracing::error!(
                        "{directory}/{file} did not come back as it was written: expected {expected}, found {found}. It is kept as \
                         {}; {events}. Look at the disk under the directory",
                        file.bad()
                    );
                }
                Notice::TakenAway(file) => tracing::warn!(
                    "{directory}/{file} was complete and announced before the last stop, and is not there any more: taken to be moved on. \
                     Its events are released now"
                ),
                Notice::Removed(name) => tracing::info!(
                    "{directory}/{name} was unfinished at the last stop and is removed; its events are recorded again"
                ),
                Notice::Unknown(file) => tracing::warn!(
                    "{directory}/{file} is not in the journal: somebody else put it there. It is left alone, and no event is released for it"
                ),
                Notice::JournalTorn(bytes) => tracing::warn!(
                    "{directory}: the journal ended in a torn line of {bytes} bytes, as after a crash or on a full disk; what it would have \
                     said has not happened, and it is left out"
                ),
                Notice::NotKnown { file, events, first } => tracing::error!(
                    "{directory}/{file} is complete, but the store did not know {events} of its events as accepted into {stream}, the first \
                     is {first}. They are in the file and nothing of them is in the store: nothing is lost by that, but the store forgot an \
                     acceptance, or its run was closed before"
                ),
                Notice::ReleasedBefore { file, events, first } => tracing::warn!(
                    "{directory}/{file}: the store had forgotten {events} of its events for {stream} before they were released, the first is \
                     {first}. They were deleted, or another recorder of this stream ships them too: one of the two must end"
                ),
                Notice::NotTaken { file, outcome } => tracing::warn!(
                    "the store does not release the events of {directory}/{file} now, it answers: {outcome}. The file is complete; \
                     releasing is tried again every second"
                ),
                Notice::Unavailable(events) => tracing::warn!(
                    %stream, "{events} accepted events cannot be read for now; they stay in the store and are tried again"
                ),
                Notice::Gone(events) => tracing::warn!(
                    %stream, "{events} events are listed as accepted, and the store did not find them when they were read: deleted in \
                     between, or tried again"
                ),
            }
        }
    }

    fn shipped(&self, sidecar: Sidecar, lost: u64) {
        let StreamRecorder { stream, config, .. } = self.recorder;
        let count = |counter: fn(&Counters) -> &AtomicU64, count| self.recorder.count(counter, count);
        count(|counters| &counters.events_shipped, sidecar.events);
        count(|counters| &counters.bytes_shipped, sidecar.size);
        count(|counters| &counters.files, 1);
        count(|counters| &counters.events_incomplete, sidecar.incomplete);
        count(|counters| &counters.fragments_lost, lost);
        if sidecar.file_name().kind == EventKind::Parts {
            count(|counters| &counters.events_in_parts, sidecar.events);
        }
        tracing::info!(%stream, file = sidecar.file, events = sidecar.events, bytes = sidecar.size, "shipped");
        let path = self.directory.path_of(&sidecar.file);
        let file = ShippedFile { stream: stream.clone(), path, sidecar, read_mode: self.read_mode };
        if let Some(hook) = &config.hook {
            hook(&file);
        }
    }
}

/// Which fragments of an accepted event are lost.
fn losses(key: EventKey, event: &AssembledEvent) -> String {
    let (lost, sources) = (event.fragments_lost, &event.lost);
    if sources.is_empty() {
        return format!(
            "event {key}: all of its {lost} fragments are lost in the store, and with them what they were; it is recorded empty, marked \
             incomplete"
        );
    }
    let shown: Vec<String> = sources.iter().take(LOST_SHOWN).map(SourceId::to_string).collect();
    let more = if sources.len() > LOST_SHOWN { ", ..." } else { "" };
    format!(
        "event {key}: {lost} fragments are lost in the store (sources {}{more}); it is recorded without them, marked incomplete",
        shown.join(", ")
    )
}
