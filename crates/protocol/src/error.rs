//! What can be wrong with bytes from the network.

use crate::kind::ErrorCode;

/// Bytes that are no frame, or a frame that is not what its kind says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are no frame's.
    #[error("this is no Forebay frame: it starts with {found:#010x} instead of {expected:#010x}; is this the right port?", expected = crate::MAGIC)]
    BadMagic {
        /// The first four bytes.
        found: u32,
    },
    /// The header was damaged on the way.
    #[error("the header of a frame was damaged on the way: its checksum is {found:#010x} instead of {expected:#010x}")]
    HeaderChecksum {
        /// What the header says.
        expected: u32,
        /// What its bytes have.
        found: u32,
    },
    /// A flag that must be understood and is not.
    #[error("request {request} has flags {flags:#06x}, which this version does not know")]
    UnknownFlags {
        /// The request.
        request: u64,
        /// All flags of the frame.
        flags: u16,
    },
    /// More than a frame may carry.
    #[error("the {part} of request {request} has {bytes} bytes; at most {max} are taken")]
    TooLarge {
        /// The request.
        request: u64,
        /// `table` or `payload`.
        part: &'static str,
        /// What the header announces.
        bytes: u32,
        /// The limit.
        max: usize,
    },
    /// The table was damaged on the way.
    #[error(
        "the table of request {request} was damaged on the way: its checksum is {found:#010x} instead of {expected:#010x}"
    )]
    TableChecksum {
        /// The request.
        request: u64,
        /// What the header says.
        expected: u32,
        /// What its bytes have.
        found: u32,
    },
    /// The table ends before its fields do.
    #[error("the table of a {message} ends early: {wanted} more bytes were to come, {left} are left")]
    Truncated {
        /// The kind of frame.
        message: &'static str,
        /// Bytes that the next field needs.
        wanted: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// More entries than a message may have.
    #[error("a {message} announces {count} {what}; at most {max} are taken")]
    TooMany {
        /// The kind of frame.
        message: &'static str,
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// The limit.
        max: usize,
    },
    /// A number that means nothing in its place.
    #[error("a {message} has {value} as {what}, which means nothing to this version")]
    BadValue {
        /// The kind of frame.
        message: &'static str,
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The entries of the table and the payload disagree.
    #[error("the entries of a {message} add up to {expected} bytes of payload; the frame has {found}")]
    PayloadLength {
        /// The kind of frame.
        message: &'static str,
        /// The sum of the table.
        expected: u64,
        /// What the frame has.
        found: usize,
    },
    /// Text that is not UTF-8 or not a name.
    #[error("a {message} has a {what} that is no valid text")]
    BadText {
        /// The kind of frame.
        message: &'static str,
        /// The field.
        what: &'static str,
    },
    /// A payload that does not have the checksum of its table.
    #[error(
        "the {what} of a {message} was damaged on the way: its checksum is {found:#010x} instead of {expected:#010x}"
    )]
    PayloadChecksum {
        /// The kind of frame.
        message: &'static str,
        /// Of what.
        what: &'static str,
        /// What the table says.
        expected: u32,
        /// What the bytes have.
        found: u32,
    },
}

impl FrameError {
    /// The code of the Error frame that answers it.
    pub const fn code(&self) -> ErrorCode {
        match self {
            FrameError::TooLarge { .. } | FrameError::TooMany { .. } => ErrorCode::TooLarge,
            _ => ErrorCode::BadFrame,
        }
    }

    /// Whether the next frame cannot be found any more: the connection closes, an Error frame first.
    pub const fn closes_connection(&self) -> bool {
        matches!(self, FrameError::BadMagic { .. } | FrameError::HeaderChecksum { .. } | FrameError::TooLarge { .. })
    }

    /// Whether the same request may succeed when it is sent again: it was damaged on the way.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            FrameError::HeaderChecksum { .. } | FrameError::TableChecksum { .. } | FrameError::PayloadChecksum { .. }
        )
    }

    /// The request that it concerns, if the header could be read.
    pub const fn request(&self) -> Option<u64> {
        match self {
            FrameError::UnknownFlags { request, .. }
            | FrameError::TooLarge { request, .. }
            | FrameError::TableChecksum { request, .. } => Some(*request),
            _ => None,
        }
    }
}
