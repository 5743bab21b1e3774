//! `forebay doctor`: what lies on the drives of a stopped server, without writing to them.

mod drives;
mod export;
mod files;
mod lane;
mod names;
mod report;
mod screen;
mod segments;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use forebay_media::OpenDriveError;
use forebay_store::{Examination, OpenStoreError, Standing, StoreConfig, examine};
use forebay_types::{DriveNumber, ReadOutcome};

use crate::failure::Failure;
use crate::output::Output;
use crate::owned::Owned;
use crate::pool::{PoolOptions, Pools};
use crate::serve::open_failure;
use crate::size::counted;
use export::Export;
use forebay_runs::Books;
use lane::Context;
use names::StoredNames;
use report::{Report, Verdict};

const AFTER_HELP: &str = "\
Examples:
  forebay doctor /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
      says what the drives are, what is stored on them, what of it can be read, and what a start would do
  forebay doctor --json /data/d* | jq .readable
      the same for scripts: one object on one line, its words explained in docs/doctor.md
  forebay doctor --export /rescue /data/d0 /data/d1 /data/d3
      writes every fragment and file that these drives give into files, for a store that starts no more
  forebay doctor --media rados:ec,meta --name buffer1
      the same of a store in the pools of a Ceph cluster, which no server has meanwhile

The drives are opened for reading alone, under the lock that a server takes: those of a running server are refused, and nothing is
written to them. Every header and every unit of what is stored is read and compared, which takes as long as reading it all; with
--quick only headers and tables are. A drive that does not answer within --drive-timeout is given up, told, and looked at no further.

The verdict, in one word:
  WHOLE         all is there as it was written
  REPAIRABLE    all can be read, but some of it only with the help of parity, or from a drive that was taken out
  OUT OF REACH  something cannot be read as long as drives are missing; the report says which would bring it
  LOST          something is damaged on more drives than parity can mend, or the table that named it is

An export writes into a new or empty directory and overwrites nothing: DIR/run<run>/event<event>/<source>.bin for each fragment, whole
events of a known format one after the other in DIR/run<run>.raw or .mdf, files under their names in DIR/files, and DIR/index.json and
DIR/files.json with the CRC32C of each and with what is missing.

Exit codes: 0 when all that is stored can be read from these drives (WHOLE, REPAIRABLE); 1 when something is lost or out of reach, or
the drives are copies or two histories; 2 when one belongs to another store or a newer version, or the command is wrong; 3 when a
drive is in use, too few members are there for a start, or the export has no room.";

/// The options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorCommand {
    /// Read headers and tables only, not every unit
    #[arg(long)]
    quick: bool,

    /// Write what can be read into this directory, which must be new or empty [default: nothing is written anywhere]
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,

    /// Give a drive up that does not answer for so many seconds: the rest is looked at without it
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    drive_timeout: u32,

    #[command(flatten)]
    pool: PoolOptions,

    /// The drives, in any order
    #[arg(value_name = "DRIVE", required_unless_present = "media", conflicts_with = "media")]
    drives: Vec<PathBuf>,
}

/// Looks and tells.
///
/// # Errors
/// What is wrong with the drives.
pub fn run(command: &DoctorCommand, output: &Output) -> Result<(), Failure> {
    let start = Instant::now();
    // Nothing is cached but rows, and no drive is judged by its speed.
    let timeout_ms = u64::from(command.drive_timeout) * 1000;
    let config = StoreConfig { cache_bytes: 16 << 20, drive_timeout_ms: Some(timeout_ms), ..StoreConfig::default() };
    let (mut examination, owned) = match command.pool.store() {
        Some(place) => examine_in_pool(place, &config)?,
        None => (examine(&command.drives, &config).map_err(not_examined)?, Owned::Alone),
    };
    let All { lanes, names_damaged, books, export } = look_at_lanes(&mut examination, command, output)?;
    // What the drives are is known when all of them were read.
    let mut report = drives::report(&examination, command.quick);
    for lane in lanes {
        report.readable.add(&lane.readable);
        report.start.add(&lane.start);
        report.lanes.push(lane);
    }
    report.readable.names_damaged = names_damaged;
    report.runs = books.runs_behind(None).cloned().collect();
    report.streams = books.streams().cloned().collect();
    drives::tell_left(&mut report);
    let stopped = export.and_then(|export| {
        let (exported, stopped) = export.end(&report);
        report.export = Some(exported);
        stopped
    });
    report.judge();
    // Until now nobody else could have it.
    owned.give_back();
    let refused = examination.refusals.drain(..).next().map(open_failure);
    let failure = stopped.or_else(|| failure(&report, refused, command));
    output.line(&screen::screen(&report));
    let mut object = serde_json::to_value(&report).expect("a report has string keys");
    object["seconds"] = start.elapsed().as_secs_f64().into();
    output.result(&mut object, failure)
}

