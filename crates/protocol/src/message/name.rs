//! Names: looking them up, listing them, changing them. They lie in lane 0.

use forebay_types::{
    Attributes, FileNumber, NAME_BYTES_MAX, NameOutcome, NewNode, NodeKind, NodeView, SetAttributes, TARGET_BYTES_MAX,
};

use super::Message;
use crate::error::FrameError;
use crate::kind::Kind;
use crate::limits::NAMES_MAX;
use crate::wire::{Reader, Write};

/// Asks what a name in a directory stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameLookup {
    /// The directory; `None`: the root.
    pub directory: Option<FileNumber>,
    /// The name; when it is empty, what the number itself stands for.
    pub name: Vec<u8>,
}

/// Lists a directory in the order of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    /// The directory; `None`: the root.
    pub directory: Option<FileNumber>,
    /// Only names behind this one; empty: all.
    pub after: Vec<u8>,
    /// At most so many, and at most [`NAMES_MAX`].
    pub max: u32,
}

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// Something new gets a name that nothing has.
    Make {
        /// Where.
        directory: FileNumber,
        /// Its name.
        name: Vec<u8>,
        /// What.
        new: NewNode,
    },
    /// Something that is no directory gets one name more.
    Link {
        /// What.
        number: FileNumber,
        /// Where.
        directory: FileNumber,
        /// The name.
        name: Vec<u8>,
    },
    /// A name of something that is no directory goes, and with the last one what it stands for.
    Remove {
        /// Where.
        directory: FileNumber,
        /// The name.
        name: Vec<u8>,
    },
    /// An empty directory goes.
    RemoveDirectory {
        /// Where.
        directory: FileNumber,
        /// Its name.
        name: Vec<u8>,
    },
    /// A name becomes another one, in one step.
    Rename {
        /// Where it is.
        from_directory: FileNumber,
        /// Its name there.
        from: Vec<u8>,
        /// Where it goes.
        to_directory: FileNumber,
        /// Its name there.
        to: Vec<u8>,
        /// What has that name gives way.
        replace: bool,
    },
    /// Attributes change.
    Set {
        /// Of what.
        number: FileNumber,
        /// Which, and to what.
        set: SetAttributes,
    },
}

/// Changes names. A client that repeats one says the same numbers again, and gets the answer that it would have got, as long as the server remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeName {
    /// The client, by a number that no other has.
    pub client: u64,
    /// Which of its changes; no two have the same number.
    pub change: u64,
    /// The smallest number of its changes for whose answer it still waits, this one included: it has given up, or been answered, all below, and none of these is made any more.
    pub waits_from: u64,
    /// What is to be changed.
    pub what: NameChange,
}

/// What a name or a number stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: FileNumber,
    /// Of a directory, the one in which it is.
    pub parent: FileNumber,
    /// What is known of it.
    pub view: NodeView,
}

/// What became of a lookup or a change. Unless it was done there is no node; nor is there of what was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReply {
    /// What became of it.
    pub outcome: NameOutcome,
    /// What it is about.
    pub node: Option<Node>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    /// What it stands for.
    pub number: FileNumber,
    /// What that is.
    pub kind: NodeKind,
    /// Its name.
    pub name: Vec<u8>,
}

/// Entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReply {
    /// Whether the directory could be listed.
    pub outcome: NameOutcome,
    /// There are more behind the last one.
    pub more: bool,
    /// The entries.
    pub entries: Vec<NameEntry>,
}

/// The root, where the number of a directory is expected: nothing that has a name has this number.
const ROOT: u64 = 0;

/// The kind of a node that is not there.
const NO_KIND: u8 = 0;

fn put_directory(table: &mut Vec<u8>, directory: Option<FileNumber>) {
    table.put_u64(directory.map_or(ROOT, |directory| directory.0));
}

fn read_directory(reader: &mut Reader<'_>) -> Result<Option<FileNumber>, FrameError> {
    let number = reader.u64()?;
    Ok((number != ROOT).then_some(FileNumber(number)))
}

/// A name of any bytes: whether it is one is for the names to say, as long as it is not too long to be one.
fn put_name_length(table: &mut Vec<u8>, name: &[u8]) {
    table.put_u16(u16::try_from(name.len()).expect("callers send names of bounded length"));
}

