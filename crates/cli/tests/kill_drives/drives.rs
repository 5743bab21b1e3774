//! The drives of a store, what was done to them, and how much more may be done.
//!
//! The promise: what was acknowledged survives as long as at most m drives are out of order. A drive is out of order from when it is harmed
//! until all that lives is whole again: one that is no member, when the server says that everything lies on members; a member, when a scrub has looked
//! at everything. One that was only away or given up is in order when a start finds it. Something lives always: the books of the runs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Totals;
use super::common::load::Random;
use super::common::{Ran, forebay};
use super::replaced::StandIn;

/// Nothing that begins so far behind a drive's start touches its superblocks.
const SUPERBLOCKS_BYTES: u64 = 128 << 10;

/// What a store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub data: u64,
    pub parity: u64,
    pub drives: u64,
    pub drive_mebibytes: u64,
}

/// Fewer drives than data and parity never write, so narrower segments are allowed for.
const DATA_MIN: u64 = 2;

/// A drive; its number is its place among all that the store has had.
pub(super) struct Drive {
    pub(super) path: PathBuf,
    /// Where its file is kept while it is away.
    pub(super) away: Option<PathBuf>,
    /// What stands where it was.
    stand_in: Option<StandIn>,
    /// What lives may be missing, because it is away.
    pub(super) missed: bool,
    /// What lives may be wrong on it.
    pub(super) damaged: bool,
    /// In the store's list, as its server last said.
    pub(super) member: bool,
    /// Nothing lives on it, and nothing ever will.
    pub(super) empty: bool,
    /// Taken away for good.
    pub(super) gone: bool,
}

impl Drive {
    pub(super) fn at(path: PathBuf) -> Drive {
        Drive {
            path,
            away: None,
            stand_in: None,
            missed: false,
            damaged: false,
            member: true,
            empty: false,
            gone: false,
        }
    }
}

/// All drives of a store.
pub struct Drives {
    shape: Shape,
    pub(super) directory: PathBuf,
    pub(super) drives: Vec<Drive>,
    /// Members that the next start may not find.
    lost_now: u64,
    /// Its copy stands where another was: as long as that is so, nothing is done to it.
    copied: Option<usize>,
    /// A new drive, which may be a member by now or not.
    pub(super) joining: Option<PathBuf>,
}

impl Drives {
    /// Makes a store in this directory.
    pub fn make(directory: &Path, shape: Shape) -> Drives {
        fs::create_dir_all(directory.join("away")).expect("made");
        let drives: Vec<Drive> =
            (0..shape.drives).map(|number| Drive::at(directory.join(format!("drive{number}")))).collect();
        init(&drives.iter().map(|drive| drive.path.clone()).collect::<Vec<_>>(), shape).expect(0);
        Drives { shape, directory: directory.to_owned(), drives, lost_now: 0, copied: None, joining: None }
    }

    /// What a server is told: every place where a drive is or was.
    pub fn paths(&self) -> Vec<PathBuf> {
        let left = self.drives.iter().filter(|drive| !drive.gone);
        left.map(|drive| drive.path.clone()).chain(self.joining.clone()).collect()
    }

    /// Those that are there.
    pub fn paths_there(&self) -> Vec<PathBuf> {
        let there = self.drives.iter().filter(|drive| drive.away.is_none() && !drive.gone);
        there.map(|drive| drive.path.clone()).chain(self.joining.clone()).collect()
    }

    /// Those that are there, without as many as may fail.
    pub fn without_some(&self, random: &mut Random) -> Vec<PathBuf> {
        let mut whole = self.whole();
        for _ in 0..self.failures_left().min(whole.len() as u64) {
            whole.swap_remove(random.below(whole.len() as u64) as usize);
        }
        // Those on which nothing lives are not missed.
        let empty_too = random.percent(50);
        let stays = |(number, drive): (usize, &Drive)| {
            let there = drive.away.is_none() && !drive.gone && !(drive.empty && empty_too);
            let harmed_or_out = drive.damaged || !drive.member || self.copied == Some(number);
            (there && (harmed_or_out || whole.contains(&number))).then(|| drive.path.clone())
        };
        self.drives.iter().enumerate().filter_map(stays).chain(self.joining.clone()).collect()
    }

    /// Drives that count as failed.
    pub fn out_of_order(&self) -> u64 {
        self.drives.iter().filter(|drive| drive.missed || drive.damaged).count() as u64
    }

