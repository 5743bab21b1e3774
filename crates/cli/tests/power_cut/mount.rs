//! Volatile drives as files of a mounted file system (FUSE), so that a server reaches them as it reaches any file.
//!
//! A write that is to be durable by itself (`O_DSYNC`, `RWF_DSYNC`) comes here with that flag, or is followed by a flush of the file, as the
//! kernel likes; either takes a moment, in which a power cut finds it half done.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request,
    WriteFlags,
};
use tempfile::TempDir;

use super::common::load::Random;
use super::volatile::{BLOCK_BYTES, Cut, VolatileDrive};

/// Requests that are held at once; a power cut holds all of them.
const THREADS: usize = 24;

/// The longest that a flush takes.
const FLUSH_US_MAX: u64 = 1500;

/// Names and sizes never change.
const TTL: Duration = Duration::from_secs(3600);

/// Every byte of a drive, and what it says of itself.
pub const ALL: Range<u64> = 0..u64::MAX;

/// `O_DSYNC`; `O_SYNC` has its bit, too.
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits().cast_signed();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// It has gone: nothing is read, written or answered any more.
    Gone,
    /// The machine is gone, too; what it still asks for fails.
    Off,
}

/// What the file system was asked for.
#[derive(Debug, Default)]
pub struct Asked {
    pub writes: AtomicU64,
    /// Of these, to be durable by themselves.
    pub durable_writes: AtomicU64,
    pub flushes: AtomicU64,
}

struct Shared {
    drives: Vec<VolatileDrive>,
    power: Mutex<Power>,
    changed: Condvar,
    delays: Mutex<Random>,
    asked: Asked,
    /// Requests for these bytes of this drive are held.
    hanging: Mutex<Option<(u64, Range<u64>)>>,
    hangs_no_more: Condvar,
}

