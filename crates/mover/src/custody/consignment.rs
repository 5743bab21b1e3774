//! One output file, for all destinations of its route.

use std::fmt;
use std::sync::Arc;

use forebay_types::Time;

use super::delivery::Names;
use super::{Answer, Change, Changed, Delivery, DeliveryState, Kept, Policy, SourceAnswer, SourceStep, Step};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::Recipe;
use crate::sums::Sums;

/// The number of a consignment in its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsignmentId(pub u64);

impl fmt::Display for ConsignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a file of the source looked like when it was found: one that looks otherwise later is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartIdentity {
    /// The size in bytes.
    pub bytes: u64,
    /// When it was written last, in nanoseconds since 1970, by the clock of its file system.
    pub modified_ns: i64,
    /// Its number in its file system.
    pub inode: u64,
}

/// A file of the source that is in a consignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name below the source.
    pub name: Name,
    /// What it looked like.
    pub identity: PartIdentity,
    /// When anything of it was changed last, its owner and its times too, in nanoseconds since 1970. A file that was changed so and looks as it did is read
    /// once more before it is let go: times can be set.
    pub changed_ns: i64,
}

/// How far a consignment is, besides its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its content is not what it should be, or changed on the way; nothing goes on until a person says so.
    Quarantined,
    /// It is planned; its content is to be checked.
    Found,
    /// Its content was checked, and it is on its way.
    Delivering,
    /// Every required destination has proven that it holds it.
    Proven,
    /// The source has let it go.
    Released,
    /// It changed before it was anywhere under its name: it is planned anew when it is complete.
    Withdrawn,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 6] =
        [Stage::Quarantined, Stage::Found, Stage::Delivering, Stage::Proven, Stage::Released, Stage::Withdrawn];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Quarantined => "quarantined",
            Stage::Found => "found",
            Stage::Delivering => "delivering",
            Stage::Proven => "proven",
            Stage::Released => "released",
            Stage::Withdrawn => "withdrawn",
        }
    }

    /// Whether the source keeps it no longer on behalf of this consignment.
    pub const fn is_over(self) -> bool {
        matches!(self, Stage::Released | Stage::Withdrawn)
    }
}

/// One output file on its way, as a machine.
#[derive(Clone, Debug)]
pub struct Consignment {
    /// Its number.
    pub id: ConsignmentId,
    /// Its name at every destination.
    pub name: Name,
    /// What it is made of, and how.
    pub recipe: Arc<Recipe>,
    /// Its deliveries, as the route had them when it was planned.
    pub deliveries: Vec<Delivery>,
    stage: Stage,
    held: bool,
    /// A person answers for its release.
    let_go: bool,
    content: Option<Sums>,
    words: String,
    /// It is to be withdrawn when nothing of it is anywhere under its name.
    withdrawing: bool,
    due: Time,
    failures: u32,
    failing_since: Option<Time>,
}

impl Consignment {
    /// One that was just planned.
    pub fn new(id: ConsignmentId, name: Name, recipe: Arc<Recipe>, deliveries: Vec<Delivery>) -> Consignment {
        Consignment::kept(id, name, recipe, deliveries, Stage::Found, (false, false), None, String::new())
    }

    /// Goes on with what the journal kept; `by_a_person`: whether one holds it, and whether one answers for its release.
    #[expect(clippy::too_many_arguments, reason = "it is a row of the journal")]
    pub fn kept(
        id: ConsignmentId,
        name: Name,
        recipe: Arc<Recipe>,
        deliveries: Vec<Delivery>,
        stage: Stage,
        (held, let_go): (bool, bool),
        content: Option<Sums>,
        words: String,
    ) -> Consignment {
        Consignment {
            id,
            name,
            recipe,
            deliveries,
            stage,
            held,
            let_go,
            content,
            words,
            withdrawing: false,
            due: Time(0),
            failures: 0,
            failing_since: None,
        }
    }

