//! The steps from a written file to one that is announced, and to events that are released.

use std::time::Duration;

use forebay_types::{DecideOutcome, EventId, EventKey, Time};

use super::filling::OpenFile;
use super::{Machine, MachineConfig, MachineError, Notice, RETRY, ReadBack, Reply, Step};
use crate::digest::Digest;
use crate::journal::Line;
use crate::names::FileName;
use crate::planted::{Planted, planted};
use crate::sidecar::Sidecar;

/// Events that are released with one request.
const RELEASE_EVENTS_MAX: usize = 4096;
/// The time between two notices of a store that takes no release.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// A file on its way from written to released.
pub(super) struct Closing {
    name: FileName,
    content: Content,
    stage: Stage,
    /// Written by an earlier start.
    adopted: bool,
    /// The journal says that it came back as it was written.
    announced: bool,
    /// What the start found of its sidecar.
    found: FoundSidecar,
    /// Fragments that the store has lost.
    lost: u64,
    /// How many of its events are released.
    released: usize,
    /// A release got no full answer: the next one may find what it did.
    release_repeated: bool,
    /// Those that the store did not know as accepted.
    not_known: Vec<EventKey>,
    /// Those that were released already, by nobody of this directory.
    released_before: Vec<EventKey>,
    /// What came back instead of what was written.
    mismatch: String,
}

enum Content {
    /// Written, and not yet synced.
    Open(OpenFile),
    /// As its sidecar says.
    Described(Box<Sidecar>),
}

/// What a start finds of the sidecar of a file that is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundSidecar {
    /// Nothing: whoever took it has seen it.
    None,
    /// It is there under its `.part` name: nobody has seen the file as complete.
    Part,
    /// It is there under its final name.
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sync,
    WriteSidecar,
    Written,
    Publish,
    SyncData,
    ReadBack,
    /// Of an adopted file: its sidecar may be torn, or gone.
    RewriteSidecar,
    SyncRewritten,
    Announce,
    PublishSidecar,
    SyncSidecar,
    Release,
    Released,
    /// What came back is not what was written.
    Withdraw,
    SetAside,
    SyncAside,
}

impl Closing {
    pub(super) fn open(file: OpenFile) -> Closing {
        Closing::new(file.name, file.lost, Content::Open(file), Stage::Sync)
    }

    pub(super) fn adopted(sidecar: Sidecar, announced: bool, found: FoundSidecar) -> Closing {
        let (name, content) = (sidecar.file_name(), Content::Described(Box::new(sidecar)));
        Closing { adopted: true, announced, found, ..Closing::new(name, 0, content, Stage::ReadBack) }
    }

    fn new(name: FileName, lost: u64, content: Content, stage: Stage) -> Closing {
        Closing {
            name,
            content,
            stage,
            adopted: false,
            announced: false,
            found: FoundSidecar::None,
            lost,
            released: 0,
            release_repeated: false,
            not_known: Vec::new(),
            released_before: Vec::new(),
            mismatch: String::new(),
        }
    }

    fn sidecar(&self) -> &Sidecar {
        match &self.content {
            Content::Described(sidecar) => sidecar,
            Content::Open(_) => panic!("{} is described once it is synced", self.name),
        }
    }

    /// The file is synced: what it holds is known.
    fn describe(&mut self, config: &MachineConfig, digest: Digest) {
        let Content::Open(file) = &mut self.content else { panic!("{} is synced once", self.name) };
        assert_eq!(digest.bytes, file.bytes, "{}: every byte that was appended is counted", file.name);
        let sidecar = Sidecar {
            file: file.name.to_string(),
            size: digest.bytes,
            adler32: format!("{:08x}", digest.adler32),
            xxh3_128: format!("{:032x}", digest.xxh3_128),
            format: file.name.kind.name().to_owned(),
            store: config.store,
            stream: config.stream.clone(),
            run: file.name.run,
            events: file.events,
            first_event: EventId(file.ranges[0][0]),
            last_event: EventId(file.last_event().expect("a file has events")),
            incomplete: file.incomplete.len() as u64,
            event_ranges: std::mem::take(&mut file.ranges),
            incomplete_events: std::mem::take(&mut file.incomplete),
        };
        assert_eq!(sidecar.check(), Ok(()), "what is announced fits together");
        self.content = Content::Described(Box::new(sidecar));
    }
}

