//! A drive failed: its loss is made durable by the control part, then what was on its way is written again without it.

use std::collections::{BTreeSet, VecDeque};

use forebay_format::{RecordKind, RowGeometry, SegmentState, TABLE_ENTRY_BYTES};
use forebay_types::{DecideOutcome, DriveNumber, PutOutcome};

use super::write::{Filling, InFlight, OpenSegment, Replay, Waiter};
use super::{Lane, State};
use crate::api::{DriveInfo, LaneEvent, Membership, Reply, Token};
use crate::flush::NewRecord;
use crate::index::EventFlags;
use crate::io::Failure;
use crate::planted::{Planted, planted};
use crate::recovery::{RECOVERY_TASK, decode_table};
use crate::segments::SegmentIndex;

/// A drive is out when so many reads of it fail and none comes back well in between.
const READS_FAILED_MAX: u32 = 8;

impl Lane {
    /// Takes a drive out at once for this lane, and asks for its loss to be made durable.
    pub(super) fn fail_drive(&mut self, drive: DriveNumber, reason: &str) {
        if !self.answers(drive) {
            return;
        }
        self.failing.insert(drive);
        if self.is_member(drive) {
            self.writer.frozen |= !self.config.read_only;
            self.events.push_back(LaneEvent::DriveFailed { drive, reason: reason.to_owned() });
        }
        for finished in self.io.give_up(drive) {
            self.finish_operation(finished);
        }
    }

    /// A read came back. One that failed is made up for from the other drives and counted: a drive has bad places and is good for all else. One of
    /// which many reads in a row fail is out, as long as that harms nothing that is stored; one that takes no write is out at once.
    pub(super) fn note_read(&mut self, drive: DriveNumber, failure: Option<&Failure>) {
        let Some(failure) = failure else {
            self.failed_reads.remove(&drive);
            return;
        };
        self.counters.reads_failed += 1;
        self.health_of(drive).reads_failed += 1;
        let failed = self.failed_reads.entry(drive).or_default();
        *failed += 1;
        if self.survey.keeps_drives {
            return;
        }
        if *failed < READS_FAILED_MAX || matches!(self.state, State::Recovering(_)) || !self.can_do_without(drive) {
            return;
        }
        self.fail_drive(drive, &format!("{READS_FAILED_MAX} reads in a row failed, the last one: {failure}"));
    }

    /// Whether what is stored stays within reach, and writing goes on, without a drive that answers.
    fn can_do_without(&self, drive: DriveNumber) -> bool {
        let geometry = &self.config.geometry;
        let failures_left = self.segments.failures_left(|d| self.answers(d)).unwrap_or(geometry.parity_shards);
        self.answers(drive) && self.members().len() > self.drives_needed() && failures_left > 0
    }

    /// Drives that have not answered for too long are out, as long as that harms nothing that is stored: when no more may be lost, waiting
    /// is better.
    pub(super) fn judge_drives(&mut self) {
        let mut late = self.io.overdue(self.config.drive_timeout / 2);
        late.retain(|drive| !self.failing.contains(drive));
        if late.len() > usize::from(self.config.geometry.parity_shards) {
            // So many at once are not broken: the machine, or what they hang on, is slow. When it goes on, the first to answer
            // shall not condemn the others.
            self.io.forgive();
            return;
        }
        for drive in self.io.overdue(self.config.drive_timeout) {
            if self.failing.contains(&drive) {
                // Recovery goes on reading where it can.
                for finished in self.io.give_up(drive) {
                    self.finish_operation(finished);
                }
            }
            if self.can_do_without(drive) {
                let limit_ms = self.config.drive_timeout.as_millis();
                self.fail_drive(drive, &format!("an operation was not answered within {limit_ms} ms"));
                if self.config.read_only && matches!(self.state, State::Recovering(_)) {
                    // What was read of it counts for nothing, and nobody has to agree.
                    return self.start_over();
                }
            }
        }
    }

