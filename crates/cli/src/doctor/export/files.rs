//! Files of the store and their directories, under their names.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use forebay_client::files::escape;
use forebay_engine::FileView;
use forebay_store::LaneLook;
use forebay_types::{Attributes, FileNumber, NodeKind, ReadOutcome, crc32c, crc32c_of_both};
use serde::Serialize;

use super::index::{Index, create, failed, rename_to_new};
use super::{LOST, NOT_WRITTEN, word_of};
use crate::doctor::names::StoredNames;
use crate::doctor::report::Exported;
use crate::failure::Failure;
use crate::file::kind_word;
use crate::size::hex;

/// Under the directory of the export: what has a path there, what has none that the file system takes, and what is being written.
const NAMED: &str = "files";
const BY_NUMBER: &str = "files-by-number";
const PART: &str = "file.part";
const LIST: &str = "files.json";

/// What has a name, or is a file.
#[derive(Serialize)]
struct Line {
    /// `file`, `directory`, `link`, `pipe`, `socket`, `character-device` or `block-device`.
    kind: &'static str,
    number: u64,
    /// Every path of it in the store.
    paths: Vec<String>,
    /// Where it is in the export; absent when it is not.
    file: Option<String>,
    mode: String,
    owner: u32,
    group: u32,
    /// Of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Of a device: its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u64>,
    /// Of a file.
    #[serde(flatten)]
    content: Option<Content>,
}

/// What a file holds.
#[derive(Default, Serialize)]
struct Content {
    sealed: bool,
    bytes: u64,
    written_unix_ns: i64,
    /// Of all of it, when all of it was written.
    crc32c: Option<String>,
    /// What could not be read: zeros stand for it.
    missing: Vec<Missing>,
    /// Something newer of it may be `lost` or `unavailable`.
    maybe_outdated: Option<&'static str>,
}

#[derive(Serialize)]
struct Missing {
    offset_bytes: u64,
    bytes: u64,
    /// `lost`, `unavailable`, or `not-written` of a file that is too large for the file system here.
    outcome: &'static str,
}

impl Content {
    /// A piece that could not be read.
    fn miss(&mut self, offset_bytes: u64, bytes: u64, outcome: &'static str) {
        match self.missing.last_mut() {
            Some(last) if last.outcome == outcome && last.offset_bytes + last.bytes == offset_bytes => {
                last.bytes += bytes;
            }
            _ => self.missing.push(Missing { offset_bytes, bytes, outcome }),
        }
    }

    /// Why not all of it is there as it was.
    fn trouble(&self) -> Option<&'static str> {
        let outcomes = self.missing.iter().map(|missing| missing.outcome).chain(self.maybe_outdated);
        outcomes.min_by_key(|outcome| *outcome != LOST)
    }
}

/// Files that are being exported.
pub(super) struct FilesExport {
    directory: PathBuf,
    list: Index,
}

impl FilesExport {
    pub(super) fn begin(directory: &Path, store: &str) -> Result<FilesExport, Failure> {
        let head = serde_json::json!({ "version": 1, "store": store });
        let list = Index::begin(&directory.join(LIST), &head, "entries")?;
        Ok(FilesExport { directory: directory.to_owned(), list })
    }

    /// What has a name and holds no bytes.
    pub(super) fn names(&mut self, names: &StoredNames) -> Result<(), Failure> {
        for (number, path) in names.directories() {
            let place = self.directory.join(in_tree(&path));
            let file = is_made(fs::create_dir_all(&place), &place)?.then(|| shown(&path));
            let attributes = names.view(number).attributes;
            self.list.line(&Line { file, ..line("directory", number, &[path], &attributes) })?;
        }
        for (number, path) in names.others() {
            let view = names.view(number);
            let mut line = line(kind_word(view.kind), number, std::slice::from_ref(&path), &view.attributes);
            line.device = matches!(view.kind, NodeKind::CharacterDevice | NodeKind::BlockDevice).then_some(view.device);
            if view.kind == NodeKind::Link {
                let place = self.directory.join(in_tree(&path));
                let made = make_parent(&place).and_then(|()| symlink(OsStr::from_bytes(&view.target), &place));
                let file = is_made(made, &place)?.then(|| shown(&path));
                line = Line { file, target: Some(escape(&view.target)), ..line };
            }
            self.list.line(&line)?;
        }
        Ok(())
    }

