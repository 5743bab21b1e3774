//! The files of a store: names looked up and changed.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_client::files::{FileStatus, Files, Owner, escape};
use forebay_types::{NodeKind, ReadOutcome, SetAttributes};

use crate::call::{free, run};
use crate::code::*;
use crate::config::forebay_config;
use crate::failure::Failure;
use crate::pool::Pool;
use crate::raw::{give, give_handle, given, path as path_of};
use crate::stat::{forebay_stat, stat_of};
use crate::text::{forebay_text, give_text};

/// The time between two looks whether sums are there.
const LOOK: Duration = Duration::from_millis(20);

/// The files of a store. Any thread may use it, at the same time as others: see `forebay_config_set_connections`. Readers, writers and listings that it gave may outlive it.
pub struct forebay_files(pub(crate) Arc<Pool>);

/// Whose something new is, and who may do what with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_owner {
    /// Permissions, 12 bits.
    pub mode: u32,
    /// The number of its user.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
}

/// Uses a connection of a handle.
pub(crate) fn with<T>(
    files: Option<&forebay_files>,
    call: impl FnOnce(&Files) -> Result<T, Failure>,
) -> Result<T, Failure> {
    call(&given(files, "the files")?.0.seat()?.files)
}

/// Whose something new is: of user and group 0 unless said otherwise.
pub(crate) fn owner_of(owner: Option<&forebay_owner>, mode: u16) -> Result<Owner, Failure> {
    let Some(owner) = owner else { return Ok(Owner { mode, owner: 0, group: 0 }) };
    Ok(Owner { mode: mode_of(owner.mode)?, owner: owner.owner, group: owner.group })
}

pub(crate) fn mode_of(mode: u32) -> Result<u16, Failure> {
    match u16::try_from(mode) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(Failure::invalid(format!("{mode:#o} is no mode of 12 bits"))),
    }
}

/// Refuses flags that mean nothing here.
pub(crate) fn checked_flags(flags: u32, known: u32) -> Result<u32, Failure> {
    if flags & !known == 0 {
        Ok(flags)
    } else {
        Err(Failure::invalid(format!("{flags:#x} has flags that mean nothing here")))
    }
}

/// Connects and greets, trying again until the deadline.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_files_connect(
    config: Option<&forebay_config>,
    files: Option<&mut MaybeUninit<*mut forebay_files>>,
) -> i32 {
    run(|| give_handle(files, || Ok(forebay_files(Pool::connect(given(config, "the config")?)?))))
}

/// Frees it; null is nothing to free. The connections end with the last reader, writer and listing of it.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_files_free(files: Option<Box<forebay_files>>) {
    free(files);
}

/// What a path stands for; symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_stat(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    stat: Option<&mut MaybeUninit<forebay_stat>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        give(stat, stat_of(&with(files, |files| Ok(files.stat(path)?))?))
    })
}

/// The same, but for a link that the path itself names: that is what is meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_stat_link(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    stat: Option<&mut MaybeUninit<forebay_stat>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        give(stat, stat_of(&with(files, |files| Ok(files.stat_link(path)?))?))
    })
}

/// The sums of all of a sealed file. They are known a moment after it was sealed, or, where it was written over a start of the server, when it has been read back: waits for them up to
/// `longest_ms`, then `FOREBAY_NOT_READY`. `FOREBAY_NOT_SEALED`: a file that may change has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_checksums(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    longest_ms: u64,
    crc32c: Option<&mut MaybeUninit<u32>>,
    adler32: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        let (crc32c, adler32) = (given(crc32c, "the place for a sum")?, given(adler32, "the place for a sum")?);
        let (begin, longest) = (Instant::now(), Duration::from_millis(longest_ms));
        loop {
            let status = with(files, |files| Ok(files.stat(path)?))?;
            if let Some(sums) = sums_of(&escape(path), &status)? {
                (*crc32c, *adler32) = (MaybeUninit::new(sums.0), MaybeUninit::new(sums.1));
                return Ok(());
            }
            if begin.elapsed() >= longest {
                let message = format!(
                    "{}: the file is sealed and its sums are being computed; nothing is wrong with it. Ask again in a moment",
                    escape(path)
                );
                return Err(Failure::of_path(FOREBAY_NOT_READY, libc::EAGAIN, true, message));
            }
            std::thread::sleep(LOOK.min(longest.saturating_sub(begin.elapsed())));
        }
    })
}

/// The sums of a file; `None`: they come.
fn sums_of(path: &str, status: &FileStatus) -> Result<Option<(u32, u32)>, Failure> {
    let Some(info) = status.info.as_ref().filter(|_| status.node.view.kind == NodeKind::File) else {
        let message = format!("{path}: it is no file and has no sums; nothing was changed. Name a file");
        let is_directory = status.node.view.kind == NodeKind::Directory;
        let (code, errno) =
            if is_directory { (FOREBAY_IS_DIRECTORY, libc::EISDIR) } else { (FOREBAY_NOT_FILE, libc::EINVAL) };
        return Err(Failure::of_path(code, errno, false, message));
    };
    match info.outcome {
        ReadOutcome::Found | ReadOutcome::NotFound if info.sealed => Ok(info.sums),
        ReadOutcome::Found | ReadOutcome::NotFound => {
            let message = format!(
                "{path}: the file is not sealed, and what may change has no sums; nothing was changed. Seal it when it is complete \
                 (`forebay file seal`), and ask again"
            );
            Err(Failure::of_path(FOREBAY_NOT_SEALED, libc::ENODATA, false, message))
        }
        ReadOutcome::Deleted => {
            let message = format!("{path}: the file was removed; its bytes are gone, as was asked");
            Err(Failure::of_path(FOREBAY_REMOVED, libc::ESTALE, false, message))
        }
        ReadOutcome::Unavailable => {
            let message = format!(
                "{path}: its sums are out of reach, as too few of its drives answer; nothing is lost. Try again when they are back (`forebay status`)"
            );
            Err(Failure::of_path(FOREBAY_UNAVAILABLE, libc::EIO, true, message))
        }
        ReadOutcome::Lost => {
            let message = format!(
                "{path}: what it was is damaged beyond what parity can mend. `forebay lost` says why and what else is; look for another copy"
            );
            Err(Failure::of_path(FOREBAY_LOST, libc::EIO, false, message))
        }
    }
}

