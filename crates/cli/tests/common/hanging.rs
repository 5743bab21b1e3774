//! A directory that hangs, as one of a network file system does whose server is gone: it is there, and is known by its mark; whatever else is asked of it is not answered.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request,
};
use tempfile::TempDir;

use super::running::MARK;

/// Requests that are held at once.
const THREADS: usize = 16;
const TTL: Duration = Duration::ZERO;
const ROOT: u64 = 1;
const MARKED: u64 = 2;
const MARK_TEXT: &[u8] = b"0123456789abcdef\n";

#[derive(Default)]
struct Shared {
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Shared {
    fn wait(&self) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.over.wait_while(is_over, |is_over| !*is_over));
    }
}

struct Directory(Arc<Shared>);

fn attributes(file: u64) -> FileAttr {
    let (kind, perm, size) =
        if file == ROOT { (FileType::Directory, 0o777, 0) } else { (FileType::RegularFile, 0o644, MARK_TEXT.len()) };
    FileAttr {
        ino: INodeNo(file),
        size: size as u64,
        blocks: 1,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Directory {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == MARK {
            return reply.entry(&TTL, &attributes(MARKED), Generation(0));
        }
        self.0.wait();
        reply.error(Errno::ENOENT);
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(u64::from(file)));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(MARK_TEXT.get(offset_bytes as usize..).unwrap_or_default());
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, reply: ReplyDirectory) {
        self.0.wait();
        reply.ok();
    }
}

/// The directory; dropped, whatever was asked of it is answered, and it is gone.
pub struct Hanging {
    shared: Arc<Shared>,
    directory: TempDir,
    _session: BackgroundSession,
}

impl Hanging {
    /// `None`, and says so, where there is no FUSE.
    pub fn mount() -> Option<Hanging> {
        // A kernel without FUSE, or a container that hides it.
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            println!("skipped: needs /dev/fuse ({error})");
            return None;
        }
        let (shared, directory) = (Arc::<Shared>::default(), TempDir::new().expect("a directory"));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("forebay-test".to_owned())];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        match fuser::spawn_mount(Directory(Arc::clone(&shared)), directory.path(), &config) {
            Ok(session) => Some(Hanging { shared, directory, _session: session }),
            Err(error) => {
                println!("skipped: needs fuse3, or root ({error})");
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have fuse3");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        *self.shared.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.over.notify_all();
        let _ = rustix::mount::unmount(self.directory.path(), rustix::mount::UnmountFlags::DETACH);
    }
}