fn read_bytes<'a>(reader: &mut Reader<'a>, bytes: u16, max: usize, what: &'static str) -> Result<&'a [u8], FrameError> {
    if usize::from(bytes) > max {
        return Err(FrameError::TooMany { message: reader.message, what, count: u64::from(bytes), max });
    }
    reader.take(usize::from(bytes))
}

/// The longest name that travels: one byte more than any has, so that the names can say that it is too long.
const SENT_NAME_BYTES_MAX: usize = NAME_BYTES_MAX + 1;

/// The same for targets.
const SENT_TARGET_BYTES_MAX: usize = TARGET_BYTES_MAX + 1;

fn cut_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(SENT_NAME_BYTES_MAX)]
}

impl Message for NameLookup {
    const KIND: Kind = Kind::NameLookup;

    fn write_table(&self, table: &mut Vec<u8>) {
        put_directory(table, self.directory);
        let name = cut_name(&self.name);
        put_name_length(table, name);
        table.extend_from_slice(&[0; 6]);
        table.extend_from_slice(name);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let directory = read_directory(&mut reader)?;
        let bytes = reader.u16()?;
        reader.take(6)?;
        let name = read_bytes(&mut reader, bytes, SENT_NAME_BYTES_MAX, "bytes of a name")?.to_vec();
        Ok(NameLookup { directory, name })
    }
}

impl Message for NameList {
    const KIND: Kind = Kind::NameList;

    fn write_table(&self, table: &mut Vec<u8>) {
        put_directory(table, self.directory);
        let after = cut_name(&self.after);
        table.put_u32(self.max);
        put_name_length(table, after);
        table.put_u16(0);
        table.extend_from_slice(after);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (directory, max, bytes) = (read_directory(&mut reader)?, reader.u32()?, reader.u16()?);
        reader.u16()?;
        let after = read_bytes(&mut reader, bytes, SENT_NAME_BYTES_MAX, "bytes of a name")?.to_vec();
        Ok(NameList { directory, after, max })
    }
}

mod change {
    pub(super) const MAKE: u8 = 1;
    pub(super) const LINK: u8 = 2;
    pub(super) const REMOVE: u8 = 3;
    pub(super) const REMOVE_DIRECTORY: u8 = 4;
    pub(super) const RENAME: u8 = 5;
    pub(super) const SET: u8 = 6;
}

