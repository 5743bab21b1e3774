//! What is asked of names.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use forebay_types::{Attributes, FileNumber, NewNode, NodeKind, NodeView, NumberMap, SetAttributes, TARGET_BYTES_MAX};

use crate::NamesError;
use crate::change::{Part, encode_frame};
use crate::node::{Content, Directory, Node, check_name};
use crate::numbers::{Numbers, root_number};
use crate::snapshot::Walk;

/// Bytes that are to be written, in the order in which they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To the end of the journal of a generation. When they are durable, [`Names::is_durable`] wants to know.
    Journal {
        /// Which.
        generation: u64,
        /// Whole changes.
        bytes: Vec<u8>,
    },
    /// To the end of the snapshot of a generation.
    Snapshot {
        /// Which.
        generation: u64,
        /// Whole changes.
        bytes: Vec<u8>,
        /// With the last: it is whole when these are durable and the journals are up to this position. Then it is sealed, and earlier generations may go.
        whole_at: Option<u64>,
    },
}

/// Something was changed. It counts when the journals are durable up to this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Bytes of all journals, since the start.
    pub position: u64,
    /// This number has no name any more: when that is durable and nobody has it open it is to be forgotten ([`Names::forget`]), and its bytes end if it is a file.
    pub unnamed: Option<FileNumber>,
}

/// Something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its number.
    pub number: FileNumber,
    /// Where in the journals that stands, as [`Done::position`].
    pub position: u64,
}

/// What was found. It may be told when the journals are durable up to `stable_at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// What was asked for.
    pub found: T,
    /// A position as [`Done::position`].
    pub stable_at: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Box<[u8]>,
    /// What it stands for.
    pub number: FileNumber,
    /// What that is.
    pub kind: NodeKind,
}

/// A name that becomes another one.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Where it is.
    pub from_directory: FileNumber,
    /// Its name there.
    pub from: &'a [u8],
    /// Where it goes.
    pub to_directory: FileNumber,
    /// Its name there.
    pub to: &'a [u8],
    /// What has that name already gives way.
    pub replace: bool,
}

/// Where files are whose names were lost.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What an entry of a directory takes of memory, about: its place in a tree that is half full, and its name.
pub(crate) fn entry_bytes(name: &[u8]) -> usize {
    2 * size_of::<(Box<[u8]>, FileNumber)>() + name.len() + 16
}

/// The name space of a store.
pub struct Names {
    pub(crate) nodes: NumberMap<Node>,
    pub(crate) numbers: Numbers,
    pub(crate) generation: u64,
    root: FileNumber,
    position: u64,
    durable: u64,
    /// Where what changed last of a number, or in a directory, stands in the journals, unless that is durable.
    undurable: BTreeMap<FileNumber, u64>,
    outgoing: VecDeque<Output>,
    pub(crate) snapshot: Option<Walk>,
    /// Memory of the entries of all directories, about.
    pub(crate) entry_bytes: usize,
    /// Bytes of the journal of this generation, and of its snapshot.
    pub(crate) journal_bytes: u64,
    pub(crate) snapshot_bytes: u64,
}

impl Names {
    /// The names of a store of so many lanes that has none: a root alone, which nobody has written down.
    ///
    /// # Panics
    /// Without lanes.
    pub fn new(lanes: u16) -> Names {
        assert!(lanes > 0, "a store has at least one lane");
        let root = root_number(lanes);
        let directory = Directory { parent: root, ..Directory::default() };
        let attributes = Attributes { mode: 0o755, ..Attributes::default() };
        let node = Node { attributes, names: 1, content: Content::Directory(Box::new(directory)) };
        let mut nodes = NumberMap::default();
        nodes.get_or_insert_with(root, || node);
        Names::with(nodes, Numbers::new(lanes), 0)
    }

    pub(crate) fn with(nodes: NumberMap<Node>, numbers: Numbers, generation: u64) -> Names {
        Names {
            nodes,
            root: root_number(numbers.lanes()),
            numbers,
            generation,
            position: 0,
            durable: 0,
            undurable: BTreeMap::new(),
            outgoing: VecDeque::new(),
            snapshot: None,
            entry_bytes: 0,
            journal_bytes: 0,
            snapshot_bytes: 0,
        }
    }

    /// The number of the directory in which all others are.
    pub fn root(&self) -> FileNumber {
        self.root
    }

