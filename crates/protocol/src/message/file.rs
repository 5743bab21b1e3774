//! Files: opening, writing, reading, and what is known of them. A file is named by its number, which the names give ([`super::name`]).

use forebay_types::limits::{FILE_BYTES_MAX, FRAGMENT_BYTES_MAX};
use forebay_types::{FileNumber, FileOutcome, ReadOutcome};

use super::Message;
use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::Kind;
use crate::limits::FILES_MAX;
use crate::wire::{Reader, Write};

/// Who has a file open: a client, by a number that it made up for good, and how often it has opened the file since. What comes under an earlier opening than
/// the newest is refused, so that no request that a client gave up changes what it did later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opener {
    /// The client, by a number that no other has.
    pub client: u64,
    /// Which opening.
    pub opening: u32,
}

/// Who changes a file, and by which change. A server does none that is smaller than a [`Changer::waits_from`] which it has seen under the opening: so a copy of a
/// request that was answered, or given up, changes nothing of what its client did since, if that says nothing about the same bytes before it waits for none up to that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changer {
    /// Who has the file open for writing.
    pub opener: Opener,
    /// Which change: each has a number above all that this client said of the file before, and what is sent again has its own.
    pub change: u64,
    /// The smallest that the client still waits for; at most this one.
    pub waits_from: u64,
}

/// Opens a file. While somebody has it open it stays, whatever becomes of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOpen {
    /// The file.
    pub file: FileNumber,
    /// Who opens it.
    pub by: Opener,
    /// To be written to; else to be read.
    pub write: bool,
}

/// A client is done with a file that it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileClose {
    /// The file.
    pub file: FileNumber,
    /// Who had it open.
    pub by: Opener,
}

/// Changes the length of a file, or when it was written last, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// The file.
    pub file: FileNumber,
    /// Who changes it; `None`: whoever asks, who may say when a file was written and not how long it is.
    pub by: Option<Changer>,
    /// Bytes; what is cut is gone, what is added holds zeros.
    pub length: Option<u64>,
    /// Nanoseconds since 1970.
    pub written_unix_ns: Option<i64>,
}

/// Seals a file: nothing of it changes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSeal {
    /// The file.
    pub file: FileNumber,
    /// Who seals it; `None`: whoever asks.
    pub by: Option<Changer>,
    /// Only when nobody has it open for writing; else it is a conflict.
    pub unless_written: bool,
}

/// Where in a file bytes are written, and which. The bytes are the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The file.
    pub file: FileNumber,
    /// Who writes.
    pub by: Changer,
    /// Behind so many bytes; `None`: where it ends when they come.
    pub start: Option<u64>,
    /// How many; a server takes at most [`PIECE_BYTES_MAX`](forebay_types::limits::PIECE_BYTES_MAX).
    pub bytes: u32,
    /// Their CRC32C, computed where they were made.
    pub crc: u32,
    /// They are appended: they belong behind all that others wrote, and it is a conflict where they would not be. What has no `start` is behind all.
    pub appends: bool,
}

/// Reads bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRead {
    /// The file.
    pub file: FileNumber,
    /// From behind so many bytes on.
    pub start: u64,
    /// At most so many. More than [`FRAGMENT_BYTES_MAX`] are refused.
    pub bytes: u32,
}

/// Asks what is known of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Which; at most [`FILES_MAX`].
    pub files: Vec<FileNumber>,
}

/// What became of what was asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileReply {
    /// What became of it.
    pub outcome: FileOutcome,
    /// Of a write that was done, where it begins.
    pub start: u64,
}

/// What a read found. The bytes are the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileReadReply {
    /// What it found.
    pub outcome: ReadOutcome,
    /// How many bytes; fewer than asked for behind the end, or before what cannot be read.
    pub bytes: u32,
    /// Their CRC32C.
    pub crc: u32,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// `Found`; `NotFound` when nothing was written to it; else why it cannot be said.
    pub outcome: ReadOutcome,
    /// Nothing of it changes any more.
    pub sealed: bool,
    /// Somebody has it open for writing.
    pub is_written: bool,
    /// CRC32C and adler32 of all of it, once it is sealed and they are known.
    pub sums: Option<(u32, u32)>,
    /// Bytes.
    pub length: u64,
    /// When it was written last, nanoseconds since 1970.
    pub written_unix_ns: i64,
}

/// What is known of files, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatReply {
    /// Of each.
    pub files: Vec<FileInfo>,
}

/// Bytes of a [`FileInfo`] on the wire.
pub(crate) const FILE_INFO_BYTES: usize = 32;

/// The place of a write that goes where the file ends.
const AT_END: u64 = u64::MAX;

