//! Files of events that grow: one for each run, kind and luminosity block, until it is large enough, old enough, or nothing more can come.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_types::{EventKey, RunId, StoreUuid, StreamName, Time};

use super::events::StreamConfig;
use super::merge::{Fields, Merge, Naming, Template};
use super::plan::Planned;
use crate::about::Checked;
use crate::custody::Series;
use crate::events::{Blocks, EventKind, EventList, Events, LIST_EVENTS_MAX, Terms};
use crate::name::Name;
use crate::planted::{Planted as Mistake, planted};
use crate::recipe::Recipe;
use crate::sums::Sums;

/// Files that grow at the same time.
const OPEN_FILES_MAX: usize = 16;

/// Which events may be in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) run: RunId,
    pub(super) block: Option<u64>,
    pub(super) kind: EventKind,
    /// Whether their bytes hold their numbers.
    pub(super) numbered: bool,
    /// Of the definition that they go by.
    pub(super) version: u32,
}

/// An event that goes into a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined {
    pub(super) key: EventKey,
    pub(super) incomplete: bool,
    pub(super) sums: Sums,
}

#[derive(Debug)]
struct OpenFile {
    terms: Arc<Terms>,
    list: EventList,
    incomplete: EventList,
    event_bytes: u64,
    /// Of the events with what lies between them.
    sums: Sums,
    since: Time,
}

impl OpenFile {
    fn new(terms: &Arc<Terms>, now: Time) -> OpenFile {
        let (list, incomplete) = (EventList::default(), EventList::default());
        OpenFile { terms: Arc::clone(terms), list, incomplete, event_bytes: 0, sums: Sums::NOTHING, since: now }
    }

    fn takes(&self, of: &Target, event: u64, bytes: u64, bytes_max: u64) -> bool {
        let ascends = self.list.last().is_none_or(|last| last < event);
        let with = of.kind.container(of.run, 0).file_bytes(self.list.len() + 1, self.event_bytes.saturating_add(bytes));
        ascends && (self.list.is_empty() || with <= bytes_max && self.list.len() < LIST_EVENTS_MAX)
    }

    fn append(&mut self, of: &Target, event: &Examined) {
        let before = of.kind.container(of.run, 0).before_event(self.list.len(), event.sums.bytes);
        self.sums = self.sums.then(&Sums::of(&before)).then(&event.sums);
        self.event_bytes += event.sums.bytes;
        self.list.push(event.key.event.0);
        if event.incomplete {
            self.incomplete.push(event.key.event.0);
        }
    }
}

/// All that grow for a stream.
#[derive(Debug)]
pub(super) struct EventFiles {
    store: StoreUuid,
    stream: StreamName,
    merge: Merge,
    open: BTreeMap<Target, OpenFile>,
    /// Events that are, or were, in consignments, by run.
    planned: BTreeMap<RunId, u64>,
    /// Events that a run has, as far as that is known.
    counted: BTreeMap<RunId, u64>,
}

