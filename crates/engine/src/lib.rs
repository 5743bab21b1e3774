//! The store's decisions: where a record goes, when it is acknowledged, what exists after a crash, what may be forgotten.
//!
//! State machines without I/O, clock, threads or randomness. A [`Lane`] takes requests, the time and completions; it gives back operations
//! for a [`forebay_media::Media`], replies, and events for the [`Control`] part, which alone decides who is a member of the store.
//! The same input gives the same output, always: a simulator can run the very code that serves.
//!
//! What is promised, and where it is kept:
//!
//! | promise | kept in |
//! | --- | --- |
//! | acknowledged means durable on all shards of the stated width | `lane/durable.rs` |
//! | a flush that lost a drive is written again without it, never retried on it | `lane/failure.rs` |
//! | written once: the same again succeeds, other content is a conflict, a decided event is late | `lane/request.rs` |
//! | deleted stays deleted | `finished.rs`, `lane/checkpoint.rs` |
//! | what neither the checkpoint nor its window lists does not exist | `recovery.rs` |
//! | wrong bytes are never given out | `read.rs` |
//! | memory stays within what was configured | `lane/memory.rs`, `index.rs` |
//!
//! It does not listen, open files, or know what a detector is.

mod accepted;
mod api;
mod cache;
mod check;
mod control;
mod direct;
mod ends;
mod files;
mod finished;
mod flush;
mod hidden;
mod index;
mod io;
mod lane;
mod lease;
mod losses;
#[cfg(test)]
mod measured;
mod open;
mod pieces;
mod planted;
mod pool;
mod read;
mod recovery;
mod repair;
mod rows;
mod segments;
mod shared;
mod slots;
mod survey;
mod task;
mod told;
mod units;
mod whole;

pub use api::{
    AcceptedEvent, AcceptedPage, Admission, CompactionStatus, DriveHealth, DriveInfo, EventFragments, EventPart,
    EventView, Fetch, FetchEvent, FetchFile, FileAdmission, FileView, FileWrite, LaneConfig, LaneCounters, LaneEvent,
    LaneStatus, LeasedEvent, Membership, OutOfReach, Put, RebuildStatus, Reply, RunView, ScrubStatus, StreamView,
    Subscription, Token, ToldEvent, ToldPage, WriteAt,
};
pub use check::{FlushCheck, HeaderCheck, ShardCheck, UnitsWrong};
pub use control::{Control, LOOK_AFTER};
pub use ends::EventEnd;
pub use files::WriterNumber;
pub use forebay_format::EventFragment;
pub use io::Failure;
pub use lane::{
    DEBUG_STREAM, EventTrace, FlushTrace, FragmentTrace, KeptRun, Lane, LatePut, Looked, RunTrace, SegmentHandle,
    ShardState, ShardTrace, SharedRange, StoredEvent, StoredFile, StoredFragment, StoredSegment, StoredWhole,
    StreamTrace, TraceState,
};
pub use losses::{FoundBy, Loss, LossKind, LossPage, LostPart};
pub use open::{FoundDrive, OpenError, OpenPlan, OpenRequest, members_needed, plan_open};
#[cfg(feature = "planted")]
pub use planted::plant;
#[doc(hidden)] // for the server, which makes some of them
pub use planted::{Planted, planted};
pub use recovery::RecoveryError;
pub use shared::SharedBytes;
pub use slots::segments_after_losses;
pub use survey::{
    CheckpointPlace, CheckpointState, CheckpointTaken, Findings, FlushFate, FlushFound, Found, Listed, SegmentFound,
};
pub use whole::JOINED_FRAGMENTS_MAX;
