//! What a number stands for.

use forebay_types::memory::allocated_bytes;
use forebay_types::{Attributes, FileNumber, NAME_BYTES_MAX, NodeKind, NodeView};

use crate::NamesError;
use crate::entries::Entries;

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) parent: FileNumber,
    pub(crate) entries: Entries,
    /// How many of the entries are directories.
    pub(crate) directories: u32,
}

/// What is there besides attributes. Nearly all are files, which have nothing here.
#[derive(Debug, Default)]
pub(crate) enum Content {
    #[default]
    File,
    Other(Box<Other>),
}

/// What is no file.
#[derive(Debug)]
pub(crate) enum Other {
    Directory(Directory),
    Link(Box<[u8]>),
    Special(NodeKind, u64),
}

impl From<Other> for Content {
    fn from(other: Other) -> Content {
        Content::Other(Box::new(other))
    }
}

/// What a number stands for. There may be very many: what it takes is counted.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    /// Names; of a directory 1, or 0 when it was removed.
    pub(crate) names: u32,
    pub(crate) content: Content,
}

const _: () = assert!(size_of::<Node>() <= 56);

impl Node {
    fn other(&self) -> Option<&Other> {
        match &self.content {
            Content::File => None,
            Content::Other(other) => Some(other),
        }
    }

    pub(crate) fn kind(&self) -> NodeKind {
        match self.other() {
            None => NodeKind::File,
            Some(Other::Directory(_)) => NodeKind::Directory,
            Some(Other::Link(_)) => NodeKind::Link,
            Some(Other::Special(kind, _)) => *kind,
        }
    }

    /// Memory outside of the value.
    pub(crate) fn heap_bytes(&self) -> usize {
        let Some(other) = self.other() else { return 0 };
        let inner = match other {
            Other::Directory(directory) => directory.entries.heap_bytes(),
            Other::Link(target) => allocated_bytes(target.len()),
            Other::Special(..) => 0,
        };
        allocated_bytes(size_of::<Other>()) + inner
    }

    pub(crate) fn directory(&self) -> Result<&Directory, NamesError> {
        match self.other() {
            Some(Other::Directory(directory)) => Ok(directory),
            _ => Err(NamesError::NotDirectory),
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Result<&mut Directory, NamesError> {
        match &mut self.content {
            Content::Other(other) => match &mut **other {
                Other::Directory(directory) => Ok(directory),
                Other::Link(_) | Other::Special(..) => Err(NamesError::NotDirectory),
            },
            Content::File => Err(NamesError::NotDirectory),
        }
    }

    pub(crate) fn view(&self) -> NodeView {
        let (links, device, target) = match self.other() {
            None => (self.names, 0, Vec::new()),
            Some(Other::Directory(directory)) if self.names > 0 => (2 + directory.directories, 0, Vec::new()),
            Some(Other::Directory(_)) => (0, 0, Vec::new()),
            Some(Other::Link(target)) => (self.names, 0, target.to_vec()),
            Some(Other::Special(_, device)) => (self.names, *device, Vec::new()),
        };
        NodeView { kind: self.kind(), attributes: self.attributes, links, device, target }
    }
}

/// A name that an entry may have.
pub(crate) fn check_name(name: &[u8]) -> Result<(), NamesError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(NamesError::TooLong);
    }
    let bad = name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if bad { Err(NamesError::BadName) } else { Ok(()) }
}
