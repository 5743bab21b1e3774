//! Compares what the recorder shipped with the hashes that the readout kept.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use forebay_mover::events::EventKind;
use forebay_mover::events::parts::PartsReader;
use forebay_mover::find::sidecars;
use forebay_mover::sidecar::Sidecar;
use forebay_mover::{Summer, Sums};
use forebay_rawdata::open;
use forebay_types::{EventKey, StreamName};
use serde::Serialize;

use crate::event_set::EventSet;
use crate::ledger::{EventHash, HashLedger};
use crate::reports::Reports;

/// What became of the events of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Announced files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Events in them, each counted once.
    pub shipped: u64,
    /// Of these, byte for byte what was written.
    pub identical: u64,
    /// Of these, not what was written, and not marked incomplete.
    pub mismatched: u64,
    /// Of these, marked incomplete: there is nothing to compare them with.
    pub incomplete: u64,
    /// Of these, those that the ledger does not know.
    pub unknown: u64,
    /// Events that came again, in the same or another file.
    pub duplicates: u64,
    /// Files that are not what their sidecar says.
    pub bad_files: u64,
    /// Sidecars without their file.
    pub missing_files: u64,
}

/// What became of all events.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// By stream.
    pub streams: BTreeMap<StreamName, StreamReport>,
    /// Events that are in the files of at least one stream.
    pub events_shipped: u64,
    /// Events of the ledger that are in no file: rejected, still in the store, or lost.
    pub not_shipped: u64,
    /// What is wrong, with ids.
    pub reports: Reports,
}

impl CheckReport {
    /// Over all streams: an event in two streams counts twice, except in
    /// [`CheckReport::events_shipped`].
    pub fn total(&self) -> StreamReport {
        let mut total = StreamReport::default();
        for stream in self.streams.values() {
            total.files += stream.files;
            total.bytes += stream.bytes;
            total.shipped += stream.shipped;
            total.identical += stream.identical;
            total.mismatched += stream.mismatched;
            total.incomplete += stream.incomplete;
            total.unknown += stream.unknown;
            total.duplicates += stream.duplicates;
            total.bad_files += stream.bad_files;
            total.missing_files += stream.missing_files;
        }
        total
    }

    /// Whether every shipped event is there once and is what was written, or is marked incomplete.
    pub fn is_good(&self) -> bool {
        let total = self.total();
        total.mismatched + total.unknown + total.duplicates + total.bad_files + total.missing_files == 0
    }
}

/// Files that cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The operating system refused something.
    #[error("cannot read {}: {source}; the files in it were not compared", .path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A sidecar that is none, or cannot be read.
    #[error("{}: {why}; the files were not compared", .path.display())]
    Sidecar {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Reads every file of accepted events below `directory` that has a sidecar, and compares each event with the ledger.
///
/// # Errors
/// A directory or sidecar that cannot be read. What is wrong with files and events is in the report.
pub fn check_files(directory: &Path, ledger: &HashLedger) -> Result<CheckReport, CheckError> {
    let mut report = CheckReport::default();
    let mut all = EventSet::default();
    let mut of_streams: BTreeMap<StreamName, EventSet> = BTreeMap::new();
    for sidecar in sidecars(directory).map_err(|source| CheckError::Io { path: directory.to_owned(), source })? {
        let (path, sidecar) = sidecar.map_err(|(path, why)| CheckError::Sidecar { path, why })?;
        let Some(stream) = sidecar.stream.clone() else { continue };
        let mut check = StreamCheck {
            ledger,
            stream: report.streams.entry(stream.clone()).or_default(),
            events: of_streams.entry(stream).or_default(),
            all: &mut all,
            reports: &report.reports,
        };
        check.file(&path.with_extension(""), &sidecar)?;
    }
    report.events_shipped = all.len();
    report.not_shipped = ledger.keys().into_iter().filter(|key| !all.contains(*key)).count() as u64;
    Ok(report)
}

struct StreamCheck<'a> {
    ledger: &'a HashLedger,
    stream: &'a mut StreamReport,
    /// Of this stream.
    events: &'a mut EventSet,
    all: &'a mut EventSet,
    reports: &'a Reports,
}

