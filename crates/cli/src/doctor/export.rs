//! Writing what a store holds into files, so that one that starts no more still gives its data. `docs/doctor.md` has the layout.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use forebay_engine::{StoredEvent, StoredFragment};
use forebay_rawdata::{EVENT_BYTES_MAX, Format, join};
use forebay_store::{LaneLook, ReadWanted};
use forebay_types::{EventKey, FragmentId, ReadOutcome, RunId, SourceId, crc32c};
use serde::Serialize;

use super::report::{Exported, Report};
use crate::failure::Failure;
use crate::size::{counted, hex, human_bytes};

const INDEX: &str = "index.json";
const INDEX_PART: &str = "index.json.part";

/// Bytes of events that are read before they are written; one event may be larger.
const BATCH_BYTES: u64 = 32 << 20;

/// An export that is being written. What it has written is whole at any time but for the file at which it stops, and that one is put right.
pub struct Export {
    directory: PathBuf,
    index: Whole,
    /// Whole events, put together: how long each file is.
    joined: BTreeMap<(RunId, &'static str), u64>,
    /// The one of them that was written last.
    open: Option<((RunId, &'static str), Whole)>,
    counts: Exported,
    /// Why it does not go on.
    stopped: Option<Failure>,
}

/// A file that grows by whole pieces: a piece for which there is no room leaves nothing behind.
struct Whole {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Whole {
    fn append(&mut self, piece: &[u8]) -> Result<(), Failure> {
        if let Err(error) = self.file.write_all(piece) {
            // What was there before counts; when the rest cannot be cut off, the index tells where it begins.
            let _ = self.file.set_len(self.bytes);
            return Err(failed("write", &self.path, &error));
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }
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

#[derive(Serialize)]
struct JoinedLine {
    file: String,
    offset_bytes: u64,
    bytes: u64,
    crc32c: String,
}

/// What was read of an event.
type Pieces = BTreeMap<FragmentId, (ReadOutcome, Vec<u8>)>;

impl Export {
    /// Begins an export into a directory that is not there yet or empty.
    ///
    /// # Errors
    /// When it holds something, or cannot be written.
    pub fn begin(directory: &Path, store: &str) -> Result<Export, Failure> {
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
        let path = directory.join(INDEX_PART);
        let begun = create(&path).and_then(|file| {
            let mut index = Whole { file, path, bytes: 0 };
            index.append(format!("{{\"version\":1,\"store\":\"{store}\",\"events\":[").as_bytes())?;
            Ok(index)
        });
        let not_begun = |failure: Failure| Failure { message: format!("{}; {MEANING}", failure.message), ..failure };
        let index = begun.map_err(not_begun)?;
        let counts = Exported { directory: directory.display().to_string(), ..Exported::default() };
        let (joined, open, stopped) = (BTreeMap::new(), None, None);
        Ok(Export { directory: directory.to_owned(), index, joined, open, counts, stopped })
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
            match self.append(event.key.run, format, &joined) {
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

    /// Appends a whole event to the file of its run and format.
    fn append(&mut self, run: RunId, format: Format, bytes: &[u8]) -> Result<JoinedLine, Failure> {
        let key = (run, format.extension());
        let file = format!("run{:08}.{}", run.0, format.extension());
        let path = self.directory.join(&file);
        if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
            let file = match self.joined.contains_key(&key) {
                true => OpenOptions::new().append(true).open(&path).map_err(|error| failed("open", &path, &error))?,
                false => create(&path)?,
            };
            let bytes = *self.joined.entry(key).or_default();
            self.open = Some((key, Whole { file, path, bytes }));
        }
        let (_, whole) = self.open.as_mut().expect("opened just now");
        let line =
            JoinedLine { file, offset_bytes: whole.bytes, bytes: bytes.len() as u64, crc32c: hex(crc32c(bytes)) };
        whole.append(bytes)?;
        self.joined.insert(key, whole.bytes);
        Ok(line)
    }

    fn index_line(&mut self, line: &EventLine) -> Result<(), Failure> {
        let separator = if self.counts.events_listed == 0 { "\n" } else { ",\n" };
        let text = serde_json::to_string(line).expect("an event has string keys");
        self.index.append(format!("{separator}{text}").as_bytes())?;
        self.counts.events_listed += 1;
        Ok(())
    }

    /// Ends the index with what is not in it, makes everything durable, and gives the index its name; of an export that stopped, makes durable
    /// what it has. Gives what was exported, and why that is not all of it.
    pub fn end(mut self, report: &Report) -> (Exported, Option<Failure>) {
        let ended = match self.stopped.take() {
            None => self.end_index(report).and_then(|()| self.name_index()),
            Some(failure) => Err(failure),
        };
        let Err(failure) = ended else { return (self.counts, None) };
        self.counts.stopped = true;
        let durable = File::open(&self.directory).and_then(|directory| Ok(rustix::fs::syncfs(&directory)?));
        let (fragments, bytes) = (counted(self.counts.fragments, "fragment"), human_bytes(self.counts.bytes));
        let listed = match durable {
            Ok(()) => format!("{fragments}, {bytes}, are safe in it, and {INDEX_PART} lists them"),
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
        let end = serde_json::json!({
            "events_whole": self.counts.events_whole,
            "events_joined": self.counts.events_joined,
            "fragments": self.counts.fragments,
            "bytes": self.counts.bytes,
            "fragments_missing": self.counts.fragments_missing,
            "fragments_lost": self.counts.fragments_lost,
            "unknown": report.readable.unknown,
            "possibly_acknowledged": report.readable.possibly_acknowledged,
        });
        let end = end.to_string();
        self.index.append(format!("\n],{}\n", &end[1..]).as_bytes())
    }

    fn name_index(&self) -> Result<(), Failure> {
        let (part, path) = (self.directory.join(INDEX_PART), self.directory.join(INDEX));
        let durable = || -> io::Result<()> {
            let directory = File::open(&self.directory)?;
            // One call for the many small files, before the index vouches for them.
            rustix::fs::syncfs(&directory)?;
            fs::hard_link(&part, &path)?;
            fs::remove_file(&part)?;
            directory.sync_all()
        };
        durable().map_err(|error| failed("write", &path, &error))
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

/// A file that is not there yet.
fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| failed("make", path, &error))
}

/// What happened; [`Export::end`] says what it means.
fn failed(action: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::file(action, path, error, "");
    Failure { message: failure.message.trim_end_matches("; ").to_owned(), ..failure }
}
