//! A store's one drive: what lies before its slots in one pool, its slots in another.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_media::{AlignedBuffer, BLOCK_BYTES, Licence, Media, MediaError, RemoteDrive, RemoteReport};
use forebay_types::DriveNumber;
use rustix::io::Errno;

use crate::cluster::{Cluster, Pool};
use crate::error::{RadosError, words_of};
use crate::media::RadosMedia;
use crate::operation::Steps;
use crate::owner::{EPOCH, OWNER, OwnerToken};
use crate::slots::{ExtentName, SlotMap};
use crate::sys;
use crate::watch::Watch;

/// What lies before the slots is cut into objects of so many bytes.
pub(crate) const PLACE_BYTES: u64 = 4 << 20;

/// A pool into which fewer slots fit counts as full.
const RESERVE_SLOTS: u64 = 8;

/// Objects that are asked or changed at once where many are.
const AT_ONCE: usize = 64;

/// Where things lie on the drive, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the slots begin.
    pub slots_offset: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes of the whole drive.
    pub bytes: u64,
}

/// Why a store's drive cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRadosError {
    /// The cluster refused something.
    #[error(transparent)]
    Rados(#[from] RadosError),
    /// The name is no name of a store.
    #[error("\"{name}\" is no name for a store: 1 to 64 letters, digits, '-' and '_'. Nothing was done")]
    Name {
        /// What was given.
        name: String,
    },
}

/// A store's namespaces in the pools of a cluster.
pub struct Pools {
    /// For what lies before the slots, and the lock: replicated.
    pub places: Pool,
    /// For slots: erasure-coded, or replicated.
    pub slots: Pool,
    /// What operators know the store by.
    pub name: String,
}

impl Pools {
    /// Those of the store `name`.
    ///
    /// # Errors
    /// [`OpenRadosError`].
    pub fn open(cluster: &Arc<Cluster>, slots: &str, places: &str, name: &str) -> Result<Pools, OpenRadosError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(OpenRadosError::Name { name: name.to_owned() });
        }
        Ok(Pools {
            places: cluster.pool(places, name)?,
            slots: cluster.pool(slots, name)?,
            name: format!("rados:{slots},{places}/{name}"),
        })
    }

    /// Reads before the slots, whoever owns the store; what was never written is zeros.
    ///
    /// # Errors
    /// [`MediaError`].
    pub fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), MediaError> {
        read_places(&self.places, offset_bytes, buffer)
    }

    /// Removes the store, whose lock the caller has: its places first, so that nobody finds it, then its slots. The lock stays, which counts its owners: what one
    /// of a later store of this name writes has other names than what may still come of this one.
    ///
    /// # Errors
    /// [`RadosError`]: what is left is no store, or one whose slots are all there.
    pub fn remove_all(&self, token: OwnerToken) -> Result<(), RadosError> {
        let mut places = Vec::new();
        self.places.list(|name| places.extend(is_place(name).then(|| name.to_owned())))?;
        let slots: Vec<String> = self.list()?.iter().map(ToString::to_string).collect();
        // Not those of a later owner, when this one stood still meanwhile.
        let epoch = token.epoch_digits();
        let remove = |steps: Steps| steps.although_full(sys::FULL_FORCE).remove();
        let of_place = || remove(Steps::new().compare_no_less(EPOCH, epoch.as_bytes()));
        on_each(&self.places, &places, of_place, Errno::NOENT)?;
        on_each(&self.slots, &slots, || remove(Steps::new()), Errno::NOENT).map(drop)
    }

    /// All objects of slots. Every drive of the pool is asked.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn list(&self) -> Result<Vec<ExtentName>, RadosError> {
        list_extents(&self.slots)
    }
}

/// The drive. It may be used by any number of threads at once.
pub struct RadosDrive {
    pub(crate) places: Pool,
    pub(crate) slots: Pool,
    pub(crate) map: Arc<Mutex<SlotMap>>,
    pub(crate) layout: Layout,
    pub(crate) token: OwnerToken,
    append_bytes: u64,
    pub(crate) licence: Arc<Licence>,
    pub(crate) watch: Arc<Watch>,
    name: String,
}

