//! Drives what decides who owns a store (`forebay_takeover`) on the lock of a pool.

use std::sync::Arc;
use std::time::Duration;

use forebay_media::Licence;
use forebay_ownership::{Beat, Pulse};
use forebay_takeover::{Answer, Owner, Patience, Renewal, Seen, Step, Timing};

use crate::cluster::Pool;
use crate::drive::Pools;
use crate::error::RadosError;
use crate::owner::{Holder, OwnerToken, Owners, is_another_owner};
use crate::slots::ExtentName;

/// A fence lasts for so long: as long as nobody forgets it. What was fenced must not come back while anything that it wrote may live.
const FENCE_S: u32 = 10 * 365 * 86_400;

/// Between two attempts to list the objects.
const LIST_AGAIN: Duration = Duration::from_millis(100);

/// How a takeover comes on, for whoever looks on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Somebody owns the store: it is waited for a pulse that stands still.
    Waiting(Holder),
    /// The holder counts as dead, and is fenced.
    Fencing(Holder),
    /// The objects are listed, and so many there are.
    Listed(usize),
    /// This step of a takeover begins.
    Step(&'static str),
    /// The holder counts as dead after longer than here: nothing is taken.
    WaitsLonger(Holder, Duration),
    /// A step failed, and is tried again.
    Failed(RadosError),
}

/// Why a store is not owned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// Its owner lives.
    #[error(
        "the store is served by {address} ({client}), which lives. Nothing was changed. Stop that server; or start this one with --standby, and it takes over \
         when the other is gone; or, when it must go now, `forebay takeover`",
        address = .0.address,
        client = .0.client
    )]
    Alive(Holder),
    /// Whoever waited was stopped.
    #[error("stopped while it waited for the store")]
    Stopped,
}

/// A store that this process owns from now on.
pub struct Owned {
    /// What makes this owner known.
    pub token: OwnerToken,
    /// All objects of its slots.
    pub listed: Vec<ExtentName>,
    owner: Owner,
    owners: Owners,
}

/// Comes to own a store: waits for it as `patience` says, and takes it over from an owner that is dead.
///
/// # Errors
/// [`NotOwned`]. What fails on the way is told to `tell`, and tried again.
pub fn own(
    pools: &Pools,
    lock: &Arc<Pool>,
    (timing, patience): (Timing, Patience),
    description: &str,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<Owned, NotOwned> {
    let mut attempt = Attempt {
        pools,
        owners: Owners::new(Arc::clone(lock)),
        description,
        dead_after: timing.dead_after(),
        listed: None,
        has_just_listed: false,
        epoch_listed: 0,
        pulse_seen: Vec::new(),
        token: None,
    };
    let owner = forebay_ownership::own((timing, patience), is_stopped, &mut |step| {
        attempt.take(step, tell).unwrap_or_else(|error| {
            tell(Progress::Failed(error));
            Answer::Unknown
        })
    });
    let owner = owner.map_err(|why| match why {
        forebay_ownership::NotOwned::Alive(holder) => NotOwned::Alive(holder),
        forebay_ownership::NotOwned::Stopped => NotOwned::Stopped,
    })?;
    let token = attempt.token.expect("the lock was taken");
    // What was listed before another owner came, and went, while this process stood still, is not what there is.
    let listed = attempt.listed.take().filter(|_| token.epoch() == attempt.epoch_listed + 1);
    let listed = attempt.list_if_needed(listed, tell);
    Ok(Owned { token, listed, owner, owners: attempt.owners })
}

struct Attempt<'a> {
    pools: &'a Pools,
    owners: Owners,
    description: &'a str,
    dead_after: Duration,
    listed: Option<Vec<ExtentName>>,
    /// What was listed is no older than the look that follows it.
    has_just_listed: bool,
    /// Of the last owner when the list began.
    epoch_listed: u64,
    /// At the last look.
    pulse_seen: Vec<u8>,
    token: Option<OwnerToken>,
}

