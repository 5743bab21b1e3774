//! Whether a store may start on the drives that were found, and as what.
//!
//! Every drive holds a superblock with the list of members. Writing needs more than half of the newest list and all but m of it: then no
//! other set of drives can have gone on by itself. Two histories, or two drives with one UUID, are never guessed about.

use std::collections::BTreeMap;

use forebay_format::{DriveState, Start, Superblock};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};

use crate::api::DriveInfo;
use crate::planted::{Planted, planted};

/// A drive that was found, in the order of the command line.
#[derive(Clone, Debug)]
pub struct FoundDrive {
    /// How the operator named it.
    pub path: String,
    /// Its newest valid superblock.
    pub superblock: Superblock,
}

/// How the store is to be opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenRequest {
    /// Nothing is written; any number of drives will do.
    pub read_only: bool,
}

/// How the store starts.
#[derive(Clone, Debug)]
pub struct OpenPlan {
    /// The superblock as of now; its drive fields are those of the drive that it came from.
    pub superblock: Superblock,
    /// All drives of the store.
    pub drives: Vec<DriveInfo>,
    /// For each found drive its number, or none if it was being put in when the store fell, and the store went on without it.
    pub numbers: Vec<Option<DriveNumber>>,
    /// Members that were not found: a writable start takes them out.
    pub absent_members: Vec<DriveNumber>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// Why a store does not start. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No drive was given or none could be read.
    #[error("none of the drives holds a superblock of a store. Nothing was written. Was `forebay init` run on them?")]
    NoDrives,
    /// Drives of two stores.
    #[error(
        "{path} belongs to store {found}, {other} belongs to store {expected}. Nothing was written. Start each store with its own drives"
    )]
    ForeignDrive {
        /// The drive.
        path: String,
        /// Its store.
        found: StoreUuid,
        /// A drive of the other.
        other: String,
        /// The other store.
        expected: StoreUuid,
    },
    /// Two drives with one UUID.
    #[error(
        "{first} and {second} are copies of one drive ({uuid}): which of them is right cannot be told. Nothing was written. Remove the copy"
    )]
    DuplicateDrive {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// Their UUID.
        uuid: DriveUuid,
    },
    /// Drives went on separately.
    #[error(
        "{first} and {second} have different histories (start {epoch}): the store was started on both halves by themselves. Nothing was \
         written. Start with the drives of the half that is to live, keep the others untouched, and compare them before they are wiped"
    )]
    TwoHistories {
        /// A drive of one.
        first: String,
        /// A drive of the other.
        second: String,
        /// The start in which they differ.
        epoch: u64,
    },
    /// Too few members.
    #[error(
        "only {found} of the {members} members of the store were found and {needed} are needed for writing; missing: drives {missing}. \
         Nothing was written and nothing is lost by waiting. Attach the missing drives, or start with --read-only to read what {found} drives give"
    )]
    TooFewMembers {
        /// Members found.
        found: usize,
        /// Members in the newest list.
        members: usize,
        /// How many are needed.
        needed: usize,
        /// The numbers of the missing ones.
        missing: String,
    },
}

/// Members that writing needs, of a list of so many.
pub fn members_needed(members: usize, parity_shards: u8) -> usize {
    if planted(Planted::HalfIsEnough) {
        return 1;
    }
    (members / 2 + 1).max(members.saturating_sub(usize::from(parity_shards)))
}

/// Decides from the superblocks that were found.
///
/// # Errors
/// [`OpenError`]; what is wrong with the drives as a set.
pub fn plan_open(found: &[FoundDrive], request: OpenRequest) -> Result<OpenPlan, OpenError> {
    let age = |d: &&FoundDrive| (d.superblock.epoch, d.superblock.generation);
    let newest = match planted(Planted::StaleDriveTrusted) {
        true => found.iter().min_by_key(age),
        false => found.iter().max_by_key(age),
    };
    let newest = newest.ok_or(OpenError::NoDrives)?;
    check_store(found, newest)?;
    check_duplicates(found)?;
    check_histories(found, newest)?;
    let superblock = newest.superblock.clone();
    let listed = |d: &FoundDrive| superblock.drives.iter().find(|entry| entry.uuid == d.superblock.drive);
    let numbers: Vec<Option<DriveNumber>> = found.iter().map(|d| listed(d).map(|entry| entry.number)).collect();
    let drives: Vec<DriveInfo> = superblock
        .drives
        .iter()
        .map(|entry| DriveInfo {
            number: entry.number,
            uuid: entry.uuid,
            slots: entry.slots,
            member: entry.state == DriveState::Member,
            present: found.iter().any(|d| d.superblock.drive == entry.uuid),
        })
        .collect();
    let members = drives.iter().filter(|d| d.member).count();
    let absent_members: Vec<DriveNumber> = drives.iter().filter(|d| d.member && !d.present).map(|d| d.number).collect();
    let here = members - absent_members.len();
    let needed = members_needed(members, superblock.geometry.parity_shards);
    if here < needed && !request.read_only {
        let missing = absent_members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(OpenError::TooFewMembers { found: here, members, needed, missing });
    }
    let warnings = warnings(found, &drives, &absent_members, usize::from(superblock.geometry.parity_shards));
    Ok(OpenPlan { superblock, drives, numbers, absent_members, warnings })
}

