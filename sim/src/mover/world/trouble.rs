//! What a destination does of what it is asked for, and besides.

use std::time::Duration;

use forebay_mover::Name;
use forebay_mover::custody::{Answer, ConsignmentId, Failure, Step};
use forebay_mover::machine::DestinationIndex;
use forebay_mover::recipe::Recipe;

use super::super::MoverFault;
use super::super::places::half;
use super::{Event, World};

impl World {
    pub(super) fn destination_does(
        &mut self,
        route: usize,
        id: ConsignmentId,
        to: DestinationIndex,
        step: &Step,
        recipe: &Recipe,
    ) -> Answer {
        let to = to.0;
        if self.now < self.destinations[to].away_until {
            self.totals.meet(MoverFault::Away);
            return Answer::Failed(Failure::NotNow("away".to_owned()));
        }
        if self.fires(MoverFault::Refusal, 15) {
            self.totals.meet(MoverFault::Refusal);
            if let Step::Remove { name } = step {
                // It was told, and is left.
                self.may_lie_about.insert((to, name.clone()));
            }
            return Answer::Failed(Failure::Refused("refused".to_owned()));
        }
        if self.fires(MoverFault::NoAnswer, 40) {
            self.totals.meet(MoverFault::NoAnswer);
            if self.random.per_mille(500) {
                self.does(route, to, id, step, recipe);
            }
            return Answer::Failed(Failure::Unknown("no answer".to_owned()));
        }
        if !matches!(step, Step::Ask { .. }) && self.fires(MoverFault::DoneLate, 30) {
            let bytes = self.sources[route].make(recipe, self.now).unwrap_or_default();
            let after = self.random.millis(1..30_000);
            self.at(after, Event::Late(to, id, step.clone(), bytes));
            return Answer::Failed(Failure::Unknown("it hangs".to_owned()));
        }
        let answer = self.does(route, to, id, step, recipe);
        self.lies(to, step, answer)
    }

    /// What a destination does besides what it says.
    fn lies(&mut self, to: usize, step: &Step, answer: Answer) -> Answer {
        match (step, answer) {
            (Step::Send { temporary, .. }, Answer::Sent(sums)) => {
                for (fault, cut) in [(MoverFault::Truncated, true), (MoverFault::Flipped, false)] {
                    let bytes = self.destinations[to].bytes(temporary).map(<[u8]>::to_vec).unwrap_or_default();
                    if !bytes.is_empty() && self.fires(fault, 40) {
                        self.spoiled.insert((to, temporary.clone()), fault);
                        self.destinations[to].truncate_or_flip(temporary, cut);
                    }
                }
                self.spoil_later(to, temporary);
                Answer::Sent(sums)
            }
            (Step::Rename { to: name, .. } | Step::Replace { to: name, .. }, Answer::Done) => {
                self.spoil_later(to, name);
                Answer::Done
            }
            (Step::Ask { name }, Answer::Told(told)) => {
                if let Some(fault) = self.spoiled.remove(&(to, name.clone())) {
                    self.totals.meet(fault);
                }
                let adler = self.random.per_mille(500);
                Answer::Told(told.map(|mut told| {
                    if self.fires(MoverFault::WrongChecksum, 15) {
                        self.totals.meet(MoverFault::WrongChecksum);
                        told.adler32 = told.adler32.map(|sum| sum ^ 1);
                        return told;
                    }
                    half(told, adler)
                }))
            }
            (_, answer) => answer,
        }
    }

    fn spoil_later(&mut self, to: usize, name: &Name) {
        for (fault, drop) in [(MoverFault::Dropped, true), (MoverFault::Rotten, false)] {
            if self.fires(fault, 40) {
                let after = if self.random.per_mille(300) { Duration::ZERO } else { self.random.millis(0..8000) };
                self.at(after, Event::Spoils(to, name.clone(), drop));
            }
        }
    }
}