impl EventFiles {
    pub(super) fn new(config: &StreamConfig, merge: Merge) -> EventFiles {
        let (store, stream) = (config.store, config.stream.clone());
        EventFiles { store, stream, merge, open: BTreeMap::new(), planned: BTreeMap::new(), counted: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The runs that they are of, ascending.
    pub(super) fn runs(&self) -> impl Iterator<Item = RunId> {
        self.open.keys().map(|target| target.run)
    }

    /// What is in them.
    pub(super) fn lists(&self) -> impl Iterator<Item = (RunId, &EventList)> {
        self.open.iter().map(|(target, file)| (target.run, &file.list))
    }

    /// So many events of a run are in consignments.
    pub(super) fn count(&mut self, run: RunId, events: u64) {
        *self.planned.entry(run).or_default() += events;
    }

    /// So many are in none any more, and will be in another one.
    pub(super) fn uncount(&mut self, run: RunId, events: u64) {
        let planned = self.planned.entry(run).or_default();
        *planned = planned.saturating_sub(events);
    }

    /// So many events a run has, as its run control counted.
    pub(super) fn counted(&mut self, run: RunId, events: Option<u64>) {
        match events {
            Some(events) => self.counted.insert(run, events),
            None => self.counted.remove(&run),
        };
    }

    /// An event goes into its file; files that are over with it.
    pub(super) fn append(
        &mut self,
        target: Target,
        event: &Examined,
        terms: &Arc<Terms>,
        naming: &mut Naming,
        now: Time,
    ) -> Vec<Planned> {
        let mut planned = self.close_blocks_before(&target, terms.blocks, naming);
        match self.open.get(&target) {
            Some(file) if !file.takes(&target, event.key.event.0, event.sums.bytes, self.merge.bytes) => {
                planned.push(self.close(target, naming));
            }
            None if self.open.len() == OPEN_FILES_MAX => {
                let oldest = self.open.iter().min_by_key(|(_, file)| file.since).map(|(target, _)| *target);
                planned.push(self.close(oldest.expect("there are some"), naming));
            }
            _ => {}
        }
        self.open.entry(target).or_insert_with(|| OpenFile::new(terms, now)).append(&target, event);
        planned
    }

    /// Files of the run's blocks of which no more is expected.
    fn close_blocks_before(&mut self, target: &Target, blocks: Blocks, naming: &mut Naming) -> Vec<Planned> {
        let Some(next) = target.block else { return Vec::new() };
        let is_past = |of: &Target| of.run == target.run && of.block.is_some_and(|block| blocks.are_past(block, next));
        self.close_where(|of, _| is_past(of), naming)
    }

    /// Those that waited long enough, and those of runs of which nothing more comes.
    pub(super) fn close_due(
        &mut self,
        is_over: impl Fn(RunId) -> bool,
        naming: &mut Naming,
        now: Time,
    ) -> Vec<Planned> {
        let wait = self.merge.wait;
        self.close_where(|of, since| now.since(since) >= wait || is_over(of.run), naming)
    }

    fn close_where(&mut self, is_due: impl Fn(&Target, Time) -> bool, naming: &mut Naming) -> Vec<Planned> {
        let due = self.open.iter().filter(|(target, file)| is_due(target, file.since));
        let due: Vec<Target> = due.map(|(target, _)| *target).collect();
        due.into_iter().map(|target| self.close(target, naming)).collect()
    }

    fn close(&mut self, target: Target, naming: &mut Naming) -> Planned {
        let Target { run, block, kind, numbered, .. } = target;
        let OpenFile { terms, list, incomplete, event_bytes, sums, .. } =
            self.open.remove(&target).expect("it is open");
        let (name, series) = self.name(&target, terms.blocks, naming);
        let making = terms.making.clone();
        let sequence = series.number as u32;
        let (store, stream) = (self.store, self.stream.clone());
        let events =
            Events { store, stream, run, kind, numbered, making, block, sequence, event_bytes, list, incomplete };
        let container = events.container();
        let tail = container.tail(events.list.len(), event_bytes);
        let sums = Sums::of(&container.head()).then(&sums).then(&Sums::of(&tail));
        assert_eq!(sums.bytes, events.bytes(), "every byte of {name} is counted");
        let content = Some(Checked { sums, about: events.about() });
        let objection = self.objection(run, events.list.len());
        self.count(run, events.list.len());
        let recipe = Recipe::of_events(events, None);
        Planned { name, recipe, series: Some(series), content, terms: Some(terms), objection }
    }

    /// The name of a file, and its series. A series is of a run: its numbers go on over blocks.
    fn name(&self, target: &Target, blocks: Blocks, naming: &mut Naming) -> (Name, Series) {
        let usual = if blocks == Blocks::Run { Template::default() } else { Template::with_blocks() };
        let template = self.merge.name.clone().unwrap_or(usual);
        let (run, directory) = (format!("{:06}", target.run.0), self.stream.as_str());
        let extension = target.kind.extension();
        let fill =
            |block: &str, sequence: &str| template.fill(&Fields { directory, run: &run, block, sequence, extension });
        let series = fill("{block}", "{sequence}");
        let block = format!("{:05}", target.block.unwrap_or(1));
        let name_of = |number: u64| fill(&block, &Series::digits(number)).parse::<Name>().ok();
        let given = naming.series.give(&series, name_of, naming.is_taken);
        let (name, number) = given.expect("names of a stream's files were tried at the start");
        (name, Series { names: series, number })
    }

    /// Whether the run would have more events in files than it has.
    fn objection(&self, run: RunId, events: u64) -> Option<String> {
        let before = self.planned.get(&run).copied().unwrap_or(0);
        let counted = self.counted.get(&run).filter(|counted| before.saturating_add(events) > **counted)?;
        if planted(Mistake::RunsUncounted) {
            return None;
        }
        let stream = &self.stream;
        Some(format!(
            "run {run} has {counted} events as its run control counted, and with the {events} of this file stream {stream} would have {} of it: some are of another run, or were counted \
             wrong. Nothing of it was sent, and they are in the store. Look at `forebay run show {run}`; `forebay move retry` sends the file as it is",
            before.saturating_add(events)
        ))
    }
}
