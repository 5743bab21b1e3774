//! Puts the fragments of its sources and counts what became of them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::PutResult;
use forebay_types::PutOutcome;

use super::Shared;
use super::producer::Part;
use crate::store::ReadoutStore;

/// A client without calls moves nothing: while no events come it is asked for results after this time, then less and less often, so that
/// hundreds of writers leave the processor to others.
const TURN: Duration = Duration::from_millis(2);
/// The longest wait for a store before it is looked whether all is over.
const WAIT: Duration = Duration::from_millis(50);
/// So long nothing is answered before somebody is told: what a flush on a disk takes, or a busy machine, is no news.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// The wait before a put that was not taken is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// What is under way when all is to end may still be answered for so long.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Writer<'a, S> {
    shared: &'a Shared<'a>,
    store: S,
    results: Vec<PutResult>,
    /// Since when nothing became of any fragment, while some wait.
    stuck_since: Option<Instant>,
}

impl<'a, S: ReadoutStore> Writer<'a, S> {
    pub(super) fn new(shared: &'a Shared<'a>, store: S) -> Self {
        Writer { shared, store, results: Vec::new(), stuck_since: None }
    }

    /// Ends when all events came and something became of every fragment, or soon after all is over. Whatever
    /// it leaves in `batches` ends the producers.
    pub(super) fn run(mut self, batches: &Receiver<Vec<Part>>) {
        let mut turn = TURN;
        while !self.shared.failed.load(Relaxed) {
            let longest = if self.store.pending_puts() == 0 { WAIT } else { turn };
            turn = (turn * 2).min(WAIT);
            match batches.recv_timeout(longest) {
                Ok(parts) => {
                    turn = TURN;
                    if !parts.iter().all(|part| self.put(part)) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !self.take_results(Duration::ZERO) {
                break;
            }
        }
        self.settle();
    }

    /// False when it cannot go on.
    fn put(&mut self, part: &Part) -> bool {
        let progress = self.shared.progress;
        for piece in &part.pieces {
            let id = part.key.fragment(piece.source);
            while !self.store.has_room(part.key) {
                if self.shared.is_over() || !self.take_results(WAIT) {
                    return false;
                }
            }
            while let Err(error) = self.store.put(id, part.expected, &piece.bytes) {
                if !error.retryable {
                    self.shared.fail(error.into());
                    return false;
                }
                if self.shared.is_over() {
                    return false;
                }
                tracing::warn!("{error}");
                thread::sleep(RETRY);
            }
            progress.fragments_written.fetch_add(1, Relaxed);
            progress.bytes_written.fetch_add(piece.bytes.len() as u64, Relaxed);
        }
        true
    }

    /// Waits for the fragments that are under way; when all is over, not for ever.
    fn settle(&mut self) {
        let mut until = None;
        while self.store.pending_puts() > 0 {
            if self.shared.is_over() && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + GRACE) {
                self.shared.abandon(self.store.pending_puts() as u64, self.store.puts_wait_for());
                break;
            }
            if !self.take_results(WAIT) {
                break;
            }
        }
        self.take_results(Duration::ZERO);
    }

    /// False when it cannot go on.
    fn take_results(&mut self, longest: Duration) -> bool {
        if let Err(error) = self.store.wait_put_results(longest, &mut self.results) {
            self.shared.fail(error.into());
            return false;
        }
        if !self.results.is_empty() || self.store.pending_puts() == 0 {
            self.stuck_since = None;
        } else if self.stuck_since.get_or_insert_with(Instant::now).elapsed() >= STUCK_AFTER {
            self.shared.tell_what_is_waited_for(self.store.puts_wait_for());
        }
        self.count_results();
        true
    }

    fn count_results(&mut self) {
        let progress = self.shared.progress;
        for result in self.results.drain(..) {
            progress.latency.add(result.latency);
            if result.outcome.is_acknowledged() {
                progress.fragments_acknowledged.fetch_add(1, Relaxed);
                if result.outcome == PutOutcome::Late {
                    progress.late.fetch_add(1, Relaxed);
                }
                continue;
            }
            progress.errors.fetch_add(1, Relaxed);
            if result.outcome == PutOutcome::Conflict {
                progress.conflicts.fetch_add(1, Relaxed);
            }
            if result.outcome.is_retryable() {
                // It was tried until its deadline: what comes behind it fares no better.
                self.shared.given_up.store(true, Relaxed);
            } else {
                progress.refused.fetch_add(1, Relaxed);
            }
            progress.reports.add(|| {
                let said = if result.answered { "" } else { "no answer; " };
                format!("fragment {}: {said}{}", result.id, result.outcome)
            });
        }
    }
}
