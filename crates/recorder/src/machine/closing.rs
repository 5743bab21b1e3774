//! The steps from a written file to one that is announced, and to events that are released.

use forebay_types::{DecideOutcome, EventId, EventKey, Time};

use super::{Machine, MachineError, Notice, OpenFile, RETRY, ReadBack, Reply, Step};
use crate::digest::Digest;
use crate::journal::Line;
use crate::names::FileName;
use crate::sidecar::Sidecar;

/// Events that are released with one request.
const RELEASE_EVENTS_MAX: usize = 4096;

/// A file on its way from written to released.
pub(super) struct Closing {
    name: FileName,
    content: Content,
    stage: Stage,
    /// Announced by an earlier start.
    adopted: bool,
    /// Its sidecar is there.
    has_sidecar: bool,
    /// How many of its events are released.
    released: usize,
    /// Those that the store says were decided otherwise.
    refused: Vec<EventKey>,
    /// What came back instead of what was written.
    mismatch: String,
}

enum Content {
    /// Written now; the digest is known once it is synced.
    Written(OpenFile, Option<Digest>),
    /// Verified, or at least announced.
    Described(Box<Sidecar>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sync,
    Publish,
    SyncData,
    ReadBack,
    Announce,
    WriteSidecar,
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
    pub(super) fn written(file: OpenFile) -> Closing {
        let name = file.name;
        Closing::new(name, Content::Written(file, None), Stage::Sync)
    }

    pub(super) fn adopted(sidecar: Sidecar, has_sidecar: bool) -> Closing {
        let name = sidecar.file_name();
        let content = Content::Described(Box::new(sidecar));
        Closing { adopted: true, has_sidecar, ..Closing::new(name, content, Stage::ReadBack) }
    }

    fn new(name: FileName, content: Content, stage: Stage) -> Closing {
        let (refused, mismatch) = (Vec::new(), String::new());
        Closing { name, content, stage, adopted: false, has_sidecar: false, released: 0, refused, mismatch }
    }

    fn sidecar(&self) -> &Sidecar {
        match &self.content {
            Content::Described(sidecar) => sidecar,
            Content::Written(..) => panic!("{} is described once it is verified", self.name),
        }
    }

    /// What was written, and how many events.
    fn expected(&self) -> (Digest, u64) {
        match &self.content {
            Content::Written(file, digest) => (digest.expect("a file is synced before it is read"), file.events),
            Content::Described(sidecar) => (sidecar.digest(), sidecar.events),
        }
    }

    fn keys(&self) -> Vec<EventKey> {
        let run = self.name.run.0;
        let all = |ranges: &[[u64; 2]]| -> Vec<EventKey> {
            ranges.iter().flat_map(|&[first, last]| (first..=last).map(|e| EventKey::new(run, e))).collect()
        };
        match &self.content {
            Content::Written(file, _) => all(&file.ranges),
            Content::Described(sidecar) => all(&sidecar.event_ranges),
        }
    }
}

impl Machine {
    /// The step of the file that is being closed, if there is one.
    pub(super) fn closing_step(&self) -> Option<Step> {
        let closing = self.closing.as_ref()?;
        let file = closing.name;
        let journal = |line| Step::Journal { line: Box::new(line) };
        Some(match closing.stage {
            Stage::Sync => Step::Sync { file },
            Stage::Publish => Step::Publish { file },
            Stage::SyncData | Stage::SyncSidecar | Stage::SyncAside => Step::SyncDirectory,
            Stage::ReadBack => Step::ReadBack { file },
            Stage::Announce => journal(Line::Announce(Box::new(closing.sidecar().clone()))),
            Stage::WriteSidecar => Step::WriteSidecar { sidecar: Box::new(closing.sidecar().clone()) },
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
            (Stage::Sync, Reply::Synced(synced)) => {
                let Content::Written(file, digest) = &mut closing.content else { panic!("a written file is synced") };
                assert_eq!(synced.bytes, file.bytes, "{}: every byte that was appended is counted", file.name);
                *digest = Some(synced);
                Stage::Publish
            }
            (Stage::Publish, Reply::Done) => Stage::SyncData,
            (Stage::SyncData, Reply::Done) => Stage::ReadBack,
            (Stage::ReadBack, Reply::ReadBack(found)) => return self.read_back(found),
            (Stage::Announce, Reply::Done) => Stage::WriteSidecar,
            (Stage::WriteSidecar, Reply::Done) => Stage::PublishSidecar,
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
        let (expected, expected_events) = closing.expected();
        let found = match found {
            ReadBack::File { digest, events } if digest == expected && events == expected_events => {
                self.verified();
                return;
            }
            ReadBack::Missing if closing.adopted => {
                // It was durable under its name when it was announced: whoever takes announced files has it.
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
        closing.stage = if closing.adopted { Stage::Withdraw } else { Stage::SetAside };
        closing.mismatch.clone_from(&found);
        self.notices.push(Notice::Mismatch { file: closing.name, expected, found, announced: closing.adopted });
    }

    /// The file is what was written.
    fn verified(&mut self) {
        let (store, stream) = (self.config.store, self.config.stream.clone());
        let closing = self.closing.as_mut().expect("a file is being closed");
        if let Content::Written(file, Some(digest)) = &mut closing.content {
            let sidecar = Sidecar {
                file: file.name.to_string(),
                size: digest.bytes,
                adler32: format!("{:08x}", digest.adler32),
                xxh3_128: format!("{:032x}", digest.xxh3_128),
                format: file.name.kind.name().to_owned(),
                store,
                stream,
                run: file.name.run,
                events: file.events,
                first_event: EventId(file.ranges[0][0]),
                last_event: EventId(file.last_event().expect("a file has events")),
                incomplete: file.incomplete.len() as u64,
                event_ranges: std::mem::take(&mut file.ranges),
                incomplete_events: std::mem::take(&mut file.incomplete),
            };
            assert_eq!(sidecar.check(), Ok(()), "what is announced fits together");
            closing.content = Content::Described(Box::new(sidecar));
        }
        closing.stage = match (closing.adopted, closing.has_sidecar) {
            (false, _) => Stage::Announce,
            (true, false) => Stage::WriteSidecar,
            // The rename may not have been durable yet.
            (true, true) => Stage::SyncSidecar,
        };
    }

    fn released(&mut self, now: Time, events: &[EventKey], outcomes: &[DecideOutcome]) {
        assert_eq!(events.len(), outcomes.len(), "an answer for each event");
        let refused = outcomes.iter().find(|outcome| {
            matches!(outcome, DecideOutcome::NoSpace | DecideOutcome::Unavailable | DecideOutcome::ReadOnly)
        });
        if let Some(outcome) = refused {
            let since = *self.busy_since.get_or_insert(now);
            self.retry_at = Some(now + RETRY);
            if self.config.once && now.since(since) >= self.config.patience {
                let message = format!("releasing: {outcome}");
                self.end = Some(Err(MachineError::Silent { waited: now.since(since), message }));
            }
            return;
        }
        self.busy_since = None;
        let closing = self.closing.as_mut().expect("a file is being closed");
        let conflicts = |(key, outcome)| (outcome == DecideOutcome::Conflict).then_some(key);
        let refused: Vec<EventKey> =
            events.iter().copied().zip(outcomes.iter().copied()).filter_map(conflicts).collect();
        closing.refused.extend(refused);
        closing.released += outcomes.len();
        if closing.released as u64 >= closing.sidecar().events {
            closing.stage = Stage::Released;
        }
    }

    fn shipped(&mut self) {
        let closing = self.closing.take().expect("a file is being closed");
        for key in closing.keys() {
            self.taken.remove(&key);
        }
        self.mismatches = 0;
        self.ledger.released.insert(closing.name);
        if !closing.refused.is_empty() {
            self.notices.push(Notice::NotReleased { file: closing.name, events: closing.refused.len() as u64 });
            // The store may list them for ever; they are in a file.
            self.taken.extend(closing.refused);
        }
        if let Content::Described(sidecar) = closing.content {
            self.notices.push(Notice::Shipped(sidecar));
        }
    }

    /// The bad file is out of the way: its events are not recorded.
    fn set_aside(&mut self) {
        let closing = self.closing.take().expect("a file is being closed");
        for key in closing.keys() {
            self.taken.remove(&key);
        }
        if closing.adopted {
            self.ledger.withdrawn.insert(closing.name);
        }
        self.walk.start_over();
        let (expected, _) = closing.expected();
        if self.mismatches > self.config.mismatches_max {
            let (files, file, found) = (self.mismatches, closing.name, closing.mismatch);
            self.end = Some(Err(MachineError::Mismatch { files, file, expected, found }));
        }
    }
}
