//! Every limit on a size, a count or a queue that more than one crate must agree on.

/// The unit of everything that is read from or written to a drive: offsets, lengths and addresses of
/// memory are multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// Drives of one segment, data and parity together (design: any k+m up to 32).
pub const SHARDS_MAX: usize = 32;

/// Drives of a store, the lost ones included.
pub const DRIVES_MAX: usize = 256;

/// Lanes of a store.
pub const LANES_MAX: usize = 64;

/// The largest fragment that any store takes; small stores take less and say so in the greeting.
pub const FRAGMENT_BYTES_MAX: usize = 16 << 20;

/// The longest piece of a file: what is written to one at once is cut into such.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// The longest file.
pub const FILE_BYTES_MAX: u64 = (1 << 48) - 1;

/// Records in one request.
pub const BATCH_RECORDS_MAX: usize = 16_384;

/// Streams of a store.
pub const STREAMS_MAX: usize = 64;

/// Bytes of the name of a stream.
pub const STREAM_NAME_BYTES_MAX: usize = 64;

/// Runs that a store can keep in its books. None is ever forgotten, as its number must not be used again.
pub const RUNS_MAX: usize = 1 << 16;

/// Ranges of sources of one run or stream.
pub const SOURCE_RANGES_MAX: usize = 1024;

/// Versions of the definition of one stream.
pub const STREAM_VERSIONS_MAX: usize = 1024;

/// Bytes of a reason that somebody gives.
pub const REASON_BYTES_MAX: usize = 1024;

/// Bytes of the name of a person or a program.
pub const PERSON_BYTES_MAX: usize = 128;

/// Bytes of the name of a format of files.
pub const FORMAT_BYTES_MAX: usize = 64;

/// Bytes of the address of a destination.
pub const DESTINATION_BYTES_MAX: usize = 1024;

/// Memory that the books of runs and streams may take.
pub const BOOKS_BYTES_MAX: usize = 64 << 20;

const _: () = assert!(BLOCK_BYTES.is_power_of_two());
const _: () = assert!(PIECE_BYTES_MAX <= FRAGMENT_BYTES_MAX);
const _: () = assert!(STREAM_NAME_BYTES_MAX <= u8::MAX as usize);
