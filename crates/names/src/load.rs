//! What a start makes of a snapshot and the journals behind it.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{FileNumber, NodeKind, NumberMap};

use crate::change::{JournalError, Part, decode_frame};
use crate::entries::Entries;
use crate::names::Names;
use crate::node::{Content, Directory, Node, Other};
use crate::numbers::{Numbers, journal_number, root_number};

/// Something that does not fit together: a part of a snapshot or a journal is missing, or a program was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A name stands for a number of which nothing is known, or for a directory that has another one, or lies in a directory of which nothing is known: it is left out.
    Entry {
        /// The directory.
        directory: FileNumber,
        /// The name.
        name: Box<[u8]>,
        /// The number.
        number: FileNumber,
    },
    /// Something is known of a number, and no name under the root stands for it.
    Nameless {
        /// The number.
        number: FileNumber,
        /// What it is.
        kind: NodeKind,
    },
}

/// Takes a snapshot and journals in, in their order, and makes names of them.
pub struct Loader {
    /// Directories without their entries, which may come before them.
    nodes: NumberMap<Node>,
    entries: BTreeMap<FileNumber, Entries>,
    kept: BTreeMap<Box<[u8]>, Box<[u8]>>,
    numbers: Numbers,
    generation: u64,
    /// Parts of the snapshot so far; none when it does not begin with its head.
    counted: Option<(u64, u64, u64)>,
    is_whole: bool,
    read_bytes: u64,
}

impl Loader {
    /// Nothing yet, of a store of so many lanes.
    ///
    /// # Panics
    /// Without lanes.
    pub fn new(lanes: u16) -> Loader {
        assert!(lanes > 0, "a store has at least one lane");
        Loader {
            nodes: NumberMap::default(),
            entries: BTreeMap::new(),
            kept: BTreeMap::new(),
            numbers: Numbers::new(lanes),
            generation: 0,
            counted: None,
            is_whole: false,
            read_bytes: 0,
        }
    }

    /// Takes the whole changes in that stand at the beginning of `bytes`, and gives how many bytes these are: what is left is the beginning of the next.
    ///
    /// # Errors
    /// [`JournalError`], but for a change that is cut off.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, JournalError> {
        let mut at = 0;
        loop {
            match decode_frame(&bytes[at..]) {
                Ok((parts, bytes)) => {
                    parts.into_iter().for_each(|part| self.take(part));
                    at += bytes;
                }
                Err(JournalError::Cut { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.read_bytes += at as u64;
        Ok(at)
    }

    fn take(&mut self, part: Part) {
        if let Some((nodes, entries, kept)) = self.counted.as_mut().filter(|_| !self.is_whole) {
            *nodes += u64::from(matches!(part, Part::Node { .. }));
            *entries += u64::from(matches!(part, Part::Entry { .. }));
            *kept += u64::from(matches!(part, Part::Kept { .. }));
        }
        match part {
            Part::Node { number, kind, attributes, device, target } => {
                self.numbers.was_given(number);
                let content = match kind {
                    NodeKind::File => Content::File,
                    NodeKind::Directory => Other::Directory(Directory::default()).into(),
                    NodeKind::Link => Other::Link(target).into(),
                    kind => Other::Special(kind, device).into(),
                };
                *self.nodes.get_or_insert_with(number, Node::default) = Node { attributes, names: 0, content };
            }
            Part::NoNode { number } => {
                self.numbers.was_given(number);
                self.nodes.remove(number);
            }
            Part::Entry { directory, name, number } => {
                self.entries.entry(directory).or_default().insert(&name, number);
            }
            Part::NoEntry { directory, name } => {
                if let Some(entries) = self.entries.get_mut(&directory) {
                    entries.remove(&name);
                }
            }
            Part::Numbers { lane, next } => self.numbers.begin_at(usize::from(lane), next),
            Part::Begins { generation, lanes }
                if lanes == self.numbers.lanes() && journal_number(generation, lanes).is_some() =>
            {
                (self.generation, self.counted) = (generation, Some((0, 0, 0)));
            }
            Part::Begins { .. } => {}
            Part::Ends { nodes, entries, kept } => self.is_whole |= self.counted == Some((nodes, entries, kept)),
            Part::Kept { key, value } => drop(self.kept.insert(key, value)),
        }
    }

    /// Whether a snapshot was read from its beginning to its end.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The names, and what of what was read does not fit together. `generation`: of the last journal that was read, and that is written on.
    ///
    /// # Panics
    /// When no journal can be of that generation.
    pub fn finish(self, generation: u64) -> (Names, Vec<Loss>) {
        assert!(journal_number(generation, self.numbers.lanes()).is_some(), "a journal of the generation was read");
        let mut losses = Vec::new();
        let lanes = self.numbers.lanes();
        let root = root_number(lanes);
        let mut nodes = self.nodes;
        let new_root = || Names::new(lanes).nodes.remove(root).expect("it has a root");
        let there = nodes.get_or_insert_with(root, new_root);
        if there.kind() != NodeKind::Directory {
            losses.push(Loss::Nameless { number: root, kind: there.kind() });
            *there = new_root();
        }
        there.directory_mut().expect("made sure of above").parent = root;
        there.names = 1;
        for (directory, entries) in self.entries {
            enter(&mut nodes, directory, entries, &mut losses);
        }
        let reached = reached_from(&nodes, root);
        let lost = nodes.iter().filter(|(number, _)| !reached.contains(number));
        losses.extend(lost.map(|(number, node)| Loss::Nameless { number, kind: node.kind() }));
        let mut names = Names::with(nodes, self.numbers, generation.max(self.generation));
        self.kept.into_iter().for_each(|(key, value)| names.enter_kept(key, value));
        names.journal_bytes = self.read_bytes;
        (names, losses)
    }
}

/// A directory gets its entries, as far as they fit what is there.
fn enter(nodes: &mut NumberMap<Node>, directory: FileNumber, mut entries: Entries, losses: &mut Vec<Loss>) {
    let is_there = nodes.get(directory).is_some_and(|node| node.kind() == NodeKind::Directory);
    let (mut directories, mut bad) = (0, Vec::new());
    for (name, number) in entries.behind(None) {
        let of = nodes.get_mut(number).filter(|_| is_there);
        let Some(of) = of.filter(|of| of.kind() != NodeKind::Directory || of.names == 0) else {
            bad.push((Box::from(name), number));
            continue;
        };
        of.names += 1;
        if let Ok(of) = of.directory_mut() {
            of.parent = directory;
            directories += 1;
        }
    }
    for (name, number) in bad {
        entries.remove(&name);
        losses.push(Loss::Entry { directory, name, number });
    }
    if let Some(Ok(into)) = nodes.get_mut(directory).map(Node::directory_mut) {
        (into.entries, into.directories) = (entries, directories);
    }
}

/// All numbers that have a name under a directory, and that.
fn reached_from(nodes: &NumberMap<Node>, root: FileNumber) -> BTreeSet<FileNumber> {
    let mut reached = BTreeSet::from([root]);
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        let Some(Ok(directory)) = nodes.get(directory).map(Node::directory) else { continue };
        for (_, number) in directory.entries.behind(None) {
            if reached.insert(number) {
                directories.push(number);
            }
        }
    }
    reached
}
