//! A lane: one independent log with its index, slots and recovery.
//!
//! The caller gives requests, the time and completions; it takes operations, replies and events. After each batch of calls it calls
//! [`Lane::pump`], which decides what is to be written now. The parts lie beside this file: what requests do in `request`, what is
//! written in `write`, what becomes durable in `durable`, what a lost drive means in `failure`, starting and stopping in `start`.

mod background;
mod carry;
mod checkpoint;
mod close;
mod compact;
mod durable;
mod failure;
mod files;
mod join;
mod losses;
mod memory;
mod read;
mod rebuild;
mod request;
mod rules;
mod scrub;
mod space;
mod start;
mod status;
mod subscribe;
mod survey;
#[cfg(test)]
mod tests;
mod trace;
mod view;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use forebay_format::{EventFragment, PlannedSegment};
use forebay_media::{Completion, Operation, OperationId};
use forebay_types::{DriveNumber, DriveUuid, FragmentId, RunId, Time, WallTime};

use crate::accepted::AcceptedEvents;
use crate::api::{DriveInfo, LaneConfig, LaneCounters, LaneEvent, Reply, Token};
use crate::cache::Cache;
use crate::check::FlushCheck;
use crate::ends::Ends;
use crate::files::{Files, OpenFiles};
use crate::finished::Finished;
use crate::hidden::Hidden;
use crate::index::{FragmentEntry, Index};
use crate::io::{Failure, Io, Owner};
use crate::lease::Tick;
use crate::pool::BufferPool;
use crate::read::{ReadReport, ReadSegment, Row};
use crate::recovery::{Recovered, RecoveryError, read_segment};
use crate::rows::{RecentRows, RowKey};
use crate::segments::{FlushSpan, SegmentIndex, Segments};
use crate::slots::{Slots, Width};
use crate::task::{Task, Tasks};
use crate::whole::WholeRead;
use background::{Background, Step};
use carry::Carried;
pub(crate) use carry::decided_events;
use checkpoint::Checkpointer;
use files::{FileRead, FileReading, Summing};
pub use files::{KeptRun, SharedRange};
use losses::KnownLosses;
pub use request::DEBUG_STREAM;
use subscribe::Happened;
use survey::Survey;
pub use survey::{Looked, SegmentHandle, StoredEvent, StoredFile, StoredFragment, StoredSegment, StoredWhole};
use trace::LatePuts;
pub use trace::{
    EventTrace, FlushTrace, FragmentTrace, LatePut, RunTrace, ShardState, ShardTrace, StreamTrace, TraceState,
};
use write::Writer;

/// A driver that stood still counts as this much time at most when drives are judged by theirs.
const STEP_MAX: Duration = Duration::from_millis(100);

/// What the lane is doing.
enum State {
    Recovering(Task<Result<Recovered, RecoveryError>>),
    /// Recovery found what is torn; it is written again, then a checkpoint says so. Nothing is served yet.
    Preparing,
    Serving,
    ReadOnly,
    Stopping,
    Stopped,
    /// Nothing can be written any more.
    Unavailable(String),
}

/// What is read from the drives for someone.
struct Reading {
    token: Token,
    id: FragmentId,
    /// The fragment, or the whole event, in the record of which it is.
    fragment: FragmentEntry,
    span: FlushSpan,
    /// Where it lies in the flush's data.
    range: Range<u64>,
}

/// What a reading task comes to.
enum Read {
    Fragment(ReadReport),
    /// A fragment of an event that is one record, and what that says of it.
    Part(ReadReport, Option<EventFragment>),
    /// An event that is one record: all of that.
    Event(WholeRead),
    /// A part of a file.
    File(FileRead),
    /// A row, when enough of its drives answered.
    Row(RowKey, Option<Row>),
    /// A look at what lies on the drives, for whoever asked.
    Looked(Token, Looked),
    /// A check of a flush of a segment.
    Checked(Token, SegmentIndex, FlushCheck),
    /// What is known of an event, for whoever asked, and the segments that were pinned for it.
    Traced(Token, Box<EventTrace>, Vec<SegmentIndex>),
    /// A step of what is done beside the requests.
    Stepped(Step),
}

