//! Opening a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use forebay_engine::{Control, DriveInfo, FoundDrive, Lane, LaneConfig, OpenError, OpenPlan, OpenRequest, plan_open};
use forebay_format::{FormatError, Geometry, Superblock};
use forebay_media::{
    Access, DriveFile, DriveIdentity, DriveMeters, FaultSwitch, FaultyMedia, Licence, Media, MeteredMedia,
    OpenDriveError, OpenMediaError, RemoteDrive, open_media,
};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};

use crate::config::StoreConfig;
use crate::control::{ControlHandle, ControlThread};
use crate::init::random;
use crate::paths::check_paths;
use crate::profile::Profile;
use crate::runner::{LaneRunner, Mailbox};
use crate::superblocks::{NoSuperblock, OPEN_PATIENCE_MIN, is_newer, newest_of, open_within, words_of};

/// What a store is, for its clients.
#[derive(Clone, Copy, Debug)]
pub struct StoreInfo {
    /// Its UUID.
    pub store: StoreUuid,
    /// The start that this is.
    pub epoch: u64,
    /// Lanes.
    pub lanes: u16,
    /// The largest fragment, in bytes.
    pub fragment_bytes_max: u32,
    /// Whether it is open for reading alone.
    pub read_only: bool,
    /// Whether it is of a format version that has files.
    pub has_files: bool,
}

/// An open store whose lanes wait for their threads.
pub struct OpenedStore {
    /// One for each lane, in order.
    pub runners: Vec<LaneSeed>,
    /// The control part, which runs already.
    pub control: ControlHandle,
    /// What it is.
    pub info: StoreInfo,
    /// What goes to each drive and comes from it, of all lanes and the control part.
    pub meters: DriveMeters,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// Until when anybody may be answered, where another server may come to own the store.
    pub licence: Option<Arc<Licence>>,
}

impl OpenedStore {
    /// Whether the store is of a format version that has files. Else whoever asks for files is refused, and told of `forebay upgrade`.
    pub fn has_files(&self) -> bool {
        self.info.has_files
    }
}

/// A lane on its way to its thread.
pub struct LaneSeed {
    pub(crate) config: LaneConfig,
    pub(crate) media: Box<dyn Media + Send>,
    pub(crate) started: Instant,
    pub(crate) events: std::sync::mpsc::Sender<(u16, forebay_engine::LaneEvent)>,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl LaneSeed {
    /// The number of the lane.
    pub fn lane(&self) -> u16 {
        self.config.lane
    }

    /// Starts the lane in this thread, which keeps it.
    pub fn start(self) -> LaneRunner {
        let number = self.config.lane;
        let lane = Lane::new(self.config, forebay_types::Time::default());
        LaneRunner::new(number, lane, self.media, self.started, self.events, self.mailbox)
    }
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// The drives do not make a store that may start.
    #[error(transparent)]
    Plan(#[from] OpenError),
    /// A drive is in use.
    #[error(transparent)]
    Drive(#[from] OpenDriveError),
    /// Two paths are one drive.
    #[error("{} and {} are one drive, given twice. Nothing was written. Name each drive once", first.display(), second.display())]
    Twice {
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A path is a directory.
    #[error("{} is a directory, and a drive is a block device or a file; nothing was written. Name the drives in it", path.display())]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// A drive was written by a newer version.
    #[error(
        "{}: {source}. Nothing was written. If the others are of this version, and this one is only damaged, leave it out: what it held is \
         computed from the others",
        path.display()
    )]
    Newer {
        /// The drive.
        path: PathBuf,
        /// What it says of itself.
        source: FormatError,
    },
    /// The drives cannot be reached as configured.
    #[error(transparent)]
    Media(#[from] OpenMediaError),
    /// The start could not be made durable.
    #[error(
        "the start could not be written to the drives: {0}. Nothing that was stored is changed, but some drives may hold a list of members \
         already from which those are missing that did not answer; see to the drives, then start with all of them"
    )]
    Start(String),
    /// A remote drive holds no store that can be opened.
    #[error("{name} {why}. Nothing was written")]
    Remote {
        /// The drive.
        name: String,
        /// Why not, in words that follow its name.
        why: String,
    },
    /// More parities were asked for than the store has.
    #[error(
        "--parity-min {asked}: the store was made with {parity} parities, and new data cannot have more; nothing was started"
    )]
    ParityMin {
        /// What was asked for.
        asked: u8,
        /// What the store has.
        parity: u8,
    },
    /// No drive could be used; why, for each.
    #[error("no drive of a store could be used:\n{why}")]
    NoDrives {
        /// Why, for each.
        why: String,
        /// Something is there, at one of the paths at least.
        is_any_there: bool,
    },
}

