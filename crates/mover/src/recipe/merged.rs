//! The bytes of a consignment, streamed from its parts: no second copy, and no more memory than a block.

use std::os::fd::BorrowedFd;

use super::Form;
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::{Content, Source};

/// An archive's records have so many bytes.
const TAR_RECORD_BYTES: u64 = 512;

/// What comes next.
enum Next {
    /// What is before the part of this number.
    Before(usize),
    /// The bytes of the part.
    Of(usize),
    Over,
}

/// The file that a recipe makes, block by block.
pub struct Merged<'a> {
    source: &'a dyn Source,
    parts: &'a [Part],
    form: Form,
    next: Next,
    part: Option<Box<dyn Content + 'a>>,
    /// Bytes that the part has given.
    given_bytes: u64,
    /// What is around the parts, when that is the block.
    around: Vec<u8>,
}

impl<'a> Merged<'a> {
    /// Nothing is read yet.
    pub fn new(source: &'a dyn Source, parts: &'a [Part], form: Form) -> Merged<'a> {
        Merged { source, parts, form, next: Next::Before(0), part: None, given_bytes: 0, around: Vec::new() }
    }

    /// Opens the next part, or ends; whether something is to be given before it.
    fn begin(&mut self, number: usize) -> Result<bool, SourceAnswer> {
        let Some(part) = self.parts.get(number) else {
            self.next = Next::Over;
            if self.form == Form::Tar {
                // Two empty records end an archive.
                self.around.resize(2 * TAR_RECORD_BYTES as usize, 0);
            }
            return Ok(!self.around.is_empty());
        };
        self.part = Some(self.source.open(part)?);
        (self.next, self.given_bytes) = (Next::Of(number), 0);
        self.around = before_part(self.form, part).map_err(SourceAnswer::Damaged)?;
        Ok(!self.around.is_empty())
    }

    /// A part has ended; whether something is to be given behind it.
    fn end(&mut self, number: usize) -> Result<bool, SourceAnswer> {
        let part = &self.parts[number];
        if self.given_bytes != part.identity.bytes {
            return Err(SourceAnswer::Changed(format!(
                "{} gave {} bytes and had {} when it was found",
                part.name, self.given_bytes, part.identity.bytes
            )));
        }
        (self.part, self.next) = (None, Next::Before(number + 1));
        if self.form == Form::Tar {
            let behind = self.given_bytes.next_multiple_of(TAR_RECORD_BYTES) - self.given_bytes;
            self.around.resize(behind as usize, 0);
        }
        Ok(!self.around.is_empty())
    }
}

impl Content for Merged<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        loop {
            self.around.clear();
            let there = match self.next {
                Next::Before(number) => self.begin(number)?,
                Next::Of(number) => {
                    let part = self.part.as_mut().expect("it was opened");
                    if part.refill()? {
                        self.given_bytes += part.block().len() as u64;
                        return Ok(true);
                    }
                    self.end(number)?
                }
                Next::Over => return Ok(false),
            };
            if there {
                return Ok(true);
            }
        }
    }

    fn block(&self) -> &[u8] {
        match &self.part {
            Some(part) if self.around.is_empty() => part.block(),
            _ => &self.around,
        }
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        let is_one = self.form == Form::Concatenated && self.parts.len() == 1;
        if is_one && matches!(self.next, Next::Before(0)) {
            self.begin(0)?;
        }
        match &mut self.part {
            Some(part) if is_one && self.given_bytes == 0 => part.file(),
            _ => Ok(None),
        }
    }

    fn compare_file(&self) -> Result<(), SourceAnswer> {
        self.part.as_ref().map_or(Ok(()), |part| part.compare_file())
    }
}

/// What is given before the bytes of a part: in an archive its records, the same for the same part, whoever makes them.
pub(super) fn before_part(form: Form, part: &Part) -> Result<Vec<u8>, String> {
    if form != Form::Tar {
        return Ok(Vec::new());
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(part.identity.bytes);
    header.set_mode(0o644);
    header.set_mtime(u64::try_from(part.identity.modified_ns / 1_000_000_000).unwrap_or(0));
    let mut archive = tar::Builder::new(Vec::new());
    let made = archive.append_data(&mut header, part.name.as_str(), std::io::empty());
    made.map_err(|error| format!("{} cannot be put into an archive: {error}", part.name))?;
    Ok(archive.get_ref().clone())
}
