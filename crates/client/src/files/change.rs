//! Changes of names: made, linked, removed, renamed, and what is kept beside them.

use forebay_protocol::{ChangeName, FileSeal, FileSet, NameChange, Node};
use forebay_types::{FileNumber, FileOutcome, NameOutcome, NewNode, NodeKind, SetAttributes};

use super::patience::{Patience, may_change, name_may_change};
use super::walk::check_name;
use super::{Core, FileError, Files, NAMES_LANE, Owner, escape};
use crate::client::unexpected;
use crate::error::ClientError;
use crate::session::{Answer, Request};

/// The directory of a path and the last name in it. A slash at the end says nothing more: what a name stands for says what it is.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), NameOutcome> {
    if path.is_empty() {
        return Err(NameOutcome::NotFound);
    }
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let (directory, name) =
        path[..end].split_at(path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1));
    check_name(name).map(|()| (directory, name))
}

fn failed(path: &[u8], outcome: NameOutcome) -> FileError {
    FileError::of_name(&escape(path), outcome).expect("it was not done")
}

impl Files {
    /// Makes a directory.
    ///
    /// # Errors
    /// [`FileError::Exists`], and other reasons why it was not made.
    pub fn make_directory(&self, path: impl AsRef<[u8]>, owner: &Owner) -> Result<Node, FileError> {
        self.lock().make(path.as_ref(), NodeKind::Directory, owner, Vec::new())
    }