#[cfg(feature = "rados")]
fn examine_in_pool(place: (&Pools, &str), config: &StoreConfig) -> Result<(Examination, Owned), Failure> {
    let interrupt = crate::interrupt::Interrupt::catch()?;
    let place = crate::rados::Place::open(place, None)?;
    let (examination, ownership) = place.examine(config, &|| interrupt.is_set())?;
    Ok((examination, Owned::Pool(ownership)))
}

#[cfg(not(feature = "rados"))]
fn examine_in_pool(_: (&Pools, &str), _: &StoreConfig) -> Result<(Examination, Owned), Failure> {
    Err(crate::pool::not_built())
}

/// Why drives cannot be looked at. That another process has one means a running server, hardly ever anything else.
fn not_examined(error: OpenStoreError) -> Failure {
    match error {
        OpenStoreError::Drive(OpenDriveError::InUse { path, by }) => Failure::retry(format!(
            "drive {} is in use: {by}. Nothing was read or changed. Ask the server that serves it (`forebay status`, `forebay lost`), or stop that first",
            path.display()
        )),
        error => open_failure(error),
    }
}

/// A lane that is looked at until no drive is given up meanwhile.
#[derive(Default)]
struct Looked {
    /// What was told, and how many drives had been given up then.
    told: Option<(report::Lane, usize)>,
    /// What it holds is in the export, as far as it could be read.
    exported: bool,
}

/// What the lanes of a store hold.
#[derive(Default)]
struct All {
    lanes: Vec<report::Lane>,
    /// What of the names of files cannot be read, in words.
    names_damaged: Vec<String>,
    /// The books of runs and streams.
    books: Books,
    export: Option<Export>,
}

/// Looks at all lanes, and exports what they hold when that is wanted. When a drive is given up, what was looked at with it is looked at again without
/// it, so that all that is told is what the others give.
fn look_at_lanes(examination: &mut Examination, command: &DoctorCommand, output: &Output) -> Result<All, Failure> {
    let Some(store) = &examination.store else { return Ok(All::default()) };
    let name = store.superblock.store.to_string();
    let count = store.lanes();
    let begin = |directory| Export::begin(directory, &name, count);
    let mut export = command.export.as_deref().map(begin).transpose()?;
    let mut names = None;
    let mut lanes: Vec<Looked> = (0..count).map(|_| Looked::default()).collect();
    let mut given_up = 0;
    let is_behind = |lane: &Looked, given_up| lane.told.as_ref().is_none_or(|(_, without)| *without < given_up);
    while let Some(number) = lanes.iter().position(|lane| is_behind(lane, given_up)) {
        let lane = &mut lanes[number];
        let export = export.as_mut().filter(|_| !lane.exported);
        let (told, exported, silent) = look_at_lane(examination, number as u16, command, output, (&mut names, export))?;
        lane.exported |= exported;
        if silent.is_empty() {
            lane.told = Some((told, given_up));
            continue;
        }
        for drive in &silent {
            output.note(&format!(
                "forebay: drive {drive} did not answer for {} s and is given up; what was looked at with it is looked at again without it",
                command.drive_timeout
            ));
        }
        given_up += silent.len();
        examination.give_up(&silent);
    }
    if let (Some(export), Some(names)) = (&mut export, &names) {
        // Of a lane that gives nothing; what its files held may come with drives that are missing.
        let is_absent = examination.store.as_ref().is_some_and(|store| !store.absent.is_empty());
        let outcome = if is_absent { ReadOutcome::Unavailable } else { ReadOutcome::Lost };
        for (number, _) in lanes.iter().enumerate().filter(|(_, lane)| !lane.exported) {
            export.files_out_of_reach(number as u16, names, outcome);
        }
    }
    let lanes = lanes.into_iter().filter_map(|lane| lane.told).map(|(told, _)| told).collect();
    let (names_damaged, books) = names.map(|names| (names.damage, names.books)).unwrap_or_default();
    Ok(All { lanes, names_damaged, books, export })
}

/// Looks at one lane, and exports what it holds when that is wanted and every drive answered until then: what is told, whether it was exported, and the
/// drives that did not answer.
fn look_at_lane(
    examination: &Examination,
    number: u16,
    command: &DoctorCommand,
    output: &Output,
    (names, export): (&mut Option<StoredNames>, Option<&mut Export>),
) -> Result<(report::Lane, bool, Vec<DriveNumber>), Failure> {
    let store = examination.store.as_ref().expect("it has lanes");
    let drives = examination.drives.iter();
    let out: Vec<DriveNumber> = drives
        .filter_map(|drive| match drive.standing {
            Standing::Out(number) => Some(number),
            _ => None,
        })
        .collect();
    let mut waiting = output.progress(0, "lane recovers {spinner} {msg}");
    let look = store.look(number, &mut || waiting.update(0, || format!("lane {number}: reading its tables")));
    drop(waiting);
    let mut look = look.map_err(|error| open_failure(error.into()))?;
    if number == 0 {
        *names = look.lane().serves_reads().is_ok().then(|| StoredNames::read(&mut look, store.lanes()));
    }
    let (absent, names_read) = (&store.absent, names.as_ref());
    let context = Context { output, absent, out: &out, names: names_read, quick: command.quick };
    let told = lane::look(&mut look, number, &context);
    if let Some(names) = names.as_mut().filter(|_| number == 0) {
        names.are_all &= told.readable.unknown.is_empty() && told.readable.possibly_acknowledged.is_empty();
    }
    let export = export.filter(|_| look.silent().is_empty() && told.unreadable.is_none());
    let exported = export.is_some();
    if let Some(export) = export {
        lane::export(&mut look, &told, names.as_ref(), export, output);
    }
    Ok((told, exported, look.silent()))
}

