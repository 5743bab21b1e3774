//! A store in a directory of its own, with a server on it, and the library connected to it as C does.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::*;
use forebay_server::{Server, ServerConfig};
use forebay_store::{InitOptions, StoreConfig, init, open};

use super::process::Process;

pub struct World {
    directory: tempfile::TempDir,
    listen: SocketAddr,
    server: Option<Server>,
    /// In place of that one.
    process: Option<Process>,
}

impl World {
    /// A store of 3+1 drives with two lanes, served.
    pub fn new() -> World {
        World::with_drives_of(64 << 20)
    }

    pub fn with_drives_of(drive_bytes: u64) -> World {
        let directory = tempfile::tempdir().expect("a directory");
        let options = InitOptions {
            lanes: Some(1),
            drive_bytes: Some(drive_bytes),
            slot_bytes: Some(1 << 20),
            ..InitOptions::new(3, 1)
        };
        init(&drives(directory.path()), &options, &mut |_| {}).expect("a store can be made");
        let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let mut world = World { directory, listen, server: None, process: None };
        world.start();
        // It is started again at the same address.
        world.listen = world.server.as_ref().expect("started").local_addr();
        world
    }

    /// One whose server can be killed.
    pub fn in_a_process() -> World {
        let mut world = World::new();
        world.stop();
        world.start_process();
        world
    }

    pub fn start(&mut self) {
        self.server = Some(serve(self.directory.path(), self.listen));
    }

    pub fn stop(&mut self) {
        self.server.take().expect("running").stop().expect("a stop in order");
    }

    /// Starts the server as a process of its own.
    pub fn start_process(&mut self) {
        self.process = Some(Process::start(self.directory.path(), self.listen));
    }

    /// Kills that process, at once.
    pub fn kill(&mut self) {
        drop(self.process.take().expect("running"));
    }

    pub fn address(&self) -> String {
        self.listen.to_string()
    }

    pub fn config(&self) -> Box<forebay_config> {
        let address = CString::new(self.address()).expect("text");
        // SAFETY: the texts end with a zero.
        let mut config = made(|place| unsafe { forebay_config_new(address.as_ptr(), c"test".as_ptr(), place) });
        assert_eq!(forebay_config_set_deadline_ms(Some(&mut config), 30_000), FOREBAY_DONE);
        config
    }

    pub fn files(&self) -> Box<forebay_files> {
        let config = self.config();
        made(|place| forebay_files_connect(Some(&config), place))
    }

    pub fn client(&self) -> Box<forebay_client> {
        let config = self.config();
        made(|place| forebay_client_connect(Some(&config), place))
    }
}

fn drives(directory: &Path) -> Vec<PathBuf> {
    (0..4).map(|drive| directory.join(format!("drive{drive}"))).collect()
}

/// Serves the store whose drives lie in a directory.
pub fn serve(directory: &Path, listen: SocketAddr) -> Server {
    let config = ServerConfig { listen, ..ServerConfig::default() };
    let store = StoreConfig {
        cache_bytes: 16 << 20,
        index_bytes: 64 << 20,
        flush_bytes: Some(256 << 10),
        // The machine of a test may stand still for a while.
        drive_timeout_ms: Some(60_000),
        ..StoreConfig::default()
    };
    let listener = Server::bind(&config).expect("the address is free");
    let opened = open(&drives(directory), &store).expect("the store opens");
    let lanes = opened.info.lanes;
    let server = Server::start(opened, listener).expect("the server starts");
    // A stop before that would be none in order.
    while !server.control().wait_until(Duration::from_secs(1), |status| status.lanes_serving == lanes) {}
    server
}

/// The handle that a call made.
#[track_caller]
pub fn made<T>(call: impl FnOnce(Option<&mut MaybeUninit<*mut T>>) -> i32) -> Box<T> {
    let pointer: *mut T = given(call);
    assert!(!pointer.is_null());
    // SAFETY: the library made it, and it is freed once.
    unsafe { Box::from_raw(pointer) }
}

