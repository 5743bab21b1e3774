//! The parts of a file, as they are read for it: where each begins in it, and what its bytes come to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_types::Adler32;

use super::Form;
use super::merged::before_part;
use crate::about::AboutPart;
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::{Content, Moved, Source};
use crate::machine::Scanned;

/// A source, and what of it was read.
pub(super) struct Parts<'a> {
    source: &'a dyn Source,
    all: &'a [Part],
    form: Form,
    /// Of the file, until now.
    given_bytes: AtomicU64,
    /// Of those that were opened.
    about: Mutex<Vec<AboutPart>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(source: &'a dyn Source, all: &'a [Part], form: Form) -> Parts<'a> {
        Parts { source, all, form, given_bytes: AtomicU64::new(0), about: Mutex::default() }
    }

    /// The file has so many bytes more.
    pub(super) fn given(&self, bytes: u64) {
        self.given_bytes.fetch_add(bytes, Relaxed);
    }

    /// What was seen of all parts.
    pub(super) fn take_about(&self) -> Vec<AboutPart> {
        let about = std::mem::take(&mut *self.lock());
        assert_eq!(about.len(), self.all.len(), "a file is made of all its parts, each once");
        about
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AboutPart>> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Parts<'_> {
    fn scan(&self, moved: &dyn Moved) -> Result<Scanned, String> {
        self.source.scan(moved)
    }

    fn open<'a>(&'a self, part: &'a Part) -> Result<Box<dyn Content + 'a>, SourceAnswer> {
        let content = self.source.open(part)?;
        let mut about = self.lock();
        let before = before_part(self.form, part).map_err(SourceAnswer::Damaged)?.len() as u64;
        about.push(AboutPart { at: self.given_bytes.load(Relaxed) + before, adler32: Adler32::default().finish() });
        Ok(Box::new(Summed { parts: self, number: about.len() - 1, content, adler32: Adler32::default() }))
    }

    fn release(&self, parts: &[Part], still_whole: &dyn Fn() -> SourceAnswer) -> SourceAnswer {
        self.source.release(parts, still_whole)
    }

    fn place_of(&self, part: &Part) -> Option<(u64, u64)> {
        self.source.place_of(part)
    }
}

/// The bytes of a part, summed.
struct Summed<'a> {
    parts: &'a Parts<'a>,
    number: usize,
    content: Box<dyn Content + 'a>,
    adler32: Adler32,
}

impl Content for Summed<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        if self.content.refill()? {
            self.adler32.update(self.content.block());
            return Ok(true);
        }
        self.parts.lock()[self.number].adler32 = self.adler32.finish();
        Ok(false)
    }

    fn block(&self) -> &[u8] {
        self.content.block()
    }
}
