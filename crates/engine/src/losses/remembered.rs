//! The losses that a lane remembers.
//!
//! There may be as many as there are fragments. So each fragment takes little, and what is the same of many, where they lay and why they are lost,
//! is kept once. What is asked for an event goes straight to it; listing them goes through all, and so does forgetting those of a flush that can be read again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forebay_format::SegmentId;
use forebay_types::{EventKey, FileNumber, SourceId, WallTime};

use super::{FoundBy, Loss, LossKind, LostPart};

/// The share of the index's memory that losses may take, and what they may take at least, in bytes.
const INDEX_SHARE: usize = 16;
const BYTES_MIN: usize = 1 << 20;

/// Memory of what is no fragment, and of what fragments have in common, with the drives of a segment, in bytes.
const PART_BYTES: usize = 256;

/// Memory of a fragment in a map that is half full, in bytes.
const RECORD_BYTES: usize = 96;

/// A fragment by its source, or a whole event of which nobody knows the fragments any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RecordKey {
    event: EventKey,
    source: Option<SourceId>,
}

/// What the lost fragments of a flush have in common.
#[derive(Debug, PartialEq, Eq)]
struct Cause {
    kind: LossKind,
    segment: SegmentId,
    flush: u32,
    drives_damaged: Vec<u16>,
    drives_missing: Vec<u16>,
    found_by: FoundBy,
}

struct LostRecord {
    cause: Arc<Cause>,
    /// Bytes of a fragment, fragments of a whole event.
    size: u32,
    found: WallTime,
}

/// The losses of a lane, as many as there is memory for.
pub(crate) struct Losses {
    bytes_max: usize,
    /// All but fragments and whole events.
    parts: BTreeMap<(SegmentId, LostPart), Loss>,
    records: BTreeMap<RecordKey, LostRecord>,
    causes: BTreeMap<(SegmentId, u32), Vec<Arc<Cause>>>,
    causes_known: usize,
    not_remembered: u64,
    /// Of these, fragments and whole events.
    records_not_remembered: u64,
    /// Where the page goes on that begins at this place.
    resume: Option<(u32, RecordKey)>,
}

impl Losses {
    /// Of a lane that has so many bytes of memory for its index.
    pub(crate) fn new(index_bytes: usize) -> Losses {
        Losses {
            bytes_max: (index_bytes / INDEX_SHARE).max(BYTES_MIN),
            parts: BTreeMap::new(),
            records: BTreeMap::new(),
            causes: BTreeMap::new(),
            causes_known: 0,
            not_remembered: 0,
            records_not_remembered: 0,
            resume: None,
        }
    }

    pub(crate) fn insert(&mut self, loss: Loss) {
        match record_of(&loss.part) {
            Some((key, flush, size)) => self.insert_record(key, flush, size, loss),
            None if self.parts.contains_key(&(loss.segment, loss.part)) => {}
            None if self.bytes() + PART_BYTES > self.bytes_max => self.not_remembered += 1,
            None => _ = self.parts.insert((loss.segment, loss.part), loss),
        }
    }

    fn insert_record(&mut self, key: RecordKey, flush: u32, size: u32, loss: Loss) {
        match self.records.get(&key) {
            Some(known) if known.cause.segment == loss.segment => return,
            Some(_) => self.remove(key),
            None => {}
        }
        if self.bytes() + RECORD_BYTES + PART_BYTES > self.bytes_max {
            self.not_remembered += 1;
            self.records_not_remembered += 1;
            return;
        }
        let found = WallTime(loss.found_unix_ms.unwrap_or(0));
        let Loss { kind, segment, drives_damaged, drives_missing, found_by, .. } = loss;
        let cause = Cause { kind, segment, flush, drives_damaged, drives_missing, found_by };
        let of_flush = self.causes.entry((segment, flush)).or_default();
        let cause = if let Some(same) = of_flush.iter().find(|known| ***known == cause) {
            Arc::clone(same)
        } else {
            let cause = Arc::new(cause);
            of_flush.push(Arc::clone(&cause));
            self.causes_known += 1;
            cause
        };
        self.records.insert(key, LostRecord { cause, size, found });
    }

    fn remove(&mut self, key: RecordKey) {
        let Some(LostRecord { cause, .. }) = self.records.remove(&key) else { return };
        // What nobody else has in common with it.
        if Arc::strong_count(&cause) == 2 {
            let place = (cause.segment, cause.flush);
            let of_flush = self.causes.get_mut(&place).expect("each record has its cause there");
            of_flush.retain(|known| !Arc::ptr_eq(known, &cause));
            if of_flush.is_empty() {
                self.causes.remove(&place);
            }
            self.causes_known -= 1;
        }
    }

