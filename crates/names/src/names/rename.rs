//! Names that become others.

use forebay_types::{FileNumber, NodeKind};

use super::{Done, Names};
use crate::NamesError;
use crate::change::Part;

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

impl Names {
    /// Gives something another name, in one step: whoever looks finds it under one of both, and under the new one what was there or this. Of two names of one
    /// file nothing changes.
    ///
    /// # Errors
    /// [`NamesError::Exists`] when something has the name and is not to give way; [`NamesError::IsDirectory`], [`NamesError::NotDirectory`] and
    /// [`NamesError::NotEmpty`] when it cannot; [`NamesError::IntoItself`]; and those of [`Names::lookup`].
    pub fn rename(&mut self, rename: Rename<'_>, now_unix_ns: i64) -> Result<Done, NamesError> {
        let Rename { from_directory, from, to_directory, to, replace } = rename;
        let number = self.entry(from_directory, from)?;
        let there = self.directory(to_directory, to)?.entries.get(to);
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
}
