//! Where files are moved from and to, and that no two of these places are in each other's way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_destinations::{Access, Address, Scheme};
use forebay_mover::endpoint::{self, Destination, HasSpace};
use forebay_mover::events::StreamSource;
use forebay_mover::local::{DirectoryDestination, DirectorySource, DirectorySpace, Disposal, Locks};
use forebay_mover::store::{LeaseError, StoreSource, StoreSpace};
use forebay_types::{StoreUuid, StreamName};

use crate::failure::Failure;
use crate::file::path::{STORE_PREFIX, in_store};

/// Where files are moved from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A directory, without links on the way.
    Directory(PathBuf),
    /// A directory of a store.
    Store { server: String, path: String },
    /// Accepted events of a stream of a store.
    Stream { server: String, stream: StreamName },
    /// Those of every stream of a store, also of such as come later: what routes are made of, and none itself.
    Streams { server: String },
}

/// What is before the name of a stream.
const STREAM_PREFIX: &str = "stream:";
/// What stands for every stream.
const EVERY_STREAM: &str = "*";

impl Origin {
    /// What a text means, with the server of a store: one, or some streams.
    ///
    /// # Errors
    /// A directory that is not there, or a path of no store.
    pub fn parse_all(text: &str, server: &str) -> Result<Vec<Origin>, Failure> {
        let Some(names) = text.strip_prefix(STREAM_PREFIX) else { return Ok(vec![Origin::parse(text, server)?]) };
        let server = server.to_owned();
        if names == EVERY_STREAM {
            return Ok(vec![Origin::Streams { server }]);
        }
        let stream = |name: &str| {
            let stream = name.parse().map_err(|error| Failure::usage(format!("{error}; nothing was moved")))?;
            Ok(Origin::Stream { server: server.clone(), stream })
        };
        names.split(',').map(stream).collect()
    }

    fn parse(text: &str, server: &str) -> Result<Origin, Failure> {
        match in_store(text.as_bytes()) {
            Some(Ok(_)) => {
                let path = text[STORE_PREFIX.len()..].trim_end_matches('/').to_owned();
                Ok(Origin::Store { server: server.to_owned(), path })
            }
            Some(Err(words)) => Err(Failure::usage(format!("{text:?}: {words}; nothing was moved"))),
            None => {
                let path = Path::new(text);
                let real = fs::canonicalize(path).map(Origin::Directory);
                real.map_err(|error| {
                    let advice = "nothing was moved. Give a directory that is there to move from (--from)";
                    Failure::file("look at", path, &error, advice)
                })
            }
        }
    }

