//! A server that would own a store.

use forebay_types::Time;

use crate::Timing;

/// How long a standby waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until its owner is gone.
    ForEver,
    /// Until it is known whether the owner lives: if so, it is left alone.
    UntilSeenAlive,
    /// Not at all: an operator has said that the owner is to be replaced.
    None,
}

/// What is to be done now. One at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<H> {
    /// See who has the lock, and their pulse.
    Look,
    /// Keep everything away that this one asks of the cluster, for years.
    Fence(H),
    /// Wait until the newest map of the cluster is known, in which the fence stands.
    AwaitNewestMap,
    /// List all objects of the store, by which every drive of the cluster has that map.
    List,
    /// Break the lock of this one.
    Break(H),
    /// Take the lock.
    Lock,
    /// The store is owned.
    Own,
    /// The store has an owner that lives, and stays his.
    LeaveAlone(H),
}

/// What a look saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<H> {
    /// Who has the lock.
    pub holder: Option<H>,
    /// Changes when the holder shows that it lives.
    pub pulse: Vec<u8>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<H> {
    /// Of a look.
    Seen(Seen<H>),
    /// It is done.
    Done,
    /// Of the lock: somebody else has it.
    Held,
    /// Nobody knows whether it is done.
    Unknown,
}

#[derive(Clone, Debug)]
enum State<H> {
    /// It will look at this time.
    Watching { next_look: Time },
    /// It asked at this time.
    Looking { asked_at: Time },
    /// All has been listed since this time, and it asked once more for the pulse.
    LookingAgain { listed_at: Time },
    /// The lock is broken at this time.
    Waiting { until: Time },
    /// This step is on its way.
    Taking(Step<H>),
    /// It has come to its end.
    Over(Step<H>),
}

/// Watches an owner, and takes its store over.
#[derive(Clone, Debug)]
pub struct Standby<H> {
    timing: Timing,
    patience: Patience,
    state: State<H>,
    /// What was seen last, and since when.
    seen: Option<(Seen<H>, Time)>,
    /// So often in a row the holder could not be fenced.
    failed_fences: u32,
}

impl<H: Clone + Eq> Standby<H> {
    /// One that has seen nothing yet.
    pub fn new(timing: Timing, patience: Patience, now: Time) -> Self {
        let state = State::Watching { next_look: now };
        Standby { timing, patience, state, seen: None, failed_fences: 0 }
    }

    /// What is to be done now; nothing while something is on its way, or before [`Standby::next_wakeup`].
    pub fn next_step(&mut self, now: Time) -> Option<Step<H>> {
        match &self.state {
            State::Watching { next_look } if now >= *next_look => {
                self.state = State::Looking { asked_at: now };
                Some(Step::Look)
            }
            State::Waiting { until } if now >= *until => Some(self.go_on(Step::Break(self.fenced()))),
            State::Over(step) => Some(step.clone()),
            _ => None,
        }
    }

    /// A step has come to its end; gives the next, when it is to be done at once.
    ///
    /// # Panics
    /// When nothing was on its way, or it cannot have this answer.
    pub fn answered(&mut self, now: Time, answer: Answer<H>) -> Option<Step<H>> {
        let step = match (&self.state, answer) {
            (State::Taking(Step::Fence(_)), Answer::Unknown) => return self.fence_later(now),
            (State::Looking { .. } | State::LookingAgain { .. } | State::Taking(_), Answer::Unknown) => {
                return self.look_later(now);
            }
            (State::LookingAgain { listed_at }, Answer::Seen(seen)) => {
                let listed_at = *listed_at;
                return self.judge_again(listed_at, now, &seen);
            }
            (State::Looking { asked_at }, Answer::Seen(seen)) => {
                let asked_at = *asked_at;
                return self.judge(asked_at, now, seen);
            }
            (State::Taking(Step::Lock), Answer::Held) => return self.look_later(now),
            (State::Taking(step), Answer::Done) => step.clone(),
            _ => panic!("an answer that belongs to another step, or to none"),
        };
        let next = match step {
            Step::Fence(_) => {
                self.failed_fences = 0;
                Step::AwaitNewestMap
            }
            Step::AwaitNewestMap => Step::List,
            Step::List => {
                self.state = State::LookingAgain { listed_at: now };
                return Some(Step::Look);
            }
            Step::Break(_) => Step::Lock,
            Step::Lock => Step::Own,
            Step::Look | Step::Own | Step::LeaveAlone(_) => unreachable!("they are never on their way"),
        };
        Some(self.go_on(next))
    }

