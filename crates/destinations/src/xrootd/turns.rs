//! How many may ask for something at once: the others wait for their turn.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use forebay_mover::endpoint::Moved;

/// Whoever waits looks so often whether anybody waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// It is given back when this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(at_once: usize) -> Turns {
        Turns { free: Mutex::new(at_once), given_back: Condvar::new() }
    }

    /// Waits for a turn; nothing when nobody waits for it any more. To wait is no hanging: each of the others comes to an end.
    pub(super) fn take(&self, moved: &dyn Moved) -> Option<Turn<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            if !moved.moved(0) {
                return None;
            }
            free = self.given_back.wait_timeout(free, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    struct Patient(bool);

    impl Moved for Patient {
        fn moved(&self, _: u64) -> bool {
            self.0
        }
    }

    #[test]
    fn no_more_than_so_many_have_a_turn_and_whoever_is_not_waited_for_has_none() {
        let (turns, now, most) = (Turns::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let turn = turns.take(&Patient(true)).expect("it waits");
                        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.load(SeqCst)));
        let all: Vec<Turn> = (0..3).filter_map(|_| turns.take(&Patient(false))).collect();
        assert_eq!(all.len(), 3, "nobody has to wait for what is free");
        assert!(turns.take(&Patient(false)).is_none());
    }
}
