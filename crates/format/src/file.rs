//! Records of files: what their entries in the tables say.
//!
//! They have the 32 bytes that all entries have, and their number where fragments have their event. A version counts the changes of one file: of what two
//! records say of the same byte, that with the higher one counts (`docs/files.md`).

use forebay_types::limits::{FILE_BYTES_MAX, PIECE_BYTES_MAX};
use forebay_types::{EventId, FileNumber, RunId, SourceId};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::layout;
use crate::record::{RECORD_APPENDED, RECORD_SEALED, RecordKind, TABLE_ENTRY_BYTES, TableEntry};

layout!(
    /// Bytes of a file.
    piece_entry, 32 {
        KIND: u8 = 0;
        FLAGS: u8 = 1;
        START_HIGH: u16 = 2;
        VERSION: u32 = 4;
        FILE: u64 = 8;
        START_LOW: u32 = 16;
        PAYLOAD_BYTES: u32 = 20;
        PAYLOAD_CRC: u32 = 24;
        OFFSET_UNITS: u32 = 28;
    }
);

layout!(
    /// Zeros of a file.
    hole_entry, 32 {
        KIND: u8 = 0;
        FLAGS: u8 = 1;
        START_HIGH: u16 = 2;
        VERSION: u32 = 4;
        FILE: u64 = 8;
        START_LOW: u32 = 16;
        ROOM: [u8; 4] = 20;
        HOLE_BYTES: u32 = 24;
        OFFSET_UNITS: u32 = 28;
    }
);

layout!(
    /// The state of a file.
    state_entry, 32 {
        KIND: u8 = 0;
        FLAGS: u8 = 1;
        LENGTH_HIGH: u16 = 2;
        VERSION: u32 = 4;
        FILE: u64 = 8;
        LENGTH_LOW: u32 = 16;
        WRITTEN_UNIX_NS: u64 = 20;
        OFFSET_UNITS: u32 = 28;
    }
);

layout!(
    /// The sums of a sealed file.
    sums_entry, 32 {
        KIND: u8 = 0;
        FLAGS: u8 = 1;
        ROOM: [u8; 2] = 2;
        VERSION: u32 = 4;
        FILE: u64 = 8;
        ROOM_TOO: [u8; 4] = 16;
        ADLER32: u32 = 20;
        CRC: u32 = 24;
        OFFSET_UNITS: u32 = 28;
    }
);

/// What a record says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Bytes, from the record's payload.
    Piece {
        /// Where in the file they begin.
        start: u64,
        /// How many: at least one, at most [`PIECE_BYTES_MAX`].
        bytes: u32,
        /// Their CRC32C.
        crc: u32,
        /// They were written where the file ended.
        appended: bool,
    },
    /// Zeros.
    Hole {
        /// Where in the file they begin.
        start: u64,
        /// How many, at least one.
        bytes: u32,
    },
    /// The state of the file. What records with a lower version say of the bytes behind `length` is void.
    State {
        /// Bytes of the file.
        length: u64,
        /// When it was written last, in nanoseconds since 1970; before that it is negative.
        written_unix_ns: i64,
        /// Nothing of it changes any more.
        sealed: bool,
    },
    /// The sums of the file, for the state of the same version, which seals it.
    Sums {
        /// CRC32C of all its bytes.
        crc: u32,
        /// Their adler32.
        adler32: u32,
    },
}

/// A record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// The file.
    pub file: FileNumber,
    /// The count of its changes, this one included: at least 1.
    pub version: u32,
    /// What changed.
    pub change: FileChange,
}

impl FileChange {
    const fn kind(&self) -> RecordKind {
        match self {
            FileChange::Piece { .. } => RecordKind::Piece,
            FileChange::Hole { .. } => RecordKind::Hole,
            FileChange::State { .. } => RecordKind::State,
            FileChange::Sums { .. } => RecordKind::Sums,
        }
    }
}

const fn low(number: u64) -> u32 {
    number as u32
}

const fn high(number: u64) -> u32 {
    (number >> 32) as u32
}

