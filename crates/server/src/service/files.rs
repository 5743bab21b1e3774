//! Requests for files and for names.

use forebay_engine::{Admission, FetchFile, FileAdmission, SharedRange, WriterNumber};
use forebay_protocol::limits::FILES_MAX;
use forebay_protocol::{
    ChangeName, ChangeRun, DefineStream, ErrorCode, ErrorReply, FileClose, FileInfo, FileOpen, FileRead, FileReadReply,
    FileReply, FileSeal, FileSet, FileStat, FileStatReply, FileWrite, FrameHeader, Kind, Message, NameList, NameLookup,
    RunList, StreamList,
};
use forebay_runs::Asked;
use forebay_types::limits::PIECE_BYTES_MAX;
use forebay_types::placement::{lane_of, lane_ordinal};
use forebay_types::{DecideOutcome, FileNumber, FileOutcome, PutOutcome, ReadOutcome, Time, crc32c};

use super::begin::{Begun, Refusal};
use super::reads::OpenFrame;
use super::{Advance, Core, Service};
use crate::connection::{Connection, Place};
use crate::lane_requests::LaneRequests;
use crate::limits::{FILES_RETRY, RECORD_WORK_BYTES, SHARED_READ_BYTES};
use crate::namespace::{FilesMessage, NameRequest, keeps_names};
use crate::openings::{Append, NotOpened};
use crate::request::{Body, FileAsk, FileBody, FileReadBody, FileWriteBody, Request, token};

/// The request number under which files that nobody needs are ended; no client's request has it.
pub(super) const ENDS_REQUEST: u64 = 0;

/// Files whose end is on its way; no more are ended while there are so many.
const ENDING_MAX: usize = 256;

impl Core {
    /// Whether a kind of request is of files or names.
    pub(super) fn is_of_files(kind: Kind) -> bool {
        use Kind::{
            ChangeName, ChangeRun, DefineStream, FileClose, FileOpen, FileRead, FileSeal, FileSet, FileStat, FileWrite,
            NameList, NameLookup, RunList, StreamList,
        };
        matches!(
            kind,
            FileOpen
                | FileClose
                | FileWrite
                | FileSet
                | FileSeal
                | FileRead
                | FileStat
                | NameLookup
                | NameList
                | ChangeName
                | ChangeRun
                | RunList
                | DefineStream
                | StreamList
        )
    }

    pub(super) fn read_files_request(
        &mut self,
        kind: Kind,
        header: &FrameHeader,
        table: &[u8],
        lane: &impl LaneRequests,
    ) -> Result<Begun, Refusal> {
        if !self.config.has_files {
            let sentence = "this store was made by a version without files, runs and streams: nothing was done; `forebay upgrade` gives it these";
            return Err(refused(sentence).into());
        }
        let asked = match kind {
            Kind::FileWrite => {
                let write = FileWrite::read_table(table, header.payload_bytes as usize)?;
                self.check_file(write.file)?;
                return Ok(Begun::Waits(Body::FileWrite(FileWriteBody::new(write))));
            }
            Kind::FileRead => {
                self.check_reads(lane)?;
                let read = FileRead::read_table(table)?;
                self.check_file(read.file)?;
                return Ok(Begun::Waits(Body::FileRead(FileReadBody { read, reading_bytes: 0 })));
            }
            Kind::FileStat => {
                self.check_reads(lane)?;
                let FileStat { files } = FileStat::read_table(table)?;
                files.iter().try_for_each(|file| self.check_file(*file))?;
                return Ok(self.stat_files(&files, lane));
            }
            Kind::NameLookup => return self.name_request(NameRequest::Lookup(NameLookup::read_table(table)?)),
            Kind::NameList => return self.name_request(NameRequest::List(NameList::read_table(table)?)),
            Kind::ChangeName => return self.name_request(NameRequest::Change(ChangeName::read_table(table)?)),
            Kind::RunList => return self.name_request(NameRequest::Runs(RunList::read_table(table)?)),
            Kind::StreamList => return self.name_request(NameRequest::Streams(StreamList::read_table(table)?)),
            Kind::ChangeRun => {
                let ChangeRun(request) = ChangeRun::read_table(table)?;
                return self.name_request(NameRequest::Books(Box::new(Asked::Run(request))));
            }
            Kind::DefineStream => {
                let DefineStream(request) = DefineStream::read_table(table)?;
                return self.name_request(NameRequest::Books(Box::new(Asked::Stream(request))));
            }
            Kind::FileOpen => {
                self.check_reads(lane)?;
                FileAsk::Open(FileOpen::read_table(table)?)
            }
            Kind::FileClose => FileAsk::Close(FileClose::read_table(table)?),
            Kind::FileSet => FileAsk::Set(FileSet::read_table(table)?),
            Kind::FileSeal => FileAsk::Seal(FileSeal::read_table(table)?),
            _ => unreachable!("{kind} is not of files"),
        };
        self.check_file(asked.file())?;
        Ok(Begun::Waits(Body::File(FileBody { asked, outcome: FileOutcome::Done })))
    }

