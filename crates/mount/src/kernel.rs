//! The kernel's side: each of its requests becomes a call of the machine, which its thread makes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_client::{Blocks, TurnWaker};
use forebay_types::{NAME_BYTES_MAX, NewNode, NodeKind, SetAttributes};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FileType as Format, OFlags, RawMode};

use crate::attributes::{BLOCK_BYTES, Known, SHORT, unknown};
use crate::calls::{Opened, Set};
use crate::directories::Entry;
use crate::machine::{Machine, Reply};
use crate::replies::Replies;

/// A call of the machine.
pub(crate) type Call = Box<dyn FnOnce(&mut Machine) + Send>;

/// Bytes of a write of the kernel, at most.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Requests of the kernel that nobody waits for, such as those that read ahead.
const BACKGROUND_MAX: u16 = 64;

/// Numbers are never given again.
const GENERATION: Generation = Generation(0);

/// Gives the calls to the thread of the machine.
pub(crate) struct Kernel {
    calls: Sender<Call>,
    waker: TurnWaker,
    /// What is written.
    blocks: Blocks,
    /// Takes what was read.
    replies: Replies,
    /// Whether what goes past the kernel's cache is dropped from it: it is, where the kernel lets such files be mapped, too (Linux 6.6).
    passes_cache: bool,
    /// Whether all that is read and written goes past it.
    direct_io: bool,
}

impl Kernel {
    pub(crate) fn new(
        calls: Sender<Call>,
        waker: TurnWaker,
        replies: Replies,
        blocks: Blocks,
        direct_io: bool,
    ) -> Kernel {
        Kernel { calls, waker, blocks, replies, passes_cache: false, direct_io }
    }

    fn cache_use(&self, flags: OpenFlags) -> CacheUse {
        match (self.direct_io, self.passes_cache && writes_past_cache(flags)) {
            (true, _) => CacheUse::Past,
            (false, true) => CacheUse::PastUnlessKept,
            (false, false) => CacheUse::Cached,
        }
    }

    /// Has a call made. When the machine's thread is gone the reply is dropped, which tells an input/output error.
    fn call(&self, call: impl FnOnce(&mut Machine) + Send + 'static) {
        if self.calls.send(Box::new(call)).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the thread that asks the store cannot be woken: requests wait until something else wakes it");
        }
    }
}

/// The reply to a call that says nothing but that it was done.
fn empty(reply: ReplyEmpty) -> Reply<()> {
    Box::new(move |done| match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    })
}

fn entry(reply: ReplyEntry) -> Reply<Known> {
    Box::new(move |known| match known {
        Ok(known) => reply.entry_with_ttls(&known.believed, &SHORT, &known.attributes, GENERATION),
        Err(error) => reply.error(error),
    })
}

fn attributes(reply: ReplyAttr) -> Reply<Known> {
    Box::new(move |known| match known {
        Ok(known) => reply.attr(&known.believed, &known.attributes),
        Err(error) => reply.error(error),
    })
}

fn data(reply: ReplyData, replies: Replies) -> Reply<Bytes> {
    Box::new(move |bytes| match bytes {
        Ok(bytes) => replies.give(reply, bytes),
        Err(error) => reply.error(error),
    })
}

/// Of a listing: `add` takes entries and says when there is no room for more.
fn entries<R: Send + 'static>(
    mut reply: R,
    add: fn(&mut R, Entry) -> bool,
    ok: fn(R),
    error: fn(R, Errno),
) -> Reply<Vec<Entry>> {
    Box::new(move |entries| match entries {
        Ok(entries) => {
            let _ = entries.into_iter().any(|entry| add(&mut reply, entry));
            ok(reply);
        }
        Err(failure) => error(reply, failure),
    })
}