    /// The control part has changed who is a member, durably.
    pub fn membership(&mut self, membership: &Membership) {
        match membership {
            Membership::Drives(drives) => {
                let before = self.config.drives.clone();
                drives.iter().for_each(|drive| self.drive_is(drive));
                self.checkpointer.wanted = true;
                if self.config.drives != before {
                    self.drives_changed();
                }
            }
            Membership::NoQuorum { reason } => self.become_unavailable(reason.clone()),
        }
    }

    /// What a drive is from now on.
    fn drive_is(&mut self, drive: &DriveInfo) {
        let Some(at) = self.config.drives.iter().position(|known| known.number == drive.number) else {
            self.config.drives.push(drive.clone());
            if drive.member {
                self.slots.add_drive(drive.number, drive.slots, &BTreeSet::new());
            }
            return;
        };
        let leaves = self.config.drives[at].member && !drive.member;
        if leaves {
            // What is on its way there comes back, or is given up; then what was not acknowledged is written elsewhere.
            self.writer.frozen = true;
        }
        if !drive.present && !self.failing.contains(&drive.number) {
            // Another lane lost it, or an operator gave it up: this one may have operations on it too.
            self.failing.insert(drive.number);
            for finished in self.io.give_up(drive.number) {
                self.finish_operation(finished);
            }
        }
        if leaves {
            self.slots.remove_drive(drive.number);
        }
        self.config.drives[at].member = drive.member;
    }

    /// When the loss of a drive is durable and all that was on its way to the others is back: what was not acknowledged is to be written once more.
    pub(super) fn reform(&mut self) {
        let settled = self.failing.iter().all(|drive| !self.is_member(*drive));
        let back = self.writer.in_flight.iter().all(|f| f.pending == 0);
        if !self.writer.frozen || !settled || !back {
            return;
        }
        match self.state {
            State::Unavailable(_) | State::Stopped => return,
            State::Recovering(_) | State::Preparing if self.width().is_some() => {
                // What is on its way comes back first: it may fail, and must not land on what the next one writes.
                if !self.checkpointer.is_writing() && !self.io.is_writing_for(RECOVERY_TASK) {
                    self.start_over();
                }
                return;
            }
            State::Recovering(_) | State::Preparing | State::Serving | State::ReadOnly | State::Stopping => {}
        }
        self.acknowledge();
        let undurable = self.take_undurable();
        self.writer.replay = if planted(Planted::LossForgotten) { VecDeque::new() } else { undurable };
        self.writer.retired.extend(self.writer.open.take());
        let mut retired = std::mem::take(&mut self.writer.retired);
        for open in &mut retired {
            self.forget_undurable(open);
        }
        self.writer.retired = retired;
        self.writer.frozen = false;
        self.checkpointer.wanted = true;
        if self.width().is_none() {
            self.lack_drives();
        }
    }

    /// Nothing can be written with the drives that are left.
    pub(super) fn lack_drives(&mut self) {
        let (members, needed) = (self.members().len(), self.drives_needed());
        self.become_unavailable(too_few_drives(members, needed, self.config.parity_min));
    }

    /// Every record that is not durable, in the order in which they came.
    fn take_undurable(&mut self) -> VecDeque<Replay> {
        let mut replay = VecDeque::new();
        for flight in std::mem::take(&mut self.writer.in_flight) {
            replay.extend(replay_of_flight(flight, |index| self.geometry_of(index)));
        }
        if let Some(filling) = self.writer.filling.take() {
            let Filling { flush, segment, waiters, repeated, .. } = filling;
            replay.extend(replay_of(flush.table(), |entry| flush.payload(entry), segment, waiters, repeated));
            flush.into_buffers().into_iter().for_each(|buffer| self.pool.give_back(buffer));
        }
        replay.append(&mut self.writer.replay);
        // Copies are not written again.
        self.copies_are_dropped();
        replay
    }

    fn geometry_of(&self, index: SegmentIndex) -> (u8, u32) {
        let segment = self.segments.get(index);
        (segment.data_shards, segment.unit_bytes)
    }

    /// A segment keeps the flushes that are durable, and no trace of the others.
    fn forget_undurable(&mut self, open: &mut OpenSegment) {
        let segment = self.segments.get_mut(open.index);
        let durable = segment.durable_flushes;
        segment.flushes.retain(|span| span.flush < durable);
        let records: usize = segment.flushes.iter().map(|span| span.record_count as usize).sum();
        open.table.truncate(records * TABLE_ENTRY_BYTES);
        open.records = records;
        open.flushes = durable;
        segment.state = SegmentState::Walk;
    }

