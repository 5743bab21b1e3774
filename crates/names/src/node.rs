//! What a number stands for.

use std::collections::BTreeMap;

use forebay_types::FileNumber;

use crate::NamesError;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest target of a symbolic link, in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;

/// What it is. The numbers are stored and never given another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Bytes, in a lane.
    File = 1,
    /// Names.
    Directory = 2,
    /// A path that is followed in its place.
    Link = 3,
    /// A pipe with a name.
    Pipe = 4,
    /// A socket with a name.
    Socket = 5,
    /// A device of characters.
    CharacterDevice = 6,
    /// A device of blocks.
    BlockDevice = 7,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] =
        [Kind::File, Kind::Directory, Kind::Link, Kind::Pipe, Kind::Socket, Kind::CharacterDevice, Kind::BlockDevice];
}

/// What is kept of anything that has a name. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, 12 bits.
    pub mode: u16,
    /// Whose it is.
    pub owner: u32,
    /// And which group's.
    pub group: u32,
    /// When its attributes or names changed last.
    pub changed_unix_ns: i64,
    /// When its content changed last; of a file the lane knows better.
    pub written_unix_ns: i64,
    /// When it was read last, as far as somebody said so: reading alone changes nothing here.
    pub accessed_unix_ns: i64,
}

/// What is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub kind: Kind,
    /// Permissions, 12 bits.
    pub mode: u16,
    /// Whose it is.
    pub owner: u32,
    /// And which group's.
    pub group: u32,
    /// Of a device, its number.
    pub device: u64,
    /// Of a link, its target.
    pub target: Vec<u8>,
}

/// What is known of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// What it is.
    pub kind: Kind,
    /// What is kept of it.
    pub attributes: Attributes,
    /// Its names; of a directory two, and one more for each directory in it.
    pub links: u32,
    /// Of a device, its number.
    pub device: u64,
    /// Of a link, its target.
    pub target: Vec<u8>,
}

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
    Special(Kind, u64),
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
    pub(crate) fn kind(&self) -> Kind {
        match &self.content {
            Content::File => Kind::File,
            Content::Directory(_) => Kind::Directory,
            Content::Link(_) => Kind::Link,
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
