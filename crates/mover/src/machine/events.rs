//! What of a stream becomes which consignments: events of one run and kind in files of a size, ascending.
//!
//! Each event is read when it is accepted, while the store has it at hand still: how it is put together, and what that comes to. So the sums of a file are those of
//! its events, joined, and are known before the file is sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_types::limits::STREAM_NAME_BYTES_MAX;
use forebay_types::{EventKey, RunId, StoreUuid, StreamName, Time};

use super::event_files::{self, EventFiles, Target};
use super::merge::{Fields, Merge, Naming, Template};
use super::plan::{ON_THEIR_WAY_MAX, Planned};
use super::terms::{Defined, Refusal, TermsBook};
use crate::events::walk::{Next, Pace, Walk};
use crate::events::{EventKind, EventList, Examined, Making, OfRun, Terms};
use crate::name::Name;
use crate::planted::{Planted as Mistake, planted};
use crate::recipe::Recipe;

/// Bytes of events that are examined at once; one event alone may be larger.
const EXAMINE_BYTES: u64 = 16 << 20;
/// The wait before a store that gave no answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// A route of accepted events.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The store that they come from.
    pub store: StoreUuid,
    /// Their stream.
    pub stream: StreamName,
    /// An event that is not decided holds accepted ones behind it back for so long at most, so that files come out in order.
    pub order_wait: Duration,
    /// What events become, whatever the definition of the stream says.
    pub kind: Option<EventKind>,
    /// Where definitions of the stream lead, of all that the route may lead to; nothing where the route says it, and leads there always.
    pub defined: Option<Defined>,
}

impl StreamConfig {
    /// Whether names by this template can be given to all files of any stream, whatever their runs and numbers.
    pub fn can_be_named(template: &Template) -> bool {
        let (run, number) = (u32::MAX.to_string(), u64::MAX.to_string());
        let directory = "x".repeat(STREAM_NAME_BYTES_MAX);
        let directory = directory.as_str();
        let longest = Fields { directory, run: &run, block: &number, sequence: &number, extension: "besiii" };
        template.fill(&longest).parse::<Name>().is_ok()
    }
}

/// What is asked now.
#[derive(Debug)]
enum Asked {
    List(Option<EventKey>, u32),
    OfRun(RunId),
    Examine(Vec<AcceptedEvent>),
}

/// What is to be looked at next.
pub(super) enum Look {
    List { after: Option<EventKey>, max: u32 },
    OfRun { run: RunId },
    Examine { events: Vec<EventKey>, making: Making },
}

/// What of a stream is on its way, and what is not yet.
#[derive(Debug)]
pub(super) struct EventPlan {
    config: StreamConfig,
    pace: Pace,
    walk: Walk,
    asked: Option<Asked>,
    /// To be asked next, in order.
    to_ask: VecDeque<Asked>,
    ask_at: Time,
    terms: TermsBook,
    files: EventFiles,
    /// In a consignment that is not over, by the first event.
    taken: BTreeMap<EventKey, Arc<Recipe>>,
    /// What was let go while somebody looks.
    over_meanwhile: Vec<Arc<Recipe>>,
    /// Since when the store gives no answer, and since when there is nothing but events that cannot be read.
    silent_since: Option<Time>,
    unavailable_since: Option<Time>,
}

impl EventPlan {
    pub(super) fn new(config: &StreamConfig, merge: Merge, poll: Duration, once: bool) -> EventPlan {
        assert!(merge.name.iter().all(StreamConfig::can_be_named), "whoever made the route looked at that");
        EventPlan {
            config: config.clone(),
            pace: Pace { order_wait: config.order_wait, poll, once },
            walk: Walk::default(),
            asked: None,
            to_ask: VecDeque::new(),
            ask_at: Time(0),
            terms: TermsBook::default(),
            files: EventFiles::new(config, merge),
            taken: BTreeMap::new(),
            over_meanwhile: Vec::new(),
            silent_since: None,
            unavailable_since: None,
        }
    }

