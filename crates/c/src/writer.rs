//! Files that are written.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use forebay_client::files::{FileError, FileReader, FileWriter, Files, ReadOptions, WriteOptions};
use forebay_types::FileNumber;

use crate::call::{free, run};
use crate::code::{FOREBAY_ABANDON_REMOVE, FOREBAY_WRITE_APPEND, FOREBAY_WRITE_SEAL};
use crate::failure::Failure;
use crate::files::{checked_flags, forebay_files, forebay_owner, mode_of, owner_of};
use crate::pool::{Pool, Seat};
use crate::raw::{buffer, bytes, give, give_handle, given, lock, path as path_of};
use crate::reader::{checked_range, closed};
use crate::stat::{forebay_stat, stat_of, status_of};

/// A file that is open for writing, and for reading what is in it. Any thread may use it, and each call waits for the one before.
///
/// Writes are taken at once and sent behind: they are durable when `forebay_writer_sync` or `forebay_writer_close` says so. After a failure that may pass
/// (`forebay_last_is_retryable`) nothing is lost: what was not acknowledged is sent again by the next call. Others stay: each call says them again.
pub struct forebay_writer(Mutex<Option<Open>>);

struct Open {
    /// What reads what is durable; made anew when more is.
    reader: Option<FileReader>,
    writer: FileWriter,
    read: ReadOptions,
    /// What it was opened as.
    path: Vec<u8>,
    seat: Seat,
}

fn with<T>(writer: Option<&forebay_writer>, call: impl FnOnce(&mut Open) -> Result<T, Failure>) -> Result<T, Failure> {
    call(lock(&given(writer, "the writer")?.0)?.as_mut().ok_or_else(closed)?)
}

fn options_of(pool: &Pool, flags: u32) -> Result<WriteOptions, Failure> {
    let flags = checked_flags(flags, FOREBAY_WRITE_SEAL | FOREBAY_WRITE_APPEND)?;
    let (seal, append) = (flags & FOREBAY_WRITE_SEAL != 0, flags & FOREBAY_WRITE_APPEND != 0);
    Ok(WriteOptions { seal, append, ..pool.config().write.clone() })
}

/// Makes a writer.
fn open(
    files: Option<&forebay_files>,
    path: &[u8],
    flags: u32,
    open: impl FnOnce(&Files, WriteOptions) -> Result<FileWriter, Failure>,
) -> Result<forebay_writer, Failure> {
    let pool = &given(files, "the files")?.0;
    let options = options_of(pool, flags)?;
    let seat = pool.seat()?;
    let writer = open(&seat.files, options)?;
    let (read, path) = (pool.config().read, path.to_vec());
    Ok(forebay_writer(Mutex::new(Some(Open { reader: None, writer, read, path, seat }))))
}

/// Makes a file that is not there yet, and opens it for writing. `owner` null: of user and group 0, mode 0644. `flags`: of `FOREBAY_WRITE_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_create(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    owner: Option<&forebay_owner>,
    flags: u32,
    writer: Option<&mut MaybeUninit<*mut forebay_writer>>,
) -> i32 {
    run(|| {
        give_handle(writer, || {
            // SAFETY: the caller keeps to the rule of `raw`.
            let path = unsafe { path_of(path, path_bytes) }?;
            let owner = owner_of(owner, 0o644)?;
            open(files, path, flags, |files, options| Ok(files.create(path, &WriteOptions { owner, ..options })?))
        })
    })
}

/// Opens a file that is there for writing; symbolic links are followed. `flags`: of `FOREBAY_WRITE_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_open_write(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    flags: u32,
    writer: Option<&mut MaybeUninit<*mut forebay_writer>>,
) -> i32 {
    run(|| {
        give_handle(writer, || {
            // SAFETY: the caller keeps to the rule of `raw`.
            let path = unsafe { path_of(path, path_bytes) }?;
            open(files, path, flags, |files, options| Ok(files.open_write(path, &options)?))
        })
    })
}

/// Writes at the end of what was there and of what was written by this function. It waits while too many bytes are on their way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writer_write(
    writer: Option<&forebay_writer>,
    data: *const c_void,
    data_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let data = unsafe { bytes(data, data_bytes, "the data") }?;
        with(writer, |open| {
            open.reader = None;
            Ok(open.writer.write(data)?)
        })
    })
}

/// Writes from `offset` on, all of it. Writing the same again is safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writer_pwrite(
    writer: Option<&forebay_writer>,
    offset: u64,
    data: *const c_void,
    data_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let data = unsafe { bytes(data, data_bytes, "the data") }?;
        checked_range(offset, data.len())?;
        with(writer, |open| {
            open.reader = None;
            Ok(open.writer.write_at(offset, data)?)
        })
    })
}

