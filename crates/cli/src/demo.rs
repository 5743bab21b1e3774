//! `forebay demo`: the whole path on one machine, with a drive that dies half way.
//!
//! [`plan`] decides what is written and where, [`ground`] makes the store, [`server`] runs the server as a process of its own, [`path`] runs writers, filters
//! and the recorder and destroys the drive, [`ledger`] adds up what became of every event.

mod ground;
mod half_way;
mod ledger;
mod left;
mod path;
mod place;
mod plan;
mod server;
mod table;

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::pool::PoolOptions;
use crate::size::{human_count, parse_bytes};

use ground::Ground;
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
  forebay demo --media rados:ec,meta --name demo --half-way 'systemctl kill -s KILL ceph-osd@3 ceph-osd@7'
      on a store in two pools of a Ceph cluster, of which something is killed half way (docs/ceph.md)

What happens: five files become the drives of a store that survives the loss of any one of them (4+1). A server serves it in a
process of its own. Four writers put the fragments of every event; two filters read, verify and decide every event; a
recorder ships what is accepted into files of the streams `physics` (a tenth of the events) and `calibration` (a fiftieth;
some events are in both). When half of the events are acknowledged, one drive is overwritten with random bytes under the
running server, and then refuses to read or write: from then on what lay on it is computed from the other four. So that this is
seen, the server has hardly a cache, and the recorder starts when the drive is dead or much is written. At the end every shipped event is compared with the hash that was taken
before it was written.

With --media the store is made in the pools, and no drive is destroyed: what is to happen to the cluster half way, --half-way does. A store that is there under
this name is refused and left as it is. At the end it is removed from the pools, but for the object that counts its owners; that of a demo that was killed
(kill -9) stays, and docs/ceph.md says how to remove it.

The ledger: events_shipped counts an event once although it may be in two streams, and only when it is in a file of each of
its streams. lost: fragments written and not acknowledged, events without a decision, accepted events that are not shipped.
mismatched: events that came out other than they went in, or twice, or that nobody accepted. fragments_from_parity: fragments
that were read although they had lain on the dead drive.

Exit codes: 0 when nothing is lost or mismatched and the books balance; 1 otherwise, or when an input is damaged (its good
events run through first); 2 when an input or directory cannot be used; 3 when there is no room, or it was interrupted or could not
start its server; that of the command of --half-way when it fails. Whatever ends the demo, its scratch directory is removed; that of one that was killed (kill -9) by the next
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

    /// Leave all drives alone [default: one drive is destroyed half way, unless --media or --half-way are given]
    #[arg(long)]
    no_fail_drive: bool,

    /// Run this command (sh -c) when half of the events are acknowledged, instead of destroying a drive; the server's address is in FOREBAY_SERVER. When it
    /// fails, the demo ends with its exit code and what it said [default: none]
    #[arg(long, value_name = "COMMAND")]
    half_way: Option<String>,

    #[command(flatten)]
    pool: PoolOptions,

    /// Make the scratch directory with the drives here [default: /dev/shm when it has room, else the temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// The size of each of the five drives; with --media the store may hold four times as much
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    drive_bytes: u64,

    /// Leave the scratch directory with drives, log and files; with --media the store, too [default: they are removed at the end]
    #[arg(long)]
    keep: bool,
}

impl DemoCommand {
    fn destroys_a_drive(&self) -> bool {
        !self.no_fail_drive && self.half_way.is_none() && self.pool.store().is_none()
    }

    /// Whether something happens half way: some of what was written before is read after it then.
    fn has_a_half_way(&self) -> bool {
        self.destroys_a_drive() || self.half_way.is_some()
    }
}

/// Runs the demo.
///
/// # Errors
/// When something is lost or mismatched, the books do not balance, or it could not be run.
pub fn run(command: &DemoCommand, output: &Output) -> Result<(), Failure> {
    #[cfg(not(feature = "rados"))]
    if command.pool.store().is_some() {
        return Err(crate::pool::not_built());
    }
    let interrupt = Interrupt::catch()?;
    let plan = Plan::make(command)?;
    let place = Place::make(command, &plan, output)?;
    output.line(&format!("input     {}", plan.describe()));
    output.line(&format!("scratch   {}", place.scratch().display()));
    let result = run_in(command, &plan, &place, output, &interrupt);
    place.finish(command.keep, output);
    result
}

/// Makes the store, runs all through it, and removes it.
fn run_in(
    command: &DemoCommand,
    plan: &Plan,
    place: &Place,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let ground = Ground::make(command, place, output)?;
    let result = run_on(command, plan, place, &ground, output, interrupt);
    // Whoever served it has ended.
    match ground.finish(command.keep, output) {
        Err(failure) if result.is_ok() => Err(failure),
        Err(failure) => {
            output.note(&format!("forebay: {}", failure.message));
            result
        }
        Ok(()) => result,
    }
}

fn run_on(
    command: &DemoCommand,
    plan: &Plan,
    place: &Place,
    ground: &Ground,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    go_on(interrupt)?;
    let mut server = ChildServer::start(place, ground).map_err(|failure| naming_log(failure, place))?;
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
