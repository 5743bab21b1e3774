//! From the fragments of an accepted event to the bytes of a file.

use forebay_client::{FetchedEvent, FetchedFragment};
use forebay_rawdata::{frame_format, inspect, join_incomplete, sources};
use forebay_types::{ReadOutcome, SourceId};

use super::{EventKind, Making, parts};

/// What a fetched event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// It can be written.
    Event(AssembledEvent),
    /// The store has released or deleted it in the meantime.
    Gone,
    /// Some of it cannot be read for now.
    Unavailable,
}

/// An event as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledEvent {
    /// What it became.
    pub kind: EventKind,
    /// Whether its bytes hold its number. Files hold either such events or others: readers number the
    /// others by their position.
    pub numbered: bool,
    /// Whether fragments are missing.
    pub incomplete: bool,
    /// The sources of its fragments that are lost, as far as it is known which they are.
    pub lost: Vec<SourceId>,
    /// How many fragments are lost.
    pub fragments_lost: u64,
    /// When it was taken, in microseconds since 1970, where its bytes say that.
    pub taken_unix_us: Option<u64>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Puts an event together, as it is wanted. It is never skipped: without its frame, or when what was stored is no event
/// of the wanted format, its fragments are kept as they are ([`EventKind::Parts`]).
pub fn assemble(event: &FetchedEvent, making: &Making) -> Assembled {
    if matches!(event.outcome, ReadOutcome::NotFound | ReadOutcome::Deleted) {
        return Assembled::Gone;
    }
    let taken = taken(event, making);
    let any = |outcome| event.outcome == outcome || taken.iter().any(|fragment| fragment.outcome == outcome);
    if any(ReadOutcome::Deleted) {
        return Assembled::Gone;
    }
    if any(ReadOutcome::Unavailable) {
        return Assembled::Unavailable;
    }
    let lost = taken.iter().filter(|fragment| fragment.outcome == ReadOutcome::Lost);
    let lost: Vec<SourceId> = lost.map(|fragment| fragment.source).collect();
    let all_lost = event.outcome == ReadOutcome::Lost && event.fragments.is_empty();
    let fragments_lost = if all_lost { u64::from(event.stored).max(1) } else { lost.len() as u64 };
    let made = match making.kind {
        Some(EventKind::Parts) => None,
        Some(EventKind::Plain) => plain(&taken),
        wanted => joined(&taken, making).filter(|made| wanted.is_none_or(|wanted| wanted == made.kind)),
    };
    let Made { kind, numbered, is_whole, taken_unix_us, bytes } = made.unwrap_or_else(|| parts_of(event, &taken));
    let incomplete = fragments_lost > 0 || !is_whole;
    Assembled::Event(AssembledEvent { kind, numbered, incomplete, lost, fragments_lost, taken_unix_us, bytes })
}

/// What is wanted of the fragments of an event.
fn taken<'a>(event: &'a FetchedEvent, making: &Making) -> Vec<&'a FetchedFragment> {
    let frame = event.fragments.iter().find(|fragment| fragment.source == SourceId::EVENT_FRAME);
    let format = frame.and_then(|frame| frame_format(&frame.payload).ok());
    event.fragments.iter().filter(|fragment| making.takes(fragment.source, format)).collect()
}

fn found<'a>(taken: &[&'a FetchedFragment]) -> Vec<(SourceId, &'a [u8])> {
    let found = taken.iter().filter(|fragment| fragment.outcome == ReadOutcome::Found);
    found.map(|fragment| (fragment.source, fragment.payload.as_slice())).collect()
}

/// What fragments became.
struct Made {
    kind: EventKind,
    numbered: bool,
    /// Whether nothing that is wanted is missing.
    is_whole: bool,
    taken_unix_us: Option<u64>,
    bytes: Vec<u8>,
}

/// The event that they are, if its frame is there and what comes of it can be read.
fn joined(taken: &[&FetchedFragment], making: &Making) -> Option<Made> {
    let (format, bytes, missing) = join_incomplete(&found(taken)).ok()?;
    let info = inspect(format, &bytes).ok()?;
    let numbered = info.event.is_ok();
    // Without what holds its number an event could not be told from others.
    if !missing.is_empty() && !numbered {
        return None;
    }
    let is_whole = !missing.iter().any(|source| making.takes(*source, Some(format)));
    Some(Made { kind: EventKind::of(format), numbered, is_whole, taken_unix_us: info.taken_unix_us, bytes })
}

/// Their bytes behind each other, if there are any; the frame says which of them are missing, if it is there.
fn plain(taken: &[&FetchedFragment]) -> Option<Made> {
    let mut found = found(taken);
    found.sort_unstable_by_key(|(source, _)| *source);
    let frame = found.iter().find(|(source, _)| *source == SourceId::EVENT_FRAME);
    let is_named = |named: &SourceId| taken.iter().any(|fragment| fragment.source == *named);
    let is_whole = frame.is_none_or(|(_, frame)| sources(frame).is_ok_and(|named| named.iter().all(is_named)));
    let data: Vec<&[u8]> =
        found.iter().filter(|(source, _)| *source != SourceId::EVENT_FRAME).map(|(_, bytes)| *bytes).collect();
    let bytes = data.concat();
    let made = Made { kind: EventKind::Plain, numbered: false, is_whole, taken_unix_us: None, bytes };
    (!data.is_empty()).then_some(made)
}

fn parts_of(event: &FetchedEvent, taken: &[&FetchedFragment]) -> Made {
    let fragments = taken.iter().map(|fragment| (fragment.source, fragment.outcome, fragment.payload.as_slice()));
    let bytes = parts::encode(event.key, fragments);
    let is_frame = |fragment: &&FetchedFragment| {
        fragment.source == SourceId::EVENT_FRAME && fragment.outcome == ReadOutcome::Found
    };
    let is_whole = taken.iter().any(is_frame);
    Made { kind: EventKind::Parts, numbered: true, is_whole, taken_unix_us: None, bytes }
}

