//! The files that somebody writes, and what is kept of those that nobody writes any more: in memory alone.

use std::collections::BTreeMap;

use forebay_types::FileNumber;
use forebay_types::memory::tree_bytes;

use super::{File, RunningSums, Writing};
use crate::planted::{Planted, planted};

/// Files that are open for writing, or to which something is on its way.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: BTreeMap<FileNumber, Writing>,
    /// Of all of them: each put asks what memory they take.
    ranges: usize,
    closed: ClosedSums,
}

impl OpenFiles {
    /// Memory in use, about.
    pub(crate) fn bytes(&self) -> usize {
        self.files.len() * 2 * size_of::<(FileNumber, Writing)>()
            + self.ranges * Writing::RANGE_BYTES
            + self.closed.bytes()
    }

    /// A file that is one of them.
    pub(crate) fn get(&self, file: FileNumber) -> Option<&Writing> {
        self.files.get(&file)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, file: FileNumber) -> Option<&mut Writing> {
        self.files.get_mut(&file)
    }

    /// What a file would be if it was one of them, of which so much is durable.
    pub(crate) fn pretended(&self, file: FileNumber, known: Option<&File>) -> Writing {
        Writing::of(known, known.and_then(|known| self.closed.of(file, known)))
    }

    /// A file, which is one of them from now on.
    pub(crate) fn enter(&mut self, file: FileNumber, known: Option<&File>) -> &mut Writing {
        if !self.files.contains_key(&file) {
            let writing = self.pretended(file, known);
            if !planted(Planted::ClosedSumsStale) {
                self.closed.0.remove(&file);
            }
            self.files.insert(file, writing);
        }
        self.files.get_mut(&file).expect("entered just now")
    }

    /// Changes what is kept of who wrote what.
    pub(crate) fn change_ranges(&mut self, file: FileNumber, change: impl FnOnce(&mut Writing)) {
        if let Some(writing) = self.files.get_mut(&file) {
            let before = writing.ranges();
            change(writing);
            self.ranges = self.ranges + writing.ranges() - before;
        }
    }

    /// It is over.
    pub(crate) fn forget(&mut self, file: FileNumber) {
        self.remove(file);
        self.closed.0.remove(&file);
    }

    fn remove(&mut self, file: FileNumber) -> Option<Writing> {
        let writing = self.files.remove(&file)?;
        self.ranges -= writing.ranges();
        Some(writing)
    }

    /// It is none of them any more if nobody needs to know anything of it.
    pub(crate) fn drop_idle(&mut self, file: FileNumber) {
        if self.files.get(&file).is_some_and(Writing::is_idle)
            && let Some(writing) = self.remove(file)
        {
            self.closed.keep(file, writing);
        }
    }
}

/// The sums of files that were written in order and that nobody has open for writing any more, so that who seals them later need not have them read: of so many
/// files, those made last.
#[derive(Default)]
pub(crate) struct ClosedSums(BTreeMap<FileNumber, (u32, RunningSums)>);

impl ClosedSums {
    const FILES_MAX: usize = 1 << 16;

    /// Memory in use, about.
    pub(crate) fn bytes(&self) -> usize {
        tree_bytes(self.0.len(), size_of::<(FileNumber, (u32, RunningSums))>())
    }

    /// Nobody writes to a file any more.
    fn keep(&mut self, file: FileNumber, writing: Writing) {
        let is_of_all = |sums: &RunningSums| sums.bytes == writing.length && sums.bytes > 0;
        if let Some(sums) = writing.sums.filter(is_of_all) {
            self.0.insert(file, (writing.version, sums));
            if self.0.len() > ClosedSums::FILES_MAX {
                self.0.pop_first();
            }
        }
    }

    /// The sums of a file, if they are of what is durable.
    pub(crate) fn of(&self, number: FileNumber, file: &File) -> Option<RunningSums> {
        let (version, sums) = self.0.get(&number)?;
        let is_of_now = *version == file.version() || planted(Planted::ClosedSumsStale);
        (is_of_now && sums.bytes == file.length()).then(|| sums.clone())
    }
}
