//! What a lane is asked and what it answers.

mod files;
mod status;
mod subscribe;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_format::{EventFragment, Geometry};
use forebay_types::{
    DecideOutcome, DriveNumber, DriveUuid, EventKey, FragmentId, PutOutcome, ReadOutcome, StoreUuid, StreamName,
};
use serde::Serialize;

pub use files::{FetchFile, FileAdmission, FileView, FileWrite, WriteAt};
pub use status::{CompactionStatus, DriveHealth, LaneStatus, OutOfReach, RebuildStatus, ScrubStatus};
pub use subscribe::{Subscription, ToldEvent, ToldPage};

use crate::lane::EventTrace;

/// Names a request in its replies; chosen by the caller, [`Token::NONE`] when nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Nobody waits for the reply.
    pub const NONE: Token = Token(u64::MAX);
}

/// A fragment that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its id.
    pub id: FragmentId,
    /// How many fragments its event should have, this one included; 0 when the writer does not know.
    pub expected: u16,
    /// The CRC32C that the writer computed.
    pub crc: u32,
}

/// Whether a request was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission<O> {
    /// Answered at once.
    Done(O),
    /// A [`Reply`] with the token comes when it is durable.
    Pending,
    /// Not now: buffers are on their way to the drives, or a checkpoint or a change of membership is. The caller keeps the request
    /// and offers it again after the next completion; nothing was changed.
    Busy,
}

/// What a read came to at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fetch {
    /// Answered: when the outcome is `Found`, the payload was appended and this is its CRC32C.
    Done(ReadOutcome, u32),
    /// A [`Reply::Read`] with the token comes. The fragment has so many bytes.
    Pending {
        /// Its size.
        bytes: u32,
    },
}

/// An answer that had to wait.
#[derive(Debug)]
pub enum Reply {
    /// `records` more records of the puts with this token are durable.
    Stored {
        /// The token of the puts.
        token: Token,
        /// How many.
        records: u32,
    },
    /// `records` records of the puts with this token, all that were still pending, were not stored.
    Refused {
        /// The token of the puts.
        token: Token,
        /// How many.
        records: u32,
        /// Why.
        outcome: PutOutcome,
    },
    /// A decision, deletion or release came to its end.
    Decided {
        /// Its token.
        token: Token,
        /// What it came to.
        outcome: DecideOutcome,
    },
    /// A read from the drives came to its end.
    Read {
        /// Its token.
        token: Token,
        /// What it came to.
        outcome: ReadOutcome,
        /// The bytes, when found.
        payload: Vec<u8>,
        /// Their CRC32C.
        crc: u32,
    },
    /// All that is known of an event.
    Traced {
        /// The token of whoever asked.
        token: Token,
        /// What is known.
        trace: Box<EventTrace>,
    },
    /// A read of a file from the drives came to its end.
    ReadFile {
        /// Its token.
        token: Token,
        /// `Found` when its first byte can be read.
        outcome: ReadOutcome,
        /// The bytes, up to the first that cannot be read.
        payload: Vec<u8>,
    },
    /// A read of a whole event from the drives came to its end.
    ReadEvent {
        /// Its token.
        token: Token,
        /// `Found` when it can be read which fragments it has.
        outcome: ReadOutcome,
        /// Its fragments then, ascending by source, and what reading each came to.
        parts: Vec<EventPart>,
        /// The bytes of those that are found, one after the other.
        payload: Vec<u8>,
    },
}

/// A fragment of an event that was read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPart {
    /// The fragment.
    pub fragment: EventFragment,
    /// What reading it came to.
    pub outcome: ReadOutcome,
}

impl EventPart {
    /// One whose bytes are there.
    pub fn found(fragment: EventFragment) -> EventPart {
        EventPart { fragment, outcome: ReadOutcome::Found }
    }
}

/// The answer to a read of a whole event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// Answered: when the outcome is `Found`, the bytes of these fragments were appended, in this order.
    Done(ReadOutcome, Vec<EventFragment>),
    /// A [`Reply::ReadEvent`] with the token comes. The fragments have so many bytes together.
    Pending {
        /// Their size.
        bytes: u32,
    },
}

/// The fragments of an event that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFragments {
    /// Each is read by [`Lane::get`](crate::Lane::get): source and size in bytes.
    Each(Vec<(forebay_types::SourceId, u32)>),
    /// All are read at once by [`Lane::get_whole`](crate::Lane::get_whole): they lie in one record, which says their sources.
    Whole {
        /// How many there are.
        fragments: u32,
        /// Their bytes.
        bytes: u32,
    },
}

