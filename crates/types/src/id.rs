//! Identifiers: run, event, source, and the UUIDs of stores and drives.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $what:literal, $bits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let parsed = match text.strip_prefix("0x") {
                    Some(hex) => <$inner>::from_str_radix(hex, 16),
                    None => text.parse(),
                };
                parsed.map($name).map_err(|_| ParseIdError {
                    text: text.to_owned(),
                    wanted: concat!("the number of ", $what, ": a whole number of at most ", $bits, " bits, decimal or 0x..."),
                })
            }
        }
    };
}

number!(
    /// A data-taking session.
    RunId, u32, "a run", 32
);
number!(
    /// A trigger number within a run.
    EventId, u64, "an event", 64
);
number!(
    /// A detector read-out unit.
    SourceId, u32, "a source", 32
);
number!(
    /// The number of a drive in its store: given at `init` (or at a replacement) and never given again.
    DriveNumber, u16, "a drive", 16
);

number!(
    /// The number of a file in its store: given when a name is made for it, and never given again.
    FileNumber, u64, "a file", 64
);

impl RunId {
    /// Under this run stand the numbers of files wherever those of events stand. A store that has files takes no fragments of it.
    pub const FILES: RunId = RunId(u32::MAX);
}

impl FileNumber {
    /// The file where events stand: in the sets of what is finished, in ranges, and for the lane that it lies in.
    pub const fn key(self) -> EventKey {
        EventKey { run: RunId::FILES, event: EventId(self.0) }
    }
}

impl SourceId {
    /// The source of the bytes of an event that belong to no read-out unit (headers, padding), with
    /// what is needed to put the event together again.
    pub const EVENT_FRAME: SourceId = SourceId(0xFFFF_FFFF);
}

/// An event: run and event number. Written `RUN/EVENT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventKey {
    /// The run.
    pub run: RunId,
    /// The event in the run.
    pub event: EventId,
}

impl EventKey {
    /// The event `event` of run `run`.
    pub const fn new(run: u32, event: u64) -> Self {
        EventKey { run: RunId(run), event: EventId(event) }
    }

    /// The fragment of this event that `source` sent.
    pub const fn fragment(self, source: SourceId) -> FragmentId {
        FragmentId { run: self.run, event: self.event, source }
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.event)
    }
}

impl FromStr for EventKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let malformed = || ParseIdError { text: text.to_owned(), wanted: "an event, RUN/EVENT" };
        let (run, event) = text.split_once('/').ok_or_else(malformed)?;
        Ok(EventKey { run: run.parse()?, event: event.parse()? })
    }
}

/// A fragment: the immutable bytes of one source for one event. Written `RUN/EVENT/SOURCE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FragmentId {
    /// The run.
    pub run: RunId,
    /// The event in the run.
    pub event: EventId,
    /// The read-out unit.
    pub source: SourceId,
}

impl FragmentId {
    /// The fragment of `source` for event `event` of run `run`.
    pub const fn new(run: u32, event: u64, source: u32) -> Self {
        FragmentId { run: RunId(run), event: EventId(event), source: SourceId(source) }
    }

    /// The event that this fragment belongs to.
    pub const fn key(self) -> EventKey {
        EventKey { run: self.run, event: self.event }
    }
}

impl fmt::Display for FragmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.event, self.source)
    }
}

impl FromStr for FragmentId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let malformed = || ParseIdError { text: text.to_owned(), wanted: "a fragment, RUN/EVENT/SOURCE" };
        let mut parts = text.split('/');
        let (Some(run), Some(event), Some(source), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        Ok(FragmentId { run: run.parse()?, event: event.parse()?, source: source.parse()? })
    }
}

/// Text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseIdError {
    /// What was given.
    pub text: String,
    /// What it should have been.
    pub wanted: &'static str,
}

macro_rules! uuid_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            /// From 16 random bytes (version 4).
            pub fn from_random_bytes(bytes: [u8; 16]) -> Self {
                $name(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }

            /// From the 16 bytes that a drive holds.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(uuid::Uuid::from_bytes(bytes))
            }

            /// The 16 bytes that a drive holds.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_type!(
    /// Identifies a store; all of its drives carry it.
    StoreUuid
);
uuid_type!(
    /// Identifies a drive of a store.
    DriveUuid
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_print() {
        let id = FragmentId::new(1920, 17, 0xFFFF_FFFF);
        assert_eq!(id.to_string().parse::<FragmentId>(), Ok(id));
        assert_eq!("7/0x10/0x20".parse::<FragmentId>(), Ok(FragmentId::new(7, 16, 32)));
        let key = EventKey::new(6525, u64::MAX);
        assert_eq!(key.to_string().parse::<EventKey>(), Ok(key));
    }

    #[test]
    fn text_that_is_no_id_is_refused_with_what_was_wanted() {
        for text in ["", "1", "1/2", "1/2/3/4", "1//3", "4294967296/1/1", "-1/2/3", "a/b/c"] {
            let error = text.parse::<FragmentId>().expect_err(text);
            assert!(error.to_string().contains("is not"), "{error}");
        }
    }
}
