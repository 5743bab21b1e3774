//! Files, step by step; what crashes may leave of them is in the model test.

use std::collections::BTreeMap;

use forebay_types::{Adler32, DriveNumber, EventKey, FileNumber, FileOutcome, ReadOutcome, WallTime, crc32c};

use super::{DRIVE_BYTES, Driven};
use crate::api::{Admission, FetchFile, FileAdmission, FileView, FileWrite, Reply, Token, WriteAt};
use crate::files::WriterNumber;
use crate::lane::SharedRange;
use crate::losses::{Loss, LossKind, LostPart};

const FILE: FileNumber = FileNumber(5);
const WRITER: WriterNumber = WriterNumber(1);

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| ((at * 31 + seed * 7) % 251 + 1) as u8).collect()
}

impl Driven {
    fn open_file(&mut self, writer: WriterNumber) {
        assert_eq!(self.lane.open_file(FILE, writer, false), Admission::Done(FileOutcome::Done));
    }

    /// Offers bytes until they are taken, or refused.
    fn offer(&mut self, writer: WriterNumber, at: WriteAt, payload: &[u8]) -> (Token, FileAdmission) {
        let token = self.token();
        let write = FileWrite { file: FILE, at, crc: crc32c(payload), writer, appends: false, may_take_last: false };
        loop {
            match self.lane.write_file(token, &write, payload) {
                FileAdmission::Busy => self.turn(),
                admission => return (token, admission),
            }
        }
    }

    /// Puts bytes in the place of a write, as many as are given.
    fn put_in_place(&mut self, write: &FileWrite, bytes: usize, payload: &[u8]) {
        let (mut rest, mut length) = (payload, 0);
        for part in self.lane.place_of_write(write, bytes).expect("it can be taken") {
            let (of_part, after) = rest.split_at(rest.len().min(part.len()));
            part[..of_part.len()].copy_from_slice(of_part);
            (rest, length) = (after, length + part.len());
        }
        assert_eq!(length, bytes, "there is a place for all of it");
    }

    fn write(&mut self, start: u64, payload: &[u8]) {
        let (_, admission) = self.offer(WRITER, WriteAt::Offset(start), payload);
        assert_eq!(admission, FileAdmission::Pending { start });
        self.replies_to(1);
    }

    fn told(&mut self, ask: impl Fn(&mut crate::lane::Lane, Token) -> Admission<FileOutcome>) -> FileOutcome {
        let token = self.token();
        loop {
            match ask(&mut self.lane, token) {
                Admission::Busy => self.turn(),
                Admission::Done(outcome) => return outcome,
                Admission::Pending => break,
            }
        }
        assert!(matches!(self.reply(), Reply::Decided { token: of, .. } if of == token));
        FileOutcome::Done
    }

    fn seal(&mut self) -> FileOutcome {
        self.told(|lane, token| lane.seal_file(token, FILE))
    }

    fn cut(&mut self, length: u64) -> FileOutcome {
        self.told(|lane, token| lane.set_file(token, FILE, Some(length), None))
    }

    fn read_file(&mut self, start: u64, bytes: u32) -> (ReadOutcome, Vec<u8>) {
        let (token, mut into) = (self.token(), Vec::new());
        let shared = self.lane.share_file(FILE, start, bytes);
        match self.lane.read_file(token, FILE, start, bytes, &mut into) {
            FetchFile::Done(outcome, _) => {
                if let Some(SharedRange { pieces, bytes, crc }) = shared {
                    let pieces = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
                    assert_eq!((outcome, bytes, crc), (ReadOutcome::Found, into.len(), crc32c(&into)));
                    assert!(pieces == into, "what is shared is what is copied");
                    self.shared += 1;
                }
                (outcome, into)
            }
            FetchFile::Pending { .. } => match self.reply() {
                Reply::ReadFile { outcome, payload, .. } => (outcome, payload),
                other => panic!("{other:?}"),
            },
        }
    }

    fn view(&self) -> FileView {
        self.lane.file(FILE).expect("it was written to")
    }

