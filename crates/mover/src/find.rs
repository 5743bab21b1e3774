//! Where an event lies in a directory that files were moved to, by their sidecars: for whoever wants to know what became of it. Nothing is changed, and a
//! mover may work there meanwhile.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this module looks into a directory that files were moved to"
)]

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use forebay_rawdata::{EventReader, Format};
use forebay_types::{EventKey, StoreUuid, StreamName, crc32c};
use serde::Serialize;
use walkdir::WalkDir;

use crate::events::EventKind;
use crate::events::parts::{self, PartsReader};
use crate::sidecar::{SIDECAR_BYTES_MAX, Sidecar};

/// Directories below each other that are looked into.
const DEPTH_MAX: usize = 64;

/// An event in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventInFile {
    /// The stream, of a file of accepted events.
    pub stream: Option<StreamName>,
    /// The store that it came from, of such a file.
    pub store: Option<StoreUuid>,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Its Adler-32, in hexadecimal digits, as its sidecar says.
    pub adler32: String,
    /// Whether the event lacks fragments there.
    pub is_incomplete: bool,
    /// Where the event lies in it; absent when the file is not there any more, is compressed, or does not read so far.
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

/// What a directory says of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundInFiles {
    /// Files that hold it.
    pub files: Vec<EventInFile>,
    /// How many sidecars were looked at.
    pub sidecars: u64,
    /// What could not be looked at, and why.
    pub problems: Vec<String>,
}

/// The sidecars below a directory, in the order of their paths: each, or the path of what cannot be looked at, and why. Names that begin with a dot are left out.
///
/// # Errors
/// When the directory itself cannot be read.
pub fn sidecars(
    directory: &Path,
) -> io::Result<impl Iterator<Item = Result<(PathBuf, Sidecar), (PathBuf, String)>> + use<>> {
    std::fs::read_dir(directory)?;
    let is_hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    let walk = WalkDir::new(directory).min_depth(1).max_depth(DEPTH_MAX).sort_by_file_name().into_iter();
    let entries = walk.filter_entry(move |entry| !is_hidden(entry.file_name()));
    Ok(entries.filter_map(|entry| match entry {
        Err(error) => Some(Err((error.path().map_or_else(PathBuf::new, Path::to_path_buf), error.to_string()))),
        Ok(entry) if !entry.file_type().is_file() || entry.path().extension().is_none_or(|ending| ending != "json") => {
            None
        }
        Ok(entry) => {
            let path = entry.into_path();
            Some(read(&path).map(|sidecar| (path.clone(), sidecar)).map_err(|problem| (path, problem)))
        }
    }))
}

fn read(path: &Path) -> Result<Sidecar, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(SIDECAR_BYTES_MAX).read_to_end(&mut text).map_err(|error| error.to_string())?;
    Sidecar::parse(&text).map_err(|error| error.to_string())
}

/// Looks for an event in the files below a directory that have sidecars.
///
/// # Errors
/// When the directory itself cannot be read; what is wrong inside it is told in [`FoundInFiles::problems`].
pub fn find_event(directory: &Path, key: EventKey) -> io::Result<FoundInFiles> {
    let mut found = FoundInFiles::default();
    for sidecar in sidecars(directory)? {
        match sidecar {
            Err((path, problem)) => found.problems.push(format!("{}: {problem}", path.display())),
            Ok((path, sidecar)) => {
                found.sidecars += 1;
                let Some(number) = sidecar.place_of(key) else { continue };
                let path = path.with_extension("");
                found.files.push(EventInFile {
                    is_incomplete: sidecar.is_incomplete(key),
                    place: place(&path, &sidecar, number),
                    stream: sidecar.stream,
                    store: sidecar.store,
                    path,
                    file_bytes: sidecar.bytes,
                    adler32: sidecar.adler32,
                });
            }
        }
    }
    Ok(found)
}

/// Where the event behind so many others lies.
fn place(path: &Path, sidecar: &Sidecar, number: u64) -> Option<EventPlace> {
    if sidecar.compression.is_some() {
        return None;
    }
    let reader = BufReader::with_capacity(1 << 20, File::open(path).ok()?);
    let number = usize::try_from(number).ok()?;
    match EventKind::from_name(&sidecar.format)?.format() {
        Some(format) => of_a_format(format, reader, number),
        None => {
            let mut events = PartsReader::new(reader);
            if let Some(last) = number.checked_sub(1) {
                events.nth(last)?.ok()?;
            }
            let before = events.offset();
            let (key, parts) = events.next()?.ok()?;
            let fragments = parts.iter().map(|part| (part.source, part.outcome, part.bytes.as_slice()));
            let event = parts::encode(key, fragments);
            Some(EventPlace { offset_bytes: before, bytes: events.offset() - before, crc32c: crc32c(&event) })
        }
    }
}

fn of_a_format(format: Format, reader: impl Read, number: usize) -> Option<EventPlace> {
    let mut events = EventReader::new(format, reader);
    let event = events.nth(number)?.ok()?;
    let bytes = event.bytes.len() as u64;
    Some(EventPlace { offset_bytes: events.offset() - bytes, bytes, crc32c: crc32c(&event.bytes) })
}
