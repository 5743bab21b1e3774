//! The journal of the pretended mover: what was committed, and nothing else, survives a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_mover::custody::{Changed, Consignment, ConsignmentId, Delivery, Kept, Series, Stage, Standing, What};
use forebay_mover::events::Events;
use forebay_mover::machine::{Kept as KeptForAStart, Kind, Record, RouteIndex};
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, sidecar};
use forebay_types::{EventKey, RunId};

use super::places::kind_of;

#[derive(Clone, Debug)]
struct Row {
    route: RouteIndex,
    name: Name,
    recipe: Arc<Recipe>,
    settings: u64,
    series: Option<Series>,
    priority: u16,
    deliveries: Vec<(String, What, bool, Kept)>,
    standing: Standing,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    rows: BTreeMap<ConsignmentId, Row>,
    series: BTreeMap<(RouteIndex, String), u64>,
    names: BTreeSet<Name>,
}

impl Journal {
    pub(crate) fn write(&mut self, record: &Record) {
        match record {
            Record::Planned { id, route, name, recipe, series, settings, priority, deliveries } => {
                // Files of two sources may look the same.
                let twice = |row: &Row| {
                    let has = |row: &Row| share(&row.recipe, recipe);
                    // An event comes about once; of a file's name another file may come later.
                    let counts = !row.standing.stage.is_over()
                        || row.standing.stage == Stage::Released && recipe.events().is_some();
                    counts && row.route == *route && has(row)
                };
                assert!(!self.rows.values().any(twice), "what is in {name} is in two consignments");
                let runs: BTreeSet<Kind> = recipe.parts().iter().map(|part| kind_of(&part.name)).collect();
                assert!(runs.len() == usize::from(recipe.events().is_none()), "{name} is made of {runs:?}");
                assert!(recipe.zstd.is_some() == name.as_str().ends_with(".zst"), "{name} is {:?}", recipe.zstd);
                assert!(recipe.parts().is_sorted_by(|a, b| a.name < b.name), "{name} is out of order");
                if let Some(series) = series {
                    self.named(*route, name, series);
                }
                let kept =
                    |(to, what, required): &(String, What, bool)| (to.clone(), *what, *required, Kept::default());
                let row = Row {
                    route: *route,
                    name: name.clone(),
                    recipe: Arc::clone(recipe),
                    settings: *settings,
                    series: series.clone(),
                    priority: *priority,
                    deliveries: deliveries.iter().map(kept).collect(),
                    standing: Standing::default(),
                };
                assert!(self.rows.insert(*id, row).is_none(), "{id} is a new number");
            }
            Record::Renamed { id, route, name, series, .. } => {
                self.named(*route, name, series);
                let row = self.rows.get_mut(id).expect("it was planned");
                (row.name, row.series) = (name.clone(), Some(series.clone()));
            }
            Record::Change(change) => {
                let row = self.rows.get_mut(&change.consignment).expect("it was planned");
                match &change.of {
                    Changed::Standing { from, to } => {
                        assert_eq!(row.standing, **from, "the journal has what the machine thinks");
                        row.standing = Standing::clone(to);
                    }
                    Changed::Delivery { place, to, .. } => row.deliveries[*place].3 = Kept::clone(to),
                }
            }
        }
    }

    fn named(&mut self, route: RouteIndex, name: &Name, series: &Series) {
        assert!(self.names.insert(name.clone()), "{name} is given twice");
        let next = self.series.entry((route, series.names.clone())).or_default();
        *next = (series.number + 1).max(*next);
    }

    /// Whether a file of the mover's has the name that its consignment has: that of the file, or of its sidecar.
    pub(super) fn is_name_of(&self, name: &Name, id: ConsignmentId) -> bool {
        let row = &self.rows[&id];
        *name == row.name || sidecar::name_of(&row.name).is_ok_and(|sidecar| *name == sidecar)
    }

    /// Whether its name is one of a series.
    pub(super) fn is_of_a_series(&self, id: ConsignmentId) -> bool {
        self.rows[&id].series.is_some()
    }

    /// Whether anything of it was sent anywhere.
    pub(super) fn was_sent(&self, id: ConsignmentId) -> bool {
        self.rows[&id].deliveries.iter().any(|(.., kept)| kept.attempts > 0)
    }

    pub(super) fn is_released(&self, id: ConsignmentId) -> bool {
        self.rows[&id].standing.stage == Stage::Released
    }

    /// Where a file must be before it is let go.
    pub(super) fn required(&self, id: ConsignmentId) -> impl Iterator<Item = &str> {
        let files = self.rows[&id].deliveries.iter().filter(|(_, what, required, _)| *required && *what == What::File);
        files.map(|(to, ..)| to.as_str())
    }

    fn events_of_runs(&self) -> Vec<(RouteIndex, RunId, u64)> {
        let rows = self.rows.values().filter(|row| row.standing.stage != Stage::Withdrawn);
        let events = |row: &Row| row.recipe.events().map(|events| (row.route, events.run, events.list.len()));
        rows.filter_map(events).collect()
    }

    /// What a start goes on with.
    pub(crate) fn at_work(&self) -> KeptForAStart {
        let swept = |(_, _, _, kept): &(String, What, bool, Kept)| kept.partial.is_none() && kept.left.is_empty();
        let is_over = |row: &Row| row.standing.stage.is_over() && row.deliveries.iter().all(swept);
        let consignments = self.rows.iter().filter(|(_, row)| !is_over(row)).map(|(id, row)| {
            let delivery = |(to, what, required, kept): &(String, What, bool, Kept)| {
                Delivery::kept(to, *what, *required, kept.clone())
            };
            let deliveries = row.deliveries.iter().map(delivery).collect();
            let (name, recipe, standing) = (row.name.clone(), Arc::clone(&row.recipe), row.standing.clone());
            let series = row.series.clone();
            let mut consignment = Consignment::kept(*id, name, recipe, row.settings, deliveries, series, standing);
            consignment.priority = row.priority;
            (row.route, consignment)
        });
        KeptForAStart {
            consignments: consignments.collect(),
            series: self.series.iter().map(|((_, series), next)| (series.clone(), *next)).collect(),
            events: self.events_of_runs(),
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
