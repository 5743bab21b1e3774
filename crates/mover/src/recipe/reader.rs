//! Content as readers of events want it.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::custody::SourceAnswer;
use crate::endpoint::Content;

/// Why the content could not be read: the readers of events wrap errors, and the cause is kept here.
pub(super) type Failed = Rc<RefCell<Option<SourceAnswer>>>;

/// Bytes of a content.
pub(super) struct ContentReader<C> {
    content: C,
    /// Of the block, to whoever reads.
    given_bytes: usize,
    failed: Failed,
}

impl<C: Content> ContentReader<C> {
    pub(super) fn new(content: C) -> ContentReader<C> {
        ContentReader { content, given_bytes: 0, failed: Failed::default() }
    }

    /// Where the cause of a failure is found.
    pub(super) fn failed(&self) -> Failed {
        Rc::clone(&self.failed)
    }
}

impl<C: Content> Read for ContentReader<C> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given_bytes == self.content.block().len() {
            self.given_bytes = 0;
            match self.content.refill() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(answer) => {
                    *self.failed.borrow_mut() = Some(answer);
                    return Err(io::ErrorKind::Other.into());
                }
            }
        }
        let rest = &self.content.block()[self.given_bytes..];
        let bytes = into.len().min(rest.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.given_bytes += bytes;
        Ok(bytes)
    }
}
