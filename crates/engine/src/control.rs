//! Who is a member: decided in one place, made durable, then told to the lanes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use forebay_format::{
    DriveEntry, DriveState, FORMAT_VERSION, HISTORY_MAX, ProgramVersion, Start, Superblock, place_of,
};
use forebay_media::{AlignedBuffer, Completion, Operation, OperationId};
use forebay_types::limits::DRIVES_MAX;
use forebay_types::{DriveNumber, DriveUuid, Time};

use crate::api::{DriveInfo, Membership};
use crate::open::{OpenPlan, members_needed};
use crate::planted::{Planted, planted};

/// So long after the last time the superblocks are written again, whatever else is written: a drive that is gone is noticed although nobody puts anything.
pub const LOOK_AFTER: Duration = Duration::from_secs(30);

/// What happens when a superblock has become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The superblock that was found, once more as it is: a crash may have left it on one drive alone, and the next one goes to the place of
    /// the one before it.
    Confirm,
    Start,
    Members,
    Renew,
    /// As it is, to see whether the drives take it.
    Look,
    Clean,
}

/// A superblock on its way to the members.
struct Writing {
    purpose: Purpose,
    pending: BTreeSet<OperationId>,
    failed: Vec<DriveNumber>,
    /// They get it when it is on the others: a list must be on the drives that join by it before any other drive has it. Else a crash might
    /// leave a list that counts a drive on which there is no superblock, and one drive more that fails would keep the store from starting.
    then: Vec<DriveNumber>,
}

/// The part of a store that decides who is a member. It gives operations to a media of its own.
pub struct Control {
    /// As it is on the drives.
    durable: Superblock,
    /// As it is being written.
    next: Superblock,
    /// What the start writes, until it does.
    begin: Option<Superblock>,
    /// As [`crate::LaneConfig::parity_min`].
    parity_min: u8,
    present: BTreeSet<DriveNumber>,
    /// Drives that must leave the list.
    leaving: BTreeSet<DriveNumber>,
    /// Of these, those that nothing is wrong with as far as anybody knows: an operator wants them out, and they stay when others leave meanwhile.
    retiring: BTreeSet<DriveNumber>,
    /// Drives that must come to the list.
    joining: Vec<DriveEntry>,
    /// The superblocks are to be written anew though nothing in them changes.
    renew_wanted: bool,
    look_wanted: bool,
    looked_at: Option<Time>,
    writing: Option<Writing>,
    outgoing: VecDeque<(OperationId, Operation)>,
    owners: Vec<(OperationId, DriveNumber)>,
    messages: VecDeque<Membership>,
    next_operation: u64,
    started: bool,
    clean_wanted: bool,
    clean_done: bool,
    no_quorum: Option<String>,
}

impl Control {
    /// Begins a writable start: the members that were not found leave the list, the start gets its number and `nonce`. Lanes go on
    /// writing as long as there are drives for `parity_min` parities.
    pub fn start(plan: &OpenPlan, nonce: u64, parity_min: u8) -> Control {
        let mut next = next_start(plan, nonce);
        next.clean = false;
        Control::begin(plan, next, parity_min)
    }

    /// Begins a start that gives the store the newest format version and does nothing else: no lane begins, so the store stays as clean as it was. The version
    /// comes with the start's own superblock: until that is durable the store is of the old version or of the new one, and whoever starts it next finds which.
    /// Whoever calls this has looked at every lane ([`crate::Lane::kept_run`]).
    pub fn upgrade(plan: &OpenPlan, nonce: u64) -> Control {
        let mut next = next_start(plan, nonce);
        next.format_version = FORMAT_VERSION;
        Control::begin(plan, next, plan.superblock.geometry.parity_shards)
    }

