//! `forebay readout`: an emulated detector read-out.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use forebay_client::Class;
use forebay_emulators::readout::{self, Generated, Input, ReadoutConfig, ReadoutError, ReadoutProgress};
use forebay_rawdata::Format;
use forebay_types::RunId;

use crate::connect::{AskOptions, parse_positive_seconds, parse_threads};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::size::{human_bytes, human_count, parse_bytes};

const AFTER_HELP: &str = "\
Examples:
  forebay readout --input run001920.raw --input physics.mdf
      every event of the two files once, by four writers, as fast as the store takes them
  forebay readout --input run001920.raw --events 100000 --rate 2000 --ledger hashes.txt
      its events again and again under new event numbers, 2000 each second; their hashes are kept for `forebay filter`
  forebay readout --generate mdf --events 5000
      made-up events of the LHCb format

Inputs: FASER raw, LHCb MDF and BESIII raw files; the format is found out from the bytes. A damaged file ends with exit code 1 and the
byte offset, what was expected and what was found; its good events before that are written.

Exit codes: 1 when an input is damaged or an id holds other content; 2 when an input, a run or the ledger cannot be used;
3 when the server does not answer or has no room, or the readout was interrupted before its end.";

/// What can be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// FASER raw, about 20 kB an event, 11 or 14 sources
    Faser,
    /// LHCb MDF, about 240 kB an event, 1240 banks
    Mdf,
    /// LHCb MDF with zlib payloads
    MdfZlib,
    /// BESIII raw, about 12 kB an event, 42 ROBs
    Besiii,
}

impl Kind {
    fn format(self) -> Format {
        match self {
            Kind::Faser => Format::Faser,
            Kind::Mdf | Kind::MdfZlib => Format::Mdf,
            Kind::Besiii => Format::Besiii,
        }
    }

    /// Events of this kind as an input.
    pub fn input(self, seed: u64, run: u32, events: u64) -> Input {
        Input::Generated(Generated {
            format: self.format(),
            compressed: self == Kind::MdfZlib,
            seed,
            run: RunId(run),
            events,
        })
    }
}

/// The options of `readout`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ReadoutCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// Files with events, one after the other; repeatable [default: none, see --generate]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,

    /// Make up events: faser (11 or 14 sources, 20 kB an event), mdf (1240 banks, 240 kB), mdf-zlib or besiii (42 ROBs, 12 kB); repeatable [default: none, see --input]
    #[arg(long, value_name = "KIND", value_enum, hide_possible_values = true)]
    generate: Vec<Kind>,

    /// Different events of each generated input; more than these are the same under new numbers
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u64).range(1..))]
    generate_events: u64,

    /// Decides the content of generated events
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    seed: u64,

    /// The run of the first generated input; the next ones count on. A run that the server knows gives way to the next free one
    #[arg(long, value_name = "RUN", default_value = "1")]
    run: u32,

    /// Events to write in all, shared equally by the inputs [default: each input once]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,

    /// Writers, each with its connection and its share of the sources
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = parse_threads())]
    writers: usize,

    /// Threads that read, renumber, hash and split events
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = parse_threads())]
    producers: usize,

    /// Events per second [default: as fast as the store takes them]
    #[arg(long, value_name = "HZ", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Keep run numbers that the server knows already: writing the same again changes nothing [default: take free ones]
    #[arg(long)]
    keep_runs: bool,

    /// A file to which the hash of every event is added, outside of the store [default: none]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,

    /// Input that is kept in memory for the next pass over it
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    cache_bytes: u64,

    /// Give up when a fragment was tried for so many seconds in vain [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = parse_positive_seconds)]
    deadline: Option<Duration>,
}

