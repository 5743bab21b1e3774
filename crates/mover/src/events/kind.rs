//! What files of events hold.

use forebay_rawdata::{Container, Format};
use forebay_types::RunId;

/// What a file of events holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// FASER raw events, one after the other.
    Faser,
    /// LHCb MDF events, one after the other.
    Mdf,
    /// BESIII raw events, with a file header, separators and a tail.
    Besiii,
    /// The fragments of each event behind each other, in the order of their sources, with nothing around them: for formats of which nothing is known here.
    Plain,
    /// Events that cannot be put together (their frame is lost, say): the fragments that are there, each
    /// as it is. See [`super::parts`].
    Parts,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 5] =
        [EventKind::Faser, EventKind::Mdf, EventKind::Besiii, EventKind::Plain, EventKind::Parts];

    /// The kind of files of whole events of this format.
    pub const fn of(format: Format) -> EventKind {
        match format {
            Format::Faser => EventKind::Faser,
            Format::Mdf => EventKind::Mdf,
            Format::Besiii => EventKind::Besiii,
        }
    }

    /// The format of the events, when they are events of a format.
    pub const fn format(self) -> Option<Format> {
        match self {
            EventKind::Faser => Some(Format::Faser),
            EventKind::Mdf => Some(Format::Mdf),
            EventKind::Besiii => Some(Format::Besiii),
            EventKind::Plain | EventKind::Parts => None,
        }
    }

    /// How the name of such a file ends.
    pub const fn extension(self) -> &'static str {
        match self {
            EventKind::Faser => Format::Faser.extension(),
            EventKind::Mdf => Format::Mdf.extension(),
            EventKind::Besiii => Format::Besiii.extension(),
            EventKind::Plain => "dat",
            EventKind::Parts => "parts",
        }
    }

    /// What a file of this kind holds besides its events. `sequence`: which file of the run it is; some formats write that down.
    pub fn container(self, run: RunId, sequence: u32) -> Container {
        self.format().map_or(Container::Plain, |format| Container::new(format, run, sequence))
    }

    /// Its name, as in sidecars and journals.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Faser => Format::Faser.name(),
            EventKind::Mdf => Format::Mdf.name(),
            EventKind::Besiii => Format::Besiii.name(),
            EventKind::Plain => "plain",
            EventKind::Parts => "parts",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
