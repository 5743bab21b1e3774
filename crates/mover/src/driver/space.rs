//! What the source of a route takes still, asked now and then by a thread of its own: a file system or a store that hangs holds nobody up.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::endpoint::HasSpace;
use crate::monitor::Space;

/// It is asked so often.
const EVERY: Duration = Duration::from_secs(5);
/// What was told so long ago is not told any more.
const AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    last: Mutex<Option<(Instant, Space)>>,
}

/// Asks until it is dropped.
pub(super) struct SpaceWatch {
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

impl SpaceWatch {
    pub(super) fn start(space: Arc<dyn HasSpace>) -> SpaceWatch {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let run = move || {
            while !of_thread.over.load(Relaxed) {
                match space.space() {
                    Ok(space) => {
                        let mut last = of_thread.last.lock().unwrap_or_else(PoisonError::into_inner);
                        *last = Some((Instant::now(), space));
                    }
                    Err(words) => tracing::debug!("the space of a source is not known: {words}"),
                }
                std::thread::park_timeout(EVERY);
            }
        };
        // Without it nobody knows how long the space lasts; all else goes on.
        let thread = std::thread::Builder::new().name("mover space".to_owned()).spawn(run);
        if let Err(error) = &thread {
            tracing::warn!("nobody looks at how long the space lasts: no thread could be started: {error}");
        }
        SpaceWatch { shared, thread: thread.ok().map(|thread| thread.thread().clone()) }
    }

    /// What was told last, if that was not long ago.
    pub(super) fn last(&self) -> Option<Space> {
        let last = *self.shared.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| at.elapsed() < AGE_MAX).map(|(_, space)| space)
    }
}

impl Drop for SpaceWatch {
    fn drop(&mut self) {
        // Not waited for: it may hang.
        self.shared.over.store(true, Relaxed);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}
