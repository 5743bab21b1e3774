//! The numbers that C is told. None is ever given another meaning.

use std::ffi::CStr;

macro_rules! named {
    ($($name:ident)+) => {
        /// The name of a code.
        pub(crate) fn name_of(code: i32) -> &'static CStr {
            const UNKNOWN: &CStr = c"FOREBAY_UNKNOWN_CODE";
            match code {
                $($name => {
                    const { match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero byte in it"),
                    } }
                })+
                _ => UNKNOWN,
            }
        }
    };
}

/// Done.
pub const FOREBAY_DONE: i32 = 0;
/// A mistake inside the library. Please report it with the text of the error.
pub const FOREBAY_INTERNAL: i32 = 1;
/// What the caller gave cannot be meant: a null pointer, a number out of its range, a text that is none.
pub const FOREBAY_INVALID: i32 = 2;
/// There is no such file, directory, fragment or event.
pub const FOREBAY_NOT_FOUND: i32 = 3;
/// The name is taken.
pub const FOREBAY_EXISTS: i32 = 4;
/// Something on the way is not a directory.
pub const FOREBAY_NOT_DIRECTORY: i32 = 5;
/// It is a directory.
pub const FOREBAY_IS_DIRECTORY: i32 = 6;
/// It is a pipe, a socket or a device, of which the store has the name alone.
pub const FOREBAY_NOT_FILE: i32 = 7;
/// The directory has entries.
pub const FOREBAY_NOT_EMPTY: i32 = 8;
/// Nothing can be called that, or a directory would lie in itself.
pub const FOREBAY_BAD_NAME: i32 = 9;
/// The name has more than 255 bytes, or the target of a link more than 4095.
pub const FOREBAY_TOO_LONG: i32 = 10;
/// Symbolic links lead to links without an end.
pub const FOREBAY_LINK_LOOP: i32 = 11;
/// More links to a file, or changes of a file, than are counted.
pub const FOREBAY_TOO_MANY: i32 = 12;
/// The store is full, or its memory for the index is used up.
pub const FOREBAY_NO_SPACE: i32 = 13;
/// Too few drives answer.
pub const FOREBAY_UNAVAILABLE: i32 = 14;
/// Bytes arrived damaged again and again. They were not used.
pub const FOREBAY_DAMAGED: i32 = 15;
/// The store cannot give these bytes any more.
pub const FOREBAY_LOST: i32 = 16;
/// Another writer wrote there.
pub const FOREBAY_CONFLICT: i32 = 17;
/// The file is sealed and never changes again.
pub const FOREBAY_SEALED: i32 = 18;
/// The file is not sealed, and has no sums.
pub const FOREBAY_NOT_SEALED: i32 = 19;
/// The file is sealed, and its sums are being computed.
pub const FOREBAY_NOT_READY: i32 = 20;
/// The handle was closed.
pub const FOREBAY_CLOSED: i32 = 21;
/// The file was removed, or the event of the fragment is over.
pub const FOREBAY_REMOVED: i32 = 22;
/// More bytes than a fragment or a file can have.
pub const FOREBAY_TOO_LARGE: i32 = 23;
/// The store was started read-only.
pub const FOREBAY_READ_ONLY: i32 = 24;
/// The store was made by a version without files.
pub const FOREBAY_NO_FILES: i32 = 25;
/// No answer before the deadline.
pub const FOREBAY_TIMED_OUT: i32 = 26;
/// Nothing listens at the address, or there is no such address.
pub const FOREBAY_NO_SERVER: i32 = 27;
/// The server refuses.
pub const FOREBAY_REFUSED: i32 = 28;
/// What answers does not speak the protocol, or breaks its rules.
pub const FOREBAY_PROTOCOL: i32 = 29;
/// Another store answers at the address than the one that the handle began with.
pub const FOREBAY_OTHER_STORE: i32 = 30;
/// Nobody knows whether it was done.
pub const FOREBAY_UNKNOWN: i32 = 31;
/// The operating system refused something.
pub const FOREBAY_SYSTEM: i32 = 32;