    /// Nothing can be written any more: whoever waits is told so. What is acknowledged stays readable as far as drives allow.
    pub(super) fn become_unavailable(&mut self, reason: String) {
        let stopping = match self.state {
            State::Unavailable(_) | State::Stopped => return,
            State::Stopping => true,
            State::Recovering(_) | State::Preparing | State::Serving | State::ReadOnly => false,
        };
        self.state = State::Unavailable(reason.clone());
        self.events.push_back(LaneEvent::Failed { reason });
        for refused in self.take_undurable() {
            self.refuse(refused);
        }
        self.refuse_checkpoint_decisions();
        if stopping {
            // Whoever asked for the stop asks once: what could not be written is refused, the end comes all the same.
            self.stopped(false);
        }
    }

    fn refuse(&mut self, refused: Replay) {
        let key = refused.record.key();
        if refused.record.kind == RecordKind::Fragment {
            let source = forebay_types::SourceId(refused.record.source);
            if let Some(removed) = self.index.remove_fragment(key, source) {
                self.segments.bury(removed.segment, removed.bytes);
                self.fragment_bytes -= u64::from(removed.bytes);
            }
        } else if let Some(event) = self.index.event_mut(key) {
            event.flags.set(EventFlags::DECIDING, false);
        }
        let refused_put = |token| Reply::Refused { token, records: 1, outcome: PutOutcome::Unavailable };
        match refused.waiter {
            Waiter::Put(Token::NONE) | Waiter::Decision(Token::NONE) | Waiter::Copy(_) => {}
            Waiter::Put(token) => self.replies.push_back(refused_put(token)),
            Waiter::Decision(token) => {
                self.replies.push_back(Reply::Decided { token, outcome: DecideOutcome::Unavailable });
            }
        }
        self.replies.extend(refused.repeated.into_iter().map(refused_put));
    }
}

fn replay_of_flight(flight: InFlight, geometry: impl Fn(SegmentIndex) -> (u8, u32)) -> Vec<Replay> {
    let (data_shards, unit_bytes) = geometry(flight.segment);
    let geometry = RowGeometry { data_shards, unit_bytes, data_bytes: flight.span.data_bytes };
    let payload = |entry: &forebay_format::TableEntry| flight.sealed.payload(geometry, entry);
    replay_of(&flight.sealed.table, payload, flight.segment, flight.waiters, flight.repeated)
}

/// The records of a flush, each with who waits for it.
fn replay_of(
    table: &[u8],
    payload: impl Fn(&forebay_format::TableEntry) -> Vec<u8>,
    segment: SegmentIndex,
    waiters: Vec<(Waiter, u32)>,
    repeated: Vec<Token>,
) -> Vec<Replay> {
    let mut waiters = waiters.into_iter().flat_map(|(waiter, records)| std::iter::repeat_n(waiter, records as usize));
    let replay = |entry: forebay_format::TableEntry| Replay {
        record: NewRecord::of(&entry),
        payload: payload(&entry),
        old: Some(segment),
        waiter: waiters.next().expect("someone waits for each record"),
        repeated: Vec::new(),
    };
    let records = decode_table(table).map(replay);
    // A copy is not missed: what it was made of lies where it lay.
    let mut records: Vec<Replay> = records.filter(|replay| !matches!(replay.waiter, Waiter::Copy(_))).collect();
    if let Some(last) = records.last_mut() {
        last.repeated = repeated;
    }
    records
}

/// Why nothing is written any more, and what an operator may do.
fn too_few_drives(members: usize, needed: usize, parity_min: u8) -> String {
    let less_parity = usize::from(parity_min).checked_sub(needed - members).map_or(String::new(), |parity| {
        format!(", or start again with --parity-min {parity}: new data then stand the loss of {parity} drives only")
    });
    format!("{members} drives are left and at least {needed} are needed for writing; put drives back{less_parity}")
}
