//! What the sources do of what they are asked for, and what must be true when they let a file go.

use std::sync::Arc;

use forebay_mover::about::{About, AboutPart, Checked, Uncompressed};
use forebay_mover::custody::{ConsignmentId, Part, SourceAnswer, SourceStep};
use forebay_mover::recipe::Recipe;
use forebay_mover::{Sums, sidecar};
use forebay_types::{EventKey, Time};

use super::super::MoverFault;
use super::super::registry::describes;
use super::{PROOF_LASTS, RELEASED_AFTER, World, setup};

impl World {
    pub(super) fn source_does(
        &mut self,
        route: usize,
        id: ConsignmentId,
        step: SourceStep,
        recipe: &Recipe,
        content: Option<Sums>,
    ) -> SourceAnswer {
        if self.fires(MoverFault::SourceUnreadable, 40) {
            self.totals.meet(MoverFault::SourceUnreadable);
            return SourceAnswer::NotNow("cannot be read".to_owned());
        }
        match step {
            SourceStep::Check => self.check(route, recipe),
            SourceStep::Release => self.release(route, id, recipe, content),
        }
    }

    fn check(&mut self, route: usize, recipe: &Recipe) -> SourceAnswer {
        let made = self.sources[route].make(recipe, self.now);
        let is_damaged = |part: &Part| self.sources[route].find(part).is_ok_and(|original| original.damaged);
        match made {
            Ok(_) if recipe.parts().iter().any(is_damaged) => {
                self.totals.meet(MoverFault::SourceDamaged);
                SourceAnswer::Damaged("damaged".to_owned())
            }
            Ok(bytes) => SourceAnswer::Whole(self.checked(route, recipe, &bytes)),
            Err(changed) => {
                self.met_changed(recipe, &changed);
                changed
            }
        }
    }

    pub(super) fn met_changed(&mut self, recipe: &Recipe, answer: &SourceAnswer) {
        let unavailable = matches!(answer, SourceAnswer::NotNow(_));
        self.totals.meet(match recipe.events() {
            Some(_) if unavailable => MoverFault::EventUnavailable,
            Some(_) => MoverFault::EventLost,
            None => MoverFault::SourceWritten,
        });
    }

    /// All parts are looked at before any is let go.
    fn release(&mut self, route: usize, id: ConsignmentId, recipe: &Recipe, content: Option<Sums>) -> SourceAnswer {
        let of_ours = |part: &&Part| {
            self.sources[route].files.get(&part.name).is_some_and(|file| file.identity.inode == part.identity.inode)
        };
        let left: Vec<Part> = recipe.parts().iter().filter(of_ours).cloned().collect();
        for part in &left {
            if let Err(changed) = self.sources[route].find(part) {
                return changed;
            }
        }
        self.runs.released(id);
        if let Some(made) = self.delivered(route, id, recipe, content) {
            self.is_proven(id, recipe, &made, self.now - (PROOF_LASTS + RELEASED_AFTER), "released");
            let entry = self.registry.entry(id).unwrap_or_default().as_bytes();
            assert!(
                !self.setup.register || describes(entry, id, &self.names[&id], recipe, &made),
                "consignment {id} is released, and was registered with {:?}",
                String::from_utf8_lossy(entry)
            );
        }
        let keys: Vec<EventKey> = recipe.events().into_iter().flat_map(|events| events.keys()).collect();
        let count = left.len().max(keys.len());
        // Killed, or hindered, between two of them.
        let stops_at = if count > 1 && self.fires(MoverFault::HalfReleased, 200) {
            self.random.below(count as u64) as usize
        } else {
            count
        };
        self.totals.released += self.sources[route].stream.release(keys.into_iter().take(stops_at));
        for part in left.iter().take(stops_at) {
            self.sources[route].files.remove(&part.name);
            self.totals.released += 1;
        }
        if stops_at < count {
            self.totals.meet(MoverFault::HalfReleased);
            SourceAnswer::NotNow("half of it is let go".to_owned())
        } else {
            SourceAnswer::Released
        }
    }

    /// The bytes that must be at the destinations, if they can be told: what events lost since they were sent is there.
    pub(super) fn delivered(
        &self,
        route: usize,
        id: ConsignmentId,
        recipe: &Recipe,
        content: Option<Sums>,
    ) -> Option<Vec<u8>> {
        let Some(content) = content.filter(|_| recipe.events().is_some()) else {
            return self.sources[route].make(recipe, self.now).ok();
        };
        let sent = self.destinations.iter().find_map(|to| to.proven_bytes(&self.names[&id], &content));
        assert!(sent.is_some(), "consignment {id} is let go, and no destination has proven what it comes to");
        sent
    }

    fn checked(&self, route: usize, recipe: &Recipe, bytes: &[u8]) -> Checked {
        let before = recipe.zstd.and_then(|_| self.sources[route].uncompressed(recipe, self.now).ok());
        let before = before.map(|before| Sums::of(&before));
        let uncompressed = before.map(|sums| Uncompressed { bytes: sums.bytes, adler32: sums.adler32 });
        if let Some(events) = recipe.events() {
            let about = About { uncompressed, ..About::clone(&events.about()) };
            return Checked { sums: Sums::of(bytes), about: Arc::new(about) };
        }
        let mut at = 0;
        let part = |part: &Part| {
            let adler32 = self.sources[route].find(part).map_or(0, |original| Sums::of(&original.bytes).adler32);
            let about = AboutPart { at, adler32 };
            at += part.identity.bytes;
            about
        };
        let parts = recipe.parts().iter().map(part).collect();
        let about = About { parts, uncompressed, ..About::default() };
        Checked { sums: Sums::of(bytes), about: Arc::new(about) }
    }

    /// That every required destination has proven a file and its sidecar since then, and has them on tape where that is wanted.
    pub(super) fn is_proven(&self, id: ConsignmentId, recipe: &Recipe, made: &[u8], since: Time, what: &str) {
        let name = &self.names[&id];
        let sidecar = sidecar::name_of(name).expect("it has room");
        let required: Vec<&str> = self.journal.required(id).collect();
        assert!(!required.is_empty(), "consignment {id} needs nobody's proof");
        let is_required = |to: usize| required.iter().any(|address| *address == setup::address_of(to));
        let required = self.destinations.iter().enumerate().filter(|(to, _)| is_required(*to));
        for (to, destination) in required {
            assert!(
                destination.is_proven(name, made, since),
                "{name} is {what} by consignment {id}, and destination {to} has not proven it"
            );
            assert!(
                !self.setup.tape[to] || destination.is_on_tape(name, made),
                "{name} is {what} by consignment {id}, and is not on tape at destination {to}"
            );
            let is_right = |text: &&[u8]| {
                describes(text, id, name, recipe, made)
                    && (!self.setup.tape[to] || destination.is_on_tape(&sidecar, text))
            };
            assert!(
                !self.setup.sidecar || destination.proven_as(&sidecar, since).any(|text| is_right(&text)),
                "{name} is {what} by consignment {id}, and destination {to} has not proven its sidecar"
            );
        }
    }
}
