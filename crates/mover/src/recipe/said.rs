//! What others say of files: the `.json` that data acquisition puts beside each, and how many events a run has.

use serde_json::Value;

use crate::about::About;
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::Source;

/// What a `.json` says of the file beside it, as far as it is understood: all of it may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    bytes: Option<u64>,
    adler32: Option<u32>,
    events: Option<u64>,
    run: Option<u64>,
}

/// By which names something is said.
const BYTES: [&str; 3] = ["bytes", "size", "file_size"];
const ADLER32: [&str; 1] = ["adler32"];
const EVENTS: [&str; 4] = ["events", "n_events", "nevents", "event_count"];
const RUN: [&str; 2] = ["run", "run_number"];

impl Said {
    /// What is no JSON object says nothing: it is there, and that is what it is for.
    fn parse(text: &[u8]) -> Said {
        let Ok(Value::Object(object)) = serde_json::from_slice(text) else { return Said::default() };
        let first = |names: &[&str]| names.iter().find_map(|name| object.get(*name)).cloned();
        let number = |names: &[&str]| match first(names)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let adler32 = first(&ADLER32).and_then(|sum| {
            let text = sum.as_str()?.trim();
            u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        });
        Said { bytes: number(&BYTES), adler32, events: number(&EVENTS), run: number(&RUN) }
    }

    /// Adds what is said of another part; what is not said of all of them is said of none.
    fn and(self, other: Said) -> Said {
        let events = self.events.zip(other.events).map(|(one, other)| one.saturating_add(other));
        let run = self.run.filter(|run| other.run == Some(*run));
        Said { bytes: None, adler32: None, events, run }
    }
}

/// That files are what is said of them.
///
/// # Errors
/// What they are not.
pub(super) fn agree(source: &dyn Source, parts: &[Part], about: &About) -> Result<(), SourceAnswer> {
    let mut all: Option<Said> = None;
    // Beside raw data there are logs and the like of the same name, and one `.json` for all of them.
    let by_stem = about.events.is_some();
    for (part, read) in parts.iter().zip(&about.parts) {
        let said = source.said_of(&part.name, by_stem).map_or_else(Said::default, |text| Said::parse(&text));
        let differs = |what: &str, said: String, is: String| {
            SourceAnswer::Damaged(format!(
                "the .json beside {} says that it has {what} {said}, and it has {is}. Nothing of it was sent. Look which of the two is wrong; `retry` sends it once that .json is corrected or gone",
                part.name
            ))
        };
        if let Some(bytes) = said.bytes.filter(|bytes| *bytes != part.identity.bytes) {
            return Err(differs("a size of", format!("{bytes} bytes"), format!("{} bytes", part.identity.bytes)));
        }
        if let Some(sum) = said.adler32.filter(|sum| *sum != read.adler32) {
            return Err(differs("the Adler-32", format!("{sum:08x}"), format!("{:08x}", read.adler32)));
        }
        all = Some(all.map_or(said, |all| all.and(said)));
    }
    let (Some(said), Some(events)) = (all, &about.events) else { return Ok(()) };
    let differs = |what: String| {
        let files = if parts.len() == 1 { parts[0].name.to_string() } else { format!("{} files", parts.len()) };
        SourceAnswer::Damaged(format!("{files}: {what}. Nothing was sent. Look at which is wrong, then retry"))
    };
    if let Some(count) = said.events.filter(|count| *count != events.count) {
        return Err(differs(format!("the .json beside says {count} events, and there are {}", events.count)));
    }
    let Some(run) = events.run else { return Ok(()) };
    if let Some(other) = said.run.filter(|said| *said != u64::from(run.0)) {
        return Err(differs(format!("the .json beside says run {other}, and its events are of run {run}")));
    }
    match source.events_of_run(run)?.filter(|counted| events.count > *counted) {
        Some(counted) => Err(differs(format!(
            "run {run} has {counted} events as its run control counted (`forebay run show {run}`), and here are {} of it",
            events.count
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_what_is_not_understood_is_not() {
        let said = |text: &str| Said::parse(text.as_bytes());
        let all = Said { bytes: Some(5), adler32: Some(0xAB), events: Some(2), run: Some(7) };
        assert_eq!(said(r#"{"bytes":5,"adler32":"000000ab","events":2,"run":7,"more":[]}"#), all);
        assert_eq!(said(r#"{"size":"5","adler32":"0xAB","n_events":2,"run_number":7}"#), all);
        for nothing in ["", "done", "[1]", r#"{"bytes":-1,"adler32":171,"events":null,"run":"x"}"#] {
            assert_eq!(said(nothing), Said::default(), "{nothing}");
        }
        let sum = all.and(Said { events: Some(3), run: Some(8), ..all });
        assert_eq!((sum.events, sum.run, sum.bytes), (Some(5), None, None));
        assert_eq!(all.and(Said::default()).events, None);
    }
}
