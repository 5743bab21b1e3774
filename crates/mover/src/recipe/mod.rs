//! What a file at its destinations is made of, and how: its parts one behind the other, or in an archive.

mod check;
mod event_file;
mod merged;
mod parts;
mod reader;
mod seekable;

use std::sync::Arc;

use forebay_rawdata::Format;

use crate::custody::Part;
use crate::endpoint::{Content, Source};
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
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Concatenated, Form::Tar, Form::Besiii];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Concatenated => "concatenated",
            Form::Tar => "tar",
            Form::Besiii => "besiii",
        }
    }

    /// What a part adds to the whole, bytes; of an archive at most, but for the two records at its end.
    pub fn bytes_of(self, part: &Part) -> u64 {
        let bytes = part.identity.bytes;
        match self {
            Form::Concatenated | Form::Besiii => bytes,
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
pub fn open<'a>(source: &'a dyn Source, recipe: &'a Recipe) -> Box<dyn Content + 'a> {
    let content = uncompressed(source, recipe);
    match recipe.zstd {
        Some(level) => Box::new(Compressed::new(content, level)),
        None => content,
    }
}

/// The same before it is compressed.
fn uncompressed<'a>(source: &'a dyn Source, recipe: &'a Recipe) -> Box<dyn Content + 'a> {
    match recipe.form {
        Form::Besiii => Box::new(EventFile::new(source, recipe, Format::Besiii)),
        Form::Concatenated | Form::Tar => Box::new(Merged::new(source, recipe)),
    }
}

/// What a consignment is made of, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How.
    pub form: Form,
    /// Of what, in order; never of nothing.
    pub parts: Vec<Part>,
    /// The level at which all of that is compressed, if it is.
    pub zstd: Option<i32>,
}

impl Recipe {
    /// A file as it is.
    pub fn of_one(part: Part) -> Arc<Recipe> {
        Arc::new(Recipe { form: Form::Concatenated, parts: vec![part], zstd: None })
    }

    /// The same compressed, and its name then; where that is too long, the machine sees it when it is checked.
    pub(crate) fn compressed(&self, name: &Name, level: i32) -> (Name, Arc<Recipe>) {
        let name = name.with_ending(ZSTD_ENDING).unwrap_or_else(|_| name.clone());
        (name, Arc::new(Recipe { zstd: Some(level), ..self.clone() }))
    }

    /// Its parts in words: the first, and how many more.
    pub fn of_what(&self) -> String {
        match self.parts.as_slice() {
            [one] => one.name.to_string(),
            [first, more @ ..] => format!("{} or one of the {} that it is merged with", first.name, more.len()),
            [] => unreachable!("a recipe is never empty"),
        }
    }

    /// Bytes of its parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.identity.bytes).sum()
    }
}
