//! What is in a directory.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use forebay_client::files::{Detail, FileStatus, ListedName, Listing};

use crate::call::{free, run};
use crate::code::{FOREBAY_LIST_ALL, FOREBAY_LIST_NAMES, FOREBAY_LIST_SIZES};
use crate::failure::Failure;
use crate::files::forebay_files;
use crate::pool::Seat;
use crate::raw::{give, give_handle, given, lock, path as path_of};
use crate::stat::{forebay_stat, stat_of};

/// A directory that is listed, in the order of the bytes of its names. Pages are asked for as it goes on: what comes or goes meanwhile may be told or not.
pub struct forebay_listing(Mutex<Open>);

struct Open {
    listing: Listing,
    /// What was told last, which C looks at.
    name: CString,
    _seat: Seat,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_entry {
    /// Its name, with a zero byte behind it; null behind the last entry. It is there until the listing is asked for the next one, or freed.
    pub name: *const c_char,
    /// How many bytes its name has.
    pub name_bytes: usize,
    /// What is known of it: its number and kind, and what was asked for; all else is 0.
    pub stat: forebay_stat,
}

/// Lists a directory; symbolic links are followed. `detail`: one of `FOREBAY_LIST_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_files_list(
    files: Option<&forebay_files>,
    path: *const c_char,
    path_bytes: usize,
    detail: i32,
    listing: Option<&mut MaybeUninit<*mut forebay_listing>>,
) -> i32 {
    run(|| {
        give_handle(listing, || {
            // SAFETY: the caller keeps to the rule of `raw`.
            let path = unsafe { path_of(path, path_bytes) }?;
            let detail = match detail {
                FOREBAY_LIST_NAMES => Detail::Names,
                FOREBAY_LIST_SIZES => Detail::Sizes,
                FOREBAY_LIST_ALL => Detail::All,
                _ => return Err(Failure::invalid(format!("{detail} is nothing that a listing tells"))),
            };
            let seat = given(files, "the files")?.0.seat()?;
            let listing = seat.files.list(path, detail)?;
            Ok(forebay_listing(Mutex::new(Open { listing, name: CString::default(), _seat: seat })))
        })
    })
}

/// The next entry; behind the last one, and after a failure, its name is null. One thread at a time uses a listing.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_listing_next(
    listing: Option<&forebay_listing>,
    entry: Option<&mut MaybeUninit<forebay_entry>>,
) -> i32 {
    run(|| {
        let entry = given(entry, "the place for an entry")?;
        entry.write(forebay_entry { name: ptr::null(), name_bytes: 0, stat: forebay_stat::default() });
        let mut open = lock(&given(listing, "the listing")?.0)?;
        let Some(listed) = open.listing.next().transpose()? else { return Ok(()) };
        let stat = of_listed(&listed);
        open.name = CString::new(listed.name).map_err(|_| Failure::internal("a name has a zero byte in it"))?;
        give(Some(entry), forebay_entry { name: open.name.as_ptr(), name_bytes: open.name.as_bytes().len(), stat })
    })
}

fn of_listed(listed: &ListedName) -> forebay_stat {
    let (number, kind) = (listed.number.0, i32::from(listed.kind.code()));
    match (&listed.node, &listed.info) {
        (Some(node), info) => stat_of(&FileStatus { node: node.clone(), info: *info }),
        (None, Some(info)) => {
            let length = forebay_client::files::length_of(info);
            let (crc32c, adler32) = info.sums.unwrap_or_default();
            forebay_stat {
                number,
                kind,
                length: length.unwrap_or(0),
                has_length: length.is_some(),
                written_unix_ns: info.written_unix_ns,
                is_sealed: info.sealed,
                is_written: info.is_written,
                has_sums: info.sums.is_some(),
                crc32c,
                adler32,
                ..forebay_stat::default()
            }
        }
        (None, None) => forebay_stat { number, kind, ..forebay_stat::default() },
    }
}

/// Frees it; null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_listing_free(listing: Option<Box<forebay_listing>>) {
    free(listing);
}
