//! Drives on virtual time. A few of them, the victims, may do everything that a drive can do; the others only what every drive may: be slow,
//! and tear at a crash what was on its way.

mod crash;
mod disaster;
mod pool;
mod written;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use forebay_media::{AlignedBuffer, Completion, MediaError, Operation, OperationId};
use forebay_media_rados::WriteTarget;
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, Time};

use crate::faults::{Fault, FaultCounts};
use crate::random::Random;
use pool::Pool;
pub(crate) use pool::STRIPE_BYTES;
pub(crate) use written::{FlushWritten, Written};
use wrong::LATEST_MILLIS;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What was written without a sync stays in a drive's memory for so long.
const UNSYNCED: Duration = Duration::from_millis(30);
/// Who gave an operation, and gets its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    Control,
    Lane(u16),
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Right,
    /// Said to be done.
    Lost,
    /// Goes to, or comes from, another place.
    Misplaced(u64),
    Short,
    Failed,
}

struct InFlight {
    queue: Queue,
    id: OperationId,
    drive: DriveNumber,
    offset: u64,
    bytes: usize,
    memory: Memory,
    fate: Fate,
    /// The object of a pool that a write to a slot goes to.
    target: Option<WriteTarget>,
}

enum Memory {
    Write(Arc<AlignedBuffer>),
    Read(AlignedBuffer),
}

struct Drive {
    contents: Vec<u8>,
    dead: bool,
    /// When somebody killed it.
    died_at: Option<Time>,
    /// When it first refused a write.
    refused_at: Option<Time>,
    /// Blocks that are not what was last written there, and why; what was met is counted once.
    damaged: BTreeMap<u64, Fault>,
    unreadable: BTreeSet<u64>,
    slow: bool,
    /// Something went wrong with it that a drive may not do more often than there is parity.
    spoiled: bool,
    /// Somebody carried it away.
    removed: bool,
}

impl Drive {
    fn new(bytes: u64) -> Drive {
        Drive {
            contents: vec![0; bytes as usize],
            dead: false,
            died_at: None,
            refused_at: None,
            damaged: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            slow: false,
            spoiled: false,
            removed: false,
        }
    }
}

/// What a write that nobody synced has replaced.
struct Unsynced {
    at: Time,
    drive: DriveNumber,
    offset: u64,
    before: Vec<u8>,
}

/// A checkpoint, or a superblock, on its way.
#[derive(Default)]
struct Round {
    on_way: BTreeSet<DriveNumber>,
    done: BTreeSet<DriveNumber>,
}

/// All drives of a store.
pub(crate) struct Drives {
    drives: BTreeMap<DriveNumber, Drive>,
    victims: BTreeSet<DriveNumber>,
    enabled: BTreeSet<Fault>,
    /// Where slots begin.
    slots_offset: u64,
    /// What slots lie on, when the one drive stands for a cluster.
    pool: Option<Pool>,
    in_flight: BTreeMap<u64, InFlight>,
    due: BTreeSet<(Time, u64)>,
    next_serial: u64,
    /// A mistake below the engine: what was written last is lost in a crash, though it was said to be durable.
    unsynced: Option<Vec<Unsynced>>,
    /// What is written to all drives at once, and how far it is.
    rounds: BTreeMap<Queue, Round>,
    /// What was written, when somebody wants to know.
    pub(crate) written: Option<Box<Written>>,
    /// Reads of this lane that are handed over until then come back at the other time only.
    held: Option<(Queue, Time, Time)>,
    may_fail: bool,
    now: Time,
    random: Random,
    pub(crate) counts: FaultCounts,
    pub(crate) operations: u64,
}

impl Drives {
    pub(crate) fn new(count: u16, bytes: u64, victims: usize, enabled: &BTreeSet<Fault>, mut random: Random) -> Self {
        let mut drives: BTreeMap<DriveNumber, Drive> =
            (0..count).map(|n| (DriveNumber(n), Drive::new(bytes))).collect();
        let mut chosen = BTreeSet::new();
        while chosen.len() < victims {
            chosen.insert(DriveNumber(random.below(u64::from(count)) as u16));
        }
        if enabled.contains(&Fault::SlowDrive) {
            let slow = DriveNumber(random.below(u64::from(count)) as u16);
            drives.get_mut(&slow).expect("one of them").slow = true;
        }
        Drives {
            drives,
            victims: chosen,
            enabled: enabled.clone(),
            slots_offset: 0,
            pool: None,
            in_flight: BTreeMap::new(),
            due: BTreeSet::new(),
            next_serial: 0,
            unsynced: None,
            rounds: BTreeMap::new(),
            written: None,
            held: None,
            may_fail: false,
            now: Time(0),
            random,
            counts: FaultCounts::default(),
            operations: 0,
        }
    }

