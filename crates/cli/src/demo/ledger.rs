//! What became of every event, added up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use forebay_emulators::filter::DEBUG_STREAM;
use forebay_emulators::{CheckReport, EventSet, check_files};
use forebay_mover::find;
use forebay_types::{StreamName, Verdict};
use serde::Serialize;

use super::DemoCommand;
use super::path::Run;
use super::place::Place;
use crate::failure::Failure;
use crate::status::Report;

/// The ledger. Its keys are those of `--json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Fragments put, each id once.
    pub fragments_written: u64,
    /// Of these, acknowledged by the server.
    pub fragments_acknowledged: u64,
    /// Events decided: accepted and rejected.
    pub events_built: u64,
    /// Of these, without some of their fragments.
    pub events_incomplete: u64,
    /// Events rejected.
    pub events_rejected: u64,
    /// Events accepted into at least one stream; an event in two streams counts once.
    pub events_accepted: u64,
    /// Accepted events that are in a verified file of each of their streams; an event in two streams counts once.
    pub events_shipped: u64,
    /// Bytes of the files of all streams; an event in two streams is in two files.
    pub bytes_shipped: u64,
    /// Fragments not acknowledged, events not decided, accepted events not shipped.
    pub lost: u64,
    /// Events that came out other than they went in, more than once, or without being accepted; files that differ.
    pub mismatched: u64,
    /// Drives that the server found dead.
    pub drives_failed: u64,
    /// Fragments that were read after a drive was lost by computing what lay on it from the others.
    pub fragments_from_parity: u64,
    /// From the first put until everything was compared.
    pub seconds: f64,
}

/// A stream, for the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBooks {
    /// Events that the filters accepted into it.
    pub accepted: u64,
    /// Of these, in its files.
    pub shipped: u64,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The ledger, what it is made of, and what is wrong with it.
pub struct Books {
    /// The sums.
    pub ledger: Ledger,
    /// By stream.
    pub streams: BTreeMap<StreamName, StreamBooks>,
    /// Events whose fragments were put.
    pub events_written: u64,
    /// Bytes of the fragments.
    pub bytes_written: u64,
    /// Fragments stored at less than full width, because a drive was gone.
    pub fragments_degraded: u64,
    /// Drives that should have failed.
    drives_expected: u64,
    /// Sentences; empty when the books balance.
    pub wrong: Vec<String>,
}

impl Books {
    /// Reads every shipped file back and compares.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn of(command: &DemoCommand, run: &Run, status: &Report, place: &Place) -> Result<Books, Failure> {
        let out = place.out();
        let check = check_files(&out, &run.ledger)
            .map_err(|error| Failure::data(format!("the shipped files cannot be compared: {error}")))?;
        let shipped = shipped_events(&out)?;
        let compared = compare(run, &shipped);
        let (readout, filter) = (&run.readout, &run.filter);
        let total = check.total();
        let fragments_written = readout.fragments_written.load(Relaxed);
        let fragments_acknowledged = readout.fragments_acknowledged.load(Relaxed);
        let (accepted, rejected) = (filter.accepted.load(Relaxed), filter.rejected.load(Relaxed));
        let events_built = filter.events_built.load(Relaxed);
        let events_written = run.ledger.len();
        let not_as_written =
            total.mismatched + total.unknown + total.duplicates + total.bad_files + total.missing_files;
        let ledger = Ledger {
            fragments_written,
            fragments_acknowledged,
            events_built,
            events_incomplete: filter.incomplete.load(Relaxed),
            events_rejected: rejected,
            events_accepted: accepted,
            events_shipped: compared.complete,
            bytes_shipped: total.bytes,
            lost: fragments_written.saturating_sub(fragments_acknowledged)
                + events_written.saturating_sub(events_built)
                + compared.missing
                + filter.lost.load(Relaxed).max(run.recorder.fragments_lost),
            mismatched: not_as_written
                + compared.unwanted
                + filter.mismatched.load(Relaxed).saturating_sub(total.mismatched)
                + readout.conflicts.load(Relaxed),
            drives_failed: status.drives_failed,
            fragments_from_parity: status.totals.counters.fragments_read_degraded,
            seconds: run.start.elapsed().as_secs_f64(),
        };
        let mut streams = compared.streams;
        for (name, report) in &check.streams {
            let stream = streams.entry(name.clone()).or_default();
            (stream.files, stream.bytes) = (report.files, report.bytes);
        }
        let counters = &status.totals.counters;
        Ok(Books {
            ledger,
            streams,
            events_written,
            bytes_written: readout.bytes_written.load(Relaxed),
            fragments_degraded: counters.fragments_stored_degraded,
            // What a command does half way is known to whoever gave it.
            drives_expected: match command.half_way {
                None => u64::from(command.destroys_a_drive()),
                Some(_) => status.drives_failed,
            },
            wrong: first_reports(run, &check),
        })
    }

    /// Sees whether the books balance, and says where they do not.
    pub fn close(&mut self) {
        let ledger = &self.ledger;
        let equal = [
            (ledger.events_built, self.events_written, "events were decided", "were written"),
            (
                ledger.events_accepted + ledger.events_rejected,
                ledger.events_built,
                "events were accepted or rejected",
                "were decided",
            ),
            (ledger.fragments_acknowledged, ledger.fragments_written, "fragments were acknowledged", "were written"),
            (ledger.events_shipped, ledger.events_accepted, "events were shipped", "were accepted"),
            (ledger.drives_failed, self.drives_expected, "drives failed", "should have"),
            (ledger.events_incomplete, 0, "events were decided without all of their fragments", "should have been"),
            (ledger.lost, 0, "are lost", "should be"),
            (ledger.mismatched, 0, "are mismatched", "should be"),
        ];
        let wrong = equal.into_iter().filter(|(found, expected, ..)| found != expected);
        let mut sentences: Vec<String> =
            wrong.map(|(found, expected, what, other)| format!("{found} {what}, {expected} {other}")).collect();
        if !sentences.is_empty() {
            // What the emulators said of single events helps only when something is wrong.
            sentences.append(&mut self.wrong);
        }
        self.wrong = sentences;
    }
}

