//! Files that are read.

use std::collections::BTreeMap;
use std::io::{self, SeekFrom};

use forebay_protocol::{FileClose, FileOpen, Node, Opener};
use forebay_types::{NodeKind, ReadOutcome};

use super::look::length_of;
use super::read::{ReadAhead, ReadFailure, Taken};
use super::writer::take_answers;
use super::{Core, FileError, Files, escape};
use crate::client::unexpected;
use crate::driver::{Ticket, Wait};
use crate::session::{Answer, Request, SessionError};

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// So many bytes of what follows are on their way or here while a file is read in order (default 8 MiB, at least 1 MiB).
    pub ahead_bytes: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { ahead_bytes: 8 << 20 }
    }
}

/// A file that is read: checked bytes, zeros where nothing was written. Who reads on where it was has what follows on its way; a file that grows is read on when it has
/// grown. While it is open the file stays, whatever becomes of its name.
pub struct FileReader {
    files: Files,
    path: String,
    node: Node,
    opener: Opener,
    /// Under which start of the store it was opened.
    epoch: u64,
    lane: u16,
    machine: ReadAhead,
    tickets: BTreeMap<u64, Ticket>,
    position: u64,
}

impl Files {
    /// Opens a file for reading; symbolic links are followed.
    ///
    /// # Errors
    /// [`FileError::NotFound`], and other reasons why it cannot be read.
    pub fn open_read(&self, path: impl AsRef<[u8]>, options: &ReadOptions) -> Result<FileReader, FileError> {
        let path = path.as_ref();
        let node = self.lock().walk(path, true)?;
        self.reader(escape(path), node, options)
    }

    /// Opens what was found before, by its number: the same file, whatever became of its name. Somebody has to have it open meanwhile, or it may be gone. `path` is what errors call it.
    ///
    /// # Errors
    /// As [`Files::open_read`].
    pub fn open_read_node(&self, path: &str, node: &Node, options: &ReadOptions) -> Result<FileReader, FileError> {
        self.reader(path.to_owned(), node.clone(), options)
    }

    /// A reader of what was found.
    pub(super) fn reader(&self, path: String, node: Node, options: &ReadOptions) -> Result<FileReader, FileError> {
        match node.view.kind {
            NodeKind::File => {}
            NodeKind::Directory => return Err(FileError::IsDirectory { path }),
            _ => return Err(FileError::NotFile { path }),
        }
        let mut core = self.lock();
        let epoch = core.client.info().epoch;
        let (file, opener) = (node.number, core.openings.open(node.number));
        let known = core.open_to_read(&path, &node, opener).and_then(|()| core.infos(&path, &[file]));
        let info = match known {
            Ok(infos) => infos.into_iter().next().expect("one answer for one file"),
            Err(error) => {
                core.openings.close(file, opener);
                return Err(error);
            }
        };
        // How long it is may not be known where some of it can be read: what reading comes to says it.
        let sealed = info.sealed && info.outcome == ReadOutcome::Found;
        let machine = ReadAhead::new(file, length_of(&info).unwrap_or(0), sealed, options.ahead_bytes as u64);
        let lane = core.lane(file);
        drop(core);
        let files = self.clone();
        Ok(FileReader { files, path, node, opener, epoch, lane, machine, tickets: BTreeMap::new(), position: 0 })
    }
}

impl Core {
    /// Opening keeps a file that loses its name. A store that does not take that for now, or takes nothing, is read all the same.
    fn open_to_read(&mut self, path: &str, node: &Node, by: Opener) -> Result<(), FileError> {
        let (file, lane) = (node.number, self.lane(node.number));
        let open = FileOpen { file, by, write: false };
        match self.ask(path, lane, Request::FileOpen(open))? {
            Answer::File(reply) if reply.outcome == forebay_types::FileOutcome::Removed => {
                Err(FileError::Removed { path: path.to_owned() })
            }
            Answer::File(_) => Ok(()),
            other => unexpected(&other),
        }
    }
}

impl FileReader {
    /// What the file is called, as errors say it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file's number, and what was kept beside its name when it was opened.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// How long the file is, bytes, as far as this reader knows.
    pub fn length(&self) -> u64 {
        self.machine.length()
    }

