//! Writing what a store holds into files, so that one that starts no more still gives its data. `docs/doctor.md` has the layout.

mod files;
mod index;
mod joined;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_engine::{StoredEvent, StoredFragment};
use forebay_rawdata::{EVENT_BYTES_MAX, join};
use forebay_server::keeps_names;
use forebay_store::{LaneLook, ReadWanted};
use forebay_types::{EventKey, FileNumber, FragmentId, ReadOutcome, SourceId, crc32c};
use serde::Serialize;

use super::names::StoredNames;
use super::report::{Exported, Report};
use crate::failure::Failure;
use crate::size::{counted, hex, human_bytes};
use files::FilesExport;
use index::{Index, create, failed};
use joined::{JoinedFiles, JoinedLine};

const INDEX: &str = "index.json";

/// Numbers of files that are looked at before any of these files is read.
const NUMBERS_AT_ONCE: usize = 1024;

/// Bytes of events that are read before they are written; one event may be larger.
const BATCH_BYTES: u64 = 32 << 20;

/// An export that is being written. What it has written is whole at any time but for the file at which it stops, and that one is put right.
pub struct Export {
    directory: PathBuf,
    /// Of the store.
    lanes: u16,
    index: Index,
    files: FilesExport,
    joined: JoinedFiles,
    counts: Exported,
    /// Why it does not go on.
    stopped: Option<Failure>,
}

/// An event in the index.
#[derive(Serialize)]
struct EventLine {
    run: u32,
    event: u64,
    /// `undecided` or `accepted`.
    state: &'static str,
    streams: Vec<String>,
    expected: u16,
    incomplete: bool,
    fragments: Vec<FragmentLine>,
    missing: Vec<MissingLine>,
    /// All fragments lie in one record that cannot be read, which alone says which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    record_missing: Option<RecordMissingLine>,
    joined: Option<JoinedLine>,
}

#[derive(Serialize)]
struct FragmentLine {
    source: u32,
    bytes: u32,
    crc32c: String,
    file: String,
}

#[derive(Serialize)]
struct RecordMissingLine {
    fragments: u32,
    bytes: u64,
    /// `lost` or `unavailable`.
    outcome: &'static str,
}

/// Of what no drive that could come back has.
const LOST: &str = "lost";

/// Of what can be read, and for which there was no room.
const NOT_WRITTEN: &str = "not-written";

fn word_of(outcome: ReadOutcome) -> &'static str {
    if outcome == ReadOutcome::Unavailable { "unavailable" } else { LOST }
}

#[derive(Serialize)]
struct MissingLine {
    source: u32,
    bytes: u32,
    crc32c: String,
    /// `lost`, `unavailable`, or `not-written` when the export stopped before.
    outcome: &'static str,
}

/// What was read of an event.
type Pieces = BTreeMap<FragmentId, (ReadOutcome, Vec<u8>)>;

impl Export {
    /// Begins an export into a directory that is not there yet or empty.
    ///
    /// # Errors
    /// When it holds something, or cannot be written.
    pub fn begin(directory: &Path, store: &str, lanes: u16) -> Result<Export, Failure> {
        const MEANING: &str = "nothing was exported; give another --export";
        let failed = |error| Failure::file("make", directory, &error, MEANING);
        if directory.exists() && !directory.is_dir() {
            return Err(Failure::usage(format!(
                "{} is not a directory; nothing was exported. Give --export a directory that is new or empty",
                directory.display()
            )));
        }
        fs::create_dir_all(directory).map_err(failed)?;
        if fs::read_dir(directory).map_err(failed)?.next().is_some() {
            return Err(Failure::usage(format!(
                "{} is not empty, and an export overwrites nothing; nothing was exported. Give --export a directory that is new or empty",
                directory.display()
            )));
        }
        let head = serde_json::json!({ "version": 1, "store": store });
        let begun = Index::begin(&directory.join(INDEX), &head, "events")
            .and_then(|index| Ok((index, FilesExport::begin(directory, store)?)));
        let not_begun = |failure: Failure| Failure { message: format!("{}; {MEANING}", failure.message), ..failure };
        let (index, files) = begun.map_err(not_begun)?;
        let counts = Exported { directory: directory.display().to_string(), ..Exported::default() };
        let (directory, joined) = (directory.to_owned(), JoinedFiles::new(directory));
        Ok(Export { directory, lanes, index, files, joined, counts, stopped: None })
    }

    /// Reads and writes events, and tells how many fragments and bytes are done. When the directory cannot be written the export stops, and
    /// [`Export::end`] tells it.
    pub fn events(
        &mut self,
        look: &mut LaneLook,
        events: Vec<(StoredEvent, ReadOutcome)>,
        progress: &mut dyn FnMut(u64, u64),
    ) {
        if self.stopped.is_none() {
            self.stopped = self.write_events(look, events, progress).err();
        }
    }

