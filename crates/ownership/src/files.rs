//! A store of files that several machines mount: what the steps of a takeover do there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_media::Licence;
use forebay_takeover::{Answer, Patience, Renewal, Seen, Step, Timing};

use crate::command::{FenceCommand, FenceError};
use crate::place::{Lock, OwnerFileError, OwnerPlace};
use crate::process::Process;
use crate::pulse::{Beat, Pulse};
use crate::record::{Holder, Record};
use crate::wait::{NotOwned, own};

/// How a takeover comes on, for whoever looks on.
#[derive(Debug)]
pub enum Progress {
    /// Somebody owns the store: it is waited for a pulse that stands still.
    Waiting(Holder),
    /// The owner ran here and is gone: nobody need be fenced.
    Gone(Holder),
    /// The owner counts as dead, and the fencing command runs.
    Fencing(Holder),
    /// The command says that it is fenced.
    Fenced(Holder),
    /// It is not: nothing is taken.
    NotFenced(Holder, FenceError),
    /// It was fenced, and the file system still keeps its lock.
    StillLocked(Holder),
    /// It was fenced, and shows that it lives.
    FencedLives(Holder),
    /// It would take longer to find itself dead than this server waits: nothing is taken.
    WaitsLonger(Holder, Duration),
    /// A step failed, and is tried again.
    Failed(OwnerFileError),
}

/// An owner file, and who owns the store as it says.
pub type LastOwner = (PathBuf, Result<Option<Holder>, OwnerFileError>);

/// A store of shared files, as one of its servers sees it.
#[derive(Debug)]
pub struct SharedFiles {
    place: OwnerPlace,
    here: Process,
}

impl SharedFiles {
    /// The store on these drives, in any order.
    ///
    /// # Errors
    /// [`OwnerFileError`]: a drive is not there, or no file.
    pub fn find(drives: &[PathBuf]) -> Result<SharedFiles, OwnerFileError> {
        let place = OwnerPlace::beside(drives)?;
        let here = Process::own(place.file_system()?);
        Ok(SharedFiles { place, here })
    }

    /// The owner file of the store on these drives, when there is one, and who wrote there last that it owns the store and has not given it back. Nothing, too, when a drive does not
    /// answer within `patience`: its lock, and those of the others, are asked for when they are opened.
    pub fn last_owner(drives: &[PathBuf], patience: Duration) -> Option<LastOwner> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let drives = drives.to_vec();
        let look = move || {
            let found = OwnerPlace::that_is_there(&drives).map(|place| {
                let record = place.read();
                let holder = record.map(|record| record.filter(|record| !record.given_back).map(Holder::of));
                (place.owner().to_owned(), holder)
            });
            // Nobody may wait any more.
            let _ = answer.send(found);
        };
        // It is left to itself when it hangs. Without threads nothing can be served either.
        std::thread::Builder::new().name("forebay-owner".to_owned()).spawn(look).ok()?;
        answered.recv_timeout(patience).ok().flatten()
    }

    /// After how long without a pulse the last owner takes itself for dead.
    ///
    /// # Errors
    /// [`OwnerFileError`].
    pub fn dead_after(&self) -> Result<Option<Duration>, OwnerFileError> {
        Ok(self.place.read()?.map(|record| record.dead_after()))
    }

    /// Its first drive, beside which the owner file lies.
    pub fn drive(&self) -> &Path {
        self.place.drive()
    }

    /// Comes to own it, and keeps it by a pulse. `lost` is called, once, when another server has it: nobody may be answered any more.
    ///
    /// # Errors
    /// [`NotOwned`]. What fails on the way is told to `tell`, and tried again.
    pub fn own(
        self,
        (timing, patience): (Timing, Patience),
        (address, command): (SocketAddr, &FenceCommand),
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Progress),
        lost: impl FnOnce() + Send + 'static,
    ) -> Result<FilesOwnership, NotOwned<Holder>> {
        let mut attempt = Attempt {
            files: &self,
            timing,
            address,
            command,
            is_stopped,
            seen: None,
            fenced: None,
            lock: None,
            taken: None,
        };
        let owner = own((timing, patience), is_stopped, &mut |step| {
            attempt.take(step, tell).unwrap_or_else(|error| {
                tell(Progress::Failed(error));
                Answer::Unknown
            })
        })?;
        let (record, lock) = (attempt.taken.expect("it was written"), attempt.lock.expect("it was taken"));
        let address = Arc::new(Mutex::new(address));
        let keeper = Keeper { place: self.place, record, address: Arc::clone(&address), _lock: lock };
        Ok(FilesOwnership { pulse: Pulse::start(owner, keeper, lost), address })
    }
}

