//! `forebay lost`: exactly what is lost, and why.

use clap::Args;
use forebay_client::{Class, Client};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{counted, date_time, human_bytes, human_count, started};
use crate::status::parse;
use crate::status::report::Scrub;

const AFTER_HELP: &str = "\
Examples:
  forebay lost                                   what the server has found to be lost since it started, and what is out of reach now
  forebay lost --json | jq -r '.losses[] | select(.what == \"fragment\") | \"\\(.run)/\\(.event)/\\(.source)\"'

Listed is what was found since the server started: by recovery at the start, by reads, by scrubs (`forebay drive scrub` looks at everything now) and by
rebuilds. A list that is empty after a start does not say that nothing is lost: what a read or a scrub found before it is found again only when it is
looked at again. How much has been looked at stands in the last line. There are four kinds:
  lost                   damaged on more drives than parity makes up for
  lost-or-unknown        the same, and what would name it is gone too: the runs and events of the flush are told
  possibly-acknowledged  of the last moments before an unclean stop; drives that are missing could tell
  unavailable            nothing is wrong with it, but too few of its drives answer: put them back
What is out of reach is told by segments and flushes. Of which events it is: of one event `forebay trace RUN/EVENT` tells (exit code 3); all of those that are
known are listed by `forebay doctor --json DRIVE..` (`.readable.unavailable`), beside a server that was started read-only, or without one. A flush whose
header alone is there gives the smallest and the largest run and event; what is told without them is known when the drives are back.
A fragment that nobody misses any more (its event was rejected, deleted or released) is not listed. Of what is damaged beyond repair it is found out
fragment by fragment what is lost; while that goes on, the list is not whole, and says so. A lane remembers as many losses as go into a 16th of the memory
of its index, about one for every 25 fragments that it may hold, and counts those beyond that.

Exit codes: 0 when nothing was found to be lost and all is within reach; 1 when something is lost, perhaps or for certain; 3 when something is only out of
reach, or the server does not answer.";

/// The options of `lost`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct LostCommand {
    #[command(flatten)]
    ask: AskOptions,
}

/// A page of what a lane knows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    losses: Vec<Value>,
    next: Option<u32>,
    not_remembered: u64,
    being_named: u64,
}

/// A loss, as far as the words need it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Loss {
    kind: String,
    what: String,
    segment: String,
    flush: u32,
    flushes: u64,
    run: u32,
    event: u64,
    source: u32,
    file: u64,
    start: u64,
    fragments: u64,
    bytes: u64,
    records: u64,
    runs: (u32, u32),
    events: (u64, u64),
    drives_damaged: Vec<u16>,
    drives_missing: Vec<u16>,
    found_by: String,
    found_unix_ms: Option<u64>,
}

/// How much was looked at since the start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Looked {
    uptime_s: f64,
    read_only: bool,
    lanes: Vec<LaneLooked>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LaneLooked {
    scrub: Scrub,
}

impl Looked {
    /// Closed segments.
    fn segments(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.scrub.round_segments).sum()
    }

    /// Of these, looked at, or written, since the start. A round that has ended looked at all.
    fn segments_looked_at(&self) -> u64 {
        let looked_at =
            |Scrub { round_ended_s, round_segments, round_segments_checked, .. }: &Scrub| match round_ended_s {
                Some(_) => *round_segments,
                None => *round_segments_checked,
            };
        self.lanes.iter().map(|lane| looked_at(&lane.scrub)).sum()
    }

    fn words(&self) -> String {
        let (all, looked_at) = (self.segments(), self.segments_looked_at());
        let since = format!("since this start ({})", started(self.uptime_s));
        match (self.read_only, looked_at >= all) {
            (true, _) => format!(
                "{since}; a server that only reads looks at nothing by itself: `forebay doctor` does, when the server is stopped"
            ),
            (false, true) => format!("{since}; all {} full segments were looked at or written since", human_count(all)),
            (false, false) => format!(
                "{since}; {} of {} full segments were looked at or written since: `forebay drive scrub` looks at all",
                human_count(looked_at),
                human_count(all)
            ),
        }
    }
}