    /// How many more may fail.
    pub fn failures_left(&self) -> u64 {
        self.shape.parity - self.out_of_order()
    }

    /// So many drives have come and gone that another store may have its turn.
    pub fn is_worn(&self) -> bool {
        self.drives.len() as u64 >= 2 * self.shape.drives
    }

    /// There are fewer members than at first.
    pub(super) fn is_short(&self) -> bool {
        self.members() < self.shape.drives
    }

    fn members(&self) -> u64 {
        self.drives.iter().filter(|drive| drive.member).count() as u64
    }

    /// Members that the next start needs: so many that it writes, more than half of those that are listed, all of these but m.
    fn members_min(&self) -> u64 {
        let members = self.members();
        (DATA_MIN + self.shape.parity).max(members / 2 + 1).max(members.saturating_sub(self.shape.parity))
    }

    /// Whether one more member may be harmed so that the next start does not find it.
    pub(super) fn may_lose_one(&self) -> bool {
        self.failures_left() > 0 && self.may_go()
    }

    /// Whether one member less is enough, while there is one to which nothing was done.
    pub(super) fn may_go(&self) -> bool {
        self.members() > self.members_min() + self.lost_now && !self.whole().is_empty()
    }

    /// Drives that are there and as they should be.
    pub(super) fn whole(&self) -> Vec<usize> {
        let whole = |drive: &Drive| drive.member && drive.away.is_none() && !drive.damaged;
        (0..self.drives.len()).filter(|n| whole(&self.drives[*n]) && self.copied != Some(*n)).collect()
    }

    pub(super) fn any(candidates: &[usize], random: &mut Random) -> usize {
        candidates[random.below(candidates.len() as u64) as usize]
    }

    /// Does something to drives, or nothing.
    pub fn harm(&mut self, foreign: &Path, random: &mut Random, totals: &mut Totals) {
        for _ in 0..=random.below(2) {
            match random.below(100) {
                0..10 => {}
                10..35 => self.bring_back(random, totals),
                35..60 if self.may_lose_one() => self.take_away(random, foreign, totals),
                60..75 if self.may_lose_one() => self.overwrite_all(random, totals),
                _ if self.failures_left() > 0 => self.overwrite_part(random, totals),
                _ => {}
            }
        }
    }

    /// Overwrites a part of a drive while a server uses it.
    pub fn harm_while_used(&mut self, random: &mut Random, totals: &mut Totals) {
        if self.failures_left() > 0 {
            self.overwrite_part(random, totals);
            totals.corrupted_while_used += 1;
        }
    }

    fn take_away(&mut self, random: &mut Random, foreign: &Path, totals: &mut Totals) {
        let number = Self::any(&self.whole(), random);
        let away = self.directory.join("away").join(format!("drive{number}"));
        fs::rename(&self.drives[number].path, &away).expect("moved");
        self.lost_now += 1;
        totals.removed += 1;
        let drive = &mut self.drives[number];
        (drive.away, drive.missed) = (Some(away), true);
        if random.percent(60) {
            let other = Self::any(&self.whole(), random);
            let copied = self.drives[other].path.clone();
            let drive = &mut self.drives[number];
            let stand_in = StandIn::put(&drive.path, self.shape, foreign, &copied, random);
            self.copied = stand_in.refused().and(Some(other));
            drive.stand_in = Some(stand_in);
            totals.replaced += 1;
        }
    }

    fn bring_back(&mut self, random: &mut Random, totals: &mut Totals) {
        let away: Vec<usize> = (0..self.drives.len()).filter(|n| self.drives[*n].away.is_some()).collect();
        if away.is_empty() {
            return;
        }
        let number = Self::any(&away, random);
        let drive = &mut self.drives[number];
        drive.stand_in = None;
        fs::rename(drive.away.take().expect("chosen for it"), &drive.path).expect("moved");
        totals.returned += 1;
        // Now and then it is not what it was; then what was missed is wrong now.
        let damaged = random.percent(25);
        drive.damaged |= damaged && drive.missed;
        drive.missed = false;
        if damaged {
            let offset_bytes = random.below(2 * SUPERBLOCKS_BYTES);
            self.overwrite_from(number, offset_bytes, random, totals);
        }
    }

