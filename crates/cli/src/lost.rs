//! `forebay lost`: exactly what is lost, and why.

use clap::Args;
use forebay_client::{Class, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{date_time, human_bytes, human_count};
use crate::status::parse;

const AFTER_HELP: &str = "\
Examples:
  forebay lost                                   what the store knows to be lost or out of reach
  forebay lost --json | jq -r '.losses[] | select(.what == \"fragment\") | \"\\(.run)/\\(.event)/\\(.source)\"'

Listed is what was found since the server started: by recovery at the start, by reads, by scrubs (`forebay drive scrub` looks at everything now) and by
rebuilds. There are four kinds:
  lost                   damaged on more drives than parity makes up for
  lost-or-unknown        the same, and what would name it is gone too: the runs and events of the flush are told
  possibly-acknowledged  of the last moments before an unclean stop; drives that are missing could tell
  unavailable            nothing is wrong with it, but too few of its drives answer: put them back
What a fragment is missed for no more (its event was rejected, deleted or released) is not listed. Each lane remembers 4096 losses, and how many more
it found.

Exit codes: 0 when nothing is lost and all is within reach; 1 when something is lost, perhaps or for certain; 3 when something is only out of
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

/// Asks every lane and tells.
///
/// # Errors
/// When something is lost or out of reach.
pub fn run(command: &LostCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    let (mut told, mut counts, mut not_remembered) = (Vec::new(), Counts::default(), 0);
    for lane in 0..client.info().lanes {
        not_remembered += ask(&mut client, lane, |value| {
            let loss: Loss = serde_json::from_value(value.clone()).unwrap_or_default();
            counts.add(&loss);
            if output.json {
                let mut value = value;
                value["lane"] = lane.into();
                told.push(value);
            } else {
                output.line(&words(lane, &loss));
            }
        })?;
    }
    output.object(&json!({ "losses": told, "not_remembered": not_remembered, "lost": counts.lost, "unavailable": counts.unavailable }));
    if not_remembered > 0 {
        output.line(&format!("and {} more that are not remembered one by one", human_count(not_remembered)));
    }
    counts.end(not_remembered, output)
}

/// What a lane knows, page by page; how many more it found.
fn ask(client: &mut Client, lane: u16, mut each: impl FnMut(Value)) -> Result<u64, Failure> {
    let mut from = 0;
    loop {
        let page: Page = parse(&client.losses(lane, from)?)?;
        page.losses.into_iter().for_each(&mut each);
        match page.next.filter(|next| *next > from) {
            Some(next) => from = next,
            None => return Ok(page.not_remembered),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    lost: u64,
    possibly: u64,
    unavailable: u64,
}

impl Counts {
    fn add(&mut self, loss: &Loss) {
        match loss.kind.as_str() {
            "unavailable" => self.unavailable += 1,
            "possibly-acknowledged" => self.possibly += 1,
            _ => self.lost += 1,
        }
    }

    fn end(&self, not_remembered: u64, output: &Output) -> Result<(), Failure> {
        let Counts { lost, possibly, unavailable } = self;
        let lost = lost + not_remembered;
        let failure = match (lost + possibly, *unavailable) {
            (0, 0) => {
                output.line("nothing is known to be lost, and all that is stored is within reach");
                return Ok(());
            }
            (0, _) => Failure::retry(format!(
                "nothing is known to be lost; {unavailable} parts of what is stored are out of reach: put back the drives that are missing, as they are"
            )),
            (_, _) => Failure::data(format!(
                "{lost} parts of what was stored are lost, {possibly} perhaps, and {unavailable} out of reach; wipe no drive: docs/runbook.md, FB-106"
            )),
        };
        Err(Failure { told_json: true, ..failure })
    }
}

fn words(lane: u16, loss: &Loss) -> String {
    let Loss { run, event, source, segment, flush, .. } = loss;
    let range =
        |(first, last): (u64, u64)| if first == last { first.to_string() } else { format!("{first} to {last}") };
    let what = match loss.what.as_str() {
        "fragment" => {
            format!("fragment {run}/{event}/{source} ({}), segment {segment} flush {flush}", human_bytes(loss.bytes))
        }
        "event" => format!(
            "event {run}/{event}: {} fragments in one record, of which the directory is lost, so that none can be told apart, segment {segment} flush {flush}",
            loss.fragments
        ),
        "flush" => format!(
            "flush {flush} of segment {segment}: {} records of run {}, events {}",
            human_count(loss.records),
            range((loss.runs.0.into(), loss.runs.1.into())),
            range(loss.events)
        ),
        "flushes" => format!(
            "{} flushes of segment {segment}, of which no header is left: nobody knows what they held",
            loss.flushes
        ),
        "live" => {
            format!("{} records with {} in segment {segment}", human_count(loss.records), human_bytes(loss.bytes))
        }
        _ => format!("segment {segment}: nobody knows what it held"),
    };
    let kind = match loss.kind.as_str() {
        "lost" => "LOST",
        "lost-or-unknown" => "LOST OR UNKNOWN",
        "possibly-acknowledged" => "POSSIBLY ACKNOWLEDGED",
        _ => "OUT OF REACH",
    };
    let drives = |drives: &[u16]| drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut why = Vec::new();
    if !loss.drives_damaged.is_empty() {
        why.push(format!("damaged on drives {}", drives(&loss.drives_damaged)));
    }
    if !loss.drives_missing.is_empty() {
        why.push(format!("drives {} are missing", drives(&loss.drives_missing)));
    }
    why.push(match loss.found_by.as_str() {
        "start" => "found at the start".to_owned(),
        "look" => "so it is now".to_owned(),
        other => format!("found by a {other}"),
    });
    why.extend(loss.found_unix_ms.map(date_time));
    format!("{kind}: {what} (lane {lane}; {})", why.join("; "))
}
