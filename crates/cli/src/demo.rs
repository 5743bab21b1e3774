//! `forebay demo`: the whole path on one machine, with a drive that dies half way.
//!
//! [`plan`] decides what is written and where, [`server`] runs the server as a process of its own, [`path`] runs writers, filters
//! and the recorder and destroys the drive, [`ledger`] adds up what became of every event.

mod ledger;
mod left;
mod path;
mod place;
mod plan;
mod server;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use forebay_store::InitOptions;

use crate::failure::Failure;
use crate::init;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::size::{human_bytes, human_count, parse_bytes};

use place::Place;
use plan::Plan;
use server::ChildServer;

/// Drives of the demo's store: 4 data and 1 parity.
const DATA: u8 = 4;
const PARITY: u8 = 1;
/// The drive that dies.
const VICTIM: usize = 2;

const AFTER_HELP: &str = "\
Examples:
  forebay demo
      generated events of two formats, about 20 s
  forebay demo --input run001920.raw physics.mdf --out /data/demo
      real events, multiplied under new event numbers; the shipped files stay in /data/demo/<stream>/
  forebay demo --events 1000 --no-fail-drive --json
      a short run without the dying drive, its ledger as JSON

What happens: five files become the drives of a store that survives the loss of any one of them (4+1). A server serves it in a
process of its own. Four writers put the fragments of every event; two filters read, verify and decide every event; a
recorder ships what is accepted into files of the streams `physics` (a tenth of the events) and `calibration` (a fiftieth;
some events are in both). When half of the events are acknowledged, one drive is overwritten with random bytes under the
running server, and then refuses to read or write: from then on what lay on it is computed from the other four. So that this is
seen, the server has hardly a cache, and the recorder starts when the drive is dead or much is written. At the end every shipped event is compared with the hash that was taken
before it was written.

The ledger: events_shipped counts an event once although it may be in two streams, and only when it is in a file of each of
its streams. lost: fragments written and not acknowledged, events without a decision, accepted events that are not shipped.
mismatched: events that came out other than they went in, or twice, or that nobody accepted. fragments_from_parity: fragments
that were read although they had lain on the dead drive.

Exit codes: 0 when nothing is lost or mismatched and the books balance; 1 otherwise, or when an input is damaged (its good
events run through first); 2 when an input or directory cannot be used; 3 when there is no room, or it was interrupted or could not
start its server. Whatever ends the demo, its scratch directory is removed; that of one that was killed (kill -9) by the next
demo.";

/// The options of `demo`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DemoCommand {
    /// Files with events, FASER raw, LHCb MDF or BESIII raw, also several; repeatable [default: generated events of two formats]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,

    /// Events to write in all; the input is multiplied or cut to it [default: what takes about 20 s]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,

    /// Keep the shipped files in DIR/STREAM/; a new or empty directory [default: they are removed at the end]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Leave all drives alone [default: one drive is destroyed half way]
    #[arg(long)]
    no_fail_drive: bool,

    /// Make the scratch directory with the drives here [default: /dev/shm when it has room, else the temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// The size of each of the five drives
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    drive_bytes: u64,

    /// Leave the scratch directory with drives, log and files [default: it is removed at the end]
    #[arg(long)]
    keep: bool,
}

/// Runs the demo.
///
/// # Errors
/// When something is lost or mismatched, the books do not balance, or it could not be run.
pub fn run(command: &DemoCommand, output: &Output) -> Result<(), Failure> {
    let interrupt = Interrupt::catch()?;
    let plan = Plan::make(command)?;
    let place = Place::make(command, &plan, output)?;
    output.line(&format!("input     {}", plan.describe()));
    output.line(&format!("scratch   {}", place.scratch().display()));
    let result = run_in(command, &plan, &place, output, &interrupt);
    place.finish(command.keep, output);
    result
}

fn run_in(
    command: &DemoCommand,
    plan: &Plan,
    place: &Place,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    make_store(command, place, output)?;
    go_on(interrupt)?;
    let mut server = ChildServer::start(place).map_err(|failure| naming_log(failure, place))?;
    output.line(&format!("server    process {} on {}", server.pid(), server.address()));
    let run = path::run(command, plan, place, &mut server, output, interrupt);
    let (run, status) = match run {
        Ok(done) => done,
        // Whoever asked for the end needs no log.
        Err(failure) if go_on(interrupt).is_err() => return Err(failure),
        Err(failure) => return Err(with_log(failure, server, place)),
    };
    if let Err(why) = server.stop() {
        return Err(with_log(Failure::data(why), server, place));
    }
    let mut books = ledger::Books::of(command, &run, &status, place)?;
    books.close();
    output.line(&table::table(&books));
    let failure = if books.wrong.is_empty() {
        run.readout_failure.as_ref().map(|failure| although_good(failure, &books))
    } else {
        let words = format!("the books do not balance: {}", books.wrong.join("; "));
        Some(with_log(Failure::data(words), server, place))
    };
    // The keys of the ledger are fixed: what failed is told by the exit code and on stderr.
    output.object(&books.ledger);
    match failure {
        Some(failure) => Err(Failure { told_json: true, ..failure }),
        None => Ok(()),
    }
}

/// Whether somebody still wants it and sees it.
///
/// # Errors
/// When not.
fn go_on(interrupt: &Interrupt) -> Result<(), Failure> {
    let why = if interrupt.is_set() {
        "interrupted"
    } else if output::stdout_failure().is_some() {
        "nobody sees what the demo shows"
    } else {
        return Ok(());
    };
    Err(Failure::retry(format!("{why}; everything that the demo made is removed")))
}

fn make_store(command: &DemoCommand, place: &Place, output: &Output) -> Result<(), Failure> {
    let options = InitOptions { drive_bytes: Some(command.drive_bytes), ..InitOptions::new(DATA, PARITY) };
    let start = Instant::now();
    let report = init::with_progress(&place.drives(), &options, output)?;
    output.line(&format!(
        "store     {} files of {} zeroed in {:.1} s, {DATA}+{PARITY}, {} lanes",
        place.drives().len(),
        human_bytes(command.drive_bytes),
        start.elapsed().as_secs_f64(),
        report.geometry.lanes
    ));
    Ok(())
}

/// Not all of the input was written; what was is all right.
fn although_good(failure: &Failure, books: &ledger::Books) -> Failure {
    let events = human_count(books.ledger.events_built);
    let message = format!("{}\nThe {events} good events ran through and their books balance", failure.message);
    Failure { message, ..failure.clone() }
}

/// Ends the server, keeps its log and names it.
fn with_log(failure: Failure, server: ChildServer, place: &Place) -> Failure {
    drop(server);
    naming_log(failure, place)
}

fn naming_log(failure: Failure, place: &Place) -> Failure {
    match place.keep_log() {
        Some(log) => Failure {
            message: format!("{}\nthe server's log is kept in {}", failure.message, log.display()),
            ..failure
        },
        None => failure,
    }
}