    fn begin(plan: &OpenPlan, next: Superblock, parity_min: u8) -> Control {
        let durable = plan.superblock.clone();
        let present = plan.drives.iter().filter(|d| d.present).map(|d| d.number).collect();
        let mut control = Control {
            next: durable.clone(),
            durable,
            begin: Some(next),
            parity_min,
            present,
            leaving: BTreeSet::new(),
            retiring: BTreeSet::new(),
            joining: Vec::new(),
            renew_wanted: false,
            look_wanted: false,
            looked_at: None,
            writing: None,
            outgoing: VecDeque::new(),
            owners: Vec::new(),
            messages: VecDeque::new(),
            next_operation: 0,
            started: false,
            clean_wanted: false,
            clean_done: false,
            no_quorum: None,
        };
        control.write(Purpose::Confirm);
        control
    }

    /// The superblock as it was last made durable.
    pub fn superblock(&self) -> &Superblock {
        &self.durable
    }

    /// Whether the start is durable: lanes may begin.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Whether the clean stop is durable.
    pub fn is_clean(&self) -> bool {
        self.clean_done
    }

    /// Why nothing may be written any more.
    pub fn no_quorum(&self) -> Option<&str> {
        self.no_quorum.as_deref()
    }

    /// The drives as lanes need to know them.
    pub fn drives(&self) -> Vec<DriveInfo> {
        let info = |entry: &forebay_format::DriveEntry| DriveInfo {
            number: entry.number,
            uuid: entry.uuid,
            slots: entry.slots,
            member: entry.state == DriveState::Member,
            present: self.present.contains(&entry.number),
        };
        self.durable.drives.iter().map(info).collect()
    }

    /// The next operation for the control part's media.
    pub fn next_operation(&mut self) -> Option<(OperationId, Operation)> {
        self.outgoing.pop_front()
    }

    /// The next message for every lane.
    pub fn next_message(&mut self) -> Option<Membership> {
        self.messages.pop_front()
    }

    /// A lane lost a drive, or an operator gives it up: it is not read any more either.
    pub fn drive_failed(&mut self, drive: DriveNumber) {
        let was_present = self.present.remove(&drive);
        self.retiring.remove(&drive);
        if self.is_member(drive) {
            self.leaving.insert(drive);
            self.go_on();
        } else if was_present && self.writing.is_none() {
            self.messages.push_back(Membership::Drives(self.drives()));
        }
    }

    /// An operator takes a drive out of use: nothing more is written to it, and it is read until what lies on it lies elsewhere. It stays a member if
    /// another drive turns out to have failed while the list is written, so that too few would be left ([`Control::is_member`]).
    ///
    /// # Errors
    /// Why not, for the operator; nothing was changed.
    pub fn retire_drive(&mut self, drive: DriveNumber) -> Result<(), String> {
        self.may_leave(drive)?;
        self.leaving.insert(drive);
        self.retiring.insert(drive);
        self.go_on();
        Ok(())
    }

    /// An operator gives a drive up.
    ///
    /// # Errors
    /// Why not, for the operator; nothing was changed.
    pub fn give_drive_up(&mut self, drive: DriveNumber) -> Result<(), String> {
        if self.is_member(drive) {
            self.may_leave(drive)?;
        } else if !self.present.contains(&drive) {
            return Err(format!("drive {drive} is neither a member nor read any more; nothing was changed"));
        }
        self.drive_failed(drive);
        Ok(())
    }

    /// Whether the store goes on without a member that an operator takes out.
    fn may_leave(&self, drive: DriveNumber) -> Result<(), String> {
        let listed = members(&self.durable);
        if !listed.contains(&drive) {
            return Err(format!("drive {drive} is no member of the store; nothing was changed"));
        }
        let gone = listed.iter().filter(|member| self.leaving.contains(member)).count();
        let (left, needed) = (listed.len() - gone - 1, self.needed_for_writing(listed.len()));
        if left < needed {
            return Err(format!(
                "without drive {drive} {left} of {} members would be left and {needed} are needed for writing; nothing was changed. Put a \
                 new drive in first: `forebay drive replace`",
                listed.len()
            ));
        }
        Ok(())
    }