    fn pieces(&self) -> Vec<(u64, u32)> {
        let file = self.lane.files.get(FILE).expect("it was written to");
        file.in_range(0..u64::MAX).map(|(start, extent)| (start, extent.bytes)).collect()
    }
}

fn sums_of(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut adler32 = Adler32::default();
    adler32.update(bytes);
    Some((crc32c(bytes), adler32.finish()))
}

#[test]
fn what_was_written_in_little_pieces_is_shared_once_it_lies_where_nothing_is_written() {
    let mut driven = Driven::new(|config| config.flush_bytes = 32 << 10);
    driven.open_file(WRITER);
    let all = bytes(5, 400_000);
    for (number, piece) in all.chunks(8_000).enumerate() {
        driven.write(number as u64 * 8_000, piece);
        let shared = driven.shared;
        let (outcome, read) = driven.read_file(number as u64 * 8_000, 8_000);
        assert!(outcome == ReadOutcome::Found && read == piece);
        let (outcome, read) = driven.read_file(0, 8_000);
        assert!(outcome == ReadOutcome::Found && read == all[..8_000]);
        // The newest lies where the next one is written to; the oldest no more, from some time on.
        assert!(driven.shared <= shared + 1, "piece {number}");
    }
    assert!(driven.shared > 20, "{} pieces", driven.shared);
    let (shared, (_, read)) = (driven.shared, driven.read_file(4_000, 200_000));
    assert!(read == all[4_000..204_000] && driven.shared == shared + 1);
}

#[test]
fn what_lies_in_memory_is_shared_and_stays_for_whoever_has_it() {
    // A record fills most of a flush, which stays as it was written.
    let mut driven = Driven::new(|config| config.flush_bytes = 32 << 10);
    driven.open_file(WRITER);
    let all = bytes(3, 120_000);
    driven.write(0, &all[..60_000]);
    driven.write(60_000, &all[60_000..]);
    // From within a record to within another, over all units between, one record alone, and all of it.
    for range in [10_000..70_000, 55_000..65_000, 60_000..120_000, 0..200_000] {
        let (outcome, read) = driven.read_file(range.start, (range.end - range.start) as u32);
        assert_eq!(
            (outcome, &read[..]),
            (ReadOutcome::Found, &all[range.start as usize..120_000.min(range.end as usize)])
        );
    }
    assert_eq!(driven.shared, 4);
    let kept = driven.lane.share_file(FILE, 100, 110_000).expect("it is in memory");
    // Behind its end, in front of a hole, and of what is gone, there is something else to say.
    driven.write(130_000, b"behind a hole");
    for (start, bytes) in [(0, 200_000), (125_000, 10)] {
        assert!(driven.lane.share_file(FILE, start, bytes).is_none());
    }
    // Of two records, little.
    assert!(
        driven.lane.share_file(FILE, 59_000, 8_000).is_none() && driven.lane.share_file(FILE, 57_000, 8_192).is_some()
    );
    assert_eq!(driven.lane.share_file(FILE, 200_000, 10).expect("none is there").bytes, 0);
    assert_eq!(driven.told(|lane, token| lane.end_file(token, FILE)), FileOutcome::Done);
    assert!(driven.lane.share_file(FILE, 0, 10).is_none());
    for part in 0..40 {
        // Others come and go, in memory that was the first one's if nobody had it.
        driven.put(EventKey::new(7, part), 1, 1, 50_000);
    }
    assert!(driven.lane.pool.lent_bytes() >= 110_000, "it counts as long as somebody has it");
    assert!(driven.lane.memory_bytes() >= driven.lane.index_bytes() + driven.lane.pool.lent_bytes());
    let pieces: Vec<u8> = kept.pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    assert!(pieces == all[100..110_100] && kept.crc == crc32c(&pieces), "what somebody has stays as it was");
    drop(kept);
    assert_eq!(driven.lane.pool.lent_bytes(), 0);
}

