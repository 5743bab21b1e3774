//! Stores in the pools of a Ceph cluster: making, owning, serving and taking them over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_media::AlignedBuffer;
use forebay_media_rados::{
    Cluster, Layout, NotOwned, OpenRadosError, Owned, Owners, Ownership, Pool, Progress, RadosDrive, own,
};
use forebay_store::{
    Examination, InitOptions, InitReport, OpenedStore, StoreConfig, examine_remote, open_remote, plan_remote,
    remote_layout,
};
use forebay_takeover::{Patience, Timing};

use crate::failure::Failure;
use crate::pool::Pools;

/// Whether the library of the cluster has threads in this process.
static IS_CONNECTED: AtomicBool = AtomicBool::new(false);

/// Ends the process at once, where the library has threads: while they look for drives that are dead they crash when what they use is taken down around
/// them, as an orderly end of a process does. All that was to be given back is.
pub fn leave(code: u8) {
    if IS_CONNECTED.load(Ordering::Relaxed) {
        signal_hook::low_level::exit(code.into());
    }
}

/// A store in a cluster, whose pools are open.
pub struct Place {
    pools: forebay_media_rados::Pools,
    lock: Arc<Pool>,
    timing: Timing,
}

impl Place {
    /// Connects, and finds the pools.
    ///
    /// # Errors
    /// No cluster answers, there are no such pools, or the name is none.
    pub fn open((pools, name): (&Pools, &str), dead_after: Option<Duration>) -> Result<Place, Failure> {
        // Before anything is connected.
        let said = dead_after.map(Timing::new).transpose().map_err(Failure::usage)?;
        IS_CONNECTED.store(true, Ordering::Relaxed);
        let cluster = Cluster::connect().map_err(Failure::retry)?;
        let refused = |error| match error {
            OpenRadosError::Name { .. } => Failure::usage(error),
            OpenRadosError::Rados(_) => Failure::retry(error),
        };
        let opened = forebay_media_rados::Pools::open(&cluster, &pools.slots, &pools.places, name).map_err(refused)?;
        let lock = Arc::new(cluster.pool(&pools.places, name).map_err(Failure::retry)?);
        let timing = said.map_or_else(|| timing_of(&lock), Ok)?;
        Ok(Place { pools: opened, lock, timing })
    }

    /// Makes a store of so many bytes.
    ///
    /// # Errors
    /// Somebody has it, there is one already, or it cannot be written.
    pub fn init(self, bytes: u64, options: &InitOptions) -> Result<InitReport, Failure> {
        let name = self.pools.name.clone();
        let plan = plan_remote(&name, bytes, options).map_err(crate::init::failure)?;
        let (slots_offset, slot_bytes, bytes) = plan.layout();
        let (ownership, drive) = {
            let (ownership, listed, pools) = self.keep(Patience::UntilSeenAlive, &|| false)?;
            let is_there = !listed.is_empty() || layout_of(&pools)?.is_some();
            if is_there && !options.force {
                drop(ownership.give_back());
                return Err(Failure::usage(format!(
                    "{name} holds a store. Nothing was written. Take another --name, or destroy what it holds by `forebay init --force`"
                )));
            }
            let layout = Layout { slots_offset, slot_bytes, bytes };
            let drive = RadosDrive::open(pools, layout, ownership.token(), listed, Arc::clone(ownership.licence()));
            (ownership, drive.map_err(Failure::retry)?)
        };
        // First that nothing is needed any more, which the owner alone may write: who stood still before this, and was replaced, removes nothing.
        let report = plan.write(&drive).map_err(crate::init::failure)?;
        drive.discard_all().map_err(Failure::retry)?;
        drop(drive);
        ownership.give_back().map_err(Failure::retry)?;
        Ok(report)
    }