    /// A new drive, on which nothing lies yet but zeros, comes to the store. Its number, under which the media must know it before the next
    /// operation is taken.
    ///
    /// # Errors
    /// Why not, for the operator; nothing was changed.
    pub fn add_drive(&mut self, uuid: DriveUuid, slots: u32, bytes: u64) -> Result<DriveNumber, String> {
        if let Some(reason) = &self.no_quorum {
            return Err(reason.clone());
        }
        if self.clean_wanted || !self.started {
            return Err("the store is starting or stopping; nothing was changed".to_owned());
        }
        if self.next.drives.len() + self.joining.len() >= DRIVES_MAX {
            return Err(format!(
                "the store has had {DRIVES_MAX} drives, and there can be no more; nothing was changed"
            ));
        }
        let known = self.durable.drives.iter().chain(&self.next.drives).chain(&self.joining);
        let number = DriveNumber(known.map(|drive| drive.number.0 + 1).max().unwrap_or(0));
        self.joining.push(DriveEntry { uuid, number, state: DriveState::Member, slots, changed: 0, bytes });
        self.present.insert(number);
        self.go_on();
        Ok(number)
    }

    /// Damage was found on a drive: the superblocks are written anew, in the other of their places.
    pub fn renew_superblocks(&mut self) {
        self.renew_wanted = true;
        self.go_on();
    }

    /// Writes to the members what they have, [`LOOK_AFTER`] after the last time: one that refuses it leaves the list.
    pub fn look_at_drives(&mut self, now: Time) {
        let due = self.next_look().is_some_and(|at| at <= now);
        if due || self.looked_at.is_none() && self.started {
            self.looked_at = Some(now);
        }
        if due && !planted(Planted::IdleUnwatched) {
            self.look_wanted = true;
            self.go_on();
        }
    }

    /// When the drives are to be looked at next, with [`Control::look_at_drives`].
    pub fn next_look(&self) -> Option<Time> {
        let is_over = self.clean_wanted || self.no_quorum.is_some();
        self.looked_at.filter(|_| !is_over).map(|at| at + LOOK_AFTER)
    }

    /// Whether a drive that was added has become a member, durably; `None` while that is under way.
    pub fn has_joined(&self, drive: DriveNumber) -> Option<bool> {
        let waits = self.joining.iter().any(|entry| entry.number == drive);
        (!waits).then(|| self.is_member(drive))
    }

    /// Whether a drive is a member, durably.
    pub fn is_member(&self, drive: DriveNumber) -> bool {
        members(&self.durable).contains(&drive)
    }

    /// Every lane has stopped: the stop is to be marked as clean.
    pub fn stop_clean(&mut self) {
        self.clean_wanted = true;
        self.go_on();
    }

    /// An operation came back.
    pub fn complete(&mut self, completion: &Completion) {
        let Some(at) = self.owners.iter().position(|(id, _)| *id == completion.id) else { return };
        let (_, drive) = self.owners.swap_remove(at);
        let Some(writing) = &mut self.writing else { return };
        if !writing.pending.remove(&completion.id) {
            return;
        }
        if completion.result.is_err() {
            writing.failed.push(drive);
        }
        if !writing.pending.is_empty() {
            return;
        }
        if writing.failed.is_empty() && !writing.then.is_empty() {
            let then = std::mem::take(&mut writing.then);
            let pending = self.write_to(&then);
            self.writing.as_mut().expect("looked at just now").pending = pending;
            return;
        }
        let writing = self.writing.take().expect("looked at just now");
        if writing.purpose == Purpose::Confirm {
            self.leaving.extend(writing.failed);
            self.next = self.begin.take().expect("confirmed once");
            return self.write_next(self.next.clone(), Purpose::Start);
        }
        if writing.failed.is_empty() {
            self.durable = self.next.clone();
            let listed = members(&self.durable);
            self.retiring.retain(|drive| listed.contains(drive));
            match writing.purpose {
                Purpose::Confirm => unreachable!("the start follows it"),
                Purpose::Start => self.started = true,
                Purpose::Members | Purpose::Renew => {
                    let durable = &self.durable;
                    self.joining.retain(|entry| !durable.drives.iter().any(|drive| drive.number == entry.number));
                    self.messages.push_back(Membership::Drives(self.drives()));
                }
                Purpose::Look => {}
                Purpose::Clean => self.clean_done = true,
            }
            self.go_on();
        } else {
            // What was written names a list that is not durable; the next generation names one without these drives.
            for drive in &writing.failed {
                if writing.purpose != Purpose::Start {
                    self.present.remove(drive);
                }
                self.joining.retain(|entry| entry.number != *drive);
            }
            // One that was to join leaves nothing: another drive may get its number.
            let before = members(&self.durable);
            self.leaving.extend(writing.failed.into_iter().filter(|drive| before.contains(drive)));
            let is_look = writing.purpose == Purpose::Look;
            self.retry(if is_look { Purpose::Members } else { writing.purpose });
        }
    }