#[test]
fn a_file_is_what_was_written_and_stays_so() {
    for cache_bytes in [0, 1 << 20] {
        let mut driven = Driven::new(|config| config.cache_bytes = cache_bytes);
        driven.lane.set_wall_time(WallTime(1_000_000));
        driven.open_file(WRITER);
        let mut all = Vec::new();
        for part in 0..30 {
            let payload = bytes(part, 1 + 1777 * part as usize);
            driven.write(all.len() as u64, &payload);
            all.extend(payload);
        }
        assert_eq!(driven.view().length, all.len() as u64);
        assert_eq!(driven.view().written_unix_ns, 1_000_000_000_000);
        for (start, count) in [(0, all.len()), (1, 1), (5000, 100_000), (all.len() - 1, 1)] {
            assert_eq!(
                driven.read_file(start as u64, count as u32),
                (ReadOutcome::Found, all[start..start + count].to_vec())
            );
        }
        assert_eq!(driven.read_file(all.len() as u64, 10), (ReadOutcome::Found, vec![]), "nothing lies behind its end");
        assert_eq!(driven.read_file(u64::MAX, u32::MAX), (ReadOutcome::Found, vec![]));
        assert_eq!(driven.seal(), FileOutcome::Done);
        assert_eq!(driven.view().sums, sums_of(&all), "it was written in order");
        let before = driven.reads;
        driven.reopen(false);
        assert_eq!(driven.read_file(0, u32::MAX), (ReadOutcome::Found, all.clone()));
        assert!(driven.view().sealed && driven.view().sums == sums_of(&all) && driven.reads > before);
        driven.reopen(true);
        assert_eq!(driven.read_file(7, 90_000), (ReadOutcome::Found, all[7..90_007].to_vec()));
        assert_eq!(driven.lane.open_file(FILE, WRITER, false), Admission::Done(FileOutcome::ReadOnly));
    }
}

#[test]
fn who_seals_a_file_that_was_written_in_order_has_its_sums_at_once_though_it_was_closed() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    let all = bytes(1, 100_000);
    driven.open_file(WRITER);
    driven.write(0, &all[..40_000]);
    driven.lane.close_file(FILE, WRITER);
    // Who goes on, and who says when it was written, change nothing of that.
    driven.open_file(WRITER);
    driven.write(40_000, &all[40_000..90_000]);
    assert_eq!(driven.told(|lane, token| lane.set_file(token, FILE, None, Some(5))), FileOutcome::Done);
    driven.write(90_000, &all[90_000..]);
    driven.lane.close_file(FILE, WRITER);
    assert_eq!(driven.told(|lane, token| lane.set_file(token, FILE, None, Some(6))), FileOutcome::Done);
    let reads = driven.reads;
    assert_eq!(driven.seal(), FileOutcome::Done);
    assert_eq!(driven.view().sums, sums_of(&all));
    (0..50).for_each(|_| driven.turn());
    assert_eq!(driven.reads, reads, "nothing is read for that");
}

