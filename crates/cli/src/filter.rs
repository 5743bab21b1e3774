//! `forebay filter`: an emulated event filter.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_client::Class;
use forebay_emulators::filter::{
    self, FilterConfig, FilterControl, FilterError, FilterProgress, StepSources, Steps, Until,
};
use forebay_emulators::{HashLedger, StreamRule};
use forebay_types::{RunId, SourceId};

use crate::connect::{AskOptions, parse_seconds, parse_threads};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::size::{human_bytes, human_count};

const AFTER_HELP: &str = "\
Examples:
  forebay filter --stream physics=0.1 --stream calibration=0.02
      reads, verifies and decides events until Ctrl-C: a tenth into one stream, a fiftieth into another, the rest is rejected
  forebay filter --steps 25% --early 0.8 --until-idle 5
      reads a quarter of the sources first and rejects 80 % of what will be rejected after that; ends 5 s after the last event
  forebay filter --ledger hashes.txt --events 1000
      compares events with the hashes that `forebay readout --ledger` kept

Events are leased: those of a filter that dies go to another one. The choice depends on --seed and the event alone, so that
any filter decides the same. An event with a missing source is decided after the server's time-out and marked incomplete. An
event that is not what was written, or has lost fragments, goes into the stream `debug`.

Exit codes: 1 when an event was not what was written, or fragments are lost; 2 when the ledger cannot be used; 3 when the
server does not answer. Ctrl-C is a good end.";

/// The options of `filter`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct FilterCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// A stream and the fraction of the events that it takes, 0 to 1; repeatable, streams may overlap
    #[arg(long, value_name = "NAME=FRACTION", default_value = "physics=0.1", value_parser = parse_stream)]
    stream: Vec<StreamRule>,

    /// Readers, each with two connections
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = parse_threads())]
    readers: usize,

    /// Decides, together with the event, what is accepted
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    seed: u64,

    /// Only events of this run [default: all runs]
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,

    /// Read these sources first: a share of them (25%) or a list (0x20000,0x30000) [default: whole events]
    #[arg(long, value_name = "SHARE|SOURCES", value_parser = parse_steps)]
    steps: Option<StepSources>,

    /// With --steps: the fraction of the rejected events that is rejected after the first step, 0 to 1
    #[arg(long, value_name = "FRACTION", default_value = "0.5", value_parser = parse_fraction, requires = "steps")]
    early: f64,

    /// End when no event was undecided for so many seconds; not with --events [default: run until Ctrl-C]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "events")]
    until_idle: Option<Duration>,

    /// End when about so many events are decided; not with --until-idle [default: run until Ctrl-C]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,

    /// An event that is not decided after so many seconds, at least 1, goes to another filter
    #[arg(long, value_name = "SECONDS", value_parser = parse_lease, default_value = "30")]
    lease: Duration,

    /// Events that are leased at once
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch_events: u32,

    /// A file with the hashes that the readout kept, to compare with [default: none]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// Filters until it is over.
///
/// # Errors
/// What went wrong.
pub fn run(command: &FilterCommand, output: &Output) -> Result<(), Failure> {
    drop(command.ask.connect(Class::Monitor)?);
    let config = config(command)?;
    let (control, progress, start) = (FilterControl::default(), FilterProgress::default(), Instant::now());
    let interrupt = Interrupt::catch()?;
    control.input_is_finished();
    let mut bar = output.progress(command.events.unwrap_or(0), "filter {spinner} {msg}");
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| filter::run(&config, &control, &progress));
        while !thread.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if interrupt.is_set() {
                control.stop();
            }
            bar.update(progress.events_built.load(Relaxed), || words(&progress, start.elapsed()));
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(bar);
    output.line(&format!("{} in {:.1} s", words(&progress, start.elapsed()), start.elapsed().as_secs_f64()));
    let mut object = serde_json::json!({
        "events_built": progress.events_built.load(Relaxed),
        "events_accepted": progress.accepted.load(Relaxed),
        "events_rejected": progress.rejected.load(Relaxed),
        "events_rejected_early": progress.rejected_early.load(Relaxed),
        "events_incomplete": progress.incomplete.load(Relaxed),
        "mismatched": progress.mismatched.load(Relaxed),
        "lost": progress.lost.load(Relaxed),
        "not_in_ledger": progress.not_in_ledger.load(Relaxed),
        "bytes_read": progress.bytes_read.load(Relaxed),
        "seconds": start.elapsed().as_secs_f64(),
    });
    output.result(&mut object, result.as_ref().err().map(failure))
}

