//! A name that a consignment gives up: it is withdrawn, or takes another name because somebody else's file has this one at a destination.

use forebay_types::Time;

use super::Consignment;
use crate::custody::{Change, Changed, Delivery, Kept, Policy, Stage, What};
use crate::name::Name;
use crate::sidecar;

/// So often one takes another name before a person is asked; with numbers that go ahead by twice as much each time that is more than any destination has files.
const RENAMINGS_MAX: u32 = 64;

/// What stands for the number in a series, and for the luminosity block: a series goes on over all of a run.
const SEQUENCE: &str = "{sequence}";
const BLOCK: &str = "{block}";

/// Of which series a name is: such names differ in a number alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The names, with `{sequence}` for the number, and `{block}` for the luminosity block where they have it.
    pub names: String,
    /// The number in this one.
    pub number: u64,
}

impl Series {
    /// A number as it stands in names.
    pub(crate) fn digits(number: u64) -> String {
        format!("{number:05}")
    }

    /// The name in which another number stands in the place of this one's; nothing where that is none.
    pub(crate) fn renumbered(&self, name: &Name, number: u64) -> Option<Name> {
        let (from, to) = (Series::digits(self.number), Series::digits(number));
        renumbered(&self.names, name.as_str(), &from, &to)?.parse().ok()
    }

    /// Whether names that differ in their numbers lie in one directory.
    fn has_one_directory(&self) -> bool {
        self.names.rsplit_once('/').is_none_or(|(directory, _)| !directory.contains(SEQUENCE))
    }
}

/// What is left of a name of a series, with one number in the place of another.
fn renumbered(series: &str, name: &str, from: &str, to: &str) -> Option<String> {
    let field = [SEQUENCE, BLOCK].into_iter().filter_map(|field| Some((series.find(field)?, field))).min();
    let Some((at, field)) = field else {
        // What is compressed has an ending behind it.
        return name.starts_with(series).then(|| name.to_owned());
    };
    let (before, behind) = (&series[..at], &series[at + field.len()..]);
    let rest = name.strip_prefix(before)?;
    let with = |was: &str, is: &str| {
        let rest = renumbered(behind, rest.strip_prefix(was)?, from, to)?;
        Some(format!("{before}{is}{rest}"))
    };
    // A directory may be called like that, too.
    with(field, field).or_else(|| {
        if field == SEQUENCE {
            return with(from, to);
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (1..=digits).rev().find_map(|count| with(&rest[..count], &rest[..count]))
    })
}

/// Why a name is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// What it is made of is moved anew.
    Withdrawn,
    /// It takes another name.
    Renamed,
}

impl Consignment {
    /// Withdraws it when nothing has its name any more; else a person is told what to do.
    pub(super) fn asked_gone(&mut self, now: Time) {
        if self.leaving != Some(Leaving::Withdrawn) || self.deliveries.iter().any(Delivery::asks_gone) {
            return;
        }
        self.leaving = None;
        if self.deliveries.iter().all(Delivery::may_be_withdrawn) {
            let words = std::mem::take(&mut self.standing.words);
            return self.withdraw(words, now);
        }
        let names: Vec<&str> = self.names().map(Name::as_str).collect();
        self.standing.words += &format!(
            ". What is there now can be moved when {} is taken away from the destinations: it would be there twice else. Look at what it holds, take it away, then retry",
            names.join(" with ")
        );
    }

    /// It is not any more what was found.
    pub(super) fn changed(&mut self, words: String, now: Time) {
        if self.deliveries.iter().all(Delivery::may_be_withdrawn) {
            return self.withdraw(words, now);
        }
        self.quarantine(words);
        if self.deliveries.iter().all(Delivery::is_nowhere) {
            self.ask_gone(now);
        }
    }

    pub(super) fn ask_gone(&mut self, now: Time) {
        self.leaving = Some(Leaving::Withdrawn);
        self.deliveries.iter_mut().for_each(|delivery| delivery.ask_gone(now));
    }

    pub(super) fn withdraw(&mut self, mut words: String, now: Time) {
        if self.standing.registered {
            words += ". It was registered before: take that back there";
        }
        self.standing.stage = Stage::Withdrawn;
        self.standing.words = words;
        self.deliveries.iter_mut().for_each(|delivery| delivery.only_sweep(now));
    }

    /// The series of its name, where that is one of them.
    pub fn series(&self) -> Option<&Series> {
        self.series.as_ref()
    }

