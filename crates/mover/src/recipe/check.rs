//! What is looked at before anything is sent.

use forebay_rawdata::{EventReader, Format};

use super::reader::ContentReader;
use super::{EventFile, Form, Recipe, open};
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::{Content, Moved, Origin, Source};
use crate::name::Name;
use crate::sums::{Summer, Sums};

/// The first bytes of a file by which its format is known.
pub(crate) const DETECTED_BYTES: usize = 12;

/// Reads all of what a recipe makes, looks at the structure of its events, and says what its bytes come to. `moved` is told of all that was read.
pub fn check(origin: &Origin, recipe: &Recipe, moved: &dyn Moved) -> SourceAnswer {
    let checked = match origin {
        Origin::Files(source) => check_files(source.as_ref(), origin, recipe, moved),
        // Each event is looked at when it is put together.
        Origin::Events(_) => sum(open(origin, recipe), moved),
    };
    match checked {
        Ok(sums) => SourceAnswer::Whole(sums),
        Err(answer) => answer,
    }
}

fn sum(content: Box<dyn Content + '_>, moved: &dyn Moved) -> Result<Sums, SourceAnswer> {
    let mut summing = Summing { content, summer: Summer::default(), moved };
    while summing.refill()? {}
    Ok(summing.summer.sums())
}

fn check_files(source: &dyn Source, origin: &Origin, recipe: &Recipe, moved: &dyn Moved) -> Result<Sums, SourceAnswer> {
    let parts = recipe.parts();
    let format = format_of_first(source, parts)?.filter(|_| recipe.form == Form::Concatenated);
    let checked = match (format, parts) {
        (Some(format), [part]) => {
            let mut summing = Summing { content: open(origin, recipe), summer: Summer::default(), moved };
            inspect(format, &part.name, &mut summing).map(|()| summing.summer.sums())
        }
        // Each part by itself: what one lacks at its end must not be made up of the next.
        (Some(format), parts) => sum(Box::new(EventFile::new(source, parts, format)), moved),
        (None, _) => sum(open(origin, recipe), moved),
    };
    // What somebody still writes looks damaged, and is not: it is moved when it is complete.
    checked.map_err(|answer| match answer {
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
fn inspect(format: Format, name: &Name, content: &mut Summing) -> Result<(), SourceAnswer> {
    let reader = ContentReader::new(content);
    let failed = reader.failed();
    let damage = EventReader::new(format, reader).find_map(Result::err);
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
    moved: &'a dyn Moved,
}

impl Content for Summing<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        if !self.content.refill()? {
            return Ok(false);
        }
        self.summer.update(self.content.block());
        if !self.moved.moved(self.content.block().len() as u64) {
            return Err(SourceAnswer::NotNow("the mover ends".to_owned()));
        }
        Ok(true)
    }

    fn block(&self) -> &[u8] {
        self.content.block()
    }
}