/// What was said of single events.
fn first_reports(run: &Run, check: &CheckReport) -> Vec<String> {
    let reports = [run.readout.reports.first(), run.filter.reports.first(), check.reports.first()];
    reports.into_iter().filter_map(|first| first.into_iter().next()).collect()
}

/// The events of each stream's files, as their sidecars name them.
fn shipped_events(out: &Path) -> Result<BTreeMap<StreamName, EventSet>, Failure> {
    let mut shipped: BTreeMap<StreamName, EventSet> = BTreeMap::new();
    let meaning = "the shipped files were not compared";
    for sidecar in find::sidecars(out).map_err(|error| Failure::file("read", out, &error, meaning))? {
        let (_, sidecar) =
            sidecar.map_err(|(path, error)| Failure::data(format!("{}: {error}; {meaning}", path.display())))?;
        let Some(stream) = &sidecar.stream else { continue };
        let events = shipped.entry(stream.clone()).or_default();
        for key in sidecar.keys() {
            events.insert(key);
        }
    }
    Ok(shipped)
}

#[derive(Default)]
struct Compared {
    streams: BTreeMap<StreamName, StreamBooks>,
    /// Accepted events that are in a file of each of their streams.
    complete: u64,
    /// Accepted events that are missing from at least one of their streams.
    missing: u64,
    /// Events that are in a stream that did not accept them.
    unwanted: u64,
}

/// Each event's streams against those that it was accepted into. What the filters decide depends on the event alone, so that it is
/// known here without asking them; an event that they found damaged is in the stream for that instead.
fn compare(run: &Run, shipped: &BTreeMap<StreamName, EventSet>) -> Compared {
    let debug: StreamName = DEBUG_STREAM.parse().expect("a good name");
    let mut compared = Compared::default();
    for key in run.ledger.keys() {
        let mut wanted = match run.choice.verdict(key) {
            Verdict::Accept(streams) => streams,
            Verdict::Reject => Vec::new(),
        };
        if shipped.get(&debug).is_some_and(|events| events.contains(key)) {
            wanted = vec![debug.clone()];
        }
        let mut everywhere = true;
        for stream in &wanted {
            let books = compared.streams.entry(stream.clone()).or_default();
            let there = shipped.get(stream).is_some_and(|events| events.contains(key));
            books.accepted += 1;
            books.shipped += u64::from(there);
            everywhere &= there;
        }
        if !wanted.is_empty() {
            compared.complete += u64::from(everywhere);
            compared.missing += u64::from(!everywhere);
        }
        let unwanted = shipped.iter().any(|(stream, events)| !wanted.contains(stream) && events.contains(key));
        compared.unwanted += u64::from(unwanted);
    }
    compared
}
