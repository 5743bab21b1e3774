//! Sealed files below a directory of a store, as a source: complete when they are sealed, let go by taking their names away.

mod lease;
mod space;

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_client::files::{Detail, FileError, FileReader, Files, ListedName, ReadOptions, escape, length_of};
use forebay_client::{Class, Client, ClientConfig, ClientError};
use forebay_rawdata::EventReader;
use forebay_types::{NodeKind, ReadOutcome, RunId};

use crate::custody::{Part, PartIdentity, SourceAnswer};
use crate::endpoint::{Content, Moved, Source};
use crate::machine::{Kind, LeftAlone, Scanned, Seen};
use crate::name::Name;
use crate::recipe::{DETECTED_BYTES, Form, format_of};
use crate::sums::Summer;

pub(crate) use lease::Lease;
pub use lease::LeaseError;
pub use space::StoreSpace;

const BLOCK_BYTES: usize = 1 << 20;
/// So long one call waits for a server that is away; the mover tries again after that.
const DEADLINE: Duration = Duration::from_secs(20);
/// The same for the lease.
const LEASE_DEADLINE: Duration = Duration::from_secs(4);
/// The last part of the name of the link that is the lease.
const LEASE: &str = ".forebay-move";
/// A file of which the name is being taken away has this before its number, so that nobody else's file is met under its own.
const GOING: &str = ".forebay-going-";

/// A directory of a store. It is leased for as long as this lives: a second mover is refused.
pub struct StoreSource {
    address: String,
    /// Without a slash at its end.
    directory: String,
    idle: Mutex<Vec<Files>>,
    lease: Lease,
    /// Where files are merged: what is in each, by its number, so that it is looked at once.
    kinds: Option<Mutex<BTreeMap<u64, Kind>>>,
}

impl StoreSource {
    /// Connects and leases the directory. `token`: the journal's, by which a mover that was killed knows its own lease again. `with_kinds`: look into files, too, for what they may be
    /// merged with.
    ///
    /// # Errors
    /// When no server answers, there is no such directory, or another mover has it.
    pub fn open(address: &str, directory: &str, token: u64, with_kinds: bool) -> Result<StoreSource, LeaseError> {
        let directory = directory.trim_end_matches('/').to_owned();
        let files = connect(address, true, DEADLINE)?;
        let link = format!("{directory}/{LEASE}");
        let what = if directory.is_empty() { "/" } else { &directory };
        let lease = Lease::take(connect(address, true, LEASE_DEADLINE)?, &files, &link, what, token)?;
        let (idle, kinds) = (Mutex::new(vec![files]), with_kinds.then(Mutex::default));
        Ok(StoreSource { address: address.to_owned(), directory, idle, lease, kinds })
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Uses a connection that no other job uses.
    fn with<T>(&self, use_it: impl FnOnce(&Files) -> Result<T, FileError>) -> Result<T, FileError> {
        let files = self.take_files()?;
        let used = use_it(&files);
        self.give_back(files);
        used
    }

    fn take_files(&self) -> Result<Files, FileError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let path = || self.directory.clone();
        idle.map_or_else(
            || connect(&self.address, false, DEADLINE).map_err(|error| FileError::Client { path: path(), error }),
            Ok,
        )
    }

