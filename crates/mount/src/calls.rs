//! Calls for files: opened, made, closed, and what is set of anything that has a number.

use forebay_client::{Answer, Request};
use forebay_protocol::{FileInfo, LANE_CONTROL, NameChange, Status};
use forebay_types::{FileNumber, NewNode, NodeKind, SetAttributes};
use fuser::{Errno, INodeNo};

use crate::attributes::{Known, Unanswered, unexpected};
use crate::file::{Opening, Step, Then, Write, outcome_of};
use crate::machine::{Machine, Reply};
use crate::read::ReadHandle;
use crate::{errors, requests};

/// Files of which it is remembered that they were sealed when they were opened.
const SEEN_SEALED_MAX: usize = 1 << 16;

/// A handle of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    /// What the kernel keeps of its bytes is right.
    pub(crate) keeps_cache: bool,
}

/// What is to be set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Set {
    pub(crate) length: Option<u64>,
    pub(crate) attributes: SetAttributes,
}

/// How full the store is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) free_bytes: u64,
}

impl Machine {
    /// Opens a file.
    pub(crate) fn open(&mut self, inode: INodeNo, write: bool, reply: Reply<Opened>) {
        let number = self.number(inode);
        self.open_number(number, write, move |_, opened| reply(opened));
    }

    fn open_number(
        &mut self,
        number: FileNumber,
        write: bool,
        then: impl FnOnce(&mut Machine, Result<Opened, Errno>) + Send + 'static,
    ) {
        let opened: Then<FileInfo> = Box::new(move |machine, info| {
            let opened = info.map(|info| machine.opened(number, &info));
            then(machine, opened);
        });
        self.push_step(number, Step::Open(Opening { write, since: self.now, refusals: 0, then: opened }));
    }

    fn opened(&mut self, number: FileNumber, info: &FileInfo) -> Opened {
        let handle = self.take_number();
        self.handles.insert(handle, ReadHandle::new(number, info.sealed));
        // The first time the kernel may have kept what was there before it was sealed.
        let keeps_cache = info.sealed && self.seen_sealed.contains(&number);
        if info.sealed && !keeps_cache {
            if self.seen_sealed.len() >= SEEN_SEALED_MAX {
                self.seen_sealed.clear();
            }
            self.seen_sealed.insert(number);
        }
        Opened { handle, keeps_cache }
    }

    /// Makes a file and opens it; one that somebody else made meanwhile is opened unless it must be new.
    pub(crate) fn create(
        &mut self,
        parent: INodeNo,
        name: Vec<u8>,
        new: NewNode,
        (write, is_exclusive): (bool, bool),
        reply: Reply<(Known, Opened)>,
    ) {
        self.make(parent, name.clone(), new, move |machine, made| {
            let node = match made {
                Ok(node) => node,
                Err(Errno::EEXIST) if !is_exclusive => return machine.open_made(parent, name, write, reply),
                Err(error) => return reply(Err(error)),
            };
            machine.open_number(node.number, write, move |machine, opened| {
                reply(opened.map(|opened| (machine.known(&node, None, Unanswered::default()), opened)));
            });
        });
    }

    fn open_made(&mut self, parent: INodeNo, name: Vec<u8>, write: bool, reply: Reply<(Known, Opened)>) {
        self.lookup(parent, name, move |machine, known| match known {
            Ok(known) => {
                let number = machine.number(known.attributes.ino);
                machine.open_number(number, write, move |_, opened| reply(opened.map(|opened| (known, opened))));
            }
            Err(error) => reply(Err(error)),
        });
    }

    /// Closes a handle.
    pub(crate) fn release(&mut self, handle: u64, write: bool) {
        if let Some(number) = self.forget_handle(handle) {
            self.push_step(number, Step::Release { write });
        }
    }

    /// Takes bytes.
    pub(crate) fn write(
        &mut self,
        handle: u64,
        offset: Option<u64>,
        bytes: bytes::Bytes,
        is_synchronous: bool,
        reply: Reply<u32>,
    ) {
        let Some(number) = self.handles.get(&handle).map(ReadHandle::number) else { return reply(Err(Errno::EBADF)) };
        self.push_step(number, Step::Write(Write { offset, bytes, taken: 0, is_synchronous, reply }));
    }

