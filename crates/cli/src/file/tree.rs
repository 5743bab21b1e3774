//! A directory of the store with all that is in it, page by page.

use forebay_client::files::{Detail, Files, Listing, escape};
use forebay_types::NodeKind;

use super::entry::Entry;
use super::path::join;
use super::told::Trouble;
use crate::failure::Failure;

/// Directories in directories: of each a page is kept.
const DEPTH_MAX: usize = 1000;

/// What comes next.
pub enum Step {
    /// Something that is no directory.
    Entry(Entry),
    /// A directory, before what is in it.
    Enter(Entry),
    /// And behind it; also when what is in it could not be listed, or is skipped.
    Leave(Vec<u8>),
}

enum Content {
    Unknown,
    Listed(Listing),
    Over,
}

/// Walks through a directory. Links are not followed.
pub struct Tree<'a> {
    files: &'a Files,
    detail: Detail,
    levels: Vec<(Vec<u8>, Content)>,
}

impl<'a> Tree<'a> {
    /// What is in this directory, which itself is not told.
    pub fn new(files: &'a Files, path: &[u8], detail: Detail) -> Tree<'a> {
        Tree { files, detail, levels: vec![(path.to_vec(), Content::Unknown)] }
    }

    /// What is in the directory that was entered last is not wanted.
    pub fn skip(&mut self) {
        if let Some((_, content)) = self.levels.last_mut() {
            *content = Content::Over;
        }
    }

    /// The next one; nothing when the whole directory is through. What cannot be listed does not end it.
    pub fn next_step(&mut self) -> Option<Result<Step, Trouble>> {
        let is_deepest = self.levels.len() >= DEPTH_MAX;
        let (path, content) = self.levels.last_mut()?;
        if matches!(content, Content::Unknown) {
            *content = Content::Over;
            match self.files.list(&*path, self.detail) {
                Ok(listing) => *content = Content::Listed(listing),
                Err(error) => return Some(Err(error.into())),
            }
        }
        let next = if let Content::Listed(listing) = content { listing.next() } else { None };
        let entry = match next {
            None => {
                let (path, _) = self.levels.pop().expect("the last one");
                // The first one was not entered.
                return (!self.levels.is_empty()).then_some(Ok(Step::Leave(path)));
            }
            Some(Err(error)) => return Some(Err(error.into())),
            Some(Ok(listed)) => Entry::listed(join(path, &listed.name), listed),
        };
        if entry.kind != NodeKind::Directory {
            return Some(Ok(Step::Entry(entry)));
        }
        if is_deepest {
            let message = format!(
                "{}: more than {DEPTH_MAX} directories lie in each other; nothing was done with what is in this one. Name it itself",
                escape(&entry.path)
            );
            return Some(Err(Failure::usage(message).into()));
        }
        self.levels.push((entry.path.clone(), Content::Unknown));
        Some(Ok(Step::Enter(entry)))
    }
}