/// Opens a store: finds out what the drives are, makes the start durable, and prepares the lanes.
///
/// # Errors
/// [`OpenStoreError`].
pub fn open(paths: &[PathBuf], config: &StoreConfig) -> Result<OpenedStore, OpenStoreError> {
    let FoundStore { plan, ground, profile, .. } = find_store(paths, config)?;
    open_on(ground, plan, profile, config)
}

/// Opens what was found, and makes the start durable.
pub(crate) fn open_on(
    ground: Ground,
    mut plan: OpenPlan,
    profile: Profile,
    config: &StoreConfig,
) -> Result<OpenedStore, OpenStoreError> {
    forebay_media::return_large_memory();
    let config = &StoreConfig { drive_kind: Some(profile), ..config.clone() };
    // Whoever asks for the status later is told the same.
    plan.warnings.extend(less_parity(config, plan.superblock.geometry.parity_shards)?);
    let warnings = plan.warnings.clone();
    let switch = config.fault_injection.then(FaultSwitch::new);
    let nonce = u64::from_le_bytes(random());
    let meters = DriveMeters::new();
    let media = || ground.media(config, switch.as_ref()).map(|media| metered(media, &meters));
    let control =
        (!config.read_only).then(|| Control::start(&plan, nonce, parity_min(config, &plan.superblock.geometry)));
    let (events, events_of_lanes) = channel();
    let mailboxes: Vec<Arc<Mailbox>> = (0..plan.superblock.geometry.lanes).map(|_| Arc::default()).collect();
    let thread = ControlThread::new(control, media()?, mailboxes.clone(), &plan, &ground, config, switch.clone());
    let (thread, lane_drives) = thread.start_store().map_err(OpenStoreError::Start)?;
    let epoch = if config.read_only { plan.superblock.epoch } else { plan.superblock.epoch + 1 };
    let started = Instant::now();
    let geometry = plan.superblock.geometry;
    let flush_bytes = config.flush_bytes(profile, geometry.lanes, geometry.slot_bytes);
    let (flush_depth, flush_interval) = (config.flush_depth(profile), config.flush_interval(profile));
    tracing::info!(drive_kind = ?profile, flush_bytes, flush_depth, ?flush_interval, "how flushes are made");
    let mut runners = Vec::new();
    let is_shared = ground.remote().is_some() || config.licence.is_some();
    let blocked_after = is_shared.then_some(crate::remote::BLOCKED_AFTER);
    for (lane, mailbox) in mailboxes.into_iter().enumerate() {
        let config = lane_config(lane as u16, &plan, lane_drives.clone(), config, profile, epoch, nonce);
        let config = LaneConfig { blocked_after, ..ground.suited(config) };
        runners.push(LaneSeed { config, media: media()?, started, events: events.clone(), mailbox });
    }
    drop(events);
    let geometry = plan.superblock.geometry;
    let info = StoreInfo {
        store: plan.superblock.store,
        epoch,
        lanes: geometry.lanes,
        fragment_bytes_max: geometry.fragment_bytes_max,
        read_only: config.read_only,
        has_files: plan.superblock.has_files(),
    };
    let licence = ground.remote().map(|drive| drive.licence()).or_else(|| config.licence.clone());
    Ok(OpenedStore { runners, control: thread.spawn(events_of_lanes), info, meters, warnings, licence })
}

/// Every drive of a store, and its file when it is there.
pub(crate) type Drives = Vec<(DriveNumber, Option<Arc<DriveFile>>)>;

/// What a store stands on.
pub(crate) enum Ground {
    /// Files and devices of this machine.
    Drives(Drives),
    /// One drive that is none.
    Remote(Arc<dyn RemoteDrive>),
}

/// A remote drive has one number for ever.
pub(crate) const REMOTE: DriveNumber = DriveNumber(0);

impl Ground {
    /// A way to it for a lane, or the control part.
    pub(crate) fn media(
        &self,
        config: &StoreConfig,
        switch: Option<&FaultSwitch>,
    ) -> Result<Box<dyn Media + Send>, OpenMediaError> {
        match self {
            Ground::Drives(drives) => Ok(switched(open_media(drives, &config.media)?, switch)),
            Ground::Remote(drive) => {
                let refused = |source| OpenMediaError::Remote { name: drive.name(), source };
                Ok(switched(Arc::clone(drive).media(REMOTE).map_err(refused)?, switch))
            }
        }
    }

