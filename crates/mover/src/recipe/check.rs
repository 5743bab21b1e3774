//! What is looked at before anything is sent.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use forebay_rawdata::{EventReader, Format};

use super::parts::Parts;
use super::reader::ContentReader;
use super::said::agree;
use super::seekable::Seekable;
use super::{EventFile, Form, Ingredients, Recipe, open_files, uncompressed};
use crate::about::{About, Checked, Events, Uncompressed};
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::{Content, Moved, Origin, Source};
use crate::name::Name;
use crate::sums::{Summer, Sums};

/// The first bytes of a file by which its format is known.
pub(crate) const DETECTED_BYTES: usize = 12;

/// Reads all of what a recipe makes, looks at the structure of its events, and says what its bytes come to, and what else was seen. `moved` is told of all that was read.
pub fn check(origin: &Origin, recipe: &Recipe, moved: &dyn Moved) -> SourceAnswer {
    let checked = match (origin, &recipe.of) {
        (Origin::Files(source), Ingredients::Files(parts)) => check_files(source.as_ref(), parts, recipe, moved),
        // Each event is looked at when it is put together.
        (_, Ingredients::Events(events)) => check_events(origin, events, recipe, moved),
        (Origin::Events(_), Ingredients::Files(_)) => {
            panic!("a route has files or events, and its journal knows which")
        }
    };
    match checked {
        Ok(checked) => SourceAnswer::Whole(checked),
        Err(answer) => answer,
    }
}

fn check_events(
    origin: &Origin,
    events: &crate::events::Events,
    recipe: &Recipe,
    moved: &dyn Moved,
) -> Result<Checked, SourceAnswer> {
    let mut summing = Summing::new(uncompressed(origin, recipe), recipe, None, moved)?;
    summing.drain()?;
    let (sums, uncompressed) = summing.end()?;
    Ok(Checked { sums, about: Arc::new(About { uncompressed, ..About::clone(&events.about()) }) })
}

fn check_files(
    source: &dyn Source,
    parts: &[Part],
    recipe: &Recipe,
    moved: &dyn Moved,
) -> Result<Checked, SourceAnswer> {
    // What somebody still writes looks damaged, and is not: it is moved when it is complete.
    checked(source, parts, recipe, moved).map_err(|answer| match answer {
        SourceAnswer::Damaged(words) => {
            let changed = parts.iter().find_map(|part| match source.open(part) {
                Err(changed @ SourceAnswer::Changed(_)) => Some(changed),
                _ => None,
            });
            changed.unwrap_or(SourceAnswer::Damaged(words))
        }
        answer => answer,
    })
}

fn checked(source: &dyn Source, all: &[Part], recipe: &Recipe, moved: &dyn Moved) -> Result<Checked, SourceAnswer> {
    let form = recipe.form;
    let of_the_form = match form {
        Form::Concatenated => format_of_first(source, all)?,
        Form::Besiii => Some(Format::Besiii),
        Form::Tar | Form::Events => None,
    };
    let parts = Parts::new(source, all, form);
    let events = Rc::<RefCell<Events>>::default();
    let is_one = form == Form::Concatenated && all.len() == 1;
    let content: Box<dyn Content> = match of_the_form {
        // Each part by itself: what one lacks at its end must not be made up of the next.
        Some(format) if !is_one => Box::new(EventFile::new(&parts, all, format).noting(&events)),
        _ => open_files(&parts, all, form),
    };
    let mut summing = Summing::new(content, recipe, Some(&parts), moved)?;
    match of_the_form.filter(|_| is_one) {
        Some(format) => inspect(format, &all[0].name, &mut summing, &events)?,
        None => summing.drain()?,
    }
    let (sums, uncompressed) = summing.end()?;
    let about = About {
        format: of_the_form.map(|format| format.name().to_owned()),
        events: of_the_form.map(|_| events.take()),
        parts: parts.take_about(),
        uncompressed,
    };
    agree(source, all, &about)?;
    Ok(Checked { sums, about: Arc::new(about) })
}