    /// These are in a consignment.
    pub(super) fn take(&mut self, recipe: &Arc<Recipe>) {
        if !planted(Mistake::PlannedAnew) {
            self.taken.insert(first_of(recipe), Arc::clone(recipe));
        }
    }

    /// These are in none any more: they were let go, or are to be read anew.
    pub(super) fn over(&mut self, recipe: &Arc<Recipe>, again: bool) {
        self.taken.remove(&first_of(recipe));
        if again {
            let events = recipe.events().expect("a stream has events");
            self.files.uncount(events.run, events.list.len());
            self.walk.start_over();
        } else if matches!(self.asked, Some(Asked::List(..))) && !planted(Mistake::StaleListBelieved) {
            self.over_meanwhile.push(Arc::clone(recipe));
        }
    }

    /// Since when nothing comes of it.
    pub(super) fn failing_since(&self) -> Option<Time> {
        self.silent_since.into_iter().chain(self.unavailable_since).min()
    }

    /// Whether all that is accepted is in a consignment.
    pub(super) fn has_all(&self) -> bool {
        self.is_at_rest() && self.files.is_empty() && self.walk.found_nothing(&self.pace)
    }

    fn is_at_rest(&self) -> bool {
        self.asked.is_none() && self.to_ask.is_empty()
    }

    /// When it has something to ask, if nobody does.
    pub(super) fn due(&self) -> Option<Time> {
        let is_full = self.taken.len() >= ON_THEIR_WAY_MAX;
        (self.asked.is_none() && !self.has_all() && !is_full).then_some(self.ask_at)
    }

    /// So many events of a run are in consignments that the journal has.
    pub(super) fn count(&mut self, run: RunId, events: u64) {
        self.files.count(run, events);
    }

