//! A directory that files are moved from, with the habits of data acquisition: a file is complete when its `.json` is there, or when nobody touched it for a
//! while; what was moved is renamed, or removed.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this module does what the machines ask for")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use forebay_rawdata::EventReader;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use walkdir::WalkDir;

use super::{Locks, rename_without_replacing};
use crate::custody::{Part, PartIdentity, SourceAnswer};
use crate::endpoint::{Content, Moved, Source};
use crate::machine::{Kind, LeftAlone, Scanned, Seen};
use crate::name::Name;
use crate::recipe::{DETECTED_BYTES, Form, format_of};

const BLOCK_BYTES: usize = 1 << 20;
/// More streams than that are read at once by few.
const SPARE_BLOCKS_MAX: usize = 16;
/// What a name ends in when its file was moved.
const COPIED: &str = ".copied";
/// What a name ends in that its writer has not given yet.
const UNFINISHED: [&str; 3] = [".part", ".tmp", ".lock"];
/// The longest last part of a name on most file systems.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Names `X.2.copied` and on are tried when there is an `X.copied` already.
const COPIED_MAX: u32 = 1000;
/// So much of a `.json` beside a file is read.
const SAID_BYTES_MAX: u64 = 1 << 20;

/// What becomes of a file that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// It gets `.copied` behind its name.
    Rename,
    /// It is removed.
    Remove,
}

/// A directory as a source. It is locked for as long as this or its lock lives: a second mover on the same machine is refused.
#[derive(Debug)]
pub struct DirectorySource {
    path: PathBuf,
    root: File,
    disposal: Disposal,
    /// Where files are merged: what is in each that was seen last, so that it is looked at once.
    kinds: Option<Mutex<BTreeMap<Name, (PartIdentity, Kind)>>>,
    blocks: Blocks,
}

/// Blocks that nothing is read into now: of many small files the memory for each would take as long as the file.
#[derive(Debug, Default)]
struct Blocks(Mutex<Vec<Vec<u8>>>);

impl Blocks {
    fn take(&self) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![0; BLOCK_BYTES])
    }

    fn give_back(&self, block: Vec<u8>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BLOCKS_MAX {
            spare.push(block);
        }
    }
}

impl DirectorySource {
    /// Opens the directory and locks it, by one of the locks that are held already if that is so.
    ///
    /// # Errors
    /// What the operating system says; `WouldBlock` when another mover has it.
    pub fn open(path: &Path, disposal: Disposal, locks: &mut Locks) -> io::Result<DirectorySource> {
        let root = locks.lock(path)?;
        Ok(DirectorySource { path: path.to_owned(), root, disposal, kinds: None, blocks: Blocks::default() })
    }

    /// Looks into files, too, for what they may be merged with.
    #[must_use]
    pub fn with_kinds(self) -> DirectorySource {
        DirectorySource { kinds: Some(Mutex::default()), ..self }
    }

    /// What is in the files that were found.
    fn look_into(&self, found: &mut [Seen], moved: &dyn Moved) {
        let Some(kinds) = &self.kinds else { return };
        let mut before = std::mem::take(&mut *kinds.lock().unwrap_or_else(PoisonError::into_inner));
        let mut after = BTreeMap::new();
        for seen in found {
            let known = before.remove(&seen.name).filter(|(identity, _)| *identity == seen.identity);
            seen.kind = known.map_or_else(|| self.kind_of(&seen.name), |(_, kind)| kind);
            after.insert(seen.name.clone(), (seen.identity, seen.kind));
            moved.moved(0);
        }
        *kinds.lock().unwrap_or_else(PoisonError::into_inner) = after;
    }

