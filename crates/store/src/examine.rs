//! Looking at the drives of a stopped store: what each is, what they make together, and the lanes as a start for reading alone has them. The
//! drives are opened for reading, under the lock that a server takes, and nothing is written.

mod lane;
mod remote;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use forebay_engine::{FoundDrive, LaneConfig, OpenError, OpenPlan, OpenRequest, plan_open};
use forebay_format::{DriveState, Superblock};
use forebay_media::{Access, DriveFile, OpenDriveError, OpenMediaError, PatientMedia, RemoteDrive, SilentDrives};
use forebay_types::{DriveNumber, StoreUuid};

use crate::config::StoreConfig;
use crate::open::{Ground, LaneSeed, OpenStoreError, lane_config};
use crate::paths::check_paths;
use crate::profile::Profile;
use crate::superblocks::{NoSuperblock, OPEN_PATIENCE_MIN, is_newer, newest_of, open_within, words_of};
pub use lane::{LaneLook, ReadWanted};
pub use remote::examine_remote;

/// What was found.
pub struct Examination {
    /// Each drive that was named, in order.
    pub drives: Vec<ExaminedDrive>,
    /// The store that most of them make; `None` when none of them is a drive of one.
    pub store: Option<ExaminedStore>,
    /// Why a start for writing with these drives is refused, all reasons; none when it is not.
    pub refusals: Vec<OpenStoreError>,
}

/// A drive that was named.
#[derive(Debug)]
pub struct ExaminedDrive {
    /// How it was named.
    pub path: PathBuf,
    /// Its size in bytes, whole blocks; `None` when it cannot be opened.
    pub bytes: Option<u64>,
    /// Its places for a superblock.
    pub superblocks: Vec<SuperblockPlace>,
    /// Its newest superblock.
    pub newest: Option<Superblock>,
    /// What it is to the store.
    pub standing: Standing,
}

/// A place for a superblock.
#[derive(Clone, Debug)]
pub struct SuperblockPlace {
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// The generation that is there, or why there is none.
    pub generation: Result<u64, String>,
}

/// What a drive is to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A member.
    Member(DriveNumber),
    /// It was taken out: it is read where it helps.
    Out(DriveNumber),
    /// A drive of another store. It was left out of all that follows.
    Foreign(StoreUuid),
    /// It was being put in when the store fell, and the store went on without it: nothing was ever stored on it.
    NeverJoined,
    /// There are others with its UUID; which of them is right cannot be told. All of them were left out of all that follows.
    Copy(Vec<PathBuf>),
    /// It went on by itself, apart from the newest of the others. It was left out of all that follows.
    OtherHistory {
        /// The start in which they differ.
        epoch: u64,
    },
    /// A newer version of the program wrote it. It was left out of all that follows.
    Newer(String),
    /// It holds no superblock; what it is, in words that follow its name.
    NoSuperblock(String),
    /// It cannot be opened.
    NotOpened(String),
    /// It did not answer within this time, and was given up. It was left out of all that follows.
    Silent(Duration),
}

/// A store, whose lanes can be looked at.
pub struct ExaminedStore {
    /// The superblock that counts; its drive fields are those of the drive that it came from.
    pub superblock: Superblock,
    /// Numbers of the drives of the store, members or not, that are not there.
    pub absent: Vec<DriveNumber>,
    plan: OpenPlan,
    /// Those that are there.
    candidates: Vec<Candidate>,
    /// The one drive that is none of this machine's.
    remote: Option<Arc<dyn RemoteDrive>>,
    config: StoreConfig,
}

impl ExaminedStore {
    /// Whether a drive of the store is a member; not when there is none with this number.
    pub fn is_member(&self, number: DriveNumber) -> bool {
        self.superblock.drives.iter().any(|entry| entry.number == number && entry.state == DriveState::Member)
    }

    /// Lanes of the store.
    pub fn lanes(&self) -> u16 {
        self.superblock.geometry.lanes
    }

    /// Looks at a lane as a start for reading alone has it: it recovers from the drives that are there. `waiting` is called now and then.
    ///
    /// # Errors
    /// When the drives cannot be reached as configured.
    pub fn look(&self, lane: u16, waiting: &mut dyn FnMut()) -> Result<LaneLook, OpenMediaError> {
        let file = |uuid| self.candidates.iter().find(|c| c.found.superblock.drive == uuid).map(|c| c.file.clone());
        let (ground, profile) = match &self.remote {
            Some(remote) => (Ground::Remote(Arc::clone(remote)), Profile::Pool),
            None => {
                let drives = self.plan.drives.iter().map(|info| (info.number, file(info.uuid))).collect();
                let kinds = self.candidates.iter().map(|candidate| candidate.file.kind());
                (Ground::Drives(drives), self.config.profile(kinds))
            }
        };
        let mut plan = self.plan.clone();
        plan.drives.iter_mut().for_each(|info| info.present &= !self.absent.contains(&info.number));
        look_at_lane((&plan, &ground, profile), &self.config, lane, waiting)
    }
}

