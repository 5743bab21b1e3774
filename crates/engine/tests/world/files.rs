//! Files: two writers, overwrites, cuts, seals and ends, beside everything else; and what a crash may leave of them.
//!
//! Every byte that is written is told from every other, so that what is read says which write it is of. What was acknowledged is there after a crash; of what was
//! not, each change is there or not, and of appends alone none without those before it.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{FetchFile, FileAdmission, FileWrite, Reply, SharedRange, WriteAt, WriterNumber};
use forebay_types::{Adler32, FileNumber, FileOutcome, crc32c};

use super::*;

const WRITERS: u64 = 2;

/// Files that are not over, at most.
const FILES_MAX: usize = 6;

/// The longest that a file becomes by a write at a place of its own.
const BYTES_MAX: u64 = 60_000;

#[derive(Clone, Debug)]
enum Change {
    Write { start: u64, payload: Vec<u8>, appended: bool },
    Length(u64),
    Seal,
    End,
}

#[derive(Clone, Debug, Default)]
struct FileModel {
    bytes: Vec<u8>,
    sealed: bool,
    over: bool,
    /// Sent and not answered, in the order in which they were sent.
    pending: Vec<(Token, Change)>,
    answered: BTreeSet<Token>,
    writers: BTreeSet<u64>,
    /// Who wrote each byte, of those that have the file open.
    owners: BTreeMap<u64, u64>,
}

impl FileModel {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { start, payload, .. } => {
                let start = *start as usize;
                self.bytes.resize(self.bytes.len().max(start + payload.len()), 0);
                self.bytes[start..start + payload.len()].copy_from_slice(payload);
            }
            Change::Length(length) => self.bytes.resize(*length as usize, 0),
            Change::Seal => self.sealed = true,
            Change::End => self.over = true,
        }
    }

    /// With all that was sent.
    fn with_pending(&self) -> FileModel {
        let mut all = self.clone();
        self.pending.iter().for_each(|(_, change)| all.apply(change));
        all
    }

    fn is_ending(&self) -> bool {
        self.over || self.pending.iter().any(|(_, change)| matches!(change, Change::End))
    }

    /// Whether a crash may have left this.
    fn check_found(&self, file: FileNumber, found: &[u8]) {
        let appends = |(_, change): &(Token, Change)| matches!(change, Change::Write { appended: true, .. });
        if self.pending.iter().all(appends) {
            let mut state = self.clone();
            let mut possible = state.bytes == found;
            for (_, change) in &self.pending {
                state.apply(change);
                possible |= state.bytes == found;
            }
            assert!(possible, "{file:?}: neither what was acknowledged nor that and some of the appends, in order");
            return;
        }
        let mut lengths = vec![self.bytes.len()];
        let mut written: Vec<(u64, &[u8])> = Vec::new();
        for (_, change) in &self.pending {
            match change {
                Change::Write { start, payload, .. } => {
                    written.push((*start, payload));
                    lengths.push(*start as usize + payload.len());
                }
                Change::Length(length) => lengths.push(*length as usize),
                Change::Seal | Change::End => {}
            }
        }
        assert!(lengths.contains(&found.len()), "{file:?}: {} bytes, possible are {lengths:?}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let acknowledged = self.bytes.get(at).copied().unwrap_or(0);
            let of = |(start, payload): &(u64, &[u8])| {
                (at as u64).checked_sub(*start).and_then(|at| payload.get(at as usize)) == Some(byte)
            };
            let may_be_zero =
                self.bytes.len() <= at || self.pending.iter().any(|(_, c)| matches!(c, Change::Length(_)));
            let possible = *byte == acknowledged || written.iter().any(of) || *byte == 0 && may_be_zero;
            assert!(possible, "{file:?}: byte {at} is {byte} and was {acknowledged}");
        }
    }
}

/// A read, and its answer.
pub type Awaited = (Token, Option<(ReadOutcome, Vec<u8>)>);

/// A read, and what it must give.
struct FileRead {
    file: FileNumber,
    start: u64,
    expected: Vec<u8>,
    tries: u32,
}

/// So often a read gives a part only.
const TRIES_MAX: u32 = 3;

/// All files, and what was asked of them.
#[derive(Default)]
pub struct Files {
    files: BTreeMap<FileNumber, FileModel>,
    next: u64,
    stamp: u64,
    /// Reads that are on their way.
    reads: BTreeMap<Token, FileRead>,
    /// Reads that gave a part only, as the drives changed under them: the rest is asked for again.
    again: Vec<FileRead>,
    /// What was shared last, and somebody is still sent: it must stay as it is, whatever comes of the file and of the lane.
    shared: Option<SharedRange>,
}