/// What a call gave.
#[track_caller]
pub fn given<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> i32) -> T {
    let mut place = MaybeUninit::uninit();
    good(call(Some(&mut place)));
    // SAFETY: what is done has set it.
    unsafe { place.assume_init() }
}

/// A call that makes no handle.
#[track_caller]
pub fn not_made<T>(call: impl FnOnce(Option<&mut MaybeUninit<*mut T>>) -> i32) -> i32 {
    let mut place = MaybeUninit::new(std::ptr::dangling_mut());
    let code = call(Some(&mut place));
    assert_ne!(code, FOREBAY_DONE);
    // SAFETY: it had a value from the beginning.
    assert!(unsafe { place.assume_init() }.is_null(), "a handle though it failed");
    code
}

/// A call that is done.
#[track_caller]
pub fn good(code: i32) {
    assert_eq!(code, FOREBAY_DONE, "{}", words());
}

/// A call that fails so, with these words and this number of POSIX.
#[track_caller]
pub fn fails(found: i32, code: i32, errno: i32, said: &str) {
    assert_eq!((found, forebay_last_code()), (code, code), "{}", words());
    assert_eq!(forebay_last_errno(), errno, "{}", words());
    assert!(words().contains(said), "{said:?} is not in {:?}", words());
}

/// What the library says of the last failure of this thread.
pub fn words() -> String {
    // SAFETY: it ends with a zero, and no call fails meanwhile.
    unsafe { CStr::from_ptr(forebay_last_error()) }.to_string_lossy().into_owned()
}

/// A path as C gives it.
pub fn path(path: &[u8]) -> (*const c_char, usize) {
    (path.as_ptr().cast(), path.len())
}

/// A writer of a new file.
#[track_caller]
pub fn create(files: &forebay_files, name: &[u8], flags: u32) -> Box<forebay_writer> {
    let (name, bytes) = path(name);
    // SAFETY: the path is there.
    made(|place| unsafe { forebay_files_create(Some(files), name, bytes, None, flags, place) })
}

pub fn pwrite(writer: &forebay_writer, offset: u64, data: &[u8]) -> i32 {
    // SAFETY: the bytes are there.
    unsafe { forebay_writer_pwrite(Some(writer), offset, data.as_ptr().cast(), data.len()) }
}

#[track_caller]
pub fn pread(reader: &forebay_reader, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    // SAFETY: there is room for so many.
    let read =
        given(|place| unsafe { forebay_reader_pread(Some(reader), offset, bytes.as_mut_ptr().cast(), count, place) });
    bytes.truncate(read);
    bytes
}

#[track_caller]
pub fn open_read(files: &forebay_files, name: &[u8]) -> Box<forebay_reader> {
    let (name, bytes) = path(name);
    // SAFETY: the path is there.
    made(|place| unsafe { forebay_files_open_read(Some(files), name, bytes, place) })
}

pub fn stat(files: &forebay_files, name: &[u8]) -> Result<forebay_stat, i32> {
    let (name, bytes) = path(name);
    let mut place = MaybeUninit::uninit();
    // SAFETY: the path is there, and what is done has set the place.
    unsafe {
        match forebay_files_stat(Some(files), name, bytes, Some(&mut place)) {
            FOREBAY_DONE => Ok(place.assume_init()),
            code => Err(code),
        }
    }
}

pub fn remove(files: &forebay_files, name: &[u8]) -> i32 {
    let (name, bytes) = path(name);
    // SAFETY: the path is there.
    unsafe { forebay_files_remove(Some(files), name, bytes) }
}

/// Renames, over what has the name.
pub fn rename(files: &forebay_files, from: &[u8], to: &[u8]) -> i32 {
    let ((from, from_bytes), (to, to_bytes)) = (path(from), path(to));
    // SAFETY: the paths are there.
    unsafe { forebay_files_rename(Some(files), from, from_bytes, to, to_bytes, FOREBAY_RENAME_REPLACE) }
}

/// Bytes that no other seed gives.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at * 7 + (at >> 9) + seed * 31) as u8).collect()
}
