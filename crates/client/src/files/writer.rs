//! Files that are written.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes};
use forebay_protocol::{Changer, FileClose, FileOpen, FileSeal, FileSet, Node, Opener};
use forebay_types::limits::PIECE_BYTES_MAX;
use forebay_types::{NodeKind, SetAttributes};

use super::look::length_of;
use super::reader::{FileReader, ReadOptions};
use super::write::{WriteBehind, WriteConfig, WriteFailure};
use super::{Core, FileError, Files, escape};
use crate::client::{Client, unexpected};
use crate::driver::{Ticket, Wait};
use crate::session::{Answer, PutBytes, Request, SessionError};

/// Blocks of memory for what is written that a client keeps while files are written, to be used again, and those that stay when one is closed.
pub(super) const WRITTEN_BLOCKS_MAX: usize = 128;
const WRITTEN_BLOCKS_REST: usize = 8;

/// Whose something new is, and who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Permissions, 12 bits.
    pub mode: u16,
    /// The number of its user.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Of a file that is made: whose it is (default: of user and group 0, mode 0644).
    pub owner: Owner,
    /// The server chooses where each piece goes: where the file ends when it comes, behind what others wrote meanwhile. What fits a piece (1 MiB, or the store's largest
    /// fragment) stays together. One piece is on its way at a time, and none is sent twice: when nobody knows whether one was taken, that is told (default: no).
    pub append: bool,
    /// Whether closing seals the file: then nothing of it changes any more, and its sums are kept (default: yes).
    pub seal: bool,
    /// So many bytes are on their way without an answer before writing waits (default 16 MiB).
    pub unanswered_bytes: usize,
    /// How long what the store refuses for now (no space, drives missing) is tried again before it is told; `None`: as long as the client repeats requests.
    pub patience: Option<Duration>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            owner: Owner { mode: 0o644, owner: 0, group: 0 },
            append: false,
            seal: true,
            unanswered_bytes: 16 << 20,
            patience: None,
        }
    }
}

/// A file that is written behind: what was written leaves in pieces of up to 1 MiB while its methods run, and is durable when [`FileWriter::sync`] or
/// [`FileWriter::close`] says so. A writer that is dropped without being closed says nothing to the server, which lists the file as left unsealed after a minute.
///
/// After an error that may pass ([`FileError::is_retryable`]) nothing is lost: what was not acknowledged is sent again by the next call. Others stay: each call says them
/// again.
pub struct FileWriter {
    files: Files,
    path: String,
    node: Node,
    options: WriteOptions,
    machine: WriteBehind,
    /// What was asked, by the machine's numbers.
    tickets: BTreeMap<u64, Ticket>,
    lane: u16,
    position: u64,
    length: u64,
    is_closed: bool,
    /// It was abandoned, and what it had asked is forgotten; whether the server has heard of that or not.
    is_abandoned: bool,
}

impl Files {
    /// Makes a file that is not there yet, and opens it for writing.
    ///
    /// # Errors
    /// [`FileError::Exists`], and other reasons why it cannot be made or written. What is there and should give way is replaced by [`Files::rename`].
    pub fn create(&self, path: impl AsRef<[u8]>, options: &WriteOptions) -> Result<FileWriter, FileError> {
        let path = path.as_ref();
        if path.ends_with(b"/") {
            return Err(FileError::IsDirectory { path: escape(path) });
        }
        let node = self.lock().make(path, NodeKind::File, &options.owner, Vec::new())?;
        self.writer(path, node, options, Some(0))
    }

    /// Opens a file that is there for writing, behind what it holds; symbolic links are followed.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::Sealed`], and other reasons why it cannot be written.
    pub fn open_write(&self, path: impl AsRef<[u8]>, options: &WriteOptions) -> Result<FileWriter, FileError> {
        let node = self.lookup(path.as_ref())?;
        self.writer(path.as_ref(), node, options, None)
    }