impl Files {
    pub fn is_answered(&self) -> bool {
        self.reads.is_empty() && self.again.is_empty() && self.files.values().all(|file| file.pending.is_empty())
    }

    /// Takes a reply if it is to one of these.
    pub fn reply(&mut self, reply: &Reply, reads_fail: bool, totals: &mut Totals) -> bool {
        let token = match reply {
            Reply::Stored { token, .. } | Reply::Decided { token, .. } | Reply::Refused { token, .. } => *token,
            Reply::ReadFile { token, outcome, payload } => {
                let read = self.reads.remove(token).expect("somebody reads");
                let FileRead { file, start, ref expected, tries } = read;
                assert!(expected.starts_with(payload), "{file:?}: other bytes than were written");
                totals.file_reads += 1;
                if payload.len() < expected.len() && !reads_fail {
                    assert!(tries < TRIES_MAX, "{file:?} cannot be read: {outcome:?}");
                    let (start, expected) = (start + payload.len() as u64, expected[payload.len()..].to_vec());
                    self.again.push(FileRead { start, expected, tries: tries + 1, ..read });
                }
                return true;
            }
            _ => return false,
        };
        let waits = |file: &FileModel| file.pending.iter().any(|(of, _)| *of == token);
        let Some((_, file)) = self.files.iter_mut().find(|(_, file)| waits(file)) else { return false };
        assert!(!matches!(reply, Reply::Refused { .. }), "a sound lane refuses nothing");
        file.answered.insert(token);
        // Those of one flush are answered in any order.
        while file.pending.first().is_some_and(|(token, _)| file.answered.remove(token)) {
            let (_, change) = file.pending.remove(0);
            file.apply(&change);
            totals.file_changes += 1;
        }
        true
    }

    fn some(&self, random: u64) -> Option<FileNumber> {
        let open: Vec<FileNumber> = self.files.iter().filter(|(_, f)| !f.over).map(|(number, _)| *number).collect();
        open.get(random as usize % open.len().max(1)).copied()
    }
}

impl World {
    pub(super) fn file_step(&mut self) {
        let living = self.files.files.values().filter(|file| !file.over).count();
        if living == 0 || living < FILES_MAX && self.random.chance(6) {
            self.files.next += 1;
            let number = FileNumber(self.files.next);
            self.files.files.insert(number, FileModel::default());
        }
        let random = self.random.next();
        let file = self.files.some(random).expect("there is one");
        let writer = self.random.below(WRITERS);
        match self.random.below(100) {
            0..24 => self.append_to_file(file, writer),
            24..30 => self.append_many(file, writer),
            30..55 => self.write_to_file(file, writer),
            55..63 => self.cut_file(file),
            63..66 => self.close_writer(file, writer),
            66..68 => self.seal_file(file),
            68..71 => self.end_file(file),
            71..73 => self.touch_sealed_file(file),
            _ => self.read_file(file),
        }
    }

    fn stamped(&mut self, bytes: u64) -> Vec<u8> {
        self.files.stamp += 1;
        let mut random = Random(self.files.stamp);
        // No byte is zero, as those of holes are.
        (0..bytes).map(|_| 1 + random.below(255) as u8).collect()
    }

    fn some_bytes(&mut self) -> u64 {
        match self.random.below(6) {
            0 => 1 + self.random.below(20),
            1 => 1 + self.random.below(16_000),
            _ => 1 + self.random.below(3000),
        }
    }

    fn append_to_file(&mut self, file: FileNumber, writer: u64) {
        let bytes = self.some_bytes();
        let payload = self.stamped(bytes);
        self.write(file, writer, WriteAt::End, false, payload);
    }

    /// More than one flush of them is on its way, and then perhaps nothing more comes.
    fn append_many(&mut self, file: FileNumber, writer: u64) {
        let few = self.random.chance(50);
        for _ in 0..8 {
            let bytes = if few { 1 + self.random.below(30) } else { 4000 + self.random.below(8000) };
            let payload = self.stamped(bytes);
            self.write(file, writer, WriteAt::End, false, payload);
            if self.random.chance(20) {
                self.turn();
            }
        }
        if self.random.chance(20) {
            self.seal_file(file);
        }
        if self.random.chance(15) {
            self.crash();
            let crash_again = self.random.chance(30);
            self.start(crash_again);
        }
    }

