//! XRootD's client library, as much of it as the mover needs, behind a shim in C++ (`src/shim.cc`).
//!
//! Empty without the feature `link`, which needs Debian's `libxrootd-client-dev`. No call is longer than its seconds. The library has threads of its own, and one
//! connection to each server for all that is asked of it.
#![cfg(feature = "link")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

const STATUS_BYTES: usize = 1024;
const ANSWER_BYTES: usize = 1024;

/// What the library says of a failure, as its programs do: `[ERROR] Server responded with an error: [3011] ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

#[repr(C)]
struct RawFile {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn forebay_xrdcl_set(name: *const c_char, value: c_int);
    fn forebay_xrdcl_stat(
        server: *const c_char,
        path: *const c_char,
        seconds: u16,
        bytes: *mut u64,
        flags: *mut u32,
        status: *mut c_char,
    );
    fn forebay_xrdcl_checksum(
        server: *const c_char,
        path: *const c_char,
        seconds: u16,
        answer: *mut c_char,
        answer_bytes: usize,
        status: *mut c_char,
    );
    fn forebay_xrdcl_rename(
        server: *const c_char,
        from: *const c_char,
        to: *const c_char,
        seconds: u16,
        status: *mut c_char,
    );
    fn forebay_xrdcl_remove(server: *const c_char, path: *const c_char, seconds: u16, status: *mut c_char);
    fn forebay_xrdcl_open(url: *const c_char, writes: c_int, seconds: u16, status: *mut c_char) -> *mut RawFile;
    fn forebay_xrdcl_wait(file: *mut RawFile, writes: c_uint, milliseconds: c_uint, status: *mut c_char) -> c_int;
    fn forebay_xrdcl_writes_max() -> c_uint;
    fn forebay_xrdcl_write(
        file: *mut RawFile,
        offset: u64,
        bytes: *const c_void,
        length: u32,
        seconds: u16,
        status: *mut c_char,
    );
    fn forebay_xrdcl_sum_pages(file: *mut RawFile);
    fn forebay_xrdcl_sync(file: *mut RawFile, seconds: u16, status: *mut c_char);
    fn forebay_xrdcl_read(
        file: *mut RawFile,
        offset: u64,
        bytes: *mut c_void,
        length: u32,
        seconds: u16,
        read: *mut u32,
        status: *mut c_char,
    );
    fn forebay_xrdcl_close(file: *mut RawFile, seconds: u16, status: *mut c_char);
    fn forebay_xrdcl_delete(file: *mut RawFile);
}

/// Text that C has written into an array of ours.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Calls with an array for the library's words.
fn call<T>(function: impl FnOnce(*mut c_char) -> T) -> Result<T, Error> {
    let mut status = [0_u8; STATUS_BYTES];
    let returned = function(status.as_mut_ptr().cast());
    let words = text_of(&status);
    if words.is_empty() { Ok(returned) } else { Err(Error(words)) }
}

fn c_text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error("a text with a zero in it".to_owned()))
}

/// Sets one of the library's numbers, for the whole process; names without `XRD_`.
pub fn set(name: &str, value: i32) {
    if let Ok(name) = c_text(name) {
        // SAFETY: the name ends with a zero and is copied.
        unsafe { forebay_xrdcl_set(name.as_ptr(), value) };
    }
}

/// Size in bytes, and flags, of what has a path.
///
/// # Errors
/// What the server or the library says.
pub fn stat(server: &str, path: &str, seconds: u16) -> Result<(u64, u32), Error> {
    let (server, path, mut bytes, mut flags) = (c_text(server)?, c_text(path)?, 0, 0);
    // SAFETY: texts end with a zero; the numbers and the status, which has the size that the shim knows, live through the call.
    call(|status| unsafe {
        forebay_xrdcl_stat(server.as_ptr(), path.as_ptr(), seconds, &raw mut bytes, &raw mut flags, status);
    })?;
    Ok((bytes, flags))
}

/// The checksum that the server tells: its kind and it.
///
/// # Errors
/// What the server or the library says.
pub fn checksum(server: &str, path: &str, seconds: u16) -> Result<String, Error> {
    let (server, path, mut answer) = (c_text(server)?, c_text(path)?, [0_u8; ANSWER_BYTES]);
    // SAFETY: as of `stat`; the answer is cut to the length that is given.
    call(|status| unsafe {
        let answer = answer.as_mut_ptr().cast();
        forebay_xrdcl_checksum(server.as_ptr(), path.as_ptr(), seconds, answer, ANSWER_BYTES, status);
    })?;
    Ok(text_of(&answer))
}

/// Gives a file another path, in the place of what has it.
///
/// # Errors
/// What the server or the library says.
pub fn rename(server: &str, from: &str, to: &str, seconds: u16) -> Result<(), Error> {
    let (server, from, to) = (c_text(server)?, c_text(from)?, c_text(to)?);
    // SAFETY: as of `stat`.
    call(|status| unsafe { forebay_xrdcl_rename(server.as_ptr(), from.as_ptr(), to.as_ptr(), seconds, status) })
}