impl Shared {
    /// Holds the caller while the power is gone; while this is kept, it stays on. An error when it is off.
    fn powered(&self) -> Result<MutexGuard<'_, Power>, Errno> {
        let power = self.power.lock().unwrap_or_else(PoisonError::into_inner);
        let power = self.changed.wait_while(power, |power| *power == Power::Gone);
        let power = power.unwrap_or_else(PoisonError::into_inner);
        if *power == Power::On { Ok(power) } else { Err(Errno::EIO) }
    }

    fn set_power(&self, power: Power) {
        *self.power.lock().unwrap_or_else(PoisonError::into_inner) = power;
        self.changed.notify_all();
    }

    /// Holds the caller while this drive hangs where these bytes lie.
    fn wait_for(&self, file: INodeNo, bytes: Range<u64>) {
        let hanging = self.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = |hanging: &mut Option<(u64, Range<u64>)>| {
            let meets = |at: &Range<u64>| at.start < bytes.end && bytes.start < at.end;
            hanging.as_ref().is_some_and(|(number, at)| number + 2 == u64::from(file) && meets(at))
        };
        drop(self.hangs_no_more.wait_while(hanging, hangs));
    }

    /// The same for what is asked of the drive itself, such as its size: it waits while all of the drive hangs.
    fn wait_for_itself(&self, file: INodeNo) {
        let all_hangs =
            self.hanging.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|(_, at)| *at == ALL);
        if all_hangs {
            self.wait_for(file, ALL);
        }
    }

    fn set_hanging(&self, place: Option<(u64, Range<u64>)>) {
        *self.hanging.lock().unwrap_or_else(PoisonError::into_inner) = place;
        self.hangs_no_more.notify_all();
    }

    fn drive(&self, file: INodeNo) -> Result<&VolatileDrive, Errno> {
        let number = u64::from(file).checked_sub(2).and_then(|number| usize::try_from(number).ok());
        number.and_then(|number| self.drives.get(number)).ok_or(Errno::ENOENT)
    }

    /// Flushing takes time.
    fn delay(&self) {
        let delay_us = self.delays.lock().unwrap_or_else(PoisonError::into_inner).below(FLUSH_US_MAX);
        std::thread::sleep(Duration::from_micros(delay_us));
    }

    fn write(&self, file: INodeNo, offset_bytes: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let drive = self.drive(file)?;
        self.wait_for(file, offset_bytes..offset_bytes + data.len() as u64);
        self.asked.writes.fetch_add(1, Relaxed);
        let power = self.powered()?;
        if !drive.write(offset_bytes, data) {
            return Err(Errno::ENOSPC);
        }
        drop(power);
        if durable {
            self.asked.durable_writes.fetch_add(1, Relaxed);
            self.delay();
            let _power = self.powered()?;
            drive.flush(offset_bytes, data.len() as u64);
        }
        Ok(())
    }

    fn flush(&self, file: INodeNo) -> Result<(), Errno> {
        self.wait_for(file, 0..u64::MAX);
        self.asked.flushes.fetch_add(1, Relaxed);
        let drive = self.drive(file)?;
        self.delay();
        let _power = self.powered()?;
        drive.flush(0, drive.bytes());
        Ok(())
    }

    fn attributes(&self, file: INodeNo) -> Result<FileAttr, Errno> {
        let root = file == INodeNo::ROOT;
        let size = if root { 0 } else { self.drive(file)?.bytes() };
        Ok(FileAttr {
            ino: file,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root { FileType::Directory } else { FileType::RegularFile },
            perm: if root { 0o755 } else { 0o600 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }
}

/// How the kernel gives requests past the page cache to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Whoever submits one goes on, as on a drive.
    Asynchronous,
    /// Whoever submits one waits for its answer, as many file systems have it.
    Synchronous,
}

/// The file system, as the kernel sees it.
struct Files(Arc<Shared>, Requests);

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What a kernel does not know is done without. One drive that hangs when it is looked up must not hold the others up.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        if self.1 == Requests::Asynchronous {
            let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.strip_prefix("drive")).and_then(|n| n.parse::<u64>().ok());
        let file = number.ok_or(Errno::ENOENT).map(|number| INodeNo(number + 2));
        let attributes = file.and_then(|file| {
            self.0.wait_for_itself(file);
            self.0.attributes(file)
        });
        match attributes {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.0.wait_for_itself(file);
        match self.0.attributes(file) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.wait_for(file, offset_bytes..offset_bytes + u64::from(bytes));
        let read = self.0.drive(file).and_then(|drive| {
            let _power = self.0.powered()?;
            Ok(drive.read(offset_bytes, bytes as usize))
        });
        match read {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(file, offset_bytes, data, flags.0 & DSYNC != 0) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, file: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.flush(file) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    /// Closing makes nothing durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Volatile drives that are mounted; dropped, they are gone.
pub struct Mounted {
    shared: Arc<Shared>,
    directory: TempDir,
    _session: BackgroundSession,
}

impl Mounted {
    /// Mounts drives that hold what these files hold; `None`, and says so, where there is no FUSE.
    pub fn files(files: &[PathBuf], seed: u64, requests: Requests) -> Option<Mounted> {
        let drives = files.iter().map(|file| VolatileDrive::new(std::fs::read(file).expect("read"))).collect();
        // A kernel without FUSE, or a container that hides it.
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            println!("skipped: needs /dev/fuse ({error})");
            return None;
        }
        let shared = Arc::new(Shared {
            drives,
            power: Mutex::new(Power::On),
            changed: Condvar::new(),
            delays: Mutex::new(Random(seed)),
            asked: Asked::default(),
            hanging: Mutex::new(None),
            hangs_no_more: Condvar::new(),
        });
        let directory = TempDir::new().expect("a directory");
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("forebay-test".to_owned())];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        match fuser::spawn_mount(Files(shared.clone(), requests), directory.path(), &config) {
            Ok(session) => Some(Mounted { shared, directory, _session: session }),
            Err(error) => {
                println!("skipped: needs fuse3, or root ({error})");
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have fuse3");
                None
            }
        }
    }

    /// The drives, as a server is told them.
    pub fn paths(&self) -> Vec<PathBuf> {
        (0..self.shared.drives.len()).map(|number| self.path(number)).collect()
    }

    fn path(&self, number: usize) -> PathBuf {
        Path::new(self.directory.path()).join(format!("drive{number}"))
    }

    pub fn drive(&self, number: usize) -> &VolatileDrive {
        &self.shared.drives[number]
    }

    /// Nothing that was written waits to be flushed.
    pub fn is_idle(&self) -> bool {
        self.shared.drives.iter().all(VolatileDrive::is_flushed)
    }

    pub fn asked(&self) -> &Asked {
        &self.shared.asked
    }

    /// A drive hangs: whatever is asked of it waits until it does no more.
    pub fn hang(&self, number: usize) {
        self.hang_at(number, ALL);
    }

    /// The same of what is asked of these bytes of it alone.
    pub fn hang_at(&self, number: usize, bytes: Range<u64>) {
        self.shared.set_hanging(Some((number as u64, bytes)));
    }

    pub fn hang_no_more(&self) {
        self.shared.set_hanging(None);
    }

    /// The power goes: from now on nothing becomes durable, and no request is answered.
    pub fn power_goes(&self) {
        self.shared.set_power(Power::Gone);
    }

    /// What used the drives is being killed; its last requests fail, so that it can end.
    pub fn let_go(&self) {
        self.shared.set_power(Power::Off);
    }

    /// Nobody uses the drives any more: what was not flushed is dropped, or survives by chance, and the power is there again.
    pub fn power_comes(&self, survive_percent: u64, random: &mut Random) -> Cut {
        let mut sum = Cut::default();
        for drive in &self.shared.drives {
            let cut = drive.cut(survive_percent, random);
            sum = Cut { survived: sum.survived + cut.survived, dropped: sum.dropped + cut.dropped };
        }
        self.shared.set_power(Power::On);
        sum
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The kernel lets go of what a killed server had open a moment after its process is gone: until then the mount is busy, and would stay.
        // Who may not do that has it done by fusermount3 when the session ends.
        let _ = rustix::mount::unmount(self.directory.path(), rustix::mount::UnmountFlags::DETACH);
    }
}