/// Makes a directory. `owner` null: of user and group 0, mode 0755. `flags`: `FOREBAY_MAKE_PARENTS` or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_make_directory(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    owner: Option<&forebay_owner>,
    flags: u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        let owner = owner_of(owner, 0o755)?;
        let parents = checked_flags(flags, FOREBAY_MAKE_PARENTS)? == FOREBAY_MAKE_PARENTS;
        with(files, |files| {
            let made = if parents { files.make_directories(path, &owner) } else { files.make_directory(path, &owner) };
            Ok(made.map(drop)?)
        })
    })
}

/// Makes a symbolic link that leads to `target`, which need not be there. `owner` null: of user and group 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_symlink(
    files: Option<&forebay_files>,
    target: *const c_char,
    target_bytes: usize,
    path: *const c_char,
    path_bytes: usize,
    owner: Option<&forebay_owner>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (target, path) = unsafe { (path_of(target, target_bytes)?, path_of(path, path_bytes)?) };
        let owner = owner_of(owner, 0o777)?;
        with(files, |files| Ok(files.symlink(target, path, &owner).map(drop)?))
    })
}

/// Where a symbolic link leads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_read_link(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    target: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        give_text(target, || {
            let node = with(files, |files| Ok(files.lookup_link(path)?))?;
            let is_link = node.view.kind == NodeKind::Link;
            is_link
                .then_some(node.view.target)
                .ok_or_else(|| Failure::invalid(format!("{} is no symbolic link", escape(path))))
        })
    })
}

/// Gives what has one name another one besides. A link that `existing` names is meant itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_link(
    files: Option<&forebay_files>,
    existing: *const c_char,
    existing_bytes: usize,
    path: *const c_char,
    path_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (existing, path) = unsafe { (path_of(existing, existing_bytes)?, path_of(path, path_bytes)?) };
        with(files, |files| Ok(files.link(existing, path)?))
    })
}

/// Gives something another name, in one step: also after a crash it has one of both. `flags`: `FOREBAY_RENAME_REPLACE` or 0, with which a name that is taken stays as it is
/// (`FOREBAY_EXISTS`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_rename(
    files: Option<&forebay_files>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    flags: u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (from, to) = unsafe { (path_of(from, from_bytes)?, path_of(to, to_bytes)?) };
        let replace = checked_flags(flags, FOREBAY_RENAME_REPLACE)? == FOREBAY_RENAME_REPLACE;
        with(files, |files| Ok(files.rename(from, to, replace)?))
    })
}

/// Takes the name of something that is no directory away, and with the last one what has it: the bytes of a file are gone when nobody has it open any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_remove(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        with(files, |files| Ok(files.remove(path)?))
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_remove_directory(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        with(files, |files| Ok(files.remove_directory(path)?))
    })
}

/// Seals a file: it never changes again, and its sums are kept. What is sealed already is as it should be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_seal(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        with(files, |files| Ok(files.seal(path)?))
    })
}

/// Changes the permissions of what a path stands for, 12 bits; links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_set_mode(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    mode: u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        let set = SetAttributes { mode: Some(mode_of(mode)?), ..SetAttributes::default() };
        with(files, |files| Ok(files.set(path, &set)?))
    })
}

/// Changes whose what a path stands for is, by the numbers of user and group; links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_set_owner(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    owner: u32,
    group: u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        let set = SetAttributes { owner: Some(owner), group: Some(group), ..SetAttributes::default() };
        with(files, |files| Ok(files.set(path, &set)?))
    })
}

/// Changes when what a path stands for was written and read last, nanoseconds since 1970; links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_set_times(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    written_unix_ns: i64,
    accessed_unix_ns: i64,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let path = unsafe { path_of(path, path_bytes) }?;
        let set = SetAttributes {
            written_unix_ns: Some(written_unix_ns),
            accessed_unix_ns: Some(accessed_unix_ns),
            ..SetAttributes::default()
        };
        with(files, |files| Ok(files.set(path, &set)?))
    })
}

/// How many bytes the store can hold, and how many of these are free.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_files_room(
    files: Option<&forebay_files>,
    capacity_bytes: Option<&mut MaybeUninit<u64>>,
    free_bytes: Option<&mut MaybeUninit<u64>>,
) -> i32 {
    run(|| {
        let (capacity, free) =
            (given(capacity_bytes, "the place for bytes")?, given(free_bytes, "the place for bytes")?);
        let json = with(files, |files| Ok(files.with_client(|client| client.status())?))?;
        let status: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
        let bytes = |name: &str| status["totals"][name].as_u64();
        let (Some(all), Some(unused)) = (bytes("capacity_bytes"), bytes("free_bytes")) else {
            let message = "the server does not say how full it is; nothing was changed. See whether client and server are of versions that fit";
            return Err(Failure::of_path(FOREBAY_PROTOCOL, libc::EPROTO, false, message.to_owned()));
        };
        (*capacity, *free) = (MaybeUninit::new(all), MaybeUninit::new(unused));
        Ok(())
    })
}
