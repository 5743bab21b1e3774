//! What may be in a file whose writer has writes and changes of the length on their way at once.
//!
//! A change that was done comes behind each that its writer did not wait for any more when it asked: of such two the order is certain, of others it is not. One that was
//! not said to be done may be there or not, at any moment before what came behind it.

use std::ops::Range;

use forebay_protocol::Changer;

#[derive(Clone, Debug)]
pub(super) enum What {
    /// The same byte everywhere.
    Write(Range<usize>, u8),
    Length(usize),
    /// Of when it was written: nothing of its bytes.
    Time,
}

#[derive(Clone, Debug)]
struct Change {
    number: u64,
    waits_from: u64,
    what: What,
    done: bool,
}

impl Change {
    /// Whether it comes behind that one for certain, if both are there.
    fn is_behind(&self, other: &Change) -> bool {
        self.done && self.waits_from > other.number
    }

    /// What it says of a byte.
    fn says(&self, at: usize) -> Option<u8> {
        match &self.what {
            What::Write(range, value) => range.contains(&at).then_some(*value),
            // What is cut holds zeros if the file becomes longer again.
            What::Length(length) => (at >= *length).then_some(0),
            What::Time => None,
        }
    }

    fn end(&self) -> Option<usize> {
        match &self.what {
            What::Write(range, _) => Some(range.end),
            _ => None,
        }
    }

    fn length(&self) -> Option<usize> {
        match &self.what {
            What::Length(length) => Some(*length),
            _ => None,
        }
    }
}

/// A file of one writer.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// What was there when nothing was on its way, and nothing that was asked before could come.
    bytes: Vec<u8>,
    changes: Vec<Change>,
}

impl Changes {
    /// How long it may be.
    pub(super) fn longest(&self) -> usize {
        let after = self.changes.iter().filter_map(|change| change.end().or(change.length()));
        after.chain([self.bytes.len()]).max().unwrap_or(0)
    }

    pub(super) fn asked(&mut self, by: Changer, what: What) {
        self.changes.push(Change { number: by.change, waits_from: by.waits_from, what, done: false });
    }

    pub(super) fn is_done(&mut self, number: u64) {
        let change = self.changes.iter_mut().find(|change| change.number == number);
        change.expect("it was asked").done = true;
    }

    /// Whether a write would meet one that may not be over: of which the order is not certain.
    pub(super) fn meets(&self, range: &Range<usize>, waits_from: u64) -> bool {
        let meets = |other: &Range<usize>| other.start < range.end && range.start < other.end;
        let may_come = self.changes.iter().filter(|change| change.number >= waits_from);
        may_come.into_iter().any(|change| matches!(&change.what, What::Write(other, _) if meets(other)))
    }

    /// How long it may be at least, and at most.
    fn lengths(&self) -> (usize, usize) {
        let lengths: Vec<&Change> = self.changes.iter().filter(|change| change.length().is_some()).collect();
        let writes: Vec<&Change> = self.changes.iter().filter(|change| change.end().is_some()).collect();
        // With each that may have been the last to say the length.
        let is_last = |last: &&&Change| !lengths.iter().any(|other| other.is_behind(last));
        let of_last = lengths.iter().filter(is_last).map(|last| {
            let length = last.length().expect("it says one");
            let ends = |may: &dyn Fn(&Change) -> bool| {
                writes.iter().filter(|write| may(write)).filter_map(|write| write.end()).fold(length, usize::max)
            };
            (ends(&|write| write.is_behind(last)), ends(&|write| !last.is_behind(write)))
        });
        let without = (!lengths.iter().any(|change| change.done)).then(|| {
            let ends = |may: &dyn Fn(&Change) -> bool| {
                let ends = writes.iter().filter(|write| may(write)).filter_map(|write| write.end());
                ends.fold(self.bytes.len(), usize::max)
            };
            (ends(&|write| write.done), ends(&|_| true))
        });
        of_last
            .chain(without)
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
            .expect("something says how long it is")
    }

    /// Whether a byte may be this.
    fn may_be(&self, at: usize, found: u8) -> bool {
        let speaking: Vec<&Change> = self.changes.iter().filter(|change| change.says(at).is_some()).collect();
        let may = |change: &&&Change| !speaking.iter().any(|other| other.is_behind(change));
        let before = self.bytes.get(at).copied().unwrap_or(0);
        !speaking.iter().any(|change| change.done) && before == found
            || speaking.iter().filter(may).any(|change| change.says(at) == Some(found))
    }

    /// This is there while nothing is on its way, and nothing that was asked before can come any more.
    pub(super) fn found(&mut self, found: Vec<u8>) {
        let (shortest, longest) = self.lengths();
        let length = found.len();
        assert!((shortest..=longest).contains(&length), "{length} bytes instead of {shortest} to {longest}: {self:?}");
        for (at, byte) in found.iter().enumerate() {
            assert!(self.may_be(at, *byte), "byte {at} is {byte}: {:?}, {self:?}", self.bytes.get(at));
        }
        (self.bytes, self.changes) = (found, Vec::new());
    }

    /// What is there for certain, when nothing changed since it was found.
    pub(super) fn certain(&self) -> Option<&[u8]> {
        let is_certain = self.changes.iter().all(|change| matches!(change.what, What::Time));
        is_certain.then_some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use forebay_protocol::Opener;

    use super::*;

    fn by(change: u64, waits_from: u64) -> Changer {
        Changer { opener: Opener { client: 1, opening: 1 }, change, waits_from }
    }

    fn may(changes: &[(u64, What, bool)], found: &[u8]) -> bool {
        let mut model = Changes { bytes: vec![9; 4], changes: Vec::new() };
        for (at, (waits_from, what, done)) in (1..).zip(changes) {
            model.asked(by(at, *waits_from), what.clone());
            if *done {
                model.is_done(at);
            }
        }
        let (shortest, longest) = model.lengths();
        let may_be = |(at, byte): (usize, &u8)| model.may_be(at, *byte);
        (shortest..=longest).contains(&found.len()) && found.iter().enumerate().all(may_be)
    }

    #[test]
    fn of_what_was_on_its_way_at_once_any_order_may_be() {
        let beside = [(1, What::Write(2..6, 1), true), (1, What::Length(3), true)];
        assert!(may(&beside, &[9, 9, 1]) && may(&beside, &[9, 9, 1, 1, 1, 1]));
        assert!(!may(&beside, &[9, 9, 9]) && !may(&beside, &[9, 9, 1, 9]), "both were done");
        let after = [(1, What::Write(2..6, 1), true), (2, What::Length(3), true)];
        assert!(may(&after, &[9, 9, 1]) && !may(&after, &[9, 9, 1, 1, 1, 1]));
        let before = [(1, What::Length(3), true), (2, What::Write(4..6, 1), true)];
        assert!(may(&before, &[9, 9, 9, 0, 1, 1]) && !may(&before, &[9, 9, 9, 9, 1, 1]) && !may(&before, &[9, 9, 9]));
    }

    #[test]
    fn what_was_not_answered_may_be_there_or_not() {
        let cut = [(1, What::Write(2..6, 1), true), (2, What::Length(3), false)];
        assert!(may(&cut, &[9, 9, 1]) && may(&cut, &[9, 9, 1, 1, 1, 1]));
        let time = [(1, What::Write(2..6, 1), true), (1, What::Time, true)];
        assert!(may(&time, &[9, 9, 1, 1, 1, 1]) && !may(&time, &[9, 9, 1, 1]));
    }
}
