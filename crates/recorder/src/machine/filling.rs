//! From fetched events to files that grow.

use forebay_mover::events::EventKind;
use forebay_types::{EventKey, RunId, Time};

use super::{Machine, MachineError, Step};
use crate::names::FileName;

/// Files of a stream that are written at the same time, one for each run and kind.
const OPEN_FILES_MAX: usize = 16;
/// Events in a file: its sidecar and its line in the journal name them all, and are held in memory.
const FILE_EVENTS_MAX: u64 = 1 << 20;

/// Where an event goes: the run, the kind, and whether its bytes hold its number.
pub(super) type Target = (RunId, EventKind, bool);

/// A file that grows.
pub(super) struct OpenFile {
    pub(super) name: FileName,
    /// With all that its format puts around events.
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// Ascending; both ends included.
    pub(super) ranges: Vec<[u64; 2]>,
    pub(super) incomplete: Vec<u64>,
    /// Fragments that the store has lost.
    pub(super) lost: u64,
    pub(super) last_append: Time,
}

impl OpenFile {
    fn new(name: FileName, now: Time) -> OpenFile {
        let (ranges, incomplete) = (Vec::new(), Vec::new());
        let bytes = name.container().file_bytes(0, 0);
        OpenFile { name, bytes, events: 0, ranges, incomplete, lost: 0, last_append: now }
    }

    pub(super) fn last_event(&self) -> Option<u64> {
        self.ranges.last().map(|range| range[1])
    }

    fn takes(&self, event: &Waiting, file_bytes: u64) -> bool {
        let ascends = self.last_event().is_none_or(|last| last < event.key.event.0);
        let fits = self.events < FILE_EVENTS_MAX && self.bytes.saturating_add(event.bytes) <= file_bytes;
        ascends && (self.events == 0 || fits)
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
        self.lost += event.lost;
        self.last_append = now;
    }
}

/// An event that was fetched and is not yet appended.
pub(super) struct Waiting {
    pub(super) place: usize,
    pub(super) key: EventKey,
    pub(super) target: Target,
    pub(super) incomplete: bool,
    pub(super) lost: u64,
    /// With what its format puts before it.
    pub(super) bytes: u64,
}

impl Machine {
    /// Brings the first event that waits to its file: makes room, creates, appends.
    pub(super) fn place_waiting(&mut self) -> Option<Step> {
        let first = self.waiting.front()?;
        let target = first.target;
        let Some(file) = self.open.get(&target) else {
            if self.open.len() < OPEN_FILES_MAX {
                return Some(match self.next_name(target) {
                    Some(file) => Step::Create { file },
                    None => self.finish(Err(MachineError::NoNumberLeft { run: target.0 })),
                });
            }
            let oldest = self.open.iter().min_by_key(|(_, file)| file.last_append).map(|(target, _)| *target);
            return Some(self.begin_closing(oldest.expect("there are open files")));
        };
        if !file.takes(first, self.config.file_bytes) {
            return Some(self.begin_closing(target));
        }
        let (mut last, mut bytes, mut events) = (first.key, file.bytes + first.bytes, file.events + 1);
        let more = self.waiting.iter().skip(1).take_while(|event| {
            bytes = bytes.saturating_add(event.bytes);
            events += 1;
            let fits = bytes <= self.config.file_bytes && events <= FILE_EVENTS_MAX;
            let follows = event.target == target && event.key > last;
            last = event.key;
            fits && follows
        });
        let events = std::iter::once(first.place).chain(more.map(|event| event.place)).collect();
        Some(Step::Append { file: file.name, events })
    }

    /// The name of the next file; `None` when the run has no number left.
    fn next_name(&self, (run, kind, _): Target) -> Option<FileName> {
        let next = self.ledger.next_sequence.get(&run).copied().unwrap_or(0);
        u32::try_from(next).ok().map(|sequence| FileName { run, sequence, kind })
    }

    pub(super) fn created(&mut self, name: FileName, now: Time) {
        self.ledger.saw(name.run, name.sequence);
        let target = self.waiting.front().expect("a file is created for an event").target;
        assert!(self.open.insert(target, OpenFile::new(name, now)).is_none(), "one open file for a run and kind");
    }

    pub(super) fn appended(&mut self, name: FileName, events: usize, now: Time) {
        for _ in 0..events {
            let event = self.waiting.pop_front().expect("appended events were waiting");
            let file = self.open.get_mut(&event.target).expect("the file is open");
            assert_eq!(file.name, name, "an event goes where it was sent");
            file.append(&event, now);
            assert!(self.taken.insert(event.key), "event {} is taken once", event.key);
            self.walk.took();
        }
    }
}
