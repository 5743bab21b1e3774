//! One output file, for all destinations of its route.

use std::fmt;
use std::sync::Arc;

use forebay_types::Time;

use super::delivery::Names;
use super::{
    Answer, Change, Changed, Delivery, DeliveryState, Failure, Kept, Policy, SourceAnswer, SourceStep, Stage, Standing,
    Step, What,
};
use crate::about::Checked;
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::{Recipe, ZSTD_ENDING};
use crate::sidecar::{self, Subject};
use crate::sums::{Summer, Sums};

mod leaving;

use leaving::Leaving;
pub use leaving::Series;

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
    /// Stands for the settings of its route that decide about its bytes, when it was planned.
    pub settings: u64,
    /// Added to that of its route: the higher, the earlier.
    pub priority: u16,
    /// Whether it is registered before it is let go.
    pub(crate) registers: bool,
    standing: Standing,
    /// The name of its sidecar, where there is one.
    sidecar_name: Option<Name>,
    /// What the bytes of its sidecar come to, once that was asked for.
    sidecar_sums: Option<Sums>,
    /// Of which series its name is.
    series: Option<Series>,
    /// It gives its name up when nothing of it is anywhere under that.
    leaving: Option<Leaving>,
    /// So often it took another name since the mover was started.
    renamings: u32,
    due: Time,
    failures: u32,
    failing_since: Option<Time>,
}

impl Consignment {
    /// One that was just planned.
    pub fn new(
        id: ConsignmentId,
        name: Name,
        recipe: Arc<Recipe>,
        settings: u64,
        deliveries: Vec<Delivery>,
        series: Option<Series>,
    ) -> Consignment {
        Consignment::kept(id, name, recipe, settings, deliveries, series, Standing::default())
    }

    /// Goes on with what the journal kept.
    pub fn kept(
        id: ConsignmentId,
        name: Name,
        recipe: Arc<Recipe>,
        settings: u64,
        mut deliveries: Vec<Delivery>,
        series: Option<Series>,
        standing: Standing,
    ) -> Consignment {
        let has_sidecar = deliveries.iter().any(|delivery| delivery.what == What::Sidecar);
        for delivery in &mut deliveries {
            delivery.may_give_way = series.is_some();
            delivery.looks_beside = series.is_some() && has_sidecar && delivery.what == What::File;
        }
        Consignment {
            sidecar_name: sidecar::name_of(&name).ok().filter(|_| has_sidecar),
            id,
            name,
            recipe,
            deliveries,
            settings,
            priority: 0,
            registers: false,
            standing,
            sidecar_sums: None,
            series,
            leaving: None,
            renamings: 0,
            due: Time(0),
            failures: 0,
            failing_since: None,
        }
    }

    /// Before the first step after a start.
    pub fn start(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let from = self.standing.clone();
        for place in 0..self.deliveries.len() {
            let salt = self.salt(Some(place));
            self.deliveries[place].start(now, policy, salt);
        }
        if self.stage().is_over() {
            self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
        }
        // Nobody knows how old the proofs are.
        let mut changes = self.doubt(now, policy);
        changes.extend(self.noted(from));
        changes
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.standing.stage
    }

    /// Whether a person holds it.
    pub fn is_held(&self) -> bool {
        self.standing.held
    }

    /// What its bytes come to, once they were checked.
    pub fn content(&self) -> Option<&Sums> {
        self.standing.content.as_ref().map(|checked| &checked.sums)
    }

    /// What was said last about it.
    pub fn words(&self) -> &str {
        &self.standing.words
    }

