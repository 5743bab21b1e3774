//! A lane that is full, and what must still work in it.

use std::time::Duration;

use forebay_format::Geometry;
use forebay_types::limits::PIECE_BYTES_MAX;
use forebay_types::{DriveNumber, DriveUuid, FileNumber, FileOutcome, crc32c};

use super::Driven;
use crate::api::{Admission, DriveInfo, FileAdmission, FileWrite, LaneConfig, Reply, WriteAt};
use crate::files::WriterNumber;

const LARGE: FileNumber = FileNumber(5);
const NAMES: FileNumber = FileNumber(1);
const WRITER: WriterNumber = WriterNumber(1);

/// Of each drive.
const MIB: usize = 1 << 20;

/// Five drives of 31 slots of a MiB, and flushes of two MiB.
fn of_large_pieces(config: &mut LaneConfig) {
    config.geometry = Geometry {
        data_shards: 4,
        data_shards_min: 2,
        unit_bytes: 32 << 10,
        fragment_bytes_max: PIECE_BYTES_MAX as u32,
        ..config.geometry
    };
    let info = config.drives[0].clone();
    let drive =
        |n: u16| DriveInfo { number: DriveNumber(n), uuid: DriveUuid::from_bytes([n as u8 + 1; 16]), ..info.clone() };
    config.drives = (0..5).map(drive).collect();
    (config.flush_bytes, config.flush_depth) = (512 << 10, 4);
}

impl Driven {
    /// Writes to the end of a file, as soon as there is room or it is refused.
    fn append(&mut self, file: FileNumber, writer: WriterNumber, payload: &[u8], may_take_last: bool) -> FileAdmission {
        let token = self.token();
        let write = FileWrite { file, at: WriteAt::End, crc: crc32c(payload), writer, appends: false, may_take_last };
        loop {
            match self.lane.write_file(token, &write, payload) {
                FileAdmission::Busy => self.pass(Duration::from_micros(100)),
                admission => return admission,
            }
        }
    }

    /// Pieces of a file, some of them smaller, at different times of the flushes before, until there is no room for more, however long its writer waits.
    fn fill(&mut self, piece: &[u8], mut random: u64) {
        assert_eq!(self.lane.open_file(LARGE, WRITER, true), Admission::Done(FileOutcome::Done));
        let mut refused = 0;
        while refused < 20 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            for _ in 0..(random >> 33) % 6 {
                self.turn();
            }
            let part = if (random >> 40).is_multiple_of(4) {
                &piece[..1 + (random >> 43) as usize % piece.len()]
            } else {
                piece
            };
            match self.append(LARGE, WRITER, part, false) {
                FileAdmission::Pending { .. } => refused = 0,
                FileAdmission::Done(FileOutcome::NoSpace) => {
                    refused += 1;
                    self.pass(Duration::from_millis(50));
                }
                other => panic!("{other:?}"),
            }
            while self.lane.next_reply().is_some() {}
        }
    }

    /// Something short that keeps the names, once there is room for it: there is in time.
    fn note(&mut self, bytes: usize) {
        for _ in 0..5000 {
            if matches!(self.append(NAMES, WriterNumber::SERVER, &vec![1; bytes], true), FileAdmission::Pending { .. })
            {
                while !matches!(self.reply(), Reply::Stored { .. }) {}
                return;
            }
            self.pass(Duration::from_millis(1));
        }
        panic!("a full lane takes nothing of what keeps the names: {:?}", self.lane.status());
    }
}

#[test]
fn a_full_lane_of_large_pieces_goes_on_taking_what_keeps_the_names() {
    for seed in (0..8).chain([56]) {
        let piece_bytes = [MIB, MIB, MIB, 300 << 10][seed as usize % 4];
        let mut driven = Driven::new(of_large_pieces);
        assert_eq!(driven.lane.open_file(NAMES, WriterNumber::SERVER, true), Admission::Done(FileOutcome::Done));
        driven.note(100);
        driven.fill(&vec![7; piece_bytes], seed);
        for round in 0..40 {
            for _ in 0..[0, 10, 1000][round % 3] {
                driven.pass(Duration::from_millis(1));
            }
            if round % 8 == 7 {
                driven.fill(&vec![7; piece_bytes], seed + round as u64);
            }
            for _ in 0..1 + seed % 2 {
                driven.note(100);
            }
        }
    }
}