    fn check_file(&self, file: FileNumber) -> Result<(), Refusal> {
        let (lane, lanes) = (self.config.lane, self.config.lanes);
        let other = lane_of(file.key(), lanes);
        if other != lane {
            let sentence = format!(
                "file {} belongs to lane {other} of {lanes}, this connection is for lane {lane}: nothing of the request was done; send it on a \
                 connection for lane {other}",
                file.0
            );
            return Err(error(ErrorCode::WrongLane, sentence).into());
        }
        if keeps_names(file, lanes) {
            return Err(refused("this number is kept for the names of files: nothing was done").into());
        }
        Ok(())
    }

    fn stat_files(&self, files: &[FileNumber], lane: &impl LaneRequests) -> Begun {
        assert!(files.len() <= FILES_MAX, "decoding bounds it");
        let files = files.iter().map(|file| self.info_of(*file, lane)).collect();
        let reply = FileStatReply { files };
        Begun::Answer(Box::new(move |core, connection, request| connection.send(&mut core.chunks, request, &reply)))
    }

    fn info_of(&self, file: FileNumber, lane: &impl LaneRequests) -> FileInfo {
        let outcome = lane.outcome_of_hidden_file(file);
        let view = lane.file(file).filter(|_| outcome == ReadOutcome::NotFound);
        FileInfo {
            outcome: if view.is_some() { ReadOutcome::Found } else { outcome },
            sealed: view.is_some_and(|view| view.sealed),
            is_written: self.openings.is_written(file),
            sums: view.and_then(|view| view.sums),
            length: view.map_or(0, |view| view.length),
            written_unix_ns: view.map_or(0, |view| view.written_unix_ns),
        }
    }

    /// What is asked of a file without bytes.
    pub(super) fn ask_file(
        &mut self,
        key: u64,
        id: u64,
        body: &mut FileBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        let file = body.asked.file();
        let is_refused = match &body.asked {
            FileAsk::Set(FileSet { by: None, length, .. }) => length.is_some(),
            FileAsk::Set(FileSet { by: Some(by), .. }) | FileAsk::Seal(FileSeal { by: Some(by), .. }) => {
                !self.openings.takes_change(file, *by, id)
            }
            FileAsk::Seal(FileSeal { by: None, .. }) | FileAsk::Open(_) | FileAsk::Close(_) => false,
        };
        if is_refused {
            body.outcome = FileOutcome::NotOpen;
            return Advance::Done;
        }
        let admission = match &body.asked {
            FileAsk::Open(open) => self.open_file(id, open, lane),
            FileAsk::Close(close) => {
                if let Some(closed) = self.openings.close(close.file, close.by)
                    && closed.write
                {
                    lane.close_file(closed.file, WriterNumber(closed.client));
                }
                Admission::Done(FileOutcome::Done)
            }
            FileAsk::Set(set) => lane.set_file(token(key, 0), set.file, set.length, set.written_unix_ns),
            FileAsk::Seal(seal) if seal.unless_written && self.openings.is_written(file) => {
                Admission::Done(FileOutcome::Conflict)
            }
            FileAsk::Seal(seal) => match lane.seal_file(token(key, 0), seal.file) {
                // Repeated, perhaps.
                Admission::Done(FileOutcome::Sealed) => Admission::Done(FileOutcome::Done),
                admission => admission,
            },
        };
        match admission {
            Admission::Done(outcome) => body.outcome = outcome,
            Admission::Pending => *waits += 1,
            Admission::Busy => return self.park_file(),
        }
        Advance::Done
    }