    /// All but fragments and whole events.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Loss> + '_ {
        self.parts.values()
    }

    pub(crate) fn not_remembered(&self) -> u64 {
        self.not_remembered
    }

    /// Fragments that are lost, those that are not remembered among them.
    pub(crate) fn fragments(&self) -> u64 {
        self.records.len() as u64 + self.records_not_remembered
    }

    /// Nobody misses an event any more.
    pub(crate) fn forget_event(&mut self, event: EventKey) {
        let all = RecordKey { event, source: None }..=RecordKey { event, source: Some(SourceId(u32::MAX)) };
        let keys: Vec<RecordKey> = self.records.range(all).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Nobody misses a file any more.
    pub(crate) fn forget_file(&mut self, file: FileNumber) {
        self.parts.retain(|(_, part), _| !matches!(part, LostPart::Piece { file: of, .. } if *of == file));
    }

    /// Of bytes of files, those stay that are missed.
    pub(crate) fn keep_pieces(&mut self, missed: impl Fn(FileNumber, Range<u64>, SegmentId) -> bool) {
        self.parts.retain(|(segment, part), _| match *part {
            LostPart::Piece { file, start, bytes, .. } => missed(file, start..start + u64::from(bytes), *segment),
            _ => true,
        });
    }

    /// Nothing is missing of a flush any more.
    pub(crate) fn forget_flush(&mut self, segment: SegmentId, flush: u32) {
        let of_segment = self.parts.range((segment, LostPart::Segment)..).take_while(|((of, _), _)| *of == segment);
        let is_it = |part: &LostPart| matches!(part, LostPart::Flush { flush: of, .. } | LostPart::Piece { flush: of, .. } if *of == flush);
        let parts: Vec<_> = of_segment.map(|(key, _)| *key).filter(|(_, part)| is_it(part)).collect();
        parts.iter().for_each(|key| _ = self.parts.remove(key));
        if let Some(causes) = self.causes.remove(&(segment, flush)) {
            self.causes_known -= causes.len();
            self.records.retain(|_, record| (record.cause.segment, record.cause.flush) != (segment, flush));
        }
    }

    /// A fragment, a whole event, or a piece of a file could be read.
    pub(crate) fn forget(&mut self, segment: SegmentId, part: LostPart) {
        match record_of(&part) {
            Some((key, ..)) if self.has(segment, part) => self.remove(key),
            Some(_) => {}
            None => _ = self.parts.remove(&(segment, part)),
        }
    }

    /// It is known to be lost.
    pub(crate) fn has(&self, segment: SegmentId, part: LostPart) -> bool {
        let Some((key, flush, size)) = record_of(&part) else { return self.parts.contains_key(&(segment, part)) };
        let known = self.records.get(&key);
        known.is_some_and(|known| (known.cause.segment, known.cause.flush, known.size) == (segment, flush, size))
    }

    /// From the place `from` on, `max` at most: what is no fragment, then `now`, then fragments in their order; and where the next page begins. A fragment that is not
    /// `missed` any more is forgotten.
    pub(crate) fn page(
        &mut self,
        from: u32,
        max: u32,
        now: &[Loss],
        mut missed: impl FnMut(EventKey, SegmentId) -> bool,
    ) -> (Vec<Loss>, Option<u32>) {
        let (max, before) = (max as usize, self.parts.len() + now.len());
        let mut page: Vec<Loss> = self.parts.values().chain(now).skip(from as usize).take(max).cloned().collect();
        let mut forgotten = Vec::new();
        let mut next_record = None;
        if from as usize + page.len() >= before {
            let records: &mut dyn Iterator<Item = (&RecordKey, &LostRecord)> = match self.resume {
                Some((place, key)) if place == from => &mut self.records.range(key..),
                _ => &mut self.records.iter().skip((from as usize).saturating_sub(before)),
            };
            for (key, record) in records {
                if !missed(key.event, record.cause.segment) {
                    forgotten.push(*key);
                } else if page.len() == max {
                    next_record = Some(*key);
                    break;
                } else {
                    page.push(record.as_loss(*key));
                }
            }
        }
        let next = from.saturating_add(page.len() as u32);
        self.resume = next_record.map(|key| (next, key));
        let more = next_record.is_some() || (next as usize) < before;
        forgotten.into_iter().for_each(|key| self.remove(key));
        (page, more.then_some(next))
    }

    /// Memory in use, about.
    pub(crate) fn bytes(&self) -> usize {
        (self.parts.len() + self.causes_known) * PART_BYTES + self.records.len() * RECORD_BYTES
    }
}

impl LostRecord {
    fn as_loss(&self, RecordKey { event: key, source }: RecordKey) -> Loss {
        let Cause { kind, segment, flush, ref drives_damaged, ref drives_missing, found_by } = *self.cause;
        let part = match source {
            Some(source) => LostPart::Fragment { flush, id: key.fragment(source), bytes: self.size },
            None => LostPart::Event { flush, key, fragments: self.size },
        };
        let (drives_damaged, drives_missing) = (drives_damaged.clone(), drives_missing.clone());
        Loss { kind, part, segment, drives_damaged, drives_missing, found_by, found_unix_ms: self.found.unix_ms() }
    }
}

