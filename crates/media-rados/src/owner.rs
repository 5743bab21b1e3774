//! Who owns a store: a lock in the replicated pool, and a pulse that shows that its holder lives. What is done with them in which order is decided elsewhere
//! (`forebay_takeover`).

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::cluster::{Cluster, Pool, c_string};
use crate::error::{RadosError, check};
use crate::operation::Steps;
use crate::sys;

/// The attribute that says whose an object is.
pub(crate) const OWNER: &str = "owner";
/// That of an object before the slots which says how-manieth owner that is, in digits that compare as they count.
pub(crate) const EPOCH: &str = "epoch";
/// That of the lock's object which the owner changes all the time.
const PULSE: &str = "pulse";
/// And that which says after how many milliseconds without a change it counts as dead.
const DEAD_AFTER: &str = "dead_after";
/// Bytes of the first one.
const OWNER_BYTES: usize = 16;
const LOCK_OBJECT: &str = "lock";
const LOCK_NAME: &str = "store";

/// What makes one owner known from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerToken {
    bytes: [u8; 16],
}

impl OwnerToken {
    /// Of a count of owners, and a random number.
    pub fn new(epoch: u64, random: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&epoch.to_le_bytes());
        bytes[8..].copy_from_slice(&random.to_le_bytes());
        OwnerToken { bytes }
    }

    /// One more with each owner.
    pub fn epoch(&self) -> u64 {
        u64::from_le_bytes(self.bytes[..8].try_into().expect("eight bytes"))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Greater with each owner, byte for byte.
    pub(crate) fn epoch_digits(&self) -> String {
        format!("{:016x}", self.epoch())
    }

    /// By which the lock knows its holder.
    fn cookie(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = u64::from_le_bytes(self.bytes[8..].try_into().expect("eight bytes"));
        write!(f, "{}-{random:016x}", self.epoch())
    }
}

/// Who holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The client, as Ceph names it.
    pub client: String,
    /// What it gave to know its lock by.
    pub cookie: String,
    /// Where it is: what a blocklist takes.
    pub address: String,
}

/// The lock of a store.
pub struct Owners {
    places: Arc<Pool>,
}

impl Owners {
    /// That of the store of this namespace.
    pub fn new(places: Arc<Pool>) -> Self {
        Owners { places }
    }

    /// The cluster that it lies in.
    pub fn cluster(&self) -> &Arc<Cluster> {
        self.places.cluster()
    }

    /// Who holds the lock now.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn holder(&self) -> Result<Option<Holder>, RadosError> {
        const ROOM: usize = 4096;
        let (mut clients, mut cookies, mut addresses, mut tag) = ([0u8; ROOM], [0u8; ROOM], [0u8; ROOM], [0u8; ROOM]);
        let (mut clients_bytes, mut cookies_bytes, mut addresses_bytes, mut tag_bytes) = (ROOM, ROOM, ROOM, ROOM);
        let mut exclusive = 0;
        let (object, name) = (c_string(LOCK_OBJECT), c_string(LOCK_NAME));
        let at = |buffer: &mut [u8; ROOM]| buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: the pool is open, and each buffer has the bytes that are said.
        let found = unsafe {
            sys::rados_list_lockers(
                self.places.raw(),
                object.as_ptr(),
                name.as_ptr(),
                &raw mut exclusive,
                at(&mut tag),
                &raw mut tag_bytes,
                at(&mut clients),
                &raw mut clients_bytes,
                at(&mut cookies),
                &raw mut cookies_bytes,
                at(&mut addresses),
                &raw mut addresses_bytes,
            )
        };
        let found = i32::try_from(found).unwrap_or(i32::MAX);
        match check(found, || format!("who has the store (pool {})", self.places.name())) {
            Err(error) if error.is(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
            Ok(0) => Ok(None),
            // An exclusive lock has one holder.
            Ok(_) => Ok(Some(Holder { client: first(&clients), cookie: first(&cookies), address: first(&addresses) })),
        }
    }

