//! Every limit of the server that is not configured.

use std::time::Duration;

use forebay_types::limits::BATCH_RECORDS_MAX;

/// The receive buffer of a connection that has bytes under way. It fits a core's second-level cache, so that what the system copied
/// in is still there when the lane copies it on.
pub const READ_BYTES: usize = 256 << 10;

/// What is read before it is known what comes, and behind the end of a frame: header and table of a put of some hundred fragments.
pub const LOOK_AHEAD_BYTES: usize = 8 << 10;

/// A rest of so many bytes is kept in memory of its own, so that a large buffer serves others meanwhile.
pub const KEPT_BYTES: usize = LOOK_AHEAD_BYTES;

/// Receive buffers that are kept for use, and bytes of them beyond [`READ_BYTES`] each.
pub const SPARE_BUFFERS_MAX: usize = 8;

/// Bytes of one connection's work before others have their turn.
pub const WORK_BYTES: usize = 1 << 20;

/// What a record or a small request counts for in [`WORK_BYTES`], beyond its payload.
pub const RECORD_WORK_BYTES: usize = 256;

/// What a list (leases, accepted events, streams, runs, the state) counts for in [`WORK_BYTES`], beyond its bytes.
pub const LIST_WORK_BYTES: usize = 16 << 10;

/// What a stream of a decision that is not that of the decision before counts for in [`WORK_BYTES`].
pub const STREAM_WORK_BYTES: usize = 32;

/// Bytes of work of each class (readout, filter, mover, monitor) between two turns of the lane.
pub const CLASS_WORK_BYTES: [usize; 4] = [4 << 20, 1 << 20, 1 << 20, 256 << 10];

/// Payload of a frame of a reply before the next frame is begun; one more fragment may exceed it.
pub const REPLY_BYTES: usize = 1 << 20;

/// Entries of a frame of a reply.
pub const REPLY_RECORDS_MAX: usize = 4096;

/// Requests of a connection that are not answered; no more are read while there are so many.
pub const REQUESTS_MAX: usize = 1024;

/// Records of a connection's requests that are not answered; one more request may exceed it.
pub const RECORDS_MAX: usize = 4 * BATCH_RECORDS_MAX;

/// Reads from drives that a lane has under way.
pub const READS_MAX: usize = 1024;

/// Bytes of reads from drives that a lane has under way; one more fragment may exceed it.
pub const READS_BYTES_MAX: usize = 16 << 20;

/// A reply chunk that is longer takes no further frame.
pub const CHUNK_BYTES: usize = 64 << 10;

/// A read of so many bytes of a file that are in memory is answered from where they lie; of fewer, a copy takes less than keeping track of the pieces.
pub const SHARED_READ_BYTES: u32 = 64 << 10;

/// A write to a file of so many bytes, all of which have arrived, is read to where they are stored; of fewer, a copy takes less than asking how many are there.
pub const PLACED_BYTES_MIN: usize = 64 << 10;

/// A reply chunk of a connection that waits for nothing is kept for others if its memory is not larger.
pub const SPARE_CHUNK_BYTES_MAX: usize = 2 * REPLY_BYTES + (256 << 10);

/// Memory of all reply chunks that are kept: of replies of a MiB, as to who reads a file ahead, eight.
pub const SPARE_CHUNKS_BYTES_MAX: usize = 4 * SPARE_CHUNK_BYTES_MAX;

/// A lane whose connections together have more than so many full buffers to send serves each a frame at a time.
pub const OUT_BUFFERS_MAX: usize = 2;

/// A lane whose connections together have more than so many full buffers and one long frame to send makes no long replies until some of
/// these are read. One more buffer and what drives were asked for before ([`READS_BYTES_MAX`]) may exceed it.
pub const OUT_BUFFERS_TOGETHER: usize = 3;

/// A connection that takes nothing of what it is sent is closed after so many stall timeouts.
pub const UNREAD_TIMES: u32 = 6;

/// When others wait for the memory of its answers, it is closed after this part of the stall timeout.
pub const UNREAD_PART: u32 = 5;

/// The least progress of a frame within the stall timeout, unless it ends.
pub const PROGRESS_BYTES: usize = 16 << 10;

/// The least progress within the stall timeout of who holds a buffer larger than [`READ_BYTES`]: one part of so many.
pub const PROGRESS_PART: usize = 16;

/// Bytes of puts that all writers of a lane together are offered to have unanswered.
pub const LANE_CREDIT_BYTES: u64 = 64 << 20;

/// The least credit of a connection.
pub const CREDIT_BYTES_MIN: u64 = 1 << 20;