impl StreamCheck<'_> {
    fn file(&mut self, path: &Path, sidecar: &Sidecar) -> Result<(), CheckError> {
        if !path.is_file() {
            self.stream.missing_files += 1;
            self.reports.add(|| format!("{}: there is a sidecar, but no file", path.display()));
            return Ok(());
        }
        self.stream.files += 1;
        self.stream.bytes += sidecar.bytes;
        let bad =
            self.compare_file(path, sidecar).map_err(|source| CheckError::Io { path: path.to_owned(), source })?;
        if let Some(words) = bad {
            self.stream.bad_files += 1;
            self.reports.add(|| format!("{}: {words}", path.display()));
        }
        Ok(())
    }

    /// What is wrong with the file as a whole.
    fn compare_file(&mut self, path: &Path, sidecar: &Sidecar) -> io::Result<Option<String>> {
        let (found, expected) = (sums(path)?, sidecar.sums());
        if found != expected {
            return Ok(Some(format!("expected {expected}, found {found}")));
        }
        // The events of a file lie in the order of its ranges; a compressed event's bytes hold another number.
        let mut keys = sidecar.keys();
        if EventKind::from_name(&sidecar.format).is_some_and(|kind| kind.format().is_none()) {
            for event in PartsReader::new(std::io::BufReader::new(std::fs::File::open(path)?)) {
                match (event, keys.next()) {
                    (Ok((key, _)), Some(expected)) if key == expected => {
                        self.parts(key, sidecar);
                    }
                    (Ok((key, _)), _) => return Ok(Some(format!("event {key} is not in its sidecar"))),
                    (Err(error), _) => return Ok(Some(error.to_string())),
                }
            }
        } else {
            let events = match open(path) {
                Ok(events) => events,
                Err(error) => return Ok(Some(error.to_string())),
            };
            for event in events {
                match (event, keys.next()) {
                    (Ok(event), Some(key)) => self.event(key, &event.bytes, sidecar),
                    (Ok(event), None) => return Ok(Some(format!("event {} is not in its sidecar", event.key))),
                    (Err(error), _) => return Ok(Some(error.to_string())),
                }
            }
        }
        Ok(keys.next().map(|key| format!("event {key} of its sidecar is not in it")))
    }

    /// Whether the event comes for the first time in this stream.
    fn count(&mut self, key: EventKey) -> bool {
        self.all.insert(key);
        let new = self.events.insert(key);
        self.stream.shipped += u64::from(new);
        if !new {
            self.stream.duplicates += 1;
            self.reports.add(|| format!("event {key} is there twice"));
        }
        new
    }

    /// An event that could not be put together.
    fn parts(&mut self, key: EventKey, sidecar: &Sidecar) {
        if !self.count(key) {
            return;
        }
        if sidecar.is_incomplete(key) {
            self.stream.incomplete += 1;
        } else {
            self.stream.mismatched += 1;
            self.reports.add(|| {
                format!("event {key}: its fragments are there, but make no event; they are in {}", sidecar.name)
            });
        }
    }

    fn event(&mut self, key: EventKey, bytes: &[u8], sidecar: &Sidecar) {
        if !self.count(key) {
            return;
        }
        let incomplete = sidecar.is_incomplete(key);
        match self.ledger.get(key) {
            None => {
                self.stream.unknown += 1;
                self.reports.add(|| format!("event {key} was shipped, but the ledger does not know it"));
            }
            Some(written) if written == EventHash::of(bytes) => self.stream.identical += 1,
            Some(_) if incomplete => self.stream.incomplete += 1,
            Some(written) => {
                self.stream.mismatched += 1;
                self.reports.add(|| {
                    let found = EventHash::of(bytes);
                    format!(
                        "event {key}: expected {} bytes with hash {:032x} as they were written, found {} bytes with hash {:032x}",
                        written.bytes, written.hash, found.bytes, found.hash
                    )
                });
            }
        }
    }
}

fn sums(path: &Path) -> io::Result<Sums> {
    let mut file = std::fs::File::open(path)?;
    let mut summer = Summer::default();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(summer.sums()),
            Ok(read) => summer.update(&block[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