/// Writes until everything is written.
///
/// # Errors
/// What was not written, and why.
pub fn run(command: &ReadoutCommand, output: &Output) -> Result<(), Failure> {
    // The readout itself tries for as long as it takes; whether there is a server at all is known now.
    drop(command.ask.connect(Class::Monitor)?);
    let config = config(command)?;
    let (interrupt, stop) = (Interrupt::catch()?, AtomicBool::new(false));
    let (progress, start) = (ReadoutProgress::default(), Instant::now());
    let mut bar = match config.events {
        Some(events) => output.progress(events, "readout {bar:40} {msg}"),
        None => output.progress(0, "readout {spinner} {msg}"),
    };
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| readout::run(&config, &stop, &progress));
        while !thread.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if interrupt.is_set() {
                stop.store(true, Relaxed);
            }
            bar.update(progress.events_started.load(Relaxed), || words(&progress, start.elapsed()));
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(bar);
    let failure = match &result {
        Ok(()) if interrupt.is_set() => Some(Failure::retry(
            "interrupted before all events were written. What was acknowledged is in the store; run it again for the rest",
        )),
        result => result.as_ref().err().map(failure),
    };
    tell(&progress, start.elapsed(), output, failure)
}

fn config(command: &ReadoutCommand) -> Result<ReadoutConfig, Failure> {
    for (kind, run) in command.generate.iter().zip(u64::from(command.run)..) {
        let largest = kind.format().run_max();
        if run > u64::from(largest.0) {
            return Err(Failure::usage(format!(
                "run {run} does not fit into the {} format, which holds {largest} at most; nothing was written. Give a smaller --run",
                kind.format().name()
            )));
        }
    }
    let files = command.input.iter().cloned().map(Input::File);
    let made = command.generate.iter().zip(command.run..);
    let made = made.map(|(kind, run)| kind.input(command.seed, run, command.generate_events));
    let inputs: Vec<Input> = files.chain(made).collect();
    if inputs.is_empty() {
        return Err(Failure::usage(
            "no input; nothing was written. Say --input FILE, or --generate faser, mdf or besiii",
        ));
    }
    Ok(ReadoutConfig {
        events: command.events,
        writers: command.writers,
        producers: command.producers,
        rate: command.rate,
        keep_runs: command.keep_runs,
        ledger_path: command.ledger.clone(),
        cache_bytes: command.cache_bytes,
        deadline: command.deadline,
        ..ReadoutConfig::new(&command.ask.server.server, inputs)
    })
}

/// How a readout that did not write everything ends.
pub fn failure(error: &ReadoutError) -> Failure {
    match error {
        error if error.is_retryable() => Failure::retry(error),
        error if error.is_usage() => Failure::usage(error),
        _ => Failure::data(error),
    }
}

fn words(progress: &ReadoutProgress, time: Duration) -> String {
    let bytes = progress.bytes_written.load(Relaxed);
    format!(
        "{} events, {} fragments written, {} acknowledged, {}/s",
        human_count(progress.events_started.load(Relaxed)),
        human_count(progress.fragments_written.load(Relaxed)),
        human_count(progress.fragments_acknowledged.load(Relaxed)),
        human_bytes((bytes as f64 / time.as_secs_f64().max(0.001)) as u64),
    )
}

fn tell(progress: &ReadoutProgress, time: Duration, output: &Output, failure: Option<Failure>) -> Result<(), Failure> {
    let p99 = progress.latency.quantile(0.99).as_secs_f64();
    let runs: Vec<u32> = progress.runs().into_iter().map(|run| run.0).collect();
    let names = runs.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let done = match runs.len() {
        0 => String::new(),
        count => {
            let run = if count == 1 { "run" } else { "runs" };
            format!(", 99 % acknowledged within {:.1} ms, {run} {names}", p99 * 1e3)
        }
    };
    output.line(&format!("{} in {:.1} s{done}", words(progress, time), time.as_secs_f64()));
    let mut object = serde_json::json!({
        "runs": runs,
        "events": progress.events_started.load(Relaxed),
        "events_refused": progress.events_refused.load(Relaxed),
        "fragments_written": progress.fragments_written.load(Relaxed),
        "fragments_acknowledged": progress.fragments_acknowledged.load(Relaxed),
        "fragments_late": progress.late.load(Relaxed),
        "conflicts": progress.conflicts.load(Relaxed),
        "errors": progress.errors.load(Relaxed),
        "bytes_written": progress.bytes_written.load(Relaxed),
        "latency_p99_seconds": p99,
        "seconds": time.as_secs_f64(),
    });
    output.result(&mut object, failure)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected events per second, above 0".to_owned())
}