    /// Runs whose events are left in the store, and why.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (RunId, &Refusal)> {
        self.terms.refusals()
    }

    /// What is to be asked now.
    pub(super) fn next(&mut self, now: Time) -> Option<Look> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        self.go_on(now);
        let asked = self.asked.insert(self.to_ask.pop_front()?);
        Some(match asked {
            Asked::List(after, max) => Look::List { after: *after, max: *max },
            Asked::OfRun(run) => Look::OfRun { run: *run },
            Asked::Examine(events) => {
                let making = self.terms.terms(events[0].key.run).map(|terms| terms.making.clone());
                let events = events.iter().map(|event| event.key).collect();
                Look::Examine { events, making: making.unwrap_or_default() }
            }
        })
    }

    /// What the walk wants next.
    fn go_on(&mut self, now: Time) {
        if !self.to_ask.is_empty() {
            return;
        }
        while let Some(run) = self.walk.next_run() {
            if self.terms.is_stale(run, now) {
                return self.to_ask.push_back(Asked::OfRun(run));
            }
            let events = self.walk.take_batch(EXAMINE_BYTES).expect("there is a next one");
            if self.terms.refusal(run).is_none() {
                return self.to_ask.push_back(Asked::Examine(events));
            }
            self.walk.refused(events.len() as u64);
        }
        // A run that ends is to be known of, while some of it waits.
        if let Some(run) = self.files.runs().find(|run| self.terms.is_stale(*run, now)) {
            return self.to_ask.push_back(Asked::OfRun(run));
        }
        match self.walk.next(now, &self.pace) {
            Next::List { after, max } => self.to_ask.push_back(Asked::List(after, max)),
            Next::Wait { until } => {
                let stale_at = self.files.runs().filter_map(|run| self.terms.stale_at(run)).min();
                self.ask_at = stale_at.map_or(until, |at| at.min(until));
            }
        }
    }

    /// What the store has of a run.
    pub(super) fn of_run(
        &mut self,
        of_run: Result<Box<OfRun>, String>,
        naming: &mut Naming,
        now: Time,
    ) -> Vec<Planned> {
        let asked = self.asked.take().expect("it was asked");
        let (Ok(of_run), Asked::OfRun(run)) = (of_run, &asked) else { return self.gave_no_answer(asked, now) };
        self.silent_since = None;
        self.terms.learn(*run, &of_run, &self.config, self.walk.begun(), now);
        self.files.counted(*run, self.terms.terms(*run).and_then(|terms| terms.events));
        self.close_some(naming, now)
    }

    /// A page of what is accepted; what of it becomes consignments.
    pub(super) fn listed(
        &mut self,
        page: Result<AcceptedPage, String>,
        naming: &mut Naming,
        now: Time,
    ) -> Vec<Planned> {
        let asked = self.asked.take().expect("it was asked");
        let over = std::mem::take(&mut self.over_meanwhile);
        let Ok(page) = page else { return self.gave_no_answer(asked, now) };
        self.silent_since = None;
        let taken = self.taken_of(&page, &over);
        let is_taken = |key: &EventKey| {
            let before = taken.partition_point(|(first, _)| first <= key);
            before.checked_sub(1).is_some_and(|at| *key <= taken[at].1)
        };
        self.walk.page(page, &self.pace, is_taken);
        self.close_some(naming, now)
    }

    /// What became of events that were read; what of them becomes consignments.
    pub(super) fn examined(
        &mut self,
        examined: Result<Vec<Examined>, String>,
        naming: &mut Naming,
        now: Time,
    ) -> Vec<Planned> {
        let asked = self.asked.take().expect("it was asked");
        let (Ok(examined), Asked::Examine(events)) = (examined, &asked) else { return self.gave_no_answer(asked, now) };
        assert_eq!(events.len(), examined.len(), "an answer for each event");
        self.silent_since = None;
        let mut planned = Vec::new();
        for (event, examined) in events.iter().zip(examined) {
            match examined {
                Examined::Event { kind, numbered, incomplete, taken_unix_us, sums } => {
                    let kind = if planted(Mistake::KindsMixed) { EventKind::Mdf } else { kind };
                    let (key, incomplete) = (event.key, incomplete || event.incomplete);
                    let terms = self.terms.terms(key.run).cloned().unwrap_or_default();
                    let target = target(key, kind, numbered, taken_unix_us, &terms);
                    let examined = event_files::Examined { key, incomplete, sums };
                    planned.extend(self.files.append(target, &examined, &terms, naming, now));
                    self.walk.took();
                }
                // What is gone for good is not listed again: another walk tells.
                Examined::Gone | Examined::Unavailable => self.walk.saw_unavailable(1),
            }
        }
        planned.extend(self.close_some(naming, now));
        planned
    }

    fn gave_no_answer(&mut self, asked: Asked, now: Time) -> Vec<Planned> {
        self.silent_since.get_or_insert(now);
        self.to_ask.push_front(asked);
        self.ask_at = now + RETRY;
        Vec::new()
    }

    /// Closes what waited long enough, and all of it when nothing more comes.
    fn close_some(&mut self, naming: &mut Naming, now: Time) -> Vec<Planned> {
        self.go_on(now);
        let nothing_comes = self.is_at_rest() && self.walk.found_nothing(&self.pace);
        let unavailable = self.walk.only_unavailable().flatten().is_some();
        self.unavailable_since = unavailable.then(|| self.unavailable_since.unwrap_or(now));
        let whole_walk = self.walk.whole();
        let is_over = |run| nothing_comes || self.terms.is_over(run, whole_walk);
        self.files.close_due(is_over, naming, now)
    }

    /// Ranges of this page that are taken, ascending.
    fn taken_of(&self, page: &AcceptedPage, over: &[Arc<Recipe>]) -> Vec<(EventKey, EventKey)> {
        let (Some(first), Some(last)) = (page.events.first(), page.events.last()) else { return Vec::new() };
        let (first, last) = (first.key, last.key);
        let mut ranges = Vec::new();
        let mut add = |run: RunId, list: &EventList| {
            if run < first.run || run > last.run {
                return;
            }
            let from = if run == first.run { first.event.0 } else { 0 };
            let of_run = list.ranges_from(from).map(|(a, b)| (EventKey::new(run.0, a), EventKey::new(run.0, b)));
            ranges.extend(of_run.take_while(|(a, _)| *a <= last));
        };
        for recipe in self.taken.range(EventKey::new(first.run.0, 0)..=last).map(|(_, recipe)| recipe).chain(over) {
            let events = recipe.events().expect("a stream has events");
            if EventKey::new(events.run.0, events.list.last().expect("it has some")) >= first {
                add(events.run, &events.list);
            }
        }
        self.files.lists().for_each(|(run, list)| add(run, list));
        ranges.sort_unstable();
        ranges
    }
}