    /// The lane takes nothing for one file now, which others need not wait for.
    fn park_file(&mut self) -> Advance {
        if !self.has_busy() {
            self.busy_since = self.now;
        }
        Advance::Park(Place::Busy)
    }

    fn open_file(&mut self, id: u64, open: &FileOpen, lane: &mut impl LaneRequests) -> Admission<FileOutcome> {
        if open.by.client == 0 {
            return Admission::Done(FileOutcome::NotOpen);
        }
        match self.openings.open(open.file, open.by, open.write, id) {
            Ok(Some(before)) if before.write && !open.write => {
                lane.close_file(before.file, WriterNumber(before.client));
            }
            // Who goes on writing by another opening, since something was refused, keeps what it wrote from others.
            Ok(_) => {}
            Err(NotOpened::Stale) => return Admission::Done(FileOutcome::NotOpen),
            Err(NotOpened::TooMany) => return Admission::Done(FileOutcome::IndexFull),
        }
        let admission = if open.write {
            let is_new = self.is_new(open.file);
            lane.open_file(open.file, WriterNumber(open.by.client), is_new)
        } else if lane.outcome_of_unknown_file(open.file) == ReadOutcome::Deleted {
            Admission::Done(FileOutcome::Removed)
        } else {
            Admission::Done(FileOutcome::Done)
        };
        if let Admission::Done(outcome) = admission
            && outcome != FileOutcome::Done
        {
            self.openings.close(open.file, open.by);
            if open.write {
                lane.close_file(open.file, WriterNumber(open.by.client));
            }
        }
        admission
    }

    /// Whether a number was given since this start.
    fn is_new(&self, file: FileNumber) -> bool {
        self.first_new_ordinal.is_some_and(|first| lane_ordinal(file.0, self.config.lanes) >= first)
    }