#[test]
fn the_sums_of_a_closed_file_are_those_of_what_it_is_when_it_is_sealed() {
    let all = bytes(1, 60_000);
    type Change<'a> = &'a dyn Fn(&mut Driven) -> Vec<u8>;
    let ways: [(&str, Change<'_>); 4] = [
        ("written over", &|driven| {
            driven.write(10_000, &[7; 100]);
            [&all[..10_000], &[7; 100], &all[10_100..]].concat()
        }),
        ("cut", &|driven| {
            assert_eq!(driven.cut(30_000), FileOutcome::Done);
            all[..30_000].to_vec()
        }),
        ("cut, and as long as before", &|driven| {
            assert_eq!(driven.cut(59_000), FileOutcome::Done);
            driven.write(59_000, &[3; 1000]);
            [&all[..59_000], &[3; 1000][..]].concat()
        }),
        ("begun anew", &|driven| {
            assert_eq!(driven.cut(0), FileOutcome::Done);
            driven.write(0, b"begun anew");
            b"begun anew".to_vec()
        }),
    ];
    for (how, change) in ways {
        let mut driven = Driven::new(|config| config.cache_bytes = 0);
        driven.open_file(WRITER);
        driven.write(0, &all);
        driven.lane.close_file(FILE, WRITER);
        driven.open_file(WRITER);
        let expected = change(&mut driven);
        driven.lane.close_file(FILE, WRITER);
        let before = driven.reads;
        assert_eq!(driven.seal(), FileOutcome::Done);
        let told = driven.view().sums;
        assert!(told.is_none() || told == sums_of(&expected), "{how}");
        (0..200).for_each(|_| driven.turn());
        assert_eq!(driven.view().sums, sums_of(&expected), "{how}");
        assert_eq!(driven.reads > before, told.is_none(), "{how}: read when they are not known");
        assert_eq!(told.is_some(), how == "begun anew", "{how}");
        let read = driven.reads;
        (0..200).for_each(|_| driven.turn());
        assert_eq!(driven.reads, read, "{how}: once");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut driven = Driven::new(|_| {});
    let done = |driven: &mut Driven, writer, at, payload: &[u8]| match driven.offer(writer, at, payload).1 {
        FileAdmission::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(done(&mut driven, WRITER, WriteAt::End, b"abc"), FileOutcome::NotOpen);
    driven.open_file(WRITER);
    driven.write(0, b"abcdef");
    assert_eq!(done(&mut driven, WRITER, WriteAt::End, &[1; 60_001]), FileOutcome::TooLarge);
    assert_eq!(done(&mut driven, WRITER, WriteAt::Offset((1 << 48) - 3), b"abc"), FileOutcome::TooLarge);
    assert_eq!(done(&mut driven, WRITER, WriteAt::Offset(u64::MAX), b"abc"), FileOutcome::TooLarge);
    assert_eq!(done(&mut driven, WRITER, WriteAt::End, b""), FileOutcome::Done);
    assert_eq!(driven.cut(1 << 48), FileOutcome::TooLarge);
    let damaged =
        FileWrite { file: FILE, at: WriteAt::End, crc: 1, writer: WRITER, appends: false, may_take_last: false };
    let damaged_of = |driven: &mut Driven| {
        let token = driven.token();
        driven.lane.write_file(token, &damaged, b"xyz")
    };
    assert_eq!(damaged_of(&mut driven), FileAdmission::Done(FileOutcome::ChecksumMismatch));
    // Damaged bytes that follow a piece that waits for its flush.
    let (_, first) = driven.offer(WRITER, WriteAt::End, b"ghi");
    assert_eq!(first, FileAdmission::Pending { start: 6 });
    assert_eq!(damaged_of(&mut driven), FileAdmission::Done(FileOutcome::ChecksumMismatch));
    let (_, second) = driven.offer(WRITER, WriteAt::End, b"jkl");
    assert_eq!(second, FileAdmission::Pending { start: 9 });
    driven.replies_to(2);
    assert_eq!(driven.read_file(0, 100), (ReadOutcome::Found, b"abcdefghijkl".to_vec()));

    // Another writer may write behind, and not over.
    let other = WriterNumber(2);
    driven.open_file(other);
    assert_eq!(done(&mut driven, other, WriteAt::Offset(11), b"x"), FileOutcome::Conflict);
    assert_eq!(driven.offer(other, WriteAt::Offset(12), b"mno").1, FileAdmission::Pending { start: 12 });
    driven.replies_to(1);
    assert_eq!(done(&mut driven, WRITER, WriteAt::Offset(8), b"12345"), FileOutcome::Conflict);
    driven.lane.close_file(FILE, other);
    driven.write(8, b"12345");
    assert_eq!(driven.read_file(0, 100), (ReadOutcome::Found, b"abcdefgh12345no".to_vec()));

    assert_eq!(driven.seal(), FileOutcome::Done);
    assert_eq!(driven.seal(), FileOutcome::Sealed);
    assert_eq!(driven.cut(0), FileOutcome::Sealed);
    assert_eq!(done(&mut driven, WRITER, WriteAt::End, b"abc"), FileOutcome::Sealed);
    assert_eq!(driven.told(|lane, token| lane.set_file(token, FILE, None, Some(-5))), FileOutcome::Done);
    assert_eq!(driven.view().written_unix_ns, -5, "when it was written may be said all the same");
    for _ in 0..100 {
        driven.turn();
    }
    assert_eq!(driven.view().sums, sums_of(b"abcdefgh12345no"), "it was read once");

    assert_eq!(driven.told(|lane, token| lane.end_file(token, FILE)), FileOutcome::Done);
    assert_eq!(driven.lane.file(FILE), None);
    assert_eq!(driven.read_file(0, 10), (ReadOutcome::Deleted, vec![]));
    assert_eq!(driven.lane.open_file(FILE, WRITER, true), Admission::Done(FileOutcome::Removed));
    assert_eq!(driven.told(|lane, token| lane.end_file(token, FILE)), FileOutcome::Removed);
    driven.reopen(false);
    assert_eq!(driven.read_file(0, 10), (ReadOutcome::Deleted, vec![]));
    assert_eq!(driven.lane.file(FileNumber(6)), None);
}

#[test]
fn what_is_written_small_and_side_by_side_becomes_one_piece() {
    let mut driven = Driven::new(|_| {});
    driven.open_file(WRITER);
    let all = bytes(3, 5000);
    // One byte at a time, then seven, which end in the middle of what rows are rounded up to.
    let parts: Vec<&[u8]> = all[..800].chunks(1).chain(all[800..].chunks(7)).collect();
    for part in &parts {
        let (_, admission) = driven.offer(WRITER, WriteAt::End, part);
        assert!(matches!(admission, FileAdmission::Pending { .. }), "{admission:?}");
    }
    driven.replies_to(parts.len());
    assert_eq!(driven.read_file(0, 9999), (ReadOutcome::Found, all.clone()));
    assert!(driven.pieces().len() <= 3, "{:?}", driven.pieces());
    // A crash before it is durable takes all or nothing of a piece.
    let more = bytes(4, 3000);
    for part in more.chunks(11) {
        let (_, admission) = driven.offer(WRITER, WriteAt::End, part);
        assert!(matches!(admission, FileAdmission::Pending { .. }), "{admission:?}");
    }
    driven.replies_to(more.chunks(11).count());
    driven.reopen(false);
    assert_eq!(driven.read_file(0, 9999), (ReadOutcome::Found, [all, more].concat()));
}

#[test]
fn a_file_is_zeros_where_nothing_was_written_or_all_was_cut() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    driven.open_file(WRITER);
    let payload = bytes(1, 40_000);
    driven.write(20_000, &payload);
    assert_eq!(driven.read_file(0, 20_001), (ReadOutcome::Found, [&[0; 20_000][..], &payload[..1]].concat()));
    assert_eq!(driven.cut(25_000), FileOutcome::Done);
    assert_eq!(driven.cut(50_000), FileOutcome::Done);
    driven.write(59_000, b"end");
    let expected = [&[0; 20_000][..], &payload[..5000], &[0; 34_000], b"end"].concat();
    assert_eq!(driven.read_file(0, 99_999), (ReadOutcome::Found, expected.clone()));
    assert_eq!(driven.seal(), FileOutcome::Done);
    for reopened in [false, true] {
        if reopened {
            driven.reopen(false);
        }
        for _ in 0..200 {
            driven.turn();
        }
        assert_eq!(driven.view().sums, sums_of(&expected));
        assert_eq!(driven.read_file(0, 99_999), (ReadOutcome::Found, expected.clone()));
    }
}

/// A seal is never durable before all that it seals: with it in one flush, or behind it.
#[test]
fn a_seal_goes_with_what_it_seals_or_waits() {
    let mut driven = Driven::new(|_| {});
    driven.open_file(WRITER);
    let seal = |driven: &mut Driven| {
        let token = driven.token();
        driven.lane.seal_file(token, FILE)
    };
    let offer = |driven: &mut Driven, payload: &[u8]| {
        let (token, crc) = (driven.token(), crc32c(payload));
        driven.lane.write_file(
            token,
            &FileWrite { file: FILE, at: WriteAt::End, crc, writer: WRITER, appends: false, may_take_last: false },
            payload,
        )
    };
    // More than one flush of it, and none of them back.
    let payload = bytes(1, 50_000);
    for _ in 0..3 {
        assert!(matches!(offer(&mut driven, &payload), FileAdmission::Pending { .. }));
    }
    assert_eq!((driven.lane.writer.in_flight.len(), driven.lane.writer.filling.is_some()), (1, true));
    assert_eq!(seal(&mut driven), Admission::Busy);
    let token = driven.token();
    assert_eq!(
        driven.lane.set_file(token, FILE, Some(0), None),
        Admission::Busy,
        "it would outrank what is on its way"
    );
    assert_eq!(driven.lane.end_file(token, FILE), Admission::Busy);
    driven.replies_to(3);
    assert!(matches!(offer(&mut driven, b"all in one flush"), FileAdmission::Pending { .. }));
    assert_eq!(seal(&mut driven), Admission::Pending);
    assert_eq!(offer(&mut driven, b"more"), FileAdmission::Busy, "nothing comes behind a seal");
    let open = |driven: &mut Driven| driven.lane.open_file(FILE, WriterNumber(2), false);
    assert_eq!(open(&mut driven), Admission::Busy, "nobody opens what is being sealed, to be told later");
    driven.replies_to(1);
    assert!(matches!(driven.reply(), Reply::Decided { .. }));
    assert_eq!(open(&mut driven), Admission::Done(FileOutcome::Sealed));
    let all = [&payload[..], &payload, &payload, b"all in one flush"].concat();
    assert_eq!(driven.view().sums, sums_of(&all));
    assert_eq!(driven.read_file(0, u32::MAX), (ReadOutcome::Found, all));
}

/// Two drives of 2+1 are damaged: what lies there is told lost, by the reader and by a scrub, and what lies elsewhere is read.
#[test]
fn pieces_that_are_lost_are_told_and_never_zeros() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    driven.open_file(WRITER);
    let payload = bytes(1, 30_000);
    for part in 0..20 {
        driven.write(part * 30_000, &payload);
    }
    driven.lane.scrub_all();
    while driven.lane.status().scrub.segments_asked > 0 {
        driven.pass(std::time::Duration::from_millis(10));
    }
    // A place in which some of the pieces lie.
    let segment = driven.lane.stored_segments()[0].clone();
    for drive in [0, 1] {
        let place = segment.shards.iter().find(|place| place.drive == DriveNumber(drive)).expect("on each drive");
        let start = driven.lane.slot_offset(*place);
        driven.drives.corrupt(DriveNumber(drive), start + (100 << 10)..start + (160 << 10), 7);
    }
    let read: BTreeMap<u64, ReadOutcome> =
        (0..20).map(|part| (part * 30_000, driven.read_file(part * 30_000, 30_000).0)).collect();
    let lost: Vec<u64> = read.iter().filter(|(_, outcome)| **outcome == ReadOutcome::Lost).map(|(at, _)| *at).collect();
    assert!(lost.len() >= 2 && lost.len() < 10, "{read:?}");
    assert!(read.values().all(|outcome| matches!(outcome, ReadOutcome::Found | ReadOutcome::Lost)));
    // All up to the first that is lost.
    let (outcome, found) = driven.read_file(0, 600_000);
    assert_eq!((outcome, found.len() as u64), (ReadOutcome::Found, lost[0]));
    let told = |driven: &mut Driven| -> Vec<u64> {
        let losses: Vec<Loss> = driven.lane.losses(0, 100).losses;
        let piece = |loss: &Loss| match loss.part {
            LostPart::Piece { file: FILE, start, bytes: 30_000, .. } if loss.kind == LossKind::Lost => start,
            _ => panic!("{loss:?}"),
        };
        let mut told: Vec<u64> = losses.iter().map(piece).collect();
        told.sort_unstable();
        told
    };
    assert_eq!(told(&mut driven), lost, "by readers");
    driven.reopen(false);
    assert_eq!(told(&mut driven), [], "nobody looked since the start");
    driven.lane.scrub_all();
    while driven.lane.status().scrub.segments_asked > 0 {
        driven.pass(std::time::Duration::from_millis(10));
    }
    assert_eq!(told(&mut driven), lost, "by a scrub");
    // What is written over, or cut, is missed no more.
    driven.open_file(WRITER);
    driven.write(lost[0], &payload);
    assert_eq!(told(&mut driven), lost[1..]);
    assert_eq!(driven.cut(lost[1]), FileOutcome::Done);
    assert_eq!(told(&mut driven), []);
    assert_eq!(driven.read_file(lost[0], 99_999), (ReadOutcome::Found, driven_tail(&payload, lost[1] - lost[0])));
}

fn driven_tail(payload: &[u8], count: u64) -> Vec<u8> {
    payload.iter().copied().cycle().take(count as usize).collect()
}

#[test]
fn a_damaged_piece_is_given_from_parity_and_mended() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    driven.open_file(WRITER);
    let payload = bytes(1, 50_000);
    driven.write(0, &payload);
    driven.drives.corrupt(DriveNumber(1), 0..DRIVE_BYTES, 3);
    assert_eq!(driven.read_file(100, 30_000), (ReadOutcome::Found, payload[100..30_100].to_vec()));
    for _ in 0..100 {
        driven.pass(std::time::Duration::from_millis(10));
    }
    let health = driven.lane.status().drive_health;
    assert!(health.iter().all(|drive| (drive.mended > 0) == (drive.drive == 1)), "{health:?}");
}

