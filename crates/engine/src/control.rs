//! Who is a member: decided in one place, made durable, then told to the lanes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use forebay_format::{DriveState, HISTORY_MAX, Start, Superblock, place_of};
use forebay_media::{AlignedBuffer, Completion, Operation, OperationId};
use forebay_types::DriveNumber;

use crate::api::{DriveInfo, Membership};
use crate::open::{OpenPlan, members_needed};

/// What happens when a superblock has become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Start,
    Members,
    Clean,
}

/// A superblock on its way to the members.
struct Writing {
    purpose: Purpose,
    pending: BTreeSet<OperationId>,
    failed: Vec<DriveNumber>,
}

/// The part of a store that decides who is a member. It gives operations to a media of its own.
pub struct Control {
    /// As it is on the drives.
    durable: Superblock,
    /// As it is being written.
    next: Superblock,
    present: BTreeSet<DriveNumber>,
    /// Drives that must leave the list.
    leaving: BTreeSet<DriveNumber>,
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
    /// Begins a writable start: the members that were not found leave the list, the start gets its number and `nonce`.
    pub fn start(plan: &OpenPlan, nonce: u64) -> Control {
        let durable = plan.superblock.clone();
        let mut next = durable.clone();
        next.generation += 1;
        next.epoch += 1;
        next.nonce = nonce;
        next.clean = false;
        next.history.push(Start { epoch: next.epoch, nonce });
        if next.history.len() > HISTORY_MAX {
            next.history.remove(0);
        }
        take_out(&mut next, &plan.absent_members.iter().copied().collect());
        let present = plan.drives.iter().filter(|d| d.present).map(|d| d.number).collect();
        let mut control = Control {
            durable,
            next,
            present,
            leaving: BTreeSet::new(),
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
        control.write(Purpose::Start);
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

    /// A lane lost a drive.
    pub fn drive_failed(&mut self, drive: DriveNumber) {
        let member = self.durable.drives.iter().any(|d| d.number == drive && d.state == DriveState::Member);
        if member && self.leaving.insert(drive) {
            self.go_on();
        }
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
        let writing = self.writing.take().expect("looked at just now");
        if writing.failed.is_empty() {
            self.durable = self.next.clone();
            match writing.purpose {
                Purpose::Start => self.started = true,
                Purpose::Members => self.messages.push_back(Membership::Members(members(&self.durable))),
                Purpose::Clean => self.clean_done = true,
            }
            self.go_on();
        } else {
            // What was written names a list that is not durable; the next generation names one without these drives.
            self.leaving.extend(writing.failed);
            self.retry(writing.purpose);
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
        let gone = members(&self.durable).iter().any(|member| self.leaving.contains(member));
        if gone {
            self.retry(Purpose::Members);
        } else if self.clean_wanted && !self.clean_done && !self.durable.clean {
            self.retry(Purpose::Clean);
        }
    }

    fn retry(&mut self, purpose: Purpose) {
        let generation = self.next.generation.max(self.durable.generation) + 1;
        let base = if purpose == Purpose::Start { &self.next } else { &self.durable };
        let mut next = base.clone();
        next.generation = generation;
        next.clean = purpose == Purpose::Clean;
        take_out(&mut next, &self.leaving);
        let (left, listed) = (members(&next).len(), members(&self.durable).len());
        let needed = members_needed(listed, next.geometry.parity_shards);
        if left < needed {
            let reason = format!(
                "{left} of {listed} member drives are left and {needed} are needed: nothing is written any more, what is stored stays as \
                 it is"
            );
            self.no_quorum = Some(reason.clone());
            self.messages.push_back(Membership::NoQuorum { reason });
            return;
        }
        self.next = next;
        self.write(purpose);
    }

    fn write(&mut self, purpose: Purpose) {
        let mut pending = BTreeSet::new();
        for drive in members(&self.next) {
            let mut superblock = self.next.clone();
            let entry = superblock.drives.iter().find(|d| d.number == drive).expect("members are in the list");
            (superblock.drive, superblock.number) = (entry.uuid, entry.number);
            let layout = superblock.geometry.layout(entry.slots);
            let offset_bytes = layout.superblock_offset(place_of(superblock.generation));
            let buffer = AlignedBuffer::copied(&superblock.encode());
            let bytes = buffer.len();
            let id = OperationId(self.next_operation);
            self.next_operation += 1;
            self.owners.push((id, drive));
            pending.insert(id);
            let operation = Operation::Write { drive, offset_bytes, buffer: Arc::new(buffer), bytes };
            self.outgoing.push_back((id, operation));
        }
        self.writing = Some(Writing { purpose, pending, failed: Vec::new() });
    }
}

fn members(superblock: &Superblock) -> Vec<DriveNumber> {
    superblock.drives.iter().filter(|d| d.state == DriveState::Member).map(|d| d.number).collect()
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
