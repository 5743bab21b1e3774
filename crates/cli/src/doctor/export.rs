//! Writing what a store holds into files, so that one that starts no more still gives its data. `docs/doctor.md` has the layout.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use forebay_engine::{StoredEvent, StoredFragment};
use forebay_rawdata::{EVENT_BYTES_MAX, Format, join};
use forebay_store::{LaneLook, ReadWanted};
use forebay_types::{EventKey, FragmentId, ReadOutcome, RunId, SourceId, crc32c};
use serde::Serialize;

use super::report::{Exported, Report};
use crate::failure::Failure;
use crate::size::hex;

const INDEX: &str = "index.json";
const INDEX_PART: &str = "index.json.part";

/// Bytes of events that are read before they are written; one event may be larger.
const BATCH_BYTES: u64 = 32 << 20;

/// An export that is being written.
pub struct Export {
    directory: PathBuf,
    index: BufWriter<File>,
    /// Whole events, put together: how long each file is.
    joined: BTreeMap<(RunId, &'static str), u64>,
    /// The one of them that was written last.
    open: Option<((RunId, &'static str), BufWriter<File>)>,
    counts: Exported,
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

fn word_of(outcome: ReadOutcome) -> &'static str {
    if outcome == ReadOutcome::Unavailable { "unavailable" } else { LOST }
}

#[derive(Serialize)]
struct MissingLine {
    source: u32,
    bytes: u32,
    crc32c: String,
    /// `lost` or `unavailable`.
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
        let failed = |error| Failure::file("make", directory, &error, "nothing was exported; give another --export");
        fs::create_dir_all(directory).map_err(failed)?;
        if fs::read_dir(directory).map_err(failed)?.next().is_some() {
            return Err(Failure::usage(format!(
                "{} is not empty, and an export overwrites nothing; nothing was exported. Give --export a directory that is new or empty",
                directory.display()
            )));
        }
        let path = directory.join(INDEX_PART);
        let index = create(&path)?;
        let counts = Exported { directory: directory.display().to_string(), ..Exported::default() };
        let (joined, open) = (BTreeMap::new(), None);
        let mut export = Export { directory: directory.to_owned(), index: BufWriter::new(index), joined, open, counts };
        export.index_text(&format!("{{\"version\":1,\"store\":\"{store}\",\"events\":["))?;
        Ok(export)
    }

    /// Reads and writes events, and tells how many fragments and bytes are done.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn events(
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
        for fragment in &event.fragments {
            let (outcome, payload) = &pieces[&event.key.fragment(fragment.source)];
            // The lane has compared it; what goes into a file is compared once more.
            let is_right = *outcome == ReadOutcome::Found && crc32c(payload) == fragment.crc;
            if is_right {
                line.fragments.push(self.fragment(event.key, fragment, payload)?);
                right.push((fragment.source, payload));
            } else {
                let outcome = word_of(*outcome);
                self.counts.fragments_lost += u64::from(outcome == LOST);
                let (source, bytes, crc32c) = (fragment.source.0, fragment.bytes, hex(fragment.crc));
                line.missing.push(MissingLine { source, bytes, crc32c, outcome });
            }
        }
        self.counts.events += u64::from(!right.is_empty());
        let is_whole = line.missing.is_empty() && line.record_missing.is_none();
        self.counts.events_whole += u64::from(is_whole);
        self.counts.fragments_missing += line.missing.len() as u64;
        let bytes: u64 = right.iter().map(|(_, payload)| payload.len() as u64).sum();
        if is_whole
            && bytes <= EVENT_BYTES_MAX
            && let Ok((format, joined)) = join(&right)
        {
            line.joined = Some(self.append(event.key.run, format, &joined)?);
            self.counts.events_joined += 1;
        }
        self.index_line(&line)
    }

    fn fragment(&mut self, key: EventKey, fragment: &StoredFragment, payload: &[u8]) -> Result<FragmentLine, Failure> {
        let directory = format!("run{:08}/event{:012}", key.run.0, key.event.0);
        let file = format!("{directory}/{:08x}.bin", fragment.source.0);
        let directory = self.directory.join(directory);
        fs::create_dir_all(&directory).map_err(|error| failed("make", &directory, &error))?;
        let path = self.directory.join(&file);
        create(&path)?.write_all(payload).map_err(|error| failed("write", &path, &error))?;
        self.counts.fragments += 1;
        self.counts.bytes += payload.len() as u64;
        Ok(FragmentLine { source: fragment.source.0, bytes: fragment.bytes, crc32c: hex(fragment.crc), file })
    }

    /// Appends a whole event to the file of its run and format.
    fn append(&mut self, run: RunId, format: Format, bytes: &[u8]) -> Result<JoinedLine, Failure> {
        let key = (run, format.extension());
        let file = format!("run{:08}.{}", run.0, format.extension());
        let path = self.directory.join(&file);
        if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
            self.close_joined()?;
            let opened = match self.joined.contains_key(&key) {
                true => OpenOptions::new().append(true).open(&path).map_err(|error| failed("open", &path, &error))?,
                false => create(&path)?,
            };
            self.open = Some((key, BufWriter::new(opened)));
        }
        let offset = self.joined.entry(key).or_default();
        let line = JoinedLine { file, offset_bytes: *offset, bytes: bytes.len() as u64, crc32c: hex(crc32c(bytes)) };
        *offset += bytes.len() as u64;
        let (_, writer) = self.open.as_mut().expect("opened just now");
        writer.write_all(bytes).map_err(|error| failed("write", &path, &error))?;
        Ok(line)
    }

    fn close_joined(&mut self) -> Result<(), Failure> {
        let Some(((run, extension), mut writer)) = self.open.take() else { return Ok(()) };
        let path = self.directory.join(format!("run{:08}.{extension}", run.0));
        writer.flush().map_err(|error| failed("write", &path, &error))
    }

    fn index_line(&mut self, line: &EventLine) -> Result<(), Failure> {
        let separator = if self.counts.events_listed == 0 { "\n" } else { ",\n" };
        self.counts.events_listed += 1;
        let text = serde_json::to_string(line).expect("an event has string keys");
        self.index_text(&format!("{separator}{text}"))
    }

    fn index_text(&mut self, text: &str) -> Result<(), Failure> {
        let path = self.directory.join(INDEX_PART);
        self.index.write_all(text.as_bytes()).map_err(|error| failed("write", &path, &error))
    }

    /// Ends the index with what is not in it, makes everything durable, and gives the index its name.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn end(mut self, report: &Report) -> Result<Exported, Failure> {
        self.close_joined()?;
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
        self.index_text(&format!("\n],{}\n", &end[1..]))?;
        let (part, path) = (self.directory.join(INDEX_PART), self.directory.join(INDEX));
        let durable = |export: &mut Export| -> io::Result<()> {
            export.index.flush()?;
            let directory = File::open(&export.directory)?;
            // One call for the many small files, before the index vouches for them.
            rustix::fs::syncfs(&directory)?;
            fs::hard_link(&part, &path)?;
            fs::remove_file(&part)?;
            directory.sync_all()
        };
        durable(&mut self).map_err(|error| failed("write", &path, &error))?;
        Ok(self.counts)
    }
}

/// A file that is not there yet.
fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| failed("make", path, &error))
}

fn failed(action: &str, path: &Path, error: &io::Error) -> Failure {
    let meaning = "the export is not whole, and index.json.part lists what it has. The drives were not touched; give --export another directory, with room";
    Failure::file(action, path, error, meaning)
}