/// Takes a file away.
///
/// # Errors
/// What the server or the library says.
pub fn remove(server: &str, path: &str, seconds: u16) -> Result<(), Error> {
    let (server, path) = (c_text(server)?, c_text(path)?);
    // SAFETY: as of `stat`.
    call(|status| unsafe { forebay_xrdcl_remove(server.as_ptr(), path.as_ptr(), seconds, status) })
}

/// An open file. When it is dropped it is closed as it is.
#[derive(Debug)]
pub struct File(NonNull<RawFile>);

impl File {
    /// Makes a file, and its directories, where none is.
    ///
    /// # Errors
    /// What the server or the library says.
    pub fn create(url: &str, seconds: u16) -> Result<File, Error> {
        File::open_for(url, true, seconds)
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    /// What the server or the library says.
    pub fn open(url: &str, seconds: u16) -> Result<File, Error> {
        File::open_for(url, false, seconds)
    }

    fn open_for(url: &str, writes: bool, seconds: u16) -> Result<File, Error> {
        let url = c_text(url)?;
        // SAFETY: as of `stat`.
        let file = call(|status| unsafe { forebay_xrdcl_open(url.as_ptr(), writes.into(), seconds, status) })?;
        NonNull::new(file).map(File).ok_or_else(|| Error("no file was opened".to_owned()))
    }

    /// From now on each page of 4 KiB is written with its CRC32C, which the server (of version 5 and later) compares.
    pub fn sum_pages(&mut self) {
        // SAFETY: the file is open until it is dropped.
        unsafe { forebay_xrdcl_sum_pages(self.0.as_ptr()) }
    }

    /// Waits a moment; whether another block may be written now.
    ///
    /// # Errors
    /// Why a block before was not written.
    pub fn has_room(&mut self, milliseconds: u32) -> Result<bool, Error> {
        // SAFETY: it knows of nothing.
        let writes_max = unsafe { forebay_xrdcl_writes_max() };
        self.wait(writes_max - 1, milliseconds)
    }

    /// Waits a moment; whether all blocks are written.
    ///
    /// # Errors
    /// Why one was not.
    pub fn is_written(&mut self, milliseconds: u32) -> Result<bool, Error> {
        self.wait(0, milliseconds)
    }

    fn wait(&mut self, writes: c_uint, milliseconds: u32) -> Result<bool, Error> {
        // SAFETY: the file is open until it is dropped.
        call(|status| unsafe { forebay_xrdcl_wait(self.0.as_ptr(), writes, milliseconds, status) })
            .map(|is_so| is_so != 0)
    }

    /// Begins to write a block, of which a copy is made.
    ///
    /// # Errors
    /// Why it is not sent.
    pub fn write(&mut self, offset: u64, block: &[u8], seconds: u16) -> Result<(), Error> {
        let length = u32::try_from(block.len()).map_err(|_| Error("a block of 4 GiB or more".to_owned()))?;
        let bytes = block.as_ptr().cast();
        // SAFETY: the file is open; the block lives through the call, which copies it.
        call(|status| unsafe { forebay_xrdcl_write(self.0.as_ptr(), offset, bytes, length, seconds, status) })
    }

    /// Reads into a block; how much, 0 at the end.
    ///
    /// # Errors
    /// What the server or the library says.
    pub fn read(&mut self, offset: u64, block: &mut [u8], seconds: u16) -> Result<usize, Error> {
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let (bytes, mut read) = (block.as_mut_ptr().cast(), 0);
        // SAFETY: the file is open; no more than the block's length is written to it, and the call ends when that is over.
        call(|status| unsafe {
            forebay_xrdcl_read(self.0.as_ptr(), offset, bytes, length, seconds, &raw mut read, status);
        })?;
        Ok((read as usize).min(block.len()))
    }

    /// Lets the server make it durable.
    ///
    /// # Errors
    /// What the server or the library says.
    pub fn sync(&mut self, seconds: u16) -> Result<(), Error> {
        // SAFETY: the file is open.
        call(|status| unsafe { forebay_xrdcl_sync(self.0.as_ptr(), seconds, status) })
    }

    /// Closes it.
    ///
    /// # Errors
    /// What the server or the library says.
    pub fn close(self, seconds: u16) -> Result<(), Error> {
        // SAFETY: the file is open, and dropped behind this.
        call(|status| unsafe { forebay_xrdcl_close(self.0.as_ptr(), seconds, status) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it came from `forebay_xrdcl_open` and goes once. Writes on their way keep what they need.
        unsafe { forebay_xrdcl_delete(self.0.as_ptr()) };
    }
}