    fn give_back(&self, files: Files) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(files);
    }

    fn check_lease(&self) -> Result<(), SourceAnswer> {
        self.lease.check().map_err(SourceAnswer::NotNow)
    }

    fn walk(&self, files: &Files, moved: &dyn Moved, found: &mut Scanned) -> Result<(), String> {
        let mut directories = vec![String::new()];
        while let Some(below) = directories.pop() {
            let path = if below.is_empty() { self.path_of("") } else { self.path_of(&below) };
            let mut listing = match files.list(&path, Detail::Sizes) {
                Ok(listing) => listing,
                // Taken away meanwhile.
                Err(FileError::NotFound { .. }) if !below.is_empty() => continue,
                Err(error) => return Err(error.to_string()),
            };
            loop {
                let page = listing.next_page().map_err(|error| error.to_string())?;
                if page.is_empty() {
                    break;
                }
                if !moved.moved(0) {
                    return Err("the mover ends".to_owned());
                }
                for entry in page {
                    self.see(&below, entry, &mut directories, found);
                }
            }
        }
        Ok(())
    }

    fn see(&self, below: &str, entry: ListedName, directories: &mut Vec<String>, found: &mut Scanned) {
        if entry.name.starts_with(b".") || entry.name.ends_with(b".copied") {
            return;
        }
        let mut leave = |why: &str, is_data| {
            let name = format!("{}/{}", self.path_of(below).trim_end_matches('/'), escape(&entry.name));
            found.left_alone.push(LeftAlone { name, why: why.to_owned(), is_data });
        };
        let slash = if below.is_empty() { "" } else { "/" };
        let name = std::str::from_utf8(&entry.name).ok().map(|last| format!("{below}{slash}{last}"));
        let Some(name) = name.and_then(|name| name.parse::<Name>().ok()) else {
            return leave(
                "its name is no UTF-8, has control characters or is too long: no destination could be asked for it. Rename it (`forebay file mv`)",
                true,
            );
        };
        match (entry.kind, entry.info) {
            (NodeKind::Directory, _) => directories.push(name.to_string()),
            (NodeKind::File, Some(info)) if info.sealed && info.outcome == ReadOutcome::Found => {
                let bytes = length_of(&info).expect("what is found has a length");
                let identity = PartIdentity { bytes, modified_ns: info.written_unix_ns, inode: entry.number.0 };
                let untouched = Duration::ZERO;
                found.files.push(Seen { name, identity, changed_ns: 0, untouched, announced: true, kind: Kind::File });
            }
            (NodeKind::File, Some(info)) if info.is_written || info.outcome == ReadOutcome::Found => {}
            (NodeKind::File, Some(info)) if info.outcome == ReadOutcome::NotFound => {}
            (NodeKind::File, _) => leave("what it holds cannot be said now (`forebay status`)", true),
            _ => leave("it is no file, but a link or something else", false),
        }
    }

    fn kind_of(&self, files: &Files, name: &Name) -> Kind {
        let options = ReadOptions { ahead_bytes: 1 << 20 };
        let Ok(mut reader) = files.open_read(self.path_of(name.as_str()), &options) else { return Kind::Unclear };
        let mut first = [0; DETECTED_BYTES];
        let kind = match reader.read_at(0, &mut first).map(|read| format_of(name, &first[..read])) {
            Err(_) => Kind::Unclear,
            Ok(None) => Kind::File,
            Ok(Some(format)) => match EventReader::new(format, BufReader::new(Readable(&mut reader))).next() {
                Some(Ok(event)) => Kind::Events { run: event.key.run, form: Form::of_events(format) },
                _ => Kind::Unclear,
            },
        };
        drop(reader.close());
        kind
    }

    /// Takes the name away of the file that was found, and of no other.
    fn release_part(&self, files: &Files, part: &Part) -> Result<(), SourceAnswer> {
        let answer = |error| answer("release", part, &error);
        let (path, going) = (self.path_of(part.name.as_str()), self.going(part));
        let is_ours = |path: &str| match files.lookup_link(path) {
            Ok(node) => Ok(node.number.0 == part.identity.inode),
            Err(FileError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        };
        if is_ours(&path).map_err(answer)? {
            files.rename(&path, &going, false).map_err(answer)?;
            if !is_ours(&going).map_err(answer)? {
                // Between the look and the renaming somebody put another file there.
                return files.rename(&going, &path, false).map_err(answer);
            }
        }
        if is_ours(&going).map_err(answer)? {
            files.remove(&going).map_err(answer)?;
        }
        Ok(())
    }

    fn going(&self, part: &Part) -> String {
        let file = format!("{GOING}{}", part.identity.inode);
        self.path_of(part.name.beside(&file).as_ref().map_or(file.as_str(), Name::as_str))
    }
}

impl Source for StoreSource {
    fn scan(&self, moved: &dyn Moved) -> Result<Scanned, String> {
        self.lease.check()?;
        let files = self.take_files().map_err(|error| error.to_string())?;
        let mut found = Scanned::default();
        self.walk(&files, moved, &mut found)?;
        if let Some(kinds) = &self.kinds {
            let mut kinds = kinds.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::take(&mut *kinds);
            for seen in &mut found.files {
                // What is sealed does not change any more; what could not be looked at is looked at again.
                let known = before.get(&seen.identity.inode).copied().filter(|kind| *kind != Kind::Unclear);
                seen.kind = known.unwrap_or_else(|| self.kind_of(&files, &seen.name));
                kinds.insert(seen.identity.inode, seen.kind);
                moved.moved(0);
            }
        }
        self.give_back(files);
        Ok(found)
    }

