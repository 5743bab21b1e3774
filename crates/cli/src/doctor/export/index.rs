//! Files that grow by whole pieces, and lists in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;

/// A file that grows by whole pieces: a piece for which there is no room leaves nothing behind.
pub(super) struct Whole {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Whole {
    pub(super) fn append(&mut self, piece: &[u8]) -> Result<(), Failure> {
        if let Err(error) = self.file.write_all(piece) {
            // What was there before counts; when the rest cannot be cut off, the list tells where it begins.
            let _ = self.file.set_len(self.bytes);
            return Err(failed("write", &self.path, &error));
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }
}

/// One object, with a list that is written line by line. Until it is whole its name ends in `.part`.
pub(super) struct Index {
    whole: Whole,
    path: PathBuf,
    pub(super) lines: u64,
}

impl Index {
    /// Begins one with these keys; `list` is that of the list.
    pub(super) fn begin(path: &Path, head: &Value, list: &str) -> Result<Index, Failure> {
        let part = path.with_extension("json.part");
        let mut whole = Whole { file: create(&part)?, path: part, bytes: 0 };
        let head = head.to_string();
        whole.append(format!("{},\"{list}\":[", head.trim_end_matches('}')).as_bytes())?;
        Ok(Index { whole, path: path.to_owned(), lines: 0 })
    }

    pub(super) fn line(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let separator = if self.lines == 0 { "\n" } else { ",\n" };
        let text = serde_json::to_string(line).expect("it has string keys");
        self.whole.append(format!("{separator}{text}").as_bytes())?;
        self.lines += 1;
        Ok(())
    }

    /// Ends the list; behind it come these keys.
    pub(super) fn end(&mut self, behind: &Value) -> Result<(), Failure> {
        self.whole.append(format!("\n],{}\n", &behind.to_string()[1..]).as_bytes())
    }

    /// Gives it its name. All that it tells of must be durable.
    pub(super) fn name(&self) -> Result<(), Failure> {
        rename_to_new(&self.whole.path, &self.path).map_err(|error| failed("write", &self.path, &error))
    }
}

/// A file that is not there yet.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| failed("make", path, &error))
}

/// Renames something; nothing that is there gives way.
pub(super) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
        Err(error) => Err(error),
    }
}

/// What happened; [`super::Export::end`] says what it means.
pub(super) fn failed(action: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::file(action, path, error, "");
    Failure { message: failure.message.trim_end_matches("; ").to_owned(), ..failure }
}
