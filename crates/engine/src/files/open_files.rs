//! The files that somebody writes, and what is kept of those that nobody writes any more: in memory alone.

use std::collections::BTreeMap;

use forebay_types::FileNumber;
use forebay_types::memory::tree_bytes;

use super::{File, RunningSums, Writing};
use crate::planted::{Planted, planted};

/// Files that are open for writing, or to which something is on its way.
pub(crate) struct OpenFiles {
    files: BTreeMap<FileNumber, Writing>,
    /// Of all of them: each put asks what memory they take.
    ranges: usize,
    closed: ClosedSums,
}

impl OpenFiles {
    /// Of a lane that may hold `index_bytes` of what it knows.
    pub(crate) fn new(index_bytes: usize) -> Self {
        OpenFiles { files: BTreeMap::new(), ranges: 0, closed: ClosedSums::new(index_bytes) }
    }

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
        let closed = &mut self.closed;
        self.files.entry(file).or_insert_with(|| {
            let sums = known.and_then(|known| closed.of(file, known));
            if !planted(Planted::ClosedSumsStale) {
                closed.forget(file);
            }
            Writing::of(known, sums)
        })
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
        self.closed.forget(file);
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
struct ClosedSums {
    /// With the version that they are of.
    of: BTreeMap<FileNumber, (u32, RunningSums)>,
    files_max: usize,
}

impl ClosedSums {
    /// A 64th of the index's memory, as what is known of how events ended, and 65,536 files at most.
    fn new(index_bytes: usize) -> Self {
        let files_max = (index_bytes / 64 / ClosedSums::FILE_BYTES).min(1 << 16);
        ClosedSums { of: BTreeMap::new(), files_max }
    }

    const FILE_BYTES: usize = tree_bytes(100, size_of::<(FileNumber, (u32, RunningSums))>()) / 100;

    /// Memory in use, about.
    fn bytes(&self) -> usize {
        self.of.len() * ClosedSums::FILE_BYTES
    }

    fn forget(&mut self, file: FileNumber) {
        self.of.remove(&file);
    }

    /// Nobody writes to a file any more.
    fn keep(&mut self, file: FileNumber, writing: Writing) {
        let is_of_all = |sums: &RunningSums| sums.bytes == writing.length && sums.bytes > 0;
        if let Some(sums) = writing.sums.filter(is_of_all) {
            self.of.insert(file, (writing.version, sums));
            if self.of.len() > self.files_max {
                self.of.pop_first();
            }
        }
    }

    /// The sums of a file, if they are of what is durable.
    fn of(&self, number: FileNumber, file: &File) -> Option<RunningSums> {
        let (version, sums) = self.of.get(&number)?;
        let is_of_now = *version == file.version() || planted(Planted::ClosedSumsStale);
        (is_of_now && sums.bytes == file.length()).then(|| sums.clone())
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::crc32c;

    use super::*;
    use crate::files::WriterNumber;

    #[test]
    fn sums_of_closed_files_take_a_part_of_the_memory_for_what_is_known() {
        for index_bytes in [0, 100 << 10, usize::MAX] {
            let mut files = OpenFiles::new(index_bytes);
            for number in 0..70_000 {
                let (file, by) = (FileNumber(number), WriterNumber(1));
                let writing = files.enter(file, None);
                writing.open(by);
                writing.sums.as_mut().expect("nothing was written").add(b"bytes", crc32c(b"bytes"));
                writing.length = 5;
                writing.close(by);
                files.drop_idle(file);
            }
            let kept: Vec<u64> = files.closed.of.keys().map(|file| file.0).collect();
            assert!(files.bytes() <= (index_bytes / 64).min(8 << 20), "{} bytes of {index_bytes}", files.bytes());
            assert!(kept.iter().copied().eq(70_000 - kept.len() as u64..70_000), "those made last");
            assert_eq!(kept.is_empty(), index_bytes == 0);
        }
    }
}