/// How a look at these drives ends, when not all is well.
fn failure(report: &Report, refused: Option<Failure>, command: &DoctorCommand) -> Option<Failure> {
    let readable = &report.readable;
    let missing = match report.verdict {
        Verdict::NoStore => {
            let words = "none of the drives holds a superblock of a store that can be read; nothing was written. Name the drives of the store: \
                         each is as `forebay serve` was given it";
            // One that is silent may hang whoever asks whether it is there.
            let looked_at = command.drives.iter().zip(&report.drives).filter(|(_, drive)| drive.state != "silent");
            let there = looked_at.into_iter().any(|(path, _)| path.exists());
            let failure = if there { Failure::data(words) } else { Failure::retry(words) };
            return Some(refused.unwrap_or(failure));
        }
        Verdict::Whole | Verdict::Repairable => return refused,
        Verdict::OutOfReach => "is out of reach as long as drives are missing",
        Verdict::Lost => "is lost",
    };
    let exported_not = report.export.as_ref().map_or(0, |export| export.fragments_missing);
    let count = (readable.fragments_lost + readable.fragments_unavailable).max(exported_not);
    let unknown = match readable.unknown.len() + readable.possibly_acknowledged.len() {
        0 => String::new(),
        places => format!(", and of {} no table tells what they held", counted(places as u64, "place")),
    };
    let files_not = report.export.as_ref().map_or(0, |export| export.files_lost + export.files_unavailable);
    let files = match (readable.files_lost + readable.files_unavailable).max(files_not) {
        0 => String::new(),
        files => format!(", nor all of {}", counted(files, "file")),
    };
    let names = if readable.names_damaged.is_empty() { "" } else { ", nor all names of files" };
    let exported = match &report.export {
        Some(_) => ". What can be read was exported",
        None => ". With --export what can be read is written into files",
    };
    Some(Failure::data(format!(
        "something that was stored {missing}: {count} of {} fragments cannot be read from these drives{files}{names}{unknown}. Nothing was written to the \
         drives{exported}",
        readable.fragments
    )))
}

impl Report {
    /// Finds the one word.
    fn judge(&mut self) {
        let readable = &self.readable;
        let unknown = |state| readable.unknown.iter().any(|unknown| unknown.state == state);
        // What of a drive that was taken out matters is told by the shards on it: they are on no member.
        let drive_harmed = |drive: &report::Drive| {
            let damaged = drive.cut_off_from_bytes.is_some() || !drive.superblocks_damaged.is_empty();
            drive.state == "member" && (damaged || drive.reason.is_some())
        };
        // With --quick it may be the export that meets what cannot be read.
        let export = self.export.as_ref();
        let lost = export.map_or(0, |export| export.fragments_lost + export.files_lost);
        let missing = export.map_or(0, |export| export.fragments_missing + export.files_unavailable);
        // What they need may lie on a drive that is missing.
        let is_incomplete = self.drives_missing.iter().any(|drive| drive.member);
        let names_lost = !readable.names_damaged.is_empty() && !is_incomplete;
        let lane_harmed = |lane: &report::Lane| {
            let behind = lane.checkpoint.as_ref().is_some_and(|checkpoint| !checkpoint.drives_behind.is_empty());
            let segments = lane.segments.iter().any(report::Segment::is_harmed);
            behind || segments || !lane.checkpoints_damaged.is_empty()
        };
        self.verdict = if self.store.is_none() {
            Verdict::NoStore
        } else if readable.fragments_lost + readable.files_lost > 0 || unknown("lost") || lost > 0 || names_lost {
            Verdict::Lost
        } else if readable.fragments_unavailable + readable.files_unavailable > 0
            || missing > 0
            || !readable.names_damaged.is_empty()
            || unknown("unavailable")
            || !readable.possibly_acknowledged.is_empty()
        {
            Verdict::OutOfReach
        } else if is_incomplete
            || self.drives.iter().any(drive_harmed)
            || self.lanes.iter().any(lane_harmed)
            || self.start.shards_made_anew > 0
        {
            Verdict::Repairable
        } else {
            Verdict::Whole
        };
    }
}

impl report::Start {
    fn add(&mut self, lane: &report::LaneStart) {
        self.segments_closed += lane.segments_closed;
        self.segments_freed += lane.segments_freed;
        self.flushes_written_again += lane.flushes_written_again;
        self.records_written_again += lane.records_written_again;
        self.flushes_discarded += lane.flushes_discarded;
        self.shards_made_anew += lane.shards_made_anew;
    }
}