/// Looks at a lane of a store that was found, as a start for reading alone has it, whatever `config` says of that: nothing is written.
pub(crate) fn look_at_lane(
    (plan, ground, profile): (&OpenPlan, &Ground, Profile),
    config: &StoreConfig,
    lane: u16,
    waiting: &mut dyn FnMut(),
) -> Result<LaneLook, OpenMediaError> {
    let silent = SilentDrives::default();
    let media = PatientMedia::new(ground.media(config, None)?, config.drive_timeout(), silent.clone());
    let (epoch, nonce) = (plan.superblock.epoch, plan.superblock.nonce);
    let config = lane_config(lane, plan, plan.drives.clone(), config, profile, epoch, nonce);
    // Nobody listens: there is no control part, since nothing may change.
    let (events, _) = channel();
    let (started, mailbox) = (Instant::now(), Arc::default());
    // It is this media that gives a drive up: whatever the lane asks of it then fails at once.
    let config = LaneConfig { drive_timeout: Duration::MAX, read_only: true, ..config };
    let seed = LaneSeed { config, media: Box::new(media), started, events, mailbox };
    Ok(LaneLook::begin(seed, silent, waiting))
}

impl Examination {
    /// Gives drives up that did not answer while a lane was looked at: from now on they are not there.
    pub fn give_up(&mut self, silent: &[DriveNumber]) {
        let Some(store) = &mut self.store else { return };
        for drive in self.drives.iter_mut().filter(|drive| drive.number().is_some_and(|n| silent.contains(&n))) {
            store.absent.extend(drive.number());
            drive.standing = Standing::Silent(store.config.drive_timeout());
        }
        store.absent.sort_unstable();
        let drives = &self.drives;
        store.candidates.retain(|candidate| !matches!(drives[candidate.at].standing, Standing::Silent(_)));
        self.refusals.retain(|refused| !matches!(refused, OpenStoreError::Plan(OpenError::TooFewMembers { .. })));
        self.refusals.extend(refusal(&store.candidates));
    }
}

impl ExaminedDrive {
    /// Its number, when it is a drive of the store.
    pub fn number(&self) -> Option<DriveNumber> {
        match self.standing {
            Standing::Member(number) | Standing::Out(number) => Some(number),
            _ => None,
        }
    }

    /// How many bytes it had when the store was made, when it has fewer now.
    pub fn cut_off_from(&self, superblock: &Superblock) -> Option<u64> {
        let number = self.number()?;
        let entry = superblock.drives.iter().find(|entry| entry.number == number)?;
        (self.bytes? < entry.bytes).then_some(entry.bytes)
    }
}

/// A drive that holds a superblock.
struct Candidate {
    /// Its place in the list of all drives.
    at: usize,
    found: FoundDrive,
    file: Arc<DriveFile>,
}

/// Looks at drives. `config` says how they are reached and how much memory there is; nothing is written whatever it says.
///
/// # Errors
/// [`OpenStoreError`] when they cannot be looked at at all: one is in use, is named twice, or cannot be reached as configured.
pub fn examine(paths: &[PathBuf], config: &StoreConfig) -> Result<Examination, OpenStoreError> {
    let config = only_reading(config);
    check_paths(paths)?;
    let (mut drives, mut candidates, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        let (drive, candidate) = look_at(path, &config, drives.len(), &mut refusals)?;
        drives.push(drive);
        candidates.extend(candidate);
    }
    keep_one_store(&mut candidates, &mut drives, &mut refusals);
    let Some(plan) = plan_with_what_fits(&mut candidates, &mut drives, &mut refusals) else {
        return Ok(Examination { drives, store: None, refusals });
    };
    for (candidate, number) in candidates.iter().zip(&plan.numbers) {
        let is_member = |number| plan.drives.iter().any(|info| info.number == number && info.member);
        drives[candidate.at].standing = match *number {
            Some(number) if is_member(number) => Standing::Member(number),
            Some(number) => Standing::Out(number),
            None => Standing::NeverJoined,
        };
    }
    refusals.extend(refusal(&candidates));
    let absent = plan.drives.iter().filter(|info| !info.present).map(|info| info.number).collect();
    let store = ExaminedStore { superblock: plan.superblock.clone(), absent, plan, candidates, remote: None, config };
    Ok(Examination { drives, store: Some(store), refusals })
}

fn only_reading(config: &StoreConfig) -> StoreConfig {
    StoreConfig { read_only: true, fault_injection: false, parity_min: None, ..config.clone() }
}

/// Why a start for writing with these drives would be refused.
fn refusal(candidates: &[Candidate]) -> Option<OpenStoreError> {
    let found: Vec<FoundDrive> = candidates.iter().map(|candidate| candidate.found.clone()).collect();
    plan_open(&found, OpenRequest { read_only: false }).err().map(Into::into)
}