/// A place in a file of which a server speaks: no file is longer. What a client asks for may lie beyond, and the answer says so.
fn read_place(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, FrameError> {
    let place = reader.u64()?;
    if place > FILE_BYTES_MAX { reader.bad(what, place) } else { Ok(place) }
}

fn put_opener(table: &mut Vec<u8>, by: Opener) {
    table.put_u64(by.client);
    table.put_u32(by.opening);
}

/// Nobody, where somebody is expected.
const NOBODY: Changer = Changer { opener: Opener { client: 0, opening: 0 }, change: 0, waits_from: 0 };

fn put_change(table: &mut Vec<u8>, by: Changer) {
    table.put_u64(by.change);
    table.put_u64(by.waits_from);
}

fn read_changer(reader: &mut Reader<'_>, opener: Opener) -> Result<Changer, FrameError> {
    Ok(Changer { opener, change: reader.u64()?, waits_from: reader.u64()? })
}

fn read_changer_if_any(reader: &mut Reader<'_>, opener: Opener) -> Result<Option<Changer>, FrameError> {
    let by = read_changer(reader, opener)?;
    Ok((opener.client != NOBODY.opener.client).then_some(by))
}

fn read_opener(reader: &mut Reader<'_>) -> Result<Opener, FrameError> {
    Ok(Opener { client: reader.u64()?, opening: reader.u32()? })
}

impl Message for FileOpen {
    const KIND: Kind = Kind::FileOpen;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u64(self.file.0);
        put_opener(table, self.by);
        table.put_u32(u32::from(self.write));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (file, by) = (FileNumber(reader.u64()?), read_opener(&mut reader)?);
        Ok(FileOpen { file, by, write: reader.u32()? & 1 != 0 })
    }
}

impl Message for FileClose {
    const KIND: Kind = Kind::FileClose;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u64(self.file.0);
        put_opener(table, self.by);
        table.put_u32(0);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (file, by) = (FileNumber(reader.u64()?), read_opener(&mut reader)?);
        reader.u32()?;
        Ok(FileClose { file, by })
    }
}

impl Message for FileSet {
    const KIND: Kind = Kind::FileSet;

    fn write_table(&self, table: &mut Vec<u8>) {
        let by = self.by.unwrap_or(NOBODY);
        table.put_u64(self.file.0);
        put_opener(table, by.opener);
        table.put_u32(u32::from(self.length.is_some()) | u32::from(self.written_unix_ns.is_some()) << 1);
        table.put_u64(self.length.unwrap_or(0));
        table.put_i64(self.written_unix_ns.unwrap_or(0));
        put_change(table, by);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (file, opener) = (FileNumber(reader.u64()?), read_opener(&mut reader)?);
        let flags = reader.u32()?;
        let (length, written_unix_ns) = (reader.u64()?, reader.i64()?);
        Ok(FileSet {
            file,
            by: read_changer_if_any(&mut reader, opener)?,
            length: (flags & 1 != 0).then_some(length),
            written_unix_ns: (flags & 2 != 0).then_some(written_unix_ns),
        })
    }
}

impl Message for FileSeal {
    const KIND: Kind = Kind::FileSeal;

    fn write_table(&self, table: &mut Vec<u8>) {
        let by = self.by.unwrap_or(NOBODY);
        table.put_u64(self.file.0);
        put_opener(table, by.opener);
        table.put_u32(u32::from(self.unless_written));
        put_change(table, by);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (file, opener) = (FileNumber(reader.u64()?), read_opener(&mut reader)?);
        let flags = reader.u32()?;
        let by = read_changer_if_any(&mut reader, opener)?;
        Ok(FileSeal { file, by, unless_written: flags & 1 != 0 })
    }
}

impl Message for FileRead {
    const KIND: Kind = Kind::FileRead;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u64(self.file.0);
        table.put_u64(self.start);
        table.put_u32(self.bytes);
        table.put_u32(0);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (file, start) = (FileNumber(reader.u64()?), reader.u64()?);
        let bytes = reader.count("bytes to read", FRAGMENT_BYTES_MAX)? as u32;
        reader.u32()?;
        Ok(FileRead { file, start, bytes })
    }
}

impl Message for FileStat {
    const KIND: Kind = Kind::FileStat;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.files.len() <= FILES_MAX, "{} files exceed a batch", self.files.len());
        table.put_count(self.files.len());
        table.put_u32(0);
        self.files.iter().for_each(|file| table.put_u64(file.0));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("files", FILES_MAX)?;
        reader.u32()?;
        Ok(FileStat { files: reader.list(count, 8, |entry| entry.u64().map(FileNumber))? })
    }
}

impl Message for FileReply {
    const KIND: Kind = Kind::FileReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u8(self.outcome.code());
        table.extend_from_slice(&[0; 7]);
        table.put_u64(self.start);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let outcome = reader.u8()?;
        let outcome = reader.coded("outcome", outcome, FileOutcome::from_code(outcome))?;
        reader.take(7)?;
        Ok(FileReply { outcome, start: read_place(&mut reader, "place in a file")? })
    }
}