    /// A writer of a file that is known to be as long as that, or of which that is to be asked.
    fn writer(
        &self,
        path: &[u8],
        node: Node,
        options: &WriteOptions,
        length: Option<u64>,
    ) -> Result<FileWriter, FileError> {
        let path = escape(path);
        match node.view.kind {
            NodeKind::File => {}
            NodeKind::Directory => return Err(FileError::IsDirectory { path }),
            _ => return Err(FileError::NotFile { path }),
        }
        let (length, lane, config, blocks) = {
            let mut core = self.lock();
            let (opener, length) = core.open(&path, &node, length)?;
            let info = core.client.info();
            let piece_bytes_max = info.fragment_bytes_max.min(info.frame_payload_bytes_max) as usize;
            let config = WriteConfig {
                file: node.number,
                opener,
                append: options.append,
                piece_bytes_max: piece_bytes_max.clamp(1, PIECE_BYTES_MAX),
                unanswered_bytes_max: options.unanswered_bytes,
                patience: options.patience.or(core.client.deadline()),
                seed: opener.client ^ u64::from(opener.opening),
            };
            (length, core.lane(node.number), config, core.written.clone())
        };
        let machine = WriteBehind::new(config, blocks);
        let (files, options, tickets) = (self.clone(), options.clone(), BTreeMap::new());
        Ok(FileWriter {
            files,
            path,
            node,
            options,
            machine,
            tickets,
            lane,
            position: length,
            length,
            is_closed: false,
            is_abandoned: false,
        })
    }
}

impl Core {
    /// Opens a file for writing; who has it open then, and how long it is.
    fn open(&mut self, path: &str, node: &Node, length: Option<u64>) -> Result<(Opener, u64), FileError> {
        let (file, by) = (node.number, self.openings.open(node.number));
        let open = Request::FileOpen(FileOpen { file, by, write: true });
        let length = self.ask_file(path, file, &open, None).and_then(|()| match length {
            Some(length) => Ok(length),
            None => {
                let known = self.infos(path, &[file])?.iter().find_map(length_of);
                known.ok_or_else(|| FileError::Unavailable { path: path.to_owned(), acknowledged: None })
            }
        });
        if length.is_err() {
            self.openings.close(file, by);
        }
        Ok((by, length?))
    }
}