fn look_at(
    path: &Path,
    config: &StoreConfig,
    at: usize,
    refusals: &mut Vec<OpenStoreError>,
) -> Result<(ExaminedDrive, Option<Candidate>), OpenStoreError> {
    let mut examined = ExaminedDrive {
        path: path.to_owned(),
        bytes: None,
        superblocks: Vec::new(),
        newest: None,
        standing: Standing::NotOpened(String::new()),
    };
    let patience = config.drive_timeout().max(OPEN_PATIENCE_MIN);
    let (file, places) = match open_within(path, config.media.direct, Access::SharedReadOnly, patience) {
        Some(Ok(opened)) => opened,
        Some(Err(error @ OpenDriveError::InUse { .. })) => return Err(error.into()),
        Some(Err(error)) => {
            examined.standing = Standing::NotOpened(error.to_string());
            return Ok((examined, None));
        }
        None => {
            examined.standing = Standing::Silent(patience);
            return Ok((examined, None));
        }
    };
    examined.bytes = Some(file.bytes());
    let place = |(offset_bytes, read): &(u64, Result<Superblock, NoSuperblock>)| SuperblockPlace {
        offset_bytes: *offset_bytes,
        generation: read.as_ref().map(|superblock| superblock.generation).map_err(ToString::to_string),
    };
    examined.superblocks = places.iter().map(place).collect();
    match newest_of(places.into_iter().map(|(_, read)| read)) {
        Ok(superblock) => {
            examined.newest = Some(superblock.clone());
            let found = FoundDrive { path: path.display().to_string(), superblock };
            return Ok((examined, Some(Candidate { at, found, file: Arc::new(file) })));
        }
        Err(reasons) => match reasons.iter().find(|reason| is_newer(reason)).cloned().and_then(NoSuperblock::format) {
            Some(source) => {
                examined.standing = Standing::Newer(source.to_string());
                refusals.push(OpenStoreError::Newer { path: path.to_owned(), source });
            }
            None => {
                examined.standing = Standing::NoSuperblock(words_of(&reasons));
            }
        },
    }
    Ok((examined, None))
}

/// Of drives of several stores those are kept of which there are most; of as many, those that were named first.
fn keep_one_store(candidates: &mut Vec<Candidate>, drives: &mut [ExaminedDrive], refusals: &mut Vec<OpenStoreError>) {
    let count = |store: StoreUuid| candidates.iter().filter(|c| c.found.superblock.store == store).count();
    let Some(most) = candidates.iter().rev().max_by_key(|c| count(c.found.superblock.store)) else { return };
    let (kept, other) = (most.found.superblock.store, most.found.path.clone());
    candidates.retain(|candidate| {
        let store = candidate.found.superblock.store;
        if store != kept {
            drives[candidate.at].standing = Standing::Foreign(store);
            let path = candidate.found.path.clone();
            refusals.push(OpenError::ForeignDrive { path, found: store, other: other.clone(), expected: kept }.into());
        }
        store == kept
    });
}

/// The plan of the drives that make one store; those that do not fit are left out, and said.
fn plan_with_what_fits(
    candidates: &mut Vec<Candidate>,
    drives: &mut [ExaminedDrive],
    refusals: &mut Vec<OpenStoreError>,
) -> Option<OpenPlan> {
    while !candidates.is_empty() {
        let found: Vec<FoundDrive> = candidates.iter().map(|candidate| candidate.found.clone()).collect();
        let error = match plan_open(&found, OpenRequest { read_only: true }) {
            Ok(plan) => return Some(plan),
            Err(error) => error,
        };
        let before = candidates.len();
        leave_out(&error, candidates, drives);
        refusals.push(error.into());
        assert!(candidates.len() < before, "each reason is about a drive that was found");
    }
    None
}

/// Leaves out the drives that an error is about.
fn leave_out(error: &OpenError, candidates: &mut Vec<Candidate>, drives: &mut [ExaminedDrive]) {
    let copies: Vec<PathBuf> = match error {
        OpenError::DuplicateDrive { uuid, .. } => {
            let same = candidates.iter().filter(|c| c.found.superblock.drive == *uuid);
            same.map(|c| drives[c.at].path.clone()).collect()
        }
        _ => Vec::new(),
    };
    candidates.retain(|candidate| {
        let path = &drives[candidate.at].path;
        let standing = match error {
            OpenError::ForeignDrive { path, found, .. } if *path == candidate.found.path => Standing::Foreign(*found),
            OpenError::TwoHistories { second, epoch, .. } if *second == candidate.found.path => {
                Standing::OtherHistory { epoch: *epoch }
            }
            OpenError::DuplicateDrive { uuid, .. } if candidate.found.superblock.drive == *uuid => {
                Standing::Copy(copies.iter().filter(|copy| *copy != path).cloned().collect())
            }
            _ => return true,
        };
        drives[candidate.at].standing = standing;
        false
    });
}