impl Machine {
    /// The step of the file that is being closed, if there is one.
    pub(super) fn closing_step(&self) -> Option<Step> {
        let closing = self.closing.as_ref()?;
        let file = closing.name;
        let journal = |line| Step::Journal { line: Box::new(line) };
        let sidecar = || Box::new(closing.sidecar().clone());
        Some(match closing.stage {
            Stage::Sync => Step::Sync { file },
            Stage::WriteSidecar | Stage::RewriteSidecar => Step::WriteSidecar { sidecar: sidecar() },
            Stage::Written => journal(Line::Written(sidecar())),
            Stage::Publish => Step::Publish { file },
            Stage::SyncData | Stage::SyncRewritten | Stage::SyncSidecar | Stage::SyncAside => Step::SyncDirectory,
            Stage::ReadBack => Step::ReadBack { file, announced: closing.announced },
            Stage::Announce => journal(Line::Announced(file.to_string())),
            Stage::PublishSidecar => Step::PublishSidecar { file },
            Stage::Release => {
                let events = closing.sidecar().keys().skip(closing.released).take(RELEASE_EVENTS_MAX).collect();
                Step::Release { events }
            }
            Stage::Released => journal(Line::Released(file.to_string())),
            Stage::Withdraw => journal(Line::Withdrawn(file.to_string())),
            Stage::SetAside => Step::SetAside { file },
        })
    }

    pub(super) fn closing_done(&mut self, now: Time, step: &Step, reply: Reply) {
        let closing = self.closing.as_mut().expect("a file is being closed");
        closing.stage = match (closing.stage, reply) {
            (Stage::Sync, Reply::Synced(digest)) => {
                closing.describe(&self.config, digest);
                Stage::WriteSidecar
            }
            (Stage::WriteSidecar, Reply::Done) => Stage::Written,
            (Stage::Written, Reply::Done) => Stage::Publish,
            (Stage::Publish, Reply::Done) if planted(Planted::ReleasedBeforeSynced) => Stage::ReadBack,
            (Stage::Publish, Reply::Done) => Stage::SyncData,
            (Stage::SyncData, Reply::Done) => Stage::ReadBack,
            (Stage::ReadBack, Reply::ReadBack(found)) => return self.read_back(found),
            (Stage::RewriteSidecar, Reply::Done) => Stage::SyncRewritten,
            (Stage::SyncRewritten, Reply::Done) if closing.announced => Stage::PublishSidecar,
            (Stage::SyncRewritten, Reply::Done) => Stage::Announce,
            (Stage::Announce, Reply::Done) => {
                closing.announced = true;
                Stage::PublishSidecar
            }
            (Stage::PublishSidecar, Reply::Done) if planted(Planted::ReleasedBeforeSynced) => Stage::Release,
            (Stage::PublishSidecar, Reply::Done) => Stage::SyncSidecar,
            (Stage::SyncSidecar, Reply::Done) => Stage::Release,
            (Stage::Release, Reply::Released(outcomes)) => {
                let Step::Release { events } = step else { panic!("{step:?} releases nothing") };
                return self.released(now, events, &outcomes);
            }
            (Stage::Released, Reply::Done) => return self.shipped(),
            (Stage::Withdraw, Reply::Done) => Stage::SetAside,
            (Stage::SetAside, Reply::Done) => Stage::SyncAside,
            (Stage::SyncAside, Reply::Done) => return self.set_aside(),
            (stage, reply) => panic!("{reply:?} is no reply while a file is at {stage:?}"),
        };
    }

    fn read_back(&mut self, found: ReadBack) {
        let closing = self.closing.as_mut().expect("a file is being closed");
        let (expected, expected_events) = (closing.sidecar().digest(), closing.sidecar().events);
        let unread = planted(Planted::ReleasedUnread) && found != ReadBack::Missing;
        let found = match found {
            found if unread || found == (ReadBack::File { digest: expected, events: expected_events }) => {
                closing.stage = match (closing.adopted, closing.found) {
                    (false, _) => Stage::Announce,
                    // The rename may not have been durable yet.
                    (true, FoundSidecar::Final) if closing.announced => Stage::SyncSidecar,
                    (true, _) => Stage::RewriteSidecar,
                };
                return;
            }
            ReadBack::Missing if closing.announced && closing.found != FoundSidecar::Part => {
                // It was durable under its name, and its sidecar could be seen: whoever takes announced files has it.
                self.notices.push(Notice::TakenAway(closing.name));
                closing.stage = Stage::Release;
                return;
            }
            ReadBack::File { digest, events } if digest == expected => format!("the same bytes, but {events} events"),
            ReadBack::File { digest, .. } => digest.to_string(),
            ReadBack::Unreadable { message } => message,
            ReadBack::Missing => "no such file".to_owned(),
        };
        self.mismatches += 1;
        // Before its sidecar could be seen no event of it was released.
        let announced = closing.announced && closing.found != FoundSidecar::Part;
        self.announced_mismatches.extend(announced.then_some(closing.name));
        closing.stage = Stage::Withdraw;
        closing.mismatch.clone_from(&found);
        self.notices.push(Notice::Mismatch { file: closing.name, expected, found, announced });
    }