    fn write_to_file(&mut self, file: FileNumber, writer: u64) {
        let length = self.files.files[&file].bytes.len() as u64;
        let start = match self.random.below(3) {
            0 => self.random.below(BYTES_MAX),
            _ => self.random.below(length + 1),
        };
        let bytes = self.some_bytes();
        let payload = self.stamped(bytes);
        let appends = self.random.chance(30);
        self.write(file, writer, WriteAt::Offset(start), appends, payload);
    }

    fn write(&mut self, file: FileNumber, writer: u64, at: WriteAt, appends: bool, payload: Vec<u8>) {
        if !self.opens(file, writer) {
            return;
        }
        let token = self.token();
        let (crc, writer_number) = (crc32c(&payload), WriterNumber(writer));
        let write = FileWrite { file, at, crc, writer: writer_number, appends, may_take_last: false };
        let admission = self.lane().write_file(token, &write, &payload);
        let model = self.files.files.get_mut(&file).expect("a file of the model");
        let all = model.with_pending();
        let start = match at {
            WriteAt::Offset(start) => start,
            WriteAt::End => all.bytes.len() as u64,
        };
        let appended = start == all.bytes.len() as u64;
        let range = start..start + payload.len() as u64;
        let conflicts = range.clone().any(|at| model.owners.get(&at).is_some_and(|owner| *owner != writer));
        // No byte that was written is zero.
        let is_left =
            |at: &u64| all.bytes.get(*at as usize).is_some_and(|byte| *byte != 0) && !model.owners.contains_key(at);
        let goes_over = appends && range.clone().any(|at| is_left(&at));
        let is_behind = start >= all.bytes.len() as u64;
        match admission {
            FileAdmission::Pending { start: at } => {
                assert!(!conflicts, "{file:?}: bytes of another writer are written over");
                assert!(!goes_over, "{file:?}: what is appended goes over what others wrote who left");
                assert_eq!(at, start, "{file:?}: where it ends");
                model.owners.extend(range.map(|at| (at, writer)));
                model.pending.push((token, Change::Write { start, payload, appended }));
            }
            FileAdmission::Done(FileOutcome::Conflict) => {
                assert!(conflicts || appends && !is_behind, "{file:?}: nobody else wrote there");
                self.totals.file_conflicts += 1;
            }
            FileAdmission::Busy | FileAdmission::Done(FileOutcome::NoSpace | FileOutcome::IndexFull) => {}
            FileAdmission::Done(outcome) => panic!("{file:?}: a write came to {outcome:?}"),
        }
    }

    /// Has a writer open a file; whether it may write.
    fn opens(&mut self, file: FileNumber, writer: u64) -> bool {
        let outcome = self.lane().open_file(file, WriterNumber(writer), false);
        let model = self.files.files.get_mut(&file).expect("a file of the model");
        let sealing = model.pending.iter().any(|(_, change)| matches!(change, Change::Seal));
        match outcome {
            Admission::Done(FileOutcome::Done) => {
                assert!(!model.sealed && !sealing && !model.is_ending(), "{file:?} is over or sealed, or becomes so");
                model.writers.insert(writer);
                true
            }
            Admission::Done(FileOutcome::Sealed) => {
                assert!(model.sealed, "{file:?} is not sealed");
                false
            }
            Admission::Done(FileOutcome::Removed) => {
                assert!(model.over, "{file:?} is gone and nobody asked for it");
                false
            }
            Admission::Done(outcome) => panic!("{file:?}: opening it came to {outcome:?}"),
            Admission::Busy | Admission::Pending => false,
        }
    }

    fn close_writer(&mut self, file: FileNumber, writer: u64) {
        self.lane().close_file(file, WriterNumber(writer));
        let model = self.files.files.get_mut(&file).expect("a file of the model");
        model.writers.remove(&writer);
        model.owners.retain(|_, owner| *owner != writer);
    }

    fn cut_file(&mut self, file: FileNumber) {
        let model = &self.files.files[&file];
        let length = model.bytes.len() as u64;
        let length = match self.random.below(4) {
            0 => 0,
            1 => length + self.random.below(9000),
            _ => self.random.below(length + 1),
        };
        let token = self.token();
        let admission = self.lane().set_file(token, file, Some(length), None);
        let model = self.files.files.get_mut(&file).expect("a file of the model");
        match admission {
            Admission::Pending => {
                assert!(!model.sealed && model.pending.is_empty(), "nothing else is on its way");
                model.owners.split_off(&length);
                model.pending.push((token, Change::Length(length)));
            }
            Admission::Done(FileOutcome::Sealed) => assert!(model.sealed),
            Admission::Busy | Admission::Done(FileOutcome::NoSpace) => {}
            Admission::Done(outcome) => panic!("{file:?}: cutting it came to {outcome:?}"),
        }
    }

