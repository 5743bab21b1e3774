//! The journal of the pretended mover: what was committed, and nothing else, survives a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_mover::custody::{Changed, Consignment, ConsignmentId, Delivery, Kept, Stage};
use forebay_mover::events::Events;
use forebay_mover::machine::{Kept as KeptForAStart, Kind, Record, RouteIndex};
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, Sums};
use forebay_types::EventKey;

use super::places::kind_of;

#[derive(Clone, Debug)]
struct Row {
    route: RouteIndex,
    name: Name,
    recipe: Arc<Recipe>,
    deliveries: Vec<(String, bool, Kept)>,
    stage: Stage,
    by_a_person: (bool, bool),
    content: Option<Sums>,
    words: String,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    rows: BTreeMap<ConsignmentId, Row>,
    series: BTreeMap<(RouteIndex, String), u64>,
    names: BTreeSet<Name>,
}

impl Journal {
    pub(super) fn write(&mut self, record: &Record) {
        match record {
            Record::Planned { id, route, name, recipe, series, deliveries } => {
                // Files of two sources may look the same.
                let twice = |row: &Row| {
                    let has = |row: &Row| share(&row.recipe, recipe);
                    // An event comes about once; of a file's name another file may come later.
                    let counts = !row.stage.is_over() || row.stage == Stage::Released && recipe.events().is_some();
                    counts && row.route == *route && has(row)
                };
                assert!(!self.rows.values().any(twice), "what is in {name} is in two consignments");
                let runs: BTreeSet<Kind> = recipe.parts().iter().map(|part| kind_of(&part.name)).collect();
                assert!(runs.len() == usize::from(recipe.events().is_none()), "{name} is made of {runs:?}");
                assert!(recipe.parts().is_sorted_by(|a, b| a.name < b.name), "{name} is out of order");
                if let Some((series, next)) = series {
                    assert!(self.names.insert(name.clone()), "{name} is given twice");
                    self.series.insert((*route, series.clone()), *next);
                }
                let deliveries =
                    deliveries.iter().map(|(to, required)| (to.clone(), *required, Kept::default())).collect();
                let row = Row {
                    route: *route,
                    name: name.clone(),
                    recipe: Arc::clone(recipe),
                    deliveries,
                    stage: Stage::Found,
                    by_a_person: (false, false),
                    content: None,
                    words: String::new(),
                };
                assert!(self.rows.insert(*id, row).is_none(), "{id} is a new number");
            }
            Record::Change(change) => {
                let row = self.rows.get_mut(&change.consignment).expect("it was planned");
                match &change.of {
                    Changed::Stage { from, to, held, let_go, content } => {
                        assert_eq!(row.stage, *from, "the journal has what the machine thinks");
                        (row.stage, row.content, row.words) = (*to, *content, change.why.clone());
                        row.by_a_person = (*held, *let_go);
                    }
                    Changed::Delivery { place, to, .. } => row.deliveries[*place].2 = Kept::clone(to),
                }
            }
        }
    }

    pub(super) fn is_released(&self, id: ConsignmentId) -> bool {
        self.rows[&id].stage == Stage::Released
    }

    /// What a start goes on with.
    pub(super) fn at_work(&self) -> KeptForAStart {
        let swept = |(_, _, kept): &(String, bool, Kept)| kept.partial.is_none() && kept.left.is_empty();
        let at_work = self.rows.iter().filter(|(_, row)| !(row.stage.is_over() && row.deliveries.iter().all(swept)));
        let consignments = at_work.map(|(id, row)| {
            let deliveries =
                row.deliveries.iter().map(|(to, required, kept)| Delivery::kept(to, *required, kept.clone())).collect();
            let recipe = Arc::clone(&row.recipe);
            let (name, words) = (row.name.clone(), row.words.clone());
            (
                row.route,
                Consignment::kept(*id, name, recipe, deliveries, row.stage, row.by_a_person, row.content, words),
            )
        });
        KeptForAStart {
            consignments: consignments.collect(),
            series: self.series.iter().map(|((_, series), next)| (series.clone(), *next)).collect(),
            next_consignment: self.rows.last_key_value().map_or(1, |(id, _)| id.0 + 1),
        }
    }
}

/// Whether something is in both.
fn share(one: &Recipe, other: &Recipe) -> bool {
    let has = |events: &Events, key: EventKey| events.keys().any(|event| event == key);
    match (one.events(), other.events()) {
        (Some(one), Some(other)) => one.keys().any(|key| has(other, key)),
        _ => one.parts().iter().any(|part| other.parts().contains(part)),
    }
}
