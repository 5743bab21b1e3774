//! Status, Trace, Losses, Ping, InjectFault, ChangeDrive, Scrub, Done and Error.

use forebay_types::{DriveNumber, EventKey, crc32c};

use super::Message;
use super::list::empty;
use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::{ErrorCode, Kind};
use crate::limits::{DRIVE_PATH_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX, SENTENCE_BYTES_MAX};
use crate::wire::{Reader, Write, cut};

/// Asks for the state of the connection's lane, or of the server on a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status;

/// Asks for a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping;

/// Has every byte of what is stored now looked at, and mended where it is damaged. Done comes when that is begun; the status says how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub;

/// Done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done;

/// Asks for all that the connection's lane knows of an event: what arrived, where it lies, what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The event.
    pub key: EventKey,
}

/// Asks for what the connection's lane knows to be lost or out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// How many to leave out, as were told before.
    pub from: u32,
    /// At most so many.
    pub max: u32,
}

impl Message for Trace {
    const KIND: Kind = Kind::Trace;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_key(self.key);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        Ok(Trace { key: Reader::new(table, Self::KIND.name()).key()? })
    }
}

impl Message for Losses {
    const KIND: Kind = Kind::Losses;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u32(self.from);
        table.put_u32(self.max);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        Ok(Losses { from: reader.u32()?, max: reader.u32()? })
    }
}

empty!(Status);
empty!(Ping);
empty!(Scrub);
empty!(Done);

/// The state, or what else is told to people, as JSON text, which this crate does not look into. It travels as the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReply {
    /// One JSON object; at most [`FRAME_PAYLOAD_BYTES_MAX`] bytes.
    pub json: String,
}

impl Message for StatusReply {
    const KIND: Kind = Kind::StatusReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_count(self.json.len());
        table.put_u32(crc32c(self.json.as_bytes()));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        Self::decode(table, &[])
    }

    fn encode_with(&self, request: u64, flags: u16, into: &mut Vec<u8>) {
        let mut table = Vec::new();
        self.write_table(&mut table);
        encode_frame(Self::KIND, flags, request, &table, &[self.json.as_bytes()], into);
    }

    fn decode(table: &[u8], payload: &[u8]) -> Result<Self, FrameError> {
        let message = Self::KIND.name();
        let mut reader = Reader::new(table, message);
        let bytes = reader.count("bytes of JSON", FRAME_PAYLOAD_BYTES_MAX)?;
        let (expected, found) = (reader.u32()?, crc32c(payload));
        if bytes != payload.len() {
            return Err(FrameError::PayloadLength { message, expected: bytes as u64, found: payload.len() });
        }
        if expected != found {
            return Err(FrameError::PayloadChecksum { message, what: "JSON", expected, found });
        }
        let json = std::str::from_utf8(payload).map_err(|_| FrameError::BadText { message, what: "JSON" })?;
        Ok(StatusReply { json: json.to_owned() })
    }
}

/// Makes a drive fail; only servers started for tests do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectFault {
    /// The drive.
    pub drive: DriveNumber,
}

impl Message for InjectFault {
    const KIND: Kind = Kind::InjectFault;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u16(self.drive.0);
        table.put_u16(0);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let drive = DriveNumber(reader.u16()?);
        reader.u16()?;
        Ok(InjectFault { drive })
    }
}

/// What an operator does with a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveChange {
    /// It is given up: neither written to nor read any more.
    Fail {
        /// Though something that is stored comes out of reach by it.
        force: bool,
    },
    /// It is taken out of use: not written to any more, and read as long as something lives on it.
    Retire,
    /// A new drive is put in for it.
    Replace {
        /// Where it is, on the server.
        path: String,
        /// What lies there may be destroyed.
        force: bool,
    },
}

/// Takes a drive out of the store, or puts one in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeDrive {
    /// The drive.
    pub drive: DriveNumber,
    /// What is done with it.
    pub change: DriveChange,
}

const FAIL: u8 = 1;
const RETIRE: u8 = 2;
const REPLACE: u8 = 3;

impl Message for ChangeDrive {
    const KIND: Kind = Kind::ChangeDrive;

    fn write_table(&self, table: &mut Vec<u8>) {
        let (change, force, path) = match &self.change {
            DriveChange::Fail { force } => (FAIL, *force, ""),
            DriveChange::Retire => (RETIRE, false, ""),
            DriveChange::Replace { path, force } => (REPLACE, *force, path.as_str()),
        };
        let path = cut(path, DRIVE_PATH_BYTES_MAX);
        table.put_u16(self.drive.0);
        table.push(change);
        table.push(u8::from(force));
        table.put_u16(path.len() as u16);
        table.put_u16(0);
        table.extend_from_slice(path.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let message = Self::KIND.name();
        let mut reader = Reader::new(table, message);
        let drive = DriveNumber(reader.u16()?);
        let (change, flags) = (reader.u8()?, reader.u8()?);
        let bytes = usize::from(reader.u16()?);
        reader.u16()?;
        let path = reader.text("path of a drive", bytes, DRIVE_PATH_BYTES_MAX)?;
        let force = flags & 1 != 0;
        let change = match change {
            FAIL => DriveChange::Fail { force },
            RETIRE => DriveChange::Retire,
            REPLACE => DriveChange::Replace { path: path.to_owned(), force },
            found => return Err(FrameError::BadValue { message, what: "change of a drive", value: u64::from(found) }),
        };
        Ok(ChangeDrive { drive, change })
    }
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The number.
    pub code: ErrorCode,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// For people: what happened, what it means for the data, what to do. Cut to
    /// [`SENTENCE_BYTES_MAX`] bytes.
    pub sentence: String,
}

impl From<&FrameError> for ErrorReply {
    fn from(error: &FrameError) -> Self {
        let retryable = error.is_retryable();
        let advice = match (error.closes_connection(), retryable) {
            _ if matches!(error, FrameError::TooLarge { .. }) => {
                "nothing of it was done, and this connection is closed: connect again, send this in smaller parts, and repeat what was not \
                 answered"
            }
            (true, _) => {
                "nothing of it was done, and this connection is closed, as it is not known where the next frame begins: connect again and \
                 repeat what was not answered"
            }
            (false, true) => "nothing of it was done: send it again",
            (false, false) => {
                "nothing of it was done, and sending it again will not help: is the client of a version that fits the server?"
            }
        };
        ErrorReply { code: error.code(), retryable, sentence: format!("{error}; {advice}") }
    }
}

impl Message for ErrorReply {
    const KIND: Kind = Kind::Error;

    fn write_table(&self, table: &mut Vec<u8>) {
        let sentence = cut(&self.sentence, SENTENCE_BYTES_MAX);
        table.put_u16(self.code.code());
        table.put_u16(u16::from(self.retryable));
        table.put_u16(sentence.len() as u16);
        table.put_u16(0);
        table.extend_from_slice(sentence.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let code = reader.u16()?;
        // A newer server may have codes that this version does not know; whether to try again is said
        // apart, so that they are of use all the same.
        let code = ErrorCode::from_code(code).unwrap_or(ErrorCode::Internal);
        let retryable = reader.u16()? & 1 != 0;
        let bytes = usize::from(reader.u16()?);
        reader.u16()?;
        let sentence = reader.text("sentence", bytes, SENTENCE_BYTES_MAX)?.to_owned();
        Ok(ErrorReply { code, retryable, sentence })
    }
}