    /// A drive does not answer: its operation counts as failed, its lateness is noticed by nobody.
    pub fn give_up(&mut self, drive: DriveNumber) {
        let ids: Vec<OperationId> = self.owners.iter().filter(|(_, d)| *d == drive).map(|(id, _)| *id).collect();
        for id in ids {
            let result = Err(forebay_media::MediaError::Absent);
            self.complete(&Completion { id, result, buffer: None });
        }
    }

    /// Drives that a superblock is still on its way to.
    pub fn waiting_for(&self) -> Vec<DriveNumber> {
        self.owners.iter().map(|(_, drive)| *drive).collect()
    }

    fn go_on(&mut self) {
        if self.writing.is_some() || self.no_quorum.is_some() {
            return;
        }
        if !self.started {
            return;
        }
        let gone = members(&self.durable).iter().any(|member| self.leaving.contains(member));
        if gone || !self.joining.is_empty() {
            self.retry(Purpose::Members);
        } else if self.renew_wanted {
            self.retry(Purpose::Renew);
        } else if self.clean_wanted && !self.clean_done && !self.durable.clean {
            self.retry(Purpose::Clean);
        } else if self.look_wanted && !self.clean_wanted {
            self.retry(Purpose::Look);
        }
    }

    fn members_needed(&self, listed: usize) -> usize {
        members_needed(listed, self.durable.geometry.parity_shards)
    }

    /// Of so many members, those that are needed for a list that is valid and for lanes that can write: others make nothing anew either.
    fn needed_for_writing(&self, listed: usize) -> usize {
        let geometry = &self.durable.geometry;
        let width = usize::from(geometry.data_shards_min) + usize::from(self.parity_min);
        self.members_needed(listed).max(width)
    }

    fn retry(&mut self, purpose: Purpose) {
        let generation = self.next.generation.max(self.durable.generation) + 1;
        let base = if purpose == Purpose::Start { &self.next } else { &self.durable };
        let mut next = base.clone();
        next.generation = generation;
        // A start says itself whether lanes begin by it.
        next.clean = purpose == Purpose::Clean || purpose == Purpose::Start && base.clean;
        bring_in(&mut next, &self.joining);
        (self.renew_wanted, self.look_wanted) = (false, false);
        self.write_next(next, purpose);
    }

    /// Writes a superblock, without the drives that must leave, if enough are left.
    fn write_next(&mut self, mut next: Superblock, purpose: Purpose) {
        // Those count that were members before: no other set of them can have gone on by itself.
        let before = members(&self.durable);
        let listed = before.len();
        let left = |leaving: &BTreeSet<DriveNumber>| {
            let stays = |entry: &&DriveEntry| {
                entry.state == DriveState::Member && !leaving.contains(&entry.number) && before.contains(&entry.number)
            };
            next.drives.iter().filter(stays).count()
        };
        if left(&self.leaving) < self.needed_for_writing(listed) {
            let stay = std::mem::take(&mut self.retiring);
            self.leaving.retain(|drive| !stay.contains(drive));
        }
        let (left, needed) = (left(&self.leaving), self.members_needed(listed));
        if left < needed {
            let reason = format!(
                "{left} of {listed} member drives are left and {needed} are needed: nothing is written any more, what is stored stays as \
                 it is"
            );
            self.no_quorum = Some(reason.clone());
            self.messages.push_back(Membership::NoQuorum { reason });
            return;
        }
        take_out(&mut next, &self.leaving);
        self.next = next;
        self.write(purpose);
    }