    /// What a look that was asked for at `asked_at` says. A pulse that stands still has done so until then at least, and not longer: the answer may have taken long.
    fn judge(&mut self, asked_at: Time, now: Time, seen: Seen<H>) -> Option<Step<H>> {
        let Some(holder) = seen.holder.clone() else {
            // Nobody has it: who gave it back has nothing on its way, and who lost it was fenced before.
            self.seen = Some((seen, now));
            return Some(self.go_on(Step::Lock));
        };
        let before = self.seen.take();
        let (is_same, since) = match before {
            Some((before, since)) if before == seen => (true, since),
            // The first look says nothing about life.
            Some((before, _)) if before.holder == seen.holder => {
                self.seen = Some((seen, now));
                self.failed_fences = 0;
                if self.patience == Patience::UntilSeenAlive {
                    return Some(self.go_on(Step::LeaveAlone(holder)));
                }
                return self.look_later(now);
            }
            // Somebody took it over before the one did that was told to.
            Some(_) if self.patience == Patience::None => return Some(self.go_on(Step::LeaveAlone(holder))),
            _ => (false, now),
        };
        self.seen = Some((seen, since));
        if !is_same {
            self.failed_fences = 0;
        }
        let is_dead = is_same && asked_at.since(since) >= self.timing.dead_after();
        if is_dead || self.patience == Patience::None {
            return Some(self.go_on(Step::Fence(holder)));
        }
        self.look_later(now)
    }

    /// All has been listed: the holder that was fenced can show no more that it lives, and whether it did since it was fenced is to be seen now. One that did may
    /// answer for a while without asking the cluster for anything. Whoever sees no lock takes it at once, so it is not broken before that is over.
    fn judge_again(&mut self, listed_at: Time, now: Time, seen: &Seen<H>) -> Option<Step<H>> {
        let before = self.seen.as_ref().map(|(before, _)| before);
        if before.is_none_or(|before| before.holder != seen.holder) {
            return self.look_later(now);
        }
        if before == Some(seen) && self.patience != Patience::None {
            return Some(self.go_on(Step::Break(self.fenced())));
        }
        self.state = State::Waiting { until: listed_at + self.timing.answers_for() };
        None
    }

    fn fenced(&self) -> H {
        self.seen.as_ref().and_then(|(seen, _)| seen.holder.clone()).expect("a fenced holder was seen")
    }

    fn look_later(&mut self, now: Time) -> Option<Step<H>> {
        self.state = State::Watching { next_look: now + self.timing.look_every() };
        None
    }

    /// Nobody knows that the holder is fenced, so nothing is taken. What failed will mostly fail again: after each failure it is waited twice as long, up to the
    /// time after which an owner counts as dead.
    fn fence_later(&mut self, now: Time) -> Option<Step<H>> {
        let pause = self.timing.look_every() * (1 << self.failed_fences.min(10));
        self.failed_fences += 1;
        self.state = State::Watching { next_look: now + pause.min(self.timing.dead_after()) };
        None
    }

    fn go_on(&mut self, step: Step<H>) -> Step<H> {
        let is_over = matches!(step, Step::Own | Step::LeaveAlone(_));
        self.state = if is_over { State::Over(step.clone()) } else { State::Taking(step.clone()) };
        step
    }

    /// When to ask for [`Standby::next_step`] again; nothing while something is on its way.
    pub fn next_wakeup(&self) -> Option<Time> {
        match &self.state {
            State::Watching { next_look: at } | State::Waiting { until: at } => Some(*at),
            State::Looking { .. } | State::LookingAgain { .. } | State::Taking(_) | State::Over(_) => None,
        }
    }

    /// Since when the holder's pulse has stood still, as far as was seen.
    pub fn still_since(&self) -> Option<Time> {
        self.seen.as_ref().map(|(_, since)| *since)
    }
}