fn name_of(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn kind_of(mode: u32) -> Option<NodeKind> {
    Some(match Format::from_raw_mode(mode as RawMode) {
        Format::RegularFile => NodeKind::File,
        Format::Fifo => NodeKind::Pipe,
        Format::Socket => NodeKind::Socket,
        Format::CharacterDevice => NodeKind::CharacterDevice,
        Format::BlockDevice => NodeKind::BlockDevice,
        _ => return None,
    })
}

fn new_node(request: &Request, kind: NodeKind, mode: u32) -> NewNode {
    let mode = (mode & 0o7777) as u16;
    NewNode { kind, mode, owner: request.uid(), group: request.gid(), device: 0, target: Vec::new() }
}

fn unix_ns(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// Now, nanoseconds since 1970.
pub(crate) fn now_unix_ns() -> i64 {
    unix_ns(SystemTime::now())
}

fn time_or_now(time: TimeOrNow) -> i64 {
    match time {
        TimeOrNow::SpecificTime(time) => unix_ns(time),
        TimeOrNow::Now => now_unix_ns(),
    }
}

fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

/// Whether a handle is for nothing but writing, or for appending: then the kernel may not know where its bytes go.
fn writes_past_cache(flags: OpenFlags) -> bool {
    flags.acc_mode() == OpenAccMode::O_WRONLY || writes(flags) && has(flags.0, OFlags::APPEND)
}

fn has(flags: i32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags.cast_unsigned()).contains(flag)
}

/// How the kernel's cache is used. Each write reaches the mount at once in either case; of a file that is open for nothing else the cache would only cost a copy
/// and the memory.
#[derive(Clone, Copy)]
enum CacheUse {
    /// As what the mount says of the file.
    Cached,
    /// Not unless it keeps the file from one opening to the next.
    PastUnlessKept,
    Past,
}

impl CacheUse {
    fn flags(self, opened: Opened) -> FopenFlags {
        match (self, opened.keeps_cache) {
            (CacheUse::Past, _) | (CacheUse::PastUnlessKept, false) => FopenFlags::FOPEN_DIRECT_IO,
            (_, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (CacheUse::Cached, false) => FopenFlags::empty(),
        }
    }
}

impl Filesystem for Kernel {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Where the kernel has less, it goes without.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        for capability in [
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(capability);
        }
        self.passes_cache = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        Ok(())
    }

    fn destroy(&mut self) {
        self.call(Machine::end);
    }

    // ---- names ----

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, reply) = (name_of(name), entry(reply));
        self.call(move |machine| machine.lookup(parent, name, move |_, known| reply(known)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let reply = attributes(reply);
        self.call(move |machine| machine.get_attributes(inode, reply));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        length: Option<u64>,
        accessed: Option<TimeOrNow>,
        written: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            owner,
            group,
            written_unix_ns: written.map(time_or_now),
            accessed_unix_ns: accessed.map(time_or_now),
        };
        let (set, reply) = (Set { length, attributes: set }, attributes(reply));
        self.call(move |machine| machine.set(inode, set, reply));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let reply: Reply<Vec<u8>> = Box::new(move |target| match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        });
        self.call(move |machine| machine.read_link(inode, reply));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of(mode) else { return reply.error(Errno::EINVAL) };
        let new = NewNode { device: u64::from(device), ..new_node(request, kind, mode) };
        let (name, reply) = (name_of(name), entry(reply));
        self.call(move |machine| machine.make_known(parent, name, new, reply));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let new = new_node(request, NodeKind::Directory, mode);
        let (name, reply) = (name_of(name), entry(reply));
        self.call(move |machine| machine.make_known(parent, name, new, reply));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        let new = NewNode { target, ..new_node(request, NodeKind::Link, 0o777) };
        let (name, reply) = (name_of(name), entry(reply));
        self.call(move |machine| machine.make_known(parent, name, new, reply));
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, reply) = (name_of(name), entry(reply));
        self.call(move |machine| machine.link(inode, parent, name, reply));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, reply) = (name_of(name), empty(reply));
        self.call(move |machine| machine.remove(parent, name, reply));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, reply) = (name_of(name), empty(reply));
        self.call(move |machine| machine.remove_directory(parent, name, reply));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((parent, name_of(name)), (to_parent, name_of(to_name)));
        let (replaces, reply) = (flags.is_empty(), empty(reply));
        self.call(move |machine| machine.rename(from, to, replaces, reply));
    }

    // ---- directories ----

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.call(move |machine| {
            let handle = machine.open_directory(inode);
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, from: u64, reply: ReplyDirectory) {
        let add = |reply: &mut ReplyDirectory, entry: Entry| {
            reply.add(entry.inode, entry.next, entry.kind, OsStr::from_bytes(&entry.name))
        };
        let reply = entries(reply, add, ReplyDirectory::ok, ReplyDirectory::error);
        self.call(move |machine| machine.list(handle.0, from, reply));
    }

    fn readdirplus(&self, _: &Request, _: INodeNo, handle: FileHandle, from: u64, reply: ReplyDirectoryPlus) {
        let add = |reply: &mut ReplyDirectoryPlus, entry: Entry| {
            let name = OsStr::from_bytes(&entry.name);
            let known = entry.known.unwrap_or_else(|| unknown(entry.kind));
            let believed = known.believed.min(SHORT);
            reply.add(entry.inode, entry.next, name, &believed, &known.attributes, GENERATION)
        };
        let reply = entries(reply, add, ReplyDirectoryPlus::ok, ReplyDirectoryPlus::error);
        self.call(move |machine| machine.list_plus(handle.0, from, reply));
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.call(move |machine| {
            machine.close_directory(handle.0);
            reply.ok();
        });
    }

    /// A change of a name is durable when it is answered.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    // ---- files ----

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let cache = self.cache_use(flags);
        self.call(move |machine| {
            machine.open(
                inode,
                writes(flags),
                Box::new(move |opened| match opened {
                    Ok(opened) => reply.opened(FileHandle(opened.handle), cache.flags(opened)),
                    Err(error) => reply.error(error),
                }),
            );
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(request, NodeKind::File, mode);
        let (name, how) = (name_of(name), (writes(OpenFlags(flags)), has(flags, OFlags::EXCL)));
        let cache = self.cache_use(OpenFlags(flags));
        let reply: Reply<(Known, Opened)> = Box::new(move |made| match made {
            Ok((known, opened)) => {
                let handle = FileHandle(opened.handle);
                reply.created(&SHORT, &known.attributes, GENERATION, handle, cache.flags(opened));
            }
            Err(error) => reply.error(error),
        });
        self.call(move |machine| machine.create(parent, name, new, how, reply));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let reply = data(reply, self.replies.clone());
        self.call(move |machine| machine.read(handle.0, offset, size, reply));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = self.blocks.copy(bytes);
        let is_synchronous = has(flags.0, OFlags::DSYNC);
        let reply: Reply<u32> = Box::new(move |written| match written {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(error),
        });
        // The kernel may not have heard of what others appended: the file ends where the server said when it was opened, and behind what was written since.
        let offset = (!has(flags.0, OFlags::APPEND)).then_some(offset);
        self.call(move |machine| machine.write(handle.0, offset, bytes, is_synchronous, reply));
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let reply = empty(reply);
        self.call(move |machine| machine.flush(handle.0, reply));
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let reply = empty(reply);
        self.call(move |machine| machine.fsync(handle.0, reply));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.call(move |machine| {
            machine.release(handle.0, writes(flags));
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.call(move |machine| {
            machine.get_room(Box::new(move |room| match room {
                Ok(room) => {
                    let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
                    let (all, free) = (blocks(room.bytes), blocks(room.free_bytes));
                    reply.statfs(all, free, free, 0, 0, BLOCK_BYTES, NAME_BYTES_MAX as u32, BLOCK_BYTES);
                }
                Err(error) => reply.error(error),
            }));
        });
    }

    // ---- what the store does not have: the kernel goes without, and asks no more ----

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
