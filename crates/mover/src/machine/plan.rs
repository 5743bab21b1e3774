//! What of a source becomes which consignments: each file one, or files of a kind merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{RunId, Time};

use super::merge::{Merge, Merging, Naming};
use crate::about::Checked;
use crate::custody::{Part, PartIdentity, Series};
use crate::events::Terms;
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::{Form, Recipe};

/// What a look at a source found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// All that might be moved.
    pub files: Vec<Seen>,
    /// What cannot be, and why: names that no destination takes, and what is no file.
    pub left_alone: Vec<LeftAlone>,
}

/// Something in a source that is not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// Its name, as well as it can be written.
    pub name: String,
    /// Why, in words.
    pub why: String,
    /// Whether it holds data that somebody may take for moved.
    pub is_data: bool,
}

/// A file of a source, as a look found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: Name,
    /// What it looks like.
    pub identity: PartIdentity,
    /// When anything of it was changed last: see [`Part::changed_ns`].
    pub changed_ns: i64,
    /// How long nobody wrote it, by the clock of the machine.
    pub untouched: Duration,
    /// Whether somebody says that it is complete: there is a file of its name with `.json` behind.
    pub announced: bool,
    /// What is in it, where that is looked at: where files are merged.
    pub kind: Kind,
}

/// What is in a file, as far as it says what the file may be merged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Anything.
    File,
    /// Events.
    Events {
        /// Of the first.
        run: RunId,
        /// How such files become one.
        form: Form,
    },
    /// Events, of which the first is damaged or cannot be read: it is moved by itself, so that nothing else waits for it.
    Unclear,
}

/// What becomes a consignment.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) name: Name,
    pub(super) recipe: Arc<Recipe>,
    /// Of which series its name is, if it is of one.
    pub(super) series: Option<Series>,
    /// What was seen of it, where it was looked at.
    pub(super) content: Option<Checked>,
    /// Of events: what they go by.
    pub(super) terms: Option<Arc<Terms>>,
    /// Why it is not to be sent before a person looked at it.
    pub(super) objection: Option<String>,
}

impl Planned {
    /// A file as it is.
    pub(super) fn as_it_is(part: Part) -> Planned {
        let name = part.name.clone();
        Planned { name, recipe: Recipe::of_one(part), series: None, content: None, terms: None, objection: None }
    }
}

/// So many files of a route are on their way at once: their memory is about 1 kB each. The others are found again.
pub(super) const ON_THEIR_WAY_MAX: usize = 100_000;

/// A file that is not complete.
#[derive(Debug)]
struct Growing {
    identity: PartIdentity,
    since: Time,
}

/// What of the source of a route is on its way, and what is not yet.
#[derive(Debug)]
pub(super) struct Plan {
    settle: Duration,
    pub(super) once: bool,
    merging: Option<Merging>,
    pub(super) scan_at: Time,
    pub(super) scan_began: Time,
    /// Files with data that were left alone by the last look.
    pub(super) left_alone: usize,
    pub(super) scanning: bool,
    pub(super) failing_since: Option<Time>,
    /// In a consignment that is not over.
    taken: BTreeSet<Name>,
    growing: BTreeMap<Name, Growing>,
    /// What became free while somebody looks.
    over_meanwhile: BTreeSet<Name>,
    /// Of what the last look found: whose name another consignment has, at one of the destinations.
    pub(super) blocked: BTreeSet<Name>,
    /// Of one that moves once: what the first look found and is in no consignment; nothing before it.
    wanted: Option<BTreeSet<Name>>,
}

impl Plan {
    pub(super) fn new(settle: Duration, merge: Option<Merge>, once: bool) -> Plan {
        Plan {
            settle,
            once,
            merging: merge.map(|merge| Merging::new(merge, once)),
            scan_at: Time(0),
            scan_began: Time(0),
            left_alone: 0,
            scanning: false,
            failing_since: None,
            taken: BTreeSet::new(),
            growing: BTreeMap::new(),
            over_meanwhile: BTreeSet::new(),
            blocked: BTreeSet::new(),
            wanted: None,
        }
    }

    /// These are in a consignment.
    pub(super) fn take(&mut self, parts: &[Part]) {
        for part in parts {
            if !planted(Planted::PlannedAnew) {
                self.taken.insert(part.name.clone());
            }
            self.growing.remove(&part.name);
            if let Some(wanted) = &mut self.wanted {
                wanted.remove(&part.name);
            }
        }
    }