#[test]
fn what_is_put_in_its_place_counts_when_it_is_written() {
    let mut driven = Driven::new(|_| {});
    driven.open_file(WRITER);
    let write_of = |start, payload: &[u8]| FileWrite {
        file: FILE,
        at: WriteAt::Offset(start),
        crc: crc32c(payload),
        writer: WRITER,
        appends: false,
        may_take_last: false,
    };
    let mut whole: Vec<u8> = Vec::new();
    for (round, count) in [1, 4096, 60_000, 4095, 31_000, 12_289, 60_000].into_iter().enumerate() {
        let payload = bytes(round as u64, count);
        let (start, write) = (whole.len() as u64, write_of(whole.len() as u64, &payload));
        while driven.lane.place_of_write(&write, count).is_none() {
            driven.turn();
        }
        // Some of it came, or other bytes, and then its writer was gone: something else is written there, as long or longer.
        driven.put_in_place(&write, count, &bytes(77, count / 2));
        let token = driven.token();
        let refused = driven.lane.write_placed(token, &write, count);
        assert_eq!(refused, FileAdmission::Done(FileOutcome::ChecksumMismatch), "{count} bytes");
        if round % 2 == 1 {
            let (_, admission) = driven.offer(WRITER, WriteAt::Offset(start), &payload);
            assert_eq!(admission, FileAdmission::Pending { start });
        } else {
            driven.put_in_place(&write, count, &payload);
            let token = driven.token();
            assert_eq!(driven.lane.write_placed(token, &write, count), FileAdmission::Pending { start });
        }
        whole.extend(payload);
        if round % 3 == 0 {
            driven.put_in_place(&write_of(0, b""), 8192, &bytes(99, 8192));
        }
        driven.replies_to(1);
    }
    let other = FileWrite { writer: WriterNumber(2), ..write_of(0, b"abc") };
    assert!(driven.lane.place_of_write(&other, 3).is_none(), "it has not opened the file");
    assert!(driven.lane.place_of_write(&write_of(0, b""), 0).is_none(), "nothing has no place");
    assert!(driven.lane.place_of_write(&write_of(u64::MAX, b"abc"), 3).is_none(), "no file is so long");
    assert_eq!(driven.seal(), FileOutcome::Done);
    assert!(driven.lane.place_of_write(&write_of(0, b"abc"), 3).is_none(), "it is sealed");
    let mut adler32 = Adler32::default();
    adler32.update(&whole);
    let view = driven.lane.file(FILE).expect("it is there");
    assert_eq!(view.sums, Some((crc32c(&whole), adler32.finish())), "they were known when it was sealed");
    assert_eq!(driven.read_file(0, whole.len() as u32), (ReadOutcome::Found, whole));
}
