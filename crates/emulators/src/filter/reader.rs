//! Leases events and reads them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::LeasedEvent;

use super::steps::{self, ReadEvent};
use super::{Shared, Until};
use crate::store::{FilterStore, StoreError};

/// The shortest and the longest wait before the store is asked again.
const WAIT: std::ops::Range<Duration> = Duration::from_millis(2)..Duration::from_millis(50);
/// The wait after the store gave no answer.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct Reader<'a, S> {
    shared: &'a Shared<'a>,
    store: S,
    filter: u64,
    batches: SyncSender<Vec<ReadEvent>>,
    /// Since when no event is undecided.
    idle_since: Option<Instant>,
}

impl<'a, S: FilterStore> Reader<'a, S> {
    pub(super) fn new(shared: &'a Shared<'a>, store: S, number: u64, batches: SyncSender<Vec<ReadEvent>>) -> Self {
        let filter = shared.config.filter_id.wrapping_add(number);
        Reader { shared, store, filter, batches, idle_since: None }
    }

    /// Ends when it is over, or when nobody takes its batches.
    pub(super) fn run(mut self) {
        while !self.is_over() {
            let config = self.shared.config;
            let lease = match self.store.lease(config.batch_events, config.lease, self.filter, config.run) {
                Ok(lease) => lease,
                Err(error) => {
                    self.trouble(error);
                    continue;
                }
            };
            if lease.events.is_empty() {
                self.idle(lease.undecided);
                thread::sleep(lease.retry_after.clamp(WAIT.start, WAIT.end));
                continue;
            }
            self.idle_since = None;
            for batch in batches(&lease.events, config.batch_bytes) {
                if !self.read(batch) {
                    return;
                }
            }
        }
    }

    /// False when the batch is nobody's business any more. What gets no answer is asked for in two halves: a store that is slow shall come to an
    /// end with something.
    fn read(&mut self, batch: &[LeasedEvent]) -> bool {
        let (config, progress) = (self.shared.config, self.shared.progress);
        let events = loop {
            match steps::read(&mut self.store, batch, config.steps.as_ref(), &self.shared.choice) {
                Ok(events) => break events,
                Err(error) => self.trouble(error),
            }
            // The leases run out by themselves.
            if self.shared.is_stopping() {
                return false;
            }
            if batch.len() > 1 {
                let (first, second) = batch.split_at(batch.len() / 2);
                return self.read(first) && self.read(second);
            }
        };
        progress.events_read.fetch_add(events.len() as u64, Relaxed);
        let fragments = events.iter().flat_map(|read| &read.event.fragments);
        progress.bytes_read.fetch_add(fragments.map(|fragment| fragment.payload.len() as u64).sum(), Relaxed);
        self.batches.send(events).is_ok()
    }

    fn trouble(&self, error: StoreError) {
        if error.retryable {
            tracing::warn!("{error}");
            thread::sleep(RETRY);
        } else {
            self.shared.fail(error.into());
        }
    }

    fn idle(&mut self, undecided: u64) {
        let finished = self.shared.control.input_finished.load(Relaxed);
        let Until::Idle(wait) = self.shared.config.until else { return };
        if undecided > 0 || !finished {
            self.idle_since = None;
            return;
        }
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() >= wait {
            self.shared.over.store(true, Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        if let Until::Events(events) = self.shared.config.until
            && self.shared.progress.events_built.load(Relaxed) >= events
        {
            self.shared.over.store(true, Relaxed);
        }
        self.shared.is_over()
    }
}

/// Cuts a lease into what is read at once.
fn batches(mut events: &[LeasedEvent], batch_bytes: u64) -> impl Iterator<Item = &[LeasedEvent]> {
    std::iter::from_fn(move || {
        let mut bytes = 0u64;
        let fits = events.iter().take_while(|event| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(event.bytes.max(1));
            first || bytes <= batch_bytes
        });
        let (batch, rest) = events.split_at(fits.count());
        events = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use forebay_types::EventKey;

    use super::*;

    #[test]
    fn batches_hold_what_fits_and_at_least_one() {
        let sizes = [10, 90, 1, 500, 20, 30, 0, 0];
        let event = |bytes| LeasedEvent {
            key: EventKey::new(1, 1),
            fragments: 1,
            expected: 1,
            attempt: 1,
            bytes,
            incomplete: false,
        };
        let events = sizes.map(event);
        let cut: Vec<Vec<u64>> = batches(&events, 100).map(|b| b.iter().map(|e| e.bytes).collect()).collect();
        assert_eq!(cut, [vec![10, 90], vec![1], vec![500], vec![20, 30, 0, 0]]);
    }
}