/// One lane of a store.
pub struct Lane {
    config: LaneConfig,
    state: State,
    io: Io,
    now: Time,
    /// The calendar, as the driver last said.
    wall: WallTime,
    /// Runs no faster than the driver steps, so that a driver that stood still blames no drive.
    drive_time: Time,
    index: Index,
    files: Files,
    open_files: OpenFiles,
    summing: Summing,
    segments: Segments,
    finished: Finished,
    ends: Ends,
    accepted: AcceptedEvents,
    carried: Carried,
    slots: Slots,
    cache: Cache,
    pool: BufferPool,
    writer: Writer,
    checkpointer: Checkpointer,
    tasks: Tasks<Read>,
    reading: BTreeMap<usize, Reading>,
    reading_files: BTreeMap<usize, FileReading>,
    rows: RecentRows,
    /// Rows on their way, and who waits for fragments of them.
    rows_awaited: BTreeMap<RowKey, Vec<Reading>>,
    replies: VecDeque<Reply>,
    events: VecDeque<LaneEvent>,
    /// Drives that failed and that the control part has not taken out yet.
    failing: BTreeSet<DriveNumber>,
    /// Reads of each drive that failed, since one came back well.
    failed_reads: BTreeMap<DriveNumber, u32>,
    /// Recovery came to its end: the index has everything that is stored.
    recovered: bool,
    next_sequence: u64,
    next_segment_counter: u64,
    fragment_bytes: u64,
    flushes_possibly_lost: u64,
    flushes_unavailable: u64,
    flushes_lost: u64,
    segments_unreadable: u64,
    hidden: Hidden,
    events_held: u64,
    survey: Survey,
    losses: KnownLosses,
    late_puts: LatePuts,
    /// What holds for runs that somebody declared.
    run_rules: BTreeMap<RunId, rules::Rule>,
    happened: Happened,
    background: Background,
    counters: LaneCounters,
}

impl Lane {
    /// The next operation for the media.
    pub fn next_operation(&mut self) -> Option<(OperationId, Operation)> {
        self.io.next_outgoing()
    }

    /// The next range of a drive in which nothing lies that is needed: the drive, from where, and how many bytes. To be asked for before
    /// [`Lane::next_operation`], and only told with [`LaneConfig::tells_freed`].
    pub fn next_freed(&mut self) -> Option<(DriveNumber, u64, u64)> {
        let (drive, slot) = self.slots.next_freed()?;
        let begin = self.slot_offset(forebay_format::ShardPlace { drive, slot });
        Some((drive, begin, self.config.geometry.slot_bytes))
    }

    /// The next reply.
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// The next message to the control part.
    pub fn next_event(&mut self) -> Option<LaneEvent> {
        self.events.pop_front()
    }

    /// Operations that have not come back.
    pub fn operations_in_flight(&self) -> usize {
        self.io.in_flight()
    }

    /// An operation came back.
    pub fn complete(&mut self, now: Time, completion: Completion) {
        self.step(now);
        if let Some(finished) = self.io.complete(completion) {
            self.finish_operation(finished);
        }
        self.finish_refused();
    }

    fn finish_refused(&mut self) {
        while let Some(finished) = self.io.next_refused() {
            self.finish_operation(finished);
        }
    }

    fn finish_operation(&mut self, finished: crate::io::Finished) {
        match finished.owner {
            Owner::Flush { serial, shard } => self.flush_shard_done(serial, shard, finished.drive, finished.result),
            Owner::Close { serial, shard } => self.close_shard_done(serial, shard, finished.drive, finished.result),
            Owner::Checkpoint { serial, drive } => self.checkpoint_done(serial, drive, finished.result),
            Owner::TaskWrite(task) => {
                if let Err(failure) = &finished.result {
                    self.fail_drive(
                        finished.drive,
                        &format!("a write of a shard that was made anew failed: {failure}"),
                    );
                }
                self.io.deliver(finished);
                self.poll_task(task);
            }
            Owner::Task(task) => {
                if finished.result != Err(Failure::GivenUp) {
                    self.note_read(finished.drive, finished.result.as_ref().err());
                }
                self.io.deliver(finished);
                self.poll_task(task);
            }
        }
    }

    /// What the calendar of the driver's machine says now, for people: when a flush was written, when damage was found. Nothing is decided by it,
    /// and until it is told such times are not known.
    pub fn set_wall_time(&mut self, wall: WallTime) {
        self.wall = wall;
    }

