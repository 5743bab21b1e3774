//! What a destination does of what it is asked for, and besides.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_mover::custody::{Answer, ConsignmentId, Failure, Step};
use forebay_mover::machine::DestinationIndex;
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, sidecar};
use forebay_types::Time;

use super::super::MoverFault;
use super::super::places::{Owner, half};
use super::{Event, TROUBLE, World};

impl World {
    /// One of a series, or many: all that an earlier mover left.
    pub(super) fn foreign_numbers(&mut self) -> RangeInclusive<u64> {
        if self.random.per_mille(300) {
            return 1..=self.random.within(2..30);
        }
        let number = self.random.within(1..4);
        number..=number
    }

    pub(super) fn plan_foreign_names(&mut self, to: usize, names: Vec<Name>, may_be_twin: bool, until_ms: u64) {
        let is_of_sidecars = self.setup.sidecar && self.random.per_mille(400);
        let twin = self.random.per_mille(300) && may_be_twin && self.setup.zstd.is_none() && !is_of_sidecars;
        let at = if self.random.per_mille(300) { Duration::ZERO } else { self.random.millis(0..until_ms) };
        for mut name in names {
            if self.setup.zstd.is_some() {
                name = name.with_ending(".zst").expect("it has room");
            }
            if is_of_sidecars {
                name = sidecar::name_of(&name).expect("it has room");
            }
            self.at(at, Event::Foreign(to, name, twin));
        }
    }

    pub(super) fn foreign(&mut self, to: usize, name: Name, twin: bool) {
        let fault = match twin {
            true => MoverFault::ForeignTwin,
            false if name.as_str().ends_with(".json") => MoverFault::SidecarForeign,
            false => MoverFault::Foreign,
        };
        let other = vec![99; self.sources[0].files.get(&name).map_or(5, |file| file.bytes.len())];
        let bytes = self.sources[0].files.get(&name).filter(|_| twin).map_or(other, |file| file.bytes.clone());
        if self.destinations[to].is_free(&name) && self.fires(fault, 1000) {
            self.tell(|| format!("somebody puts {name} at {to}"));
            self.spoiled.insert((to, name.clone()), fault);
            self.destinations[to].put(&name, bytes, Owner::Somebody);
        }
    }

    pub(super) fn destination_does(
        &mut self,
        route: usize,
        id: ConsignmentId,
        to: DestinationIndex,
        step: &Step,
        recipe: &Recipe,
        sidecar: Option<&str>,
    ) -> Answer {
        let to = to.0;
        if let Step::AskTape { name } = step {
            let at = self.when_on_tape();
            self.destinations[to].comes_to_tape(name, at);
        }
        if self.now < self.destinations[to].away_until {
            self.totals.meet(MoverFault::Away);
            return Answer::Failed(Failure::NotNow("away".to_owned()));
        }
        if matches!(step, Step::Pull { .. }) && self.fires(MoverFault::FetchFailed, 200) {
            self.totals.meet(MoverFault::FetchFailed);
            return Answer::Failed(Failure::Refused("it cannot fetch it".to_owned()));
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
                self.does(route, to, id, step, recipe, sidecar);
            }
            return Answer::Failed(Failure::Unknown("no answer".to_owned()));
        }
        if !matches!(step, Step::Ask { .. } | Step::AskTape { .. }) && self.fires(MoverFault::DoneLate, 30) {
            let bytes = self.sent(route, recipe, sidecar).unwrap_or_default();
            let after = self.random.millis(1..30_000);
            self.at(after, Event::Late(to, id, step.clone(), bytes));
            return Answer::Failed(Failure::Unknown("it hangs".to_owned()));
        }
        let answer = self.does(route, to, id, step, recipe, sidecar);
        self.lies(to, step, answer)
    }

    /// What a destination does besides what it says.
    fn lies(&mut self, to: usize, step: &Step, answer: Answer) -> Answer {
        match (step, answer) {
            (
                Step::Send { temporary, .. } | Step::Pull { temporary, .. },
                answer @ (Answer::Sent(_) | Answer::Pulled),
            ) => {
                for (fault, cut) in [(MoverFault::Truncated, true), (MoverFault::Flipped, false)] {
                    let bytes = self.destinations[to].bytes(temporary).map(<[u8]>::to_vec).unwrap_or_default();
                    if !bytes.is_empty() && self.fires(fault, 40) {
                        self.is_spoiled(to, temporary, fault);
                        self.destinations[to].truncate_or_flip(temporary, cut);
                    }
                }
                self.spoil_later(to, temporary);
                answer
            }
            (Step::Rename { to: name, .. } | Step::Replace { to: name, .. }, Answer::Done) => {
                self.spoil_later(to, name);
                Answer::Done
            }
            (Step::Ask { name }, Answer::Told(told)) => {
                if let Some(fault) = self.spoiled.remove(&(to, name.clone())) {
                    self.totals.meet(fault);
                    if is_of_a_sidecar(name) && fault != MoverFault::SidecarForeign {
                        self.totals.meet(MoverFault::SidecarSpoiled);
                    }
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
            (_, answer) => {
                if answer == Answer::OnTape(false) {
                    self.totals.meet(MoverFault::TapeLate);
                    if self.is_tape_stuck() {
                        self.totals.meet(MoverFault::TapeStuck);
                    }
                }
                answer
            }
        }
    }

    /// When what comes to a destination now is on tape.
    fn when_on_tape(&mut self) -> Time {
        if self.is_tape_stuck() && self.fires(MoverFault::TapeStuck, 100) {
            return Time(TROUBLE.as_nanos() as u64) + self.random.millis(1000..20_000);
        }
        if self.fires(MoverFault::TapeLate, 600) {
            return self.now + self.random.millis(1..40_000);
        }
        self.now
    }

    fn is_tape_stuck(&self) -> bool {
        self.now.0 < TROUBLE.as_nanos() as u64
    }

    pub(super) fn is_spoiled(&mut self, to: usize, name: &Name, fault: MoverFault) {
        if is_of_a_sidecar(name) {
            self.totals.fire(MoverFault::SidecarSpoiled);
        }
        self.spoiled.insert((to, name.clone()), fault);
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

/// Of one that is there by its name, or of one on its way.
fn is_of_a_sidecar(name: &Name) -> bool {
    name.as_str().ends_with(".json") || name.as_str().ends_with(".json.part")
}