    fn kind_of(&self, name: &Name) -> Kind {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = openat(&self.root, name.as_str(), flags, Mode::empty()) else { return Kind::Unclear };
        let mut first = [0; DETECTED_BYTES];
        match rustix::io::pread(&file, &mut first, 0).map(|read| format_of(name, &first[..read])) {
            Err(_) => Kind::Unclear,
            Ok(None) => Kind::File,
            Ok(Some(format)) => match EventReader::new(format, BufReader::new(File::from(file))).next() {
                Some(Ok(event)) => Kind::Events { run: event.key.run, form: Form::of_events(format) },
                _ => Kind::Unclear,
            },
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open_part(&self, part: &Part) -> Result<File, SourceAnswer> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = openat(&self.root, part.name.as_str(), flags, Mode::empty());
        let file = opened.map(File::from).map_err(|error| self.answer("open", part, &error.into()))?;
        self.compare(part, &file)?;
        Ok(file)
    }

    /// That it is still what was found.
    fn compare(&self, part: &Part, file: &File) -> Result<(), SourceAnswer> {
        let metadata = file.metadata().map_err(|error| self.answer("look at", part, &error))?;
        let now = identity(&metadata);
        if now == part.identity && metadata.is_file() {
            Ok(())
        } else {
            Err(SourceAnswer::Changed(self.difference(part, &now)))
        }
    }

    fn difference(&self, part: &Part, now: &PartIdentity) -> String {
        let what = if now.inode != part.identity.inode {
            "another file has its name now".to_owned()
        } else if now.bytes != part.identity.bytes {
            format!("it had {} bytes and has {}", part.identity.bytes, now.bytes)
        } else {
            "it was written since".to_owned()
        };
        format!("{} is not what was found: {what}", self.path_of(part.name.as_str()).display())
    }

    fn answer(&self, action: &str, part: &Part, error: &io::Error) -> SourceAnswer {
        let words = format!("{action} {}: {error}", self.path_of(part.name.as_str()).display());
        if error.kind() == io::ErrorKind::NotFound { SourceAnswer::Changed(words) } else { SourceAnswer::NotNow(words) }
    }

    /// That the path still leads to the directory that was opened: what is not in another one is not gone.
    fn check_root(&self) -> Result<(), String> {
        let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let (opened, now) = (self.root.metadata().map(place), fs::metadata(&self.path).map(place));
        match (opened, now) {
            (Ok(opened), Ok(now)) if opened == now => Ok(()),
            (_, Err(error)) | (Err(error), _) => Err(format!("look at {}: {error}", self.path.display())),
            _ => Err(format!(
                "another directory has the path {} since the mover was started (something was mounted there, or is no longer?); start it again when the right one is there",
                self.path.display()
            )),
        }
    }

    fn look(&self, part: &Part) -> Result<Look, SourceAnswer> {
        let name = part.name.as_str();
        self.check_root().map_err(SourceAnswer::NotNow)?;
        let metadata = match fs::symlink_metadata(self.path_of(name)) {
            // Whoever took it away since took what was proven.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
            Err(error) => return Err(self.answer("look at", part, &error)),
            Ok(metadata) => metadata,
        };
        let now = identity(&metadata);
        // A file that came later under the same name; this one is gone already.
        if now.inode != part.identity.inode {
            tracing::info!(
                "{} is another file than the one that was moved, and was left alone: it is moved by itself",
                self.path_of(name).display()
            );
            return Ok(Look::Gone);
        }
        if now != part.identity {
            return Err(SourceAnswer::Changed(format!(
                "{}, after its bytes were proven to be at the destinations; it was not released",
                self.difference(part, &now)
            )));
        }
        Ok(Look::Same { touched: changed_ns(&metadata) != part.changed_ns })
    }

    fn release_part(&self, part: &Part) -> Result<(), SourceAnswer> {
        let name = part.name.as_str();
        let done = match self.disposal {
            Disposal::Remove => fs::remove_file(self.path_of(name)),
            Disposal::Rename => self.rename(name),
        };
        done.and_then(|()| self.sync_parent(name)).map_err(|error| match error.kind() {
            // Waiting makes no name shorter.
            io::ErrorKind::InvalidFilename => SourceAnswer::Damaged(format!(
                "{} is proven, and its name is too long for {COPIED} behind it. Start the mover with --remove, or rename the file; then retry",
                self.path_of(name).display()
            )),
            _ => self.answer("release", part, &error),
        })
    }

    fn rename(&self, name: &str) -> io::Result<()> {
        for number in 1..COPIED_MAX {
            let to = if number == 1 { format!("{name}{COPIED}") } else { format!("{name}.{number}{COPIED}") };
            match rename_without_replacing(&self.root, name, &to) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => return renamed,
            }
        }
        Err(io::Error::other(format!("there are {COPIED_MAX} files of this name that end in {COPIED}: remove some")))
    }