fn config(command: &FilterCommand) -> Result<FilterConfig, Failure> {
    let ledger = command.ledger.as_deref().map(HashLedger::load).transpose().map_err(Failure::usage)?;
    let until = match (command.until_idle, command.events) {
        (Some(time), _) => Until::Idle(time),
        (None, Some(events)) => Until::Events(events),
        (None, None) => Until::Stopped,
    };
    Ok(FilterConfig {
        readers: command.readers,
        run: command.run,
        seed: command.seed,
        streams: command.stream.clone(),
        steps: command.steps.clone().map(|first| Steps { first, early_fraction: command.early }),
        until,
        lease: command.lease,
        batch_events: command.batch_events,
        ledger: ledger.map(Arc::new),
        ..FilterConfig::new(&command.ask.server.server)
    })
}

/// How a filter that did not do everything ends.
pub fn failure(error: &FilterError) -> Failure {
    match error {
        error if error.is_retryable() => Failure::retry(error),
        error if error.is_usage() => Failure::usage(error),
        _ => Failure::data(error),
    }
}

fn words(progress: &FilterProgress, time: Duration) -> String {
    let bytes = progress.bytes_read.load(Relaxed);
    format!(
        "{} events decided, {} accepted, {} incomplete, {}/s read",
        human_count(progress.events_built.load(Relaxed)),
        human_count(progress.accepted.load(Relaxed)),
        human_count(progress.incomplete.load(Relaxed)),
        human_bytes((bytes as f64 / time.as_secs_f64().max(0.001)) as u64),
    )
}

fn parse_stream(text: &str) -> Result<StreamRule, String> {
    let (name, fraction) = text.split_once('=').ok_or("expected NAME=FRACTION, as in physics=0.1")?;
    let name = name.parse().map_err(|error: forebay_types::StreamNameError| error.to_string())?;
    let fraction = parse_fraction(fraction).map_err(|error| format!("{error} after the ="))?;
    Ok(StreamRule { name, fraction })
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "expected a fraction from 0 to 1".to_owned())
}

/// With shorter leases events would be given to others while they are read, and end in `debug`.
fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_seconds(text).ok().filter(|lease| *lease >= Duration::from_secs(1));
    lease.ok_or_else(|| "expected seconds, at least 1".to_owned())
}

fn parse_steps(text: &str) -> Result<StepSources, String> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
        return Ok(StepSources::Share(percent.ok_or("expected 0% to 100%")? / 100.0));
    }
    let sources: Result<Vec<SourceId>, _> = text.split(',').map(str::parse).collect();
    sources
        .map(StepSources::Listed)
        .map_err(|error| format!("{error}; expected a share such as 25% or sources such as 0x20000,5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_steps_are_read_as_the_help_says() {
        let rule = parse_stream("physics=0.25").expect("a rule");
        assert_eq!((rule.name.as_str(), rule.fraction), ("physics", 0.25));
        for wrong in ["physics", "physics=2", "a/b=0.1", "=0.1", "physics=x"] {
            assert!(parse_stream(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_steps("25%"), Ok(StepSources::Share(0.25)));
        assert_eq!(parse_steps("0x10,7"), Ok(StepSources::Listed(vec![SourceId(16), SourceId(7)])));
        for wrong in ["", "101%", "1,,2", "x"] {
            assert!(parse_steps(wrong).is_err(), "{wrong}");
        }
    }
}