    pub(super) fn write_file(
        &mut self,
        key: u64,
        id: u64,
        connection: &mut Connection,
        body: &mut FileWriteBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        let FileWrite { file, by, start, bytes, .. } = body.write;
        let bytes = bytes as usize;
        if bytes > self.piece_bytes_max() {
            let dropped = (bytes - body.skipped).min(connection.receive.len());
            body.skipped += dropped;
            connection.receive.consume(dropped);
            connection.allowance = connection.allowance.saturating_sub(dropped);
            if body.skipped < bytes {
                return Advance::Needs(1);
            }
            body.outcome = FileOutcome::TooLarge;
            return Advance::Done;
        }
        if !body.is_placed {
            if connection.receive.len() < bytes {
                return Advance::Needs(bytes);
            }
            if self.lane_is_busy {
                return Advance::Park(Place::Busy);
            }
            if connection.allowance == 0 {
                return Advance::Again;
            }
        }
        let is_append = start.is_none();
        if !self.openings.takes_change(file, by, id) {
            body.outcome = FileOutcome::NotOpen;
        } else if let Some(before) = is_append.then(|| self.openings.append(file, by)).flatten() {
            // Its client did not hear what became of it.
            match before {
                Append::OnItsWay => return self.park_file(),
                Append::Answered(outcome, start) => (body.outcome, body.start) = (outcome, start),
            }
        } else {
            let (write, token) = (body.asked(), token(key, 0));
            let admission = match body.is_placed {
                true => lane.write_placed(token, &write, bytes),
                false => lane.write_file(token, &write, &connection.receive.bytes()[..bytes]),
            };
            match admission {
                FileAdmission::Done(outcome) => {
                    (body.outcome, body.start) = (outcome, start.unwrap_or(0));
                    if is_append {
                        // Its writer asks again under another number.
                        self.openings.remember_append(file, by, Append::Answered(outcome, 0));
                    }
                    if matches!(outcome, FileOutcome::NoSpace | FileOutcome::IndexFull) {
                        self.asked = self.asked.refused();
                    }
                }
                FileAdmission::Pending { start: taken_at } => {
                    body.start = taken_at;
                    if is_append {
                        self.openings.remember_append(file, by, Append::OnItsWay);
                    }
                    *waits += 1;
                }
                FileAdmission::Busy => {
                    assert!(!body.is_placed, "the lane had a place for it just now");
                    return self.park_file();
                }
            }
        }
        if !body.is_placed {
            connection.receive.consume(bytes);
        }
        connection.moved_on();
        connection.allowance = connection.allowance.saturating_sub(bytes + RECORD_WORK_BYTES);
        Advance::Done
    }

    /// The lane has answered a write, whoever still waits for that.
    pub(super) fn write_ended(&mut self, body: &FileWriteBody) {
        let FileWrite { file, by, start, .. } = body.write;
        if start.is_none() {
            self.openings.remember_append(file, by, Append::Answered(body.outcome, body.start));
        }
    }

    /// The longest write that is taken at once.
    pub(super) fn piece_bytes_max(&self) -> usize {
        PIECE_BYTES_MAX.min(self.config.fragment_bytes_max as usize)
    }

    pub(super) fn read_file(
        &mut self,
        key: u64,
        number: u64,
        connection: &mut Connection,
        body: &mut FileReadBody,
        waits: &mut usize,
        lane: &mut impl LaneRequests,
    ) -> Advance {
        if let Some(advance) = self.read_waits(connection) {
            return advance;
        }
        let FileRead { file, start, bytes } = body.read;
        if bytes >= SHARED_READ_BYTES
            && let Some(shared) = lane.share_file(file, start, bytes)
        {
            self.send_shared(connection, number, shared);
            return Advance::Done;
        }
        let mut chunk = connection.out.take_chunk(&mut self.chunks);
        let frame = OpenFrame::begin(
            &mut chunk.bytes,
            FileReadReply { outcome: ReadOutcome::Found, bytes: 0, crc: 0 }.table().len(),
        );
        let before = chunk.bytes.len();
        match lane.read_file(token(key, 0), file, start, bytes, &mut chunk.bytes) {
            FetchFile::Done(outcome, _) => {
                let payload = &chunk.bytes[before..];
                let reply = FileReadReply { outcome, bytes: payload.len() as u32, crc: crc32c(payload) };
                connection.allowance = connection.allowance.saturating_sub(payload.len() + RECORD_WORK_BYTES);
                frame.end(&mut chunk.bytes, Kind::FileReadReply, false, number, &reply.table());
            }
            FetchFile::Pending { bytes } => {
                frame.drop_from(&mut chunk.bytes);
                body.reading_bytes = bytes as usize;
                *waits += 1;
                self.begin_reading(connection, bytes as usize);
                connection.allowance = connection.allowance.saturating_sub(RECORD_WORK_BYTES);
            }
        }
        connection.out.put_chunk(chunk, &mut self.chunks);
        Advance::Done
    }