#[cfg(test)]
mod tests {
    use forebay_client::EventState;
    use forebay_rawdata::{Format, Generator, RawEvent, split};
    use forebay_types::RunId;

    use super::*;

    fn fetched(event: &RawEvent) -> FetchedEvent {
        let mut fragments: Vec<FetchedFragment> = split(event)
            .expect("a generated event")
            .into_iter()
            .map(|piece| FetchedFragment { source: piece.source, outcome: ReadOutcome::Found, payload: piece.bytes })
            .collect();
        fragments.sort_by_key(|fragment| fragment.source);
        FetchedEvent {
            key: event.key,
            outcome: ReadOutcome::Found,
            state: EventState::Accepted,
            expected: fragments.len() as u16,
            stored: fragments.len() as u32,
            fragments,
        }
    }

    fn event(format: Format) -> RawEvent {
        Generator::new(format, 1, RunId(7)).next_event()
    }

    #[test]
    fn whole_events_come_out_as_they_went_in() {
        for format in Format::ALL {
            let event = event(format);
            let Assembled::Event(out) = assemble(&fetched(&event), &Making::default()) else { panic!("an event") };
            assert_eq!((out.kind, out.incomplete, out.lost.len()), (EventKind::of(format), false, 0));
            assert!(out.bytes == event.bytes, "{format}");
        }
    }

    #[test]
    fn without_a_source_it_is_incomplete_and_without_its_frame_in_parts() {
        let event = event(Format::Faser);
        let mut without = fetched(&event);
        without.fragments[0].outcome = ReadOutcome::Lost;
        without.fragments[0].payload.clear();
        let Assembled::Event(out) = assemble(&without, &Making::default()) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete), (EventKind::Faser, true));
        assert_eq!((out.fragments_lost, &out.lost[..]), (1, &[without.fragments[0].source][..]));
        assert!(out.bytes.len() < event.bytes.len());

        let mut frameless = fetched(&event);
        frameless.fragments.pop();
        let Assembled::Event(out) = assemble(&frameless, &Making::default()) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete, out.lost.len()), (EventKind::Parts, true, 0));
        let parts: Vec<_> = parts::PartsReader::new(out.bytes.as_slice()).collect::<Result<_, _>>().expect("parts");
        assert_eq!(parts[0].0, event.key);
        assert_eq!(parts[0].1.len(), frameless.fragments.len());
    }

    #[test]
    fn an_event_of_which_nobody_knows_any_more_what_it_held_counts_all_of_its_fragments_as_lost() {
        let whole = fetched(&event(Format::Mdf));
        let gone = FetchedEvent { outcome: ReadOutcome::Lost, fragments: Vec::new(), ..whole.clone() };
        let Assembled::Event(out) = assemble(&gone, &Making::default()) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete, out.fragments_lost), (EventKind::Parts, true, u64::from(whole.stored)));
        assert_eq!(out.lost, []);
    }

    #[test]
    fn what_cannot_be_read_now_waits_and_what_is_gone_is_gone() {
        let event = event(Format::Mdf);
        let mut unavailable = fetched(&event);
        unavailable.fragments[3].outcome = ReadOutcome::Unavailable;
        assert_eq!(assemble(&unavailable, &Making::default()), Assembled::Unavailable);
        let gone = FetchedEvent { outcome: ReadOutcome::Deleted, fragments: Vec::new(), ..fetched(&event) };
        assert_eq!(assemble(&gone, &Making::default()), Assembled::Gone);
    }

    #[test]
    fn a_part_of_the_sources_is_an_event_of_its_format_and_lacks_nothing() {
        for format in Format::ALL {
            let whole = fetched(&event(format));
            let first = whole.fragments[0].source;
            let making = Making { sources: format!("{}", first.0).parse().expect("sources"), kind: None };
            let Assembled::Event(out) = assemble(&whole, &making) else { panic!("an event") };
            assert_eq!((out.kind, out.incomplete, out.numbered), (EventKind::of(format), false, true), "{format}");
            assert!(out.bytes.len() < whole.fragments.iter().map(|fragment| fragment.payload.len()).sum::<usize>());
            // What is not wanted is in nobody's way.
            let mut other = whole.clone();
            other.fragments[1].outcome = ReadOutcome::Unavailable;
            if making.takes(other.fragments[1].source, Some(format)) {
                continue;
            }
            assert_eq!(assemble(&other, &making), Assembled::Event(out));
            let mut without = whole.clone();
            without.fragments.remove(0);
            let Assembled::Event(out) = assemble(&without, &making) else { panic!("an event") };
            assert!(out.incomplete, "{format}");
        }
    }

    #[test]
    fn an_event_becomes_what_is_wanted_or_parts() {
        let whole = fetched(&event(Format::Faser));
        let made = |kind| match assemble(&whole, &Making { kind: Some(kind), ..Making::default() }) {
            Assembled::Event(out) => (out.kind, out.incomplete, out.bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(made(EventKind::Faser).0, EventKind::Faser);
        assert_eq!(made(EventKind::Mdf).0, EventKind::Parts);
        assert_eq!(made(EventKind::Parts).0, EventKind::Parts);
        let data = whole.fragments.iter().filter(|fragment| fragment.source != SourceId::EVENT_FRAME);
        let bytes: Vec<u8> = data.flat_map(|fragment| fragment.payload.clone()).collect();
        assert_eq!(made(EventKind::Plain), (EventKind::Plain, false, bytes));
    }
}