impl RadosDrive {
    /// Opens it for the owner of `token`, who has the lock: makes every object before the slots his. What earlier owners left and nobody needs is removed.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn open(
        pools: Pools,
        layout: Layout,
        token: OwnerToken,
        listed: Vec<ExtentName>,
        licence: Arc<Licence>,
    ) -> Result<RadosDrive, RadosError> {
        let Pools { places, slots, name } = pools;
        let append_bytes = slots.append_bytes()?;
        let mut map = SlotMap::new(layout.slot_bytes, append_bytes, token.epoch());
        let unneeded = map.load(listed);
        let map = Arc::new(Mutex::new(map));
        // What is on its way when the pool is found to be full still fits.
        let reserve_bytes = RESERVE_SLOTS * layout.slot_bytes;
        let watch = Watch::start(Arc::clone(slots.cluster()), slots.name().to_owned(), reserve_bytes);
        let drive = RadosDrive { places, slots, map, layout, token, append_bytes, licence, watch, name };
        drive.take_places()?;
        drive.remove(unneeded);
        Ok(drive)
    }

    /// A write to an object before the slots, which the owner alone may do. They must go on when a pool is nearly full: by them space is freed.
    pub(crate) fn place_steps(&self, bytes: &[u8], in_object: u64) -> Steps {
        Steps::new().although_full(sys::FULL_TRY).compare(OWNER, self.token.bytes()).write(bytes, in_object)
    }

    /// Nothing in any slot is needed any more, which what lies before the slots says already: so it does no harm however late it comes. What could not be removed is
    /// found by the next owner.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn discard_all(&self) -> Result<(), RadosError> {
        let names = locked(&self.map).discard_all();
        self.remove(names);
        self.slots.flush()
    }

    /// Nothing in this range is needed any more.
    pub(crate) fn discard(&self, range: Range<u64>) {
        let Some(slots) = self.layout.slots_within(range) else { return };
        let names: Vec<ExtentName> = slots.flat_map(|slot| locked(&self.map).discard(slot)).collect();
        self.remove(names);
    }

    /// Removes objects, some at once. What is not removed now is found by the next owner.
    fn remove(&self, names: Vec<ExtentName>) {
        for name in names {
            let object = name.to_string();
            let steps = Steps::new().although_full(sys::FULL_FORCE).remove();
            let told = object.clone();
            steps.start(
                &self.slots,
                &object,
                Box::new(move |returned| {
                    if returned < 0 && -returned != Errno::NOENT.raw_os_error() {
                        let why = words_of(-returned);
                        tracing::warn!(
                            object = told,
                            why,
                            "an object that nobody needs was not removed; the next start does it"
                        );
                    }
                }),
            );
        }
    }

    /// Makes all objects before the slots this owner's: from then on no write of an earlier one is taken there, however late it comes. Nor does an earlier one
    /// that stood still before this make them its own again.
    fn take_places(&self) -> Result<(), RadosError> {
        let objects: Vec<String> = (0..self.layout.slots_offset.div_ceil(PLACE_BYTES)).map(place_name).collect();
        let (epoch, token) = (self.token.epoch_digits(), self.token.bytes());
        let name = |steps: Steps| steps.although_full(sys::FULL_TRY).set(OWNER, token).set(EPOCH, epoch.as_bytes());
        let there = || name(Steps::new().compare_no_less(EPOCH, epoch.as_bytes()));
        let missing = on_each(&self.places, &objects, there, Errno::NOENT)?;
        // Those that somebody else makes meanwhile are looked at once more.
        let made = on_each(&self.places, &missing, || name(Steps::new().create_new()), Errno::EXIST)?;
        on_each(&self.places, &made, there, Errno::NOENT).map(drop)
    }
}

impl Drop for RadosDrive {
    fn drop(&mut self) {
        self.watch.end();
    }
}

impl RemoteDrive for RadosDrive {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn bytes(&self) -> u64 {
        self.layout.bytes
    }

    fn flush_multiple_bytes(&self) -> usize {
        let block = BLOCK_BYTES as u64;
        let stripe = self.append_bytes;
        let whole = (1..=block).map(|times| times * stripe).find(|bytes| bytes.is_multiple_of(block));
        whole.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(BLOCK_BYTES)
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut AlignedBuffer, bytes: usize) -> Result<(), MediaError> {
        read_places(&self.places, offset_bytes, &mut buffer[..bytes])
    }

    fn write_at(&self, offset_bytes: u64, buffer: &AlignedBuffer, bytes: usize) -> Result<(), MediaError> {
        for (object, in_object, range) in places_of(offset_bytes, bytes) {
            self.place_steps(&buffer[range], in_object)
                .run(&self.places, &object)
                .map_err(|error| os_error("write", offset_bytes, bytes, error.errno))?;
        }
        Ok(())
    }

    fn report(&self) -> RemoteReport {
        self.watch.report()
    }

    fn licence(&self) -> Arc<Licence> {
        Arc::clone(&self.licence)
    }

    fn media(self: Arc<Self>, number: DriveNumber) -> io::Result<Box<dyn Media + Send>> {
        Ok(Box::new(RadosMedia::new(&[(number, self)])?))
    }
}