    fn write(&mut self, purpose: Purpose) {
        // What is confirmed goes to those that the start finds.
        let to = members(self.begin.as_ref().unwrap_or(&self.next));
        let known = |drive: &DriveNumber| self.durable.drives.iter().any(|entry| entry.number == *drive);
        let (old, new): (Vec<_>, Vec<_>) = to.into_iter().partition(known);
        let (first, then) = if new.is_empty() { (old, new) } else { (new, old) };
        let pending = self.write_to(&first);
        self.writing = Some(Writing { purpose, pending, failed: Vec::new(), then });
    }

    /// Writes the next superblock to these drives.
    fn write_to(&mut self, drives: &[DriveNumber]) -> BTreeSet<OperationId> {
        let mut pending = BTreeSet::new();
        for drive in drives {
            let mut superblock = self.next.clone();
            let entry = superblock.drives.iter().find(|d| d.number == *drive).expect("members are in the list");
            (superblock.drive, superblock.number) = (entry.uuid, entry.number);
            let layout = superblock.geometry.layout(entry.slots);
            let offset_bytes = layout.superblock_offset(place_of(superblock.generation));
            let buffer = AlignedBuffer::copied(&superblock.encode());
            let bytes = buffer.len();
            let id = OperationId(self.next_operation);
            self.next_operation += 1;
            self.owners.push((id, *drive));
            pending.insert(id);
            let operation = Operation::Write { drive: *drive, offset_bytes, buffer: Arc::new(buffer), bytes };
            self.outgoing.push_back((id, operation));
        }
        pending
    }
}

/// What a start writes: its number and `nonce`, without the members that were not found.
fn next_start(plan: &OpenPlan, nonce: u64) -> Superblock {
    let mut next = plan.superblock.clone();
    next.generation += 1;
    next.epoch += 1;
    next.nonce = nonce;
    next.program = ProgramVersion::OWN;
    next.history.push(Start { epoch: next.epoch, nonce });
    if next.history.len() > HISTORY_MAX {
        next.history.remove(0);
    }
    take_out(&mut next, &plan.absent_members.iter().copied().collect());
    next
}

fn members(superblock: &Superblock) -> Vec<DriveNumber> {
    superblock.drives.iter().filter(|d| d.state == DriveState::Member).map(|d| d.number).collect()
}

/// Brings new drives to the list.
fn bring_in(superblock: &mut Superblock, joining: &[DriveEntry]) {
    let listed =
        |superblock: &Superblock, entry: &DriveEntry| superblock.drives.iter().any(|d| d.number == entry.number);
    let new: Vec<DriveEntry> = joining.iter().filter(|entry| !listed(superblock, entry)).copied().collect();
    if new.is_empty() {
        return;
    }
    superblock.membership += 1;
    let changed = superblock.membership;
    superblock.drives.extend(new.into_iter().map(|entry| DriveEntry { changed, ..entry }));
}

/// Takes drives off the list; a list that changes is a new version.
fn take_out(superblock: &mut Superblock, gone: &BTreeSet<DriveNumber>) {
    let leaves = |d: &&mut forebay_format::DriveEntry| d.state == DriveState::Member && gone.contains(&d.number);
    let version = superblock.membership + 1;
    let mut changed = false;
    for drive in superblock.drives.iter_mut().filter(leaves) {
        drive.state = DriveState::Out;
        drive.changed = version;
        changed = true;
    }
    if changed {
        superblock.membership = version;
    }
}

#[cfg(test)]
mod tests;