struct Attempt<'a> {
    files: &'a SharedFiles,
    timing: Timing,
    address: SocketAddr,
    command: &'a FenceCommand,
    is_stopped: &'a dyn Fn() -> bool,
    /// What the last look found.
    seen: Option<Record>,
    /// Whom the command has fenced: once is enough, however often the step is taken.
    fenced: Option<Fenced>,
    lock: Option<Lock>,
    taken: Option<Record>,
}

/// Somebody who shall show no life any more.
struct Fenced {
    identity: (u64, u64),
    /// What the first look after that found.
    pulse: Option<u64>,
}

impl Attempt<'_> {
    fn take(&mut self, step: &Step<Holder>, tell: &mut dyn FnMut(Progress)) -> Result<Answer<Holder>, OwnerFileError> {
        match step {
            Step::Look => self.look(tell),
            Step::Fence(holder) => Ok(self.fence(holder, tell)),
            // Whom the command has fenced asks nothing more of the file system, as it promises.
            Step::AwaitNewestMap | Step::List => Ok(Answer::Done),
            Step::Break(holder) => self.break_lock(holder, tell),
            Step::Lock => self.lock(),
            Step::Own | Step::LeaveAlone(_) => unreachable!("they are no steps to take"),
        }
    }

    fn look(&mut self, tell: &mut dyn FnMut(Progress)) -> Result<Answer<Holder>, OwnerFileError> {
        self.lock = None;
        self.seen = self.files.place.read()?;
        let Some(record) = self.seen.clone().filter(|record| !record.given_back) else {
            return Ok(Answer::Seen(Seen { holder: None, pulse: Vec::new() }));
        };
        let (holder, pulse) = (Holder::of(record.clone()), record.pulse_bytes());
        if record.process == self.files.here {
            // Written in an attempt of this process that failed afterwards: nobody is to be fenced for that.
            let is_free = self.lock_as_seen()?;
            return Ok(if is_free { Answer::Seen(Seen { holder: None, pulse }) } else { Answer::Unknown });
        }
        if record.process.is_known_gone(&self.files.here) && self.lock_as_seen()? {
            tell(Progress::Gone(holder));
            return Ok(Answer::Seen(Seen { holder: None, pulse }));
        }
        if record.dead_after() > self.timing.dead_after() {
            tell(Progress::WaitsLonger(holder, record.dead_after()));
            return Ok(Answer::Unknown);
        }
        self.check_fenced(&holder, tell);
        tell(Progress::Waiting(holder.clone()));
        Ok(Answer::Seen(Seen { holder: Some(holder), pulse }))
    }

    /// A command that said what is not so is run again, when the holder counts as dead again.
    fn check_fenced(&mut self, holder: &Holder, tell: &mut dyn FnMut(Progress)) {
        let (identity, pulse) = (holder.record.identity(), holder.record.pulse);
        let Some(fenced) = self.fenced.as_mut().filter(|fenced| fenced.identity == identity) else { return };
        if *fenced.pulse.get_or_insert(pulse) != pulse {
            self.fenced = None;
            tell(Progress::FencedLives(holder.clone()));
        }
    }

    fn fence(&mut self, holder: &Holder, tell: &mut dyn FnMut(Progress)) -> Answer<Holder> {
        let identity = holder.record.identity();
        if self.fenced.as_ref().is_some_and(|fenced| fenced.identity == identity) {
            return Answer::Done;
        }
        tell(Progress::Fencing(holder.clone()));
        match self.command.run(holder, self.is_stopped) {
            Ok(()) => {
                self.fenced = Some(Fenced { identity, pulse: None });
                tell(Progress::Fenced(holder.clone()));
                Answer::Done
            }
            Err(error) => {
                tell(Progress::NotFenced(holder.clone(), error));
                Answer::Unknown
            }
        }
    }

    /// What was fenced has no lock any more when it has ended, or when the file system has shut its machine out.
    fn break_lock(
        &mut self,
        holder: &Holder,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Answer<Holder>, OwnerFileError> {
        if self.lock_as_seen()? {
            return Ok(Answer::Done);
        }
        tell(Progress::StillLocked(holder.clone()));
        Ok(Answer::Unknown)
    }

    fn lock(&mut self) -> Result<Answer<Holder>, OwnerFileError> {
        if self.lock.is_none() && !self.lock_as_seen()? {
            return Ok(Answer::Held);
        }
        let (files, before) = (self.files, self.seen.as_ref().map_or(0, |record| record.epoch));
        let token = getrandom::u64().expect("the operating system gives random numbers");
        let place = (self.address, files.place.drive().to_string_lossy().into_owned());
        let record = Record::new(before + 1, token, self.timing.dead_after(), place, files.here.clone());
        files.place.write(&record, true)?;
        // Locks that do not hold on all machines would show here.
        if files.place.read()?.as_ref() != Some(&record) {
            self.lock = None;
            return Ok(Answer::Held);
        }
        self.taken = Some(record);
        Ok(Answer::Done)
    }

    /// Takes the lock, if nobody has it and nothing was written since the last look.
    fn lock_as_seen(&mut self) -> Result<bool, OwnerFileError> {
        let Some(lock) = self.files.place.try_lock()? else { return Ok(false) };
        if self.files.place.read()? != self.seen {
            return Ok(false);
        }
        self.lock = Some(lock);
        Ok(true)
    }
}