fn format_of_first(source: &dyn Source, parts: &[Part]) -> Result<Option<Format>, SourceAnswer> {
    let mut content = source.open(&parts[0])?;
    let mut first = Vec::new();
    while first.len() < DETECTED_BYTES
        && let Some(block) = content.next_block()?
    {
        first.extend_from_slice(&block[..block.len().min(DETECTED_BYTES)]);
    }
    Ok(format_of(&parts[0].name, &first))
}

/// Reads a file to its end, event by event.
fn inspect(format: Format, name: &Name, content: &mut Summing, events: &RefCell<Events>) -> Result<(), SourceAnswer> {
    let reader = ContentReader::new(content);
    let failed = reader.failed();
    let noted = |event: forebay_rawdata::RawEvent| events.borrow_mut().note(event.key);
    let damage = EventReader::new(format, reader).map(|event| event.map(noted)).find_map(Result::err);
    match (failed.take(), damage) {
        (Some(failed), _) => Err(failed),
        (None, Some(error)) => {
            Err(SourceAnswer::Damaged(format!("{name}: {} is damaged: {}", error.place(), error.problem)))
        }
        (None, None) => Ok(()),
    }
}

/// The format whose structure is to be looked at: what the name says, if the first bytes say so too. What ends otherwise is anything.
pub(crate) fn format_of(name: &Name, first: &[u8]) -> Option<Format> {
    let by_name: &[Format] = match name.file().rsplit_once('.')?.1 {
        // BESIII itself calls its files so.
        "raw" => &[Format::Faser, Format::Besiii],
        "mdf" => &[Format::Mdf],
        "besiii" => &[Format::Besiii],
        _ => return None,
    };
    Format::detect(first).filter(|format| by_name.contains(format))
}

/// Content that is summed as it is read.
struct Summing<'a> {
    content: Box<dyn Content + 'a>,
    summer: Summer,
    /// As it is stored, where that is compressed.
    stored: Option<(Seekable, Summer)>,
    /// Where it is told how much there was before each part.
    parts: Option<&'a Parts<'a>>,
    moved: &'a dyn Moved,
}

impl<'a> Summing<'a> {
    fn new(
        content: Box<dyn Content + 'a>,
        recipe: &Recipe,
        parts: Option<&'a Parts<'a>>,
        moved: &'a dyn Moved,
    ) -> Result<Summing<'a>, SourceAnswer> {
        let stored = recipe.zstd.map(Seekable::new).transpose()?.map(|zstd| (zstd, Summer::default()));
        Ok(Summing { content, summer: Summer::default(), stored, parts, moved })
    }

    /// What is stored comes to, and what it was before it was compressed, if it was.
    fn end(self) -> Result<(Sums, Option<Uncompressed>), SourceAnswer> {
        let sums = self.summer.sums();
        let Some((mut zstd, mut summer)) = self.stored else { return Ok((sums, None)) };
        summer.update(zstd.end()?);
        Ok((summer.sums(), Some(Uncompressed { bytes: sums.bytes, adler32: sums.adler32 })))
    }

    fn drain(&mut self) -> Result<(), SourceAnswer> {
        while self.refill()? {}
        Ok(())
    }
}

impl Content for Summing<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        if !self.content.refill()? {
            return Ok(false);
        }
        self.summer.update(self.content.block());
        if let Some(parts) = self.parts {
            parts.given(self.content.block().len() as u64);
        }
        if let Some((zstd, summer)) = &mut self.stored {
            let mut left = self.content.block();
            while !left.is_empty() {
                if let Some(frame) = zstd.feed(&mut left)? {
                    summer.update(frame);
                }
            }
        }
        if !self.moved.moved(self.content.block().len() as u64) {
            return Err(SourceAnswer::NotNow("the mover ends".to_owned()));
        }
        Ok(true)
    }

    fn block(&self) -> &[u8] {
        self.content.block()
    }
}