impl FileRecord {
    /// What an entry says; `None` when it is not of a file.
    pub fn of(entry: &TableEntry) -> Option<FileRecord> {
        let place = u64::from(entry.expected) << 32 | u64::from(entry.source.0);
        let change = match entry.kind {
            RecordKind::Piece => FileChange::Piece {
                start: place,
                bytes: entry.bytes,
                crc: entry.crc,
                appended: entry.flags & RECORD_APPENDED != 0,
            },
            RecordKind::Hole => FileChange::Hole { start: place, bytes: entry.crc },
            RecordKind::State => FileChange::State {
                length: place,
                written_unix_ns: (u64::from(entry.crc) << 32 | u64::from(entry.bytes)).cast_signed(),
                sealed: entry.flags & RECORD_SEALED != 0,
            },
            RecordKind::Sums => FileChange::Sums { crc: entry.crc, adler32: entry.bytes },
            _ => return None,
        };
        Some(FileRecord { file: FileNumber(entry.event.0), version: entry.run.0, change })
    }

    /// The entry that says it, but for the place of its payload.
    ///
    /// # Panics
    /// When a place in the file is beyond [`FILE_BYTES_MAX`].
    pub fn entry(&self) -> TableEntry {
        let (flags, place, bytes, crc) = match self.change {
            FileChange::Piece { start, bytes, crc, appended } => {
                (if appended { RECORD_APPENDED } else { 0 }, start, bytes, crc)
            }
            FileChange::Hole { start, bytes } => (0, start, 0, bytes),
            FileChange::State { length, written_unix_ns, sealed } => {
                let written = written_unix_ns.cast_unsigned();
                (if sealed { RECORD_SEALED } else { 0 }, length, low(written), high(written))
            }
            FileChange::Sums { crc, adler32 } => (0, 0, adler32, crc),
        };
        assert!(place <= FILE_BYTES_MAX, "files are bounded");
        TableEntry {
            kind: self.change.kind(),
            flags,
            expected: high(place) as u16,
            run: RunId(self.version),
            event: EventId(self.file.0),
            source: SourceId(low(place)),
            bytes,
            crc,
            offset_units: 0,
        }
    }
}

