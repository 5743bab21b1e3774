//! The bytes on the drives, encoded and decoded; `docs/format.md` draws them.
//!
//! This crate does no I/O, keeps no state and decides nothing: what a header means for the data is the
//! engine's to say. It promises that bytes from a drive, whatever they are, give a value or a
//! [`FormatError`] with the numbers in it, never a panic, and never more memory than a few times their
//! length; and that what is encoded decodes to the same value, in this version and in every later one
//! (`testdata/` holds the bytes of each).
//!
//! All numbers are little-endian and of fixed width. Numbers with a meaning (kinds, states, flags) are
//! never given another. Every header carries a version, flags of which the lower half must be
//! understood, room for more, and a CRC32C over itself.

mod checkpoint;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests read the document")]
mod drawing;
mod error;
mod event;
mod field;
mod file;
mod flush;
mod geometry;
mod layout;
mod record;
mod segment;
mod superblock;
mod table;
mod version;

pub use checkpoint::{
    CHECKPOINT_HEADER_BYTES, CheckpointBody, CheckpointHeader, DECIDED_EVENTS_MAX, DECISION_SETS_MAX, DecidedRange,
    DecidedRun, DecisionSet, FinishedRun, OrdinalRange, PlannedSegment, SegmentEntry, SegmentState, encode_checkpoint,
    encode_checkpoint_into, encoded_checkpoint_bytes,
};
pub use error::FormatError;
pub use event::{EventFragment, decode_event_directory, encode_event_directory, event_directory_bytes};
pub use file::{FileChange, FileRecord};
pub use flush::{
    FLUSH_CLOSING, FLUSH_HEADER_BYTES_MAX, FLUSH_INLINE_TABLE, FLUSH_TABLE_HAS_SEQUENCES, FlushHeader,
    header_bytes_for, space_for_inline_table,
};
pub use geometry::{Extent, RowGeometry};
pub use layout::{
    CHECKPOINTS_OFFSET, DriveLayout, LayoutError, PLACES, SLOTS_ALIGNMENT_BYTES, SLOTS_PER_LANE_MIN, SUPERBLOCK_BYTES,
    SUPERBLOCK_STRIDE_BYTES, place_of,
};
pub use record::{
    PAYLOAD_ALIGNMENT_BYTES, RECORD_APPENDED, RECORD_INCOMPLETE, RECORD_SEALED, RecordKind, TABLE_ENTRY_BYTES,
    TableEntry,
};
pub use segment::{SegmentId, ShardPlace};
pub use superblock::{DriveEntry, DriveState, Geometry, HISTORY_MAX, Start, Superblock, UNIT_BYTES_MAX};
pub use table::{FlushEntry, SegmentTable};
pub use version::{FORMAT_VERSION, FORMAT_VERSION_OLDEST, FORMAT_VERSION_WITH_FILES, ProgramVersion};