    /// The drive that is none of this machine's.
    pub(crate) fn remote(&self) -> Option<&Arc<dyn RemoteDrive>> {
        match self {
            Ground::Drives(_) => None,
            Ground::Remote(drive) => Some(drive),
        }
    }

    /// Where operators find a drive, and what was opened there.
    pub(crate) fn place_of(&self, number: DriveNumber) -> Option<(String, Option<DriveIdentity>)> {
        match self {
            Ground::Drives(drives) => {
                let (_, file) = drives.iter().find(|(known, _)| *known == number)?;
                let file = file.as_deref()?;
                Some((file.path().display().to_string(), Some(file.identity().clone())))
            }
            Ground::Remote(drive) => (number == REMOTE).then(|| (drive.name(), None)),
        }
    }

    fn suited(&self, config: LaneConfig) -> LaneConfig {
        match self {
            Ground::Drives(_) => config,
            Ground::Remote(drive) => LaneConfig {
                flush_multiple_bytes: drive.flush_multiple_bytes(),
                tells_freed: !config.read_only,
                drive_timeout: crate::remote::PATIENCE,
                ..config
            },
        }
    }
}

/// The drives of a store, opened, and how it starts on them.
pub(crate) struct FoundStore {
    /// Its warnings are all that an operator should know.
    pub(crate) plan: OpenPlan,
    pub(crate) ground: Ground,
    pub(crate) profile: Profile,
    /// Every member that was found says the same format version: else an upgrade was cut off.
    pub(crate) is_agreed: bool,
}

/// Finds out what the drives are, and whether the store may start on them. Nothing is written.
pub(crate) fn find_store(paths: &[PathBuf], config: &StoreConfig) -> Result<FoundStore, OpenStoreError> {
    check_paths(paths)?;
    let mut warnings = Vec::new();
    let (found, files) = find_drives(paths, config, &mut warnings)?;
    let profile = config.profile(files.iter().map(|file| file.kind()));
    let mut plan = plan_open(&found, OpenRequest { read_only: config.read_only })?;
    warnings.append(&mut plan.warnings);
    plan.warnings = warnings;
    let place = |number| plan.numbers.iter().position(|known| *known == Some(number));
    let drive = |info: &DriveInfo| (info.number, place(info.number).map(|at| files[at].clone()));
    let drives = plan.drives.iter().map(drive).collect();
    let is_member = |drive: DriveUuid| plan.drives.iter().any(|info| info.uuid == drive && info.member);
    let members = found.iter().map(|drive| &drive.superblock).filter(|superblock| is_member(superblock.drive));
    let is_agreed = members.into_iter().all(|own| own.format_version == plan.superblock.format_version);
    Ok(FoundStore { plan, ground: Ground::Drives(drives), profile, is_agreed })
}

fn switched(media: Box<dyn Media + Send>, switch: Option<&FaultSwitch>) -> Box<dyn Media + Send> {
    match switch {
        Some(switch) => Box::new(FaultyMedia::new(media, switch.clone())),
        None => media,
    }
}

/// What happened to so many events is remembered for those who look on: 512 KiB a lane. One that asks every 50 ms misses nothing up to 160 000 events a second
/// and lane.
const TOLD_EVENTS: usize = 8192;

/// What goes to the drives is counted outside of the fault switch: a fault that is made counts as one that came.
fn metered(media: Box<dyn Media + Send>, meters: &DriveMeters) -> Box<dyn Media + Send> {
    Box::new(MeteredMedia::new(media, meters.clone()))
}

pub(crate) fn lane_config(
    lane: u16,
    plan: &OpenPlan,
    drives: Vec<DriveInfo>,
    config: &StoreConfig,
    profile: Profile,
    epoch: u64,
    nonce: u64,
) -> LaneConfig {
    let geometry = plan.superblock.geometry;
    let share = |bytes: u64| usize::try_from(bytes / u64::from(geometry.lanes)).unwrap_or(usize::MAX);
    let flush_bytes = config.flush_bytes(profile, geometry.lanes, geometry.slot_bytes);
    LaneConfig {
        store: plan.superblock.store,
        lane,
        geometry,
        drives,
        epoch,
        nonce,
        flush_bytes: usize::try_from(flush_bytes).unwrap_or(usize::MAX),
        flush_depth: config.flush_depth(profile) as usize,
        flush_interval: config.flush_interval(profile),
        cache_bytes: share(config.cache_bytes),
        index_bytes: share(config.index_bytes()),
        drive_timeout: config.drive_timeout(),
        incomplete_after: std::time::Duration::from_millis(config.incomplete_after_ms),
        lease_attempts_max: config.lease_attempts_max,
        background_percent: config.background_percent,
        rebuild_percent: config.rebuild_percent,
        background_read_bytes: profile.background_read_bytes(),
        read_through_bytes: profile.read_through_bytes(),
        scrub_period: std::time::Duration::from_secs(config.scrub_period_s),
        parity_min: parity_min(config, &geometry),
        told_events: TOLD_EVENTS,
        flush_multiple_bytes: BLOCK_BYTES,
        tells_freed: false,
        blocked_after: None,
        read_only: config.read_only,
        has_files: plan.superblock.has_files(),
    }
}