/// What is known of an event that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventView {
    /// Its durable fragments.
    pub fragments: EventFragments,
    /// How many it should have; 0 unknown.
    pub expected: u16,
    /// Whether a filter has it.
    pub leased: bool,
    /// Whether it is accepted.
    pub accepted: bool,
    /// Whether it was accepted without some of its sources.
    pub incomplete: bool,
}

/// An event that a filter may work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedEvent {
    /// The event.
    pub key: EventKey,
    /// Fragments that are here.
    pub fragments: u32,
    /// Fragments that should be; 0 unknown.
    pub expected: u16,
    /// Bytes of the fragments.
    pub bytes: u64,
    /// Offered although fragments are missing, or nobody said how many there should be, because it waited for as long as the lane lets it.
    pub incomplete: bool,
    /// How often it was leased, this time included.
    pub attempt: u16,
}

/// An accepted event that a stream has not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// The event.
    pub key: EventKey,
    /// Its fragments.
    pub fragments: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Accepted without some of its sources.
    pub incomplete: bool,
}

/// A page of the accepted events of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedPage {
    /// In ascending order.
    pub events: Vec<AcceptedEvent>,
    /// Whether there are more behind the last.
    pub more: bool,
    /// The smallest event that is not decided: accepted events below it are final in order.
    pub undecided_floor: Option<EventKey>,
}

/// One drive as a lane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveInfo {
    /// Its number.
    pub number: DriveNumber,
    /// Its UUID, which stands in every header on it.
    pub uuid: DriveUuid,
    /// Slots on it, of all lanes.
    pub slots: u32,
    /// Whether it is a member: written to and trusted. A drive that is not may still be read for segments that live on it.
    pub member: bool,
    /// Whether it is there at all.
    pub present: bool,
}

/// What a lane must know.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The store.
    pub store: StoreUuid,
    /// The number of the lane.
    pub lane: u16,
    /// Widths and sizes, fixed at init.
    pub geometry: Geometry,
    /// All drives that the store has had and that are not forgotten.
    pub drives: Vec<DriveInfo>,
    /// The start that this is: segments are named after it.
    pub epoch: u64,
    /// Its random number.
    pub nonce: u64,
    /// Payload of a flush on each drive at full rate, in bytes. Its table has up to a unit beside it.
    pub flush_bytes: usize,
    /// Flushes on their way at once.
    pub flush_depth: usize,
    /// The least time between two flushes that are not full.
    pub flush_interval: Duration,
    /// Memory for the data of recent flushes in bytes, and for the buffers of those that fill and are on their way, and for rows that were read.
    /// When these alone need more (up to `flush_depth` + 1 flushes of k+m buffers of `flush_bytes` and a unit), nothing else is kept.
    pub cache_bytes: usize,
    /// Memory for the index in bytes: all that the lane must know of events, flushes and segments. No new fragment is taken beyond it.
    pub index_bytes: usize,
    /// A drive that does not answer for so long is out.
    pub drive_timeout: Duration,
    /// An event with missing fragments is offered to filters after so long.
    pub incomplete_after: Duration,
    /// After so many leases that nobody answered an event is accepted into the stream `debug`.
    pub lease_attempts_max: u16,
    /// With too few drives for full protection new segments get fewer parities, but not fewer than these: `geometry.parity_shards` when no
    /// protection is to be given up.
    pub parity_min: u8,
    /// Of the time so much goes to what nobody waits for (scrub, compaction) while requests come, in percent; 100: it never rests.
    pub background_percent: u8,
    /// And so much to what brings protection back: making lost shards anew, and mending.
    pub rebuild_percent: u8,
    /// Bytes of a flush that rebuild reads from each drive at once, and scrub when it is more than it takes anyway. Disks want as much as a head can read
    /// before it moves on; the lane's other work waits while it computes with it.
    pub background_read_bytes: u32,
    /// Bytes between two that compaction wants of a drive which it reads, too, rather than having the drive begin anew behind them.
    pub read_through_bytes: u32,
    /// Every byte of every closed segment is looked at once in so long; never when zero.
    pub scrub_period: Duration,
    /// Of what happened to events, so much is remembered for those who look on: so many events that were offered to filters, and as many that were
    /// accepted, of 32 bytes each.
    pub told_events: usize,
    /// What a flush takes of each of its drives is a multiple of this, in bytes: a block, or more with one data shard, for media that append in
    /// multiples alone.
    pub flush_multiple_bytes: usize,
    /// Writers whose fragments cannot be taken in are told that they are unavailable for now, instead of being left waiting, when a drive has not answered for so long.
    /// `None` where such a drive is given up.
    pub blocked_after: Option<Duration>,
    /// Whether the media is told of slots in which nothing lies any more, so that it can give their space to others.
    pub tells_freed: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// The store is of a version that has files: fragments of [`RunId::FILES`](forebay_types::RunId::FILES) are refused. Else files are.
    pub has_files: bool,
}