    /// Bytes of a file are sent from where the lane has them.
    fn send_shared(&mut self, connection: &mut Connection, number: u64, shared: SharedRange) {
        let reply = FileReadReply { outcome: ReadOutcome::Found, bytes: shared.bytes as u32, crc: shared.crc };
        connection.out.append(&mut self.chunks, |chunk| {
            forebay_protocol::encode_head(Kind::FileReadReply, 0, number, &reply.table(), shared.bytes, chunk);
        });
        shared.pieces.into_iter().for_each(|piece| connection.out.push_shared(piece));
        connection.allowance = connection.allowance.saturating_sub(shared.bytes + RECORD_WORK_BYTES);
    }

    pub(super) fn send_file_reply(
        &mut self,
        connection: &mut Connection,
        number: u64,
        outcome: FileOutcome,
        start: u64,
    ) {
        let start = if outcome == FileOutcome::Done { start } else { 0 };
        connection.send(&mut self.chunks, number, &FileReply { outcome, start });
    }

    /// A read of a file came back from the drives.
    pub(super) fn take_file_read(
        &mut self,
        request: &mut Request,
        connection: Option<&mut Connection>,
        outcome: ReadOutcome,
        payload: Vec<u8>,
    ) {
        let Body::FileRead(body) = &request.body else { unreachable!("files are read for who asks for them") };
        let reading_bytes = body.reading_bytes;
        self.end_reading_of(request.class, reading_bytes);
        let Some(connection) = connection else { return };
        connection.reads_bytes -= reading_bytes;
        let payload = if outcome == ReadOutcome::Found { payload } else { Vec::new() };
        let reply = FileReadReply { outcome, bytes: payload.len() as u32, crc: crc32c(&payload) };
        self.send_bytes(connection, Kind::FileReadReply, 0, request.number, &reply.table(), payload);
    }

    /// Closes the files of clients that did not come back.
    fn close_expired(&mut self, lane: &mut impl LaneRequests) {
        while let Some(closed) = self.openings.next_expired(self.now) {
            if closed.write {
                let (lane_number, file, client) = (self.config.lane, closed.file.0, closed.client);
                tracing::warn!(
                    lane = lane_number,
                    file,
                    "writer {client:#018x} of a file has not come back: the file stays as it was acknowledged, unsealed, and may be sealed or removed"
                );
                lane.close_file(closed.file, WriterNumber(closed.client));
            }
        }
    }

    /// Ends files that nobody needs; whether the lane was asked for anything.
    fn end_files(&mut self, lane: &mut impl LaneRequests) -> bool {
        if self.config.read_only {
            return false;
        }
        let mut asked = false;
        while self.ending.len() < ENDING_MAX
            && let Some(file) = self.openings.next_to_end()
        {
            let slot =
                (0..ENDING_MAX as u16).find(|slot| !self.ending.contains_key(slot)).expect("fewer are on their way");
            match lane.end_file(token(ENDS_REQUEST, usize::from(slot)), file) {
                Admission::Pending => {
                    self.ending.insert(slot, file);
                    asked = true;
                }
                Admission::Done(FileOutcome::Removed) => self.messages.push((0, FilesMessage::Ended(file))),
                Admission::Busy | Admission::Done(_) => {
                    self.openings.end_later(file);
                    break;
                }
            }
        }
        asked
    }

    /// The lane serves: it is told to lane 0 which numbers it has seen.
    fn tell_seen(&mut self, lane: &impl LaneRequests) {
        if self.first_new_ordinal.is_none() && lane.serves_reads().is_ok() {
            let next_ordinal = lane.next_file_ordinal();
            self.first_new_ordinal = Some(next_ordinal);
            self.messages.push((0, FilesMessage::Seen { lane: self.config.lane, next_ordinal }));
        }
    }