    /// The directory of this machine, if it is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Origin::Directory(path) => Some(path),
            Origin::Store { .. } | Origin::Stream { .. } | Origin::Streams { .. } => None,
        }
    }

    /// The stream, if it is one.
    pub fn stream(&self) -> Option<&StreamName> {
        match self {
            Origin::Stream { stream, .. } => Some(stream),
            Origin::Directory(_) | Origin::Store { .. } | Origin::Streams { .. } => None,
        }
    }

    /// What it lies on.
    pub fn space(&self) -> Arc<dyn HasSpace> {
        match self {
            Origin::Directory(path) => Arc::new(DirectorySpace::new(path)),
            Origin::Store { server, .. } | Origin::Stream { server, .. } | Origin::Streams { server } => {
                Arc::new(StoreSpace::new(server))
            }
        }
    }

    /// The server of the store whose accepted events are moved, if they are.
    pub fn store_of_events(&self) -> Option<&str> {
        match self {
            Origin::Stream { server, .. } | Origin::Streams { server } => Some(server),
            Origin::Directory(_) | Origin::Store { .. } => None,
        }
    }

    /// Whether accepted events are moved, rather than files.
    pub fn is_of_events(&self) -> bool {
        self.store_of_events().is_some()
    }

    /// Locks a directory of this machine.
    ///
    /// # Errors
    /// One that another mover has, or that cannot be used.
    pub fn open_directory(
        &self,
        remove: bool,
        with_kinds: bool,
        locks: &mut Locks,
    ) -> Result<Option<DirectorySource>, Failure> {
        let Some(from) = self.directory() else { return Ok(None) };
        let disposal = if remove { Disposal::Remove } else { Disposal::Rename };
        let source = DirectorySource::open(from, disposal, locks).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Failure::retry(format!(
                "another mover has {}; this one did nothing. Wait for it, or stop it first",
                from.display()
            )),
            _ => {
                let advice =
                    "nothing was moved. Give a directory that this user can read and write to move from (--from)";
                Failure::file("use", from, &error, advice)
            }
        })?;
        Ok(Some(if with_kinds { source.with_kinds() } else { source }))
    }

    /// Leases a directory of a store, or a stream, by the token of the journal; of a stream with its store.
    ///
    /// # Errors
    /// No server, no such directory, or another mover that has it.
    ///
    /// # Panics
    /// For a directory of this machine, and for every stream.
    pub fn lease(&self, token: u64, with_kinds: bool) -> Result<(endpoint::Origin, Option<StoreUuid>), Failure> {
        let leased = match self {
            Origin::Directory(_) | Origin::Streams { .. } => panic!("{self} is nothing that is leased"),
            Origin::Store { server, path } => StoreSource::open(server, path, token, with_kinds)
                .map(|source| (endpoint::Origin::Files(Arc::new(source)), None)),
            Origin::Stream { server, stream } => StreamSource::open(server, stream, token).map(|source| {
                let store = source.store();
                (endpoint::Origin::Events(Arc::new(source)), Some(store))
            }),
        };
        leased.map_err(|error| match &error {
            LeaseError::Client(error) if !error.is_retryable() => {
                Failure::usage(format!("{self}: {error}; nothing was moved"))
            }
            LeaseError::Client(_) => Failure::retry(format!("{error}; nothing was moved")),
            LeaseError::Taken { .. } => Failure::retry(&error),
            LeaseError::File(_) => Failure::usage(format!("{self}: {error}")),
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Directory(path) => path.display().fmt(f),
            Origin::Store { server, path } => write!(f, "forebay:{path} ({server})"),
            Origin::Stream { server, stream } => write!(f, "{STREAM_PREFIX}{stream} ({server})"),
            Origin::Streams { server } => write!(f, "{STREAM_PREFIX}{EVERY_STREAM} ({server})"),
        }
    }
}

/// Where files are moved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory, without links on the way.
    Directory(PathBuf),
    /// What is reached over the network.
    Remote(Address),
}

impl Place {
    /// What a text means. Nothing is made.
    ///
    /// # Errors
    /// No address, or a directory in which nothing can be made.
    pub fn parse(text: &str) -> Result<Place, Failure> {
        if !Address::is_meant(text) {
            return real(Path::new(text)).map(Place::Directory);
        }
        text.parse().map(Place::Remote).map_err(|error| {
            Failure::usage(format!(
                "{error}. Give a directory, root://HOST/PATH, https://HOST/PATH or s3://BUCKET/PATH; nothing was moved"
            ))
        })
    }

    /// The directory of this machine, if it is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::Remote(_) => None,
        }
    }

    /// Its address, if it is reached over the network.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Place::Directory(_) => None,
            Place::Remote(address) => Some(address),
        }
    }

    /// Whether it can say that a file is on tape.
    pub fn tells_of_tape(&self) -> bool {
        matches!(self, Place::Remote(address) if address.scheme() == Scheme::XRootD)
    }

    /// Makes it ready.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn open(&self, access: &Access) -> Result<Arc<dyn Destination>, Failure> {
        match self {
            Place::Directory(path) => match DirectoryDestination::open(path) {
                Ok(directory) => Ok(Arc::new(directory)),
                Err(error) => {
                    let advice = "nothing was moved. Give a directory that this user can write to move to (--to); its parent must be there";
                    Err(Failure::file("use", path, &error, advice))
                }
            },
            Place::Remote(address) => forebay_destinations::open(address, access)
                .map_err(|error| Failure::usage(format!("{address} cannot be used: {error}; nothing was moved"))),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => path.display().fmt(f),
            Place::Remote(address) => address.fmt(f),
        }
    }
}

