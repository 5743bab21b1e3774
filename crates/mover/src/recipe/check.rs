//! What is looked at before anything is sent.

use std::io::{self, Read};

use forebay_rawdata::{EventReader, Format, InputError};

use super::{EventFile, Form, Recipe, open};
use crate::custody::SourceAnswer;
use crate::endpoint::{Content, Moved, Source};
use crate::name::Name;
use crate::sums::Summer;

/// The first bytes of a file by which its format is known.
pub(crate) const DETECTED_BYTES: usize = 12;

/// Reads all of what a recipe makes, looks at the structure of its events, and says what its bytes come to. `moved` is told of all that was read.
pub fn check(source: &dyn Source, recipe: &Recipe, moved: &dyn Moved) -> SourceAnswer {
    // Each part by itself: what one lacks at its end must not be made up of the next.
    let content: Box<dyn Content> = match format_of_first(source, recipe) {
        Ok(Some(format)) if recipe.form == Form::Concatenated && recipe.parts.len() > 1 => {
            Box::new(EventFile::new(source, recipe, format))
        }
        Ok(_) => open(source, recipe),
        Err(answer) => return answer,
    };
    let mut reader = Summed { content, summer: Summer::default(), moved, failed: None, given_bytes: 0 };
    let damage = inspect(recipe, &mut reader);
    while damage.is_none() && reader.refill().is_ok_and(|there| there) {}
    match (reader.failed, damage) {
        (Some(failed), _) => failed,
        (None, Some(damage)) => SourceAnswer::Damaged(damage),
        (None, None) => SourceAnswer::Whole(reader.summer.sums()),
    }
}

fn format_of_first(source: &dyn Source, recipe: &Recipe) -> Result<Option<Format>, SourceAnswer> {
    let mut content = source.open(&recipe.parts[0])?;
    let mut first = Vec::new();
    while first.len() < DETECTED_BYTES
        && let Some(block) = content.next_block()?
    {
        first.extend_from_slice(&block[..block.len().min(DETECTED_BYTES)]);
    }
    Ok(format_of(&recipe.parts[0].name, &first))
}

/// What is wrong with the events.
fn inspect(recipe: &Recipe, reader: &mut Summed) -> Option<String> {
    if recipe.form == Form::Tar {
        return None;
    }
    let first = reader.first_bytes().ok()?;
    let format = format_of(&recipe.parts[0].name, &first)?;
    let mut run = None;
    let mut events = EventReader::new(format, first.as_slice().chain(reader));
    loop {
        let offset = events.offset();
        match events.next()? {
            Ok(event) if recipe.parts.len() > 1 && *run.get_or_insert(event.key.run) != event.key.run => {
                let part =
                    if recipe.form == Form::Besiii { recipe.of_what() } else { place(recipe, offset).0.to_string() };
                return Some(format!(
                    "{part} has an event of run {} behind some of run {}, and a file never mixes runs. Take it out of here, then retry",
                    event.key.run,
                    run.expect("it was set")
                ));
            }
            Ok(_) => {}
            Err(error) => {
                let (name, event_offset) = place(recipe, error.event_offset);
                let error = InputError { event_offset, ..error };
                return Some(format!("{name}: {} is damaged: {}", error.place(), error.problem));
            }
        }
    }
}

/// Which part a byte of the whole is in, and where there.
fn place(recipe: &Recipe, mut offset: u64) -> (&Name, u64) {
    let (last, before) = recipe.parts.split_last().expect("a recipe is never empty");
    for part in before {
        if offset < part.identity.bytes {
            return (&part.name, offset);
        }
        offset -= part.identity.bytes;
    }
    (&last.name, offset)
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
struct Summed<'a> {
    content: Box<dyn Content + 'a>,
    summer: Summer,
    moved: &'a dyn Moved,
    failed: Option<SourceAnswer>,
    /// Of the block, to whoever reads.
    given_bytes: usize,
}

impl Summed<'_> {
    /// Whether there was something more.
    fn refill(&mut self) -> io::Result<bool> {
        self.given_bytes = 0;
        let there = match self.content.refill() {
            Ok(there) => there,
            Err(answer) => return self.fail(answer),
        };
        if !there {
            return Ok(false);
        }
        self.summer.update(self.content.block());
        if !self.moved.moved(self.content.block().len() as u64) {
            return self.fail(SourceAnswer::NotNow("the mover ends".to_owned()));
        }
        Ok(true)
    }

    /// The readers of events wrap errors; the cause is kept.
    fn fail(&mut self, answer: SourceAnswer) -> io::Result<bool> {
        self.failed = Some(answer);
        Err(io::ErrorKind::Other.into())
    }

    /// As many as a format needs, if there are so many.
    fn first_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut first = Vec::new();
        self.by_ref().take(DETECTED_BYTES as u64).read_to_end(&mut first)?;
        Ok(first)
    }
}

impl Read for Summed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given_bytes == self.content.block().len() {
            if !self.refill()? {
                return Ok(0);
            }
        }
        let rest = &self.content.block()[self.given_bytes..];
        let bytes = into.len().min(rest.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.given_bytes += bytes;
        Ok(bytes)
    }
}