/// Of a fragment or a whole event: its key, flush and size.
fn record_of(part: &LostPart) -> Option<(RecordKey, u32, u32)> {
    match *part {
        LostPart::Fragment { flush, id, bytes } => {
            Some((RecordKey { event: id.key(), source: Some(id.source) }, flush, bytes))
        }
        LostPart::Event { flush, key, fragments } => Some((RecordKey { event: key, source: None }, flush, fragments)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::FragmentId;

    use super::*;

    const SEGMENT: SegmentId = SegmentId { epoch: 1, nonce: 2, counter: 3 };

    fn id(event: u64) -> FragmentId {
        EventKey::new(1, event).fragment(SourceId(event as u32 % 3))
    }

    fn fragment(event: u64) -> Loss {
        let part = LostPart::Fragment { flush: event as u32 / 10, id: id(event), bytes: 7 };
        Loss::new(LossKind::Lost, SEGMENT, part, FoundBy::Scrub, WallTime(event))
    }

    fn flush(flush: u32) -> Loss {
        let part = LostPart::Flush { flush, records: 1, runs: (1, 1), events: (1, 1) };
        Loss::new(LossKind::LostOrUnknown, SEGMENT, part, FoundBy::Start, WallTime(1))
    }

    fn listed(losses: &mut Losses, max: u32, now: &[Loss], mut missed: impl FnMut(EventKey) -> bool) -> Vec<Loss> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let (page, next) = losses.page(at, max, now, |key, _| missed(key));
            assert!(page.len() <= max as usize && (next.is_none() || !page.is_empty()));
            all.extend(page);
            from = next;
        }
        all
    }

    #[test]
    fn each_is_told_once_in_pages_of_any_size() {
        let now = [flush(1000)];
        for max in [1, 2, 3, 7, 50, 1000] {
            let mut losses = Losses::new(0);
            let all: Vec<Loss> = (0..3).map(flush).chain(now.clone()).chain((0..50).map(fragment)).collect();
            all.iter().filter(|loss| !now.contains(loss)).for_each(|loss| losses.insert(loss.clone()));
            losses.insert(fragment(9));
            assert_eq!(losses.fragments(), 50);
            assert_eq!(listed(&mut losses, max, &now, |_| true), all);
            // Beginning anywhere, also where no page ended.
            for from in 0..=all.len() {
                assert_eq!(losses.page(from as u32, 1000, &now, |_, _| true).0, all[from..]);
            }
            // What is not missed any more goes, and the page goes on behind it.
            let even = |key: EventKey| key.event.0.is_multiple_of(2);
            let left: Vec<Loss> = all.into_iter().filter(|loss| loss.event().is_none_or(even)).collect();
            assert_eq!(listed(&mut losses, max, &now, even), left);
            assert_eq!(losses.fragments(), 25);
        }
    }

    #[test]
    fn what_is_found_again_or_missed_no_more_is_forgotten_with_all_that_it_took() {
        let mut losses = Losses::new(0);
        (0..2).map(flush).chain((0..50).map(fragment)).for_each(|loss| losses.insert(loss));
        let part = fragment(17).part;
        assert!(losses.has(SEGMENT, part) && losses.has(SEGMENT, flush(1).part));
        assert!(!losses.has(SegmentId { counter: 4, ..SEGMENT }, part));
        losses.forget(SEGMENT, part);
        assert!(!losses.has(SEGMENT, part));
        losses.forget_event(id(18).key());
        assert_eq!(losses.fragments(), 48);
        losses.forget_flush(SEGMENT, 1);
        assert_eq!((losses.fragments(), losses.parts().count()), (40, 1));
        (0..50).for_each(|event| losses.forget_event(id(event).key()));
        losses.forget_flush(SEGMENT, 0);
        assert_eq!((losses.fragments(), losses.bytes(), losses.causes.len()), (0, 0, 0));
    }

    #[test]
    fn a_fragment_that_is_lost_at_another_place_is_told_there() {
        let mut losses = Losses::new(0);
        let there = Loss { segment: SegmentId { counter: 4, ..SEGMENT }, ..fragment(5) };
        losses.insert(fragment(5));
        losses.insert(there.clone());
        assert_eq!(listed(&mut losses, 10, &[], |_| true), [there]);
        assert_eq!((losses.fragments(), losses.bytes()), (1, RECORD_BYTES + PART_BYTES));
    }

    #[test]
    fn memory_is_bounded_and_what_is_beyond_it_counted() {
        let mut losses = Losses::new(0);
        (0..20_000).map(fragment).for_each(|loss| losses.insert(loss));
        assert!(losses.bytes() <= BYTES_MIN);
        let told = listed(&mut losses, 1000, &[], |_| true).len() as u64;
        assert!(told > 8000, "{told} fragments in a MiB");
        assert_eq!((losses.fragments(), losses.not_remembered()), (20_000, 20_000 - told));
        let mut large = Losses::new(BYTES_MIN * 4 * INDEX_SHARE);
        (0..20_000).map(fragment).for_each(|loss| large.insert(loss));
        assert_eq!((large.fragments(), large.not_remembered()), (20_000, 0));
        // Another kind of loss is no fragment.
        (0..20_000).map(flush).for_each(|loss| losses.insert(loss));
        assert_eq!(losses.fragments(), 20_000);
    }
}
