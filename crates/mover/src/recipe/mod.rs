//! What a file at its destinations is made of, and how: its parts one behind the other, or in an archive; or events.

mod check;
mod event_file;
mod merged;
mod parts;
mod reader;
mod said;
mod seekable;

use std::sync::Arc;

use forebay_rawdata::Format;

use crate::custody::Part;
use crate::endpoint::{Content, Origin, Source};
use crate::events::Events;
use crate::name::Name;

pub use check::check;
pub(crate) use check::{DETECTED_BYTES, format_of};
use event_file::EventFile;
use merged::Merged;
use seekable::Compressed;

/// How parts become one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Their bytes, one part behind the other: a single file as it is, or events of a format that has nothing before the first and behind the last.
    Concatenated,
    /// An archive (tar, as GNU writes it) with the names that they have below the source.
    Tar,
    /// The events of BESIII raw files, as one such file: the head of the first part, each event behind its separator, a tail that counts them all.
    Besiii,
    /// Accepted events as a file of their kind.
    Events,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 4] = [Form::Concatenated, Form::Tar, Form::Besiii, Form::Events];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Concatenated => "concatenated",
            Form::Tar => "tar",
            Form::Besiii => "besiii",
            Form::Events => "events",
        }
    }

    /// What a part adds to the whole, bytes; of an archive at most, but for the two records at its end.
    pub fn bytes_of(self, part: &Part) -> u64 {
        let bytes = part.identity.bytes;
        match self {
            Form::Concatenated | Form::Besiii | Form::Events => bytes,
            // A record before it, and two and more where its name does not fit that.
            Form::Tar => {
                let name = part.name.as_str().len() as u64;
                let of_name = if name > 99 { 512 + (name + 1).next_multiple_of(512) } else { 0 };
                bytes.saturating_add(511) / 512 * 512 + 512 + of_name
            }
        }
    }

    /// How files of a format become one.
    pub const fn of_events(format: Format) -> Form {
        match format {
            Format::Faser | Format::Mdf => Form::Concatenated,
            Format::Besiii => Form::Besiii,
        }
    }
}

/// The levels of compression that are taken.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// What the name of a compressed file ends in.
pub(crate) const ZSTD_ENDING: &str = ".zst";

/// The file that a recipe makes, block by block. Nothing is read yet.
///
/// # Panics
/// When the recipe is for another kind of origin.
pub fn open<'a>(origin: &'a Origin, recipe: &'a Recipe) -> Box<dyn Content + 'a> {
    let content = uncompressed(origin, recipe);
    match recipe.zstd {
        Some(level) => Box::new(Compressed::new(content, level)),
        None => content,
    }
}

/// The same before it is compressed.
fn uncompressed<'a>(origin: &'a Origin, recipe: &'a Recipe) -> Box<dyn Content + 'a> {
    match (origin, &recipe.of) {
        (Origin::Files(source), Ingredients::Files(parts)) => open_files(source.as_ref(), parts, recipe.form),
        (Origin::Events(source), Ingredients::Events(events)) => source.open(events),
        _ => panic!("a route has files or events, and its journal knows which"),
    }
}

fn open_files<'a>(source: &'a dyn Source, parts: &'a [Part], form: Form) -> Box<dyn Content + 'a> {
    match form {
        Form::Besiii => Box::new(EventFile::new(source, parts, Format::Besiii)),
        Form::Concatenated | Form::Tar | Form::Events => Box::new(Merged::new(source, parts, form)),
    }
}

/// What a consignment is made of, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How.
    pub form: Form,
    /// Of what.
    pub of: Ingredients,
    /// The level at which all of that is compressed, if it is.
    pub zstd: Option<i32>,
}

/// What a file is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingredients {
    /// Files of a source, in order; never of nothing.
    Files(Vec<Part>),
    /// Accepted events of a stream.
    Events(Box<Events>),
}

impl Recipe {
    /// A file as it is.
    pub fn of_one(part: Part) -> Arc<Recipe> {
        Recipe::of_files(Form::Concatenated, vec![part], None)
    }

    /// Files, in this order.
    pub fn of_files(form: Form, parts: Vec<Part>, zstd: Option<i32>) -> Arc<Recipe> {
        Arc::new(Recipe { form, of: Ingredients::Files(parts), zstd })
    }

    /// Accepted events.
    pub fn of_events(events: Events, zstd: Option<i32>) -> Arc<Recipe> {
        Arc::new(Recipe { form: Form::Events, of: Ingredients::Events(Box::new(events)), zstd })
    }

    /// The files that it is made of; none where it is made of events.
    pub fn parts(&self) -> &[Part] {
        match &self.of {
            Ingredients::Files(parts) => parts,
            Ingredients::Events(_) => &[],
        }
    }

    /// Whether it is a file of the source as it is.
    pub fn is_one_file(&self) -> bool {
        self.form == Form::Concatenated && self.zstd.is_none() && self.parts().len() == 1
    }

    /// The events that it is made of, if it is.
    pub fn events(&self) -> Option<&Events> {
        match &self.of {
            Ingredients::Files(_) => None,
            Ingredients::Events(events) => Some(events),
        }
    }

    /// The same compressed, and its name then; where that is too long, the machine sees it when it is checked.
    pub(crate) fn compressed(&self, name: &Name, level: i32) -> (Name, Arc<Recipe>) {
        let name = name.with_ending(ZSTD_ENDING).unwrap_or_else(|_| name.clone());
        (name, Arc::new(Recipe { zstd: Some(level), ..self.clone() }))
    }

    /// Its parts in words: the first, and how many more.
    pub fn of_what(&self) -> String {
        match &self.of {
            Ingredients::Events(events) => format!("one of {} events of run {}", events.list.len(), events.run),
            Ingredients::Files(parts) => match parts.as_slice() {
                [one] => one.name.to_string(),
                [first, more @ ..] => format!("{} or one of the {} that it is merged with", first.name, more.len()),
                [] => unreachable!("a recipe is never empty"),
            },
        }
    }

    /// Bytes of its parts, or of the file of events.
    pub fn bytes(&self) -> u64 {
        match &self.of {
            Ingredients::Files(parts) => parts.iter().map(|part| part.identity.bytes).sum(),
            Ingredients::Events(events) => events.bytes(),
        }
    }
}
