//! What a number stands for.

use std::collections::BTreeMap;

use forebay_types::{Attributes, FileNumber, NAME_BYTES_MAX, NodeKind, NodeView};

use crate::NamesError;

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) parent: FileNumber,
    pub(crate) entries: BTreeMap<Box<[u8]>, FileNumber>,
    /// How many of the entries are directories.
    pub(crate) directories: u32,
}

/// What is there besides attributes.
#[derive(Debug)]
pub(crate) enum Content {
    File,
    Directory(Box<Directory>),
    Link(Box<[u8]>),
    Special(NodeKind, u64),
}

/// What a number stands for.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    /// Names; of a directory 1, or 0 when it was removed.
    pub(crate) names: u32,
    pub(crate) content: Content,
}

impl Node {
    pub(crate) fn kind(&self) -> NodeKind {
        match &self.content {
            Content::File => NodeKind::File,
            Content::Directory(_) => NodeKind::Directory,
            Content::Link(_) => NodeKind::Link,
            Content::Special(kind, _) => *kind,
        }
    }

    pub(crate) fn directory(&self) -> Result<&Directory, NamesError> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(NamesError::NotDirectory),
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Result<&mut Directory, NamesError> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(NamesError::NotDirectory),
        }
    }

    pub(crate) fn view(&self) -> NodeView {
        let (links, device, target) = match &self.content {
            Content::File => (self.names, 0, Vec::new()),
            Content::Directory(directory) if self.names > 0 => (2 + directory.directories, 0, Vec::new()),
            Content::Directory(_) => (0, 0, Vec::new()),
            Content::Link(target) => (self.names, 0, target.to_vec()),
            Content::Special(_, device) => (self.names, *device, Vec::new()),
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