fn check_store(found: &[FoundDrive], newest: &FoundDrive) -> Result<(), OpenError> {
    for drive in found {
        if drive.superblock.store != newest.superblock.store {
            return Err(OpenError::ForeignDrive {
                path: drive.path.clone(),
                found: drive.superblock.store,
                other: newest.path.clone(),
                expected: newest.superblock.store,
            });
        }
    }
    Ok(())
}

fn check_duplicates(found: &[FoundDrive]) -> Result<(), OpenError> {
    let mut seen: BTreeMap<DriveUuid, &FoundDrive> = BTreeMap::new();
    for drive in found {
        if let Some(first) = seen.insert(drive.superblock.drive, drive) {
            return Err(OpenError::DuplicateDrive {
                first: first.path.clone(),
                second: drive.path.clone(),
                uuid: drive.superblock.drive,
            });
        }
    }
    Ok(())
}

/// Every drive must lie on the way that led to the newest: its start is among the newest's, with the same random number, and equal
/// generations hold equal lists.
fn check_histories(found: &[FoundDrive], newest: &FoundDrive) -> Result<(), OpenError> {
    let differ = |drive: &FoundDrive, epoch| OpenError::TwoHistories {
        first: newest.path.clone(),
        second: drive.path.clone(),
        epoch,
    };
    for drive in found {
        let own = Start { epoch: drive.superblock.epoch, nonce: drive.superblock.nonce };
        let history = &newest.superblock.history;
        let known = history.iter().find(|start| start.epoch == own.epoch);
        let older_than_all = history.first().is_some_and(|first| own.epoch < first.epoch);
        if !older_than_all && known.is_some_and(|start| start.nonce != own.nonce) {
            return Err(differ(drive, own.epoch));
        }
        let same = drive.superblock.generation == newest.superblock.generation && own.epoch == newest.superblock.epoch;
        if same && (drive.superblock.drives != newest.superblock.drives || own.nonce != newest.superblock.nonce) {
            return Err(differ(drive, own.epoch));
        }
    }
    Ok(())
}

fn warnings(
    found: &[FoundDrive],
    drives: &[DriveInfo],
    absent_members: &[DriveNumber],
    parity_shards: usize,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if absent_members.len() > parity_shards {
        let absent: Vec<String> = absent_members.iter().map(ToString::to_string).collect();
        warnings.push(format!(
            "drives {} were not found: {} of {}, and parity makes up for {parity_shards}. What has pieces on more than {parity_shards} of \
             them cannot be read while they are missing, and is answered with `unavailable`; the rest can. Nothing is lost if they come back: \
             attach them and start again",
            absent.join(", "),
            absent.len(),
            drives.iter().filter(|drive| drive.member).count()
        ));
    } else {
        warnings.extend(absent_members.iter().map(|number| {
            format!(
                "drive {number} is a member and was not found: what lies on it is computed from the others as far as they suffice, and when it \
                 comes back it must be taken in anew"
            )
        }));
    }
    for drive in found {
        let listed = drives.iter().find(|d| d.uuid == drive.superblock.drive);
        match listed {
            Some(listed) if listed.member => {}
            Some(listed) => warnings.push(format!(
                "{} (drive {}) was taken out of the store earlier: it is read where it still helps, and not written to",
                drive.path, listed.number
            )),
            // Whatever joined durably stays listed for ever: nothing was ever stored on this one.
            None => warnings.push(format!(
                "{} was being put in when the store fell, and is no part of it: it is not used and holds nothing of what is stored. \
                 Put it in once more with `forebay drive replace --force`, or leave it out",
                drive.path
            )),
        }
    }
    warnings
}
