//! Accepted events of a stream as a source: which they are, what is made of each, and what a file of them is.

mod assemble;
mod content;
mod kind;
mod list;
pub mod parts;
mod source;
mod terms;
pub(crate) mod walk;

use std::sync::Arc;

use forebay_rawdata::Container;
use forebay_types::{EventKey, RunId, StoreUuid, StreamName};

pub use assemble::{Assembled, AssembledEvent, assemble};
pub use content::EventContent;
pub use kind::EventKind;
pub use list::{EventList, LIST_EVENTS_MAX, ListError};
pub use source::StreamSource;
pub use terms::{Blocks, Making, OfRun, Terms, TermsError};

use crate::about::About;
use crate::sums::Sums;

/// What a file of accepted events is made of: events of one run and kind, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// The store that they come from.
    pub store: StoreUuid,
    /// Their stream.
    pub stream: StreamName,
    /// Their run.
    pub run: RunId,
    /// What they are.
    pub kind: EventKind,
    /// Whether their bytes hold their numbers. Files hold either such events or others: readers number the others by their position.
    pub numbered: bool,
    /// How each of them is put together.
    pub making: Making,
    /// Their luminosity block, where a run has several.
    pub block: Option<u64>,
    /// Which file of its series it is: some formats write that down.
    pub sequence: u32,
    /// Bytes of the events alone.
    pub event_bytes: u64,
    /// Which events; never none.
    pub list: EventList,
    /// Those of them that lack fragments.
    pub incomplete: EventList,
}

impl Events {
    /// What the file holds besides its events.
    pub fn container(&self) -> Container {
        self.kind.container(self.run, self.sequence)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.container().file_bytes(self.list.len(), self.event_bytes)
    }

    /// What is known of the file besides its sums; which events it has is said by this.
    pub fn about(&self) -> Arc<About> {
        Arc::new(About { format: Some(self.kind.name().to_owned()), ..About::default() })
    }

    /// The events, ascending.
    pub fn keys(&self) -> impl Iterator<Item = EventKey> + '_ {
        self.list.iter().map(|event| EventKey::new(self.run.0, event))
    }
}

/// What became of an event that was read to be put into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Examined {
    /// It can be sent.
    Event {
        /// In a file of this kind.
        kind: EventKind,
        /// Whether its bytes hold its number.
        numbered: bool,
        /// Whether fragments are missing.
        incomplete: bool,
        /// When it was taken, in microseconds since 1970, where its bytes say that.
        taken_unix_us: Option<u64>,
        /// What its bytes come to.
        sums: Sums,
    },
    /// The store does not have it any more.
    Gone,
    /// It cannot be read for now.
    Unavailable,
}