/// Whether the entry of a file says what a file can be.
pub(crate) fn check_file_entry(kind: RecordKind, entry: &[u8; TABLE_ENTRY_BYTES]) -> Result<(), FormatError> {
    let range = |start_low: u32, start_high: u16, bytes: u32| {
        let start = u64::from(start_high) << 32 | u64::from(start_low);
        ensure(bytes >= 1, "record", "a piece of a file has bytes", bytes, 1u32)?;
        within("end of a piece of a file", start + u64::from(bytes), FILE_BYTES_MAX)
    };
    // Its place is the same in all four.
    let version = piece_entry::VERSION.get(entry);
    ensure(version >= 1, "record", "a change of a file has a version", version, 1u32)?;
    match kind {
        RecordKind::Piece => {
            use piece_entry as field;
            let bytes = field::PAYLOAD_BYTES.get(entry);
            within("length of a piece of a file", u64::from(bytes), PIECE_BYTES_MAX as u64)?;
            range(field::START_LOW.get(entry), field::START_HIGH.get(entry), bytes)
        }
        RecordKind::Hole => {
            use hole_entry as field;
            range(field::START_LOW.get(entry), field::START_HIGH.get(entry), field::HOLE_BYTES.get(entry))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change() -> impl Strategy<Value = FileChange> {
        let place = 0..FILE_BYTES_MAX - PIECE_BYTES_MAX as u64;
        let piece = (place.clone(), 1..=PIECE_BYTES_MAX as u32, any::<u32>(), any::<bool>());
        prop_oneof![
            piece.prop_map(|(start, bytes, crc, appended)| FileChange::Piece { start, bytes, crc, appended }),
            (place, 1..=PIECE_BYTES_MAX as u32).prop_map(|(start, bytes)| FileChange::Hole { start, bytes }),
            (0..=FILE_BYTES_MAX, any::<i64>(), any::<bool>()).prop_map(|(length, written_unix_ns, sealed)| {
                FileChange::State { length, written_unix_ns, sealed }
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(crc, adler32)| FileChange::Sums { crc, adler32 }),
        ]
    }

    /// The fields that the drawing has are those that entries are read and written with.
    fn drawn(bytes: &[u8; TABLE_ENTRY_BYTES]) -> FileChange {
        let place = |low: u32, high: u16| u64::from(high) << 32 | u64::from(low);
        match RecordKind::from_number(bytes[0]).expect("a kind") {
            RecordKind::Piece => FileChange::Piece {
                start: place(piece_entry::START_LOW.get(bytes), piece_entry::START_HIGH.get(bytes)),
                bytes: piece_entry::PAYLOAD_BYTES.get(bytes),
                crc: piece_entry::PAYLOAD_CRC.get(bytes),
                appended: piece_entry::FLAGS.get(bytes) == RECORD_APPENDED,
            },
            RecordKind::Hole => FileChange::Hole {
                start: place(hole_entry::START_LOW.get(bytes), hole_entry::START_HIGH.get(bytes)),
                bytes: hole_entry::HOLE_BYTES.get(bytes),
            },
            RecordKind::State => FileChange::State {
                length: place(state_entry::LENGTH_LOW.get(bytes), state_entry::LENGTH_HIGH.get(bytes)),
                written_unix_ns: state_entry::WRITTEN_UNIX_NS.get(bytes).cast_signed(),
                sealed: state_entry::FLAGS.get(bytes) == RECORD_SEALED,
            },
            _ => FileChange::Sums { crc: sums_entry::CRC.get(bytes), adler32: sums_entry::ADLER32.get(bytes) },
        }
    }

    proptest! {
        #[test]
        fn what_is_written_of_a_file_is_read(file: u64, version in 1u32.., change in change()) {
            let record = FileRecord { file: FileNumber(file), version, change };
            let mut bytes = [0; TABLE_ENTRY_BYTES];
            record.entry().encode_into(&mut bytes);
            prop_assert_eq!(drawn(&bytes), change);
            prop_assert_eq!(piece_entry::FILE.get(&bytes), file);
            prop_assert_eq!(piece_entry::VERSION.get(&bytes), version);
            let entry = TableEntry::decode(&bytes).expect("it is as it was made");
            prop_assert_eq!(FileRecord::of(&entry), Some(record));
            prop_assert_eq!(entry.key(), FileNumber(file).key());
            prop_assert_eq!(entry.payload_range().is_empty(), entry.kind != RecordKind::Piece);
        }

        #[test]
        fn any_bytes_give_an_entry_or_an_error(bytes: [u8; TABLE_ENTRY_BYTES], kind in 7u8..=10) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if let Ok(entry) = TableEntry::decode(&bytes) {
                let record = FileRecord::of(&entry).expect("its kind is of a file");
                let again = TableEntry { offset_units: entry.offset_units, ..record.entry() };
                prop_assert_eq!(FileRecord::of(&again), Some(record));
            }
        }
    }

    #[test]
    fn what_no_file_can_be_is_refused() {
        let refused = |change: FileChange, at: usize, value: u8| {
            let mut bytes = [0; TABLE_ENTRY_BYTES];
            FileRecord { file: FileNumber(1), version: 1, change }.entry().encode_into(&mut bytes);
            assert!(TableEntry::decode(&bytes).is_ok());
            bytes[at] = value;
            TableEntry::decode(&bytes).expect_err("a file cannot be so")
        };
        let piece = FileChange::Piece { start: 5, bytes: 1, crc: 0, appended: false };
        let hole = FileChange::Hole { start: FILE_BYTES_MAX - 1, bytes: 1 };
        assert!(refused(piece, 20, 0).to_string().contains("has bytes"), "none");
        assert!(refused(piece, 23, 1).to_string().contains("length of a piece"), "too many");
        assert!(refused(piece, 1, RECORD_SEALED).to_string().contains("flags"));
        assert!(refused(piece, 4, 0).to_string().contains("has a version"));
        assert!(refused(hole, 24, 2).to_string().contains("end of a piece"), "beyond the longest file");
    }
}