/// Does steps on many objects, some at once. Gives those on which they failed with the error that is named.
fn on_each(
    pool: &Pool,
    objects: &[String],
    steps: impl Fn() -> Steps,
    named: Errno,
) -> Result<Vec<String>, RadosError> {
    let tally = Arc::new(Tally::default());
    for object in objects {
        tally.begin();
        let (done, name) = (Arc::clone(&tally), object.clone());
        steps().start(pool, object, Box::new(move |returned| done.end(name, returned, named)));
    }
    tally.wait()
}

/// Operations on many objects, some at once.
#[derive(Default)]
struct Tally {
    state: Mutex<TallyState>,
    changed: Condvar,
}

#[derive(Default)]
struct TallyState {
    running: usize,
    /// Objects that the error came from which whoever asks knows what to do about.
    set_aside: Vec<String>,
    failed: Option<RadosError>,
}

impl Tally {
    fn begin(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |state| state.running >= AT_ONCE);
        waited.unwrap_or_else(PoisonError::into_inner).running += 1;
    }

    fn end(&self, object: String, returned: i32, named: Errno) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        if returned.saturating_neg() == named.raw_os_error() {
            state.set_aside.push(object);
        } else if returned < 0 {
            state.failed.get_or_insert_with(|| RadosError::new(format!("a change of {object}"), returned));
        }
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<Vec<String>, RadosError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |state| state.running > 0);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.failed.take().map_or_else(|| Ok(std::mem::take(&mut state.set_aside)), Err)
    }
}

impl Layout {
    /// The slots that lie in a range whole.
    fn slots_within(&self, range: Range<u64>) -> Option<Range<u32>> {
        let slot = |offset: u64, round_up: bool| {
            let into = offset.checked_sub(self.slots_offset)?;
            let slot = if round_up { into.div_ceil(self.slot_bytes) } else { into / self.slot_bytes };
            u32::try_from(slot).ok()
        };
        Some(slot(range.start, true)?..slot(range.end, false)?)
    }
}

fn list_extents(slots: &Pool) -> Result<Vec<ExtentName>, RadosError> {
    let mut names = Vec::new();
    let mut others = 0usize;
    slots.list(|name| match ExtentName::parse(name) {
        Some(name) => names.push(name),
        None => others += 1,
    })?;
    if others > 0 {
        tracing::warn!(
            pool = slots.name(),
            objects = others,
            "objects in the store's namespace are none of its own: they are left alone"
        );
    }
    Ok(names)
}

fn place_name(index: u64) -> String {
    format!("place.{index:x}")
}

fn is_place(name: &str) -> bool {
    name.strip_prefix("place.").is_some_and(|index| u64::from_str_radix(index, 16).is_ok())
}

/// The objects before the slots that hold a range, each with where in it, and what of the range.
pub(crate) fn places_of(offset_bytes: u64, bytes: usize) -> impl Iterator<Item = (String, u64, Range<usize>)> {
    let end = offset_bytes + bytes as u64;
    let mut at = offset_bytes;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (index, in_object) = (at / PLACE_BYTES, at % PLACE_BYTES);
            let until = end.min((index + 1) * PLACE_BYTES);
            let range = (at - offset_bytes) as usize..(until - offset_bytes) as usize;
            at = until;
            (place_name(index), in_object, range)
        })
    })
}

/// Reads before the slots of whatever store; what was never written is zeros.
fn read_places(places: &Pool, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), MediaError> {
    let bytes = buffer.len();
    for (object, in_object, range) in places_of(offset_bytes, bytes) {
        let part = &mut buffer[range];
        let read = places
            .read(&object, in_object, part)
            .map_err(|error| os_error("read", offset_bytes, bytes, error.errno))?;
        part[read..].fill(0);
    }
    Ok(())
}

pub(crate) fn os_error(operation: &'static str, offset_bytes: u64, bytes: usize, errno: i32) -> MediaError {
    MediaError::Os { operation, offset_bytes, bytes, errno, message: words_of(errno) }
}

pub(crate) fn locked(map: &Mutex<SlotMap>) -> MutexGuard<'_, SlotMap> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(PLACE_BYTES.is_multiple_of(BLOCK_BYTES as u64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_before_the_slots_are_cut_at_objects() {
        let parts: Vec<_> = places_of(PLACE_BYTES - 4096, 8192).collect();
        assert_eq!(parts, [("place.0".to_owned(), PLACE_BYTES - 4096, 0..4096), ("place.1".to_owned(), 0, 4096..8192)]);
        assert_eq!(places_of(0, 4096).count(), 1);
    }

    #[test]
    fn slots_are_discarded_whole() {
        let layout = Layout { slots_offset: 1000, slot_bytes: 100, bytes: 2000 };
        assert_eq!(layout.slots_within(1100..1300), Some(1..3));
        assert_eq!(layout.slots_within(1101..1299), Some(2..2));
        assert_eq!(layout.slots_within(0..1100), None);
    }
}
