//! The journal of the pretended mover: what was committed, and nothing else, survives a kill.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_mover::custody::{Changed, Consignment, ConsignmentId, Delivery, Kept, Part, Stage};
use forebay_mover::machine::{Record, RouteIndex};
use forebay_mover::{Name, Sums};

#[derive(Clone, Debug)]
struct Row {
    route: RouteIndex,
    name: Name,
    parts: Arc<[Part]>,
    deliveries: Vec<(String, bool, Kept)>,
    stage: Stage,
    by_a_person: (bool, bool),
    content: Option<Sums>,
    words: String,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    rows: BTreeMap<ConsignmentId, Row>,
}

impl Journal {
    pub(super) fn write(&mut self, record: &Record) {
        match record {
            Record::Planned { id, route, name, parts, deliveries } => {
                let twice = |row: &Row| !row.stage.is_over() && row.parts.iter().any(|part| parts.contains(part));
                assert!(!self.rows.values().any(twice), "{name} is in two consignments");
                let deliveries =
                    deliveries.iter().map(|(to, required)| (to.clone(), *required, Kept::default())).collect();
                let row = Row {
                    route: *route,
                    name: name.clone(),
                    parts: Arc::clone(parts),
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

    /// What a start goes on with.
    pub(super) fn at_work(&self) -> (Vec<(RouteIndex, Consignment)>, u64) {
        let swept = |(_, _, kept): &(String, bool, Kept)| kept.partial.is_none() && kept.left.is_empty();
        let at_work = self.rows.iter().filter(|(_, row)| !(row.stage.is_over() && row.deliveries.iter().all(swept)));
        let consignments = at_work.map(|(id, row)| {
            let deliveries =
                row.deliveries.iter().map(|(to, required, kept)| Delivery::kept(to, *required, kept.clone())).collect();
            let parts = Arc::clone(&row.parts);
            let (name, words) = (row.name.clone(), row.words.clone());
            (row.route, Consignment::kept(*id, name, parts, deliveries, row.stage, row.by_a_person, row.content, words))
        });
        (consignments.collect(), self.rows.last_key_value().map_or(1, |(id, _)| id.0 + 1))
    }
}