    /// Somebody else's file may have been met where one of ours is to be: then it takes another name, if nothing of it has this one anywhere.
    pub(super) fn met_another(&mut self, place: usize, now: Time, policy: &Policy) -> Vec<Change> {
        if self.leaving.is_some() || self.deliveries[place].in_the_way().is_none() {
            return Vec::new();
        }
        if self.renamings >= RENAMINGS_MAX || !self.deliveries.iter().all(Delivery::might_be_renamed) {
            return self.keep_name(now, policy);
        }
        let keeps = self.keeps_temporaries();
        self.leaving = Some(Leaving::Renamed);
        self.deliveries.iter_mut().for_each(|delivery| delivery.give_way(keeps, now));
        Vec::new()
    }

    /// Whether what is hidden under a temporary name has that still when the number in its name is another.
    fn keeps_temporaries(&self) -> bool {
        self.series.as_ref().is_some_and(Series::has_one_directory)
    }

    /// Whether all that must be known before it takes another name is known.
    pub(crate) fn wants_another_name(&self) -> bool {
        self.leaving == Some(Leaving::Renamed) && !self.deliveries.iter().any(Delivery::asks_gone)
    }

    /// Whether it may have one: nothing of it has this one anywhere.
    pub(crate) fn may_be_renamed(&self) -> bool {
        let keeps = self.keeps_temporaries();
        self.deliveries.iter().all(|delivery| delivery.may_be_renamed(keeps))
    }

    /// It has another name of its series.
    pub(crate) fn rename(&mut self, name: Name, number: u64, now: Time) -> Vec<Change> {
        let words = self.deliveries.iter().find_map(|delivery| {
            Some(format!("{}: {}; it is called {name} now", delivery.destination, delivery.in_the_way()?))
        });
        (self.leaving, self.renamings) = (None, self.renamings + 1);
        self.series.as_mut().expect("one without keeps its name").number = number;
        let has_sidecar = self.deliveries.iter().any(|delivery| delivery.what == What::Sidecar);
        self.sidecar_name = sidecar::name_of(&name).ok().filter(|_| has_sidecar);
        (self.name, self.sidecar_sums) = (name, None);
        let mut changes = Vec::new();
        for place in 0..self.deliveries.len() {
            let from = self.deliveries[place].row().clone();
            self.deliveries[place].renamed(now);
            changes.push(self.delivery_row(place, from, words.as_deref().unwrap_or_default()));
        }
        changes
    }

    /// It keeps its name: a person looks at what is in the way.
    pub(crate) fn keep_name(&mut self, now: Time, policy: &Policy) -> Vec<Change> {
        self.leaving = None;
        let mut changes = Vec::new();
        for place in 0..self.deliveries.len() {
            let (from, salt) = (self.deliveries[place].row().clone(), self.salt(Some(place)));
            self.deliveries[place].keep_name(now, policy, salt);
            changes.extend(self.delivery_change(place, from, None));
        }
        changes
    }

    /// What the journal is to have of a delivery, whatever it had.
    fn delivery_row(&self, place: usize, from: Kept, why: &str) -> Change {
        let delivery = &self.deliveries[place];
        Change {
            consignment: self.id,
            why: why.to_owned(),
            of: Changed::Delivery {
                place,
                destination: delivery.destination.clone(),
                what: delivery.what,
                from: Box::new(from),
                to: Box::new(delivery.row().clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_another_number_where_its_number_stands_and_nowhere_else() {
        let renumbered = |names: &str, name: &str| {
            let series = Series { names: names.to_owned(), number: 7 };
            series.renumbered(&name.parse().expect("a name"), 123_456).map(|name| name.to_string())
        };
        let told = [
            renumbered("run7/run000007-{sequence}.raw", "run7/run000007-00007.raw"),
            renumbered("files-{sequence}.tar", "files-00007.tar.zst"),
            renumbered("{sequence}/00007-{sequence}", "{sequence}/00007-00007"),
            renumbered("{sequence}/{sequence}7", "00007/000077"),
            renumbered("run7/{block}{sequence}-{block}", "run7/0001200007-00012"),
            renumbered("a-{sequence}", "b-00007"),
            renumbered("a-{sequence}", "a-00008"),
        ];
        let expected = [
            Some("run7/run000007-123456.raw"),
            Some("files-123456.tar.zst"),
            Some("{sequence}/00007-123456"),
            Some("123456/1234567"),
            Some("run7/00012123456-00012"),
            None,
            None,
        ];
        assert_eq!(told.each_ref().map(Option::as_deref), expected);
    }
}
