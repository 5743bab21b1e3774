//! What was read of an event, judged. Decides nothing by time or chance.

use std::collections::BTreeSet;

use forebay_client::{EventState, FetchedEvent};
use forebay_rawdata::{JoinError, inspect, join};
use forebay_types::{ReadOutcome, SourceId};

use crate::ledger::{EventHash, HashLedger};

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// As it was written. `in_ledger`: its hash was compared; `Some(false)`: the ledger does not know it.
    Whole { in_ledger: Option<bool> },
    /// Some sources are missing.
    Incomplete,
    /// Some of it cannot be read for now.
    Unavailable,
    /// So many fragments are lost.
    Lost(Vec<SourceId>),
    /// It is decided already.
    Decided,
    /// It is not what was written.
    Mismatch(String),
}

/// Judges an event that was read whole.
pub(super) fn judge(event: &FetchedEvent, ledger: Option<&HashLedger>) -> Judgement {
    if let Some(judgement) = judge_outcomes(event) {
        return judgement;
    }
    let (format, bytes) = match join(&event.found()) {
        Ok(joined) => joined,
        Err(JoinError::Missing { .. } | JoinError::NoFrame { .. }) => return Judgement::Incomplete,
        Err(error) => return Judgement::Mismatch(error.to_string()),
    };
    let info = match inspect(format, &bytes) {
        Ok(info) => info,
        Err(error) => return Judgement::Mismatch(error.problem.to_string()),
    };
    // A compressed event holds the numbers of its first life, and some hold none.
    if let (false, Ok(number)) = (info.whole, info.event)
        && (info.run, number) != (event.key.run, event.key.event)
    {
        return Judgement::Mismatch(format!("its bytes are those of event {}/{number}", info.run));
    }
    let Some(ledger) = ledger else { return Judgement::Whole { in_ledger: None } };
    let hash = EventHash::of(&bytes);
    match ledger.get(event.key) {
        None => Judgement::Whole { in_ledger: Some(false) },
        Some(written) if written == hash => Judgement::Whole { in_ledger: Some(true) },
        Some(written) => Judgement::Mismatch(format!(
            "expected {} bytes with hash {:032x} as they were written, found {} bytes with hash {:032x}",
            written.bytes, written.hash, hash.bytes, hash.hash
        )),
    }
}

/// Judges by outcomes alone; `None`: everything that was asked for and is stored was found.
pub(super) fn judge_outcomes(event: &FetchedEvent) -> Option<Judgement> {
    let outcomes: BTreeSet<u8> = std::iter::once(event.outcome)
        .chain(event.fragments.iter().map(|f| f.outcome))
        .map(ReadOutcome::code)
        .collect();
    let any = |outcome: ReadOutcome| outcomes.contains(&outcome.code());
    let decided = matches!(event.state, EventState::Accepted | EventState::Finished);
    if decided || event.outcome == ReadOutcome::NotFound || any(ReadOutcome::Deleted) {
        return Some(Judgement::Decided);
    }
    if any(ReadOutcome::Unavailable) {
        return Some(Judgement::Unavailable);
    }
    if any(ReadOutcome::Lost) {
        let lost = event.fragments.iter().filter(|fragment| fragment.outcome == ReadOutcome::Lost);
        return Some(Judgement::Lost(lost.map(|fragment| fragment.source).collect()));
    }
    None
}

#[cfg(test)]
mod tests {
    use forebay_client::FetchedFragment;
    use forebay_rawdata::{Format, Generator, RawEvent, split};
    use forebay_types::RunId;

    use super::*;

    fn event(format: Format, compressed: bool) -> RawEvent {
        Generator::new(format, 1, RunId(7)).compressed(compressed).next_event()
    }

    fn fetched(event: &RawEvent) -> FetchedEvent {
        let pieces = split(event).expect("a good event");
        let found = |(source, payload)| FetchedFragment { source, outcome: ReadOutcome::Found, payload };
        FetchedEvent {
            key: event.key,
            outcome: ReadOutcome::Found,
            state: EventState::Leased,
            expected: pieces.len() as u16,
            stored: pieces.len() as u32,
            fragments: pieces.into_iter().map(|piece| found((piece.source, piece.bytes))).collect(),
        }
    }

    #[test]
    fn good_events_are_whole() {
        let ledger = HashLedger::default();
        let kinds = [(Format::Faser, false), (Format::Mdf, false), (Format::Mdf, true), (Format::Besiii, false)];
        for (format, compressed) in kinds {
            let event = event(format, compressed);
            assert_eq!(judge(&fetched(&event), None), Judgement::Whole { in_ledger: None });
            let mut renumbered = fetched(&event);
            renumbered.key.event.0 += 1;
            let other = judge(&renumbered, Some(&ledger));
            if compressed {
                assert_eq!(other, Judgement::Whole { in_ledger: Some(false) }, "only the key has the number");
            } else {
                assert!(matches!(other, Judgement::Mismatch(_)), "{other:?}");
            }
        }
    }

    #[test]
    fn what_differs_from_the_ledger_is_a_mismatch() {
        let event = event(Format::Faser, false);
        let ledger = HashLedger::default();
        ledger.insert(event.key, EventHash::of(&event.bytes));
        assert_eq!(judge(&fetched(&event), Some(&ledger)), Judgement::Whole { in_ledger: Some(true) });
        let mut damaged = fetched(&event);
        *damaged.fragments[2].payload.last_mut().expect("bytes") ^= 1;
        assert_eq!(judge(&damaged, None), Judgement::Whole { in_ledger: None }, "FASER has no checksum");
        let Judgement::Mismatch(words) = judge(&damaged, Some(&ledger)) else { panic!("the hash differs") };
        assert!(words.contains("expected") && words.contains("found"), "{words}");
        let mut short = fetched(&event);
        short.fragments[1].payload.pop();
        assert!(matches!(judge(&short, None), Judgement::Mismatch(_)));
    }

    #[test]
    fn outcomes_come_first() {
        let good = fetched(&event(Format::Faser, false));
        let with = |outcome| {
            let mut event = good.clone();
            event.fragments[1].outcome = outcome;
            event
        };
        assert_eq!(judge(&with(ReadOutcome::NotFound), None), Judgement::Incomplete);
        assert_eq!(judge(&with(ReadOutcome::Unavailable), None), Judgement::Unavailable);
        assert_eq!(judge(&with(ReadOutcome::Deleted), None), Judgement::Decided);
        assert_eq!(judge(&with(ReadOutcome::Lost), None), Judgement::Lost(vec![good.fragments[1].source]));
        let finished = FetchedEvent { state: EventState::Finished, ..good.clone() };
        assert_eq!(judge(&finished, None), Judgement::Decided);
        let mut frameless = good;
        frameless.fragments.remove(0);
        assert_eq!(judge(&frameless, None), Judgement::Incomplete);
    }
}