    /// Comes to own the store, and opens it.
    ///
    /// # Errors
    /// Its owner lives, there is no store, or it cannot be opened.
    pub fn serve(
        self,
        config: &StoreConfig,
        patience: Patience,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<(OpenedStore, Ownership)>, Failure> {
        let (drive, ownership) = match self.own_store(patience, is_stopped) {
            Err(_) if is_stopped() => return Ok(None),
            owned => owned?,
        };
        let opened = open_remote(drive, config).map_err(crate::serve::open_failure)?;
        Ok(Some((opened, ownership)))
    }

    /// Comes to own the store, and looks at it; nothing is written but whose it is.
    ///
    /// # Errors
    /// As [`Place::serve`].
    pub fn examine(
        self,
        config: &StoreConfig,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(Examination, Ownership), Failure> {
        let (drive, ownership) = self.own_store(Patience::UntilSeenAlive, is_stopped)?;
        match examine_remote(drive, config) {
            Ok(examination) => Ok((examination, ownership)),
            Err(error) => {
                drop(ownership.give_back());
                Err(crate::serve::open_failure(error))
            }
        }
    }

    fn own_store(
        self,
        patience: Patience,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(Arc<RadosDrive>, Ownership), Failure> {
        let (ownership, listed, pools) = self.keep(patience, is_stopped)?;
        let name = pools.name.clone();
        let Some((slots_offset, slot_bytes, bytes)) = layout_of(&pools)? else {
            drop(ownership.give_back());
            return Err(Failure::usage(format!(
                "{name} holds no store. Nothing was written. `forebay init --media` makes one"
            )));
        };
        let layout = Layout { slots_offset, slot_bytes, bytes };
        tell_step("places");
        let drive = RadosDrive::open(pools, layout, ownership.token(), listed, Arc::clone(ownership.licence()))
            .map_err(Failure::retry)?;
        tell_step("recover");
        Ok((Arc::new(drive), ownership))
    }

    /// Takes the store from whoever has it, and leaves it to the next server.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn take_over(self, is_stopped: &dyn Fn() -> bool) -> Result<usize, Failure> {
        let (ownership, listed, _) = self.keep(Patience::None, is_stopped)?;
        ownership.give_back().map_err(Failure::retry)?;
        Ok(listed.len())
    }

    /// Removes a store that nobody serves, with all that it holds.
    ///
    /// # Errors
    /// Somebody serves it, or the cluster refuses.
    pub fn remove(self, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        let (ownership, _, pools) = self.keep(Patience::UntilSeenAlive, is_stopped)?;
        pools.remove_all(ownership.token()).map_err(Failure::retry)?;
        ownership.give_back().map_err(Failure::retry)
    }

    fn keep(
        self,
        patience: Patience,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(Ownership, Vec<forebay_media_rados::ExtentName>, forebay_media_rados::Pools), Failure> {
        let mut told = Told { is_by_hand: patience == Patience::None, ..Told::default() };
        let description = format!("forebay {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
        let owned: Owned =
            own(&self.pools, &self.lock, (self.timing, patience), &description, is_stopped, &mut |progress| {
                told.tell(&progress);
            })
            .map_err(|error| match error {
                NotOwned::Alive(_) | NotOwned::Stopped => Failure::retry(error),
            })?;
        tracing::info!(owner = %owned.token, objects = owned.listed.len(), "the store is this server's");
        let (ownership, listed) = Ownership::keep(owned, lost);
        Ok((ownership, listed, self.pools))
    }
}

/// As the last owner has it, where nobody says anything else.
fn timing_of(lock: &Arc<Pool>) -> Result<Timing, Failure> {
    let known = Owners::new(Arc::clone(lock)).dead_after().map_err(Failure::retry)?;
    known.map_or(Ok(Timing::default()), Timing::new).map_err(Failure::retry)
}

fn layout_of(pools: &forebay_media_rados::Pools) -> Result<Option<(u64, u64, u64)>, Failure> {
    let read = |offset, buffer: &mut AlignedBuffer| pools.read_at(offset, buffer);
    remote_layout(&pools.name, read).map_err(crate::serve::open_failure)
}

/// Nothing may be answered any more, and nothing can be written.
fn lost() {
    tracing::error!(
        "ANOTHER SERVER HAS TAKEN THE STORE OVER: this one ends at once. What it acknowledged is there, and the other serves it; what it did not acknowledge \
         its clients send again. Find out why this one was taken for dead (was it stopped, or cut off?), then start it again with --standby"
    );
    signal_hook::low_level::exit(3);
}

/// For whoever wants to see each step of a takeover, as it begins.
fn tell_step(step: &str) {
    tracing::debug!(step, "takeover");
}

/// What was told of a takeover: once, however often it happens.
#[derive(Default)]
struct Told {
    /// Somebody wants the store, whether its owner lives or not.
    is_by_hand: bool,
    waiting: Option<forebay_media_rados::Holder>,
    failed: Option<String>,
}

impl Told {
    fn tell(&mut self, progress: &Progress) {
        match progress {
            Progress::Waiting(holder) => {
                if self.waiting.as_ref() != Some(holder) {
                    tracing::info!(
                        address = holder.address,
                        client = holder.client,
                        "another server has the store: its pulse is watched"
                    );
                    self.waiting = Some(holder.clone());
                }
            }
            Progress::Fencing(holder) => {
                let why = if self.is_by_hand { "is to let it go" } else { "shows no life" };
                tracing::warn!(
                    address = holder.address,
                    client = holder.client,
                    "the server that has the store {why}: it is fenced, and the store taken over"
                );
            }
            Progress::Listed(objects) => tracing::info!(objects, "the store's objects are listed"),
            Progress::Step(step) => tell_step(step),
            Progress::WaitsLonger(holder, dead_after) => {
                let words = format!(
                    "the server that has the store ({}) counts as dead after {} s: nothing is taken. Start this one with the same --dead-after",
                    holder.address,
                    dead_after.as_secs_f64()
                );
                if self.failed.as_ref() != Some(&words) {
                    tracing::warn!("{words}");
                    self.failed = Some(words);
                }
            }
            Progress::Failed(error) => {
                let words = error.to_string();
                if self.failed.as_ref() != Some(&words) {
                    tracing::warn!("{words}; it is tried again");
                    self.failed = Some(words);
                }
            }
        }
    }
}
