//! The names of the store's files, as a start reads them from the files of lane 0.

use forebay_client::files::escape;
use forebay_names::{Loss, Names};
use forebay_runs::Books;
use forebay_server::{NamesFound, NamesLoading};
use forebay_store::LaneLook;
use forebay_types::placement::lane_of;
use forebay_types::{FileNumber, NodeKind, NodeView};

use crate::file::kind_word;

/// Entries that are taken from a directory at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// What does not fit together and is told one by one.
const LOSSES_TOLD: usize = 100;

/// What has a name, by number: the directory that it is in, by its place among all of them, and what it is called there.
#[derive(Clone)]
struct Named {
    number: FileNumber,
    directory: u32,
    name: Box<[u8]>,
}

/// All names, by what they stand for.
pub struct StoredNames {
    lanes: u16,
    names: Names,
    /// Directories, each behind the one that it is in; the root is the first, and has no name. Their paths are put together when they are wanted: of very deep trees they
    /// would be very much.
    directories: Vec<Named>,
    /// What is no directory, ascending by number.
    named: Vec<Named>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
    /// What has no name here was removed, and is not stored any more.
    pub are_all: bool,
    /// The books of runs and streams, which are kept beside them.
    pub books: Books,
}

impl StoredNames {
    /// Reads them; `look` is at lane 0, which has recovered, of a store of so many lanes.
    pub fn read(look: &mut LaneLook, lanes: u16) -> StoredNames {
        let mut loading = NamesLoading::plan(lanes, look.lane());
        while !loading.is_over() {
            if loading.go_on(look.lane()) {
                loading.take_reply(look.next_reply());
            }
            loading.leave_out();
        }
        let NamesFound { names, books, mut damage, losses, .. } = loading.finish();
        damage.extend(losses.iter().take(LOSSES_TOLD).map(words_of));
        if losses.len() > LOSSES_TOLD {
            damage.push(format!("{} more do not fit together", losses.len() - LOSSES_TOLD));
        }
        StoredNames::by_number(names, books, lanes, damage)
    }

    fn by_number(names: Names, books: Books, lanes: u16, damage: Vec<String>) -> StoredNames {
        let root = Named { number: names.root(), directory: 0, name: Box::default() };
        let (mut directories, mut named) = (vec![root], Vec::new());
        let mut at = 0;
        while let Some(directory) = directories.get(at).map(|directory| directory.number) {
            let mut after: Option<Box<[u8]>> = None;
            loop {
                let page = names.list(directory, after.as_deref(), ENTRIES_AT_ONCE);
                let entries = page.expect("it was found as a directory").found;
                let Some(last) = entries.last() else { break };
                after = Some(last.name.clone());
                for entry in entries {
                    let known = Named { number: entry.number, directory: at as u32, name: entry.name };
                    if entry.kind == NodeKind::Directory { directories.push(known) } else { named.push(known) }
                }
            }
            at += 1;
        }
        named.sort_by_key(|named| named.number);
        let are_all = damage.is_empty();
        StoredNames { lanes, names, directories, named, damage, are_all, books }
    }

    /// Directories but for the root, each behind the one that it is in, with their paths.
    pub fn directories(&self) -> impl Iterator<Item = (FileNumber, Vec<u8>)> {
        self.directories.iter().skip(1).map(|directory| (directory.number, self.path(directory)))
    }

    fn path(&self, named: &Named) -> Vec<u8> {
        let mut names = vec![&named.name];
        let mut at = named.directory as usize;
        while at > 0 {
            names.push(&self.directories[at].name);
            at = self.directories[at].directory as usize;
        }
        names.into_iter().rev().flat_map(|name| b"/".iter().chain(name.iter())).copied().collect()
    }

    /// What is neither a file nor a directory, once for each of its names, and its path.
    pub fn others(&self) -> impl Iterator<Item = (FileNumber, Vec<u8>)> {
        self.numbers()
            .filter(|number| self.view(*number).kind != NodeKind::File)
            .flat_map(|number| self.paths(number).into_iter().map(move |path| (number, path)))
    }

    /// Files of a lane that have names, ascending.
    pub fn files_of_lane(&self, lane: u16) -> impl Iterator<Item = FileNumber> {
        let is_of = move |number: &FileNumber| lane_of(number.key(), self.lanes) == lane;
        self.numbers().filter(is_of).filter(|number| self.view(*number).kind == NodeKind::File)
    }

    /// What is no directory, ascending, once however many names it has.
    fn numbers(&self) -> impl Iterator<Item = FileNumber> {
        let is_first = |at: usize| at == 0 || self.named[at - 1].number != self.named[at].number;
        (0..self.named.len()).filter(move |at| is_first(*at)).map(|at| self.named[at].number)
    }

    fn named(&self, number: FileNumber) -> impl Iterator<Item = &Named> {
        let from = self.named.partition_point(|named| named.number < number);
        self.named[from..].iter().take_while(move |named| named.number == number)
    }

    /// Whether it has a name.
    pub fn has(&self, number: FileNumber) -> bool {
        self.named(number).next().is_some()
    }

    /// Its paths, from the root on; none when nothing of it is known.
    pub fn paths(&self, number: FileNumber) -> Vec<Vec<u8>> {
        self.named(number).map(|named| self.path(named)).collect()
    }

    /// What is known of something that has a name.
    pub fn view(&self, number: FileNumber) -> NodeView {
        self.names.node(number).expect("it was found under a name").found
    }

    /// How a file is called in words: its number, and its first path when it has one.
    pub fn words(names: Option<&StoredNames>, number: FileNumber) -> String {
        match names.and_then(|names| names.named(number).next().map(|named| names.path(named))) {
            Some(path) => format!("{} (file {})", escape(&path), number.0),
            None => format!("file {}", number.0),
        }
    }
}

fn words_of(loss: &Loss) -> String {
    match loss {
        Loss::Entry { directory, name, number } => {
            format!("what {} in directory {} stands for, number {}, is not known", escape(name), directory.0, number.0)
        }
        Loss::Nameless { number, kind } => format!("number {}, a {}, has no name any more", number.0, kind_word(*kind)),
    }
}