/// Asks every lane and tells.
///
/// # Errors
/// When something is lost or out of reach.
pub fn run(command: &LostCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    let (mut told, mut counts) = (Vec::new(), Counts::default());
    for lane in 0..client.info().lanes {
        let end = ask(&mut client, lane, |mut value| {
            let loss: Loss = serde_json::from_value(value.clone()).unwrap_or_default();
            counts.add(&loss);
            if output.json {
                value["lane"] = lane.into();
                // As text it takes a tenth of the memory, and there may be very many.
                told.push(to_raw_value(&value).expect("it came as JSON"));
            } else {
                output.line(&words(lane, &loss));
            }
        })?;
        counts.not_remembered += end.not_remembered;
        counts.being_named += end.being_named;
    }
    let looked: Looked = parse(&client.status()?)?;
    output.object(&Told {
        losses: told,
        not_remembered: counts.not_remembered,
        being_named: counts.being_named,
        lost: counts.lost,
        unavailable: counts.unavailable,
        uptime_s: looked.uptime_s,
        segments: looked.segments(),
        segments_looked_at: looked.segments_looked_at(),
    });
    counts.end(&looked, output)
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Told {
    losses: Vec<Box<RawValue>>,
    not_remembered: u64,
    being_named: u64,
    lost: u64,
    unavailable: u64,
    uptime_s: f64,
    segments: u64,
    segments_looked_at: u64,
}

/// What a lane knows, page by page; the last one.
fn ask(client: &mut Client, lane: u16, mut each: impl FnMut(Value)) -> Result<Page, Failure> {
    let mut from = 0;
    loop {
        let mut page: Page = parse(&client.losses(lane, from)?)?;
        std::mem::take(&mut page.losses).into_iter().for_each(&mut each);
        match page.next.filter(|next| *next > from) {
            Some(next) => from = next,
            None => return Ok(page),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    lost: u64,
    possibly: u64,
    unavailable: u64,
    not_remembered: u64,
    being_named: u64,
}

impl Counts {
    fn add(&mut self, loss: &Loss) {
        match loss.kind.as_str() {
            "unavailable" => self.unavailable += 1,
            "possibly-acknowledged" => self.possibly += 1,
            _ => self.lost += 1,
        }
    }

    fn end(&self, looked: &Looked, output: &Output) -> Result<(), Failure> {
        let Counts { lost, possibly, unavailable, not_remembered, being_named } = self;
        if *not_remembered > 0 {
            output.line(&format!("and {} more that are not remembered one by one", human_count(*not_remembered)));
        }
        let lost = lost + not_remembered;
        if *being_named > 0 {
            let flushes = counted(*being_named, "flush");
            let more =
                format!("what is lost of {flushes} more is being found out: type `forebay lost` again in a moment");
            let failure = match lost + possibly {
                0 => Failure::retry(more),
                parts => Failure::data(format!("parts that are lost, perhaps or for certain: {parts}, and {more}")),
            };
            return Err(Failure { told_json: true, ..failure });
        }
        let failure = match (lost + possibly, *unavailable) {
            (0, 0) => {
                output.line(&format!(
                    "all that is stored is within reach, and nothing was found to be lost {}",
                    looked.words()
                ));
                return Ok(());
            }
            (0, _) => Failure::retry(format!(
                "{} out of reach: put back the drives that are missing, as they are, and start the server with them. Nothing was \
                 found to be lost {}",
                match unavailable {
                    1 => "1 part of what is stored is".to_owned(),
                    parts => format!("{parts} parts of what is stored are"),
                },
                looked.words()
            )),
            (_, _) => Failure::data(format!(
                "of what was stored, parts that are lost: {lost}, perhaps: {possibly}, out of reach: {unavailable}; found {}; wipe no drive: \
                 docs/runbook.md, FB-106",
                looked.words()
            )),
        };
        Err(Failure { told_json: true, ..failure })
    }
}

fn drives(drives: &[u16]) -> String {
    match drives {
        [drive] => format!("drive {drive}"),
        drives => format!("drives {}", drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn words(lane: u16, loss: &Loss) -> String {
    let Loss { run, event, source, segment, flush, .. } = loss;
    let range = |what: &str, (first, last): (u64, u64)| match first == last {
        true => format!("{what} {first}"),
        false => format!("{what}s {first} to {last}"),
    };
    // What tells the records of a flush lies with them: the drives that are missing know.
    let back = (!loss.drives_missing.is_empty()).then(|| {
        let are = if loss.drives_missing.len() == 1 { "is" } else { "are" };
        format!("{} {are} back", drives(&loss.drives_missing))
    });
    let held = back
        .as_ref()
        .map_or("nobody knows what it held".to_owned(), |back| format!("what it held is known when {back}"));
    let what = match loss.what.as_str() {
        "fragment" => {
            format!("fragment {run}/{event}/{source} ({}), segment {segment} flush {flush}", human_bytes(loss.bytes))
        }
        "piece" => format!(
            "bytes {} to {} of file number {}, segment {segment} flush {flush}",
            human_count(loss.start),
            human_count((loss.start + loss.bytes).saturating_sub(1)),
            loss.file
        ),
        "event" => format!(
            "event {run}/{event}: {} fragments in one record, of which the directory is lost, so that none can be told apart, segment {segment} flush {flush}",
            loss.fragments
        ),
        "flush" => format!(
            "flush {flush} of segment {segment}: {} records of {}, {}{}",
            human_count(loss.records),
            range("run", (loss.runs.0.into(), loss.runs.1.into())),
            range("event", loss.events),
            back.as_ref().map_or(String::new(), |back| format!("; which of these is known when {back}"))
        ),
        "flushes" => format!(
            "{} of segment {segment}, of which no header can be read: {}",
            counted(loss.flushes, "flush"),
            if loss.flushes == 1 { held } else { held.replace("it held", "they held") }
        ),
        "live" => format!(
            "{} records with {} in segment {segment}, of events that are known: `forebay trace RUN/EVENT` tells of each",
            human_count(loss.records),
            human_bytes(loss.bytes)
        ),
        _ => format!("segment {segment}: {held}"),
    };
    let kind = match loss.kind.as_str() {
        "lost" => "LOST",
        "lost-or-unknown" => "LOST OR UNKNOWN",
        "possibly-acknowledged" => "POSSIBLY ACKNOWLEDGED",
        _ => "OUT OF REACH",
    };
    let mut why = Vec::new();
    if !loss.drives_damaged.is_empty() {
        why.push(format!("damaged on {}", drives(&loss.drives_damaged)));
    }
    if !loss.drives_missing.is_empty() {
        let are = if loss.drives_missing.len() == 1 { "is" } else { "are" };
        why.push(format!("{} {are} missing", drives(&loss.drives_missing)));
    }
    why.push(match loss.found_by.as_str() {
        "start" => "found at the start".to_owned(),
        "look" => "so it is now".to_owned(),
        other => format!("found by a {other}"),
    });
    why.extend(loss.found_unix_ms.map(date_time));
    format!("{kind}: {what} (lane {lane}; {})", why.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(loss: &Value) -> String {
        words(1, &serde_json::from_value(loss.clone()).expect("a loss"))
    }

    #[test]
    fn what_is_out_of_reach_says_what_brings_it_and_what_is_known_of_it() {
        let of = |what, missing: &[u16]| {
            told(&json!({
                "kind": "unavailable", "what": what, "segment": "1.7", "flush": 3, "flushes": 2, "records": 12, "bytes": 4096,
                "runs": [1, 2], "events": [5, 9], "drives_missing": missing, "found_by": "start",
            }))
        };
        let flush = of("flush", &[2, 3]);
        assert!(flush.contains("12 records of runs 1 to 2, events 5 to 9"), "{flush}");
        assert!(flush.contains("which of these is known when drives 2, 3 are back"), "{flush}");
        let flushes = of("flushes", &[4]);
        assert!(
            flushes.contains("2 flushes of segment 1.7")
                && flushes.contains("what they held is known when drive 4 is back")
        );
        let segment = of("segment", &[4]);
        assert!(segment.contains("segment 1.7: what it held is known when drive 4 is back"), "{segment}");
        let live = of("live", &[2, 3]);
        assert!(live.contains("12 records with 4.00 KiB in segment 1.7, of events that are known"), "{live}");
        // Nothing is missing that would tell.
        let lost =
            told(&json!({ "kind": "lost-or-unknown", "what": "segment", "segment": "1.7", "found_by": "start" }));
        assert!(lost.contains("segment 1.7: nobody knows what it held"), "{lost}");
    }
}