    fn released(&mut self, now: Time, events: &[EventKey], outcomes: &[DecideOutcome]) {
        assert_eq!(events.len(), outcomes.len(), "an answer for each event");
        let refused = outcomes.iter().copied().find(|outcome| {
            use DecideOutcome::{Held, NoSpace, ReadOnly, Unavailable};
            matches!(outcome, NoSpace | Unavailable | ReadOnly | Held)
        });
        if let Some(outcome) = refused {
            return self.not_taken(now, outcome);
        }
        self.busy_since = None;
        self.not_taken_told = None;
        let closing = self.closing.as_mut().expect("a file is being closed");
        let first_time = !closing.adopted && !closing.release_repeated;
        for (key, outcome) in events.iter().zip(outcomes) {
            match outcome {
                DecideOutcome::NotFound | DecideOutcome::Conflict => closing.not_known.push(*key),
                DecideOutcome::AlreadyDone if first_time => closing.released_before.push(*key),
                _ => {}
            }
        }
        closing.release_repeated = false;
        closing.released += outcomes.len();
        if closing.released as u64 >= closing.sidecar().events {
            closing.stage = Stage::Released;
        }
    }

    /// The store answers, and does not release.
    fn not_taken(&mut self, now: Time, outcome: DecideOutcome) {
        let closing = self.closing.as_mut().expect("a file is being closed");
        closing.release_repeated = true;
        let file = closing.name;
        if outcome == DecideOutcome::ReadOnly {
            self.end = Some(Err(MachineError::ReadOnly { file }));
            return;
        }
        if self.not_taken_told.is_none_or(|told| now.since(told) >= TELL_AGAIN) {
            self.not_taken_told = Some(now);
            self.notices.push(Notice::NotTaken { file, outcome });
        }
        let waited = now.since(*self.busy_since.get_or_insert(now));
        self.retry_at = Some(now + RETRY);
        if self.config.once && waited >= self.config.patience {
            self.end = Some(Err(MachineError::NotTaken { file, waited, outcome }));
        }
    }

    /// A release got no answer.
    pub(super) fn release_unanswered(&mut self) {
        self.closing.as_mut().expect("a file is being closed").release_repeated = true;
    }

    fn shipped(&mut self) {
        let Closing { name: file, content, lost, not_known, released_before, .. } =
            self.closing.take().expect("a file is being closed");
        let Content::Described(sidecar) = content else { panic!("{file} is described once it is synced") };
        for key in sidecar.keys() {
            self.taken.remove(&key);
        }
        self.mismatches = 0;
        self.announced_mismatches.clear();
        self.ledger.release(file);
        if let Some(&first) = not_known.first() {
            self.notices.push(Notice::NotKnown { file, events: not_known.len() as u64, first });
        }
        if let Some(&first) = released_before.first() {
            self.notices.push(Notice::ReleasedBefore { file, events: released_before.len() as u64, first });
        }
        self.notices.push(Notice::Shipped { sidecar, lost });
    }

    /// The bad file is out of the way: its events are not recorded.
    fn set_aside(&mut self) {
        let closing = self.closing.take().expect("a file is being closed");
        for key in closing.sidecar().keys() {
            self.taken.remove(&key);
        }
        self.ledger.withdraw(closing.name);
        self.walk.start_over();
        if self.mismatches > self.config.mismatches_max {
            let (files, file, expected) = (self.mismatches, closing.name, closing.sidecar().digest());
            let (found, announced) = (closing.mismatch, std::mem::take(&mut self.announced_mismatches));
            self.end = Some(Err(MachineError::Mismatch { files, file, expected, found, announced }));
        }
    }
}