    fn open<'a>(&'a self, part: &'a Part) -> Result<Box<dyn Content + 'a>, SourceAnswer> {
        let files = self.take_files().map_err(|error| answer("open", part, &error))?;
        let reader = files.open_read(self.path_of(part.name.as_str()), &ReadOptions::default());
        let reader = reader.map_err(|error| answer("open", part, &error))?;
        if reader.node().number.0 != part.identity.inode || reader.length() != part.identity.bytes {
            return Err(SourceAnswer::Changed(format!(
                "{} is another file than the one that was found",
                reader.path()
            )));
        }
        let info = files.infos(&[reader.node().number]).map_err(|error| answer("look at", part, &error))?;
        let sums = info.first().filter(|info| info.sealed).and_then(|info| info.sums);
        let (buffer, summer) = (vec![0; BLOCK_BYTES], Summer::default());
        Ok(Box::new(FileContent {
            source: self,
            files: Some(files),
            part,
            reader: Some(reader),
            sums,
            summer,
            buffer,
            block_bytes: 0,
        }))
    }

    fn release(&self, parts: &[Part], _still_whole: &dyn Fn() -> SourceAnswer) -> SourceAnswer {
        // What is sealed does not change any more: that it is the same file is enough.
        if let Err(lost) = self.check_lease() {
            return lost;
        }
        let mut released = Ok(());
        let used = self.with(|files| {
            released = parts.iter().try_for_each(|part| self.release_part(files, part));
            Ok(())
        });
        match (released, used) {
            (Ok(()), Ok(())) => SourceAnswer::Released,
            (Err(answer), _) => answer,
            (_, Err(error)) => answer("release", &parts[0], &error),
        }
    }

    fn events_of_run(&self, run: RunId) -> Result<Option<u64>, SourceAnswer> {
        let asked = connect_client(&self.address, false, DEADLINE).and_then(|mut client| client.run(run));
        let run = asked.map_err(|error| SourceAnswer::NotNow(format!("ask for run {run}: {error}")))?;
        Ok(run.and_then(|run| run.counted_events()))
    }

    fn place_of(&self, _part: &Part) -> Option<(u64, u64)> {
        None
    }
}

fn connect_client(address: &str, must_listen: bool, deadline: Duration) -> Result<Client, ClientError> {
    let mut config = ClientConfig::new(address, "forebay move").class(Class::Mover).deadline(Some(deadline));
    config.must_listen = must_listen;
    Client::connect(config)
}

fn connect(address: &str, must_listen: bool, deadline: Duration) -> Result<Files, ClientError> {
    Files::new(connect_client(address, must_listen, deadline)?)
}

/// What an error says of a file that was found.
fn answer(action: &str, part: &Part, error: &FileError) -> SourceAnswer {
    let words = format!("{action} {}: {error}", part.name);
    match error {
        FileError::NotFound { .. } | FileError::NotFile { .. } | FileError::IsDirectory { .. } => {
            SourceAnswer::Changed(words)
        }
        FileError::Lost { .. } => SourceAnswer::Damaged(words),
        _ => SourceAnswer::NotNow(words),
    }
}

/// The bytes of a file, compared at their end with the sums that the store has since it was sealed.
struct FileContent<'a> {
    source: &'a StoreSource,
    files: Option<Files>,
    part: &'a Part,
    reader: Option<FileReader>,
    sums: Option<(u32, u32)>,
    summer: Summer,
    buffer: Vec<u8>,
    block_bytes: usize,
}

impl FileContent<'_> {
    fn compare(&self) -> Result<bool, SourceAnswer> {
        let now = self.summer.sums();
        match self.sums {
            Some((crc32c, adler32)) if (now.crc32c, now.adler32) != (crc32c, adler32) => {
                Err(SourceAnswer::NotNow(format!(
                    "{} came to {now} and was sealed with adler32 {adler32:08x}, crc32c {crc32c:08x}: it is read once more",
                    self.part.name
                )))
            }
            _ => Ok(false),
        }
    }
}

impl Content for FileContent<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block_bytes = 0;
        let reader = self.reader.as_mut().expect("it is closed when this is dropped");
        self.block_bytes = reader.read(&mut self.buffer).map_err(|error| answer("read", self.part, &error))?;
        if self.block_bytes == 0 {
            return self.compare();
        }
        self.summer.update(&self.buffer[..self.block_bytes]);
        Ok(true)
    }

    fn block(&self) -> &[u8] {
        &self.buffer[..self.block_bytes]
    }
}

impl Drop for FileContent<'_> {
    fn drop(&mut self) {
        // One that fails here is dead, and made anew when it is needed.
        let closed = self.reader.take().is_none_or(|reader| reader.close().is_ok());
        if let (true, Some(files)) = (closed, self.files.take()) {
            self.source.give_back(files);
        }
    }
}

/// A file as readers of events want it.
struct Readable<'a>(&'a mut FileReader);

impl Read for Readable<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(io::Error::other)
    }
}