/// Which file an event goes into.
fn target(key: EventKey, kind: EventKind, numbered: bool, taken_unix_us: Option<u64>, terms: &Terms) -> Target {
    let block = if planted(Mistake::BlocksMixed) { None } else { terms.blocks.of(key.event, taken_unix_us) };
    Target { run: key.run, block, kind, numbered, version: terms.version }
}

fn first_of(recipe: &Recipe) -> EventKey {
    let events = recipe.events().expect("a stream has events");
    EventKey::new(events.run.0, events.list.first().expect("it has some"))
}

#[cfg(test)]
mod tests {
    use forebay_types::{BlockRule, RunRecord, StreamDefinition, StreamVersion};

    use super::super::DestinationIndex;
    use super::super::merge::Numbering;
    use super::*;
    use crate::sums::Sums;

    fn plan(bytes: u64, once: bool) -> EventPlan {
        let store = StoreUuid::from_bytes([7; 16]);
        let (stream, order_wait) = ("physics".parse().expect("a name"), Duration::from_secs(10));
        let config = StreamConfig { store, stream, order_wait, kind: None, defined: None };
        let merge = Merge { bytes, wait: Duration::from_secs(60), name: None };
        EventPlan::new(&config, merge, Duration::from_secs(1), once)
    }

    fn page(events: &[u64], undecided_floor: Option<u64>) -> Result<AcceptedPage, String> {
        let event =
            |number: &u64| AcceptedEvent { key: EventKey::new(7, *number), fragments: 1, bytes: 10, incomplete: false };
        let undecided_floor = undecided_floor.map(|number| EventKey::new(7, number));
        Ok(AcceptedPage { events: events.iter().map(event).collect(), more: false, undecided_floor })
    }

    fn bytes_of(key: EventKey) -> Vec<u8> {
        key.event.0.to_le_bytes().repeat(2)
    }

    /// Answers what is asked until nothing is, for a while; the files that came of it.
    fn play(
        plan: &mut EventPlan,
        series: &mut Numbering,
        events: &[u64],
        floor: Option<u64>,
        from: Time,
    ) -> Vec<Planned> {
        play_by(plan, series, (events, floor), &OfRun::default(), from)
    }

    fn play_by(
        plan: &mut EventPlan,
        series: &mut Numbering,
        (events, floor): (&[u64], Option<u64>),
        of_run: &OfRun,
        from: Time,
    ) -> Vec<Planned> {
        let mut naming = Naming { series, is_taken: &|name| name.as_str().contains("-00002.") };
        let (mut planned, mut now) = (Vec::new(), from);
        while let Some(due) = plan.due().filter(|due| *due < from + Duration::from_secs(4)) {
            now = due.max(now);
            let Some(look) = plan.next(now) else { continue };
            planned.extend(match look {
                Look::List { .. } => plan.listed(page(events, floor), &mut naming, now),
                Look::OfRun { .. } => plan.of_run(Ok(Box::new(of_run.clone())), &mut naming, now),
                Look::Examine { events, .. } => {
                    let examine = |key: &EventKey| Examined::Event {
                        kind: if key.event.0 == 5 { EventKind::Parts } else { EventKind::Besiii },
                        numbered: true,
                        incomplete: key.event.0 == 4,
                        taken_unix_us: None,
                        sums: Sums::of(&bytes_of(*key)),
                    };
                    plan.examined(Ok(events.iter().map(examine).collect()), &mut naming, now)
                }
            });
            planned.iter().for_each(|planned: &Planned| plan.take(&planned.recipe));
        }
        planned
    }