    fn overwrite_all(&mut self, random: &mut Random, totals: &mut Totals) {
        let number = Self::any(&self.whole(), random);
        overwrite(&self.drives[number].path, 0, self.shape.drive_mebibytes << 20, random);
        self.drives[number].damaged = true;
        self.lost_now += 1;
        totals.overwritten += 1;
    }

    /// Random bytes over a part; over the superblocks too when the store can do without the drive.
    fn overwrite_part(&mut self, random: &mut Random, totals: &mut Totals) {
        let number = Self::any(&self.whole(), random);
        let drive_bytes = self.shape.drive_mebibytes << 20;
        let superblocks = self.may_lose_one() && random.percent(30);
        let offset_bytes = match superblocks {
            true => random.below(SUPERBLOCKS_BYTES),
            false => SUPERBLOCKS_BYTES + random.below(drive_bytes - SUPERBLOCKS_BYTES),
        };
        self.overwrite_from(number, offset_bytes, random, totals);
        self.drives[number].damaged = true;
        self.lost_now += u64::from(superblocks);
    }

    /// From some blocks to nearly everything, each size as likely.
    fn overwrite_from(&self, number: usize, offset_bytes: u64, random: &mut Random, totals: &mut Totals) {
        let longest = 4096 << random.below(14);
        let bytes = (1 + random.below(longest)).min((self.shape.drive_mebibytes << 20) - offset_bytes);
        overwrite(&self.drives[number].path, offset_bytes, bytes, random);
        totals.corrupted += 1;
    }

    /// The next thing that keeps the store from being started, taken away.
    pub fn take_refused(&mut self) -> Option<StandIn> {
        let drive = self.drives.iter_mut().find(|d| d.stand_in.as_ref().is_some_and(|s| s.refused().is_some()))?;
        drive.stand_in.take()
    }

    /// Takes in who is a member, as the server says, and sees that it says what it did not use.
    pub fn compare(&mut self, status: &Value) {
        let warnings = status["warnings"].to_string();
        (self.lost_now, self.copied) = (0, None);
        let told = status["drives"].as_array().expect("a list");
        self.see_what_joined(told.len());
        for (drive, told) in self.drives.iter_mut().zip(told) {
            drive.member = told["state"] == "member";
            // One that was given up is read again by the next server.
            drive.missed &= drive.away.is_some();
            if drive.away.is_some() {
                assert!(!drive.member, "a drive that is away is none: {told}");
                let path = drive.path.display().to_string();
                assert!(warnings.contains(&path), "{path} is not in {warnings}");
            }
            if let Some(stand_in) = &drive.stand_in {
                let words = stand_in.ignored();
                assert!(warnings.contains(words), "{words:?} is not in {warnings}");
            }
        }
    }

    /// What was done to the drives, for a failure.
    pub fn describe(&self) -> String {
        let word = |drive: &Drive| match (drive.away.is_some(), drive.damaged, drive.member) {
            _ if drive.gone => "gone",
            (true, damaged, _) => {
                if damaged {
                    "away, damaged"
                } else {
                    "away"
                }
            }
            (false, true, true) => "damaged",
            (false, true, false) => "damaged, out",
            (false, false, true) => "whole",
            (false, false, false) => "out",
        };
        self.drives.iter().map(word).collect::<Vec<_>>().join("; ")
    }
}

/// `forebay init`, for small drives with many slots.
pub fn init(paths: &[PathBuf], shape: Shape) -> Ran {
    let (data, parity) = (shape.data.to_string(), shape.parity.to_string());
    let (data_min, size) = (DATA_MIN.to_string(), format!("{}MiB", shape.drive_mebibytes));
    let options = ["init", "--data", &data, "--parity", &parity, "--data-min", &data_min, "--drive-bytes", &size];
    let more = ["--slot-bytes", "2MiB", "--lanes", "2", "--json"];
    let words = options.iter().chain(&more).map(std::ffi::OsStr::new);
    forebay(words.chain(paths.iter().map(|path| path.as_os_str())))
}

/// Random bytes over a part of a file.
pub fn overwrite(path: &Path, mut offset_bytes: u64, bytes: u64, random: &mut Random) {
    let file = OpenOptions::new().write(true).open(path).expect("opened");
    let mut left = bytes;
    while left > 0 {
        let part = random.bytes(left.min(1 << 20) as usize);
        file.write_all_at(&part, offset_bytes).expect("written");
        (offset_bytes, left) = (offset_bytes + part.len() as u64, left - part.len() as u64);
    }
}