    /// Before the first step after a start.
    pub fn start(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let from = self.stage;
        for place in 0..self.deliveries.len() {
            let salt = self.salt(Some(place));
            self.deliveries[place].start(now, policy, salt);
        }
        if self.stage.is_over() {
            self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
        }
        // Nobody knows how old the proofs are.
        let mut changes = self.doubt(now, policy);
        changes.extend(self.staged(from));
        changes
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether a person holds it.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// What its bytes come to, once they were checked.
    pub fn content(&self) -> Option<&Sums> {
        self.content.as_ref()
    }

    /// What was said last about it.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Bytes of its parts.
    pub fn bytes(&self) -> u64 {
        self.recipe.bytes()
    }

    /// Whether nothing of it goes on before a person says so.
    pub fn needs_a_person(&self) -> bool {
        let stuck = |delivery: &Delivery| delivery.state() == DeliveryState::Quarantined && delivery.due().is_none();
        !self.stage.is_over()
            && (self.held
                || self.stage == Stage::Quarantined
                || self.deliveries.iter().any(|delivery| delivery.required && stuck(delivery)))
    }

    /// Whether there is nothing that it waits for but a person.
    pub fn rests(&self) -> bool {
        self.needs_a_person()
            && (0..self.deliveries.len()).all(|place| self.delivery_due(place).is_none())
            && self.source_due().is_none()
    }

    /// Since when the source, or a required destination, gave nothing but failures that may pass.
    pub fn failing_since(&self) -> Option<Time> {
        let required = self.deliveries.iter().filter(|delivery| delivery.required);
        self.failing_since.into_iter().chain(required.filter_map(Delivery::failing_since)).min()
    }

    /// Whether nothing is left to be done: the source let it go, and nothing of ours lies about.
    pub fn is_over(&self) -> bool {
        self.stage.is_over() && self.deliveries.iter().all(Delivery::is_swept)
    }

    /// When something is to be done at the source.
    pub fn source_due(&self) -> Option<Time> {
        (!self.held && matches!(self.stage, Stage::Found | Stage::Proven)).then_some(self.due)
    }

    /// What is to be done at the source.
    pub fn source_step(&self) -> Option<SourceStep> {
        match self.stage {
            _ if self.held => None,
            Stage::Found => Some(SourceStep::Check),
            Stage::Proven => Some(SourceStep::Release),
            _ => None,
        }
    }

    /// When something is to be done at a destination.
    pub fn delivery_due(&self, place: usize) -> Option<Time> {
        let goes_on = matches!(self.stage, Stage::Delivering | Stage::Proven) || self.stage.is_over();
        let is_asked = self.withdrawing && self.deliveries[place].asks_gone();
        (!self.held && (goes_on || is_asked)).then(|| self.deliveries[place].due()).flatten()
    }

    /// What is to be done at a destination. The journal's `token` is in every temporary name, so that no two movers have one.
    pub fn delivery_step(&self, place: usize, token: u64) -> Option<Step> {
        self.delivery_due(place)?;
        let temporary = |attempt| self.temporary(token, attempt);
        self.deliveries[place].step(&Names { last: &self.name, temporary: &temporary })
    }

    /// The temporary name of an attempt: beside the final one, as destinations choose tapes by directories, and hidden.
    pub fn temporary(&self, token: u64, attempt: u32) -> Name {
        let file = format!(".forebay-{token:016x}-{}-{attempt}.part", self.id);
        // The directory of a name and a short file are a name, but for one that is too long already.
        self.name.beside(&file).unwrap_or_else(|_| file.parse().expect("a short name"))
    }

    /// The step at the source is done.
    pub fn source_answer(&mut self, answer: SourceAnswer, now: Time, policy: &Policy) -> Vec<Change> {
        let (from, step, words) = (self.stage, self.source_step(), self.words.clone());
        let mut changes = Vec::new();
        if !matches!(answer, SourceAnswer::NotNow(_)) {
            (self.failures, self.failing_since) = (0, None);
        }
        let answer = match (step, answer) {
            // It looks as it did, and is not: a destination may have what it was.
            (Some(SourceStep::Check), SourceAnswer::Whole(sums))
                if self.content.is_some_and(|before| before != sums) =>
            {
                let before = self.content.expect("it was looked at");
                SourceAnswer::Changed(format!(
                    "it comes to {sums} now, and came to {before} when it was checked before"
                ))
            }
            (_, answer) => answer,
        };
        match (step, answer) {
            (Some(SourceStep::Check), SourceAnswer::Whole(sums)) => {
                self.content = Some(sums);
                self.stage = Stage::Delivering;
                self.words.clear();
            }
            (Some(SourceStep::Release), SourceAnswer::Released) => {
                self.stage = Stage::Released;
                self.words.clear();
                self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
            }
            // Held meanwhile: asked again when it goes on.
            (_, SourceAnswer::Whole(_) | SourceAnswer::Released) => {}
            (_, SourceAnswer::NotNow(words)) => {
                self.failures += 1;
                self.failing_since.get_or_insert(now);
                self.due = now + policy.backoff(self.failures, self.salt(None));
                self.words = words;
                changes.extend(self.doubt(now, policy));
            }
            // When some of it is somewhere already, a person said that it shall be tried again with what is there now. Moved anew, it may get another name: so what has this
            // one must be gone first.
            (Some(SourceStep::Check), SourceAnswer::Changed(words)) => {
                self.changed(words, now);
                if planted(Planted::WithdrawnUnasked) {
                    self.withdraw(self.words.clone(), now);
                }
                if self.stage == Stage::Quarantined {
                    self.ask_gone(now);
                }
            }
            (_, SourceAnswer::Changed(words)) => self.changed(words, now),
            (_, SourceAnswer::Damaged(words)) => self.quarantine(words),
        }
        // All of it was proven before a person said that it shall be tried again.
        changes.extend(self.conclude(now, policy));
        if self.stage != from || self.words != words {
            changes.push(self.change(from));
        }
        changes
    }

    /// `step` at a destination is done.
    pub fn delivery_answer(
        &mut self,
        place: usize,
        step: &Step,
        token: u64,
        answer: Answer,
        now: Time,
        policy: &Policy,
    ) -> Vec<Change> {
        // It was given up or held meanwhile: what became of the step is asked for when it goes on.
        if self.delivery_step(place, token).as_ref() != Some(step) {
            return Vec::new();
        }
        let (stage, salt) = (self.stage, self.salt(Some(place)));
        let delivery = &mut self.deliveries[place];
        let from = delivery.row().clone();
        match answer {
            Answer::Source(SourceAnswer::Changed(words)) => self.changed(words, now),
            Answer::Source(SourceAnswer::NotNow(words)) => delivery.source_failed(words, now, policy, salt),
            Answer::Source(SourceAnswer::Damaged(words)) => {
                delivery.source_failed(words.clone(), now, policy, salt);
                self.quarantine(words);
            }
            answer => delivery.answer(answer, self.content.as_ref(), now, policy, salt),
        }
        let mut changes: Vec<Change> = self.delivery_change(place, from, None).into_iter().collect();
        changes.extend(self.asked_gone(now));
        changes.extend(self.conclude(now, policy));
        changes.extend(self.staged(stage));
        changes
    }

    /// Withdraws it when nothing has its name any more; else a person is told what to do.
    fn asked_gone(&mut self, now: Time) -> Option<Change> {
        if !self.withdrawing || self.deliveries.iter().any(Delivery::asks_gone) {
            return None;
        }
        self.withdrawing = false;
        if self.deliveries.iter().all(Delivery::may_be_withdrawn) {
            let words = std::mem::take(&mut self.words);
            self.withdraw(words, now);
            return None;
        }
        self.words += &format!(
            ". What is there now can be moved when {} is taken away from the destinations: it would be there twice else. Look at what it holds, take it away, then retry",
            self.name
        );
        Some(self.change(self.stage))
    }

    /// What waits to be let go is proven once more when that was too long ago.
    fn doubt(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let is_old = |delivery: &Delivery| delivery.required && !delivery.is_fresh(now, policy);
        if self.stage == Stage::Proven && !self.let_go && self.deliveries.iter().any(is_old) {
            self.stage = Stage::Delivering;
        }
        self.conclude(now, policy)
    }

    /// Goes on to the release when every destination has proven it, each not too long ago.
    fn conclude(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.stage != Stage::Delivering || !self.is_proven() {
            return changes;
        }
        for place in (0..self.deliveries.len()).filter(|place| self.deliveries[*place].required).collect::<Vec<_>>() {
            let from = self.deliveries[place].row().clone();
            if self.deliveries[place].ask_once_more(now, policy) {
                changes.extend(self.delivery_change(place, from, Some("it was proven too long ago: asked once more")));
            }
        }
        if changes.is_empty() {
            (self.stage, self.due) = (Stage::Proven, now);
        }
        changes
    }

    fn is_proven(&self) -> bool {
        let proven = |delivery: &Delivery| delivery.state() == DeliveryState::Proven;
        if planted(Planted::LetGoByOne) {
            return self.deliveries.iter().any(proven);
        }
        // One that is not required has its chance, and holds nothing back.
        let given_up = |delivery: &Delivery| {
            !delivery.required && (delivery.failing_since().is_some() || delivery.state() == DeliveryState::Quarantined)
        };
        self.deliveries.iter().all(|delivery| proven(delivery) || given_up(delivery))
    }

    /// A person holds it, or lets it go on.
    pub fn hold(&mut self, held: bool, why: &str) -> Vec<Change> {
        if self.stage.is_over() {
            return Vec::new();
        }
        self.held = held;
        self.words = why.to_owned();
        vec![self.change(self.stage)]
    }

    /// A person answers for it: the source lets it go, proven or not.
    pub fn let_go(&mut self, now: Time, why: &str) -> Vec<Change> {
        let from = self.stage;
        if from.is_over() {
            return Vec::new();
        }
        (self.stage, self.held, self.let_go, self.due) = (Stage::Proven, false, true, now);
        self.withdrawing = false;
        self.words = format!("released by a person: {why}");
        self.staged(from).into_iter().collect()
    }

    /// A person says that what is quarantined shall be tried again.
    pub fn retry(&mut self, now: Time) -> Vec<Change> {
        let from = self.stage;
        if from.is_over() {
            return Vec::new();
        }
        (self.let_go, self.withdrawing) = (false, false);
        let stuck = self.deliveries.iter().any(|delivery| delivery.state() == DeliveryState::Quarantined);
        if self.stage == Stage::Quarantined || (self.stage == Stage::Delivering && stuck) {
            // It may have changed since it was checked.
            self.stage = Stage::Found;
        }
        self.due = now;
        let mut changes = Vec::new();
        for place in 0..self.deliveries.len() {
            let row = self.deliveries[place].row().clone();
            self.deliveries[place].retry(now);
            changes.extend(self.delivery_change(place, row, Some("a person said: retry")));
        }
        changes.extend(self.staged(from));
        changes
    }

    /// It is not any more what was found.
    fn changed(&mut self, words: String, now: Time) {
        if self.deliveries.iter().all(Delivery::may_be_withdrawn) {
            return self.withdraw(words, now);
        }
        self.quarantine(words);
        if self.deliveries.iter().all(Delivery::is_nowhere) {
            self.ask_gone(now);
        }
    }

    fn ask_gone(&mut self, now: Time) {
        self.withdrawing = true;
        self.deliveries.iter_mut().for_each(|delivery| delivery.ask_gone(now));
    }

    fn withdraw(&mut self, words: String, now: Time) {
        self.stage = Stage::Withdrawn;
        self.words = words;
        self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
    }

    fn quarantine(&mut self, words: String) {
        self.stage = Stage::Quarantined;
        self.words = words;
    }

    fn delivery_change(&self, place: usize, from: Kept, why: Option<&str>) -> Option<Change> {
        let to = self.deliveries[place].row();
        (*to != from).then(|| Change {
            consignment: self.id,
            why: why.unwrap_or(&to.words).to_owned(),
            of: Changed::Delivery {
                place,
                destination: self.deliveries[place].destination.clone(),
                from: Box::new(from),
                to: Box::new(to.clone()),
            },
        })
    }

    fn staged(&self, from: Stage) -> Option<Change> {
        (self.stage != from).then(|| self.change(from))
    }

    fn change(&self, from: Stage) -> Change {
        let of = Changed::Stage { from, to: self.stage, held: self.held, let_go: self.let_go, content: self.content };
        Change { consignment: self.id, of, why: self.words.clone() }
    }

    fn salt(&self, place: Option<usize>) -> u64 {
        self.id.0.wrapping_mul(0x1_0001).wrapping_add(place.map_or(0, |place| place as u64 + 1))
    }
}
