//! Every limit of the protocol.

use forebay_types::limits::{BATCH_RECORDS_MAX, FRAGMENT_BYTES_MAX, STREAM_NAME_BYTES_MAX, STREAMS_MAX};
use forebay_types::{NAME_BYTES_MAX, TARGET_BYTES_MAX};

use crate::message::{EVENT_BYTES, FILE_INFO_BYTES, LEASED_EVENT_BYTES, PUT_ENTRY_BYTES, RUN_INFO_BYTES};

/// The table of a frame.
pub const FRAME_TABLE_BYTES_MAX: usize = 1 << 20;

/// The payload of a frame: one largest fragment and what else a batch may carry.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = FRAGMENT_BYTES_MAX + (1 << 20);

/// A client's or a server's name in the greeting.
pub const PEER_NAME_BYTES_MAX: usize = 64;

/// The sentence of an error.
pub const SENTENCE_BYTES_MAX: usize = 1024;

/// The path of a drive, as Linux limits it.
pub const DRIVE_PATH_BYTES_MAX: usize = 4096;

/// The longest wait that a server may ask of a writer at once (`busy_ms`); clients wait no longer.
pub const BUSY_MS_MAX: u32 = 10_000;

/// The shortest lease: a filter must have time to decide, as an event whose leases run out several times is decided without one.
pub const LEASE_MS_MIN: u32 = 100;

/// The longest lease: the events of a filter that died come back when it ends.
pub const LEASE_MS_MAX: u32 = 3_600_000;

/// Files of which one request asks what is known.
pub const FILES_MAX: usize = 4096;

/// Names of a directory that one reply lists.
pub const NAMES_MAX: usize = 3072;

const _: () = assert!(8 + FILES_MAX * FILE_INFO_BYTES <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(8 + NAMES_MAX * (10 + NAME_BYTES_MAX) <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize && TARGET_BYTES_MAX < u16::MAX as usize);
const _: () = assert!(8 + BATCH_RECORDS_MAX * PUT_ENTRY_BYTES <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(16 + BATCH_RECORDS_MAX * LEASED_EVENT_BYTES <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(40 + BATCH_RECORDS_MAX * EVENT_BYTES <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(8 + BATCH_RECORDS_MAX * RUN_INFO_BYTES <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(8 + 24 * BATCH_RECORDS_MAX + STREAMS_MAX * (1 + STREAM_NAME_BYTES_MAX) <= FRAME_TABLE_BYTES_MAX);
const _: () = assert!(FRAME_PAYLOAD_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(PEER_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(SENTENCE_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(STREAMS_MAX <= u64::BITS as usize, "the streams of a decision are bits of a u64");
