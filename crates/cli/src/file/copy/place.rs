//! Where something is copied from or to.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use forebay_client::files::{FileError, Files};
use forebay_types::NodeKind;

use crate::failure::Failure;
use crate::file::path::{in_store, join, last_name, shown};

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Stdin.
    Standard,
    /// Of this machine.
    Local(PathBuf),
    /// In the store.
    Store(Vec<u8>),
}

/// Reads one.
pub fn parse_place() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().try_map(|typed: OsString| match in_store(typed.as_bytes()) {
        Some(path) => path.map(Place::Store),
        None if typed.is_empty() => Err("expected a path, such as raw.dat or forebay:/run17/raw.dat".to_owned()),
        None if typed == "-" => Ok(Place::Standard),
        None => Ok(Place::Local(typed.into())),
    })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Standard => f.write_str("stdin"),
            Place::Local(path) => write!(f, "{}", path.display()),
            Place::Store(path) => f.write_str(&shown(path)),
        }
    }
}

impl Place {
    fn bytes(&self) -> &[u8] {
        match self {
            Place::Standard => b"",
            Place::Local(path) => path.as_os_str().as_bytes(),
            Place::Store(path) => path,
        }
    }

    /// The last name of the path, unless it is the root, `.` or `..`.
    pub fn last_name(&self) -> Option<&[u8]> {
        last_name(self.bytes())
    }

    /// Only a directory can be meant.
    pub fn ends_with_slash(&self) -> bool {
        self.bytes().ends_with(b"/")
    }

    /// What has this name or path there.
    pub fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Standard => Place::Standard,
            Place::Local(path) => Place::Local(path.join(OsStr::from_bytes(name))),
            Place::Store(path) => Place::Store(join(path, name)),
        }
    }

    /// Whether it is a directory, links followed; nothing when it is not there.
    ///
    /// # Errors
    /// When that cannot be said.
    pub fn kind(&self, files: &Files) -> Result<Option<bool>, Failure> {
        match self {
            Place::Standard => Ok(Some(false)),
            Place::Local(path) => match fs::metadata(path) {
                Ok(metadata) => Ok(Some(metadata.is_dir())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Failure::file("look at", path, &error, "nothing was copied")),
            },
            Place::Store(path) => match files.lookup(path) {
                Ok(node) => Ok(Some(node.view.kind == NodeKind::Directory)),
                Err(FileError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Whether a directory is there.
    ///
    /// # Errors
    /// When that cannot be said.
    pub fn is_directory(&self, files: &Files) -> Result<bool, Failure> {
        Ok(self.kind(files)? == Some(true))
    }
}

/// Bytes as a part of a local path.
pub fn to_path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