impl Message for FileStatReply {
    const KIND: Kind = Kind::FileStatReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.files.len() <= FILES_MAX, "a reply answers one batch");
        table.put_count(self.files.len());
        table.put_u32(0);
        for file in &self.files {
            let flags = u8::from(file.sealed) | u8::from(file.is_written) << 1 | u8::from(file.sums.is_some()) << 2;
            let (crc, adler32) = file.sums.unwrap_or_default();
            table.put_u8(file.outcome.code());
            table.put_u8(flags);
            table.put_u16(0);
            table.put_u32(crc);
            table.put_u32(adler32);
            table.put_u32(0);
            table.put_u64(file.length);
            table.put_i64(file.written_unix_ns);
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("files", FILES_MAX)?;
        reader.u32()?;
        let files = reader.list(count, FILE_INFO_BYTES, |entry| {
            let outcome = entry.u8()?;
            let outcome = entry.coded("outcome", outcome, ReadOutcome::from_code(outcome))?;
            let flags = entry.u8()?;
            entry.u16()?;
            let sums = (entry.u32()?, entry.u32()?);
            entry.u32()?;
            Ok(FileInfo {
                outcome,
                sealed: flags & 1 != 0,
                is_written: flags & 2 != 0,
                sums: (flags & 4 != 0).then_some(sums),
                length: read_place(entry, "length of a file")?,
                written_unix_ns: entry.i64()?,
            })
        })?;
        Ok(FileStatReply { files })
    }
}

impl FileWrite {
    /// The kind of its frames.
    pub const KIND: Kind = Kind::FileWrite;

    /// Its table, for [`crate::encode_head`]; the bytes follow.
    pub fn table(&self) -> Vec<u8> {
        let mut table = Vec::with_capacity(56);
        table.put_u64(self.file.0);
        table.put_u64(self.by.opener.client);
        // No file has a byte there, but the number alone would say that it goes to the end.
        table.put_u64(self.start.map_or(AT_END, |start| start.min(AT_END - 1)));
        table.put_u32(self.by.opener.opening);
        table.put_u32(self.bytes);
        table.put_u32(self.crc);
        table.put_u32(u32::from(self.appends));
        put_change(&mut table, self.by);
        table
    }

    /// Appends its frame to `into`.
    ///
    /// # Panics
    /// When the payload has not as many bytes as it says.
    pub fn encode(&self, request: u64, payload: &[u8], into: &mut Vec<u8>) {
        assert_eq!(self.bytes as usize, payload.len(), "a write says how many bytes it has");
        encode_frame(Self::KIND, 0, request, &self.table(), &[payload], into);
    }

    /// Reads it from the table of a frame whose payload has so many bytes. The checksum is not verified here.
    ///
    /// # Errors
    /// What is wrong with the table.
    pub fn read_table(table: &[u8], payload_bytes: usize) -> Result<Self, FrameError> {
        let message = Self::KIND.name();
        let mut reader = Reader::new(table, message);
        let (file, client, start) = (FileNumber(reader.u64()?), reader.u64()?, reader.u64()?);
        let (opening, bytes, crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let appends = reader.u32()? & 1 != 0;
        if bytes as usize != payload_bytes {
            return Err(FrameError::PayloadLength { message, expected: u64::from(bytes), found: payload_bytes });
        }
        let by = read_changer(&mut reader, Opener { client, opening })?;
        let start = (start != AT_END).then_some(start);
        Ok(FileWrite { file, by, start, bytes, crc, appends })
    }
}

impl FileReadReply {
    /// The kind of its frames.
    pub const KIND: Kind = Kind::FileReadReply;

    /// Its table, for [`crate::encode_head`]; the bytes follow.
    pub fn table(&self) -> Vec<u8> {
        let mut table = Vec::with_capacity(16);
        super::fragments::put_found(&mut table, self.outcome, self.bytes, self.crc);
        table.put_u32(0);
        table
    }

    /// Appends its frame to `into`.
    ///
    /// # Panics
    /// When the payload has not as many bytes as it says.
    pub fn encode(&self, request: u64, payload: &[u8], into: &mut Vec<u8>) {
        assert_eq!(self.bytes as usize, payload.len(), "a reply says how many bytes it has");
        encode_frame(Self::KIND, 0, request, &self.table(), &[payload], into);
    }

    /// Reads it from the table and payload of a frame. The checksum is not verified here.
    ///
    /// # Errors
    /// What is wrong with the table.
    pub fn decode<'a>(table: &[u8], payload: &'a [u8]) -> Result<(Self, &'a [u8]), FrameError> {
        let message = Self::KIND.name();
        let mut reader = Reader::new(table, message);
        let (outcome, bytes, crc) = super::fragments::read_found(&mut reader)?;
        reader.u32()?;
        if bytes as usize != payload.len() {
            return Err(FrameError::PayloadLength { message, expected: u64::from(bytes), found: payload.len() });
        }
        Ok((FileReadReply { outcome, bytes, crc }, payload))
    }
}