impl Attempt<'_> {
    fn take(&mut self, step: &Step<Holder>, tell: &mut dyn FnMut(Progress)) -> Result<Answer<Holder>, RadosError> {
        let cluster = self.owners.cluster();
        let has_just_listed = std::mem::take(&mut self.has_just_listed);
        if let Some(words) = words_of(step).filter(|_| *step != Step::Look || has_just_listed) {
            tell(Progress::Step(words));
        }
        match step {
            Step::Look => {
                if !has_just_listed {
                    self.listed = None;
                }
                let (pulse, holder) = (self.owners.pulse()?, self.owners.holder()?);
                let said = self.owners.dead_after()?.unwrap_or_default();
                if let Some(holder) = holder.clone().filter(|_| said > self.dead_after) {
                    tell(Progress::WaitsLonger(holder, said));
                    return Ok(Answer::Unknown);
                }
                holder.iter().cloned().for_each(|holder| tell(Progress::Waiting(holder)));
                self.pulse_seen.clone_from(&pulse);
                return Ok(Answer::Seen(Seen { holder, pulse }));
            }
            Step::Fence(holder) => {
                tell(Progress::Fencing(holder.clone()));
                cluster.blocklist(&holder.address, FENCE_S)?;
            }
            Step::AwaitNewestMap => cluster.wait_for_newest_map()?,
            Step::List => {
                self.epoch_listed = self.owners.epoch()?;
                // Every drive of both pools is asked, and knows the map afterwards.
                self.pools.places.list(|_| ())?;
                let listed = self.pools.list()?;
                tell(Progress::Listed(listed.len()));
                (self.listed, self.has_just_listed) = (Some(listed), true);
            }
            Step::Break(holder) => self.owners.break_lock(holder, &self.pulse_seen)?,
            Step::Lock => {
                let random = getrandom::u64().expect("the operating system gives random numbers");
                match self.owners.lock(random, self.description, self.dead_after)? {
                    None => return Ok(Answer::Held),
                    Some(token) => self.token = Some(token),
                }
            }
            Step::Own | Step::LeaveAlone(_) => unreachable!("they are no steps to take"),
        }
        Ok(Answer::Done)
    }

    /// Of a store that its last owner gave back, or lost before: nothing is on its way to it.
    fn list_if_needed(&self, listed: Option<Vec<ExtentName>>, tell: &mut dyn FnMut(Progress)) -> Vec<ExtentName> {
        if let Some(listed) = listed {
            return listed;
        }
        loop {
            match self.pools.list() {
                Ok(listed) => {
                    tell(Progress::Listed(listed.len()));
                    return listed;
                }
                Err(error) => tell(Progress::Failed(error)),
            }
            std::thread::sleep(LIST_AGAIN);
        }
    }
}

/// What a step is called where it is told.
fn words_of(step: &Step<Holder>) -> Option<&'static str> {
    match step {
        Step::Look => Some("look again"),
        Step::Fence(_) => Some("fence"),
        Step::AwaitNewestMap => Some("newest map"),
        Step::List => Some("list"),
        Step::Break(_) => Some("break"),
        Step::Lock => Some("lock"),
        Step::Own | Step::LeaveAlone(_) => None,
    }
}

/// Keeps a store for its owner by pulses, until it is given back or lost.
pub struct Ownership {
    pulse: Pulse<Keeper>,
    token: OwnerToken,
}

struct Keeper {
    owners: Owners,
    token: OwnerToken,
}

impl Beat for Keeper {
    fn beat(&mut self, count: u64) -> Renewal {
        match self.owners.beat(&self.token, count) {
            Ok(()) => Renewal::Written,
            Err(error) if is_another_owner(&error) => Renewal::NotOwner,
            Err(_) => Renewal::Unknown,
        }
    }
}

impl Ownership {
    /// Starts the pulse. `lost` is called, once, when the store is lost: nobody may be answered any more.
    ///
    /// # Panics
    /// When the process may have no more threads.
    pub fn keep(owned: Owned, lost: impl FnOnce() + Send + 'static) -> (Ownership, Vec<ExtentName>) {
        let Owned { token, listed, owner, owners } = owned;
        let pulse = Pulse::start(owner, Keeper { owners, token }, lost);
        (Ownership { pulse, token }, listed)
    }

    /// Until when anybody may be answered.
    pub fn licence(&self) -> &Arc<Licence> {
        self.pulse.licence()
    }

    /// What makes this owner known.
    pub fn token(&self) -> OwnerToken {
        self.token
    }

    /// Gives the store back: the next server need not wait. Nothing may be on its way to it.
    ///
    /// # Errors
    /// [`RadosError`]: the next server takes it over as from one that is dead.
    ///
    /// # Panics
    /// When the thread of the pulse did.
    pub fn give_back(mut self) -> Result<(), RadosError> {
        let keeper = self.pulse.end().expect("it is given back once");
        keeper.owners.unlock(&self.token)
    }
}