    /// These are in no consignment any more: the source let them go, or they changed before they were anywhere, and are to be moved as they are then. A file
    /// of such a name is a new one for the next look; the one that is under way may have seen the old one.
    pub(super) fn over(&mut self, parts: &[Part], again: bool) {
        for part in parts {
            self.taken.remove(&part.name);
            if self.scanning {
                self.over_meanwhile.insert(part.name.clone());
            }
            if let Some(wanted) = self.wanted.as_mut().filter(|_| again && self.once) {
                wanted.insert(part.name.clone());
            }
        }
    }

    /// Whether all that the first look found was planned.
    pub(super) fn has_all_wanted(&self) -> bool {
        self.wanted.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// The same, but for what waits for another of its name to be over.
    pub(super) fn has_all_but_blocked(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.is_subset(&self.blocked))
    }

    /// What a look found; what of it becomes consignments, the oldest first, and no more than so many are on their way.
    pub(super) fn scanned(&mut self, scanned: Result<Scanned, String>, naming: &mut Naming, now: Time) -> Vec<Planned> {
        let over = std::mem::take(&mut self.over_meanwhile);
        let Ok(Scanned { files: mut seen, left_alone }) = scanned else {
            self.failing_since.get_or_insert(now);
            return Vec::new();
        };
        self.failing_since = None;
        self.left_alone = left_alone.iter().filter(|left| left.is_data).count();
        let unknown = |seen: &Seen| over.contains(&seen.name);
        let waits: Vec<Name> = seen.iter().filter(|seen| unknown(seen)).map(|seen| seen.name.clone()).collect();
        seen.retain(|seen| !self.taken.contains(&seen.name) && !unknown(seen));
        seen.sort_by(|a, b| (a.identity.modified_ns, &a.name).cmp(&(b.identity.modified_ns, &b.name)));
        let names = || seen.iter().map(|seen| seen.name.clone());
        match &mut self.wanted {
            // What is to be moved anew since this look began is wanted, too.
            None => self.wanted = Some(if self.once { names().chain(waits).collect() } else { BTreeSet::new() }),
            Some(wanted) if wanted.is_empty() => {}
            Some(wanted) => {
                // What was taken away since need not be moved.
                let there: BTreeSet<Name> = names().chain(waits).collect();
                wanted.retain(|name| there.contains(name));
            }
        }
        let before = std::mem::take(&mut self.growing);
        let mut complete = Vec::new();
        for Seen { name, identity, changed_ns, untouched, announced, kind } in seen {
            let since =
                before.get(&name).filter(|before| before.identity == identity).map_or(now, |before| before.since);
            if announced || untouched >= self.settle || now.since(since) >= self.settle {
                complete.push((Part { name, identity, changed_ns }, kind));
            } else {
                self.growing.insert(name, Growing { identity, since });
            }
        }
        complete.truncate(ON_THEIR_WAY_MAX.saturating_sub(self.taken.len()));
        match &mut self.merging {
            Some(merging) => merging.merge(complete, naming, now),
            None => complete.into_iter().map(|(part, _)| Planned::as_it_is(part)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::Numbering;
    use super::*;

    #[test]
    fn what_is_withdrawn_while_the_first_look_is_under_way_is_moved_by_the_next() {
        let identity = PartIdentity { bytes: 1, modified_ns: 1, inode: 1 };
        let part = Part { name: "a".parse().expect("a name"), identity, changed_ns: 1 };
        let mut plan = Plan::new(Duration::ZERO, None, true);
        plan.take(std::slice::from_ref(&part));
        plan.scanning = true;
        plan.over(std::slice::from_ref(&part), true);
        let mut numbering = Numbering::default();
        let mut look = |plan: &mut Plan| {
            let Part { name, identity, changed_ns } = part.clone();
            let (untouched, announced, kind) = (Duration::ZERO, true, Kind::File);
            let files = vec![Seen { name, identity, changed_ns, untouched, announced, kind }];
            let mut naming = Naming { series: &mut numbering, is_taken: &|_| false };
            let planned = plan.scanned(Ok(Scanned { files, left_alone: Vec::new() }), &mut naming, Time(0));
            plan.scanning = false;
            planned.len()
        };
        assert_eq!(look(&mut plan), 0, "what the look found may be what it was before");
        assert!(!plan.has_all_wanted(), "so there is another one");
        assert_eq!(look(&mut plan), 1);
    }
}