    fn told(planned: &[Planned]) -> Vec<(&str, Vec<u64>)> {
        let events = |planned: &Planned| planned.recipe.events().expect("of events").list.iter().collect();
        planned.iter().map(|planned| (planned.name.as_str(), events(planned))).collect()
    }

    #[test]
    fn files_are_of_one_kind_and_no_larger_than_they_may_be_and_their_sums_are_known() {
        // A file of two events of BESIII.
        let container = EventKind::Besiii.container(RunId(7), 1);
        let (mut plan, mut series) = (plan(container.file_bytes(2, 32), true), Numbering::default());
        let planned = play(&mut plan, &mut series, &[1, 2, 3, 4, 5, 9], None, Time(0));
        let expected = [
            ("physics/run000007-00001.besiii", vec![1, 2]),
            ("physics/run000007-00003.besiii", vec![3, 4]),
            ("physics/run000007-00004.besiii", vec![9]),
            ("physics/run000007-00001.parts", vec![5]),
        ];
        assert_eq!(told(&planned), expected, "a name that is taken is left out");
        for Planned { name, recipe, content, .. } in &planned {
            let events = recipe.events().expect("of events");
            let container = events.container();
            let mut file = container.head();
            for (sequence, key) in events.keys().enumerate() {
                file.extend(container.before_event(sequence as u64, 16));
                file.extend(bytes_of(key));
            }
            file.extend(container.tail(events.list.len(), events.event_bytes));
            assert_eq!(content.as_ref().map(|checked| checked.sums), Some(Sums::of(&file)), "{name}");
        }
        assert!(planned[1].recipe.events().expect("of events").incomplete.iter().eq([4]));
        assert!(plan.has_all());
    }

    #[test]
    fn what_waits_for_undecided_events_waits_and_what_is_not_full_too() {
        let (mut plan, mut series) = (plan(1 << 30, false), Numbering::default());
        let mut at = |seconds: u64, events: &[u64], floor| {
            let planned = play(&mut plan, &mut series, events, floor, Time(seconds * 1_000_000_000));
            told(&planned).into_iter().map(|(_, events)| events).collect::<Vec<_>>()
        };
        assert!(at(0, &[1, 2, 6], Some(3)).is_empty());
        assert!(at(30, &[1, 2, 4, 6], Some(7)).is_empty());
        assert_eq!(at(61, &[1, 2, 4, 6, 8], Some(7)), [[1, 2, 4, 6]], "8 waits for 7");
        // What was decided late is behind nothing: it goes into another file.
        assert!(at(70, &[1, 2, 3, 4, 6, 8], None).is_empty());
        assert_eq!(at(140, &[1, 2, 3, 4, 6, 8], None), [[3, 8]]);
    }

    #[test]
    fn a_store_that_gives_no_answer_is_asked_again_and_events_that_are_let_go_are_not_believed_to_be_there() {
        let (mut plan, mut series) = (plan(1 << 30, true), Numbering::default());
        let planned = play(&mut plan, &mut series, &[1, 2], None, Time(0));
        let mut naming = Naming { series: &mut series, is_taken: &|_| false };
        plan.walk.start_over();
        let now = Time(9_000_000_000);
        assert!(matches!(plan.next(now), Some(Look::List { .. })));
        plan.over(&planned[0].recipe, false);
        assert!(plan.listed(Err("away".to_owned()), &mut naming, now).is_empty());
        assert_eq!((plan.failing_since(), plan.next(now).is_none()), (Some(now), true));
        let later = now + RETRY;
        assert!(matches!(plan.next(later), Some(Look::List { .. })));
        plan.over_meanwhile.push(Arc::clone(&planned[0].recipe));
        plan.listed(page(&[1, 2], None), &mut naming, later);
        assert_eq!(plan.failing_since(), None);
        assert!(plan.to_ask.is_empty(), "the list was from before they were let go");
    }