    fn touch_sealed_file(&mut self, file: FileNumber) {
        if !self.files.files[&file].sealed {
            return;
        }
        let token = self.token();
        if self.lane().set_file(token, file, None, Some(77)) == Admission::Pending {
            let model = self.files.files.get_mut(&file).expect("a file of the model");
            model.pending.push((token, Change::Length(model.bytes.len() as u64)));
        }
    }

    fn seal_file(&mut self, file: FileNumber) {
        let token = self.token();
        let admission = self.lane().seal_file(token, file);
        let model = self.files.files.get_mut(&file).expect("a file of the model");
        match admission {
            Admission::Pending => model.pending.push((token, Change::Seal)),
            Admission::Done(FileOutcome::Sealed) => assert!(model.sealed),
            Admission::Done(FileOutcome::Removed) => assert!(model.over),
            Admission::Busy | Admission::Done(FileOutcome::NoSpace) => {}
            Admission::Done(outcome) => panic!("{file:?}: sealing it came to {outcome:?}"),
        }
    }

    fn end_file(&mut self, file: FileNumber) {
        let token = self.token();
        match self.lane().end_file(token, file) {
            Admission::Pending => {
                let model = self.files.files.get_mut(&file).expect("a file of the model");
                model.pending.push((token, Change::End));
            }
            Admission::Busy => {}
            Admission::Done(outcome) => panic!("{file:?}: ending it came to {outcome:?}"),
        }
    }

    /// Reads a range, which shows what is durable, and no more.
    fn read_file(&mut self, file: FileNumber) {
        let model = self.files.files[&file].clone();
        let length = model.bytes.len() as u64;
        let start = self.random.below(length + 10);
        let bytes = self.random.below(length + 10) as u32;
        self.read_range(file, &model, start, bytes, 0);
    }

    /// Asks for what a read did not give, of what is there now.
    pub(super) fn read_again(&mut self) {
        for FileRead { file, start, expected, tries } in std::mem::take(&mut self.files.again) {
            let model = self.files.files[&file].clone();
            if !model.over {
                self.read_range(file, &model, start, expected.len() as u32, tries);
            }
        }
    }

    fn read_range(&mut self, file: FileNumber, model: &FileModel, start: u64, bytes: u32, tries: u32) {
        let length = model.bytes.len() as u64;
        let expected = &model.bytes[start.min(length) as usize..(start + u64::from(bytes)).min(length) as usize];
        self.share_range(file, expected, start, bytes);
        let token = self.token();
        let mut into = Vec::new();
        match self.lane().read_file(token, file, start, bytes, &mut into) {
            FetchFile::Done(ReadOutcome::Found, found) => {
                assert_eq!(found, into.len());
                assert!(into == expected, "{file:?}: other bytes than were written");
                self.totals.file_reads += 1;
            }
            FetchFile::Done(ReadOutcome::NotFound, _) => assert!(expected.is_empty(), "{file:?} has bytes"),
            FetchFile::Done(outcome, _) => panic!("{file:?}: {outcome:?}"),
            FetchFile::Pending { .. } => {
                let expected = expected.to_vec();
                self.files.reads.insert(token, FileRead { file, start, expected, tries });
            }
        }
        let view = self.lane().file(file);
        assert_eq!(view.map_or(0, |view| view.length), length, "{file:?}: how long it is");
        assert_eq!(view.is_some_and(|view| view.sealed), model.sealed, "{file:?}: whether it is sealed");
        if let Some(sums) = view.and_then(|view| view.sums) {
            assert_eq!(sums, sums_of(&model.bytes), "{file:?}: its sums");
        }
    }

    /// The same range where it lies in memory, when it does; what was shared before is let go of.
    fn share_range(&mut self, file: FileNumber, expected: &[u8], start: u64, bytes: u32) {
        let Some(shared) = self.lane().share_file(file, start, bytes) else { return };
        assert!(bytes_of(&shared) == expected, "{file:?}: other bytes are shared than were written");
        assert_eq!((shared.bytes, shared.crc), (expected.len(), crc32c(expected)), "{file:?}: length and sum");
        self.totals.file_reads_shared += u64::from(shared.bytes > 0);
        if let Some(before) = self.files.shared.replace(shared) {
            assert_eq!(crc32c(&bytes_of(&before)), before.crc, "what was shared has changed since");
        }
    }

