//! `forebay run list` and `show`.

use clap::Args;
use forebay_client::{Client, KnownRun};
use forebay_types::{RunCounts, RunHold, RunId, RunRecord, RunState, RunStep};

use super::RunNumber;
use crate::failure::Failure;
use crate::output::{Output, stdout_failure};
use crate::size::{counted, date_time};

/// The options of `list`.
#[derive(Debug, Args)]
pub struct ListCommand {
    /// Only runs with this number and larger ones [default: all]
    #[arg(long, value_name = "RUN")]
    from: Option<RunId>,
}

/// The options of `show`.
#[derive(Debug, Args)]
pub struct ShowCommand {
    #[command(flatten)]
    run: RunNumber,
}

pub fn list(command: &ListCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let runs = client.known_runs(command.from)?;
    output.object(&serde_json::json!({ "runs": runs }));
    if runs.is_empty() {
        output.line("no run was declared; data of runs that nobody declared are taken all the same");
        return Ok(());
    }
    output.line(&format!(
        "{:>10}  {:<9}  {:<4}  {:>12}  {:>12}  {:>10}  {:>12}  {}",
        "run", "state", "held", "counted", "known", "undecided", "over", "since"
    ));
    for KnownRun { record, known: RunCounts { events, undecided, finished } } in &runs {
        output.line(&format!(
            "{:>10}  {:<9}  {:<4}  {:>12}  {events:>12}  {undecided:>10}  {finished:>12}  {}",
            record.run,
            record.state.to_string(),
            if record.is_held() { "yes" } else { "no" },
            record.expected_events.map_or("-".to_owned(), |events| events.to_string()),
            moment(newest(record).at_unix_ns)
        ));
        if stdout_failure().is_some() {
            break;
        }
    }
    Ok(())
}

pub fn show(command: &ShowCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let run = command.run.run;
    let Some(found) = client.known_run(run)? else {
        let counts = client.run_counts()?.get(&run).copied().unwrap_or_default();
        return Err(Failure::data(format!(
            "run {run} was never declared; the store knows {} of it. `forebay run declare {run} --sources LIST` declares a run before its data come",
            counted(counts.events, "event")
        )));
    };
    output.object(&found);
    for line in lines(&found.record, found.known) {
        output.line(&line);
    }
    Ok(())
}

fn moment(unix_ns: i64) -> String {
    date_time(u64::try_from(unix_ns).unwrap_or(0) / 1_000_000)
}

/// The step that made its state what it is.
fn newest(record: &RunRecord) -> &RunStep {
    let steps = [&record.discarded, &record.closed, &record.stopped, &record.started];
    steps.into_iter().find_map(Option::as_ref).unwrap_or(&record.declared)
}

/// When, by whom and why: what people typed is shown so that no terminal takes it for more than text.
fn words_of(step: &RunStep) -> String {
    let RunStep { at_unix_ns, by, reason } = step;
    let by = if by.is_empty() { String::new() } else { format!(" by {}", by.escape_debug()) };
    let reason = if reason.is_empty() { String::new() } else { format!(": {}", reason.escape_debug()) };
    format!("{}{by}{reason}", moment(*at_unix_ns))
}

fn lines(record: &RunRecord, known: RunCounts) -> Vec<String> {
    let held = if record.is_held() { ", held" } else { "" };
    let mut lines = vec![format!("run {}: {}{held}", record.run, record.state)];
    let mut line = |what: &str, words: String| lines.push(format!("  {what:<20} {words}"));
    line("sources", format!("{} ({})", record.sources, counted(record.sources.count(), "source")));
    line("declared", words_of(&record.declared));
    let steps = [
        ("started", &record.started),
        ("stopped", &record.stopped),
        ("closed", &record.closed),
        ("discarded", &record.discarded),
    ];
    for (what, step) in steps.into_iter().filter_map(|(what, step)| Some((what, step.as_ref()?))) {
        line(what, words_of(step));
    }
    if let Some(RunHold { begun, ended }) = &record.hold {
        line("held", words_of(begun));
        if let Some(ended) = ended {
            line("hold ended", words_of(ended));
        }
    }
    if record.started.is_some() {
        let streams = record.streams.iter().map(|of| format!("{} version {}", of.name, of.version));
        let streams: Vec<String> = streams.collect();
        line("streams", if streams.is_empty() { "none were defined".to_owned() } else { streams.join(", ") });
    }
    let events = |events: u64| counted(events, "event");
    if record.stopped.is_some() {
        line("run control counted", record.expected_events.map_or("nothing".to_owned(), events));
    }
    for of in &record.expected_fragments {
        let each = if of.first == of.last {
            format!("source {}", of.first)
        } else {
            format!("each of {}-{}", of.first, of.last)
        };
        line("", format!("{} of {each}", counted(of.fragments, "fragment")));
    }
    if let Some(RunCounts { events: closed, undecided, .. }) = record.counted {
        line("closed with", format!("{}, {undecided} of these undecided", events(closed)));
    }
    let RunCounts { events: here, undecided, finished } = known;
    line("the store knows", format!("{}, {undecided} of these undecided, {finished} over", events(here)));
    if record.state == RunState::Discarded {
        line("left to be deleted", events(here.saturating_sub(finished)));
    }
    lines
}