    /// A file of which the lane knows something.
    pub(super) fn file(
        &mut self,
        look: &mut LaneLook,
        (number, view): (FileNumber, FileView),
        names: Option<&StoredNames>,
        counts: &mut Exported,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let part = self.directory.join(PART);
        let content = write_part(&part, look, (number, view), progress);
        match content.inspect_err(|_| drop(fs::remove_file(&part))) {
            Ok(content) => {
                let file = self.place(&part, number, names, view.written_unix_ns)?;
                self.tell(number, names, Some(file), content, counts)
            }
            Err(WriteError::TooLarge) => {
                let FileView { length: bytes, sealed, written_unix_ns, .. } = view;
                let mut content = Content { bytes, sealed, written_unix_ns, ..Content::default() };
                content.miss(0, bytes, NOT_WRITTEN);
                self.tell(number, names, None, content, counts)
            }
            Err(WriteError::Stopped(failure)) => Err(failure),
        }
    }

    /// A file of which the lane knows nothing: it is empty, or what it held cannot be read.
    pub(super) fn unknown_file(
        &mut self,
        number: FileNumber,
        outcome: ReadOutcome,
        names: &StoredNames,
        counts: &mut Exported,
    ) -> Result<(), Failure> {
        let written_unix_ns = names.view(number).attributes.written_unix_ns;
        let mut content = Content { written_unix_ns, ..Content::default() };
        if outcome != ReadOutcome::NotFound {
            content.maybe_outdated = Some(word_of(outcome));
            return self.tell(number, Some(names), None, content, counts);
        }
        content.crc32c = Some(hex(crc32c(b"")));
        let part = self.directory.join(PART);
        create(&part)?;
        let file = self.place(&part, number, Some(names), written_unix_ns)?;
        self.tell(number, Some(names), Some(file), content, counts)
    }

    /// Gives what was written its names, and says where it is: what the file system here does not take as a name is found by its number.
    fn place(
        &self,
        part: &Path,
        number: FileNumber,
        names: Option<&StoredNames>,
        written_unix_ns: i64,
    ) -> Result<String, Failure> {
        let paths = names.map(|names| names.paths(number)).unwrap_or_default();
        let mode = names.filter(|_| !paths.is_empty()).map(|names| names.view(number).attributes.mode);
        // Whoever cannot set them has the list.
        let _ = set_written(part, written_unix_ns);
        let _ = fs::set_permissions(part, fs::Permissions::from_mode(u32::from(mode.unwrap_or(0o600)) & 0o777));
        let mut file: Option<(&Vec<u8>, PathBuf)> = None;
        for path in &paths {
            let place = self.directory.join(in_tree(path));
            match &file {
                Some((_, first)) => drop(make_parent(&place).and_then(|()| fs::hard_link(first, &place))),
                None if is_made(make_parent(&place).and_then(|()| rename_to_new(part, &place)), &place)? => {
                    file = Some((path, place));
                }
                None => {}
            }
        }
        if let Some((path, _)) = file {
            return Ok(shown(path));
        }
        let place = self.directory.join(BY_NUMBER).join(number.0.to_string());
        let placed = make_parent(&place).and_then(|()| rename_to_new(part, &place));
        placed.map_err(|error| failed("make", &place, &error))?;
        Ok(format!("{BY_NUMBER}/{}", number.0))
    }

    fn tell(
        &mut self,
        number: FileNumber,
        names: Option<&StoredNames>,
        file: Option<String>,
        content: Content,
        counts: &mut Exported,
    ) -> Result<(), Failure> {
        let paths = names.map(|names| names.paths(number)).unwrap_or_default();
        let attributes = names.filter(|_| !paths.is_empty()).map(|names| names.view(number).attributes);
        let missing: u64 = content.missing.iter().map(|missing| missing.bytes).sum();
        let trouble = content.trouble();
        counts.files += u64::from(trouble.is_none());
        counts.file_bytes += if file.is_some() { content.bytes - missing } else { 0 };
        counts.files_lost += u64::from(trouble == Some(LOST));
        counts.files_unavailable += u64::from(trouble.is_some_and(|trouble| trouble != LOST));
        let line = line("file", number, &paths, &attributes.unwrap_or_default());
        self.list.line(&Line { file, content: Some(content), ..line })
    }

    /// Ends the list.
    pub(super) fn end(&mut self, counts: &Exported) -> Result<(), Failure> {
        self.list.end(&serde_json::json!({
            "files": counts.files,
            "file_bytes": counts.file_bytes,
            "files_lost": counts.files_lost,
            "files_unavailable": counts.files_unavailable,
        }))
    }

    pub(super) fn name(&self) -> Result<(), Failure> {
        self.list.name()
    }
}

