//! What is asked of names.

mod adopt;
mod keep;
mod rename;

use std::collections::{BTreeMap, VecDeque};

use forebay_types::{Attributes, FileNumber, NewNode, NodeKind, NodeView, NumberMap, SetAttributes, TARGET_BYTES_MAX};

use crate::NamesError;
use crate::change::{Part, encode_frame};
use crate::entries::Entries;
use crate::node::{Content, Directory, Node, Other, check_name};
use crate::numbers::{Numbers, root_number};
use crate::snapshot::Walk;

pub use rename::Rename;

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
    /// Memory of all nodes outside of their values.
    heap_bytes: usize,
    /// Entries of all directories.
    entries: u64,
    /// What is kept for others, and the memory of it.
    pub(crate) kept: BTreeMap<Box<[u8]>, Box<[u8]>>,
    kept_bytes: usize,
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
        let node = Node { attributes, names: 1, content: Other::Directory(directory).into() };
        let mut nodes = NumberMap::default();
        nodes.get_or_insert_with(root, || node);
        Names::with(nodes, Numbers::new(lanes), 0)
    }

    pub(crate) fn with(nodes: NumberMap<Node>, numbers: Numbers, generation: u64) -> Names {
        let entries = nodes.iter().filter_map(|(_, node)| node.directory().ok());
        Names {
            heap_bytes: nodes.iter().map(|(_, node)| node.heap_bytes()).sum(),
            entries: entries.map(|directory| directory.entries.len() as u64).sum(),
            nodes,
            root: root_number(numbers.lanes()),
            numbers,
            generation,
            position: 0,
            durable: 0,
            undurable: BTreeMap::new(),
            outgoing: VecDeque::new(),
            snapshot: None,
            kept: BTreeMap::new(),
            kept_bytes: 0,
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
        self.directory(directory, name)?.entries.get(name).ok_or(NamesError::NotFound)
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
        let entries = self.get(directory)?.directory()?.entries.behind(after);
        let found = entries.take(entries_max).map(|(name, number)| Entry {
            name: name.into(),
            number,
            kind: self.node_of(number).kind(),
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
        if self.directory(directory, name)?.entries.get(name).is_some() {
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
                Other::Directory(Directory { parent: directory, ..Directory::default() }).into()
            }
            NodeKind::Link => Other::Link(new.target.as_slice().into()).into(),
            kind => Other::Special(kind, new.device).into(),
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
        let node = Node { attributes, names: 1, content };
        self.heap_bytes += node.heap_bytes();
        self.nodes.get_or_insert_with(number, || node);
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
        let is_new = self.change_entries(directory, now_unix_ns, |entries| entries.insert(name, number));
        self.entries += u64::from(is_new);
    }

    /// A name is not there any more.
    fn leave(&mut self, directory: FileNumber, name: &[u8], now_unix_ns: i64) {
        let was_there = self.change_entries(directory, now_unix_ns, |entries| entries.remove(name));
        self.entries -= u64::from(was_there);
    }

    fn change_entries(
        &mut self,
        directory: FileNumber,
        now_unix_ns: i64,
        change: impl FnOnce(&mut Entries) -> bool,
    ) -> bool {
        let node = self.get_mut(directory);
        (node.attributes.changed_unix_ns, node.attributes.written_unix_ns) = (now_unix_ns, now_unix_ns);
        let entries = &mut node.directory_mut().expect("looked up before").entries;
        let before = entries.heap_bytes();
        let changed = change(entries);
        let after = entries.heap_bytes();
        self.heap_bytes = self.heap_bytes + after - before;
        changed
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
        if self.directory(directory, name)?.entries.get(name).is_some() {
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

    /// Memory in use, never less than it is.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes() + self.heap_bytes + self.kept_bytes
    }

    /// Names in all directories.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Nobody has a number open any more that has no name; nothing is known of it from now on.
    pub fn forget(&mut self, number: FileNumber) {
        if self.nodes.get(number).is_some_and(|node| node.names == 0)
            && let Some(node) = self.nodes.remove(number)
        {
            self.heap_bytes -= node.heap_bytes();
        }
    }
}