    /// What the owner changed last; another value means that he lives.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn pulse(&self) -> Result<Vec<u8>, RadosError> {
        let mut seen = self.places.attribute(LOCK_OBJECT, OWNER)?.unwrap_or_default();
        seen.extend(self.places.attribute(LOCK_OBJECT, PULSE)?.unwrap_or_default());
        Ok(seen)
    }

    /// Shows that the owner lives. Fails when he is the owner no more, which he is with his lock broken, too.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn beat(&self, token: &OwnerToken, count: u64) -> Result<(), RadosError> {
        let steps = Steps::new().although_full(sys::FULL_TRY).call_lock(c"assert_locked", &asserted(&token.cookie()));
        steps.compare(OWNER, token.bytes()).set(PULSE, &count.to_le_bytes()).run(&self.places, LOCK_OBJECT)
    }

    /// After how long without a pulse the last owner counts as dead; nothing when there was none.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn dead_after(&self) -> Result<Option<Duration>, RadosError> {
        let said = self.places.attribute(LOCK_OBJECT, DEAD_AFTER)?;
        Ok(said.and_then(|said| said.first_chunk::<8>().copied()).map(u64::from_le_bytes).map(Duration::from_millis))
    }

    /// Takes the lock; nothing when somebody has it. The token is of an epoch that no owner had before. `dead_after` is told to whoever looks for its pulse.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn lock(&self, random: u64, description: &str, dead_after: Duration) -> Result<Option<OwnerToken>, RadosError> {
        let before = self.owner()?;
        let token = OwnerToken::new(epoch_of(before.as_deref()) + 1, random);
        let (object, name) = (c_string(LOCK_OBJECT), c_string(LOCK_NAME));
        let (cookie, description) = (c_string(&token.cookie()), c_string(description));
        // SAFETY: the pool is open; without a duration the lock is held until it is given back or broken.
        let locked = unsafe {
            let (cookie, description) = (cookie.as_ptr(), description.as_ptr());
            sys::rados_lock_exclusive(
                self.places.raw(),
                object.as_ptr(),
                name.as_ptr(),
                cookie,
                description,
                null_mut(),
                0,
            )
        };
        match check(locked, || format!("the lock of the store (pool {})", self.places.name())) {
            Err(error) if error.is(Errno::BUSY) || error.is(Errno::EXIST) => return Ok(None),
            other => other?,
        };
        // Another owner may have come and gone since the look at who was the last, or this process may have stood still since it took the lock, and be
        // replaced: then it is no owner.
        let steps = Steps::new().although_full(sys::FULL_TRY).call_lock(c"assert_locked", &asserted(&token.cookie()));
        let steps = steps.compare(OWNER, before.as_deref().unwrap_or_default());
        let dead_after_ms = u64::try_from(dead_after.as_millis()).unwrap_or(u64::MAX);
        let steps = steps.set(OWNER, token.bytes()).set(PULSE, &0u64.to_le_bytes());
        let named = steps.set(DEAD_AFTER, &dead_after_ms.to_le_bytes()).run(&self.places, LOCK_OBJECT);
        match named {
            Ok(()) => Ok(Some(token)),
            Err(error) if is_another_owner(&error) => {
                self.unlock(&token)?;
                Ok(None)
            }
            Err(error) => {
                // Else it would be waited for itself, and fenced. When this fails, too, others see nobody's pulse.
                drop(self.unlock(&token));
                Err(error)
            }
        }
    }

    /// The epoch of the last owner; 0 when there was none.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn epoch(&self) -> Result<u64, RadosError> {
        Ok(epoch_of(self.owner()?.as_deref()))
    }

    fn owner(&self) -> Result<Option<Vec<u8>>, RadosError> {
        self.places.attribute(LOCK_OBJECT, OWNER)
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn unlock(&self, token: &OwnerToken) -> Result<(), RadosError> {
        let (object, name, cookie) = (c_string(LOCK_OBJECT), c_string(LOCK_NAME), c_string(&token.cookie()));
        // SAFETY: the pool is open.
        let done = unsafe { sys::rados_unlock(self.places.raw(), object.as_ptr(), name.as_ptr(), cookie.as_ptr()) };
        match check(done, || "giving the lock of the store back".to_owned()) {
            // Somebody broke it.
            Err(error) if error.is(Errno::NOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Breaks the lock of a holder that was fenced, unless his pulse is another than was seen. That he has none any more is no error.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn break_lock(&self, holder: &Holder, pulse: &[u8]) -> Result<(), RadosError> {
        let (owner, pulse) = pulse.split_at(pulse.len().min(OWNER_BYTES));
        let steps = Steps::new().although_full(sys::FULL_TRY).compare(OWNER, owner).compare(PULSE, pulse);
        match steps.call_lock(c"break_lock", &broken(holder)).run(&self.places, LOCK_OBJECT) {
            Err(error) if error.is(Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}

/// Whether an operation of an owner failed since he is the owner no more: by another one's name, a broken lock, or a fence.
pub(crate) fn is_another_owner(error: &RadosError) -> bool {
    error.is(Errno::CANCELED) || error.is(Errno::BUSY) || error.is(Errno::SHUTDOWN)
}

/// What Ceph's class `lock` takes to see that this client has the lock, as Ceph encodes it (`cls_lock_assert_op`).
fn asserted(cookie: &str) -> Vec<u8> {
    const EXCLUSIVE: u8 = 1;
    let mut body = text(LOCK_NAME);
    body.push(EXCLUSIVE);
    body.extend(text(cookie));
    body.extend(text(""));
    versioned(&body)
}

/// What it takes to break a lock (`cls_lock_break_op`).
fn broken(holder: &Holder) -> Vec<u8> {
    const CLIENT: u8 = 8;
    // All that takes locks here is a client; a name that is none is nobody's.
    let number: i64 = holder.client.strip_prefix("client.").and_then(|number| number.parse().ok()).unwrap_or(-1);
    let mut body = text(LOCK_NAME);
    body.push(CLIENT);
    body.extend(number.to_le_bytes());
    body.extend(text(&holder.cookie));
    versioned(&body)
}

/// Version 1, which readers of version 1 understand.
fn versioned(body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len()).expect("a few names");
    [&[1, 1][..], &bytes.to_le_bytes(), body].concat()
}

fn text(text: &str) -> Vec<u8> {
    let bytes = u32::try_from(text.len()).expect("a name");
    [&bytes.to_le_bytes(), text.as_bytes()].concat()
}

/// What the owner that an attribute names is counted as.
fn epoch_of(owner: Option<&[u8]>) -> u64 {
    owner.and_then(|owner| owner.first_chunk::<8>().copied()).map_or(0, u64::from_le_bytes)
}

/// The first string of several that end with NULs.
fn first(buffer: &[u8]) -> String {
    CStr::from_bytes_until_nul(buffer).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_its_epoch_and_is_shown_as_its_cookie() {
        let token = OwnerToken::new(7, 0xAB);
        assert_eq!(token.epoch(), 7);
        assert_eq!(token.to_string(), "7-00000000000000ab");
        assert_ne!(token, OwnerToken::new(7, 0xAC));
        assert!(token.epoch_digits() < OwnerToken::new(16, 0).epoch_digits());
    }

    #[test]
    fn what_the_class_of_locks_takes_is_as_ceph_encodes_it() {
        let asserted = asserted("7-ab");
        assert_eq!(asserted[..11], [1, 1, 22, 0, 0, 0, 5, 0, 0, 0, b's']);
        assert_eq!(asserted[15..], [1, 4, 0, 0, 0, b'7', b'-', b'a', b'b', 0, 0, 0, 0]);
        let holder = Holder { client: "client.258".to_owned(), cookie: "c".to_owned(), address: String::new() };
        assert_eq!(broken(&holder)[15..], [8, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'c']);
    }
}