/// A directory without links on the way; one that is not there is made later, in one that is.
fn real(path: &Path) -> Result<PathBuf, Failure> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
            let parent = parent_of(path);
            let advice = "nothing was moved. The directory in which one is to be made to move to (--to) must be there";
            let parent = fs::canonicalize(parent).map_err(|error| Failure::file("use", parent, &error, advice))?;
            Ok(parent.join(path.file_name().unwrap_or_default()))
        }
        real => real.map_err(|error| Failure::file("look at", path, &error, "nothing was moved")),
    }
}

/// The directory that a path lies in.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// That no place lies in another, by its path: what arrives would be moved again.
///
/// # Errors
/// Two that do.
pub fn check_paths(from: &[&Origin], to: &[&Place]) -> Result<(), Failure> {
    let twice = |text: &dyn fmt::Display| Failure::usage(format!("{text} is given twice; nothing was moved"));
    let mut seen = BTreeSet::new();
    if let Some(place) = to.iter().find(|place| !seen.insert(place.to_string())) {
        return Err(twice(place));
    }
    for (at, one) in from.iter().enumerate() {
        for other in from.iter().take(at) {
            let server_of = |origin: &Origin| match origin {
                Origin::Stream { server, .. } | Origin::Streams { server } => Some(server.clone()),
                Origin::Directory(_) | Origin::Store { .. } => None,
            };
            let is_every = |origin: &Origin| matches!(origin, Origin::Streams { .. });
            let share = one == other || is_every(one) || is_every(other);
            if share && server_of(one).is_some_and(|server| server_of(other) == Some(server)) {
                return Err(Failure::usage(format!(
                    "what is in {one} is moved by two routes; nothing was moved. Give one route both destinations: an event is let go when all of them have it"
                )));
            }
            let (Origin::Store { server, path }, Origin::Store { server: other_server, path: other_path }) =
                (one, other)
            else {
                continue;
            };
            let lies_in = |path: &str, other: &str| format!("{path}/").starts_with(&format!("{other}/"));
            if server == other_server && (lies_in(path, other_path) || lies_in(other_path, path)) {
                return Err(Failure::usage(format!(
                    "{one} and {other} are the same, or one lies in the other; nothing was moved. What is there would be moved twice: give other directories"
                )));
            }
        }
    }
    let origins = from.iter().filter_map(|origin| origin.directory());
    let all: Vec<&Path> = origins.chain(to.iter().filter_map(|place| place.directory())).collect();
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            if at != other_at && one.starts_with(other) {
                return Err(Failure::usage(format!(
                    "{} lies in {}, or is the same; nothing was moved. What arrives there would be taken for what is to be moved: give other directories",
                    one.display(),
                    other.display()
                )));
            }
        }
    }
    Ok(())
}

/// That no two directories are one, by whatever way they are reached: a copy on itself is none.
///
/// # Errors
/// Two that are.
pub fn check_apart(from: &[&Origin], to: &[&Place]) -> Result<(), Failure> {
    let mut seen: BTreeMap<(u64, u64), &Path> = BTreeMap::new();
    let origins = from.iter().filter_map(|origin| origin.directory());
    for path in origins.chain(to.iter().filter_map(|place| place.directory())) {
        let metadata =
            fs::metadata(path).map_err(|error| Failure::file("look at", path, &error, "nothing was moved"))?;
        if let Some(other) = seen.insert((metadata.dev(), metadata.ino()), path) {
            return Err(Failure::usage(format!(
                "{} and {} are the same directory (a mount of it?); nothing was moved. Give other directories",
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}
