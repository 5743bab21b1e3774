//! What may be in a file, byte by byte: what is certain, and what was asked for and not answered.

use std::ops::Range;

/// Whether a file changes any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sealed {
    #[default]
    No,
    /// It was asked for.
    Perhaps,
    Yes,
}

#[derive(Clone, Debug, Default)]
struct Byte {
    certain: u8,
    /// Asked for, and neither done nor outranked.
    perhaps: Vec<u8>,
}

/// A file of one writer, who waits with what overlaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    bytes: Vec<Byte>,
    /// It has so many bytes at least, and at most.
    shortest: usize,
    longest: usize,
    sealed: Sealed,
}

impl Content {
    /// Where it ends, if that is certain.
    pub(crate) fn length(&self) -> Option<usize> {
        (self.shortest == self.longest).then_some(self.shortest)
    }

    pub(crate) fn shortest(&self) -> usize {
        self.shortest
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn sealed(&self) -> Sealed {
        self.sealed
    }

    /// All of it, if that is certain.
    pub(crate) fn certain(&self) -> Option<Vec<u8>> {
        let length = self.length()?;
        let bytes = &self.bytes[..length];
        let is_certain = bytes.iter().all(|byte| byte.perhaps.is_empty());
        is_certain.then(|| bytes.iter().map(|byte| byte.certain).collect())
    }

    fn reach(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, Byte::default());
        }
    }

    pub(crate) fn write_asked(&mut self, range: Range<usize>, value: u8) {
        self.reach(range.end);
        self.bytes[range.clone()].iter_mut().for_each(|byte| byte.perhaps.push(value));
        self.longest = self.longest.max(range.end);
    }

    pub(crate) fn write_done(&mut self, range: Range<usize>, value: u8) {
        for byte in &mut self.bytes[range.clone()] {
            *byte = Byte { certain: value, perhaps: Vec::new() };
        }
        self.shortest = self.shortest.max(range.end);
    }

    pub(crate) fn cut_asked(&mut self, length: usize) {
        self.reach(length);
        // What is cut holds zeros if the file becomes longer again.
        self.bytes[length..].iter_mut().for_each(|byte| byte.perhaps.push(0));
        self.shortest = self.shortest.min(length);
        self.longest = self.longest.max(length);
    }

    pub(crate) fn cut_done(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.bytes.resize(length, Byte::default());
        (self.shortest, self.longest) = (length, length);
    }

    pub(crate) fn seal_asked(&mut self) {
        if self.sealed == Sealed::No {
            self.sealed = Sealed::Perhaps;
        }
    }

    pub(crate) fn is_sealed(&mut self) {
        self.sealed = Sealed::Yes;
    }

    /// A read gave these bytes from `start` on, of so many that were wanted, while nothing was on its way.
    pub(crate) fn read(&mut self, start: usize, wanted: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        assert!(bytes.len() <= wanted, "{} bytes came of {wanted}", bytes.len());
        if !bytes.is_empty() {
            assert!(end <= self.longest, "bytes to {end} came of a file of {} at the most", self.longest);
        }
        if bytes.len() < wanted {
            let shortest = self.shortest;
            assert!(end >= shortest || start >= shortest, "{shortest} bytes are there, and {start}..{end} came");
        }
        for (at, found) in (start..).zip(bytes) {
            let byte = &mut self.bytes[at];
            let may = byte.certain == *found || byte.perhaps.contains(found);
            assert!(may, "byte {at} is {found}, and may be {} or {:?}", byte.certain, byte.perhaps);
            // What was read is durable, and stays until something newer comes.
            byte.certain = *found;
        }
        if !bytes.is_empty() {
            self.shortest = self.shortest.max(end);
        }
    }
}
