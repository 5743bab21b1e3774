//! The server that owns a store.

use forebay_types::Time;

use crate::Timing;

/// What became of a pulse that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It is written.
    Written,
    /// Nobody knows whether it is, or will be.
    Unknown,
    /// Somebody else owns the store.
    NotOwner,
}

/// Shows that the owner lives, and knows until when it may answer.
#[derive(Clone, Debug)]
pub struct Owner {
    timing: Timing,
    pulse: u64,
    asked_at: Option<Time>,
    next_at: Time,
    answers_until: Time,
    is_replaced: bool,
}

impl Owner {
    /// One that has just taken the lock, for which it asked at `asked_at`.
    pub fn new(timing: Timing, asked_at: Time) -> Self {
        let answers_until = asked_at + timing.answers_for();
        Owner { timing, pulse: 0, asked_at: None, next_at: asked_at, answers_until, is_replaced: false }
    }

    /// The pulse to ask for now, if it is time for one and none is on its way.
    pub fn next_pulse(&mut self, now: Time) -> Option<u64> {
        if self.asked_at.is_some() || now < self.next_at || self.is_replaced {
            return None;
        }
        self.pulse += 1;
        self.asked_at = Some(now);
        Some(self.pulse)
    }

    /// The pulse that was asked for has come to an end.
    ///
    /// # Panics
    /// When none was.
    pub fn pulsed(&mut self, now: Time, renewal: Renewal) {
        let asked_at = self.asked_at.take().expect("a pulse was asked for");
        match renewal {
            // Also of one that could answer nobody for a while, since the cluster did not answer it: who would replace it looks at the pulse once more.
            Renewal::Written => {
                self.answers_until = asked_at + self.timing.answers_for();
                self.next_at = asked_at + self.timing.pulse_every();
            }
            Renewal::Unknown => self.next_at = now + self.timing.pulse_every() / 2,
            Renewal::NotOwner => self.is_replaced = true,
        }
    }

    /// It answers nobody from this time on, unless a pulse is written before.
    pub fn answers_until(&self) -> Time {
        if self.is_replaced { Time::default() } else { self.answers_until }
    }

    /// Whether somebody else owns the store: it is over.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Whether it may answer anybody.
    pub fn may_answer(&self, now: Time) -> bool {
        !self.is_replaced && now < self.answers_until
    }

    /// When to ask for [`Owner::next_pulse`] again.
    pub fn next_wakeup(&self) -> Time {
        if self.asked_at.is_some() { self.answers_until } else { self.next_at }
    }
}
