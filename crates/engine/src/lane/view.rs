//! What a lane tells about its events, streams and runs.

use std::collections::BTreeMap;

use forebay_types::{EventKey, RunId, StreamName};

use super::Lane;
use crate::api::{AcceptedEvent, AcceptedPage, EventFragments, EventView, RunView, StreamView};
use crate::index::EventFlags;
use crate::planted::{Planted, planted};

impl Lane {
    /// An event that is not finished, with its durable fragments.
    pub fn event(&self, key: EventKey) -> Option<EventView> {
        let event = self.index.event(key)?;
        let durable = |f: &&crate::index::FragmentEntry| {
            f.position < self.segments.get(f.segment).durable_position || planted(Planted::DirtyRead)
        };
        let mut records = event.records().iter().filter(durable).peekable();
        records.peek()?;
        let fragments = match event.whole() {
            Some(_) => EventFragments::Whole { fragments: event.fragment_count() as u32, bytes: event.bytes() as u32 },
            None => EventFragments::Each(records.map(|fragment| (fragment.source, fragment.bytes)).collect()),
        };
        Some(EventView {
            fragments,
            expected: event.expected,
            leased: event.flags.has(EventFlags::LEASED),
            accepted: event.flags.has(EventFlags::ACCEPTED),
            incomplete: event.flags.has(EventFlags::INCOMPLETE),
        })
    }

    /// Whether an event is over: rejected, deleted, or released by all of its streams.
    pub fn is_finished(&self, key: EventKey) -> bool {
        self.finished.contains(key)
    }

    /// Events of a stream that it has not released, ascending from behind `after`.
    pub fn accepted(&self, stream: &StreamName, after: Option<EventKey>, events_max: usize) -> AcceptedPage {
        let mut page = AcceptedPage { undecided_floor: self.index.undecided_floor(), ..AcceptedPage::default() };
        let Some(stream) = self.accepted.stream(stream) else { return page };
        for key in self.accepted.of_stream(stream, after) {
            if page.events.len() == events_max {
                page.more = true;
                break;
            }
            let Some(event) = self.index.event(key) else { continue };
            page.events.push(AcceptedEvent {
                key,
                fragments: event.fragment_count() as u32,
                bytes: event.bytes(),
                incomplete: event.flags.has(EventFlags::INCOMPLETE),
            });
        }
        page
    }

    /// The streams that this lane knows.
    pub fn streams(&self) -> Vec<StreamView> {
        self.accepted.streams().map(|(name, events)| StreamView { name: name.clone(), events }).collect()
    }

    /// The runs that this lane knows. That under which files stand is none, where there are files.
    pub fn runs(&self) -> Vec<RunView> {
        let mut runs: BTreeMap<RunId, RunView> = BTreeMap::new();
        let none = |run| RunView { run, events: 0, undecided: 0, finished: 0, range: None };
        for here in self.index.runs() {
            let view = runs.entry(here.run).or_insert(none(here.run));
            (view.events, view.undecided) = (here.events, here.undecided);
            view.range = Some((here.first.0, here.last.0));
        }
        for (run, finished) in self.finished.events_by_run() {
            runs.entry(run).or_insert(none(run)).finished = finished;
        }
        if self.config.has_files {
            runs.remove(&RunId::FILES);
        }
        runs.into_values().collect()
    }
}