    /// All numbers of this lane that have names: the others that were there at the start end, or get a name.
    fn are_named(&mut self, named: &[FileNumber], is_all: bool, lane: &impl LaneRequests) {
        let lanes = self.config.lanes;
        let first_new = self.first_new_ordinal.unwrap_or(0);
        let nameless: Vec<FileNumber> = lane
            .files_from(FileNumber(0))
            .filter(|file| !keeps_names(*file, lanes) && lane_ordinal(file.0, lanes) < first_new)
            .filter(|file| named.binary_search(file).is_err())
            .collect();
        if nameless.is_empty() || self.config.read_only {
            return;
        }
        if is_all {
            nameless.into_iter().for_each(|file| self.openings.is_unnamed(file));
        } else {
            self.messages.push((0, FilesMessage::Nameless(nameless)));
        }
    }
}

impl Service {
    /// Goes on with what files need besides answers to requests; whether the lane was asked for anything.
    pub fn tend_files(&mut self, lane: &mut impl LaneRequests) -> bool {
        let core = &mut self.core;
        if !core.config.has_files {
            return false;
        }
        core.tell_seen(lane);
        let asked = core.names.as_mut().is_some_and(|names| names.tend(lane));
        self.say_rules(lane);
        self.answer_names();
        self.core.close_expired(lane);
        let ended = self.core.end_files(lane);
        let discarded = self.core.discard(lane);
        asked || ended || discarded
    }

    /// When something of files is to be done that no answer of the lane wakes.
    pub(super) fn files_due(&self) -> Option<Time> {
        let names_wait = self.core.names.as_ref().is_some_and(|names| names.waits());
        let has_to_do = self.core.openings.has_to_end() || self.core.rules.has_to_discard();
        let again = (has_to_do || names_wait).then(|| self.core.now + FILES_RETRY);
        again.into_iter().chain(self.core.openings.next_expiry()).min()
    }

    /// Messages for other lanes, and for this one.
    pub fn take_messages(&mut self, into: &mut Vec<(u16, FilesMessage)>) {
        into.append(&mut self.core.messages);
        if let Some(names) = &mut self.core.names {
            names.take_messages(into);
        }
    }

    /// What a lane told this one of files.
    pub fn message(&mut self, message: FilesMessage, lane: &mut impl LaneRequests) {
        match message {
            FilesMessage::Named { numbers, is_all } => self.core.are_named(&numbers, is_all, lane),
            FilesMessage::Unnamed(file) => self.core.openings.is_unnamed(file),
            FilesMessage::Rules(rules) => self.core.take_rules(&rules, lane),
            FilesMessage::Rule { serial, run, rule } => self.core.take_rule(serial, run, &rule, lane),
            message => {
                if let Some(names) = &mut self.core.names {
                    names.message(message, lane.wall_unix_ns());
                }
            }
        }
    }

    /// A file that nobody needs has ended, or could not be.
    pub(super) fn file_has_ended(&mut self, slot: u16, is_done: bool) {
        let Some(file) = self.core.ending.remove(&slot) else { return };
        if is_done {
            self.core.messages.push((0, FilesMessage::Ended(file)));
        } else {
            self.core.openings.end_later(file);
        }
    }
}

/// What a write came to that the lane had taken.
pub(super) fn outcome_of_write(refused: PutOutcome) -> FileOutcome {
    match refused {
        PutOutcome::NoSpace => FileOutcome::NoSpace,
        PutOutcome::ReadOnly => FileOutcome::ReadOnly,
        _ => FileOutcome::Unavailable,
    }
}

/// What a change of a file came to that the lane had taken.
pub(super) fn outcome_of_change(outcome: DecideOutcome) -> FileOutcome {
    match outcome {
        DecideOutcome::Done | DecideOutcome::AlreadyDone => FileOutcome::Done,
        DecideOutcome::NoSpace => FileOutcome::NoSpace,
        DecideOutcome::ReadOnly => FileOutcome::ReadOnly,
        _ => FileOutcome::Unavailable,
    }
}

fn refused(sentence: &str) -> ErrorReply {
    error(ErrorCode::Refused, sentence.to_owned())
}

fn error(code: ErrorCode, sentence: String) -> ErrorReply {
    ErrorReply { code, retryable: false, sentence }
}