    /// Before this lie superblocks and checkpoints.
    pub(crate) fn slots_begin_at(&mut self, offset: u64) {
        self.slots_offset = offset;
    }

    pub(crate) fn is_victim(&self, drive: DriveNumber) -> bool {
        self.victims.contains(&drive)
    }

    /// Those that nobody carried away.
    pub(crate) fn numbers(&self) -> Vec<DriveNumber> {
        self.drives.iter().filter(|(_, drive)| !drive.removed).map(|(number, _)| *number).collect()
    }

    /// Somebody puts an empty drive in.
    pub(crate) fn add(&mut self, number: DriveNumber, bytes: u64) {
        self.drives.insert(number, Drive::new(bytes));
    }

    /// Somebody carries a drive away that nothing needs any more; whatever goes wrong next may go wrong with `heir`.
    pub(crate) fn remove(&mut self, number: DriveNumber, heir: DriveNumber) {
        let drive = self.drives.get_mut(&number).expect("a drive of the store");
        (drive.removed, drive.dead, drive.contents) = (true, true, Vec::new());
        if self.victims.remove(&number) {
            self.victims.insert(heir);
        }
    }

    pub(crate) fn is_spoiled(&self, drive: DriveNumber) -> bool {
        self.drives[&drive].spoiled
    }

    pub(crate) fn victims(&self) -> Vec<DriveNumber> {
        self.victims.iter().copied().collect()
    }

    pub(crate) fn some_victim(&mut self) -> Option<DriveNumber> {
        let victims = self.victims();
        self.random.one_of(&victims).copied()
    }