impl FileWriter {
    /// What the file is called, as errors say it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file's number, and what was kept beside its name when it was opened.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Opens the file for reading, whatever became of its name: of what this writer wrote, what is durable is read.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open_read(&self, options: &ReadOptions) -> Result<FileReader, FileError> {
        self.files.reader(self.path.clone(), self.node.clone(), options)
    }

    /// Where [`FileWriter::write`] goes on, bytes: at first where the file ended when it was opened. Of what is appended by the server's choice it means nothing.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Has [`FileWriter::write`] go on there.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// How long the file is when all that was written is there, as far as this writer knows.
    pub fn length(&self) -> u64 {
        self.length.max(self.machine.end())
    }

    /// Bytes that were written and are durable.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.machine.acknowledged_bytes()
    }

    /// Bytes that were written and are not answered yet.
    pub fn unanswered_bytes(&self) -> usize {
        self.machine.unanswered_bytes()
    }

    /// Writes at the writer's own place, and goes on behind it. It waits while too many bytes are on their way.
    ///
    /// # Errors
    /// What became of these bytes or earlier ones; all that was taken before is kept ([`FileError::is_retryable`]), of these as many as [`FileWriter::position`] went on.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let taken = self.offer(self.position, bytes.into())?;
            self.position += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// The same of bytes that are shared until they are durable: whole pieces of them (1 MiB, or the store's largest fragment) are not copied.
    ///
    /// # Errors
    /// As [`FileWriter::write`].
    pub fn write_shared(&mut self, mut bytes: Bytes) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let taken = self.offer(self.position, (&bytes).into())?;
            self.position += taken as u64;
            bytes.advance(taken);
        }
        Ok(())
    }

    /// Writes behind `offset`, wherever the writer goes on. What overlaps bytes that are not answered waits for these.
    ///
    /// # Errors
    /// What became of these bytes or earlier ones; writing the same again is safe.
    pub fn write_at(&mut self, mut offset: u64, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let taken = self.offer(offset, bytes.into())?;
            offset += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Has some bytes taken, at least one.
    fn offer(&mut self, offset: u64, bytes: PutBytes<'_>) -> Result<usize, FileError> {
        if self.is_closed || self.is_abandoned {
            return Err(self.closed());
        }
        loop {
            self.check()?;
            let taken = match bytes {
                PutBytes::Copied(bytes) => self.machine.offer(offset, bytes),
                PutBytes::Shared(bytes) => self.machine.offer_shared(offset, bytes),
            };
            let taken = taken.map_err(|_| FileError::TooLarge { path: self.path.clone() })?;
            let wait = if taken == 0 { Wait::Yes } else { Wait::No };
            if taken == 0 || self.machine.has_ready() {
                self.turn(wait)?;
            }
            if taken > 0 {
                return Ok(taken);
            }
        }
    }

    /// Waits until all that was written is durable.
    ///
    /// # Errors
    /// What became of it.
    pub fn sync(&mut self) -> Result<(), FileError> {
        if self.is_abandoned {
            return Err(self.closed());
        }
        self.machine.end_piece();
        self.check()?;
        while !self.machine.is_idle() {
            self.turn(Wait::Yes)?;
            self.check()?;
        }
        Ok(())
    }

    /// Changes how long the file is, when all that was written is durable: what is cut is gone, what is added holds zeros. The writer goes on where it was.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn set_length(&mut self, length: u64) -> Result<(), FileError> {
        self.sync()?;
        let file = self.node.number;
        self.change(|by| {
            Request::FileSet(FileSet { file, by: Some(by), length: Some(length), written_unix_ns: None })
        })?;
        self.length = length;
        self.machine.has_length(length);
        Ok(())
    }

    /// Changes the permissions of this file, whatever its name stands for by now.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn set_mode(&mut self, mode: u16) -> Result<(), FileError> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.files.lock().set(self.path.as_bytes(), &self.node, &set)
    }

    /// Waits until all that was written is durable, seals the file unless the options say otherwise, and says that this writer is done. Nothing more can be written then.
    ///
    /// # Errors
    /// What became of what was written, or why it was not sealed: the writer is as it was then, and may be closed again.
    pub fn close(&mut self) -> Result<(), FileError> {
        if self.is_closed {
            return Ok(());
        }
        self.sync()?;
        if self.options.seal {
            let file = self.node.number;
            match self.change(|by| Request::FileSeal(FileSeal { file, by: Some(by), unless_written: false })) {
                // Perhaps by this very request, which was sent again.
                Ok(()) | Err(FileError::Sealed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.say_closed()
    }

    /// Says that this writer is done, though not all that was written is acknowledged: the file stays as it is, not sealed, and what was not acknowledged may be in it
    /// or not. Nothing more can be written then. What has no name any more ends at once, and not when the server takes the writer for dead.
    ///
    /// # Errors
    /// When the server gives no answer. It is abandoned all the same, and the server takes it for left within a minute; it may be told again.
    pub fn abandon(&mut self) -> Result<(), FileError> {
        if self.is_closed {
            return Ok(());
        }
        self.is_abandoned = true;
        self.forget_asked();
        self.say_closed()
    }

    fn closed(&self) -> FileError {
        FileError::Closed { path: self.path.clone() }
    }

    fn say_closed(&mut self) -> Result<(), FileError> {
        let mut core = self.files.lock();
        let (file, by) = (self.node.number, self.machine.opener());
        match core.ask(&self.path, self.lane, Request::FileClose(FileClose { file, by }))? {
            // A server that knows nothing of it has nothing to close.
            Answer::File(_) => {}
            other => unexpected(&other),
        }
        drop(core);
        self.release(by);
        Ok(())
    }

    /// Nobody wants an answer to what was asked.
    fn forget_asked(&mut self) {
        let mut core = self.files.lock();
        std::mem::take(&mut self.tickets).into_values().for_each(|ticket| core.client.forget(ticket));
    }

    /// Has the file changed as the one who has it open, and opens it again when the server knows nothing of that any more. Nothing may be on its way.
    fn change(&mut self, request: impl Fn(Changer) -> Request) -> Result<(), FileError> {
        let (file, acknowledged) = (self.node.number, Some(self.acknowledged_bytes()));
        let mut core = self.files.lock();
        match core.ask_file(&self.path, file, &request(self.machine.changer()), acknowledged) {
            Err(FileError::NotOpen { .. }) => {
                let by = core.openings.again(self.machine.opener());
                let open = Request::FileOpen(FileOpen { file, by, write: true });
                core.ask_file(&self.path, file, &open, acknowledged)?;
                self.machine.was_opened_as(by);
                core.ask_file(&self.path, file, &request(self.machine.changer()), acknowledged)
            }
            changed => changed,
        }
    }

    /// Nothing more goes out under this opening.
    fn release(&mut self, by: Opener) {
        if !self.is_closed {
            self.is_closed = true;
            let mut core = self.files.lock();
            core.openings.close(self.node.number, by);
            core.written.shrink(WRITTEN_BLOCKS_REST);
        }
    }

    /// What failed.
    fn check(&mut self) -> Result<(), FileError> {
        let Some(failure) = self.machine.take_failure() else { return Ok(()) };
        let (path, acknowledged) = (self.path.clone(), Some(self.acknowledged_bytes()));
        Err(match failure {
            WriteFailure::Refused { outcome, start, bytes } => {
                let start = start.unwrap_or_else(|| self.length());
                FileError::of_file(&path, outcome, start, bytes, acknowledged).expect("it was not done")
            }
            WriteFailure::Session(error) => FileError::client(&path, self.files.lock().client.error(error)),
            WriteFailure::AppendUnknown { bytes, last } => FileError::AppendUnknown { path, bytes, last },
        })
    }

    /// Asks what is to be asked, lets the sockets have a turn, and takes what came.
    fn turn(&mut self, wait: Wait) -> Result<(), FileError> {
        let mut core = self.files.lock();
        let Core { client, openings, .. } = &mut *core;
        if self.machine.wants_opening() {
            self.machine.open_as(openings.again(self.machine.opener()));
        }
        let mut now = client.now();
        while let Some((number, request)) = self.machine.next_request(now) {
            match client.start(self.lane, request) {
                Ok(ticket) => {
                    self.tickets.insert(number, ticket);
                }
                Err(error) => self.machine.answered(now, number, Err(error)),
            }
        }
        let due = self.machine.next_due(now);
        let machine = &mut self.machine;
        let mut take = |now, number, answer| machine.answered(now, number, answer);
        // Some may have come while something else was asked.
        let came = take_answers(client, &mut self.tickets, |number, answer| take(now, number, answer));
        let wait = match (wait, due) {
            (Wait::Yes, None) if self.tickets.is_empty() => Wait::No,
            (Wait::Yes, _) if came => Wait::No,
            (Wait::Yes, Some(due)) => Wait::Until(due),
            (wait, _) => wait,
        };
        client.turn(wait).map_err(|error| FileError::client(&self.path, error))?;
        now = client.now();
        take_answers(client, &mut self.tickets, |number, answer| take(now, number, answer));
        Ok(())
    }
}

/// Hands over the answers that are there; whether there were any.
pub(super) fn take_answers(
    client: &mut Client,
    tickets: &mut BTreeMap<u64, Ticket>,
    mut take: impl FnMut(u64, Result<Answer, SessionError>),
) -> bool {
    let before = tickets.len();
    tickets.retain(|number, ticket| match client.take_answer(*ticket) {
        Some(answer) => {
            take(*number, answer);
            false
        }
        None => true,
    });
    tickets.len() < before
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        let by = self.machine.opener();
        self.release(by);
        self.forget_asked();
    }
}

impl io::Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let taken = self.offer(self.position, bytes.into())?;
        self.position += taken as u64;
        Ok(taken)
    }

    /// [`FileWriter::sync`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.sync()?)
    }
}