/// The credit of a connection while the lane is full: enough to notice that there is room again. With more, what thousands of writers try in vain would
/// take the time of those whose decisions make room.
pub const CREDIT_BYTES_FULL: u64 = 16 << 10;

/// Below so many thousandths of free segments, or of free memory for the index, a lane is filling: the mark that all others are told by (docs/space.md).
pub const FILLING_BELOW_PER_MILLE: u64 = 100;

/// Below so many free segments it is too, when it has four times as many.
pub const FILLING_BELOW_SEGMENTS: u64 = 4;

/// With no more left than this, in percent of the filling mark, writers are asked to wait: the busy mark. Early enough that they feel it before they are
/// refused, late enough that a store at nine tenths writes as fast as an empty one while compaction makes room.
pub const BUSY_PERCENT: u64 = 50;

/// With less left than this, in percent of the filling mark, reads of monitors, of movers and of filters from the drives are slowed: at 80, 85 and 95 %
/// occupancy. Compaction has to make the room by then, and reads are what competes with it.
pub const SLOWED_BELOW_PERCENT: [u64; 3] = [200, 150, 50];

/// And until there is so much again: each step ends where the one before began, the filling mark among them.
pub const SLOWED_UNTIL_PERCENT: [u64; 3] = [250, 200, 100];

/// Of the reads from drives that a class (readout, filter, mover, monitor) may have under way, it has one part of so many while it is slowed: the later and
/// the less its reads free, the smaller. None is stopped, and what frees space (decisions, releases, deletions) is no read.
pub const SLOWED_PART: [usize; 4] = [1, 2, 4, 16];

/// How often a lane is looked at to tell its rates.
pub const RATES_EVERY: Duration = Duration::from_secs(1);
/// The time over which rates are told.
pub const RATES_AGE: Duration = Duration::from_secs(60);

/// The waits that writers are asked for, from the busy to the full mark, in milliseconds.
pub const BUSY_MS: (u32, u32) = (1, 200);

/// How old counts may be that are costly to make.
pub const COUNTS_AGE: Duration = Duration::from_millis(50);

/// Requests that a lane was too busy for are offered again after so long even if no drive answered.
pub const BUSY_RETRY: Duration = Duration::from_millis(5);

/// When a filter should ask again that got fewer events than it wanted.
pub const LEASE_RETRY_MS: u32 = 20;

/// Events that a subscriber is told of at once, those included that are over by then: each is looked up in the index.
pub const TOLD_AT_ONCE: u32 = 1024;

/// When a subscriber should ask again that was told all that there was.
pub const TOLD_RETRY_MS: u32 = 50;

/// Losses that are told in one answer.
pub const LOSSES_AT_ONCE: u32 = 1000;

/// Connections that have not said who they are.
pub const GREETINGS_MAX: usize = 256;

/// How long a connection may take to say who it is.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The table of a greeting.
pub const GREETING_TABLE_BYTES_MAX: usize = 4 << 10;

/// The frame of a request on a control connection.
pub const CONTROL_FRAME_BYTES_MAX: usize = 64 << 10;

/// Requests of a control connection that are answered before others have their turn.
pub const CONTROL_TURN_REQUESTS: usize = 16;

/// A control connection that has so much to read is not served further; one more answer may exceed it.
pub const CONTROL_OUT_BYTES_MAX: usize = 256 << 10;

/// How long a connection that is closed by the server may take to read what it was told last.
pub const LINGER: Duration = Duration::from_secs(2);

/// How long the control thread waits for lanes.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a stopping lane waits for its connections to take their last answers.
pub const FAREWELL: Duration = Duration::from_secs(2);

const _: () = assert!(KEPT_BYTES < READ_BYTES);
const _: () = assert!(SLOWED_PART[3] <= READS_MAX / 64, "who is slowed still has many reads under way");
const _: () = assert!(READS_MAX <= 1 << 16, "reads are numbered with 16 bits");
const _: () = assert!(BATCH_RECORDS_MAX <= 1 << 16, "the records of a request are numbered with 16 bits");
const _: () = assert!(OUT_BUFFERS_MAX < OUT_BUFFERS_TOGETHER, "each is slowed before all are stopped");

/// A file that a client has open stays open for so long after its connection is gone, so that the client may come back.
pub const OPENING_KEPT: Duration = Duration::from_secs(60);

/// Appends of an opening of which the server remembers what became of them, for a client that did not hear it. Of one that has more on their way when its
/// connection is lost, the first are told as unknown.
pub const APPENDS_REMEMBERED_MAX: usize = 64;

/// Files that clients of a lane have open, each counted for each client.
pub const OPENINGS_MAX: usize = 1 << 18;

/// What is to be written or ended of files, and could not be, is tried again so often.
pub const FILES_RETRY: Duration = Duration::from_millis(20);