/// Reads as `forebay_reader_pread` does, when all that was written is durable: what this writer wrote is read, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writer_pread(
    writer: Option<&forebay_writer>,
    offset: u64,
    into: *mut c_void,
    into_bytes: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    run(|| {
        let count = given(count, "the place for the count")?;
        // SAFETY: the caller keeps to the rule of `raw`.
        let into = unsafe { buffer(into, into_bytes) }?;
        checked_range(offset, into.len())?;
        count.write(with(writer, |open| Ok(open.reader()?.read_at(offset, into)?))?);
        Ok(())
    })
}

impl Open {
    fn reader(&mut self) -> Result<&mut FileReader, FileError> {
        if self.reader.is_none() {
            self.writer.sync()?;
            self.reader = Some(self.writer.open_read(&self.read)?);
        }
        Ok(self.reader.as_mut().expect("just made"))
    }

    /// Takes the name away that the file was opened with, if it still has it.
    fn remove_name(&self) -> Result<(), FileError> {
        let number_of = |node: forebay_client::files::Node| -> FileNumber { node.number };
        match self.seat.files.lookup_link(&self.path).map(number_of) {
            Ok(number) if number == self.writer.node().number => match self.seat.files.remove(&self.path) {
                Err(FileError::NotFound { .. }) => Ok(()),
                removed => removed,
            },
            Ok(_) | Err(FileError::NotFound { .. } | FileError::NotDirectory { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Waits until all that was written is durable.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_sync(writer: Option<&forebay_writer>) -> i32 {
    run(|| with(writer, |open| Ok(open.writer.sync()?)))
}

/// Changes how long the file is, when all that was written is durable: what is cut is gone, what is added holds zeros.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_truncate(writer: Option<&forebay_writer>, length: u64) -> i32 {
    run(|| {
        with(writer, |open| {
            open.reader = None;
            Ok(open.writer.set_length(length)?)
        })
    })
}

/// Changes the permissions of this file, whatever its name stands for by now.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_set_mode(writer: Option<&forebay_writer>, mode: u32) -> i32 {
    run(|| {
        let mode = mode_of(mode)?;
        with(writer, |open| Ok(open.writer.set_mode(mode)?))
    })
}

/// What is known of the file now, whatever became of its name. Its length is that when all that this writer wrote is there.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_stat(
    writer: Option<&forebay_writer>,
    stat: Option<&mut MaybeUninit<forebay_stat>>,
) -> i32 {
    run(|| {
        let known = with(writer, |open| {
            let mut known = stat_of(&status_of(&open.seat.files, open.writer.path(), open.writer.node())?);
            known.length = known.length.max(open.writer.length());
            Ok(known)
        })?;
        give(stat, known)
    })
}

/// How many bytes of this writer are durable, and how many of it are not answered yet.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_progress(
    writer: Option<&forebay_writer>,
    acknowledged_bytes: Option<&mut MaybeUninit<u64>>,
    unanswered_bytes: Option<&mut MaybeUninit<u64>>,
) -> i32 {
    run(|| {
        let (acknowledged, unanswered) =
            with(writer, |open| Ok((open.writer.acknowledged_bytes(), open.writer.unanswered_bytes() as u64)))?;
        give(acknowledged_bytes, acknowledged)?;
        give(unanswered_bytes, unanswered)
    })
}

/// Waits until all that was written is durable, seals the file if it was opened with `FOREBAY_WRITE_SEAL`, and says that this writer is done. When it fails the writer is as it was, and may
/// be closed again or abandoned. The handle has to be freed all the same; closing it again is no failure.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_close(writer: Option<&forebay_writer>) -> i32 {
    run(|| {
        let mut held = lock(&given(writer, "the writer")?.0)?;
        if let Some(open) = held.as_mut() {
            open.reader = None;
            open.writer.close()?;
        }
        *held = None;
        Ok(())
    })
}

/// Says that this writer is done, though not all that was written is acknowledged: what was not may be in the file or not, and it is not sealed. `flags`:
/// `FOREBAY_ABANDON_REMOVE`, as for a file that was to be there whole or not at all, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_abandon(writer: Option<&forebay_writer>, flags: u32) -> i32 {
    run(|| {
        let removes = checked_flags(flags, FOREBAY_ABANDON_REMOVE)? == FOREBAY_ABANDON_REMOVE;
        let mut held = lock(&given(writer, "the writer")?.0)?;
        if let Some(open) = held.as_mut() {
            open.reader = None;
            if removes {
                open.remove_name()?;
            }
            open.writer.abandon()?;
        }
        *held = None;
        Ok(())
    })
}

/// Frees it; null is nothing to free. A writer that was neither closed nor abandoned leaves its file as it is: not sealed, with what was acknowledged and perhaps more. The server
/// takes it for one that is written for another minute.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writer_free(writer: Option<Box<forebay_writer>>) {
    free(writer);
}
