//! From the fragments of an accepted event to the bytes of a file.

use forebay_client::FetchedEvent;
use forebay_rawdata::{Format, inspect, join_incomplete};
use forebay_types::{ReadOutcome, SourceId};

use super::{EventKind, parts};

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
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Assembled {
    /// The bytes that are appended to a file; none where there is nothing to append.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Assembled::Event(event) => event.bytes,
            Assembled::Gone | Assembled::Unavailable => Vec::new(),
        }
    }
}

/// Puts an event together. It is never skipped: without its frame, or when what was stored is no event
/// of its format, its fragments are kept as they are ([`EventKind::Parts`]).
pub fn assemble(event: &FetchedEvent) -> Assembled {
    let any = |outcome| event.outcome == outcome || event.fragments.iter().any(|f| f.outcome == outcome);
    if matches!(event.outcome, ReadOutcome::NotFound | ReadOutcome::Deleted) || any(ReadOutcome::Deleted) {
        return Assembled::Gone;
    }
    if any(ReadOutcome::Unavailable) {
        return Assembled::Unavailable;
    }
    let lost = event.fragments.iter().filter(|fragment| fragment.outcome == ReadOutcome::Lost);
    let lost: Vec<SourceId> = lost.map(|fragment| fragment.source).collect();
    let all_lost = event.outcome == ReadOutcome::Lost && event.fragments.is_empty();
    let fragments_lost = if all_lost { u64::from(event.stored).max(1) } else { lost.len() as u64 };
    let found = event.found();
    if let Ok((format, bytes, missing)) = join_incomplete(&found)
        && let Some(numbered) = readable(format, &bytes, missing.is_empty())
    {
        let incomplete = !missing.is_empty();
        let kind = EventKind::of(format);
        return Assembled::Event(AssembledEvent { kind, numbered, incomplete, lost, fragments_lost, bytes });
    }
    let fragments = event.fragments.iter().map(|f| (f.source, f.outcome, f.payload.as_slice()));
    let bytes = parts::encode(event.key, fragments);
    let incomplete = fragments_lost > 0 || !found.iter().any(|(source, _)| *source == SourceId::EVENT_FRAME);
    Assembled::Event(AssembledEvent { kind: EventKind::Parts, numbered: true, incomplete, lost, fragments_lost, bytes })
}

/// Whether a reader of the file finds its way through the event, and if so, whether it finds its number.
fn readable(format: Format, bytes: &[u8], complete: bool) -> Option<bool> {
    let info = inspect(format, bytes).ok()?;
    // Without the bank that holds the number an event could not be told from others.
    (complete || info.event.is_ok()).then_some(info.event.is_ok())
}

#[cfg(test)]
mod tests {
    use forebay_client::{EventState, FetchedFragment};
    use forebay_rawdata::{Generator, RawEvent, split};
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
            let Assembled::Event(out) = assemble(&fetched(&event)) else { panic!("an event") };
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
        let Assembled::Event(out) = assemble(&without) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete), (EventKind::Faser, true));
        assert_eq!((out.fragments_lost, &out.lost[..]), (1, &[without.fragments[0].source][..]));
        assert!(out.bytes.len() < event.bytes.len());

        let mut frameless = fetched(&event);
        frameless.fragments.pop();
        let Assembled::Event(out) = assemble(&frameless) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete, out.lost.len()), (EventKind::Parts, true, 0));
        let parts: Vec<_> = parts::PartsReader::new(out.bytes.as_slice()).collect::<Result<_, _>>().expect("parts");
        assert_eq!(parts[0].0, event.key);
        assert_eq!(parts[0].1.len(), frameless.fragments.len());
    }

    #[test]
    fn an_event_of_which_nobody_knows_any_more_what_it_held_counts_all_of_its_fragments_as_lost() {
        let whole = fetched(&event(Format::Mdf));
        let gone = FetchedEvent { outcome: ReadOutcome::Lost, fragments: Vec::new(), ..whole.clone() };
        let Assembled::Event(out) = assemble(&gone) else { panic!("an event") };
        assert_eq!((out.kind, out.incomplete, out.fragments_lost), (EventKind::Parts, true, u64::from(whole.stored)));
        assert_eq!(out.lost, []);
    }

    #[test]
    fn what_cannot_be_read_now_waits_and_what_is_gone_is_gone() {
        let event = event(Format::Mdf);
        let mut unavailable = fetched(&event);
        unavailable.fragments[3].outcome = ReadOutcome::Unavailable;
        assert_eq!(assemble(&unavailable), Assembled::Unavailable);
        let gone = FetchedEvent { outcome: ReadOutcome::Deleted, fragments: Vec::new(), ..fetched(&event) };
        assert_eq!(assemble(&gone), Assembled::Gone);
    }
}
