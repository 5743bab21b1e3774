//! What is in a directory, page by page.

use std::collections::VecDeque;

use forebay_protocol::limits::NAMES_MAX;
use forebay_protocol::{FileInfo, NameEntry, NameList, NameLookup, Node};
use forebay_types::{FileNumber, NameOutcome, NodeKind};

use super::walk::check_name;
use super::{Core, FileError, Files, NAMES_LANE, escape};
use crate::client::unexpected;
use crate::error::ClientError;
use crate::session::{Answer, Request};

/// Entries of a page of which each is asked about.
const ASKED_MAX: usize = 512;

/// What is told of each entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Its name, its number and its kind.
    Names,
    /// And of files, what their lanes know: a request for each lane and page.
    Sizes,
    /// And what is kept beside each name: a request for each entry, many at once.
    All,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// Its name, any bytes but a slash or a zero.
    pub name: Vec<u8>,
    /// Its number.
    pub number: FileNumber,
    /// What it is.
    pub kind: NodeKind,
    /// With [`Detail::Sizes`] and [`Detail::All`], of a file: what its lane knows.
    pub info: Option<FileInfo>,
    /// With [`Detail::All`]: what is kept beside its name; `None` when it was removed meanwhile.
    pub node: Option<Node>,
}

/// A directory that is listed, in the order of the bytes of its names. What comes into it or leaves it meanwhile may be told or not.
pub struct Listing {
    files: Files,
    path: Vec<u8>,
    directory: FileNumber,
    detail: Detail,
    after: Vec<u8>,
    here: VecDeque<ListedName>,
    /// There are more behind what is here.
    more: bool,
}

impl Files {
    /// Lists a directory; symbolic links are followed. Pages are asked for as the listing goes on.
    ///
    /// # Errors
    /// [`FileError::NotDirectory`], [`FileError::NotFound`], and others of [`Files::lookup`].
    pub fn list(&self, path: impl AsRef<[u8]>, detail: Detail) -> Result<Listing, FileError> {
        let path = path.as_ref().to_vec();
        let node = self.lookup(&path)?;
        if node.view.kind != NodeKind::Directory {
            return Err(FileError::NotDirectory { path: escape(&path) });
        }
        let (directory, files) = (node.number, self.clone());
        Ok(Listing { files, path, directory, detail, after: Vec::new(), here: VecDeque::new(), more: true })
    }
}

impl Listing {
    /// The next entries, in order; none behind the last one.
    ///
    /// # Errors
    /// Why they cannot be listed; the next call asks again.
    pub fn next_page(&mut self) -> Result<Vec<ListedName>, FileError> {
        if self.here.is_empty() && self.more {
            let mut core = self.files.lock();
            let (page, more) = core.page(&escape(&self.path), self.directory, &self.after, self.detail)?;
            if let Some(last) = page.last() {
                self.after.clone_from(&last.name);
            }
            (self.here, self.more) = (page.into(), more);
        }
        Ok(std::mem::take(&mut self.here).into())
    }
}

impl Iterator for Listing {
    type Item = Result<ListedName, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.here.is_empty() {
            match self.next_page() {
                Ok(page) => self.here = page.into(),
                Err(error) => {
                    // Whoever goes on all the same would be told the same for ever.
                    self.more = false;
                    return Some(Err(error));
                }
            }
        }
        self.here.pop_front().map(Ok)
    }
}

/// An entry that is no name, or does not stand behind the one before: who walks a tree makes paths of what is listed, and goes on behind the last one.
fn bad_name<'a>(after: &'a [u8], entries: &'a [NameEntry]) -> Option<&'a [u8]> {
    let mut before = after;
    for NameEntry { name, .. } in entries {
        if check_name(name).is_err() || *before >= **name {
            return Some(name);
        }
        before = name;
    }
    None
}

impl Core {
    fn page(
        &mut self,
        path: &str,
        directory: FileNumber,
        after: &[u8],
        detail: Detail,
    ) -> Result<(Vec<ListedName>, bool), FileError> {
        let max = if detail == Detail::All { ASKED_MAX } else { NAMES_MAX } as u32;
        let list = NameList { directory: Some(directory), after: after.to_vec(), max };
        let reply = match self.ask(path, NAMES_LANE, Request::NameList(list))? {
            Answer::Names(reply) => reply,
            other => unexpected(&other),
        };
        if reply.outcome != NameOutcome::Done {
            return Err(FileError::of_name(path, reply.outcome).expect("it was not done"));
        }
        if let Some(bad) = bad_name(after, &reply.entries) {
            let what = format!("it lists {} where no such name can stand", escape(bad));
            return Err(FileError::client(path, ClientError::Broken { address: self.client.address(), what }));
        }
        let entry = |entry: NameEntry| ListedName {
            name: entry.name,
            number: entry.number,
            kind: entry.kind,
            info: None,
            node: None,
        };
        let mut page: Vec<ListedName> = reply.entries.into_iter().map(entry).collect();
        if detail != Detail::Names {
            self.add_infos(path, &mut page)?;
        }
        if detail == Detail::All {
            self.add_nodes(path, &mut page)?;
        }
        Ok((page, reply.more))
    }

    fn add_infos(&mut self, path: &str, page: &mut [ListedName]) -> Result<(), FileError> {
        let is_file = |entry: &&mut ListedName| entry.kind == NodeKind::File;
        let numbers: Vec<FileNumber> = page.iter_mut().filter(is_file).map(|entry| entry.number).collect();
        let infos = self.infos(path, &numbers)?;
        page.iter_mut().filter(is_file).zip(infos).for_each(|(entry, info)| entry.info = Some(info));
        Ok(())
    }

    fn add_nodes(&mut self, path: &str, page: &mut [ListedName]) -> Result<(), FileError> {
        let lookup = |entry: &ListedName| NameLookup { directory: Some(entry.number), name: Vec::new() };
        let requests = page.iter().map(|entry| (NAMES_LANE, Request::NameLookup(lookup(entry)))).collect();
        let answers = self.client.ask(requests).map_err(|error| FileError::client(path, error))?;
        for (entry, answer) in page.iter_mut().zip(answers) {
            match answer {
                Answer::Node(reply) => entry.node = reply.node.filter(|node| node.view.kind == entry.kind),
                other => unexpected(&other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_name_or_comes_again_is_not_listed() {
        let entries = |names: &[&[u8]]| -> Vec<NameEntry> {
            let entry = |name: &&[u8]| NameEntry { number: FileNumber(7), kind: NodeKind::File, name: name.to_vec() };
            names.iter().map(entry).collect()
        };
        assert_eq!(bad_name(b"", &entries(&[b"a", b"b", b"b\xff"])), None);
        assert_eq!(bad_name(b"a", &entries(&[])), None);
        for (after, names) in [
            (&b""[..], &[&b".."[..]][..]),
            (b"", &[b"a/b"]),
            (b"", &[b"a", b"b\0"]),
            (b"b", &[b"a"]),
            (b"b", &[b"b"]),
            (b"", &[b"a", b"a"]),
        ] {
            assert_eq!(bad_name(after, &entries(names)), names.last().copied(), "{names:?} behind {after:?}");
        }
    }
}