    /// Whether what the drives stand on has no room, though they have slots: what is new is refused then ([`forebay_types::PutOutcome::NoSpace`]), and what frees is done.
    pub fn set_media_full(&mut self, is_full: bool) {
        self.writer.is_media_full = is_full;
    }

    /// Whether the media has not answered for so long that writers are told ([`LaneConfig::blocked_after`]).
    fn is_blocked(&self) -> bool {
        let blocked = |after| self.io.oldest().is_some_and(|oldest| self.now.since(oldest) > after);
        self.config.blocked_after.is_some_and(blocked)
    }

    /// What [`Lane::set_wall_time`] said last, in nanoseconds since 1970.
    pub fn wall_unix_ns(&self) -> i64 {
        crate::files::unix_ns(self.wall)
    }

    /// Takes the time in.
    fn step(&mut self, now: Time) {
        let passed = now.since(self.now).min(STEP_MAX);
        self.now = self.now.max(now);
        self.drive_time = self.drive_time + passed;
        self.io.set_now(self.drive_time);
    }

    /// Decides what is to be written now. To be called after each batch of requests and completions, and when
    /// [`Lane::next_wakeup`] has come.
    pub fn pump(&mut self, now: Time) {
        self.step(now);
        self.judge_drives();
        self.finish_refused();
        self.reform();
        match self.state {
            State::Recovering(_) => self.recover_on(),
            State::Preparing | State::Serving | State::Stopping => {
                self.expire_leases();
                self.replay();
                self.seal_if_due();
                self.close_retired();
                self.work_in_background();
                self.checkpoint_if_needed();
                self.advance_state();
            }
            State::ReadOnly | State::Stopped | State::Unavailable(_) => {}
        }
        self.finish_refused();
    }

    /// When [`Lane::pump`] must be called at the latest although nothing came.
    pub fn next_wakeup(&self) -> Option<Time> {
        let drives = self.io.oldest().map(|_| self.now + STEP_MAX);
        let serving = matches!(self.state, State::Serving);
        let leases = self.index.next_timer().filter(|_| serving).map(Tick::time);
        let flush = self.next_seal();
        [drives, leases, flush, self.next_background()].into_iter().flatten().min()
    }

    /// Whether a drive is written to and read from.
    fn answers(&self, drive: DriveNumber) -> bool {
        !self.failing.contains(&drive) && self.config.drives.iter().any(|d| d.number == drive && d.present)
    }

    fn is_member(&self, drive: DriveNumber) -> bool {
        self.config.drives.iter().any(|d| d.number == drive && d.member)
    }

    fn members(&self) -> Vec<DriveNumber> {
        let usable = |d: &&crate::api::DriveInfo| d.member && d.present && !self.failing.contains(&d.number);
        self.config.drives.iter().filter(usable).map(|d| d.number).collect()
    }

    /// How wide new segments are; `None` when too few drives are left. Parities are given up last, and only as far as an operator said.
    fn width(&self) -> Option<Width> {
        let geometry = &self.config.geometry;
        let members = u8::try_from(self.members().len()).unwrap_or(u8::MAX);
        let parity = members.checked_sub(geometry.data_shards_min)?.min(geometry.parity_shards);
        let data = (members - parity).min(geometry.data_shards);
        (parity >= self.config.parity_min).then_some(Width { data, parity })
    }

    /// So many drives must be left for writing.
    fn drives_needed(&self) -> usize {
        usize::from(self.config.geometry.data_shards_min) + usize::from(self.config.parity_min)
    }

    fn read_segment(&self, index: SegmentIndex) -> ReadSegment {
        let segment = self.segments.get(index);
        let plan = PlannedSegment {
            id: segment.id,
            data_shards: segment.data_shards,
            parity_shards: segment.parity_shards,
            unit_bytes: segment.unit_bytes,
            shards: segment.shards.clone(),
        };
        read_segment(&self.config, &plan, |d| d.present && !self.failing.contains(&d.number))
    }

    fn drive(&self, number: DriveNumber) -> &DriveInfo {
        let drive = self.config.drives.iter().find(|d| d.number == number);
        drive.expect("segments lie on drives of the store")
    }

    fn drive_uuid(&self, number: DriveNumber) -> DriveUuid {
        self.drive(number).uuid
    }

    fn slot_offset(&self, place: forebay_format::ShardPlace) -> u64 {
        self.config.geometry.layout(self.drive(place.drive).slots).slot_offset(place.slot)
    }
}