fn line(kind: &'static str, number: FileNumber, paths: &[Vec<u8>], attributes: &Attributes) -> Line {
    Line {
        kind,
        number: number.0,
        paths: paths.iter().map(|path| escape(path)).collect(),
        file: None,
        mode: format!("{:04o}", attributes.mode),
        owner: attributes.owner,
        group: attributes.group,
        target: None,
        device: None,
        content: None,
    }
}

/// Writes what can be read of a file; of what cannot, zeros. Nothing is written of a hole.
fn write_part(
    part: &Path,
    look: &mut LaneLook,
    (number, view): (FileNumber, FileView),
    progress: &mut dyn FnMut(u64),
) -> Result<Content, WriteError> {
    let hidden = look.lane().outcome_of_unknown_file(number);
    let mut content = Content {
        sealed: view.sealed,
        bytes: view.length,
        written_unix_ns: view.written_unix_ns,
        maybe_outdated: (hidden != ReadOutcome::NotFound).then(|| word_of(hidden)),
        ..Content::default()
    };
    let mut file = create(part).map_err(WriteError::Stopped)?;
    file.set_len(view.length).map_err(|error| WriteError::of(part, error))?;
    let (mut at, mut crc) = (0, crc32c(b""));
    while let Some((piece_end, is_hole)) = look.lane().piece_at(number, at) {
        if is_hole {
            crc = crc32c_of_both(crc, crc32c_of_zeros(piece_end - at), piece_end - at);
            at = piece_end;
            continue;
        }
        let (outcome, bytes) = look.rescue_file(number, at);
        if outcome != ReadOutcome::Found || bytes.is_empty() {
            content.miss(at, piece_end - at, if outcome == ReadOutcome::Found { LOST } else { word_of(outcome) });
            at = piece_end;
            continue;
        }
        crc = crc32c_of_both(crc, crc32c(&bytes), bytes.len() as u64);
        let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&bytes));
        written.map_err(|error| WriteError::of(part, error))?;
        at += bytes.len() as u64;
        progress(bytes.len() as u64);
    }
    if view.sums.is_some_and(|(sealed_crc, _)| sealed_crc != crc) && content.missing.is_empty() {
        content.miss(0, view.length, LOST);
    }
    content.crc32c = content.missing.is_empty().then(|| hex(crc));
    Ok(content)
}

/// The CRC32C of so many zeros: twice as many have that of both halves.
fn crc32c_of_zeros(bytes: u64) -> u32 {
    let (mut crc, mut power, mut power_bytes) = (crc32c(b""), crc32c(&[0]), 1);
    while power_bytes <= bytes {
        if bytes & power_bytes != 0 {
            crc = crc32c_of_both(crc, power, power_bytes);
        }
        power = crc32c_of_both(power, power, power_bytes);
        power_bytes *= 2;
    }
    crc
}

/// Why a file was not written.
enum WriteError {
    /// Nothing more can be.
    Stopped(Failure),
    /// The file system here has none that are so large.
    TooLarge,
}

impl WriteError {
    fn of(path: &Path, error: io::Error) -> WriteError {
        match error.kind() {
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => WriteError::TooLarge,
            _ => WriteError::Stopped(failed("write", path, &error)),
        }
    }
}

fn set_written(path: &Path, written_unix_ns: i64) -> io::Result<()> {
    let since = Duration::from_nanos(written_unix_ns.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let written = if written_unix_ns < 0 { epoch.checked_sub(since) } else { epoch.checked_add(since) };
    let Some(written) = written else { return Ok(()) };
    File::open(path)?.set_times(FileTimes::new().set_modified(written))
}

fn make_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Whether something was made under its name, and not refused by the file system as one that it does not take: too long, there already but for its case, a kind it does not know.
fn is_made(made: io::Result<()>, place: &Path) -> Result<bool, Failure> {
    match made {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem => {
                Err(failed("make", place, &error))
            }
            _ => Ok(false),
        },
    }
}

/// Where a path of the store is in the export.
fn in_tree(path: &[u8]) -> PathBuf {
    Path::new(NAMED).join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
}

fn shown(path: &[u8]) -> String {
    format!("{NAMED}{}", escape(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_zeros_is_that_of_zeros() {
        for bytes in [0, 1, 2, 3, 7, 4096, 100_001] {
            assert_eq!(crc32c_of_zeros(bytes), crc32c(&vec![0; bytes as usize]), "{bytes}");
        }
        assert_ne!(crc32c_of_zeros(1 << 48), crc32c_of_zeros((1 << 48) - 1));
    }
}