    fn write_events(
        &mut self,
        look: &mut LaneLook,
        events: Vec<(StoredEvent, ReadOutcome)>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Failure> {
        let bytes = |(event, _): &(StoredEvent, _)| event.fragments.iter().map(|f| u64::from(f.bytes)).sum::<u64>();
        let mut events = events.as_slice();
        while !events.is_empty() {
            let (mut batch_bytes, mut count) = (0, 0);
            while let Some(event) = events.get(count)
                && (count == 0 || batch_bytes + bytes(event) <= BATCH_BYTES)
            {
                (batch_bytes, count) = (batch_bytes + bytes(event), count + 1);
            }
            let (batch, rest) = events.split_at(count);
            events = rest;
            let wanted = batch.iter().flat_map(|(event, _)| {
                event.fragments.iter().map(|f| ReadWanted { id: event.key.fragment(f.source), bytes: f.bytes })
            });
            let mut pieces = Pieces::new();
            let Ok(()) = look.read(wanted, &mut |id, outcome, payload| -> Result<(), std::convert::Infallible> {
                pieces.insert(id, (outcome, payload));
                Ok(())
            });
            for (event, outcome) in batch {
                self.event(event, *outcome, &pieces)?;
                progress(self.counts.fragments + self.counts.fragments_missing, self.counts.bytes);
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &StoredEvent, outcome: ReadOutcome, pieces: &Pieces) -> Result<(), Failure> {
        let mut line = EventLine {
            run: event.key.run.0,
            event: event.key.event.0,
            state: if event.accepted { "accepted" } else { "undecided" },
            streams: event.streams.iter().map(ToString::to_string).collect(),
            expected: event.expected,
            incomplete: event.incomplete,
            fragments: Vec::new(),
            missing: Vec::new(),
            record_missing: None,
            joined: None,
        };
        if let Some(whole) = event.whole.filter(|_| event.fragments.is_empty()) {
            let (fragments, outcome) = (whole.fragments, word_of(outcome));
            self.counts.fragments_missing += u64::from(fragments);
            self.counts.fragments_lost += if outcome == LOST { u64::from(fragments) } else { 0 };
            line.record_missing = Some(RecordMissingLine { fragments, bytes: whole.bytes, outcome });
        }
        let mut right: Vec<(SourceId, &[u8])> = Vec::new();
        let mut stopped = None;
        for fragment in &event.fragments {
            let (outcome, payload) = &pieces[&event.key.fragment(fragment.source)];
            // The lane has compared it; what goes into a file is compared once more.
            let is_right = *outcome == ReadOutcome::Found && crc32c(payload) == fragment.crc;
            let outcome = match is_right.then(|| self.fragment(event.key, fragment, payload, &stopped)) {
                Some(Ok(written)) => {
                    line.fragments.push(written);
                    right.push((fragment.source, payload));
                    continue;
                }
                Some(Err(failure)) => {
                    stopped = Some(failure);
                    NOT_WRITTEN
                }
                None => word_of(*outcome),
            };
            let (source, bytes, crc32c) = (fragment.source.0, fragment.bytes, hex(fragment.crc));
            line.missing.push(MissingLine { source, bytes, crc32c, outcome });
        }
        let is_whole = line.missing.is_empty() && line.record_missing.is_none();
        let bytes: u64 = right.iter().map(|(_, payload)| payload.len() as u64).sum();
        if is_whole
            && bytes <= EVENT_BYTES_MAX
            && let Ok((format, joined)) = join(&right)
        {
            match self.joined.append(event.key.run, format, &joined) {
                Ok(joined) => line.joined = Some(joined),
                Err(failure) => stopped = Some(failure),
            }
        }
        self.index_line(&line)?;
        self.count(&line);
        stopped.map_or(Ok(()), Err)
    }

    /// Counts what the index lists.
    fn count(&mut self, line: &EventLine) {
        let missing = |outcome| line.missing.iter().filter(|missing| missing.outcome == outcome).count() as u64;
        let not_written = missing(NOT_WRITTEN);
        self.counts.events += u64::from(!line.fragments.is_empty());
        self.counts.events_whole += u64::from(line.missing.is_empty() && line.record_missing.is_none());
        self.counts.events_joined += u64::from(line.joined.is_some());
        self.counts.fragments += line.fragments.len() as u64;
        self.counts.bytes += line.fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum::<u64>();
        self.counts.fragments_missing += line.missing.len() as u64 - not_written;
        self.counts.fragments_lost += missing(LOST);
    }

    /// Writes a fragment; not after the export has `stopped`.
    fn fragment(
        &self,
        key: EventKey,
        fragment: &StoredFragment,
        payload: &[u8],
        stopped: &Option<Failure>,
    ) -> Result<FragmentLine, Failure> {
        if let Some(failure) = stopped {
            return Err(failure.clone());
        }
        let directory = format!("run{:08}/event{:012}", key.run.0, key.event.0);
        let file = format!("{directory}/{:08x}.bin", fragment.source.0);
        let directory = self.directory.join(directory);
        fs::create_dir_all(&directory).map_err(|error| failed("make", &directory, &error))?;
        write_whole(&self.directory.join(&file), payload)?;
        Ok(FragmentLine { source: fragment.source.0, bytes: fragment.bytes, crc32c: hex(fragment.crc), file })
    }

    fn index_line(&mut self, line: &EventLine) -> Result<(), Failure> {
        self.index.line(line)?;
        self.counts.events_listed = self.index.lines;
        Ok(())
    }

    /// Makes the directories that have names, and all else that has one and is no file.
    pub fn names(&mut self, names: &StoredNames) {
        if self.stopped.is_none() {
            self.stopped = self.files.names(names).err();
        }
    }

    /// Reads and writes the files of a lane, and tells how many bytes are done.
    pub fn files(
        &mut self,
        look: &mut LaneLook,
        lane: u16,
        names: Option<&StoredNames>,
        progress: &mut dyn FnMut(u64),
    ) {
        if self.stopped.is_none() {
            self.stopped = self.write_files(look, lane, names, progress).err();
        }
    }

    fn write_files(
        &mut self,
        look: &mut LaneLook,
        lane: u16,
        names: Option<&StoredNames>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let counts = &mut self.counts;
        let mut done = counts.file_bytes;
        let mut progress = |bytes| {
            done += bytes;
            progress(done);
        };
        for number in names.into_iter().flat_map(|names| names.files_of_lane(lane)) {
            match look.lane().file(number) {
                Some(view) => self.files.file(look, (number, view), names, counts, &mut progress)?,
                None => {
                    let outcome = look.lane().outcome_of_unknown_file(number);
                    self.files.unknown_file(number, outcome, names.expect("it has a name"), counts)?;
                }
            }
        }
        let mut from = Some(FileNumber(0)).filter(|_| names.is_none_or(|names| !names.are_all));
        while let Some(first) = from {
            let page: Vec<FileNumber> = look.lane().files_from(first).take(NUMBERS_AT_ONCE).collect();
            from = page.last().and_then(|last| last.0.checked_add(1)).map(FileNumber);
            let is_named = |number: &FileNumber| names.is_some_and(|names| names.has(*number));
            for number in page.into_iter().filter(|number| !is_named(number)) {
                let is_of_names = keeps_names(number, self.lanes);
                let Some(view) = look.lane().file(number).filter(|_| !is_of_names) else { continue };
                self.files.file(look, (number, view), names, counts, &mut progress)?;
            }
        }
        Ok(())
    }

    /// Lists the files of a lane that cannot be read at all.
    pub fn files_out_of_reach(&mut self, lane: u16, names: &StoredNames, outcome: ReadOutcome) {
        for number in names.files_of_lane(lane) {
            if self.stopped.is_none() {
                self.stopped = self.files.unknown_file(number, outcome, names, &mut self.counts).err();
            }
        }
    }

    /// Ends the index with what is not in it, makes everything durable, and gives the index its name; of an export that stopped, makes durable
    /// what it has. Gives what was exported, and why that is not all of it.
    pub fn end(mut self, report: &Report) -> (Exported, Option<Failure>) {
        let ended = match self.stopped.take() {
            None => self.joined.end().and_then(|()| self.end_index(report)).and_then(|()| self.name_index()),
            Some(failure) => Err(failure),
        };
        let Err(failure) = ended else { return (self.counts, None) };
        self.counts.stopped = true;
        let durable = File::open(&self.directory).and_then(|directory| Ok(rustix::fs::syncfs(&directory)?));
        let (fragments, bytes) = (counted(self.counts.fragments, "fragment"), human_bytes(self.counts.bytes));
        let listed = match durable {
            Ok(()) => format!(
                "{fragments}, {bytes}, and {}, {}, are safe in it, and index.json.part and files.json.part list them",
                counted(self.counts.files, "file"),
                human_bytes(self.counts.file_bytes)
            ),
            Err(error) => format!("what it holds may not last ({error})"),
        };
        let directory = self.directory.display();
        let message = format!(
            "{}. The export into {directory} stopped: {listed}. Nothing was written to the drives: give --export another directory, with more room",
            failure.message
        );
        (self.counts, Some(Failure { message, ..failure }))
    }

    fn end_index(&mut self, report: &Report) -> Result<(), Failure> {
        self.files.end(&self.counts)?;
        self.index.end(&serde_json::json!({
            "events_whole": self.counts.events_whole,
            "events_joined": self.counts.events_joined,
            "fragments": self.counts.fragments,
            "bytes": self.counts.bytes,
            "fragments_missing": self.counts.fragments_missing,
            "fragments_lost": self.counts.fragments_lost,
            "unknown": report.readable.unknown,
            "possibly_acknowledged": report.readable.possibly_acknowledged,
        }))
    }

    fn name_index(&self) -> Result<(), Failure> {
        let failed = |error| failed("write", &self.directory, &error);
        let directory = File::open(&self.directory).map_err(failed)?;
        // One call for the many small files, before the lists vouch for them.
        rustix::fs::syncfs(&directory).map_err(|error| failed(error.into()))?;
        self.files.name()?;
        self.index.name()?;
        directory.sync_all().map_err(failed)
    }
}

/// Writes a file that has its name when it is whole.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let part = path.with_extension("bin.part");
    let written = create(&part)?.write_all(bytes).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // It gives back its room; when that fails, its name says that it is not whole.
        let _ = fs::remove_file(&part);
        failed("write", path, &error)
    })
}
