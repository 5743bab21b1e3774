//! Where a recorder's directory holds an event: for whoever wants to know what became of it. Nothing is changed, and a recorder may work there
//! meanwhile.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this module looks into the directory of a recorder"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use forebay_rawdata::EventReader;
use forebay_types::{EventKey, StoreUuid, StreamName, crc32c};
use serde::Serialize;

use crate::journal::{self, JOURNAL_BYTES_MAX, Ledger};
use crate::names::{FileName, JOURNAL_NAME};
use crate::sidecar::{SIDECAR_BYTES_MAX, Sidecar};
use forebay_mover::events::parts::PartsReader;

/// How far the file of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// It is durable, and not proven yet: the store keeps its events.
    Written,
    /// It came back from the disk as it was written and its sidecar is there; the store keeps its events until they are released.
    Proven,
    /// It is proven, and the store released its events for this stream.
    Released,
    /// It did not come back as it was written: its events are recorded again.
    Withdrawn,
}

/// An event in a file of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventInFile {
    /// The stream.
    pub stream: StreamName,
    /// The store that it came from.
    pub store: StoreUuid,
    /// The file, by the name that it has now.
    pub path: PathBuf,
    /// How far it is.
    pub state: FileState,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Its Adler-32 and XXH3 (128 bits), in hexadecimal digits, as its sidecar says.
    pub adler32: String,
    /// See `adler32`.
    pub xxh3_128: String,
    /// Where the event lies in it; absent when the file is not there any more, or does not read so far.
    pub place: Option<EventPlace>,
}

/// Where an event lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EventPlace {
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The CRC32C of these bytes, as they are now.
    pub crc32c: u32,
}

/// What the directories of a recorder say of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundInFiles {
    /// Files that hold it.
    pub files: Vec<EventInFile>,
    /// The streams whose directories were looked at.
    pub streams: Vec<StreamName>,
    /// What could not be looked at, and why.
    pub problems: Vec<String>,
}

/// Looks for an event in the directories of all streams in `directory`, which a recorder was given (`--out`).
///
/// # Errors
/// When the directory itself cannot be read; what is wrong inside it is told in [`FoundInFiles::problems`].
pub fn find_event(directory: &Path, key: EventKey) -> io::Result<FoundInFiles> {
    let mut found = FoundInFiles::default();
    let mut streams: Vec<(StreamName, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        if let Some(stream) = name
            && path.join(JOURNAL_NAME).is_file()
        {
            streams.push((stream, path));
        }
    }
    streams.sort();
    for (stream, path) in streams {
        if let Err(problem) = look(&stream, &path, key, &mut found) {
            found.problems.push(format!("{}: {problem}", path.display()));
        }
        found.streams.push(stream);
    }
    Ok(found)
}

/// Looks into the directory of one stream; what it cannot look at.
fn look(stream: &StreamName, directory: &Path, key: EventKey, found: &mut FoundInFiles) -> Result<(), String> {
    let bytes = read(&directory.join(JOURNAL_NAME), JOURNAL_BYTES_MAX)?;
    let (lines, _torn) = journal::parse(&bytes).map_err(|error| error.to_string())?;
    let ledger = Ledger::new(lines);
    let names = names(directory).map_err(|error| error.to_string())?;
    let mut sidecars: BTreeMap<FileName, Sidecar> = BTreeMap::new();
    for file in names.iter().filter_map(|name| name.strip_suffix(".json")?.parse::<FileName>().ok()) {
        match sidecar(&directory.join(file.sidecar())) {
            Ok(sidecar) => drop(sidecars.insert(file, sidecar)),
            Err(problem) => found.problems.push(format!("{}: {problem}", directory.join(file.sidecar()).display())),
        }
    }
    for (file, sidecar) in ledger.written.iter().chain(&ledger.pending) {
        sidecars.entry(*file).or_insert_with(|| sidecar.clone());
    }
    for (file, sidecar) in sidecars {
        let Some(number) = number_in(&sidecar, key) else { continue };
        let state = match () {
            () if ledger.withdrawn.contains(&file) => FileState::Withdrawn,
            () if ledger.released.contains(&file) => FileState::Released,
            () if ledger.written.contains_key(&file) => FileState::Written,
            () => FileState::Proven,
        };
        let name = [file.to_string(), file.part(), file.bad()].into_iter().find(|name| names.contains(name));
        let path = directory.join(name.clone().unwrap_or_else(|| file.to_string()));
        let place = name.and_then(|_| place(&path, file, number));
        found.files.push(EventInFile {
            stream: stream.clone(),
            store: sidecar.store,
            path,
            state,
            file_bytes: sidecar.size,
            adler32: sidecar.adler32,
            xxh3_128: sidecar.xxh3_128,
            place,
        });
    }
    Ok(())
}

fn names(directory: &Path) -> io::Result<BTreeSet<String>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max { Err(format!("it has more than {bytes_max} bytes")) } else { Ok(bytes) }
}

fn sidecar(path: &Path) -> Result<Sidecar, String> {
    Sidecar::parse(&read(path, SIDECAR_BYTES_MAX)?).map_err(|error| error.to_string())
}

/// How many events stand before this one in the file.
fn number_in(sidecar: &Sidecar, key: EventKey) -> Option<u64> {
    if sidecar.run != key.run {
        return None;
    }
    let mut before = 0;
    for &[first, last] in &sidecar.event_ranges {
        if (first..=last).contains(&key.event.0) {
            return Some(before + key.event.0 - first);
        }
        before += last - first + 1;
    }
    None
}

/// Where the event behind so many others lies.
fn place(path: &Path, file: FileName, number: u64) -> Option<EventPlace> {
    let reader = BufReader::with_capacity(1 << 20, File::open(path).ok()?);
    let number = usize::try_from(number).ok()?;
    match file.kind.format() {
        Some(format) => {
            let mut events = EventReader::new(format, reader);
            let event = events.nth(number)?.ok()?;
            let bytes = event.bytes.len() as u64;
            Some(EventPlace { offset_bytes: events.offset() - bytes, bytes, crc32c: crc32c(&event.bytes) })
        }
        None => {
            let mut events = PartsReader::new(reader);
            let before = match number.checked_sub(1) {
                Some(last) => {
                    events.nth(last)?.ok()?;
                    events.offset()
                }
                None => 0,
            };
            let (key, parts) = events.next()?.ok()?;
            let fragments = parts.iter().map(|part| (part.source, part.outcome, part.bytes.as_slice()));
            let event = forebay_mover::events::parts::encode(key, fragments);
            Some(EventPlace { offset_bytes: before, bytes: events.offset() - before, crc32c: crc32c(&event) })
        }
    }
}
