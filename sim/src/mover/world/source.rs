//! What the sources do of what they are asked for, and what must be true when they let a file go.

use std::sync::Arc;

use forebay_mover::about::{About, AboutPart, Checked, Uncompressed};
use forebay_mover::custody::{ConsignmentId, Part, SourceAnswer, SourceStep};
use forebay_mover::recipe::Recipe;
use forebay_mover::sidecar;
use forebay_types::Time;

use super::super::MoverFault;
use super::super::places::sums;
use super::super::registry::describes;
use super::{PROOF_LASTS, RELEASED_AFTER, World};

impl World {
    pub(super) fn source_does(
        &mut self,
        route: usize,
        id: ConsignmentId,
        step: SourceStep,
        recipe: &Recipe,
    ) -> SourceAnswer {
        if self.fires(MoverFault::SourceUnreadable, 40) {
            self.totals.meet(MoverFault::SourceUnreadable);
            return SourceAnswer::NotNow("cannot be read".to_owned());
        }
        match step {
            SourceStep::Check => self.check(route, recipe),
            SourceStep::Release => self.release(route, id, recipe),
        }
    }

    fn check(&mut self, route: usize, recipe: &Recipe) -> SourceAnswer {
        let made = self.sources[route].make(recipe);
        let is_damaged = |part: &Part| self.sources[route].find(part).is_ok_and(|original| original.damaged);
        match made {
            Ok(_) if recipe.parts.iter().any(is_damaged) => {
                self.totals.meet(MoverFault::SourceDamaged);
                SourceAnswer::Damaged("damaged".to_owned())
            }
            Ok(bytes) => SourceAnswer::Whole(self.checked(route, recipe, &bytes)),
            Err(changed) => {
                self.totals.meet(MoverFault::SourceWritten);
                changed
            }
        }
    }

    /// All parts are looked at before any is let go.
    fn release(&mut self, route: usize, id: ConsignmentId, recipe: &Recipe) -> SourceAnswer {
        let of_ours = |part: &&Part| {
            self.sources[route].files.get(&part.name).is_some_and(|file| file.identity.inode == part.identity.inode)
        };
        let left: Vec<&Part> = recipe.parts.iter().filter(of_ours).collect();
        for part in &left {
            if let Err(changed) = self.sources[route].find(part) {
                return changed;
            }
        }
        if let Ok(made) = self.sources[route].make(recipe) {
            self.is_proven(id, recipe, &made, self.now - (PROOF_LASTS + RELEASED_AFTER), "released");
            let entry = self.registry.entry(id).unwrap_or_default().as_bytes();
            assert!(
                !self.setup.register || describes(entry, id, &self.names[&id], recipe, &made),
                "consignment {id} is released, and was registered with {:?}",
                String::from_utf8_lossy(entry)
            );
        }
        // Killed, or hindered, between two of them.
        let stops_at = if left.len() > 1 && self.fires(MoverFault::HalfReleased, 200) {
            self.random.below(left.len() as u64) as usize
        } else {
            left.len()
        };
        for part in &left[..stops_at] {
            self.sources[route].files.remove(&part.name);
            self.totals.released += 1;
        }
        if stops_at < left.len() {
            self.totals.meet(MoverFault::HalfReleased);
        }
        if stops_at < left.len() {
            SourceAnswer::NotNow("half of it is let go".to_owned())
        } else {
            SourceAnswer::Released
        }
    }

    fn checked(&self, route: usize, recipe: &Recipe, bytes: &[u8]) -> Checked {
        let mut at = 0;
        let part = |part: &Part| {
            let adler32 = self.sources[route].find(part).map_or(0, |original| sums(&original.bytes).adler32);
            let about = AboutPart { at, adler32 };
            at += part.identity.bytes;
            about
        };
        let before = recipe.zstd.and_then(|_| self.sources[route].uncompressed(recipe).ok());
        let before = before.map(|before| sums(&before));
        let uncompressed = before.map(|sums| Uncompressed { bytes: sums.bytes, adler32: sums.adler32 });
        let parts = recipe.parts.iter().map(part).collect();
        let about = About { parts, uncompressed, ..About::default() };
        Checked { sums: sums(bytes), about: Arc::new(about) }
    }

    /// That every required destination has proven a file and its sidecar since then, and has them on tape where that is wanted.
    pub(super) fn is_proven(&self, id: ConsignmentId, recipe: &Recipe, made: &[u8], since: Time, what: &str) {
        let name = &self.names[&id];
        let sidecar = sidecar::name_of(name).expect("it has room");
        let required = self.destinations.iter().enumerate().filter(|(to, _)| self.setup.required[*to]);
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
