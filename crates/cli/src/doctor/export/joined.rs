//! The files of whole events of an export: one for each run and format.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use forebay_rawdata::{Container, Format};
use forebay_types::{RunId, crc32c};
use serde::Serialize;

use super::index::{Whole, create, failed};
use crate::failure::Failure;
use crate::size::hex;

/// Where an event lies, in the index.
#[derive(Serialize)]
pub(super) struct JoinedLine {
    file: String,
    offset_bytes: u64,
    bytes: u64,
    crc32c: String,
}

/// What names a file: its run and how it ends.
type Key = (RunId, &'static str);

struct JoinedFile {
    container: Container,
    /// Its length so far, with all that is no event.
    bytes: u64,
    events: u64,
    event_bytes: u64,
}

/// The files of whole events.
pub(super) struct JoinedFiles {
    directory: PathBuf,
    files: BTreeMap<Key, JoinedFile>,
    /// The one of them that was written last.
    open: Option<(Key, Whole)>,
}

impl JoinedFiles {
    pub(super) fn new(directory: &Path) -> JoinedFiles {
        JoinedFiles { directory: directory.to_owned(), files: BTreeMap::new(), open: None }
    }

    /// Appends an event to the file of its run and format.
    pub(super) fn append(&mut self, run: RunId, format: Format, bytes: &[u8]) -> Result<JoinedLine, Failure> {
        let key = (run, format.extension());
        let is_new = !self.files.contains_key(&key);
        let file = self.files.entry(key).or_insert_with(|| {
            let container = Container::new(format, run, 0);
            JoinedFile { container, bytes: 0, events: 0, event_bytes: 0 }
        });
        if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
            let mut whole = open(self.directory.join(name(key)), file.bytes, is_new)?;
            if is_new {
                whole.append(&file.container.head())?;
            }
            self.open = Some((key, whole));
        }
        let (_, whole) = self.open.as_mut().expect("opened just now");
        let event_bytes = bytes.len() as u64;
        whole.append(&file.container.before_event(file.events, event_bytes))?;
        let offset_bytes = whole.bytes;
        whole.append(bytes)?;
        file.bytes = whole.bytes;
        file.events += 1;
        file.event_bytes += event_bytes;
        Ok(JoinedLine { file: name(key), offset_bytes, bytes: event_bytes, crc32c: hex(crc32c(bytes)) })
    }

    /// Ends the files as their formats end.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        for (key, file) in &self.files {
            let tail = file.container.tail(file.events, file.event_bytes);
            if !tail.is_empty() {
                open(self.directory.join(name(*key)), file.bytes, false)?.append(&tail)?;
            }
        }
        Ok(())
    }
}

fn name((run, extension): Key) -> String {
    format!("run{:08}.{extension}", run.0)
}

/// Opens a file, of so many bytes, to append to it.
fn open(path: PathBuf, bytes: u64, is_new: bool) -> Result<Whole, Failure> {
    let file = match is_new {
        true => create(&path)?,
        false => OpenOptions::new().append(true).open(&path).map_err(|error| failed("open", &path, &error))?,
    };
    Ok(Whole { file, path, bytes })
}