    /// A handle is about to be closed: all that was written is durable, or what failed is told.
    pub(crate) fn flush(&mut self, handle: u64, reply: Reply<()>) {
        match self.handles.get(&handle).map(ReadHandle::number) {
            Some(number) => self.settle(number, reply),
            None => reply(Err(Errno::EBADF)),
        }
    }

    /// All that was written is durable, or what failed is told.
    pub(crate) fn fsync(&mut self, handle: u64, reply: Reply<()>) {
        match self.handles.get(&handle).map(ReadHandle::number) {
            Some(number) => self.synchronise(number, reply),
            None => reply(Err(Errno::EBADF)),
        }
    }

    /// Sets what is to be set, one after the other: length, time of the last write, and the rest. Then tells what is known.
    pub(crate) fn set(&mut self, inode: INodeNo, set: Set, reply: Reply<Known>) {
        let number = self.number(inode);
        self.known_directories.forget(number);
        let Some(length) = set.length else { return self.set_rest(inode, set.attributes, reply) };
        // Who sets a length has the file open.
        let opened: Then<FileInfo> = Box::new(move |machine, opened| {
            if let Err(error) = opened {
                return reply(Err(error));
            }
            let then: Then<()> = Box::new(move |machine, done| match done {
                Ok(()) => machine.set_rest(inode, set.attributes, reply),
                Err(error) => reply(Err(error)),
            });
            machine.push_step(number, Step::SetLength { length, since: machine.now, refusals: 0, then });
            machine.push_step(number, Step::Release { write: true });
        });
        self.push_step(number, Step::Open(Opening { write: true, since: self.now, refusals: 0, then: opened }));
    }

    fn set_rest(&mut self, inode: INodeNo, attributes: SetAttributes, reply: Reply<Known>) {
        if attributes == SetAttributes::default() {
            return self.get_attributes(inode, reply);
        }
        let number = self.number(inode);
        let Some(unix_ns) = attributes.written_unix_ns else { return self.set_names(inode, attributes, reply) };
        // Of a file its lane keeps that; what it is has to be known.
        self.ask_kind(number, move |machine, kind| match kind {
            Ok(NodeKind::File) => {
                let of_names = SetAttributes { written_unix_ns: None, ..attributes };
                machine.set_written(number, unix_ns, move |machine, set| match set {
                    Ok(()) => machine.set_names(inode, of_names, reply),
                    Err(error) => reply(Err(error)),
                });
            }
            Ok(_) => machine.set_names(inode, attributes, reply),
            Err(error) => reply(Err(error)),
        });
    }

    fn set_written(
        &mut self,
        number: FileNumber,
        unix_ns: i64,
        then: impl FnOnce(&mut Machine, Result<(), Errno>) + Send + 'static,
    ) {
        if self.files.contains_key(&number) {
            let step = Step::SetWritten { unix_ns, since: self.now, then: Box::new(then) };
            return self.push_step(number, step);
        }
        let lane = self.lane(number);
        self.ask_or_fail(lane, requests::set_written(number, None, unix_ns), move |machine, answer| {
            then(machine, answer.map(outcome_of).and_then(errors::of_file));
        });
    }

    /// Also when nothing else is set: it says that something changed.
    fn set_names(&mut self, inode: INodeNo, set: SetAttributes, reply: Reply<Known>) {
        let number = self.number(inode);
        self.change(NameChange::Set { number, set }, move |machine, done| match done {
            Ok(_) => machine.get_attributes(inode, reply),
            Err(error) => reply(Err(error)),
        });
    }

    /// How full the store is.
    pub(crate) fn get_room(&mut self, reply: Reply<Room>) {
        let number = self.wait_or_remember(|machine| &mut machine.room, reply);
        self.ask_or_fail(LANE_CONTROL, Request::Status(Status), move |machine, answer| {
            let room = answer.map(|answer| match answer {
                Answer::Status(json) => room_of(&json),
                other => unexpected(&other),
            });
            machine.remember(|machine| &mut machine.room, number, room);
        });
    }
}

/// How full a store is by its status; what that does not say is 0.
fn room_of(status: &str) -> Room {
    let status: serde_json::Value = serde_json::from_str(status).unwrap_or_default();
    let bytes = |name: &str| status["totals"][name].as_u64().unwrap_or(0);
    Room { bytes: bytes("capacity_bytes"), free_bytes: bytes("free_bytes") }
}
