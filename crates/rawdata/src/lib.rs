//! Detector files: FASER raw, LHCb MDF and BESIII raw, read and written, and a generator of all three.
//!
//! An event of a file becomes fragments ([`split()`]): one per read-out unit, and one more, the *frame*,
//! with every byte that belongs to no read-out unit and the order of all of them. [`join()`] gives back the
//! very bytes of the event. What a file holds besides events is a [`Container`]. What the formats look like to a user, and what becomes of each byte, is in
//! `docs/formats.md`.
//!
//! This crate promises:
//! - bytes of a file or of a fragment are never trusted: whatever they are, the answer is a typed error
//!   or a right result, without a panic and with bounded memory ([`EVENT_BYTES_MAX`]);
//! - `join(split(event))` is byte-identical, padding and odd bytes included;
//! - an event that [`EventReader`] gives out has passed every check that its format allows.
//!
//! It does no network I/O, knows nothing of stores or streams, and interprets no detector data beyond
//! what names an event and its sources.

pub mod banks;
mod besiii;
mod bytes;
mod container;
mod error;
mod event;
mod faser;
#[expect(clippy::disallowed_types, reason = "its sets are asked for what they hold; nothing depends on their order")]
mod frame;
mod generate;
#[expect(clippy::disallowed_types, reason = "its maps are asked for what they hold; nothing depends on their order")]
mod join;
mod mdf;
mod random;
#[expect(clippy::disallowed_types, reason = "opens files; what reads events takes any reader")]
mod reader;
#[expect(clippy::disallowed_types, reason = "its maps are asked for what they hold; nothing depends on their order")]
mod split;

pub use besiii::{BesiiiFile, EndRecord, PaddedText, RunRecord, StartRecord};
pub use container::Container;
pub use error::{FrameError, InputError, JoinError, NumberUnknown, Problem, RenumberError, SplitError};
pub use event::{EventInfo, Format, RawEvent, holds_number, inspect, renumber, verify};
pub use frame::{FRAME_ENTRY_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, expected_pieces, frame_format, sources};
pub use generate::Generator;
pub use join::{join, join_incomplete};
pub use mdf::checksum as mdf_checksum;
pub use reader::{EventReader, open};
pub use split::{Piece, split};

/// The largest event that is read or put together.
pub const EVENT_BYTES_MAX: u64 = 512 << 20;
