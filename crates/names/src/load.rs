//! What a start makes of a snapshot and the journals behind it.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{Attributes, FileNumber, NodeKind, NumberMap};

use crate::change::{JournalError, Part, decode_frame};
use crate::names::{Names, entry_bytes};
use crate::node::{Content, Node};
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

struct RawNode {
    kind: NodeKind,
    attributes: Attributes,
    device: u64,
    target: Box<[u8]>,
}

/// Takes a snapshot and journals in, in their order, and makes names of them.
pub struct Loader {
    nodes: BTreeMap<FileNumber, RawNode>,
    entries: BTreeMap<(FileNumber, Box<[u8]>), FileNumber>,
    numbers: Numbers,
    generation: u64,
    /// Parts of the snapshot so far; none when it does not begin with its head.
    counted: Option<(u64, u64)>,
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
            nodes: BTreeMap::new(),
            entries: BTreeMap::new(),
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
        if let Some((nodes, entries)) = self.counted.as_mut().filter(|_| !self.is_whole) {
            *nodes += u64::from(matches!(part, Part::Node { .. }));
            *entries += u64::from(matches!(part, Part::Entry { .. }));
        }
        match part {
            Part::Node { number, kind, attributes, device, target } => {
                self.numbers.was_given(number);
                self.nodes.insert(number, RawNode { kind, attributes, device, target });
            }
            Part::NoNode { number } => {
                self.numbers.was_given(number);
                self.nodes.remove(&number);
            }
            Part::Entry { directory, name, number } => drop(self.entries.insert((directory, name), number)),
            Part::NoEntry { directory, name } => drop(self.entries.remove(&(directory, name))),
            Part::Numbers { lane, next } => self.numbers.begin_at(usize::from(lane), next),
            Part::Begins { generation, lanes }
                if lanes == self.numbers.lanes() && journal_number(generation, lanes).is_some() =>
            {
                (self.generation, self.counted) = (generation, Some((0, 0)));
            }
            Part::Begins { .. } => {}
            Part::Ends { nodes, entries } => self.is_whole |= self.counted == Some((nodes, entries)),
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
        let mut nodes = NumberMap::default();
        for (number, raw) in self.nodes {
            nodes.get_or_insert_with(number, || raw.into_node());
        }
        let new_root = || Names::new(lanes).nodes.remove(root).expect("it has a root");
        let there = nodes.get_or_insert_with(root, new_root);
        if there.kind() != NodeKind::Directory {
            losses.push(Loss::Nameless { number: root, kind: there.kind() });
            *there = new_root();
        }
        there.directory_mut().expect("made sure of above").parent = root;
        there.names = 1;
        let mut entries_bytes = 0;
        for ((directory, name), number) in self.entries {
            let of = nodes.get(number).map(|node| (node.kind() == NodeKind::Directory, node.names));
            let into = nodes.get_mut(directory).and_then(|node| node.directory_mut().ok());
            let (Some((is_directory, others)), Some(into)) = (of, into) else {
                losses.push(Loss::Entry { directory, name, number });
                continue;
            };
            if is_directory && others > 0 {
                losses.push(Loss::Entry { directory, name, number });
                continue;
            }
            into.directories += u32::from(is_directory);
            entries_bytes += entry_bytes(&name);
            into.entries.insert(name, number);
            let node = nodes.get_mut(number).expect("looked up above");
            node.names += 1;
            if let Ok(of) = node.directory_mut() {
                of.parent = directory;
            }
        }
        let reached = reached_from(&nodes, root);
        let lost = nodes.iter().filter(|(number, _)| !reached.contains(number));
        losses.extend(lost.map(|(number, node)| Loss::Nameless { number, kind: node.kind() }));
        let mut names = Names::with(nodes, self.numbers, generation.max(self.generation));
        names.entry_bytes = entries_bytes;
        names.journal_bytes = self.read_bytes;
        (names, losses)
    }
}

/// All numbers that have a name under a directory, and that.
fn reached_from(nodes: &NumberMap<Node>, root: FileNumber) -> BTreeSet<FileNumber> {
    let mut reached = BTreeSet::from([root]);
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        let Some(Ok(directory)) = nodes.get(directory).map(Node::directory) else { continue };
        for number in directory.entries.values() {
            if reached.insert(*number) {
                directories.push(*number);
            }
        }
    }
    reached
}

impl RawNode {
    fn into_node(self) -> Node {
        let RawNode { kind, attributes, device, target } = self;
        let content = match kind {
            NodeKind::File => Content::File,
            NodeKind::Directory => Content::Directory(Box::default()),
            NodeKind::Link => Content::Link(target),
            kind => Content::Special(kind, device),
        };
        Node { attributes, names: 0, content }
    }
}
