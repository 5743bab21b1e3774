//! `forebay run declare`, `start`, `stop`, `close`, `hold`, `discard`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_client::{Client, Signature};
use forebay_types::{RunChange, RunId, RunRecord, SourceFragments, SourceId, SourceSet};

use super::RunNumber;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::counted;

/// The longest file of counts that is read: a line for each source that there may be.
const COUNTS_BYTES_MAX: u64 = 4 << 20;

/// Who does it.
#[derive(Debug, Args)]
pub struct By {
    /// Who does it, as it is kept with the run
    #[arg(long, value_name = "NAME", env = "USER", default_value = "")]
    by: String,
}

/// The options of `declare`.
#[derive(Debug, Args)]
pub struct DeclareCommand {
    #[command(flatten)]
    run: RunNumber,

    /// The sources that are expected: single ones and ranges, such as 0-15,32 or 0x100-0x1ff
    #[arg(long, value_name = "LIST", required = true)]
    sources: SourceSet,

    /// Why, as it is kept with the run [default: nothing]
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    by: By,
}

/// The options of `start`.
#[derive(Debug, Args)]
pub struct StartCommand {
    #[command(flatten)]
    run: RunNumber,

    /// Why, as it is kept with the run [default: nothing]
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    by: By,
}

/// The options of `stop`.
#[derive(Debug, Args)]
pub struct StopCommand {
    #[command(flatten)]
    run: RunNumber,

    /// Events that the run control counted; `close` compares them [default: nobody counted, and `close` needs a signature]
    #[arg(long, value_name = "N")]
    events: Option<u64>,

    /// A JSON file with the fragments that it counted by source, such as {"0": 1000, "1": 1000}; they are kept and shown, not compared [default: nobody counted]
    #[arg(long, value_name = "FILE")]
    fragments: Option<PathBuf>,

    /// Why, as it is kept with the run [default: nothing]
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    by: By,
}

/// The options of `close`.
#[derive(Debug, Args)]
pub struct CloseCommand {
    #[command(flatten)]
    run: RunNumber,

    /// Close it although events are missing, too many or undecided, and keep why [default: it is refused then]
    #[arg(long, value_name = "REASON")]
    accept_difference: Option<String>,

    #[command(flatten)]
    by: By,
}

/// The options of `hold`.
#[derive(Debug, Args)]
pub struct HoldCommand {
    #[command(flatten)]
    run: RunNumber,

    /// End the hold: what is to go may go again
    #[arg(long)]
    end: bool,

    /// Why, as it is kept with the run; a hold needs one, its end does not [default: nothing]
    #[arg(long, value_name = "TEXT", required_unless_present = "end")]
    reason: Option<String>,

    #[command(flatten)]
    by: By,
}

/// The options of `discard`.
#[derive(Debug, Args)]
pub struct DiscardCommand {
    #[command(flatten)]
    run: RunNumber,

    /// Why, as it is kept with the run
    #[arg(long, value_name = "TEXT", required = true)]
    reason: String,

    /// The number of the run once more: what is deleted does not come back
    #[arg(long, value_name = "RUN", required = true)]
    name: RunId,

    #[command(flatten)]
    by: By,
}

fn change(
    client: &mut Client,
    run: &RunNumber,
    what: RunChange,
    by: &By,
    reason: Option<&String>,
) -> Result<RunRecord, Failure> {
    let signature = Signature { by: by.by.clone(), reason: reason.cloned().unwrap_or_default() };
    Ok(client.change_run(run.run, what, &signature)?)
}

fn tell(record: &RunRecord, words: &str, output: &Output) {
    output.object(record);
    output.line(&format!("run {}: {words}", record.run));
}

pub fn declare(command: &DeclareCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let DeclareCommand { run, sources, reason, by } = command;
    let declared = change(client, run, RunChange::Declare { sources: sources.clone() }, by, reason.as_ref())?;
    let words = format!("declared, {} expected", counted(sources.count(), "source"));
    tell(&declared, &words, output);
    Ok(())
}

pub fn start(command: &StartCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let started = change(client, &command.run, RunChange::Start, &command.by, command.reason.as_ref())?;
    let streams: Vec<String> = started.streams.iter().map(|of| format!("{} {}", of.name, of.version)).collect();
    let streams = if streams.is_empty() { "none are defined".to_owned() } else { streams.join(", ") };
    tell(&started, &format!("running; streams and their versions: {streams}"), output);
    Ok(())
}

pub fn stop(command: &StopCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let fragments = command.fragments.as_deref().map(read_counts).transpose()?.unwrap_or_default();
    let what = RunChange::Stop { events: command.events, fragments };
    let stopped = change(client, &command.run, what, &command.by, command.reason.as_ref())?;
    let words = match command.events {
        Some(events) => format!("stopped, {} counted", counted(events, "event")),
        None => "stopped; nobody said how many events it has, so that its closing needs a signature".to_owned(),
    };
    tell(&stopped, &words, output);
    Ok(())
}

pub fn close(command: &CloseCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let accept_difference = command.accept_difference.is_some();
    let what = RunChange::Close { accept_difference };
    let closed = change(client, &command.run, what, &command.by, command.accept_difference.as_ref())?;
    let counts = closed.counted.unwrap_or_default();
    let undecided = counted(counts.undecided, "event");
    let words = if counts.undecided > 0 { format!(", {undecided} of these undecided") } else { String::new() };
    tell(&closed, &format!("closed with {}{words}", counted(counts.events, "event")), output);
    Ok(())
}

pub fn hold(command: &HoldCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let what = if command.end { RunChange::EndHold } else { RunChange::Hold };
    let held = change(client, &command.run, what, &command.by, command.reason.as_ref())?;
    let words =
        if command.end { "not held any more" } else { "held: releases, deletions and discards free nothing of it" };
    tell(&held, words, output);
    Ok(())
}

pub fn discard(command: &DiscardCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let DiscardCommand { run, reason, name, by } = command;
    if *name != run.run {
        return Err(Failure::usage(format!(
            "run {} is to be discarded, and --name says {name}: nothing was changed. Type the same number twice",
            run.run
        )));
    }
    let discarded = change(client, run, RunChange::Discard, by, Some(reason))?;
    tell(
        &discarded,
        "discarded; what is left of it is being deleted, `forebay run show` says how much that is",
        output,
    );
    Ok(())
}

/// Reads counts by source from a JSON file.
fn read_counts(path: &Path) -> Result<Vec<SourceFragments>, Failure> {
    let nothing = "nothing was changed";
    let failed = |error: std::io::Error| Failure::file("read", path, &error, nothing);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let wrong = |what: String| Failure::usage(format!("{}: {what}; {nothing}", path.display()));
    if bytes > COUNTS_BYTES_MAX {
        return Err(wrong(format!("it has {bytes} bytes, and counts by source have {COUNTS_BYTES_MAX} at most")));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let counts: BTreeMap<String, u64> = serde_json::from_str(&text).map_err(|error| {
        wrong(format!("it is no JSON object of counts by source, such as {{\"0\": 1000}}: {error}"))
    })?;
    let parse = |(source, count): (String, u64)| source.parse::<SourceId>().map(|source| (source, count));
    let counts: Result<Vec<_>, _> = counts.into_iter().map(parse).collect();
    let counts = counts.map_err(|error| wrong(error.to_string()))?;
    SourceFragments::of_counts(counts).ok_or_else(|| {
        let max = forebay_types::limits::SOURCE_RANGES_MAX;
        wrong(format!(
            "it has more than {max} ranges of neighbouring sources with the same count, which is all that a run keeps"
        ))
    })
}
