//! Giving a stopped store the newest format version (`docs/format.md`, "Versions").

use std::path::PathBuf;

use forebay_engine::{Control, KeptRun};
use forebay_format::{DriveState, FORMAT_VERSION};
use forebay_media::OpenMediaError;
use forebay_types::{DriveNumber, ReadOutcome, StoreUuid};

use crate::config::StoreConfig;
use crate::control::ControlThread;
use crate::examine::look_at_lane;
use crate::init::random;
use crate::open::{FoundStore, OpenStoreError, find_store};

/// What an upgrade did.
#[derive(Clone, Debug)]
pub struct UpgradeReport {
    /// The store.
    pub store: StoreUuid,
    /// The format version that it had.
    pub before: u16,
    /// The format version that it has now, or would have.
    pub after: u16,
    /// Whether anything was written. Not when the store had the newest version, nor when that was not wanted.
    pub written: bool,
    /// Members that hold it now, or would.
    pub members: Vec<DriveNumber>,
    /// Members that were not there or did not take it: they were taken out of the store, as by any start, or would be.
    pub left_out: Vec<DriveNumber>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// Why a store was not upgraded.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// It could not even be started.
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    /// There are events under the run that is kept for files.
    #[error(
        "lane {lane} of the store knows events of run 4294967295 ({stored} stored, {finished} rejected, deleted or released), and stores with \
         files keep this run for their numbers. Nothing was written; the store stays of format version {version} and is served as before, \
         without files. Events that are over are remembered for as long as a store lives: to have files, ship or copy what is in this one and \
         make it anew with `forebay init`"
    )]
    KeptRun {
        /// The first lane that knows some.
        lane: u16,
        /// Events that are not over.
        stored: u64,
        /// Events that are.
        finished: u64,
        /// The version of the store.
        version: u16,
    },
    /// Something that was stored cannot be read.
    #[error(
        "lane {lane} of the store has something that cannot be read ({outcome}), and it may be of run 4294967295, which stores with files keep \
         for their numbers. Nothing was written; the store stays of format version {version} and is served as before. {}",
        advice(*outcome)
    )]
    Hidden {
        /// The first lane that has some.
        lane: u16,
        /// Whether it is out of reach or lost.
        outcome: ReadOutcome,
        /// The version of the store.
        version: u16,
    },
    /// A lane did not recover.
    #[error(
        "lane {lane} of the store cannot be read: {reason}. Nothing was written; the store stays of format version {version}. `forebay doctor` \
         says what is wrong with its drives"
    )]
    Unreadable {
        /// The lane.
        lane: u16,
        /// Why.
        reason: String,
        /// The version of the store.
        version: u16,
    },
    /// The drives did not take it.
    #[error(
        "the new format version could not be written to enough drives: {0}. Nothing that was stored is changed, and whichever version the drives \
         that took it say counts: see to the drives, then run this again with all of them"
    )]
    Write(String),
}

fn advice(outcome: ReadOutcome) -> &'static str {
    match outcome {
        ReadOutcome::Unavailable => {
            "Attach the drives that are missing, or start the server once and stop it in order, so that what a crash left is settled; then \
             run this again"
        }
        _ => {
            "What is lost stays lost (`forebay doctor` names it): to have files, ship or copy what is left and make the store anew"
        }
    }
}

impl From<OpenMediaError> for UpgradeError {
    fn from(error: OpenMediaError) -> Self {
        UpgradeError::Open(error.into())
    }
}

/// Gives a stopped store the newest format version, when `write` is set; else only says whether it could be done. Every lane is looked at before anything is
/// written, and then the superblocks of all members alone are written: whatever befalls that, the next start finds the old version or the new one, and
/// this can be called again. `waiting` is called now and then, with the lane that is looked at.
///
/// # Errors
/// [`UpgradeError`].
pub fn upgrade(
    paths: &[PathBuf],
    config: &StoreConfig,
    write: bool,
    waiting: &mut dyn FnMut(u16),
) -> Result<UpgradeReport, UpgradeError> {
    let config = StoreConfig { read_only: false, fault_injection: false, parity_min: None, ..config.clone() };
    let found = find_store(paths, &config)?;
    let config = StoreConfig { drive_kind: Some(found.profile), ..config };
    let superblock = &found.plan.superblock;
    let is_new = superblock.format_version == FORMAT_VERSION;
    if !is_new {
        for lane in 0..superblock.geometry.lanes {
            check_lane(&found, &config, lane, &mut || waiting(lane))?;
        }
    }
    let mut report = UpgradeReport {
        store: superblock.store,
        before: superblock.format_version,
        after: FORMAT_VERSION,
        written: write && !(is_new && found.is_agreed),
        members: found.plan.drives.iter().filter(|drive| drive.member && drive.present).map(|d| d.number).collect(),
        left_out: found.plan.absent_members.clone(),
        warnings: found.plan.warnings.clone(),
    };
    if report.written {
        write_version(&found, &config, &mut report)?;
    }
    Ok(report)
}

/// Looks whether a lane may get files.
fn check_lane(
    found: &FoundStore,
    config: &StoreConfig,
    lane: u16,
    waiting: &mut dyn FnMut(),
) -> Result<(), UpgradeError> {
    let version = found.plan.superblock.format_version;
    let mut look = look_at_lane((&found.plan, &found.ground, found.profile), config, lane, waiting)?;
    if let Err(reason) = look.lane().serves_reads() {
        return Err(UpgradeError::Unreadable { lane, reason: reason.to_owned(), version });
    }
    match look.lane().kept_run() {
        KeptRun::Unused => Ok(()),
        KeptRun::Used { stored, finished } => Err(UpgradeError::KeptRun { lane, stored, finished, version }),
        KeptRun::Hidden(outcome) => Err(UpgradeError::Hidden { lane, outcome, version }),
    }
}

fn write_version(found: &FoundStore, config: &StoreConfig, report: &mut UpgradeReport) -> Result<(), UpgradeError> {
    let FoundStore { plan, ground, .. } = found;
    let control = Control::upgrade(plan, u64::from_le_bytes(random()));
    let media = ground.media(config, None)?;
    let thread = ControlThread::new(Some(control), media, Vec::new(), plan, ground, config, None);
    let (thread, _) = thread.start_store().map_err(UpgradeError::Write)?;
    let members = thread.superblock().into_iter().flat_map(|superblock| &superblock.drives);
    report.members = members.filter(|drive| drive.state == DriveState::Member).map(|drive| drive.number).collect();
    let before = plan.superblock.drives.iter().filter(|drive| drive.state == DriveState::Member);
    report.left_out = before.map(|drive| drive.number).filter(|drive| !report.members.contains(drive)).collect();
    Ok(())
}
