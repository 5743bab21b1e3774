//! Reads, renumbers, hashes and splits events, and hands the fragments to their writers.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use forebay_rawdata::{Piece, RawEvent, renumber, split};
use forebay_types::EventKey;

use super::sequence::Planned;
use super::{ReadoutError, Shared};
use crate::ledger::EventHash;

/// What a writer is handed at once, about.
const BATCH_BYTES: usize = 256 << 10;
/// Events that a writer is handed at once.
const BATCH_EVENTS: usize = 256;
/// Waits longer than this hand over what is collected first.
const IDLE: Duration = Duration::from_millis(1);
/// The longest sleep before it is looked whether all is over.
const SLEEP: Duration = Duration::from_millis(20);

/// The fragments of an event that one writer puts.
pub(super) struct Part {
    pub(super) key: EventKey,
    /// How many fragments the event has, over all writers.
    pub(super) expected: u16,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Default)]
struct Batch {
    parts: Vec<Part>,
    bytes: usize,
}

pub(super) struct Producer<'a> {
    shared: &'a Shared<'a>,
    senders: Vec<SyncSender<Vec<Part>>>,
    batches: Vec<Batch>,
}

impl<'a> Producer<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, senders: Vec<SyncSender<Vec<Part>>>) -> Self {
        let batches = senders.iter().map(|_| Batch::default()).collect();
        Producer { shared, senders, batches }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_over() {
            let planned = self.shared.sequence.lock().unwrap_or_else(PoisonError::into_inner).next();
            let written = match planned {
                Ok(Some(planned)) => {
                    self.wait_until_due(planned.index).and_then(|due| if due { self.write(planned) } else { Err(None) })
                }
                Ok(None) => Err(None),
                Err(error) => Err(Some(error)),
            };
            match written {
                Ok(()) => {}
                Err(None) => break,
                Err(Some(error)) => {
                    self.shared.fail(error);
                    break;
                }
            }
        }
        // A writer that is gone has said why.
        if let Err(Some(error)) = self.hand_over_all() {
            self.shared.fail(error);
        }
    }

    /// Waits until the event is due; false when all is over before.
    fn wait_until_due(&mut self, index: u64) -> Result<bool, Option<ReadoutError>> {
        let Some(rate) = self.shared.config.rate else { return Ok(true) };
        let due = Duration::try_from_secs_f64(index as f64 / rate).unwrap_or(Duration::MAX);
        if left_until(due, self.shared.start) > IDLE {
            self.hand_over_all()?;
        }
        loop {
            if self.shared.is_over() {
                return Ok(false);
            }
            match left_until(due, self.shared.start) {
                Duration::ZERO => return Ok(true),
                left => thread::sleep(left.min(SLEEP)),
            }
        }
    }

    fn write(&mut self, planned: Planned) -> Result<(), Option<ReadoutError>> {
        let progress = self.shared.progress;
        let (event, pieces) = match self.fragments(&planned) {
            Ok(made) => made,
            Err(words) => {
                progress.events_refused.fetch_add(1, Relaxed);
                progress.reports.add(|| words);
                return Ok(());
            }
        };
        self.remember(&event).map_err(Some)?;
        progress.add_run(event.key.run);
        progress.events_started.fetch_add(1, Relaxed);
        let expected = pieces.len() as u16;
        let owners = self.shared.assignment.lock().unwrap_or_else(PoisonError::into_inner).assign(&pieces);
        for (piece, owner) in pieces.into_iter().zip(owners) {
            let batch = &mut self.batches[owner];
            batch.bytes += piece.bytes.len();
            match batch.parts.last_mut() {
                Some(part) if part.key == event.key => part.pieces.push(piece),
                _ => batch.parts.push(Part { key: event.key, expected, pieces: vec![piece] }),
            }
        }
        for writer in 0..self.batches.len() {
            let batch = &self.batches[writer];
            if batch.bytes >= BATCH_BYTES || batch.parts.len() >= BATCH_EVENTS {
                self.hand_over(writer)?;
            }
        }
        Ok(())
    }

    /// The event under its new numbers, and its fragments; or why there are none.
    fn fragments(&self, planned: &Planned) -> Result<(RawEvent, Vec<Piece>), String> {
        let key = planned.key;
        let mut event = (*planned.template).clone();
        // The bytes of an event that is numbered by its position may hold another number.
        if event.key != key || planned.by_position {
            renumber(&mut event, key.run, key.event).map_err(|error| format!("event {key}: {error}"))?;
        }
        let pieces = split(&event).map_err(|error| format!("event {key}: {error}"))?;
        if pieces.len() > usize::from(u16::MAX) {
            return Err(format!("event {key}: {} fragments; expected at most {}", pieces.len(), u16::MAX));
        }
        let max = self.shared.fragment_bytes_max;
        if let Some(piece) = pieces.iter().find(|piece| piece.bytes.len() as u64 > max) {
            let id = key.fragment(piece.source);
            return Err(format!(
                "fragment {id} has {} bytes; this store takes at most {max}. No fragment of its event was put",
                piece.bytes.len()
            ));
        }
        Ok((event, pieces))
    }

    /// Before the first fragment is put, so that whatever is stored is known.
    fn remember(&self, event: &RawEvent) -> Result<(), ReadoutError> {
        let mut file = self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = &self.shared.config.ledger;
        if file.is_none() && memory.is_none() {
            return Ok(());
        }
        let hash = EventHash::of(&event.bytes);
        if let Some(memory) = memory {
            memory.insert(event.key, hash);
        }
        match file.as_mut() {
            Some(file) => Ok(file.add(event.key, hash)?),
            None => Ok(()),
        }
    }

    fn hand_over(&mut self, writer: usize) -> Result<(), Option<ReadoutError>> {
        if let Some(file) = self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            file.flush().map_err(|error| Some(error.into()))?;
        }
        let batch = std::mem::take(&mut self.batches[writer]);
        self.senders[writer].send(batch.parts).map_err(|_| None)
    }

    fn hand_over_all(&mut self) -> Result<(), Option<ReadoutError>> {
        for writer in 0..self.batches.len() {
            if !self.batches[writer].parts.is_empty() {
                self.hand_over(writer)?;
            }
        }
        Ok(())
    }
}

fn left_until(due: Duration, start: Instant) -> Duration {
    due.saturating_sub(start.elapsed())
}
