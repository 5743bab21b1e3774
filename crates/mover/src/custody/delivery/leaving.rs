//! A name that a delivery gives up: its consignment is withdrawn, or takes another name because somebody else's file has this one.

use forebay_types::Time;

use super::{Delivery, Phase};
use crate::custody::{DeliveryState, Policy};
use crate::planted::{Planted, planted};
use crate::sums::{Sums, Told};

/// Why a name is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// What it is made of is moved anew: nothing may have the name.
    Withdrawn,
    /// It takes another one: nothing of ours may have this one.
    Renamed,
}

/// Somebody else's file, where one of ours is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InTheWay {
    pub(super) words: String,
    /// It has the name of the sidecar.
    pub(super) is_beside: bool,
}

impl Delivery {
    /// What is in it is to be moved anew, under another name perhaps: is it still there by this one? What is left over goes first, so that nothing gets that name later.
    pub(in crate::custody) fn ask_gone(&mut self, now: Time) {
        if !self.may_be_withdrawn() {
            self.leave(Leaving::Withdrawn, now);
        }
    }

    fn leave(&mut self, leaving: Leaving, now: Time) {
        // It may be under way now.
        self.perhaps_named |= self.phase == Phase::Rename;
        self.kept.left.extend(self.kept.partial.take());
        let is_swept = self.kept.left.is_empty();
        (self.leaving, self.due) = (Some(leaving), now);
        self.phase = if is_swept { Phase::AskGone } else { Phase::Sweep };
    }

    /// Whether that is not known yet.
    pub(in crate::custody) fn asks_gone(&self) -> bool {
        self.leaving.is_some()
    }

    /// In words, what has its name and is not ours, if it may take another one for that.
    pub(in crate::custody) fn in_the_way(&self) -> Option<&str> {
        self.in_the_way.as_ref().map(|in_the_way| in_the_way.words.as_str())
    }

    /// Whether nothing of ours is known to have its name there, nor proven what has it.
    pub(in crate::custody) fn might_be_renamed(&self) -> bool {
        let has_it =
            matches!(self.kept.state, DeliveryState::Verified | DeliveryState::Waiting | DeliveryState::Proven);
        !self.kept.ours && (!has_it || self.in_the_way.is_some()) || planted(Planted::RenamedAnyway)
    }

    /// Its consignment is to take another name: nothing more gets this one. What came whole once may get it late: it is taken away first, and then looked
    /// whether it has. `keeps`: what is hidden there under a temporary name keeps that.
    pub(in crate::custody) fn give_way(&mut self, keeps: bool, now: Time) {
        if !self.may_be_renamed(keeps) {
            return self.leave(Leaving::Renamed, now);
        }
        if self.kept.partial.is_some() {
            // Whatever the attempt that is under way comes to, nobody waits for it.
            self.phase = Phase::Clean;
        }
    }

    /// Whether it may take another name now.
    pub(in crate::custody) fn may_be_renamed(&self, keeps: bool) -> bool {
        let is_nowhere = self.is_nowhere() && self.kept.left.is_empty() && !self.perhaps_named;
        is_nowhere && (keeps || self.kept.partial.is_none()) || planted(Planted::RenamedAnyway)
    }

    /// It has another name: everything begins anew.
    pub(in crate::custody) fn renamed(&mut self, now: Time) {
        (self.leaving, self.in_the_way) = (None, None);
        self.kept.state = DeliveryState::Found;
        self.kept.words.clear();
        (self.phase, self.due) = (Phase::Look, now);
    }

    /// It keeps its name, whatever is in the way.
    pub(in crate::custody) fn keep_name(&mut self, now: Time, policy: &Policy, salt: u64) {
        if self.leaving.take().is_some() {
            (self.phase, self.due) = (Phase::after(self.kept.state), now);
        }
        match self.in_the_way.take() {
            // It comes to that when the sidecar is sent.
            Some(InTheWay { is_beside: true, .. }) => {
                self.due = now;
                self.begin_clean();
            }
            Some(InTheWay { words, .. }) => self.strike(words, now, policy, salt),
            None => {}
        }
    }

    /// What has its name there now that it is given up.
    pub(super) fn asked_gone(&mut self, told: Option<Told>, content: &Sums) {
        let is_renamed = self.leaving == Some(Leaving::Renamed);
        match told {
            None => {
                (self.kept.state, self.kept.ours, self.perhaps_named) = (DeliveryState::Found, false, false);
            }
            // Somebody else's, of which it gets out of the way.
            Some(told) if is_renamed && !self.kept.ours && !self.perhaps_named && !told.proves(content) => {
                self.kept.state = DeliveryState::Found;
            }
            Some(told) => {
                self.kept.words = format!("it is there still: {told}");
                if self.is_nowhere() {
                    self.kept.state = DeliveryState::Quarantined;
                }
            }
        }
        self.leaving = None;
        self.phase = Phase::after(self.kept.state);
        if self.kept.state == DeliveryState::Quarantined {
            self.phase = Phase::Rest;
        }
    }

    /// What lies under the name of its sidecar before anything is sent: nothing that could be ours, but for one that came there with a file that is gone.
    pub(super) fn looked_beside(&mut self, told: Option<Told>) {
        match told {
            None => self.begin_clean(),
            Some(told) => {
                let words = format!("another file has the name of its sidecar there, and was left alone: {told}");
                self.in_the_way = Some(InTheWay { words, is_beside: true });
                self.phase = Phase::Rest;
            }
        }
    }
}