/// The fields of a change; which of them mean something goes by what is changed.
#[derive(Default)]
struct Fields<'a> {
    what: u8,
    flags: u8,
    mode: u16,
    owner: u32,
    group: u32,
    kind: u8,
    directory: u64,
    other: u64,
    device: u64,
    written_unix_ns: i64,
    accessed_unix_ns: i64,
    name: &'a [u8],
    second: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(change: &'a NameChange) -> Fields<'a> {
        match change {
            NameChange::Make { directory, name, new } => Fields {
                what: change::MAKE,
                mode: new.mode,
                owner: new.owner,
                group: new.group,
                kind: new.kind.code(),
                directory: directory.0,
                device: new.device,
                name,
                second: &new.target,
                ..Fields::default()
            },
            NameChange::Link { number, directory, name } => {
                Fields { what: change::LINK, directory: directory.0, other: number.0, name, ..Fields::default() }
            }
            NameChange::Remove { directory, name } => {
                Fields { what: change::REMOVE, directory: directory.0, name, ..Fields::default() }
            }
            NameChange::RemoveDirectory { directory, name } => {
                Fields { what: change::REMOVE_DIRECTORY, directory: directory.0, name, ..Fields::default() }
            }
            NameChange::Rename { from_directory, from, to_directory, to, replace } => Fields {
                what: change::RENAME,
                flags: u8::from(*replace),
                directory: from_directory.0,
                other: to_directory.0,
                name: from,
                second: cut_name(to),
                ..Fields::default()
            },
            NameChange::Set { number, set } => {
                let given = [
                    set.mode.is_some(),
                    set.owner.is_some(),
                    set.group.is_some(),
                    set.written_unix_ns.is_some(),
                    set.accessed_unix_ns.is_some(),
                ];
                let flag = |flags, (bit, given): (usize, bool)| flags | u8::from(given) << bit;
                Fields {
                    what: change::SET,
                    flags: given.into_iter().enumerate().fold(0, flag),
                    mode: set.mode.unwrap_or(0),
                    owner: set.owner.unwrap_or(0),
                    group: set.group.unwrap_or(0),
                    other: number.0,
                    written_unix_ns: set.written_unix_ns.unwrap_or(0),
                    accessed_unix_ns: set.accessed_unix_ns.unwrap_or(0),
                    ..Fields::default()
                }
            }
        }
    }

    fn change(self, reader: &Reader<'_>) -> Result<NameChange, FrameError> {
        let directory = FileNumber(self.directory);
        let other = FileNumber(self.other);
        let name = self.name.to_vec();
        let is = |bit: u8| self.flags & 1 << bit != 0;
        Ok(match self.what {
            change::MAKE => {
                let kind = reader.coded("kind", self.kind, NodeKind::from_code(self.kind))?;
                let Fields { mode, owner, group, device, second, .. } = self;
                let new = NewNode { kind, mode, owner, group, device, target: second.to_vec() };
                NameChange::Make { directory, name, new }
            }
            change::LINK => NameChange::Link { number: other, directory, name },
            change::REMOVE => NameChange::Remove { directory, name },
            change::REMOVE_DIRECTORY => NameChange::RemoveDirectory { directory, name },
            change::RENAME => NameChange::Rename {
                from_directory: directory,
                from: name,
                to_directory: other,
                to: self.second.to_vec(),
                replace: is(0),
            },
            change::SET => NameChange::Set {
                number: other,
                set: SetAttributes {
                    mode: is(0).then_some(self.mode),
                    owner: is(1).then_some(self.owner),
                    group: is(2).then_some(self.group),
                    written_unix_ns: is(3).then_some(self.written_unix_ns),
                    accessed_unix_ns: is(4).then_some(self.accessed_unix_ns),
                },
            },
            what => return reader.bad("change of a name", what),
        })
    }
}

impl Message for ChangeName {
    const KIND: Kind = Kind::ChangeName;

    fn write_table(&self, table: &mut Vec<u8>) {
        let fields = Fields::of(&self.what);
        let name = cut_name(fields.name);
        let second = &fields.second[..fields.second.len().min(SENT_TARGET_BYTES_MAX)];
        table.put_u64(self.client);
        table.put_u64(self.change);
        table.put_u64(self.waits_from);
        table.put_u8(fields.what);
        table.put_u8(fields.flags);
        table.put_u16(fields.mode);
        table.put_u32(fields.owner);
        table.put_u32(fields.group);
        table.put_u8(fields.kind);
        table.extend_from_slice(&[0; 3]);
        table.put_u64(fields.directory);
        table.put_u64(fields.other);
        table.put_u64(fields.device);
        table.put_i64(fields.written_unix_ns);
        table.put_i64(fields.accessed_unix_ns);
        put_name_length(table, name);
        put_name_length(table, second);
        table.put_u32(0);
        table.extend_from_slice(name);
        table.extend_from_slice(second);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (client, change, waits_from) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (what, flags, mode) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let (owner, group, kind) = (reader.u32()?, reader.u32()?, reader.u8()?);
        reader.take(3)?;
        let (directory, other, device) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (written_unix_ns, accessed_unix_ns) = (reader.i64()?, reader.i64()?);
        let (name_bytes, second_bytes) = (reader.u16()?, reader.u16()?);
        reader.u32()?;
        let name = read_bytes(&mut reader, name_bytes, SENT_NAME_BYTES_MAX, "bytes of a name")?;
        let second_max = if what == change::MAKE { SENT_TARGET_BYTES_MAX } else { SENT_NAME_BYTES_MAX };
        let second = read_bytes(&mut reader, second_bytes, second_max, "bytes of a name or target")?;
        let fields = Fields {
            what,
            flags,
            mode,
            owner,
            group,
            kind,
            directory,
            other,
            device,
            written_unix_ns,
            accessed_unix_ns,
            name,
            second,
        };
        Ok(ChangeName { client, change, waits_from, what: fields.change(&reader)? })
    }
}