    fn of_run(definition: StreamDefinition, run: Option<&str>) -> OfRun {
        let run = run.map(|json| serde_json::from_str::<RunRecord>(json).expect("a run"));
        let name = "physics".parse().expect("a name");
        let stream = StreamVersion { name, version: 2, at_unix_ns: 0, by: String::new(), definition };
        OfRun { run, stream: Some(stream) }
    }

    const CLOSED: &str =
        r#"{"run":7,"state":"closed","changes":4,"sources":"0-3","declared":{"at_unix_ns":0},"expected_events":6}"#;
    const RUNNING: &str = r#"{"run":7,"state":"running","changes":2,"sources":"0-3","declared":{"at_unix_ns":0}}"#;

    #[test]
    fn a_block_is_over_with_the_next_and_a_run_when_it_is_closed() {
        let (mut plan, mut series) = (plan(1 << 30, false), Numbering::default());
        let definition = StreamDefinition { block: BlockRule::Events(4), ..StreamDefinition::default() };
        let (running, closed) = (of_run(definition.clone(), Some(RUNNING)), of_run(definition, Some(CLOSED)));
        let mut at = |seconds: u64, events: &[u64], of_run: &OfRun| {
            let from = Time(seconds * 1_000_000_000);
            let planned = play_by(&mut plan, &mut series, (events, None), of_run, from);
            let told = told(&planned).into_iter().map(|(name, events)| (name.to_owned(), events));
            told.collect::<Vec<_>>()
        };
        let first = ("physics/run000007-block00001-00001.besiii".to_owned(), vec![1, 2]);
        assert_eq!(at(0, &[1, 2, 4, 6], &running), [first]);
        assert!(at(11, &[1, 2, 4, 6], &running).is_empty(), "more of the block may come");
        // Numbers go on over blocks; 00002 is taken.
        let second = ("physics/run000007-block00002-00003.besiii".to_owned(), vec![4, 6]);
        assert_eq!(at(22, &[1, 2, 4, 6], &closed), [second], "long before it waited for its time");
    }

    #[test]
    fn a_run_that_is_to_go_nowhere_stays_in_the_store_and_says_why() {
        let (mut plan, mut series) = (plan(1 << 30, true), Numbering::default());
        let known = [("tape".to_owned(), Some(DestinationIndex(1))), ("bad".to_owned(), None)];
        plan.config.defined = Some(known.into());
        let to = |destination: &str| {
            of_run(StreamDefinition { destination: destination.to_owned(), ..StreamDefinition::default() }, None)
        };
        for (seconds, destination, words, wants) in
            [(0, "", "nobody said", false), (10, "bad", "cannot be used", false), (20, "new", "not known at", true)]
        {
            let from = Time(seconds * 1_000_000_000);
            assert!(play_by(&mut plan, &mut series, (&[1], None), &to(destination), from).is_empty());
            let refusal = plan.terms.refusal(RunId(7)).expect("it is refused");
            assert!(refusal.words.contains(words) && refusal.words.contains("run 7"), "{}", refusal.words);
            assert_eq!((refusal.wants_destination, plan.failing_since().is_some()), (wants, true));
            plan.terms = TermsBook::default();
        }
        let planned = play_by(&mut plan, &mut series, (&[1], None), &to("tape"), Time(100_000_000_000));
        assert_eq!(planned.len(), 1);
    }

    #[test]
    fn a_run_with_more_events_than_were_counted_is_looked_at_first() {
        let (mut plan, mut series) = (plan(1 << 30, false), Numbering::default());
        plan.count(RunId(7), 4);
        let closed = of_run(StreamDefinition::default(), Some(CLOSED));
        let planned = play_by(&mut plan, &mut series, (&[1, 2], None), &closed, Time(0));
        assert_eq!(planned[0].objection, None, "six of six");
        let planned = play_by(&mut plan, &mut series, (&[1, 2, 3], None), &closed, Time(9_000_000_000));
        assert!(
            planned[0].objection.as_ref().is_some_and(|words| words.contains("6 events") && words.contains("7 of it"))
        );
    }
}
