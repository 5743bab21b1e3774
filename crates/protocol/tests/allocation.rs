//! Tables that announce more than they hold, or hold as much as they can, take no more memory than a
//! small multiple of their own size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_protocol::*;
use forebay_types::{FileNumber, NameOutcome, NodeKind};

/// Counts the bytes that the current thread asks for.
struct Counting;

thread_local! {
    static ASKED_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all requests go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED_BYTES.with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn asked_by(work: impl FnOnce()) -> usize {
    let before = ASKED_BYTES.with(Cell::get);
    work();
    ASKED_BYTES.with(Cell::get) - before
}

type Decoder = fn(&[u8]);

fn decode<M: Message>(table: &[u8]) {
    drop(M::decode(table, &[]));
}

#[test]
fn decoding_takes_a_small_multiple_of_what_arrived() {
    let decoders: [(Kind, Decoder); 39] = [
        (Kind::Hello, decode::<Hello>),
        (Kind::HelloReply, decode::<HelloReply>),
        (Kind::PutReply, decode::<PutReply>),
        (Kind::Get, decode::<Get>),
        (Kind::GetEvent, decode::<GetEvent>),
        (Kind::Delete, decode::<Delete>),
        (Kind::Decide, decode::<Decide>),
        (Kind::Release, decode::<Release>),
        (Kind::DecideReply, decode::<DecideReply>),
        (Kind::LeaseReply, decode::<LeaseReply>),
        (Kind::Accepted, decode::<Accepted>),
        (Kind::AcceptedReply, decode::<AcceptedReply>),
        (Kind::StreamsReply, decode::<StreamsReply>),
        (Kind::RunsReply, decode::<RunsReply>),
        (Kind::StatusReply, decode::<StatusReply>),
        (Kind::Trace, decode::<Trace>),
        (Kind::Losses, decode::<Losses>),
        (Kind::Error, decode::<ErrorReply>),
        (Kind::FileOpen, decode::<FileOpen>),
        (Kind::FileClose, decode::<FileClose>),
        (Kind::FileWrite, |table| drop(FileWrite::read_table(table, 0))),
        (Kind::FileSet, decode::<FileSet>),
        (Kind::FileSeal, decode::<FileSeal>),
        (Kind::FileRead, decode::<FileRead>),
        (Kind::FileStat, decode::<FileStat>),
        (Kind::NameLookup, decode::<NameLookup>),
        (Kind::NameList, decode::<NameList>),
        (Kind::ChangeName, decode::<ChangeName>),
        (Kind::FileReply, decode::<FileReply>),
        (Kind::FileReadReply, |table| drop(FileReadReply::decode(table, &[]))),
        (Kind::FileStatReply, decode::<FileStatReply>),
        (Kind::NodeReply, decode::<NodeReply>),
        (Kind::ListReply, decode::<ListReply>),
        (Kind::Subscribe, decode::<Subscribe>),
        (Kind::SubscribeReply, decode::<SubscribeReply>),
        (Kind::ChangeRun, decode::<ChangeRun>),
        (Kind::RunList, decode::<RunList>),
        (Kind::DefineStream, decode::<DefineStream>),
        (Kind::StreamList, decode::<StreamList>),
    ];
    for bytes in [16, 100, 1000, limits::FRAME_TABLE_BYTES_MAX] {
        for count in [0u32, 1, 60, 64, 1000, 16_384, u32::MAX] {
            for fill in [0u8, 1, b'a'] {
                let mut table = vec![fill; bytes];
                for word in table.chunks_exact_mut(4).take(4) {
                    word.copy_from_slice(&count.to_le_bytes());
                }
                for (kind, decode) in decoders {
                    let asked = asked_by(|| decode(&table));
                    assert!(
                        asked <= 2 * bytes + 4096,
                        "{kind}: {asked} bytes for a table of {bytes} with count {count}"
                    );
                }
            }
        }
    }
}

/// An entry takes more memory than it has bytes on the wire, the more the shorter its name is.
#[test]
fn a_list_of_names_takes_a_small_multiple_of_what_arrived() {
    for (names, name_bytes) in
        [(1, 1), (90, 1), (limits::NAMES_MAX, 1), (limits::NAMES_MAX, 20), (limits::NAMES_MAX, 255)]
    {
        let entry = NameEntry { number: FileNumber(1), kind: NodeKind::File, name: vec![b'a'; name_bytes] };
        let reply = ListReply { outcome: NameOutcome::Done, more: false, entries: vec![entry; names] };
        let mut table = Vec::new();
        reply.write_table(&mut table);
        let asked = asked_by(|| assert!(ListReply::decode(&table, &[]).is_ok()));
        assert!(asked <= 4 * table.len(), "{asked} bytes for {} of {names} names of {name_bytes}", table.len());
        // Nothing is kept for names that are announced and do not come.
        let asked = asked_by(|| assert!(ListReply::decode(&table[..table.len() - 1], &[]).is_err()));
        assert_eq!(asked, 0, "{names} names of {name_bytes}");
    }
}

#[test]
fn a_header_reserves_nothing_for_what_it_announces() {
    let mut frame = Vec::new();
    encode_head(Kind::Put, 0, 1, &[], limits::FRAME_PAYLOAD_BYTES_MAX, &mut frame);
    let asked = asked_by(|| {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&frame);
        assert_eq!(buffer.next_frame(), Ok(None));
    });
    assert!(asked <= 4 * HEADER_BYTES, "{asked} bytes");
}