    /// No number of a lane is given any more that has an ordinal below `next`: the lane has seen such.
    pub fn numbers_begin_at(&mut self, lane: u16, next: u64) {
        self.numbers.begin_at(usize::from(lane), next);
    }

    /// What is to be written next.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outgoing.pop_front()
    }

    /// The journals are durable up to this position.
    pub fn is_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
        let durable = self.durable;
        self.undurable.retain(|_, position| *position > durable);
    }

    /// Up to which position the journals are durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Where the journals end, what is on its way included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Everything that has a name, with its number, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = (FileNumber, NodeKind)> + '_ {
        let named = self.nodes.iter().filter(|(_, node)| node.names > 0);
        named.map(|(number, node)| (number, node.kind()))
    }

    pub(crate) fn put_out(&mut self, output: Output) {
        if let (Some(Output::Journal { generation: last, bytes: before }), Output::Journal { generation, bytes }) =
            (self.outgoing.back_mut(), &output)
            && last == generation
        {
            before.extend_from_slice(bytes);
            return;
        }
        self.outgoing.push_back(output);
    }

    /// Writes a change to the journal: what it touches is not durable before that is.
    fn change(&mut self, parts: &[Part], touched: &[FileNumber]) -> u64 {
        let mut bytes = Vec::new();
        encode_frame(parts, &mut bytes);
        self.position += bytes.len() as u64;
        self.journal_bytes += bytes.len() as u64;
        let generation = self.generation;
        self.put_out(Output::Journal { generation, bytes });
        self.undurable.extend(touched.iter().map(|number| (*number, self.position)));
        self.position
    }

    fn stable_at(&self, numbers: &[FileNumber]) -> u64 {
        numbers.iter().filter_map(|number| self.undurable.get(number)).max().copied().unwrap_or(0)
    }

    fn get(&self, number: FileNumber) -> Result<&Node, NamesError> {
        self.nodes.get(number).ok_or(NamesError::NotFound)
    }

    /// The node of a number that an entry stands for.
    fn node_of(&self, number: FileNumber) -> &Node {
        self.nodes.get(number).expect("entries stand for what is there")
    }

    fn get_mut(&mut self, number: FileNumber) -> &mut Node {
        self.nodes.get_mut(number).expect("looked up before")
    }

    /// A directory that has a name, in which a name may be looked for.
    fn directory(&self, directory: FileNumber, name: &[u8]) -> Result<&Directory, NamesError> {
        let node = self.get(directory)?;
        let found = node.directory()?;
        check_name(name)?;
        if node.names == 0 { Err(NamesError::NotFound) } else { Ok(found) }
    }

    fn entry(&self, directory: FileNumber, name: &[u8]) -> Result<FileNumber, NamesError> {
        self.directory(directory, name)?.entries.get(name).copied().ok_or(NamesError::NotFound)
    }

    pub(crate) fn part_of(&self, number: FileNumber) -> Part {
        let node = &self.node_of(number);
        let NodeView { kind, attributes, device, target, .. } = node.view();
        Part::Node { number, kind, attributes, device, target: target.into() }
    }

    // ---- what is there ----

    /// What a name stands for.
    ///
    /// # Errors
    /// [`NamesError::NotFound`], [`NamesError::NotDirectory`], and what is no name.
    pub fn lookup(&self, directory: FileNumber, name: &[u8]) -> Result<Found<(FileNumber, NodeView)>, NamesError> {
        let number = self.entry(directory, name)?;
        let view = self.node_of(number).view();
        Ok(Found { found: (number, view), stable_at: self.stable_at(&[directory, number]) })
    }

    /// What a number stands for, also when it has no name any more and was not forgotten.
    ///
    /// # Errors
    /// [`NamesError::NotFound`].
    pub fn node(&self, number: FileNumber) -> Result<Found<NodeView>, NamesError> {
        Ok(Found { found: self.get(number)?.view(), stable_at: self.stable_at(&[number]) })
    }

    /// The directory in which a directory is; the root is in itself.
    ///
    /// # Errors
    /// [`NamesError::NotFound`], [`NamesError::NotDirectory`].
    pub fn parent(&self, directory: FileNumber) -> Result<FileNumber, NamesError> {
        Ok(self.get(directory)?.directory()?.parent)
    }

    /// Entries of a directory in the order of their names, from behind `after` on, at most so many.
    ///
    /// # Errors
    /// [`NamesError::NotFound`], [`NamesError::NotDirectory`].
    pub fn list(
        &self,
        directory: FileNumber,
        after: Option<&[u8]>,
        entries_max: usize,
    ) -> Result<Found<Vec<Entry>>, NamesError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.get(directory)?.directory()?.entries.range::<[u8], _>((from, Bound::Unbounded));
        let found = entries.take(entries_max).map(|(name, number)| Entry {
            name: name.clone(),
            number: *number,
            kind: self.node_of(*number).kind(),
        });
        Ok(Found { found: found.collect(), stable_at: self.stable_at(&[directory]) })
    }

    // ---- what changes ----

    /// Makes something, under a name that nothing has.
    ///
    /// # Errors
    /// [`NamesError::Exists`], and those of [`Names::lookup`]; [`NamesError::TooLong`] for a target, [`NamesError::NoNumbers`].
    pub fn make(
        &mut self,
        directory: FileNumber,
        name: &[u8],
        new: &NewNode,
        now_unix_ns: i64,
    ) -> Result<Made, NamesError> {
        if self.directory(directory, name)?.entries.contains_key(name) {
            return Err(NamesError::Exists);
        }
        if new.target.len() > TARGET_BYTES_MAX {
            return Err(NamesError::TooLong);
        }
        let number = self.numbers.take().ok_or(NamesError::NoNumbers)?;
        let content = match new.kind {
            NodeKind::File => Content::File,
            NodeKind::Directory => {
                self.count_directory(directory)?;
                Content::Directory(Box::new(Directory { parent: directory, ..Directory::default() }))
            }
            NodeKind::Link => Content::Link(new.target.as_slice().into()),
            kind => Content::Special(kind, new.device),
        };
        self.numbers.was_given(number);
        let attributes = Attributes {
            mode: new.mode & 0o7777,
            owner: new.owner,
            group: new.group,
            changed_unix_ns: now_unix_ns,
            written_unix_ns: now_unix_ns,
            accessed_unix_ns: now_unix_ns,
        };
        self.nodes.get_or_insert_with(number, || Node { attributes, names: 1, content });
        self.enter(directory, name, number, now_unix_ns);
        let entry = Part::Entry { directory, name: name.into(), number };
        let parts = [self.part_of(number), entry, self.part_of(directory)];
        let position = self.change(&parts, &[directory, number]);
        Ok(Made { number, position })
    }

    /// A directory comes into another one.
    fn count_directory(&mut self, directory: FileNumber) -> Result<(), NamesError> {
        let parent = self.get_mut(directory).directory_mut()?;
        parent.directories = parent.directories.checked_add(1).ok_or(NamesError::TooManyLinks)?;
        Ok(())
    }

    fn enter(&mut self, directory: FileNumber, name: &[u8], number: FileNumber, now_unix_ns: i64) {
        if self.entries(directory, now_unix_ns).insert(name.into(), number).is_none() {
            self.entry_bytes += entry_bytes(name);
        }
    }

    /// A name is not there any more.
    fn leave(&mut self, directory: FileNumber, name: &[u8], now_unix_ns: i64) {
        if self.entries(directory, now_unix_ns).remove(name).is_some() {
            self.entry_bytes -= entry_bytes(name);
        }
    }

    /// The entries of a directory, to change them.
    fn entries(&mut self, directory: FileNumber, now_unix_ns: i64) -> &mut BTreeMap<Box<[u8]>, FileNumber> {
        let node = self.get_mut(directory);
        (node.attributes.changed_unix_ns, node.attributes.written_unix_ns) = (now_unix_ns, now_unix_ns);
        &mut node.directory_mut().expect("looked up before").entries
    }

    /// Gives something that is no directory one name more.
    ///
    /// # Errors
    /// [`NamesError::IsDirectory`], [`NamesError::Exists`], [`NamesError::TooManyLinks`], and those of [`Names::lookup`].
    pub fn link(
        &mut self,
        number: FileNumber,
        directory: FileNumber,
        name: &[u8],
        now_unix_ns: i64,
    ) -> Result<Done, NamesError> {
        let node = self.get(number)?;
        if node.kind() == NodeKind::Directory {
            return Err(NamesError::IsDirectory);
        }
        if self.directory(directory, name)?.entries.contains_key(name) {
            return Err(NamesError::Exists);
        }
        if node.names == 0 {
            return Err(NamesError::NotFound);
        }
        let names = node.names.checked_add(1).ok_or(NamesError::TooManyLinks)?;
        let node = self.get_mut(number);
        (node.names, node.attributes.changed_unix_ns) = (names, now_unix_ns);
        self.enter(directory, name, number, now_unix_ns);
        let entry = Part::Entry { directory, name: name.into(), number };
        let parts = [entry, self.part_of(number), self.part_of(directory)];
        let position = self.change(&parts, &[directory, number]);
        Ok(Done { position, unnamed: None })
    }

    /// Takes the name of something that is no directory away.
    ///
    /// # Errors
    /// [`NamesError::IsDirectory`], and those of [`Names::lookup`].
    pub fn remove(&mut self, directory: FileNumber, name: &[u8], now_unix_ns: i64) -> Result<Done, NamesError> {
        let number = self.entry(directory, name)?;
        if self.node_of(number).kind() == NodeKind::Directory {
            return Err(NamesError::IsDirectory);
        }
        self.leave(directory, name, now_unix_ns);
        let mut parts = vec![Part::NoEntry { directory, name: name.into() }, self.part_of(directory)];
        let unnamed = self.has_lost_a_name(number, now_unix_ns, &mut parts);
        let position = self.change(&parts, &[directory, number]);
        Ok(Done { position, unnamed })
    }

    /// One name less; whether it was the last.
    fn has_lost_a_name(&mut self, number: FileNumber, now_unix_ns: i64, parts: &mut Vec<Part>) -> Option<FileNumber> {
        let node = self.get_mut(number);
        node.names -= 1;
        node.attributes.changed_unix_ns = now_unix_ns;
        let is_gone = node.names == 0;
        parts.push(if is_gone { Part::NoNode { number } } else { self.part_of(number) });
        is_gone.then_some(number)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`NamesError::NotDirectory`], [`NamesError::NotEmpty`], and those of [`Names::lookup`].
    pub fn remove_directory(
        &mut self,
        directory: FileNumber,
        name: &[u8],
        now_unix_ns: i64,
    ) -> Result<Done, NamesError> {
        let number = self.entry(directory, name)?;
        if !self.node_of(number).directory()?.entries.is_empty() {
            return Err(NamesError::NotEmpty);
        }
        self.leave(directory, name, now_unix_ns);
        self.get_mut(directory).directory_mut()?.directories -= 1;
        let mut parts = vec![Part::NoEntry { directory, name: name.into() }, self.part_of(directory)];
        let unnamed = self.has_lost_a_name(number, now_unix_ns, &mut parts);
        let position = self.change(&parts, &[directory, number]);
        Ok(Done { position, unnamed })
    }

    /// Gives something another name, in one step: whoever looks finds it under one of both, and under the new one what was there or this. Of two names of one
    /// file nothing changes.
    ///
    /// # Errors
    /// [`NamesError::Exists`] when something has the name and is not to give way; [`NamesError::IsDirectory`], [`NamesError::NotDirectory`] and
    /// [`NamesError::NotEmpty`] when it cannot; [`NamesError::IntoItself`]; and those of [`Names::lookup`].
    pub fn rename(&mut self, rename: Rename<'_>, now_unix_ns: i64) -> Result<Done, NamesError> {
        let Rename { from_directory, from, to_directory, to, replace } = rename;
        let number = self.entry(from_directory, from)?;
        let there = self.directory(to_directory, to)?.entries.get(to).copied();
        let is_directory = self.node_of(number).kind() == NodeKind::Directory;
        if is_directory && self.is_in(to_directory, number) {
            return Err(NamesError::IntoItself);
        }
        if let Some(there) = there {
            if !replace {
                return Err(NamesError::Exists);
            }
            if there == number {
                return Ok(Done { position: self.stable_at(&[number]), unnamed: None });
            }
            self.may_give_way(there, is_directory)?;
        }
        let replaces_directory = there.is_some_and(|there| self.node_of(there).kind() == NodeKind::Directory);
        if is_directory {
            if !replaces_directory {
                self.count_directory(to_directory)?;
            }
            self.get_mut(from_directory).directory_mut()?.directories -= 1;
            self.get_mut(number).directory_mut()?.parent = to_directory;
        }
        self.leave(from_directory, from, now_unix_ns);
        self.enter(to_directory, to, number, now_unix_ns);
        self.get_mut(number).attributes.changed_unix_ns = now_unix_ns;
        let mut parts = vec![
            Part::NoEntry { directory: from_directory, name: from.into() },
            Part::Entry { directory: to_directory, name: to.into(), number },
            self.part_of(number),
            self.part_of(from_directory),
            self.part_of(to_directory),
        ];
        let unnamed = there.and_then(|there| self.has_lost_a_name(there, now_unix_ns, &mut parts));
        let mut touched = vec![from_directory, to_directory, number];
        touched.extend(there);
        let position = self.change(&parts, &touched);
        Ok(Done { position, unnamed })
    }

    /// Whether a name may be taken from what has it, for a directory or for something else.
    fn may_give_way(&self, there: FileNumber, to_directory: bool) -> Result<(), NamesError> {
        let node = &self.node_of(there);
        match (to_directory, node.directory()) {
            (true, Ok(directory)) if !directory.entries.is_empty() => Err(NamesError::NotEmpty),
            (true, Err(error)) => Err(error),
            (false, Ok(_)) => Err(NamesError::IsDirectory),
            (true, Ok(_)) | (false, Err(_)) => Ok(()),
        }
    }

    /// Whether a directory is another one, or lies in it.
    fn is_in(&self, directory: FileNumber, ancestor: FileNumber) -> bool {
        let mut at = directory;
        // What a damaged journal left may lie in a circle, apart from the root.
        for _ in 0..self.nodes.len() {
            if at == ancestor {
                return true;
            }
            match self.parent(at) {
                Ok(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
        true
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// [`NamesError::NotFound`].
    pub fn set(&mut self, number: FileNumber, set: SetAttributes, now_unix_ns: i64) -> Result<Done, NamesError> {
        self.get(number)?;
        let node = self.get_mut(number);
        let known = node.attributes;
        node.attributes = Attributes {
            mode: set.mode.unwrap_or(known.mode) & 0o7777,
            owner: set.owner.unwrap_or(known.owner),
            group: set.group.unwrap_or(known.group),
            changed_unix_ns: now_unix_ns,
            written_unix_ns: set.written_unix_ns.unwrap_or(known.written_unix_ns),
            accessed_unix_ns: set.accessed_unix_ns.unwrap_or(known.accessed_unix_ns),
        };
        if node.names == 0 {
            // It is written down nowhere any more.
            return Ok(Done { position: self.durable, unnamed: None });
        }
        let parts = [self.part_of(number)];
        Ok(Done { position: self.change(&parts, &[number]), unnamed: None })
    }

    /// Gives a file a name whose names were lost: its number, in a directory `lost+found` of the root, which is made if need be. Nothing happens when it has one.
    ///
    /// # Errors
    /// As [`Names::make`].
    pub fn adopt(&mut self, number: FileNumber, now_unix_ns: i64) -> Result<(), NamesError> {
        if self.nodes.get(number).is_some_and(|node| node.names > 0) {
            return Ok(());
        }
        let directory = match self.lookup(self.root, LOST_AND_FOUND) {
            Ok(found) => found.found.0,
            Err(_) => {
                let new = NewNode {
                    kind: NodeKind::Directory,
                    mode: 0o755,
                    owner: 0,
                    group: 0,
                    device: 0,
                    target: Vec::new(),
                };
                self.make(self.root, LOST_AND_FOUND, &new, now_unix_ns)?.number
            }
        };
        let name = number.0.to_string();
        if self.directory(directory, name.as_bytes())?.entries.contains_key(name.as_bytes()) {
            return Err(NamesError::Exists);
        }
        let attributes = Attributes {
            mode: 0o600,
            changed_unix_ns: now_unix_ns,
            written_unix_ns: now_unix_ns,
            accessed_unix_ns: now_unix_ns,
            ..Attributes::default()
        };
        self.numbers.was_given(number);
        let node = self.nodes.get_or_insert_with(number, || Node { attributes, names: 0, content: Content::File });
        node.names = 1;
        self.enter(directory, name.as_bytes(), number, now_unix_ns);
        let entry = Part::Entry { directory, name: name.into_bytes().into(), number };
        let parts = [self.part_of(number), entry, self.part_of(directory)];
        self.change(&parts, &[directory, number]);
        Ok(())
    }

    /// Memory in use, about: never much less than it is.
    pub fn bytes(&self) -> usize {
        let (groups, places) = self.nodes.groups_and_places();
        groups * (NumberMap::<Node>::GROUP_BYTES * 2 + 32) + places * size_of::<Node>() + self.entry_bytes
    }

    /// Nobody has a number open any more that has no name; nothing is known of it from now on.
    pub fn forget(&mut self, number: FileNumber) {
        if self.nodes.get(number).is_some_and(|node| node.names == 0) {
            self.nodes.remove(number);
        }
    }
}
