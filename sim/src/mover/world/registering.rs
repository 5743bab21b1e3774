//! What becomes of a file that is to be registered.

use std::sync::Arc;

use forebay_mover::custody::{Consignment, ConsignmentId, Failure};
use forebay_types::Time;

use super::super::MoverFault;
use super::{Event, World};

impl World {
    pub(super) fn registers(
        &mut self,
        route: usize,
        id: ConsignmentId,
        key: &str,
        text: &Arc<str>,
    ) -> Result<(), Failure> {
        let recipe = self.mover.consignments().find(|(_, consignment)| consignment.id == id);
        let of = |consignment: &Consignment| (Arc::clone(&consignment.recipe), consignment.content().copied());
        let (recipe, content) = recipe.map(|(_, consignment)| of(consignment)).expect("it is known");
        if let Some(made) = self.delivered(route, id, &recipe, content) {
            // However long ago: it may wait long.
            self.is_proven(id, &recipe, &made, Time(0), "registered");
        }
        if self.now < self.registry.away_until {
            self.totals.meet(MoverFault::RegistryAway);
            return Err(Failure::NotNow("away".to_owned()));
        }
        if self.fires(MoverFault::RegistryRefusal, 150) {
            self.totals.meet(MoverFault::RegistryRefusal);
            return Err(Failure::Refused("it does not like it".to_owned()));
        }
        if self.fires(MoverFault::RegistryNoAnswer, 150) {
            self.totals.meet(MoverFault::RegistryNoAnswer);
            if self.random.per_mille(500) {
                self.registry.register(id, key, text);
            }
            return Err(Failure::Unknown("no answer".to_owned()));
        }
        if self.fires(MoverFault::RegisteredLate, 80) {
            let after = self.random.millis(1..30_000);
            self.at(after, Event::RegisteredLate(id, key.to_owned(), Arc::clone(text)));
            return Err(Failure::Unknown("it hangs".to_owned()));
        }
        self.registry.register(id, key, text);
        Ok(())
    }
}