/// What a lane tells the control part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneEvent {
    /// A drive failed and must be taken out.
    DriveFailed {
        /// The drive.
        drive: DriveNumber,
        /// Why, for the operator.
        reason: String,
    },
    /// What lies on a drive was found damaged, in so many places since this was said last. What could be computed from the others is
    /// written again.
    DamageFound {
        /// The drive.
        drive: DriveNumber,
        /// Units and headers.
        places: u64,
    },
    /// Recovery is over and the lane serves.
    Serving,
    /// The lane does nothing more.
    Stopped {
        /// Whether everything is durable and closed. Else the next start finds what a crash leaves: the lane was stopped before it
        /// had recovered, or it could not write any more.
        whole: bool,
    },
    /// The lane cannot go on; what is acknowledged is safe.
    Failed {
        /// Why, for the operator.
        reason: String,
    },
}

/// What the control part tells a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The member list changed, durably: all drives of the store as they are now. A drive that is no member and not present any more is
    /// not read either.
    Drives(Vec<DriveInfo>),
    /// Too few drives are left: nothing may be written any more.
    NoQuorum {
        /// Why, for the operator.
        reason: String,
    },
}

/// A stream and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// Its name.
    pub name: StreamName,
    /// Accepted events that it has not released.
    pub events: u64,
}

/// A run as a lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunView {
    /// The run.
    pub run: forebay_types::RunId,
    /// Events that are here.
    pub events: u64,
    /// Of these, not decided.
    pub undecided: u64,
    /// Events that are over.
    pub finished: u64,
    /// The smallest and the largest event here.
    pub range: Option<(u64, u64)>,
}

/// Counters of a lane since its start; bytes and counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LaneCounters {
    /// Fragments made durable.
    pub fragments_stored: u64,
    /// Their bytes.
    pub fragment_bytes_stored: u64,
    /// Of these, at less than the full width.
    pub fragments_stored_degraded: u64,
    /// Fragments stored with fewer parities than the store was made with, as an operator allowed.
    pub fragments_stored_less_parity: u64,
    /// Bytes of files made durable.
    pub file_bytes_stored: u64,
    /// Puts of a fragment that was there already.
    pub puts_repeated: u64,
    /// Puts for an event that was already decided.
    pub puts_late: u64,
    /// Puts refused because the id holds other content.
    pub puts_conflict: u64,
    /// Puts refused for want of space.
    pub puts_no_space: u64,
    /// Puts refused because the index is full.
    pub puts_index_full: u64,
    /// Puts whose bytes were damaged on the way.
    pub puts_damaged: u64,
    /// Events rejected.
    pub events_rejected: u64,
    /// Events accepted.
    pub events_accepted: u64,
    /// Events accepted or rejected without all of their fragments.
    pub events_incomplete: u64,
    /// Events deleted.
    pub events_deleted: u64,
    /// Events that all of their streams have released.
    pub events_released: u64,
    /// Leases that ended without a decision.
    pub leases_expired: u64,
    /// Fragments read.
    pub fragments_read: u64,
    /// Of these, from memory.
    pub fragments_read_cached: u64,
    /// Of these, with the help of parity.
    pub fragments_read_degraded: u64,
    /// Bytes of files read.
    pub file_bytes_read: u64,
    /// Of these, from memory.
    pub file_bytes_read_cached: u64,
    /// Fragments found damaged beyond repair.
    pub fragments_lost: u64,
    /// Reads of a drive that failed; the other drives stood in as far as they could.
    pub reads_failed: u64,
    /// Units that were found damaged, those that stay so once more whenever they are met.
    pub units_damaged: u64,
    /// The same by the number of the drive, of those that had any.
    pub units_damaged_by_drive: BTreeMap<u16, u64>,
    /// Flushes written.
    pub flushes: u64,
    /// Bytes written to drives, parity, headers and checkpoints included.
    pub media_bytes_written: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
}