named! {
    FOREBAY_DONE FOREBAY_INTERNAL FOREBAY_INVALID FOREBAY_NOT_FOUND FOREBAY_EXISTS FOREBAY_NOT_DIRECTORY FOREBAY_IS_DIRECTORY FOREBAY_NOT_FILE
    FOREBAY_NOT_EMPTY FOREBAY_BAD_NAME FOREBAY_TOO_LONG FOREBAY_LINK_LOOP FOREBAY_TOO_MANY FOREBAY_NO_SPACE FOREBAY_UNAVAILABLE FOREBAY_DAMAGED
    FOREBAY_LOST FOREBAY_CONFLICT FOREBAY_SEALED FOREBAY_NOT_SEALED FOREBAY_NOT_READY FOREBAY_CLOSED FOREBAY_REMOVED FOREBAY_TOO_LARGE
    FOREBAY_READ_ONLY FOREBAY_NO_FILES FOREBAY_TIMED_OUT FOREBAY_NO_SERVER FOREBAY_REFUSED FOREBAY_PROTOCOL FOREBAY_OTHER_STORE FOREBAY_UNKNOWN
    FOREBAY_SYSTEM
}

/// Outcome of a put: on stable media, the writer may forget the fragment.
pub const FOREBAY_PUT_DURABLE: i32 = 0;
/// The event was decided before: the fragment was dropped and counted, the writer may forget it.
pub const FOREBAY_PUT_LATE: i32 = 1;
/// The id is stored with other content; nothing was changed.
pub const FOREBAY_PUT_CONFLICT: i32 = 2;
/// The store is full; keep the fragment and try again.
pub const FOREBAY_PUT_NO_SPACE: i32 = 3;
/// The bytes do not have the checksum that was given with them.
pub const FOREBAY_PUT_CHECKSUM_MISMATCH: i32 = 4;
/// Larger than this store takes.
pub const FOREBAY_PUT_TOO_LARGE: i32 = 5;
/// Too few drives; keep the fragment and try again.
pub const FOREBAY_PUT_UNAVAILABLE: i32 = 6;
/// The memory for the index is used up; keep the fragment and try again.
pub const FOREBAY_PUT_INDEX_FULL: i32 = 7;
/// The store was started read-only.
pub const FOREBAY_PUT_READ_ONLY: i32 = 8;
/// Run 4294967295 is kept for files.
pub const FOREBAY_PUT_KEPT_RUN: i32 = 9;
/// The run is closed.
pub const FOREBAY_PUT_RUN_CLOSED: i32 = 10;
/// The run is discarded.
pub const FOREBAY_PUT_RUN_DISCARDED: i32 = 11;

/// Outcome of a read: the right bytes.
pub const FOREBAY_READ_FOUND: i32 = 0;
/// No such thing was ever acknowledged here.
pub const FOREBAY_READ_NOT_FOUND: i32 = 1;
/// The event was rejected, deleted or released.
pub const FOREBAY_READ_DELETED: i32 = 2;
/// Too few drives answer now; nothing is lost.
pub const FOREBAY_READ_UNAVAILABLE: i32 = 3;
/// Damaged beyond what parity can mend.
pub const FOREBAY_READ_LOST: i32 = 4;

/// Outcome of a decision, a deletion or a release: durable.
pub const FOREBAY_DECIDE_DONE: i32 = 0;
/// The same was durable before.
pub const FOREBAY_DECIDE_ALREADY_DONE: i32 = 1;
/// The event was decided otherwise before; nothing was changed.
pub const FOREBAY_DECIDE_CONFLICT: i32 = 2;
/// No such event, or none of that stream.
pub const FOREBAY_DECIDE_NOT_FOUND: i32 = 3;
/// No space, even in the reserve; try again.
pub const FOREBAY_DECIDE_NO_SPACE: i32 = 4;
/// Too few drives; try again.
pub const FOREBAY_DECIDE_UNAVAILABLE: i32 = 5;
/// The store was started read-only.
pub const FOREBAY_DECIDE_READ_ONLY: i32 = 6;
/// The store knows as many streams as it can.
pub const FOREBAY_DECIDE_TOO_MANY_STREAMS: i32 = 7;
/// The run is held: nothing of it is freed.
pub const FOREBAY_DECIDE_HELD: i32 = 8;

