//! Files that are read.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, TryLockError};

use forebay_client::files::{FileReader, Node};

use crate::call::{free, run};
use crate::code::FOREBAY_CLOSED;
use crate::failure::Failure;
use crate::files::forebay_files;
use crate::pool::{Pool, Seat};
use crate::raw::{buffer, give, give_handle, given, lock, path as path_of};
use crate::stat::{forebay_stat, stat_of, status_of};

/// A file that is open for reading. Any thread may use it, and each call waits for the one before. While it is open the file stays, whatever becomes of its name.
pub struct forebay_reader {
    /// Who reads it, and where: what another reader of the same file begins with.
    pool: Arc<Pool>,
    path: String,
    node: Node,
    open: Mutex<Option<Open>>,
}

struct Open {
    reader: FileReader,
    seat: Seat,
}

/// A call of a handle that was closed.
pub(crate) fn closed() -> Failure {
    let message = "the file was closed by this handle; nothing was done. Open it again".to_owned();
    Failure::of_path(FOREBAY_CLOSED, libc::EBADF, false, message)
}

fn with<T>(reader: Option<&forebay_reader>, call: impl FnOnce(&mut Open) -> Result<T, Failure>) -> Result<T, Failure> {
    call(lock(&given(reader, "the reader")?.open)?.as_mut().ok_or_else(closed)?)
}

fn handle(pool: &Arc<Pool>, reader: FileReader, seat: Seat) -> forebay_reader {
    let (path, node) = (reader.path().to_owned(), reader.node().clone());
    forebay_reader { pool: Arc::clone(pool), path, node, open: Mutex::new(Some(Open { reader, seat })) }
}

/// Opens a file for reading; symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_open_read(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    reader: Option<&mut MaybeUninit<*mut forebay_reader>>,
) -> i32 {
    run(|| {
        give_handle(reader, || {
            // SAFETY: the caller keeps to the rule of `raw`.
            let path = unsafe { path_of(path, path_bytes) }?;
            let pool = &given(files, "the files")?.0;
            let seat = pool.seat()?;
            let reader = seat.files.open_read(path, &pool.config().read)?;
            Ok(handle(pool, reader, seat))
        })
    })
}

/// Opens the file of a reader once more: the same file, whatever became of its name meanwhile, for somebody who reads elsewhere in it. It waits for no call of that reader, which has to stay open
/// as long as this one.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_reader_open_again(
    reader: Option<&forebay_reader>,
    again: Option<&mut MaybeUninit<*mut forebay_reader>>,
) -> i32 {
    run(|| {
        give_handle(again, || {
            let first = given(reader, "the reader")?;
            match first.open.try_lock() {
                Ok(open) if open.is_none() => return Err(closed()),
                // It is broken, which `lock` says.
                Err(TryLockError::Poisoned(_)) => drop(lock(&first.open)?),
                // It is in use, and so open.
                Ok(_) | Err(TryLockError::WouldBlock) => {}
            }
            let seat = first.pool.seat()?;
            let reader = seat.files.open_read_node(&first.path, &first.node, &first.pool.config().read)?;
            Ok(handle(&first.pool, reader, seat))
        })
    })
}

/// Reads from `offset` on as many bytes as there is room for; fewer before the present end of the file, or before what cannot be read, which the call that begins there says. What was
/// read is checked, and holds zeros where nothing was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_reader_pread(
    reader: Option<&forebay_reader>,
    offset: u64,
    into: *mut c_void,
    into_bytes: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    // SAFETY: the same.
    unsafe { forebay_reader_pread_until(reader, offset, into, into_bytes, u64::MAX, count) }
}

/// The same, and nothing behind what is wanted is asked for from `ahead_end` on, where somebody else reads: with `offset`, nothing at all is read ahead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_reader_pread_until(
    reader: Option<&forebay_reader>,
    offset: u64,
    into: *mut c_void,
    into_bytes: usize,
    ahead_end: u64,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    run(|| {
        let count = given(count, "the place for the count")?;
        // SAFETY: the caller keeps to the rule of `raw`.
        let into = unsafe { buffer(into, into_bytes) }?;
        checked_range(offset, into.len())?;
        count.write(with(reader, |open| Ok(open.reader.read_at_until(offset, into, ahead_end)?))?);
        Ok(())
    })
}

/// Refuses places that no number can name.
pub(crate) fn checked_range(offset: u64, bytes: usize) -> Result<(), Failure> {
    let end = offset.checked_add(bytes as u64);
    end.map(drop).ok_or_else(|| Failure::invalid(format!("{bytes} bytes from {offset} on end beyond any file")))
}

/// What is known of the file now, whatever became of its name.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_reader_stat(
    reader: Option<&forebay_reader>,
    stat: Option<&mut MaybeUninit<forebay_stat>>,
) -> i32 {
    run(|| {
        let status = with(reader, |open| Ok(status_of(&open.seat.files, open.reader.path(), open.reader.node())?))?;
        give(stat, stat_of(&status))
    })
}

/// Says that this reader is done, and waits for the answer: a file that has no name any more ends at once then, if nobody else has it open. The handle has to be freed all the
/// same; closing it again is no failure.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_reader_close(reader: Option<&forebay_reader>) -> i32 {
    run(|| {
        let open = lock(&given(reader, "the reader")?.open)?.take();
        // The connection is in use until it is closed.
        open.map_or(Ok(()), |Open { reader, seat: _seat }| Ok(reader.close()?))
    })
}

/// Frees it; null is nothing to free. Of a reader that was not closed the server is told with what is asked next.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_reader_free(reader: Option<Box<forebay_reader>>) {
    free(reader);
}