    /// Where [`FileReader::read`] goes on, bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Has [`FileReader::read`] go on there.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// Reads at the reader's own place, and goes on behind it; 0 at the present end. Fewer bytes than there is room for come where they are not there together.
    ///
    /// # Errors
    /// [`FileError::Lost`] and [`FileError::OutOfReach`] say from which byte on; what is before can be read, and perhaps what is behind.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, FileError> {
        let count = self.read_some(self.position, into)?;
        self.position += count as u64;
        Ok(count)
    }

    /// Reads from `offset` on, wherever the reader goes on: as many bytes as there is room for, fewer before the present end or before what cannot be read.
    ///
    /// # Errors
    /// As [`FileReader::read`], when there are none before what cannot be read.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        self.read_all(offset, into, true)
    }

    /// As [`FileReader::read_at`], for parts that may lie anywhere: nothing behind them is on its way then.
    ///
    /// # Errors
    /// As [`FileReader::read_at`].
    pub fn read_part(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        self.read_all(offset, into, false)
    }

    /// As [`FileReader::read_at`], and from `ahead_end` on nothing is on its way but what is wanted: somebody else reads there. With `offset` nothing is read ahead, and what is already stays.
    ///
    /// # Errors
    /// As [`FileReader::read_at`].
    pub fn read_at_until(&mut self, offset: u64, into: &mut [u8], ahead_end: u64) -> Result<usize, FileError> {
        self.machine.read_ahead_until(ahead_end);
        let count = self.read_all(offset, into, true);
        self.machine.read_ahead_until(u64::MAX);
        count
    }

    fn read_all(&mut self, offset: u64, into: &mut [u8], ahead: bool) -> Result<usize, FileError> {
        let mut count = 0;
        while count < into.len() {
            if !ahead {
                self.machine.read_no_further();
            }
            match self.read_some(offset + count as u64, &mut into[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if count == 0 => return Err(error),
                // It is said when these bytes are asked for.
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Says that this reader is done, and waits for the answer: a file that has no name any more ends at once then, if nobody else has it open.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn close(self) -> Result<(), FileError> {
        let mut core = self.files.lock();
        let (file, by) = (self.node.number, self.opener);
        match core.ask(&self.path, self.lane, Request::FileClose(FileClose { file, by }))? {
            // A server that knows nothing of it has nothing to close.
            Answer::File(_) => Ok(()),
            other => unexpected(&other),
        }
    }

    fn read_some(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            self.machine.want(offset, into.len());
            let taken = self.machine.take(offset, into);
            let wait = if taken == Taken::Wait { Wait::Yes } else { Wait::No };
            // What is read ahead leaves though nobody waits for it yet.
            self.turn(wait)?;
            match taken {
                Taken::Bytes(count) => return Ok(count),
                Taken::End => return Ok(0),
                Taken::Wait => {}
                Taken::Failed(ReadFailure::Outcome(outcome)) => {
                    return Err(FileError::of_read(&self.path, outcome, offset).expect("it was not found"));
                }
                Taken::Failed(ReadFailure::Session(error)) => {
                    let error = self.files.lock().client.error(error);
                    return Err(FileError::client(&self.path, error));
                }
            }
        }
    }

    fn turn(&mut self, wait: Wait) -> Result<(), FileError> {
        let mut core = self.files.lock();
        let client = &mut core.client;
        for number in self.machine.take_forgotten() {
            if let Some(ticket) = self.tickets.remove(&number) {
                client.forget(ticket);
            }
        }
        let mut asked = false;
        while let Some((number, request)) = self.machine.next_request() {
            asked = true;
            match client.start(self.lane, request) {
                Ok(ticket) => {
                    self.tickets.insert(number, ticket);
                }
                Err(error) => self.machine.answered(number, Err(error)),
            }
        }
        let machine = &mut self.machine;
        let mut take = |number, answer: Result<Answer, SessionError>| {
            let answer = answer.map(|answer| match answer {
                Answer::FileBytes(outcome, bytes) => (outcome, bytes),
                other => unexpected(&other),
            });
            machine.answered(number, answer);
        };
        // Some may have come while something else was asked.
        let came = take_answers(client, &mut self.tickets, &mut take);
        let wait = if came || self.tickets.is_empty() { Wait::No } else { wait };
        if asked || matches!(wait, Wait::Yes) {
            client.turn(wait).map_err(|error| FileError::client(&self.path, error))?;
            take_answers(client, &mut self.tickets, &mut take);
        }
        let epoch = core.client.info().epoch;
        if self.epoch != epoch {
            // The store was started anew, and knows nobody who has the file open.
            self.epoch = epoch;
            self.opener = core.openings.again(self.opener);
            core.open_to_read(&self.path, &self.node, self.opener)?;
        }
        Ok(())
    }
}

impl Drop for FileReader {
    /// The server is told with what is asked next. Of a client that ends before that it knows a minute later that it has nothing open.
    fn drop(&mut self) {
        let mut core = self.files.lock();
        let (file, by) = (self.node.number, self.opener);
        core.openings.close(file, by);
        let close = core.client.start(self.lane, Request::FileClose(FileClose { file, by }));
        let tickets = std::mem::take(&mut self.tickets).into_values().chain(close);
        tickets.for_each(|ticket| core.client.forget(ticket));
    }
}

impl io::Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(FileReader::read(self, into)?)
    }
}

impl io::Seek for FileReader {
    /// The end is where the file ends as far as this reader knows.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.length().checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