    fn sync_parent(&self, name: &str) -> io::Result<()> {
        let path = self.path_of(name);
        File::open(path.parent().expect("it lies below a directory"))?.sync_all()
    }
}

fn changed_ns(metadata: &Metadata) -> i64 {
    metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec())
}

fn identity(metadata: &Metadata) -> PartIdentity {
    let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    PartIdentity { bytes: metadata.len(), modified_ns, inode: metadata.ino() }
}

fn is_not_found(error: &walkdir::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// What could not be looked at. Every file system of some kinds has a directory for what its repair finds, which is nobody's.
fn unreadable(error: &walkdir::Error) -> Option<LeftAlone> {
    let path = error.path()?;
    let is_data = !(error.depth() == 1 && path.ends_with("lost+found"));
    let cause = error.io_error().map_or("it leads round".to_owned(), io::Error::to_string);
    let why = format!("it cannot be looked at: {cause}. Let this user read it and what it lies in");
    Some(LeftAlone { name: path.display().to_string(), why, is_data })
}

/// Whether a name is one that is never moved.
fn is_left_alone(file: &str) -> bool {
    file.starts_with('.') || file.ends_with(COPIED) || UNFINISHED.iter().any(|ending| file.ends_with(ending))
}

impl Source for DirectorySource {
    fn scan(&self, moved: &dyn Moved) -> Result<Scanned, String> {
        self.check_root()?;
        let (mut found, mut left_alone) = (Vec::new(), Vec::new());
        let now = SystemTime::now();
        let walk = WalkDir::new(&self.path).min_depth(1).follow_links(false).into_iter();
        for entry in walk.filter_entry(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".")) {
            let entry = match entry {
                Ok(entry) => entry,
                // Taken away meanwhile.
                Err(error) if error.depth() > 0 && is_not_found(&error) => continue,
                Err(error) if error.depth() > 0 => {
                    left_alone.extend(unreadable(&error));
                    continue;
                }
                Err(error) => return Err(format!("look into {}: {error}", self.path.display())),
            };
            if !moved.moved(0) {
                return Err("the mover ends".to_owned());
            }
            let (is_data, is_directory) = (entry.file_type().is_file(), entry.file_type().is_dir());
            let relative = entry.path().strip_prefix(&self.path).expect("it lies below");
            let name = match relative.to_str().map(str::parse::<Name>) {
                _ if is_directory => continue,
                Some(Ok(name)) if is_data => name,
                named => {
                    let why = match named {
                        Some(Ok(_)) => "it is no file, but a link or something else",
                        Some(Err(_)) => {
                            "its name has control characters or is too long: no destination could be asked for it. Rename it"
                        }
                        None => "its name is no UTF-8: no destination could be asked for it. Rename it",
                    };
                    left_alone.push(LeftAlone {
                        name: entry.path().display().to_string(),
                        why: why.to_owned(),
                        is_data,
                    });
                    continue;
                }
            };
            if is_left_alone(name.file()) {
                continue;
            }
            if self.disposal == Disposal::Rename && name.file().len() + COPIED.len() > FILE_NAME_BYTES_MAX {
                let why =
                    format!("its name has no room for {COPIED} behind it. Start the mover with --remove, or rename it");
                left_alone.push(LeftAlone { name: name.to_string(), why, is_data: true });
                continue;
            }
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if is_not_found(&error) => continue,
                Err(error) => {
                    left_alone.extend(unreadable(&error));
                    continue;
                }
            };
            let untouched =
                metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or(Duration::ZERO);
            let (identity, changed_ns) = (identity(&metadata), changed_ns(&metadata));
            found.push(Seen { name, identity, changed_ns, untouched, announced: false, kind: Kind::File });
        }
        announce(&mut found);
        self.look_into(&mut found, moved);
        Ok(Scanned { files: found, left_alone })
    }

    fn open<'a>(&'a self, part: &'a Part) -> Result<Box<dyn Content + 'a>, SourceAnswer> {
        let file = self.open_part(part)?;
        Ok(Box::new(PartContent { source: self, part, file, buffer: self.blocks.take(), block_bytes: 0 }))
    }

    fn said_of(&self, name: &Name, by_stem: bool) -> Option<Vec<u8>> {
        let text = name.as_str();
        if text.ends_with(".json") {
            return None;
        }
        let stem = text.rsplit_once('.').filter(|(_, ending)| !ending.contains('/')).map(|(stem, _)| stem);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = |of: &str| openat(&self.root, format!("{of}.json"), flags, Mode::empty()).ok().map(File::from);
        let file = open(text).or_else(|| stem.filter(|_| by_stem).and_then(open))?;
        let mut said = Vec::new();
        file.take(SAID_BYTES_MAX).read_to_end(&mut said).ok()?;
        Some(said)
    }

    fn place_of(&self, part: &Part) -> Option<(u64, u64)> {
        let found = statat(&self.root, part.name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    fn release(&self, parts: &[Part], still_whole: &dyn Fn() -> SourceAnswer) -> SourceAnswer {
        let (mut left, mut is_touched) = (Vec::new(), false);
        // All before any: what is half let go would be half there twice when the rest of it is moved again.
        for part in parts {
            match self.look(part) {
                Ok(Look::Gone) => {}
                Ok(Look::Same { touched }) => {
                    is_touched |= touched;
                    left.push(part);
                }
                Err(answer) => return answer,
            }
        }
        // Times can be set: what was changed somehow and looks as it did is read once more.
        if is_touched && left.len() < parts.len() {
            return SourceAnswer::Changed(format!(
                "some of what {} was merged with is gone, and some was changed since: nobody can say whether that is what was proven, and it was not let go",
                parts[0].name
            ));
        }
        if is_touched {
            match still_whole() {
                SourceAnswer::Whole(_) => {}
                answer => return answer,
            }
        }
        match left.into_iter().try_for_each(|part| self.release_part(part)) {
            Ok(()) => SourceAnswer::Released,
            Err(answer) => answer,
        }
    }
}

/// `X` and `X.json`, or `X.raw` and `X.json`: whoever wrote the second says that the first is complete.
fn announce(found: &mut [Seen]) {
    let stems: BTreeSet<String> =
        found.iter().filter_map(|seen| seen.name.as_str().strip_suffix(".json").map(str::to_owned)).collect();
    let mut announced = BTreeSet::new();
    for seen in found.iter_mut().filter(|seen| !seen.name.as_str().ends_with(".json")) {
        let whole = seen.name.as_str();
        let stem = seen.name.file().rsplit_once('.').map(|(_, ending)| &whole[..whole.len() - ending.len() - 1]);
        for text in [Some(whole), stem].into_iter().flatten() {
            if stems.contains(text) {
                seen.announced = true;
                announced.insert(text.to_owned());
            }
        }
    }
    for seen in found.iter_mut() {
        seen.announced |= seen.name.as_str().strip_suffix(".json").is_some_and(|stem| announced.contains(stem));
    }
}

/// What a look at a part before its release found.
enum Look {
    /// It was let go already, or taken away; or another file has its name.
    Gone,
    /// It is what was found; whether anything of it was changed, its times perhaps.
    Same { touched: bool },
}

/// The bytes of a part.
struct PartContent<'a> {
    source: &'a DirectorySource,
    part: &'a Part,
    file: File,
    buffer: Vec<u8>,
    block_bytes: usize,
}

impl Drop for PartContent<'_> {
    fn drop(&mut self) {
        self.source.blocks.give_back(std::mem::take(&mut self.buffer));
    }
}

impl Content for PartContent<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block_bytes = 0;
        loop {
            match self.file.read(&mut self.buffer) {
                Ok(0) => return self.source.compare(self.part, &self.file).map(|()| false),
                Ok(read) => {
                    self.block_bytes = read;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.source.answer("read", self.part, &error)),
            }
        }
    }

    fn block(&self) -> &[u8] {
        &self.buffer[..self.block_bytes]
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        Ok(Some(self.file.as_fd()))
    }

    fn compare_file(&self) -> Result<(), SourceAnswer> {
        self.source.compare(self.part, &self.file)
    }
}
