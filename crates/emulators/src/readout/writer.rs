//! Puts the fragments of its sources and counts what became of them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use forebay_client::PutResult;
use forebay_types::PutOutcome;

use super::Shared;
use super::producer::Part;
use crate::store::ReadoutStore;

/// A client without calls moves nothing: it is asked for results so often while no events come.
const TURN: Duration = Duration::from_millis(2);
/// The wait before a put that was not taken is tried again.
const RETRY: Duration = Duration::from_millis(100);

pub(super) struct Writer<'a, S> {
    shared: &'a Shared<'a>,
    store: S,
    results: Vec<PutResult>,
}

impl<'a, S: ReadoutStore> Writer<'a, S> {
    pub(super) fn new(shared: &'a Shared<'a>, store: S) -> Self {
        Writer { shared, store, results: Vec::new() }
    }

    /// Ends when all events came. When it cannot go on it leaves `batches`, which ends the producers.
    pub(super) fn run(mut self, batches: &Receiver<Vec<Part>>) {
        loop {
            match batches.recv_timeout(TURN) {
                Ok(parts) => {
                    for part in parts {
                        if !self.put(&part) {
                            return;
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.count_results();
        }
        // Fragments that were given up have results, which are counted as errors.
        if let Err(error) = self.store.flush() {
            self.shared.progress.reports.add(|| error.to_string());
            if !error.retryable {
                self.shared.fail(error.into());
            }
        }
        self.count_results();
    }

    /// False when it cannot go on.
    fn put(&mut self, part: &Part) -> bool {
        let progress = self.shared.progress;
        for piece in &part.pieces {
            let id = part.key.fragment(piece.source);
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

    fn count_results(&mut self) {
        self.store.take_put_results(&mut self.results);
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
            progress.reports.add(|| {
                let said = if result.answered { "" } else { "no answer; " };
                format!("fragment {}: {said}{}", result.id, result.outcome)
            });
        }
    }
}
