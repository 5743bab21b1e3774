//! What has a name: its kind and what is kept of it besides its bytes.

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest target of a symbolic link, in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;

/// What it is. The numbers are stored and those of the wire, and never given another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NodeKind {
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

impl NodeKind {
    /// Every kind.
    pub const ALL: [NodeKind; 7] = [
        NodeKind::File,
        NodeKind::Directory,
        NodeKind::Link,
        NodeKind::Pipe,
        NodeKind::Socket,
        NodeKind::CharacterDevice,
        NodeKind::BlockDevice,
    ];

    /// The number on drives and on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<NodeKind> {
        NodeKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
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

/// Attributes that are to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions.
    pub mode: Option<u16>,
    /// Whose it is.
    pub owner: Option<u32>,
    /// And which group's.
    pub group: Option<u32>,
    /// When its content changed last.
    pub written_unix_ns: Option<i64>,
    /// When it was read last.
    pub accessed_unix_ns: Option<i64>,
}

/// What is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub kind: NodeKind,
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
    pub kind: NodeKind,
    /// What is kept of it.
    pub attributes: Attributes,
    /// Its names; of a directory two, and one more for each directory in it.
    pub links: u32,
    /// Of a device, its number.
    pub device: u64,
    /// Of a link, its target.
    pub target: Vec<u8>,
}