    /// What a start found becomes what must be there from now on.
    pub(super) fn files_after_crash(&mut self) {
        self.files.reads.clear();
        self.files.again.clear();
        let numbers: Vec<FileNumber> =
            self.files.files.iter().filter(|(_, file)| !file.over).map(|(number, _)| *number).collect();
        for number in numbers {
            let found = self.read_all(number);
            let view = self.lane().file(number);
            let lane = self.lane();
            let removed = lane.outcome_of_unknown_file(number) == ReadOutcome::Deleted;
            let model = self.files.files.get_mut(&number).expect("a file of the model");
            model.owners.clear();
            assert!(model.answered.is_empty(), "{number:?}: what is answered is durable, and what came before it");
            model.writers.clear();
            if removed {
                assert!(model.is_ending(), "{number:?} is gone and nobody asked for it");
                (model.over, model.pending) = (true, Vec::new());
                continue;
            }
            let found = found.unwrap_or_default();
            model.check_found(number, &found);
            let sealing = model.pending.iter().any(|(_, change)| matches!(change, Change::Seal));
            let sealed = view.is_some_and(|view| view.sealed);
            assert!(sealed == model.sealed || sealed && sealing, "{number:?}: sealed, or not any more");
            if sealed && sealing {
                let all = model.with_pending();
                assert!(all.bytes == found, "{number:?} is sealed, and not all of it is there");
            }
            (model.bytes, model.sealed, model.pending) = (found, sealed, Vec::new());
        }
    }

    /// All bytes of a file, read as often as it takes.
    fn read_all(&mut self, file: FileNumber) -> Option<Vec<u8>> {
        let mut tries = 0;
        loop {
            let token = self.token();
            let mut into = Vec::new();
            let (outcome, payload) = match self.lane().read_file(token, file, 0, 1 << 20, &mut into) {
                FetchFile::Done(ReadOutcome::Deleted | ReadOutcome::NotFound, _) => return None,
                FetchFile::Done(outcome, _) => (outcome, into),
                FetchFile::Pending { .. } => self.answer_of(token),
            };
            let length = self.lane().file(file).map_or(0, |view| view.length);
            if outcome == ReadOutcome::Found && payload.len() as u64 == length {
                return Some(payload);
            }
            tries += 1;
            assert!(tries < 200, "{file:?} cannot be read: {outcome:?}");
        }
    }

    /// Waits for one read; others are not on their way.
    fn answer_of(&mut self, token: Token) -> (ReadOutcome, Vec<u8>) {
        self.files.reads.clear();
        self.awaited = Some((token, None));
        for _ in 0..100_000 {
            self.turn();
            if let Some((_, Some(answer))) = self.awaited.take_if(|(_, answer)| answer.is_some()) {
                return answer;
            }
        }
        panic!("a read is never answered: {:?}", self.lane().status());
    }

    /// All files are right, sealed ones with their sums, then they end.
    pub(super) fn end_all_files(&mut self) {
        let files: Vec<(FileNumber, FileModel)> =
            self.files.files.iter().filter(|(_, file)| !file.over).map(|(at, file)| (*at, file.clone())).collect();
        for (file, model) in &files {
            self.read_range(*file, model, 0, 1 << 20, 0);
            if model.sealed {
                let view = self.lane().file(*file).expect("it is sealed");
                assert_eq!(view.sums, Some(sums_of(&model.bytes)), "{file:?}: its sums");
                self.totals.files_summed += 1;
            }
        }
        for (file, _) in files {
            let token = self.token();
            let mut turns = 0;
            while let Admission::Busy = self.lane().end_file(token, file) {
                self.turn();
                turns += 1;
                assert!(turns < 10_000, "an end is never taken: {:?}", self.lane().status());
            }
            self.files.files.get_mut(&file).expect("a file of the model").pending.push((token, Change::End));
            self.turn();
        }
    }
}

fn bytes_of(shared: &SharedRange) -> Vec<u8> {
    shared.pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

fn sums_of(bytes: &[u8]) -> (u32, u32) {
    let mut adler32 = Adler32::default();
    adler32.update(bytes);
    (crc32c(bytes), adler32.finish())
}
