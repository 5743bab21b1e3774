//! `forebay status`: how a server and its store are.

mod health;
pub(crate) mod report;
mod safety;
mod screen;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::Args;
use forebay_client::{Class, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::{Output, stdout_failure, write_stdout};

pub use report::Report;
pub use screen::human_time;

/// The time between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Examples:
  forebay status                               one screen about the server on this machine
  forebay status --server daq7:7420 --watch    the same every second, with rates; Ctrl-C ends it
  forebay status --json | jq .totals           everything the server knows, for scripts

The first lines tell the store and its health, with every reason:
  OK    nothing is to be done
  WARN  nothing is lost and everything is served; something is to be done (a drive is out, space runs short, ...)
  ERR   data are lost or out of reach, or nothing can be written for now
Reasons that begin with a code (FB-101) are alarms, with the command to type first and the section of docs/runbook.md; the same
codes are in the server's log and its metrics. With --json the server's object has them under `alarms`, and `health`,
`health_reasons` and `answers_from` (IP:PORT of the server that answered) besides; sizes are bytes, `time_left_s` is null while the store does not fill.

Exit codes: 0 for OK and WARN; 1 for ERR when data are lost or damaged; 3 for ERR when nothing can be written for now (full,
unavailable, too few drives) or something is only out of reach, and when the server does not answer. With --watch only the answers count: Ctrl-C ends it.
With --watch --json there is one object on one line each second.";

/// The options of `status`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatusCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// Ask again every second until Ctrl-C, and show rates [default: ask once]
    #[arg(long)]
    watch: bool,
}

/// Asks and shows.
///
/// # Errors
/// When there is no answer.
pub fn run(command: &StatusCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    let json = client.status()?;
    if command.watch {
        return watch(command, client, json, output);
    }
    show_once(command, &client, &json, output)
}

/// The server that answers: of several that were named, which.
fn answering(command: &StatusCommand, client: &Client) -> String {
    let named = &command.ask.server.server;
    match client.greeted_by().filter(|_| named.contains(',')) {
        Some(address) => format!("{address} (of {named})"),
        None => named.clone(),
    }
}

fn show_once(command: &StatusCommand, client: &Client, json: &str, output: &Output) -> Result<(), Failure> {
    let report: Report = parse(json)?;
    if output.json {
        output.object(&with_client(json, &report, client)?);
    } else {
        output.line(&screen::screen(&answering(command, client), &report, None));
    }
    let Some(exit) = health::exit(&report) else { return Ok(()) };
    let reasons = health::reasons(&report);
    let message = reasons.first().map(|reason| format!("{}: {}", reason.level, reason.words)).unwrap_or_default();
    Err(Failure { exit, message, told_json: true })
}

/// The server's object with what this command makes of it.
fn with_client(json: &str, report: &Report, client: &Client) -> Result<Value, Failure> {
    let mut status: Value = parse(json)?;
    let reasons = health::reasons(report);
    let reason = |reason: &health::Reason| json!({ "level": reason.level.to_string(), "reason": reason.words });
    status["health"] = health::level(&reasons).to_string().into();
    status["answers_from"] = client.greeted_by().map(|address| address.to_string()).into();
    status["health_reasons"] = reasons.iter().map(reason).collect();
    Ok(status)
}

/// Reads the part of a status that is wanted.
///
/// # Errors
/// When it is none.
pub fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::data(format!(
            "the server's status cannot be read ({error}); nothing is said about the data by that. Use the `forebay` of the server's version"
        ))
    })
}

fn watch(command: &StatusCommand, mut client: Client, first: String, output: &Output) -> Result<(), Failure> {
    let on_terminal = io::stdout().is_terminal() && !output.json;
    let mut before: Option<(Instant, Report)> = None;
    let mut json = Ok(first);
    loop {
        let asked = Instant::now();
        match json {
            Ok(json) if output.json => output.object(&with_client(&json, &parse(&json)?, &client)?),
            Ok(json) => {
                let report: Report = parse(&json)?;
                let rates = before.as_ref().map(|(then, old)| screen::Rates::between(old, &report, asked - *then));
                if on_terminal {
                    // Home, then clear what is below: no flicker.
                    let screen = screen::screen(&answering(command, &client), &report, rates.as_ref());
                    write_stdout(format!("\x1b[H\x1b[J{screen}\n").as_bytes());
                } else {
                    output.line(&screen::line(&report, rates.as_ref()));
                }
                before = Some((asked, report));
            }
            Err(error) => {
                before = None;
                output.note(&format!("forebay: {error}"));
            }
        }
        if stdout_failure().is_some() {
            return Ok(());
        }
        std::thread::sleep(WATCH.saturating_sub(asked.elapsed()));
        json = client.status();
    }
}