/// A store of shared files that this process owns, until it is dropped: then it is given back.
pub struct FilesOwnership {
    pulse: Pulse<Keeper>,
    address: Arc<Mutex<SocketAddr>>,
}

impl FilesOwnership {
    /// Until when anybody may be answered.
    pub fn licence(&self) -> &Arc<Licence> {
        self.pulse.licence()
    }

    /// Says where clients reach this server, with the next pulse.
    pub fn listens_at(&self, address: SocketAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Gives the store back: the next server need not wait. Nothing may be on its way to it.
    ///
    /// # Errors
    /// [`OwnerFileError`]: the next server takes it over as from one that is dead.
    pub fn give_back(mut self) -> Result<(), OwnerFileError> {
        self.pulse.end().map_or(Ok(()), Keeper::give_back)
    }
}

impl Drop for FilesOwnership {
    fn drop(&mut self) {
        // Whoever ends without a word would be fenced, perhaps with its whole machine.
        if let Some(keeper) = self.pulse.end() {
            let _ = keeper.give_back();
        }
    }
}

/// Writes the owner file while its process has the lock.
struct Keeper {
    place: OwnerPlace,
    record: Record,
    address: Arc<Mutex<SocketAddr>>,
    _lock: Lock,
}

impl Keeper {
    /// Writes it, if it is still this owner's. That it is not there, or damaged, is mended so: this process has the lock.
    fn write(&mut self, is_durable: bool) -> Result<Renewal, OwnerFileError> {
        match self.place.read() {
            Ok(Some(found)) if found.identity() != self.record.identity() => return Ok(Renewal::NotOwner),
            Ok(_) | Err(OwnerFileError::Record { .. }) => {}
            Err(error) => return Err(error),
        }
        self.record.address = *self.address.lock().unwrap_or_else(PoisonError::into_inner);
        self.place.write(&self.record, is_durable)?;
        Ok(Renewal::Written)
    }

    fn give_back(mut self) -> Result<(), OwnerFileError> {
        self.record.given_back = true;
        self.write(true).map(drop)
    }
}

impl Beat for Keeper {
    fn beat(&mut self, count: u64) -> Renewal {
        self.record.pulse = count;
        self.write(false).unwrap_or_else(|error| match error.is_shut_out() {
            true => Renewal::NotOwner,
            false => Renewal::Unknown,
        })
    }
}
