//! The files of a lane: how many there are, and which of them these drives do not give whole.

use forebay_engine::StoredFile;
use forebay_store::LaneLook;
use forebay_types::{FileNumber, ReadOutcome};

use super::lane::{Context, Doubtful};
use super::names::StoredNames;
use super::report::{Contents, LISTED_MAX, Readable};
use crate::size::human_count;

/// Files that are held in memory at once.
const FILES_AT_ONCE: usize = 1024;

/// Counts the files of a lane, those included that keep the names of all others.
pub fn count(look: &mut LaneLook, contents: &mut Contents) {
    for_each_file(look, |_, file| {
        contents.files += 1;
        contents.file_bytes = contents.file_bytes.saturating_add(file.bytes);
    });
}

/// Reads every file through of which something lies in a flush that may be out of reach, as a server would.
pub fn read_doubtful(look: &mut LaneLook, readable: &mut Readable, doubtful: &Doubtful, context: &Context<'_>) {
    let mut progress = context.output.progress(0, "reading {spinner} {msg}");
    let mut read = 0u64;
    for_each_file(look, |look, file| {
        let is_doubtful = file.flushes.iter().any(|place| place.1.is_none() || doubtful.contains(place));
        if !is_doubtful {
            return;
        }
        if let Err((offset, outcome)) = look.read_file(file.file) {
            readable.note_file(&StoredNames::words(context.names, file.file), offset, outcome);
        }
        read += 1;
        progress.update(0, || format!("{} files with damaged flushes read", human_count(read)));
    });
}

fn for_each_file(look: &mut LaneLook, mut each: impl FnMut(&mut LaneLook, &StoredFile)) {
    let mut from = Some(FileNumber(0));
    while let Some(first) = from {
        let files = look.lane().stored_files(first, FILES_AT_ONCE);
        from = files.last().and_then(|last| last.file.0.checked_add(1)).map(FileNumber);
        files.iter().for_each(|file| each(look, file));
    }
}

impl Readable {
    /// A file that cannot be read from a byte on.
    fn note_file(&mut self, file: &str, offset: u64, outcome: ReadOutcome) {
        let (list, files) = match outcome {
            ReadOutcome::Unavailable => (&mut self.unavailable, &mut self.files_unavailable),
            _ => (&mut self.lost, &mut self.files_lost),
        };
        *files += 1;
        if list.len() < LISTED_MAX {
            list.push(format!("{file}, from byte {offset} on"));
        } else {
            self.left_out += 1;
        }
    }
}