impl Message for NodeReply {
    const KIND: Kind = Kind::NodeReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        let target = self.node.as_ref().map_or(&[][..], |node| &node.view.target);
        assert!(target.len() <= TARGET_BYTES_MAX, "targets that are kept are bounded");
        let attributes = self.node.as_ref().map(|node| node.view.attributes).unwrap_or_default();
        let of = |field: fn(&Node) -> u64| self.node.as_ref().map_or(0, field);
        table.put_u8(self.outcome.code());
        table.put_u8(self.node.as_ref().map_or(NO_KIND, |node| node.view.kind.code()));
        table.put_u16(attributes.mode);
        table.put_u32(attributes.owner);
        table.put_u32(attributes.group);
        table.put_u32(of(|node| u64::from(node.view.links)) as u32);
        table.put_u64(of(|node| node.number.0));
        table.put_u64(of(|node| node.parent.0));
        table.put_u64(of(|node| node.view.device));
        table.put_i64(attributes.changed_unix_ns);
        table.put_i64(attributes.written_unix_ns);
        table.put_i64(attributes.accessed_unix_ns);
        put_name_length(table, target);
        table.extend_from_slice(&[0; 6]);
        table.extend_from_slice(target);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (outcome, kind, mode) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let outcome = reader.coded("outcome", outcome, NameOutcome::from_code(outcome))?;
        let (owner, group, links) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (number, parent, device) = (FileNumber(reader.u64()?), FileNumber(reader.u64()?), reader.u64()?);
        let (changed_unix_ns, written_unix_ns, accessed_unix_ns) = (reader.i64()?, reader.i64()?, reader.i64()?);
        let bytes = reader.u16()?;
        reader.take(6)?;
        let target = read_bytes(&mut reader, bytes, TARGET_BYTES_MAX, "bytes of a target")?;
        if kind == NO_KIND {
            return Ok(NodeReply { outcome, node: None });
        }
        if outcome != NameOutcome::Done {
            return reader.bad("kind of what was not done", kind);
        }
        let kind = reader.coded("kind", kind, NodeKind::from_code(kind))?;
        let attributes = Attributes { mode, owner, group, changed_unix_ns, written_unix_ns, accessed_unix_ns };
        let view = NodeView { kind, attributes, links, device, target: target.to_vec() };
        Ok(NodeReply { outcome, node: Some(Node { number, parent, view }) })
    }
}

/// The number, kind and name of an entry. No name is empty.
fn read_entry<'a>(reader: &mut Reader<'a>) -> Result<(FileNumber, NodeKind, &'a [u8]), FrameError> {
    let (number, kind, bytes) = (FileNumber(reader.u64()?), reader.u8()?, reader.u8()?);
    let kind = reader.coded("kind", kind, NodeKind::from_code(kind))?;
    if bytes == 0 {
        return reader.bad("bytes of a name", bytes);
    }
    Ok((number, kind, reader.take(usize::from(bytes))?))
}

impl Message for ListReply {
    const KIND: Kind = Kind::ListReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.entries.len() <= NAMES_MAX, "{} names exceed a batch", self.entries.len());
        table.put_u8(self.outcome.code());
        table.put_u8(u8::from(self.more));
        table.put_u16(0);
        table.put_count(self.entries.len());
        for entry in &self.entries {
            table.put_u64(entry.number.0);
            table.put_u8(entry.kind.code());
            table.put_u8(u8::try_from(entry.name.len()).expect("names that are kept are bounded"));
            table.extend_from_slice(&entry.name);
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (outcome, flags) = (reader.u8()?, reader.u8()?);
        let outcome = reader.coded("outcome", outcome, NameOutcome::from_code(outcome))?;
        reader.u16()?;
        let count = reader.count("names", NAMES_MAX)?;
        if outcome != NameOutcome::Done && count > 0 {
            return reader.bad("count of names that could not be listed", count as u64);
        }
        let mut ahead = reader.clone();
        for _ in 0..count {
            read_entry(&mut ahead)?;
        }
        let mut entries = Vec::with_capacity(count); // all of them are there
        for _ in 0..count {
            let (number, kind, name) = read_entry(&mut reader)?;
            entries.push(NameEntry { number, kind, name: name.to_vec() });
        }
        Ok(ListReply { outcome, more: flags & 1 != 0, entries })
    }
}