/// How far an event is: not known here.
pub const FOREBAY_EVENT_UNKNOWN: i32 = 0;
/// It waits for a decision.
pub const FOREBAY_EVENT_UNDECIDED: i32 = 1;
/// A filter has it.
pub const FOREBAY_EVENT_LEASED: i32 = 2;
/// Accepted, and not released by all of its streams.
pub const FOREBAY_EVENT_ACCEPTED: i32 = 3;
/// Rejected, deleted, or released by all of its streams.
pub const FOREBAY_EVENT_FINISHED: i32 = 4;

/// Kind of a node: a file.
pub const FOREBAY_KIND_FILE: i32 = 1;
/// A directory.
pub const FOREBAY_KIND_DIRECTORY: i32 = 2;
/// A symbolic link.
pub const FOREBAY_KIND_LINK: i32 = 3;
/// A pipe.
pub const FOREBAY_KIND_PIPE: i32 = 4;
/// A socket.
pub const FOREBAY_KIND_SOCKET: i32 = 5;
/// A character device.
pub const FOREBAY_KIND_CHARACTER_DEVICE: i32 = 6;
/// A block device.
pub const FOREBAY_KIND_BLOCK_DEVICE: i32 = 7;

/// What a client is for: it writes fragments or files.
pub const FOREBAY_CLASS_READOUT: i32 = 1;
/// It reads and decides events.
pub const FOREBAY_CLASS_FILTER: i32 = 2;
/// It ships accepted events.
pub const FOREBAY_CLASS_MOVER: i32 = 3;
/// It looks.
pub const FOREBAY_CLASS_MONITOR: i32 = 4;

/// What a listing tells of each entry: its name, number and kind.
pub const FOREBAY_LIST_NAMES: i32 = 0;
/// And of files their length, whether they are sealed, and their sums.
pub const FOREBAY_LIST_SIZES: i32 = 1;
/// All that `forebay_files_stat` tells; a request for each entry, many at once.
pub const FOREBAY_LIST_ALL: i32 = 2;

/// Closing the writer seals the file.
pub const FOREBAY_WRITE_SEAL: u32 = 1;
/// The server chooses where each piece goes: behind what others wrote.
pub const FOREBAY_WRITE_APPEND: u32 = 2;

/// What has the new name already gives way, in the same step.
pub const FOREBAY_RENAME_REPLACE: u32 = 1;
/// The directories on the way are made, too, and one that is there is as it should be.
pub const FOREBAY_MAKE_PARENTS: u32 = 1;
/// The file loses its name, if that is still its own, and is gone with it.
pub const FOREBAY_ABANDON_REMOVE: u32 = 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_wire() {
        use forebay_client::{Class, EventState};
        use forebay_types::{DecideOutcome, NodeKind, PutOutcome, ReadOutcome};

        let code = |code: u8| i32::from(code);
        assert_eq!(code(PutOutcome::Durable.code()), FOREBAY_PUT_DURABLE);
        assert_eq!(code(PutOutcome::RunDiscarded.code()), FOREBAY_PUT_RUN_DISCARDED);
        assert_eq!(PutOutcome::ALL.len() as i32, FOREBAY_PUT_RUN_DISCARDED + 1);
        assert_eq!(code(ReadOutcome::Lost.code()), FOREBAY_READ_LOST);
        assert_eq!(ReadOutcome::ALL.len() as i32, FOREBAY_READ_LOST + 1);
        assert_eq!(code(DecideOutcome::Held.code()), FOREBAY_DECIDE_HELD);
        assert_eq!(DecideOutcome::ALL.len() as i32, FOREBAY_DECIDE_HELD + 1);
        assert_eq!(code(EventState::Finished.code()), FOREBAY_EVENT_FINISHED);
        assert_eq!(code(Class::Monitor.code()), FOREBAY_CLASS_MONITOR);
        assert_eq!(code(NodeKind::BlockDevice.code()), FOREBAY_KIND_BLOCK_DEVICE);
        assert_eq!(NodeKind::ALL.len() as i32, FOREBAY_KIND_BLOCK_DEVICE);
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let names: BTreeSet<&CStr> = (FOREBAY_DONE..=FOREBAY_SYSTEM).map(name_of).collect();
        assert_eq!(names.len() as i32, FOREBAY_SYSTEM + 1);
        assert!(!names.contains(name_of(-1)));
        assert_eq!(name_of(FOREBAY_NO_SPACE), c"FOREBAY_NO_SPACE");
    }
}
