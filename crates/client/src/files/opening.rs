//! Which numbers a client says when it opens files.
//!
//! The server refuses what comes under an earlier opening of a client than the newest, so that nothing that was given up changes what was done later. Each opening
//! has a higher number than all before it, whatever the file. What has the same file open at the same time in one program must not push each other out: each is a client
//! of its own to the server, with the number of the program and one more for each.

use std::collections::{BTreeMap, BTreeSet};

use forebay_protocol::Opener;
use forebay_types::FileNumber;

pub(super) struct Openings {
    client: u64,
    next: u32,
    /// Who has a file open, by what is added to the client's number.
    open: BTreeMap<FileNumber, BTreeSet<u64>>,
}

impl Openings {
    /// Of a client whose number no other has.
    pub(super) fn new(client: u64) -> Openings {
        Openings { client, next: 1, open: BTreeMap::new() }
    }

    /// The number of this client.
    pub(super) fn client(&self) -> u64 {
        self.client
    }

    /// Opens a file.
    pub(super) fn open(&mut self, file: FileNumber) -> Opener {
        let open = self.open.entry(file).or_default();
        let slot = (0..).find(|slot| !open.contains(slot)).expect("fewer are open than there are numbers");
        open.insert(slot);
        Opener { client: self.client.wrapping_add(slot), opening: self.next_opening() }
    }

    /// Opens a file again, as the one who had it open.
    pub(super) fn again(&mut self, by: Opener) -> Opener {
        Opener { opening: self.next_opening(), ..by }
    }

    /// Nobody goes on under this opening.
    pub(super) fn close(&mut self, file: FileNumber, by: Opener) {
        let slot = by.client.wrapping_sub(self.client);
        if let Some(open) = self.open.get_mut(&file) {
            open.remove(&slot);
            if open.is_empty() {
                self.open.remove(&file);
            }
        }
    }

    /// After the last one, files that were opened long ago have long been closed: it begins anew.
    fn next_opening(&mut self) -> u32 {
        let opening = self.next;
        self.next = self.next.checked_add(1).unwrap_or(1);
        opening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_opens_a_file_again_has_a_higher_number_and_who_opens_it_besides_is_another_client() {
        let mut openings = Openings::new(u64::MAX);
        let file = FileNumber(7);
        let first = openings.open(file);
        let besides = openings.open(file);
        assert_ne!(first.client, besides.client);
        let again = openings.again(first);
        assert!(again.client == first.client && again.opening > besides.opening);
        openings.close(file, again);
        let later = openings.open(file);
        assert!(later.client == first.client && later.opening > again.opening);
        assert_eq!(openings.open(FileNumber(8)).client, first.client);
        openings.close(file, later);
        openings.close(file, besides);
        openings.close(FileNumber(8), first);
        assert!(openings.open.is_empty());
    }
}
