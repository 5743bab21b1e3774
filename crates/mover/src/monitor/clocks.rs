//! Since when files wait, by the calendar: it goes on while no mover runs.

use std::collections::BTreeMap;

use crate::audit::Transition;

/// A delivery of a consignment: where to, and whether of its sidecar.
type Delivery = (i64, String, bool);

/// Of one route: since when each of its files is known, is held, or waits for tape, in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteClocks {
    /// By the number of the consignment.
    pub found: BTreeMap<i64, i64>,
    /// The same of those that a person holds.
    pub held: BTreeMap<i64, i64>,
    /// By delivery.
    pub tape: BTreeMap<Delivery, i64>,
}

/// Of all routes, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks(pub BTreeMap<String, RouteClocks>);

impl Clocks {
    /// Something became of a file.
    pub fn note(&mut self, transition: &Transition) {
        let Transition { consignment, route, destination, sidecar, before, after, unix_ms, .. } = transition;
        let clocks = self.0.entry(route.clone()).or_default();
        match destination {
            Some(destination) => {
                let delivery = (*consignment, destination.clone(), *sidecar);
                match after.as_str() {
                    "waiting" => drop(clocks.tape.insert(delivery, *unix_ms)),
                    _ => drop(clocks.tape.remove(&delivery)),
                }
            }
            None if before.is_none() => drop(clocks.found.insert(*consignment, *unix_ms)),
            None => {
                match after.as_str() {
                    // A second word on what is held is about the same hold.
                    "held" => drop(clocks.held.entry(*consignment).or_insert(*unix_ms)),
                    _ => drop(clocks.held.remove(consignment)),
                }
                if after == "released" || after == "withdrawn" {
                    clocks.found.remove(consignment);
                    let of =
                        (*consignment, String::new(), false)..(consignment.saturating_add(1), String::new(), false);
                    for delivery in clocks.tape.range(of).map(|(delivery, _)| delivery.clone()).collect::<Vec<_>>() {
                        clocks.tape.remove(&delivery);
                    }
                }
            }
        }
    }
}

impl RouteClocks {
    /// When the first of its files was found: numbers are given in order.
    pub fn oldest(&self) -> Option<i64> {
        self.found.values().next().copied()
    }

    /// Since when a person holds the first.
    pub fn held_since(&self) -> Option<i64> {
        self.held.values().min().copied()
    }

    /// Since when the first waits for tape.
    pub fn tape_since(&self) -> Option<i64> {
        self.tape.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(id: i64, to: Option<&str>, before: Option<&str>, after: &str, unix_ms: i64) -> Transition {
        Transition {
            number: 1,
            unix_ms,
            consignment: id,
            route: "daq".to_owned(),
            name: "a".to_owned(),
            destination: to.map(str::to_owned),
            sidecar: false,
            before: before.map(str::to_owned),
            after: after.to_owned(),
            words: String::new(),
            bytes: None,
            adler32: None,
        }
    }

    #[test]
    fn what_waits_is_known_since_when_until_it_does_not() {
        let mut clocks = Clocks::default();
        clocks.note(&transition(1, None, None, "found", 10));
        clocks.note(&transition(2, None, None, "found", 20));
        clocks.note(&transition(1, Some("/tape"), Some("verified"), "waiting", 30));
        clocks.note(&transition(2, None, Some("delivering"), "held", 40));
        clocks.note(&transition(2, None, Some("delivering"), "held", 45));
        let of = &clocks.0["daq"];
        assert_eq!((of.oldest(), of.tape_since(), of.held_since()), (Some(10), Some(30), Some(40)));
        clocks.note(&transition(1, Some("/tape"), Some("waiting"), "proven", 50));
        clocks.note(&transition(1, None, Some("delivering"), "proven", 51));
        clocks.note(&transition(2, None, Some("delivering"), "delivering", 52));
        let of = &clocks.0["daq"];
        assert_eq!((of.oldest(), of.tape_since(), of.held_since()), (Some(10), None, None));
        clocks.note(&transition(1, None, Some("proven"), "released", 60));
        assert_eq!(clocks.0["daq"].oldest(), Some(20));
    }
}