    /// Makes a directory and those on the way to it, as far as they are not there.
    ///
    /// # Errors
    /// Why one of them was not made; those before it are there.
    pub fn make_directories(&self, path: impl AsRef<[u8]>, owner: &Owner) -> Result<Node, FileError> {
        let path = path.as_ref();
        let mut core = self.lock();
        // Most are there.
        match core.walk(path, true) {
            Err(FileError::NotFound { .. }) => {}
            Ok(node) if node.view.kind != NodeKind::Directory => {
                return Err(FileError::Exists { path: escape(path) });
            }
            found => return found,
        }
        let ends =
            (1..=path.len()).filter(|end| path[end - 1] != b'/' && path.get(*end).is_none_or(|next| *next == b'/'));
        for part in ends.map(|end| &path[..end]) {
            if part.ends_with(b"/..") || part.ends_with(b"/.") || matches!(part, b"." | b"..") {
                continue;
            }
            match core.make(part, NodeKind::Directory, owner, Vec::new()) {
                Ok(_) | Err(FileError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let node = core.walk(path, true)?;
        let is_directory = node.view.kind == NodeKind::Directory;
        if is_directory { Ok(node) } else { Err(FileError::Exists { path: escape(path) }) }
    }

    /// Makes a symbolic link that leads to `target`, which need not be there.
    ///
    /// # Errors
    /// [`FileError::Exists`], and other reasons why it was not made.
    pub fn symlink(&self, target: &[u8], path: impl AsRef<[u8]>, owner: &Owner) -> Result<Node, FileError> {
        self.lock().make(path.as_ref(), NodeKind::Link, owner, target.to_vec())
    }

    /// Gives what has one name another one besides. A link that `existing` names is meant itself.
    ///
    /// # Errors
    /// [`FileError::IsDirectory`], [`FileError::Exists`], and other reasons why it was not done.
    pub fn link(&self, existing: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), FileError> {
        let path = path.as_ref();
        let mut core = self.lock();
        let number = core.walk(existing.as_ref(), false)?.number;
        let (directory, name) = core.place(path)?;
        core.change(path, NameChange::Link { number, directory, name }).map(drop)
    }

    /// Takes the name of something that is no directory away, and with the last one what has it: the bytes of a file are gone when nobody has it open any more.
    ///
    /// # Errors
    /// [`FileError::IsDirectory`], [`FileError::NotFound`], and other reasons why it was not done.
    pub fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), FileError> {
        let path = path.as_ref();
        let mut core = self.lock();
        let (directory, name) = core.place(path)?;
        core.change(path, NameChange::Remove { directory, name }).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FileError::NotEmpty`], [`FileError::NotDirectory`], and other reasons why it was not done.
    pub fn remove_directory(&self, path: impl AsRef<[u8]>) -> Result<(), FileError> {
        let path = path.as_ref();
        let mut core = self.lock();
        let (directory, name) = core.place(path)?;
        core.change(path, NameChange::RemoveDirectory { directory, name }).map(drop)
    }

    /// Gives something another name, in one step: also after a crash it has one of both. `replace`: what has that name already gives way, in the same step.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::IntoItself`], and other reasons why it was not done.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, replace: bool) -> Result<(), FileError> {
        let (from_path, to_path) = (from.as_ref(), to.as_ref());
        let mut core = self.lock();
        let (from_directory, from) = core.place(from_path)?;
        let (to_directory, to) = core.place(to_path)?;
        let rename = NameChange::Rename { from_directory, from, to_directory, to, replace };
        core.change(to_path, rename).map(drop).map_err(|error| match error {
            FileError::NotFound { .. } => FileError::NotFound { path: escape(from_path) },
            other => other,
        })
    }

    /// Changes what is kept of what a path stands for; links are followed. When a file was written is kept by its lane, all else by the names.
    ///
    /// # Errors
    /// Why it was not done. When both are changed, one may be.
    pub fn set(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<(), FileError> {
        let mut core = self.lock();
        let node = core.walk(path.as_ref(), true)?;
        core.set(path.as_ref(), &node, set)
    }

    /// The same, but for a link that the path itself names: that is what is meant.
    ///
    /// # Errors
    /// As [`Files::set`].
    pub fn set_link(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<(), FileError> {
        let mut core = self.lock();
        let node = core.walk(path.as_ref(), false)?;
        core.set(path.as_ref(), &node, set)
    }

    /// Seals a file: it never changes again. What is sealed already is as it should be.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn seal(&self, path: impl AsRef<[u8]>) -> Result<(), FileError> {
        self.seal_file(path.as_ref(), false)
    }

    /// The same, unless somebody has the file open for writing; whether it is sealed.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn seal_unless_written(&self, path: impl AsRef<[u8]>) -> Result<bool, FileError> {
        match self.seal_file(path.as_ref(), true) {
            Ok(()) => Ok(true),
            Err(FileError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn seal_file(&self, path: &[u8], unless_written: bool) -> Result<(), FileError> {
        let mut core = self.lock();
        let node = core.walk(path, true)?;
        let path = escape(path);
        match node.view.kind {
            NodeKind::File => core.seal(&path, node.number, unless_written),
            NodeKind::Directory => Err(FileError::IsDirectory { path }),
            _ => Err(FileError::NotFile { path }),
        }
    }
}

impl Core {
    /// Where a path would have its name: the directory, and the name in it.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<(FileNumber, Vec<u8>), FileError> {
        let (directory, name) = split(path).map_err(|outcome| failed(path, outcome))?;
        if directory.iter().all(|byte| *byte == b'/') {
            return Ok((self.root(path)?, name.to_vec()));
        }
        let node = self.walk(directory, true)?;
        match node.view.kind {
            NodeKind::Directory => Ok((node.number, name.to_vec())),
            _ => Err(failed(path, NameOutcome::NotDirectory)),
        }
    }

    pub(super) fn make(
        &mut self,
        path: &[u8],
        kind: NodeKind,
        owner: &Owner,
        target: Vec<u8>,
    ) -> Result<Node, FileError> {
        let (directory, name) = self.place(path)?;
        let Owner { mode, owner, group } = *owner;
        let new = NewNode { kind, mode, owner, group, device: 0, target };
        let made = self.change(path, NameChange::Make { directory, name, new })?;
        match made.filter(|node| node.view.kind == kind) {
            Some(node) => Ok(node),
            None => {
                let what = "something was made, and the answer does not say what".to_owned();
                let error = ClientError::Broken { address: self.client.address(), what };
                Err(FileError::client(&escape(path), error))
            }
        }
    }

    /// Changes names, again and again while the store has no room or too few drives, until the client's deadline.
    pub(super) fn change(&mut self, path: &[u8], what: NameChange) -> Result<Option<Node>, FileError> {
        let client = self.openings.client();
        let mut patience = Patience::new(self.client.deadline(), client);
        loop {
            // One that was refused is another one the next time: the server remembers what it answered.
            let change =
                ChangeName { client, change: self.next_change, waits_from: self.next_change, what: what.clone() };
            self.next_change += 1;
            let epoch = self.client.info().epoch;
            let reply = match self.ask(&escape(path), NAMES_LANE, Request::ChangeName(change))? {
                Answer::Node(reply) => reply,
                other => unexpected(&other),
            };
            if reply.outcome == NameOutcome::Done {
                return Ok(reply.node);
            }
            if name_may_change(reply.outcome)
                && let Some(again) = patience.refused(self.client.now())
            {
                let pause = again.since(self.client.now());
                self.client.rest(pause).map_err(|error| FileError::client(&escape(path), error))?;
                continue;
            }
            let restarted = epoch != self.client.info().epoch;
            return match (&what, reply.outcome) {
                // The server that did it is gone, and the next one finds it done.
                (NameChange::Remove { .. } | NameChange::RemoveDirectory { .. }, NameOutcome::NotFound)
                    if restarted =>
                {
                    Ok(None)
                }
                (NameChange::Make { .. } | NameChange::Link { .. }, outcome @ NameOutcome::Exists)
                | (NameChange::Rename { .. }, outcome @ NameOutcome::NotFound)
                    if restarted =>
                {
                    Err(FileError::ChangeUnknown { path: escape(path), outcome })
                }
                (_, outcome) => Err(failed(path, outcome)),
            };
        }
    }

    /// Changes what is kept of a node.
    pub(super) fn set(&mut self, path: &[u8], node: &Node, set: &SetAttributes) -> Result<(), FileError> {
        let mut of_name = *set;
        if node.view.kind == NodeKind::File
            && let Some(written_unix_ns) = of_name.written_unix_ns.take()
        {
            let set = FileSet { file: node.number, by: None, length: None, written_unix_ns: Some(written_unix_ns) };
            self.ask_file(&escape(path), node.number, &Request::FileSet(set), None)?;
        }
        if of_name == SetAttributes::default() {
            return Ok(());
        }
        self.change(path, NameChange::Set { number: node.number, set: of_name }).map(drop)
    }

    /// Seals a file, or not while somebody has it open for writing.
    fn seal(&mut self, path: &str, file: FileNumber, unless_written: bool) -> Result<(), FileError> {
        match self.ask_file(path, file, &Request::FileSeal(FileSeal { file, by: None, unless_written }), None) {
            // Perhaps by this very request, which was sent again.
            Err(FileError::Sealed { .. }) => Ok(()),
            sealed => sealed,
        }
    }

    /// Asks the lane of a file to change it, again and again while the store has no room or too few drives, until the client's deadline.
    pub(super) fn ask_file(
        &mut self,
        path: &str,
        file: FileNumber,
        request: &Request,
        acknowledged: Option<u64>,
    ) -> Result<(), FileError> {
        let mut patience = Patience::new(self.client.deadline(), self.openings.client());
        let lane = self.lane(file);
        loop {
            let outcome = match self.ask(path, lane, request.clone())? {
                Answer::File(reply) => reply.outcome,
                other => unexpected(&other),
            };
            if outcome == FileOutcome::Done {
                return Ok(());
            }
            match patience.refused(self.client.now()).filter(|_| may_change(outcome)) {
                Some(again) => {
                    let pause = again.since(self.client.now());
                    self.client.rest(pause).map_err(|error| FileError::client(path, error))?;
                }
                None => return Err(FileError::of_file(path, outcome, 0, 0, acknowledged).expect("it was not done")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        type Parts = (&'static [u8], &'static [u8]);
        let good: [(&[u8], Parts); 5] = [
            (b"/a", (b"/", b"a")),
            (b"a", (b"", b"a")),
            (b"/a/b//", (b"/a/", b"b")),
            (b"//a//b", (b"//a//", b"b")),
            (b"/a/../\xff", (b"/a/../", b"\xff")),
        ];
        for (path, parts) in good {
            assert_eq!(split(path), Ok(parts), "{}", escape(path));
        }
        for path in [&b"/"[..], b"//", b"/a/.", b"/a/..", b".", b"a\0"] {
            assert_eq!(split(path), Err(NameOutcome::BadName), "{}", escape(path));
        }
        assert_eq!(split(b""), Err(NameOutcome::NotFound));
        assert_eq!(split(&[b'a'; 256]), Err(NameOutcome::TooLong));
    }
}
