//! Snapshots: all that is there, slice by slice, while it changes. What changes meanwhile stands in the journal that begins with the snapshot, and counts
//! after it; so it does no harm that slices are of different moments.

use std::ops::Bound;

use forebay_types::FileNumber;

use crate::change::{FRAME_BYTES_MAX, Part, encode_frame};
use crate::names::{Names, Output};
use crate::numbers::journal_number;

/// Parts of one frame; each is small beside a frame.
const PARTS_PER_FRAME: usize = 8;
const _: () = assert!(PARTS_PER_FRAME * (4096 + 256) < FRAME_BYTES_MAX);

/// Where a snapshot goes on.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// With this number.
    number: FileNumber,
    /// Behind this entry of it; the number itself was written.
    behind: Option<Box<[u8]>>,
    /// All nodes were written; of what is kept for others, up to this key.
    kept_behind: Option<Box<[u8]>>,
    nodes: u64,
    entries: u64,
    kept: u64,
}

impl Names {
    /// Whether so much was written to the journal, more than `journal_bytes_min`, that a snapshot would make the next start shorter and give room back.
    pub fn wants_snapshot(&self, journal_bytes_min: u64) -> bool {
        let has_number = journal_number(self.generation + 1, self.numbers.lanes()).is_some();
        has_number && self.snapshot.is_none() && self.journal_bytes > self.snapshot_bytes.max(journal_bytes_min)
    }

    /// Begins a snapshot, and with it a generation: what changes from now on goes to its journal. Gives the generation; `None` when there are no numbers left
    /// for its files, and all goes on without one.
    ///
    /// # Panics
    /// While one is made.
    pub fn begin_snapshot(&mut self) -> Option<u64> {
        assert!(self.snapshot.is_none(), "one snapshot is made at a time");
        journal_number(self.generation + 1, self.numbers.lanes())?;
        self.generation += 1;
        (self.journal_bytes, self.snapshot_bytes) = (0, 0);
        self.snapshot =
            Some(Walk { number: FileNumber(0), behind: None, kept_behind: None, nodes: 0, entries: 0, kept: 0 });
        let (generation, lanes) = (self.generation, self.numbers.lanes());
        let next = self.numbers.next_ordinals().iter().enumerate();
        let numbers = next.map(|(lane, next)| Part::Numbers { lane: lane as u16, next: *next });
        let parts: Vec<Part> = [Part::Begins { generation, lanes }].into_iter().chain(numbers).collect();
        let mut bytes = Vec::new();
        encode_frame(&parts, &mut bytes);
        self.put_snapshot(bytes, None);
        Some(generation)
    }

    /// Goes on with the snapshot by about so many bytes; whether there is more.
    pub fn go_on_with_snapshot(&mut self, bytes_max: usize) -> bool {
        let Some(mut walk) = self.snapshot.take() else { return false };
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max {
            let mut parts = self.next_parts(&mut walk);
            if parts.is_empty() {
                parts.extend(self.next_kept(&mut walk));
            }
            if parts.is_empty() {
                let Walk { nodes, entries, kept, .. } = walk;
                encode_frame(&[Part::Ends { nodes, entries, kept }], &mut bytes);
                self.put_snapshot(bytes, Some(self.position()));
                return false;
            }
            encode_frame(&parts, &mut bytes);
        }
        self.put_snapshot(bytes, None);
        self.snapshot = Some(walk);
        true
    }

    fn put_snapshot(&mut self, bytes: Vec<u8>, whole_at: Option<u64>) {
        self.snapshot_bytes += bytes.len() as u64;
        self.put_out(Output::Snapshot { generation: self.generation, bytes, whole_at });
    }

    /// The next record that is kept for others: each may fill a frame.
    fn next_kept(&self, walk: &mut Walk) -> Option<Part> {
        let from = walk.kept_behind.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (key, value) = self.kept.range::<Box<[u8]>, _>((from, Bound::Unbounded)).next()?;
        walk.kept_behind = Some(key.clone());
        walk.kept += 1;
        Some(Part::Kept { key: key.clone(), value: value.clone() })
    }

    fn next_parts(&self, walk: &mut Walk) -> Vec<Part> {
        let mut parts = Vec::new();
        while parts.len() < PARTS_PER_FRAME {
            let Some((number, node)) = self.nodes.range_from(walk.number).next() else { break };
            if number != walk.number {
                (walk.number, walk.behind) = (number, None);
            }
            if node.names == 0 {
                (walk.number, walk.behind) = (FileNumber(number.0 + 1), None);
                continue;
            }
            if walk.behind.is_none() {
                parts.push(self.part_of(number));
                walk.nodes += 1;
                // The empty name stands before all others, and no entry has it.
                walk.behind = Some(Box::default());
            }
            let behind = walk.behind.clone().unwrap_or_default();
            let next = node.directory().ok().and_then(|directory| directory.entries.behind(Some(&behind)).next());
            match next {
                Some((name, of)) => {
                    parts.push(Part::Entry { directory: number, name: name.into(), number: of });
                    walk.entries += 1;
                    walk.behind = Some(name.into());
                }
                None => (walk.number, walk.behind) = (FileNumber(number.0 + 1), None),
            }
        }
        parts
    }
}
