//! `forebay status`: how a server and its store are.

mod health;
mod report;
mod screen;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::Args;
use forebay_client::{Class, Client};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::{Output, stdout_failure, write_stdout};

pub use report::Report;

/// The time between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Examples:
  forebay status                               one screen about the server on this machine
  forebay status --server daq7:7420 --watch    the same every second, with rates; Ctrl-C ends it
  forebay status --json | jq .totals           everything the server knows, for scripts

The first lines tell the store and its health: OK, WARN (nothing is lost; something is to be done) or ERR (data are lost or
cannot be written), with every reason. Exit code 3 when the server does not answer. With --watch --json there is one object
on one line each second.";

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
    show_once(command, &json, output)
}

fn show_once(command: &StatusCommand, json: &str, output: &Output) -> Result<(), Failure> {
    if output.json {
        write_stdout(format!("{}\n", json.trim_end()).as_bytes());
        return Ok(());
    }
    output.line(&screen::screen(&command.ask.server.server, &parse(json)?, None));
    Ok(())
}

fn parse(json: &str) -> Result<Report, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::data(format!(
            "the server's status cannot be read ({error}); nothing is said about the data by that. Use the `forebay` of the server's version"
        ))
    })
}

fn watch(command: &StatusCommand, mut client: Client, first: String, output: &Output) -> Result<(), Failure> {
    let server = &command.ask.server.server;
    let on_terminal = io::stdout().is_terminal() && !output.json;
    let mut before: Option<(Instant, Report)> = None;
    let mut json = Ok(first);
    loop {
        let asked = Instant::now();
        match json {
            Ok(json) if output.json => write_stdout(format!("{}\n", json.trim_end()).as_bytes()),
            Ok(json) => {
                let report = parse(&json)?;
                let rates = before.as_ref().map(|(then, old)| screen::Rates::between(old, &report, asked - *then));
                if on_terminal {
                    // Home, then clear what is below: no flicker.
                    let screen = screen::screen(server, &report, rates.as_ref());
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
