//! Directories that are listed, page by page. A place in a listing is a count of entries; what was told is kept for the present page alone, and whoever goes
//! back begins anew.

use forebay_client::{Answer, Request};
use forebay_protocol::{NameEntry, NameList};
use forebay_types::{FileNumber, NodeKind};
use fuser::{Errno, FileType, INodeNo};

use crate::attributes::{Known, Unanswered, file_type, info_of, node_of, unexpected};
use crate::machine::{Machine, NAMES_LANE, Reply};
use crate::{errors, requests};

/// Entries that are asked for at once.
const PAGE_ENTRIES: u32 = 1024;

/// Entries that are told at once with all that is known of each: about as many as the kernel has room for.
const PLUS_ENTRIES: usize = 128;

/// Before the entries: the directory itself and the one in which it is.
const DOTS: u64 = 2;

/// A directory that is open.
pub(crate) struct OpenDirectory {
    number: FileNumber,
    /// So many entries come before the page.
    before: u64,
    page: Vec<NameEntry>,
    /// There are more behind the page.
    more: bool,
}

/// An entry as the kernel is told it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) inode: INodeNo,
    pub(crate) kind: FileType,
    pub(crate) name: Vec<u8>,
    /// Where the listing goes on behind it.
    pub(crate) next: u64,
    /// When that was asked for.
    pub(crate) known: Option<Known>,
}

type ThenEntries = Box<dyn FnOnce(&mut Machine, Result<Vec<NameEntry>, Errno>) + Send>;

impl OpenDirectory {
    fn new(number: FileNumber) -> OpenDirectory {
        OpenDirectory { number, before: 0, page: Vec::new(), more: true }
    }
}

impl Machine {
    /// Opens a directory; gives its handle.
    pub(crate) fn open_directory(&mut self, inode: INodeNo) -> u64 {
        let (handle, number) = (self.take_number(), self.number(inode));
        self.directories.insert(handle, OpenDirectory::new(number));
        handle
    }

    /// Closes it.
    pub(crate) fn close_directory(&mut self, handle: u64) {
        self.directories.remove(&handle);
    }

    /// Lists a directory from a place on.
    pub(crate) fn list(&mut self, handle: u64, from: u64, reply: Reply<Vec<Entry>>) {
        self.list_with_dots(handle, from, usize::MAX, false, reply);
    }

    /// The same with what is known of each entry.
    pub(crate) fn list_plus(&mut self, handle: u64, from: u64, reply: Reply<Vec<Entry>>) {
        self.list_with_dots(handle, from, PLUS_ENTRIES, true, reply);
    }

    fn list_with_dots(&mut self, handle: u64, from: u64, max: usize, plus: bool, reply: Reply<Vec<Entry>>) {
        let Some(directory) = self.directories.get_mut(&handle) else { return reply(Err(Errno::EBADF)) };
        let number = directory.number;
        if from == 0 {
            // What came since is told, too.
            *directory = OpenDirectory::new(number);
        }
        let first = from.saturating_sub(DOTS);
        self.entries(
            handle,
            first,
            Box::new(move |machine, entries| {
                let entries = match entries {
                    Ok(entries) => entries,
                    Err(error) => return reply(Err(error)),
                };
                let named = entries.into_iter().zip(first + DOTS + 1..).take(max);
                let listed: Vec<Entry> = named
                    .map(|(entry, next)| Entry {
                        inode: machine.inode(entry.number),
                        kind: file_type(entry.kind),
                        name: entry.name,
                        next,
                        known: None,
                    })
                    .collect();
                let then = move |machine: &mut Machine, listed| machine.add_dots(number, from, listed, reply);
                if plus { machine.add_known(listed, then) } else { then(machine, listed) }
            }),
        );
    }

    fn add_dots(&mut self, number: FileNumber, from: u64, mut listed: Vec<Entry>, reply: Reply<Vec<Entry>>) {
        if from >= DOTS {
            return reply(Ok(listed));
        }
        self.ask_or_fail(NAMES_LANE, requests::node(number), move |machine, answer| {
            let node = match answer.and_then(node_of) {
                Ok(node) => node,
                Err(error) => return reply(Err(error)),
            };
            let dot = |number, name: &[u8], next| {
                let inode = machine.inode(number);
                Entry { inode, kind: FileType::Directory, name: name.to_vec(), next, known: None }
            };
            let dots = [dot(number, b".", 1), dot(node.parent, b"..", 2)];
            listed.splice(..0, dots.into_iter().skip(from as usize));
            reply(Ok(listed));
        });
    }

    /// The entries from one on, of the page that has it.
    fn entries(&mut self, handle: u64, first: u64, then: ThenEntries) {
        let Some(directory) = self.directories.get_mut(&handle) else { return then(self, Err(Errno::EBADF)) };
        if first < directory.before {
            *directory = OpenDirectory::new(directory.number);
        }
        let skipped = (first - directory.before) as usize;
        if skipped < directory.page.len() || !directory.more {
            let entries = directory.page.get(skipped..).unwrap_or_default().to_vec();
            return then(self, Ok(entries));
        }
        let after = directory.page.last().map_or(Vec::new(), |last| last.name.clone());
        let list = NameList { directory: Some(directory.number), after, max: PAGE_ENTRIES };
        self.ask_or_fail(NAMES_LANE, Request::NameList(list), move |machine, answer| {
            let page = match answer {
                Ok(Answer::Names(page)) => page,
                Ok(other) => unexpected(&other),
                Err(error) => return then(machine, Err(error)),
            };
            if let Err(error) = errors::of_name(page.outcome) {
                return then(machine, Err(error));
            }
            if let Some(directory) = machine.directories.get_mut(&handle) {
                directory.before += directory.page.len() as u64;
                // A page without entries is the last.
                directory.more = page.more && !page.entries.is_empty();
                directory.page = page.entries;
            }
            machine.entries(handle, first, then);
        });
    }

    /// Adds what is known of each entry; those that went meanwhile are left out.
    fn add_known(&mut self, mut listed: Vec<Entry>, then: impl FnOnce(&mut Machine, Vec<Entry>) + Send + 'static) {
        let numbers: Vec<FileNumber> = listed.iter().map(|entry| self.number(entry.inode)).collect();
        let unanswered: Vec<Unanswered> = numbers.iter().map(|number| self.unanswered(*number)).collect();
        let is_file: Vec<bool> = listed.iter().map(|entry| entry.kind == file_type(NodeKind::File)).collect();
        let nodes = numbers.iter().map(|number| (NAMES_LANE, requests::node(*number)));
        let files = numbers.iter().zip(&is_file).filter(|(_, is_file)| **is_file).map(|(number, _)| *number);
        let asked = nodes.chain(files.map(|number| (self.lane(number), requests::stat(number)))).collect();
        self.ask_all(asked, move |machine, mut answers| {
            let mut infos = answers.split_off(listed.len()).into_iter();
            for (place, answer) in answers.into_iter().enumerate() {
                let info = if is_file[place] { infos.next().map(|info| info.and_then(info_of)) } else { None };
                let Ok(node) = answer.and_then(node_of) else { continue };
                if machine.was_cut_since(node.number, unanswered[place]) || matches!(info, Some(Err(_))) {
                    continue;
                }
                let info = info.and_then(Result::ok);
                listed[place].known = Some(machine.known(&node, info.as_ref(), unanswered[place]));
            }
            then(machine, listed);
        });
    }
}
