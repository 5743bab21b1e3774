//! The words that every crate of Forebay shares: identifiers, outcomes, limits, time and checksums.
//!
//! Nothing here does I/O, reads a clock or allocates without a bound. The meaning of each word is in
//! `docs/glossary.md`.

mod checksum;
mod id;
pub mod limits;
pub mod memory;
mod node;
mod number_map;
mod outcome;
pub mod placement;
mod planted;
mod run;
mod sampling;
mod time;

pub use checksum::{Adler32, Crc32c, crc32c, crc32c_of_both};
pub use id::{
    DriveNumber, DriveUuid, EventId, EventKey, FileNumber, FragmentId, ParseIdError, RunId, SourceId, StoreUuid,
};
pub use node::{Attributes, NAME_BYTES_MAX, NewNode, NodeKind, NodeView, SetAttributes, TARGET_BYTES_MAX};
pub use number_map::NumberMap;
pub use outcome::{
    DecideOutcome, FileOutcome, NameOutcome, PutOutcome, ReadOutcome, StreamName, StreamNameError, Verdict,
};
pub use run::{
    BlockRule, ParseSourcesError, ParseStreamError, RunChange, RunCounts, RunHold, RunPuts, RunRecord, RunRequest,
    RunRule, RunState, RunStep, RunStream, SourceFragments, SourceSet, StreamDefinition, StreamRequest, StreamSources,
    StreamVersion, is_prescaled_in,
};
pub use sampling::{Cursor, Fraction, ParseFractionError};
pub use time::{Time, WallTime};
