//! What went wrong, with ids: all of it counted, the first of it kept in words.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// How many are kept in words.
const KEPT: usize = 16;

/// Sentences about what went wrong.
#[derive(Debug, Default)]
pub struct Reports {
    count: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl Reports {
    /// Adds one; `words` is called only when it is kept.
    pub fn add(&self, words: impl FnOnce() -> String) {
        if self.count.fetch_add(1, Relaxed) < KEPT as u64 {
            let words = words();
            tracing::error!("{words}");
            self.first.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The first of them in words.
    pub fn first(&self) -> Vec<String> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