    /// Drives that refused a write before then.
    pub(crate) fn refused_before(&self, then: Time) -> impl Iterator<Item = DriveNumber> + '_ {
        let refused = move |drive: &Drive| drive.refused_at.is_some_and(|at| at < then);
        self.drives.iter().filter(move |(_, drive)| refused(drive)).map(|(number, _)| *number)
    }

    pub(crate) fn is_dead(&self, drive: DriveNumber) -> bool {
        self.drives[&drive].dead
    }

    /// Whether something that was asked of a drive takes so long that it may be given up for it.
    pub(crate) fn hangs(&self, drive: DriveNumber, now: Time) -> bool {
        let soon = now + Duration::from_millis(LATEST_MILLIS.end);
        let late = self.due.range((soon, 0)..);
        late.into_iter().any(|(_, serial)| self.in_flight[serial].drive == drive)
    }

    /// When a drive died that nobody has carried away.
    pub(crate) fn died_at(&self, drive: DriveNumber) -> Option<Time> {
        self.drives[&drive].died_at
    }

    /// From now on everything that is asked of it fails.
    pub(crate) fn kill(&mut self, drive: DriveNumber, now: Time) {
        self.spoil(drive);
        let known = self.drives.get_mut(&drive).expect("a drive of the store");
        (known.dead, known.died_at) = (true, Some(now));
        self.counts.fire_and_meet(Fault::DriveDies);
    }

    /// Somebody put an empty drive in its place.
    pub(crate) fn empty(&mut self, drive: DriveNumber) {
        self.spoil(drive);
        let drive = self.drives.get_mut(&drive).expect("a drive of the store");
        drive.contents.fill(0);
        drive.damaged.clear();
        drive.unreadable.clear();
    }

    /// Reads that this lane begins until `last` come back after `until`.
    pub(crate) fn hold_reads(&mut self, lane: u16, last: Time, until: Time) {
        self.held = Some((Queue::Lane(lane), last, until));
    }

    /// From now on the victims do what they may do.
    pub(crate) fn begin_to_fail(&mut self) {
        self.may_fail = true;
    }

    pub(crate) fn may_fail(&self) -> bool {
        self.may_fail
    }

    /// Whether a checkpoint or a superblock is being written.
    pub(crate) fn checkpoints_on_their_way(&self) -> bool {
        self.rounds.values().any(|round| !round.on_way.is_empty())
    }

    /// Whether a lane's checkpoint is being written.
    pub(crate) fn lane_checkpoints_on_their_way(&self) -> bool {
        self.rounds.iter().any(|(queue, round)| *queue != Queue::Control && !round.on_way.is_empty())
    }

    /// Drives that have a checkpoint, or a superblock, that others have not yet.
    pub(crate) fn ahead(&self) -> BTreeSet<DriveNumber> {
        let in_part = self.rounds.values().filter(|round| !round.on_way.is_empty());
        in_part.flat_map(|round| round.done.iter().copied()).collect()
    }

    pub(crate) fn writes_on_their_way(&self) -> bool {
        self.in_flight.values().any(|operation| matches!(operation.memory, Memory::Write(_)))
    }

    /// Nothing new goes wrong from now on; what is damaged stays so.
    pub(crate) fn calm(&mut self) {
        self.enabled.clear();
        self.drives.values_mut().for_each(|drive| drive.slow = false);
    }

    /// Writes without anybody's knowledge: how a store is made.
    pub(crate) fn put(&mut self, drive: DriveNumber, offset: u64, bytes: &[u8]) {
        let contents = &mut self.drives.get_mut(&drive).expect("a drive of the store").contents;
        contents[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    /// What lies on a drive, as whoever opens it reads it; `None` when it is dead.
    pub(crate) fn look(&mut self, drive: DriveNumber, offset: u64, bytes: usize) -> Option<&[u8]> {
        if self.drives[&drive].dead {
            return None;
        }
        self.meet_damage(drive, offset..offset + bytes as u64);
        Some(&self.drives[&drive].contents[offset as usize..offset as usize + bytes])
    }

    /// It counts among those that may be lost.
    pub(crate) fn spoil(&mut self, drive: DriveNumber) {
        self.drives.get_mut(&drive).expect("a drive of the store").spoiled = true;
    }

    pub(crate) fn spoiled(&self) -> BTreeSet<DriveNumber> {
        self.drives.iter().filter(|(_, drive)| drive.spoiled && !drive.removed).map(|(number, _)| *number).collect()
    }

    /// Carries a read out at once, as it would be without anything new going wrong.
    ///
    /// # Panics
    /// When it is a write.
    pub(crate) fn read_now(&self, id: OperationId, operation: Operation) -> Completion {
        let Operation::Read { drive, offset_bytes, mut buffer, bytes } = operation else {
            panic!("a lane that is open for reading alone writes")
        };
        let known = &self.drives[&drive];
        let blocks = offset_bytes / BLOCK..(offset_bytes + bytes as u64) / BLOCK;
        if known.dead || known.unreadable.range(blocks).next().is_some() {
            return Completion { id, result: Err(MediaError::Injected), buffer: Some(buffer) };
        }
        self.read(drive, offset_bytes, &mut buffer[..bytes]);
        Completion { id, result: Ok(()), buffer: Some(buffer) }
    }

    pub(crate) fn submit(&mut self, now: Time, queue: Queue, id: OperationId, operation: Operation) {
        self.operations += 1;
        let (drive, offset, bytes, memory) = match operation {
            Operation::Write { drive, offset_bytes, buffer, bytes } => {
                (drive, offset_bytes, bytes, Memory::Write(buffer))
            }
            Operation::Read { drive, offset_bytes, buffer, bytes } => {
                (drive, offset_bytes, bytes, Memory::Read(buffer))
            }
        };
        let fate = match memory {
            Memory::Write(_) => self.fate_of_write(drive, bytes),
            Memory::Read(_) => self.fate_of_read(drive, offset, bytes),
        };
        let latency = self.latency(drive, offset);
        let held = self.held.filter(|held| matches!(memory, Memory::Read(_)) && held.0 == queue && now <= held.1);
        // Both at once: one after the other would be later than a sound drive may be.
        let due = held.map_or(now, |(.., until)| until).max(now + latency);
        let (target, due) = match &mut self.pool {
            None => (None, due),
            Some(pool) if matches!(memory, Memory::Read(_)) => (None, due.max(pool.blocked_until)),
            Some(pool) => pool.submit(offset, bytes, due.max(pool.blocked_until)),
        };
        if matches!(memory, Memory::Write(_)) && offset < self.slots_offset {
            let round = self.rounds.entry(queue).or_default();
            if round.on_way.is_empty() {
                round.done.clear();
            }
            round.on_way.insert(drive);
        }
        if let (Memory::Write(buffer), Some(written)) = (&memory, &mut self.written)
            && offset >= self.slots_offset
        {
            written.handed_over(buffer, bytes);
        }
        self.next_serial += 1;
        self.due.insert((due, self.next_serial));
        let operation = InFlight { queue, id, drive, offset, bytes, memory, fate, target };
        self.in_flight.insert(self.next_serial, operation);
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// From now on what is written is on the drive only after a while.
    pub(crate) fn leave_sync_out(&mut self) {
        self.unsynced = Some(Vec::new());
    }

    /// What has come to its end.
    pub(crate) fn take_due(&mut self, now: Time, into: &mut Vec<(Queue, DriveNumber, Completion)>) {
        self.now = now;
        if let Some(pool) = &mut self.pool {
            pool.deliver(now);
            (0..std::mem::take(&mut pool.landed)).for_each(|_| self.counts.meet(Fault::LateOfFenced));
        }
        while let Some(&(due, serial)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            let operation = self.in_flight.remove(&serial).expect("what is due is on its way");
            let (queue, drive) = (operation.queue, operation.drive);
            if let Some(round) = self.rounds.get_mut(&queue)
                && operation.offset < self.slots_offset
                && round.on_way.remove(&drive)
            {
                round.done.insert(drive);
            }
            into.push((queue, drive, self.carry_out(operation)));
        }
    }

    fn carry_out(&mut self, operation: InFlight) -> Completion {
        let InFlight { id, drive, offset, bytes, memory, fate, target, .. } = operation;
        if self.is_fenced() {
            self.counts.meet(Fault::Fenced);
            return self.refused(id, memory, target);
        }
        let end = offset + bytes as u64;
        let known = self.drives.get_mut(&drive).expect("a drive of the store");
        let failed = |message: &str| MediaError::Os {
            operation: "operation",
            offset_bytes: offset,
            bytes,
            errno: 5,
            message: message.to_owned(),
        };
        if known.dead {
            if matches!(memory, Memory::Write(_)) {
                known.refused_at.get_or_insert(self.now);
            }
            let buffer = if let Memory::Read(buffer) = memory { Some(buffer) } else { None };
            return Completion { id, result: Err(failed("the drive is dead")), buffer };
        }
        assert!(end <= known.contents.len() as u64, "an operation within the drive");
        match memory {
            Memory::Write(_) if fate == Fate::Failed => {
                known.refused_at.get_or_insert(self.now);
                self.counts.meet(Fault::FailedWrite);
                Completion { id, result: Err(failed("the write failed")), buffer: None }
            }
            Memory::Write(buffer) => {
                if let Some(unsynced) = &mut self.unsynced {
                    let before = known.contents[offset as usize..end as usize].to_vec();
                    unsynced.retain(|write| write.at + UNSYNCED > self.now);
                    unsynced.push(Unsynced { at: self.now, drive, offset, before });
                }
                if let Some(written) =
                    self.written.as_mut().filter(|_| fate == Fate::Right && offset < self.slots_offset)
                {
                    written.carried_out(offset, &buffer[..bytes]);
                }
                match (&mut self.pool, target) {
                    (Some(pool), Some(target)) => pool.write(target, &buffer[..bytes]),
                    _ => self.write(drive, offset, &buffer[..bytes], fate),
                }
                Completion { id, result: Ok(()), buffer: None }
            }
            Memory::Read(mut buffer) => {
                let unreadable = known.unreadable.range(offset / BLOCK..end.div_ceil(BLOCK)).next().is_some();
                let result = match fate {
                    _ if unreadable => Err(failed("blocks cannot be read")),
                    Fate::Short => Err(MediaError::Short { offset_bytes: offset, bytes, moved: 0 }),
                    Fate::Misplaced(from) => {
                        buffer[..bytes].copy_from_slice(&known.contents[from as usize..from as usize + bytes]);
                        Ok(())
                    }
                    Fate::Right | Fate::Lost | Fate::Failed => {
                        self.read(drive, offset, &mut buffer[..bytes]);
                        Ok(())
                    }
                };
                if unreadable {
                    self.counts.meet(Fault::LatentError);
                }
                self.meet_damage(drive, offset..end);
                Completion { id, result, buffer: Some(buffer) }
            }
        }
    }

    fn write(&mut self, drive: DriveNumber, offset: u64, bytes: &[u8], fate: Fate) {
        let drive = self.drives.get_mut(&drive).expect("a drive of the store");
        let blocks = |offset: u64| offset / BLOCK..(offset + bytes.len() as u64) / BLOCK;
        let (to, fault) = match fate {
            Fate::Right | Fate::Short | Fate::Failed => (Some(offset), None),
            Fate::Lost => (None, Some(Fault::LostWrite)),
            Fate::Misplaced(to) => (Some(to), Some(Fault::MisplacedWrite)),
        };
        if let Some(to) = to {
            drive.contents[to as usize..to as usize + bytes.len()].copy_from_slice(bytes);
            for block in blocks(to) {
                drive.damaged.remove(&block);
                drive.unreadable.remove(&block);
            }
        }
        if let Some(fault) = fault {
            let places = blocks(offset).chain(to.into_iter().flat_map(blocks));
            drive.damaged.extend(places.map(|block| (block, fault)));
        }
    }

    fn meet_damage(&mut self, drive: DriveNumber, range: Range<u64>) {
        let drive = self.drives.get_mut(&drive).expect("a drive of the store");
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let met: BTreeSet<u64> = drive.damaged.range(blocks).map(|(block, _)| *block).collect();
        let faults: BTreeSet<Fault> = met.iter().filter_map(|block| drive.damaged.remove(block)).collect();
        faults.into_iter().for_each(|fault| self.counts.meet(fault));
    }
}