/// Parities that new data get at least.
pub(crate) fn parity_min(config: &StoreConfig, geometry: &Geometry) -> u8 {
    config.parity_min.unwrap_or(geometry.parity_shards)
}

/// What it means that an operator lets new data have less protection.
fn less_parity(config: &StoreConfig, parity: u8) -> Result<Option<String>, OpenStoreError> {
    let Some(asked) = config.parity_min else { return Ok(None) };
    if asked > parity {
        return Err(OpenStoreError::ParityMin { asked, parity });
    }
    Ok((asked < parity).then(|| {
        format!(
            "started with --parity-min {asked}: with too few drives new data stand the loss of {asked} drives instead of {parity}; put drives back and start without it"
        )
    }))
}

/// How long a start waits for a drive to say what it is: it may be asleep, or try for long to read a bad place, and one that is left out is taken
/// out of the store. So many of the timeouts of a drive that serves, and so long at most.
const OPEN_TIMEOUTS: u32 = 60;
const OPEN_PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Opens every path and reads its superblock. A path that gives none is a drive that is not there; that it is in use by someone
/// else is an error.
fn find_drives(
    paths: &[PathBuf],
    config: &StoreConfig,
    warnings: &mut Vec<String>,
) -> Result<(Vec<FoundDrive>, Vec<Arc<DriveFile>>), OpenStoreError> {
    let access = if config.read_only { Access::SharedReadOnly } else { Access::Exclusive };
    let patience = (config.drive_timeout() * OPEN_TIMEOUTS).clamp(OPEN_PATIENCE_MIN, OPEN_PATIENCE_MAX);
    let (mut found, mut files, mut is_any_there) = (Vec::new(), Vec::new(), false);
    let mut left_out = Vec::new();
    for path in paths {
        let (drive, superblocks) = match open_within(path, config.media.direct, access, patience) {
            Some(Ok(opened)) => opened,
            Some(Err(error @ OpenDriveError::InUse { .. })) => return Err(error.into()),
            Some(Err(error)) => {
                is_any_there |= !error.is_missing();
                left_out.push(error.to_string());
                continue;
            }
            None => {
                left_out.push(format!(
                    "drive {} did not answer within {} s when it was opened. What it holds is not changed. See to it and to its cabling (`dmesg` \
                     tells what the system knows of it)",
                    path.display(),
                    patience.as_secs()
                ));
                continue;
            }
        };
        match newest_of(superblocks.into_iter().map(|(_, read)| read)) {
            Ok(superblock) => {
                warnings.extend(cut_off(&drive, &superblock));
                found.push(FoundDrive { path: path.display().to_string(), superblock });
                files.push(Arc::new(drive));
            }
            // It may be the newest of them all: what this program would write must not compete with it.
            Err(reasons) if reasons.iter().any(is_newer) => {
                let source = reasons.into_iter().find(is_newer).and_then(NoSuperblock::format);
                return Err(OpenStoreError::Newer { path: path.clone(), source: source.expect("found just now") });
            }
            Err(reasons) => {
                is_any_there = true;
                left_out.push(format!("{} {}", path.display(), words_of(&reasons)));
            }
        }
    }
    if found.is_empty() {
        return Err(OpenStoreError::NoDrives { why: left_out.join("\n"), is_any_there });
    }
    warnings.extend(left_out.into_iter().map(|why| format!("{why}; going on without it")));
    Ok((found, files))
}

/// What an operator should know of a drive that is shorter than it was.
fn cut_off(drive: &DriveFile, superblock: &Superblock) -> Option<String> {
    let entry = superblock.drives.iter().find(|entry| entry.uuid == superblock.drive)?;
    (drive.bytes() < entry.bytes).then(|| {
        format!(
            "{} (drive {}) has {} bytes and had {} when the store was made: it was cut off. What lay behind is computed from the other \
             drives while no more of them are missing than there is parity; the drive is taken out as soon as it is needed there: replace it",
            drive.path().display(),
            entry.number,
            drive.bytes(),
            entry.bytes
        )
    })
}
