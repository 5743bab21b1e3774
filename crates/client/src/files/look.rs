//! What names stand for, and what is known of files.

use std::collections::BTreeMap;

use forebay_protocol::limits::FILES_MAX;
use forebay_protocol::{FileInfo, FileStat, NameLookup, Node};
use forebay_types::{FileNumber, NameOutcome, NodeKind, ReadOutcome};

use super::walk::{Walk, WalkError, WalkStep, check_name};
use super::{Core, FileError, Files, NAMES_LANE, escape};
use crate::client::unexpected;
use crate::session::{Answer, Request};

/// What is known of something that has a name: of a file, both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its number, and what is kept of it beside its name.
    pub node: Node,
    /// Of a file, what its lane knows.
    pub info: Option<FileInfo>,
}

impl FileStatus {
    /// How long it is, bytes: of a link its target, of what has no bytes 0; `None` when that of a file cannot be said now ([`FileInfo::outcome`] says why).
    pub fn length(&self) -> Option<u64> {
        match (self.node.view.kind, &self.info) {
            (NodeKind::File, Some(info)) => length_of(info),
            (NodeKind::Link, _) => Some(self.node.view.target.len() as u64),
            _ => Some(0),
        }
    }

    /// When its content changed last, nanoseconds since 1970: of a file that was written to, what its lane knows.
    pub fn written_unix_ns(&self) -> i64 {
        let known = self.info.as_ref().filter(|info| info.outcome == ReadOutcome::Found);
        known.map_or(self.node.view.attributes.written_unix_ns, |info| info.written_unix_ns)
    }

    /// Whether it is a file that does not change any more.
    pub fn is_sealed(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.sealed)
    }
}

/// How long a file is, bytes; `None` when that cannot be said now.
pub fn length_of(info: &FileInfo) -> Option<u64> {
    match info.outcome {
        ReadOutcome::Found => Some(info.length),
        ReadOutcome::NotFound => Some(0),
        ReadOutcome::Deleted | ReadOutcome::Unavailable | ReadOutcome::Lost => None,
    }
}

impl Files {
    /// What a path stands for; symbolic links are followed.
    ///
    /// # Errors
    /// [`FileError::NotFound`] and other reasons why there is no such thing.
    pub fn lookup(&self, path: impl AsRef<[u8]>) -> Result<Node, FileError> {
        self.lock().walk(path.as_ref(), true)
    }

    /// The same, but for a link that the path itself names: that is what is meant.
    ///
    /// # Errors
    /// As [`Files::lookup`].
    pub fn lookup_link(&self, path: impl AsRef<[u8]>) -> Result<Node, FileError> {
        self.lock().walk(path.as_ref(), false)
    }

    /// What a name in a directory stands for (`None`: in the root); with an empty name, what the number itself does.
    ///
    /// # Errors
    /// As [`Files::lookup`]; no link is followed.
    pub fn lookup_in(&self, directory: Option<FileNumber>, name: &[u8]) -> Result<Node, FileError> {
        let path = escape(name);
        let checked = if name.is_empty() { Ok(()) } else { check_name(name) };
        let found = match checked {
            Ok(()) => {
                let lookup = NameLookup { directory, name: name.to_vec() };
                self.lock().look(&lookup).map_err(|error| FileError::client(&path, error))?
            }
            Err(outcome) => Err(outcome),
        };
        found.map_err(|outcome| FileError::of_name(&path, outcome).expect("it was not found"))
    }

    /// What is known of what a path stands for; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Files::lookup`].
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<FileStatus, FileError> {
        let mut core = self.lock();
        let node = core.walk(path.as_ref(), true)?;
        core.status(path.as_ref(), node)
    }

    /// The same, but for a link that the path itself names: that is what is meant.
    ///
    /// # Errors
    /// As [`Files::lookup`].
    pub fn stat_link(&self, path: impl AsRef<[u8]>) -> Result<FileStatus, FileError> {
        let mut core = self.lock();
        let node = core.walk(path.as_ref(), false)?;
        core.status(path.as_ref(), node)
    }

    /// What is known of files, in their order, with as few requests as there are lanes for every 4096 of them.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn infos(&self, files: &[FileNumber]) -> Result<Vec<FileInfo>, FileError> {
        self.lock().infos("files", files)
    }
}

impl Core {
    /// Asks the names; what they say.
    pub(super) fn look(&mut self, lookup: &NameLookup) -> Result<Result<Node, NameOutcome>, crate::error::ClientError> {
        match self.client.ask_one(NAMES_LANE, Request::NameLookup(lookup.clone()))? {
            Answer::Node(reply) => Ok(reply.node.ok_or(reply.outcome)),
            other => unexpected(&other),
        }
    }

    /// What a path stands for.
    pub(super) fn walk(&mut self, path: &[u8], follows_last: bool) -> Result<Node, FileError> {
        let mut walk = Walk::new(path, follows_last);
        loop {
            match walk.next_step() {
                WalkStep::Found(node) => return Ok(node),
                WalkStep::Failed(WalkError::LinkLoop) => return Err(FileError::LinkLoop { path: escape(path) }),
                WalkStep::Failed(WalkError::Name(outcome)) => {
                    return Err(FileError::of_name(&escape(path), outcome).expect("what is done is no failure"));
                }
                WalkStep::Ask(lookup) => {
                    let found = self.look(&lookup).map_err(|error| FileError::client(&escape(path), error))?;
                    walk.answered(found);
                }
            }
        }
    }

    /// The number of the root.
    pub(super) fn root(&mut self, path: &[u8]) -> Result<FileNumber, FileError> {
        if let Some(root) = self.root {
            return Ok(root);
        }
        let root = self.walk(b"/", true).map_err(|error| match error {
            FileError::Client { error, .. } => FileError::client(&escape(path), error),
            other => other,
        })?;
        Ok(*self.root.insert(root.number))
    }

    /// What is known of a node.
    pub(super) fn status(&mut self, path: &[u8], node: Node) -> Result<FileStatus, FileError> {
        let info = match node.view.kind {
            NodeKind::File => self.infos(&escape(path), &[node.number])?.pop(),
            _ => None,
        };
        Ok(FileStatus { node, info })
    }

    /// What is known of files, in their order.
    pub(super) fn infos(&mut self, path: &str, files: &[FileNumber]) -> Result<Vec<FileInfo>, FileError> {
        let mut by_lane: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (place, file) in files.iter().enumerate() {
            by_lane.entry(self.lane(*file)).or_default().push(place);
        }
        let parts: Vec<(u16, &[usize])> =
            by_lane.iter().flat_map(|(lane, places)| places.chunks(FILES_MAX).map(|part| (*lane, part))).collect();
        let request = |places: &[usize]| FileStat { files: places.iter().map(|place| files[*place]).collect() };
        let requests = parts.iter().map(|(lane, places)| (*lane, Request::FileStat(request(places)))).collect();
        let answers = self.client.ask(requests).map_err(|error| FileError::client(path, error))?;
        let mut found: Vec<Option<FileInfo>> = vec![None; files.len()];
        for ((_, places), answer) in parts.iter().zip(answers) {
            let Answer::FileInfos(infos) = answer else { unexpected(&answer) };
            places.iter().zip(infos).for_each(|(place, info)| found[*place] = Some(info));
        }
        Ok(found.into_iter().map(|info| info.expect("each was asked for once")).collect())
    }
}