    /// The names that it has, or is to have, at a destination of its route.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.name).chain(&self.sidecar_name)
    }

    /// The text of its sidecar, once it was checked. It is what is registered, too.
    pub fn sidecar(&self, token: u64) -> Option<String> {
        let checked = self.standing.content.as_ref()?;
        let Consignment { id, name, recipe, settings, .. } = self;
        Some(sidecar::text(&Subject { token, id: *id, name, recipe, checked, settings: *settings }))
    }

    /// What the bytes of a delivery come to.
    fn content_of(&mut self, place: usize, token: u64) -> Option<Sums> {
        if self.deliveries[place].what == What::File {
            return self.content().copied();
        }
        if self.sidecar_sums.is_none() {
            let mut summer = Summer::default();
            summer.update(self.sidecar(token)?.as_bytes());
            self.sidecar_sums = Some(summer.sums());
        }
        self.sidecar_sums
    }

    /// Bytes of its parts.
    pub fn bytes(&self) -> u64 {
        self.recipe.bytes()
    }

    /// Whether nothing of it goes on before a person says so.
    pub fn needs_a_person(&self) -> bool {
        let stuck = |delivery: &Delivery| delivery.state() == DeliveryState::Quarantined && delivery.due().is_none();
        !self.stage().is_over()
            && (self.standing.held
                || self.stage() == Stage::Quarantined
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
        self.stage().is_over() && self.deliveries.iter().all(Delivery::is_swept)
    }

    /// When something is to be done at the source, or where it is registered.
    pub fn source_due(&self) -> Option<Time> {
        let is_due = matches!(self.stage(), Stage::Found | Stage::Proven) || self.registers_now();
        (!self.standing.held && is_due).then_some(self.due)
    }

    /// What is to be done at the source.
    pub fn source_step(&self) -> Option<SourceStep> {
        match self.stage() {
            _ if self.standing.held || self.registers_now() => None,
            Stage::Found => Some(SourceStep::Check),
            Stage::Proven => Some(SourceStep::Release),
            _ => None,
        }
    }

    /// Whether it is to be registered now: it is proven, and nobody answers for it in the place of that.
    pub fn registers_now(&self) -> bool {
        let Standing { stage, let_go, registered, held, .. } = self.standing;
        let proven = |delivery: &Delivery| delivery.state() == DeliveryState::Proven;
        let is_early = planted(Planted::RegisteredEarly) && stage == Stage::Delivering;
        let may = stage == Stage::Proven || is_early && self.deliveries.iter().any(proven);
        self.registers && may && !registered && !let_go && !held
    }

    /// When something is to be done at a destination.
    pub fn delivery_due(&self, place: usize) -> Option<Time> {
        let is_under_way = matches!(self.stage(), Stage::Delivering | Stage::Proven) && self.content().is_some();
        let is_leaving = self.leaving.is_some();
        let goes_on = is_under_way && !is_leaving && !self.waits_for_its_file(place) || self.stage().is_over();
        let is_asked = is_leaving && self.deliveries[place].asks_gone();
        (!self.standing.held && (goes_on || is_asked)).then(|| self.deliveries[place].due()).flatten()
    }

    /// A sidecar says that its file is there: so that is there first.
    fn waits_for_its_file(&self, place: usize) -> bool {
        self.file_of(place).is_some_and(|file| file.state() < DeliveryState::Verified)
    }

    /// The delivery of the file of a sidecar.
    fn file_of(&self, place: usize) -> Option<&Delivery> {
        let sidecar = &self.deliveries[place];
        let is_its = |file: &&Delivery| file.what == What::File && file.destination == sidecar.destination;
        self.deliveries.iter().find(is_its).filter(|_| sidecar.what == What::Sidecar)
    }

    /// What is to be done at a destination. The journal's `token` is in every temporary name, so that no two movers have one.
    pub fn delivery_step(&self, place: usize, token: u64) -> Option<Step> {
        self.delivery_due(place).and_then(|_| self.next_step(place, token))
    }

    /// The same, also while it is held, or waits for something else.
    fn next_step(&self, place: usize, token: u64) -> Option<Step> {
        let what = self.deliveries[place].what;
        let temporary = |attempt| self.temporary(token, what, attempt);
        let last = match what {
            What::File => &self.name,
            What::Sidecar => self.sidecar_name.as_ref().expect("one without is quarantined when it is checked"),
        };
        self.deliveries[place].step(&Names { last, beside: self.sidecar_name.as_ref(), temporary: &temporary })
    }

    /// The temporary name of an attempt: beside the final one, as destinations choose tapes by directories, and hidden.
    pub fn temporary(&self, token: u64, what: What, attempt: u32) -> Name {
        let of = if what == What::Sidecar { ".json" } else { "" };
        let file = format!(".forebay-{token:016x}-{}-{attempt}{of}.part", self.id);
        // The directory of a name and a short file are a name, but for one that is too long already.
        self.name.beside(&file).unwrap_or_else(|_| file.parse().expect("a short name"))
    }

    /// The step at the source is done.
    pub fn source_answer(&mut self, answer: SourceAnswer, now: Time, policy: &Policy) -> Vec<Change> {
        let (from, step) = (self.standing.clone(), self.source_step());
        let mut changes = Vec::new();
        if !matches!(answer, SourceAnswer::NotNow(_)) {
            (self.failures, self.failing_since) = (0, None);
        }
        let answer = match (step, answer) {
            // It looks as it did, and is not: a destination may have what it was.
            (Some(SourceStep::Check), SourceAnswer::Whole(checked))
                if self.content().is_some_and(|before| *before != checked.sums) =>
            {
                let before = self.content().expect("it was looked at");
                SourceAnswer::Changed(format!(
                    "it comes to {} now, and came to {before} when it was checked before",
                    checked.sums
                ))
            }
            (_, answer) => answer,
        };
        match (step, answer) {
            (Some(SourceStep::Check), SourceAnswer::Whole(checked)) => self.is_whole(checked),
            (Some(SourceStep::Release), SourceAnswer::Released) => {
                self.standing.stage = Stage::Released;
                self.standing.words.clear();
                self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
            }
            // Held meanwhile: asked again when it goes on.
            (_, SourceAnswer::Whole(_) | SourceAnswer::Released) => {}
            (_, SourceAnswer::NotNow(words)) => changes.extend(self.not_now(words, now, policy)),
            // When some of it is somewhere already, a person said that it shall be tried again with what is there now. Moved anew, it may get another name: so what has this
            // one must be gone first.
            (Some(SourceStep::Check), SourceAnswer::Changed(words)) => {
                self.changed(words, now);
                if planted(Planted::WithdrawnUnasked) {
                    self.withdraw(self.standing.words.clone(), now);
                }
                if self.stage() == Stage::Quarantined {
                    self.ask_gone(now);
                }
            }
            (_, SourceAnswer::Changed(words)) => self.changed(words, now),
            (_, SourceAnswer::Damaged(words)) => self.quarantine(words),
        }
        // All of it was proven before a person said that it shall be tried again.
        changes.extend(self.conclude(now, policy));
        changes.extend(self.noted(from));
        changes
    }

    fn is_whole(&mut self, checked: Checked) {
        self.sidecar_sums = None;
        let wants_sidecar = self.deliveries.iter().any(|delivery| delivery.what == What::Sidecar);
        let is_too_long = self.recipe.zstd.is_some() && !self.name.as_str().ends_with(ZSTD_ENDING);
        if is_too_long || wants_sidecar && self.sidecar_name.is_none() {
            return self.quarantine("its name has no room for what is to stand behind it (.zst, .json). Rename it; then it is found anew, and this one is withdrawn with retry".to_owned());
        }
        self.standing.content = Some(checked);
        self.standing.stage = Stage::Delivering;
        self.standing.words.clear();
    }

    /// The source, or where it is registered, cannot now.
    fn not_now(&mut self, words: String, now: Time, policy: &Policy) -> Vec<Change> {
        self.failures += 1;
        self.failing_since.get_or_insert(now);
        self.due = now + policy.backoff(self.failures, self.salt(None));
        self.standing.words = words;
        self.doubt(now, policy)
    }

    /// It was registered, or was not.
    pub fn registered(&mut self, answer: Result<(), Failure>, now: Time, policy: &Policy) -> Vec<Change> {
        let from = self.standing.clone();
        if from.stage.is_over() || from.registered {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if !matches!(answer, Err(Failure::NotNow(_) | Failure::Unknown(_))) {
            (self.failures, self.failing_since) = (0, None);
        }
        match answer {
            Ok(()) => changes.extend(self.is_registered(now, policy)),
            Err(Failure::Unknown(_)) if planted(Planted::SilenceTakenForRegistered) => {
                changes.extend(self.is_registered(now, policy));
            }
            // Whoever holds it, or looks after it, does not mind.
            Err(_) if from.held || !matches!(from.stage, Stage::Proven | Stage::Delivering) => {}
            // Registering it twice is registering it once: so whether it was is not asked for.
            Err(Failure::NotNow(words) | Failure::Unknown(words)) => changes.extend(self.not_now(words, now, policy)),
            Err(Failure::Refused(words)) => {
                self.standing.refusals += 1;
                self.due = now + policy.backoff(self.standing.refusals, self.salt(None));
                if self.standing.refusals >= policy.strikes_max {
                    self.quarantine(words);
                } else {
                    self.standing.words = words;
                    changes.extend(self.doubt(now, policy));
                }
            }
        }
        changes.extend(self.noted(from));
        changes
    }

    /// It may have taken long: what is let go was proven not too long ago.
    fn is_registered(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        (self.standing.registered, self.standing.refusals, self.due) = (true, 0, now);
        self.standing.words.clear();
        self.doubt(now, policy)
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
        // It was given up or held meanwhile, or its file is sent anew: what became of the step is asked for when it goes on.
        if self.delivery_step(place, token).as_ref() != Some(step) {
            if self.next_step(place, token).as_ref() == Some(step) {
                self.deliveries[place].is_unheard();
            }
            return Vec::new();
        }
        let (whole, salt) = (self.standing.clone(), self.salt(Some(place)));
        let content = self.content_of(place, token);
        let delivery = &mut self.deliveries[place];
        let from = delivery.row().clone();
        match answer {
            Answer::Source(SourceAnswer::Changed(words)) => self.changed(words, now),
            Answer::Source(SourceAnswer::NotNow(words)) => delivery.source_failed(words, now, policy, salt),
            Answer::Source(SourceAnswer::Damaged(words)) => {
                delivery.source_failed(words.clone(), now, policy, salt);
                self.quarantine(words);
            }
            answer => delivery.answer(answer, content.as_ref(), now, policy, salt),
        }
        let mut changes: Vec<Change> = self.delivery_change(place, from, None).into_iter().collect();
        self.asked_gone(now);
        changes.extend(self.met_another(place, now, policy));
        changes.extend(self.conclude(now, policy));
        changes.extend(self.noted(whole));
        changes
    }

    /// What waits to be let go is proven once more when that was too long ago.
    fn doubt(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let is_old = |delivery: &Delivery| delivery.required && !delivery.is_fresh(now, policy);
        if self.stage() == Stage::Proven && !self.standing.let_go && self.deliveries.iter().any(is_old) {
            self.standing.stage = Stage::Delivering;
        }
        self.conclude(now, policy)
    }

    /// Goes on to the release when every destination has proven it, each not too long ago.
    fn conclude(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.stage() != Stage::Delivering || !self.is_proven() {
            return changes;
        }
        for place in (0..self.deliveries.len()).filter(|place| self.deliveries[*place].required).collect::<Vec<_>>() {
            let from = self.deliveries[place].row().clone();
            if self.deliveries[place].ask_once_more(now, policy) {
                changes.extend(self.delivery_change(place, from, Some("it was proven too long ago: asked once more")));
            }
        }
        if changes.is_empty() {
            self.standing.stage = Stage::Proven;
            // What waits for its registration to be tried again does so.
            self.due = self.due.max(now);
        }
        changes
    }

    fn is_proven(&self) -> bool {
        let proven = |delivery: &Delivery| delivery.state() == DeliveryState::Proven;
        if planted(Planted::LetGoByOne) {
            return self.deliveries.iter().any(proven);
        }
        // One that is not required has its chance, and holds nothing back; nor does its sidecar.
        let given_up = |delivery: &Delivery| {
            !delivery.required && (delivery.failing_since().is_some() || delivery.state() == DeliveryState::Quarantined)
        };
        let unawaited = |delivery: &Delivery| planted(Planted::SidecarUnawaited) && delivery.what == What::Sidecar;
        (0..self.deliveries.len()).all(|place| {
            let delivery = &self.deliveries[place];
            proven(delivery) || given_up(delivery) || self.file_of(place).is_some_and(given_up) || unawaited(delivery)
        })
    }

    /// A person holds it, or lets it go on.
    pub fn hold(&mut self, held: bool, why: &str) -> Vec<Change> {
        let from = self.standing.clone();
        if from.stage.is_over() {
            return Vec::new();
        }
        self.standing.held = held;
        self.standing.words = why.to_owned();
        self.noted(from).into_iter().collect()
    }

    /// A person answers for it: the source lets it go, proven or not.
    pub fn let_go(&mut self, now: Time, why: &str) -> Vec<Change> {
        let from = self.standing.clone();
        if from.stage.is_over() {
            return Vec::new();
        }
        self.standing.words = format!("released by a person: {why}");
        (self.standing.stage, self.standing.held, self.standing.let_go) = (Stage::Proven, false, true);
        (self.due, self.leaving) = (now, None);
        self.noted(from).into_iter().collect()
    }

    /// A person says that what is quarantined shall be tried again.
    pub fn retry(&mut self, now: Time) -> Vec<Change> {
        let from = self.standing.clone();
        if from.stage.is_over() {
            return Vec::new();
        }
        self.standing.let_go = false;
        self.standing.refusals = 0;
        self.leaving = None;
        let stuck = self.deliveries.iter().any(|delivery| delivery.state() == DeliveryState::Quarantined);
        if self.stage() == Stage::Quarantined || (self.stage() == Stage::Delivering && stuck) {
            // It may have changed since it was checked.
            self.standing.stage = Stage::Found;
        }
        self.due = now;
        let mut changes = Vec::new();
        for place in 0..self.deliveries.len() {
            let row = self.deliveries[place].row().clone();
            self.deliveries[place].retry(now);
            changes.extend(self.delivery_change(place, row, Some("a person said: retry")));
        }
        changes.extend(self.noted(from));
        changes
    }

    fn quarantine(&mut self, words: String) {
        self.standing.stage = Stage::Quarantined;
        self.standing.words = words;
    }

    fn delivery_change(&self, place: usize, from: Kept, why: Option<&str>) -> Option<Change> {
        let (delivery, to) = (&self.deliveries[place], self.deliveries[place].row());
        (*to != from).then(|| Change {
            consignment: self.id,
            why: why.unwrap_or(&to.words).to_owned(),
            of: Changed::Delivery {
                place,
                destination: delivery.destination.clone(),
                what: delivery.what,
                from: Box::new(from),
                to: Box::new(to.clone()),
            },
        })
    }

    /// What is to be remembered when the whole is not as it was.
    fn noted(&self, from: Standing) -> Option<Change> {
        (self.standing != from).then(|| Change {
            consignment: self.id,
            why: self.standing.words.clone(),
            of: Changed::Standing { from: Box::new(from), to: Box::new(self.standing.clone()) },
        })
    }

    fn salt(&self, place: Option<usize>) -> u64 {
        self.id.0.wrapping_mul(0x1_0001).wrapping_add(place.map_or(0, |place| place as u64 + 1))
    }
}
