//! The names in a directory, in their order, packed: a name takes nine bytes beside its own, and a share of the room that its chunk has left.

use forebay_types::FileNumber;
use forebay_types::memory::allocated_bytes;

/// The most bytes of a chunk. A name is looked for in one chunk from its beginning on, and a change moves what is behind it in there.
const CHUNK_BYTES: usize = 2048;

/// Chunks with less in them than this are put together with the next.
const CHUNK_BYTES_MIN: usize = CHUNK_BYTES / 4;

/// A chunk that grows gets room for so many more bytes, as a part of what it has.
const GROWTH_PART: usize = 8;

/// What stands before a name: how long it is, and what it stands for.
const HEAD_BYTES: usize = 1 + size_of::<u64>();

/// The entries of a directory.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// None is empty; the names of each come before those of the next.
    chunks: Vec<Vec<u8>>,
    len: usize,
    /// Memory of all chunks.
    chunks_bytes: usize,
}

/// The entries of a chunk from one of them on, each with where it stands.
fn entries_at(chunk: &[u8], mut at: usize) -> impl Iterator<Item = (usize, &[u8], FileNumber)> {
    std::iter::from_fn(move || {
        let (head, rest) = chunk.get(at..)?.split_first_chunk::<HEAD_BYTES>()?;
        let [bytes, number @ ..] = *head;
        let entry = (at, &rest[..usize::from(bytes)], FileNumber(u64::from_le_bytes(number)));
        at += HEAD_BYTES + usize::from(bytes);
        Some(entry)
    })
}

/// Where a name stands in a chunk, or where it would.
fn find_in(chunk: &[u8], name: &[u8]) -> Result<usize, usize> {
    match entries_at(chunk, 0).find(|(_, there, _)| *there >= name) {
        Some((at, there, _)) if there == name => Ok(at),
        Some((at, ..)) => Err(at),
        None => Err(chunk.len()),
    }
}

fn first_name(chunk: &[u8]) -> &[u8] {
    entries_at(chunk, 0).next().map_or(&[], |(_, name, _)| name)
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory outside of the value.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunks_bytes + allocated_bytes(self.chunks.capacity() * size_of::<Vec<u8>>())
    }

    /// The chunk that has a name, if any does.
    fn chunk_of(&self, name: &[u8]) -> usize {
        self.chunks.partition_point(|chunk| first_name(chunk) <= name).saturating_sub(1)
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<FileNumber> {
        let chunk = self.chunks.get(self.chunk_of(name))?;
        let at = find_in(chunk, name).ok()?;
        entries_at(chunk, at).next().map(|(_, _, number)| number)
    }

    /// All of them, ascending; from behind a name on, be it there or not.
    pub(crate) fn behind(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&[u8], FileNumber)> {
        let first = after.map_or(0, |after| self.chunk_of(after));
        let all = self.chunks[first.min(self.chunks.len())..].iter().flat_map(|chunk| entries_at(chunk, 0));
        all.map(|(_, name, number)| (name, number))
            .skip_while(move |(name, _)| after.is_some_and(|after| *name <= after))
    }

    /// What a name stands for from now on; whether it was not there.
    ///
    /// # Panics
    /// For a name that is too long to be one.
    pub(crate) fn insert(&mut self, name: &[u8], number: FileNumber) -> bool {
        let bytes = u8::try_from(name.len()).expect("names are checked before");
        let mut entry = Vec::with_capacity(HEAD_BYTES + name.len());
        entry.push(bytes);
        entry.extend(number.0.to_le_bytes());
        entry.extend(name);
        let index = self.chunk_of(name);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.add_chunk(0, entry);
            self.len += 1;
            return true;
        };
        match find_in(chunk, name) {
            Ok(at) => {
                chunk[at..at + entry.len()].copy_from_slice(&entry);
                false
            }
            Err(at) => {
                self.insert_at(index, at, entry);
                self.len += 1;
                true
            }
        }
    }

    fn insert_at(&mut self, index: usize, at: usize, entry: Vec<u8>) {
        let (is_last, chunk) = (index + 1 == self.chunks.len(), &self.chunks[index]);
        if chunk.len() + entry.len() <= CHUNK_BYTES {
            return self.change_chunk(index, |chunk| {
                if chunk.capacity() < chunk.len() + entry.len() {
                    chunk.reserve_exact(entry.len().max(chunk.len() / GROWTH_PART));
                }
                chunk.splice(at..at, entry);
            });
        }
        if is_last && at == chunk.len() {
            // Names that come in their order fill their chunks.
            return self.add_chunk(index + 1, entry);
        }
        let middle = entries_at(chunk, 0).map(|(at, ..)| at).find(|at| *at >= chunk.len() / 2).unwrap_or(chunk.len());
        let mut tail = Vec::new();
        self.change_chunk(index, |chunk| {
            tail = chunk.split_off(middle);
            chunk.shrink_to_fit();
        });
        if !tail.is_empty() {
            self.add_chunk(index + 1, tail);
        }
        match at.checked_sub(middle) {
            Some(at) if at > 0 => self.insert_at(index + 1, at, entry),
            _ => self.insert_at(index, at, entry),
        }
    }

    fn add_chunk(&mut self, index: usize, chunk: Vec<u8>) {
        self.chunks_bytes += allocated_bytes(chunk.capacity());
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(self.chunks.len() / GROWTH_PART + 1);
        }
        self.chunks.insert(index, chunk);
    }

    fn remove_chunk(&mut self, index: usize) -> Vec<u8> {
        let chunk = self.chunks.remove(index);
        self.chunks_bytes -= allocated_bytes(chunk.capacity());
        if self.chunks.capacity() > self.chunks.len() * 2 {
            self.chunks.shrink_to_fit();
        }
        chunk
    }

    fn change_chunk(&mut self, index: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let chunk = &mut self.chunks[index];
        let before = allocated_bytes(chunk.capacity());
        change(chunk);
        self.chunks_bytes = self.chunks_bytes + allocated_bytes(chunk.capacity()) - before;
    }

    /// A name is not there any more; whether it was.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let index = self.chunk_of(name);
        let Some(Ok(at)) = self.chunks.get(index).map(|chunk| find_in(chunk, name)) else { return false };
        self.len -= 1;
        self.change_chunk(index, |chunk| {
            chunk.drain(at..at + HEAD_BYTES + name.len());
            if chunk.capacity() > chunk.len() + chunk.len() / GROWTH_PART * 2 {
                chunk.shrink_to_fit();
            }
        });
        let bytes = |index: usize| self.chunks.get(index).map_or(CHUNK_BYTES, Vec::len);
        if bytes(index) == 0 {
            self.remove_chunk(index);
        } else if bytes(index) < CHUNK_BYTES_MIN && bytes(index) + bytes(index + 1) <= CHUNK_BYTES {
            let next = self.remove_chunk(index + 1);
            self.change_chunk(index, |chunk| {
                chunk.reserve_exact(next.len());
                chunk.extend(next);
            });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use forebay_types::NAME_BYTES_MAX;
    use proptest::prelude::*;

    use super::*;

    fn check(entries: &Entries, model: &BTreeMap<Vec<u8>, FileNumber>) {
        let found: Vec<_> = entries.behind(None).map(|(name, number)| (name.to_vec(), number)).collect();
        assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
        assert_eq!((entries.len(), entries.is_empty()), (model.len(), model.is_empty()));
        assert!(entries.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_BYTES));
        let bytes: usize = entries.chunks.iter().map(|chunk| allocated_bytes(chunk.capacity())).sum();
        assert_eq!(bytes, entries.chunks_bytes);
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0..600u32).prop_map(|number| format!("{number}").into_bytes()),
            1 => prop::collection::vec(1..4u8, 1..8),
            1 => (1..=NAME_BYTES_MAX, b'a'..b'e').prop_map(|(bytes, byte)| vec![byte; bytes]),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_in_the_order_of_names(steps in prop::collection::vec((name(), 0..4u8), 0..800), emptied: bool) {
            let (mut entries, mut model) = (Entries::default(), BTreeMap::new());
            for (step, (name, what)) in steps.into_iter().enumerate() {
                let number = FileNumber(step as u64);
                if what > 0 {
                    prop_assert_eq!(entries.insert(&name, number), model.insert(name.clone(), number).is_none());
                } else {
                    prop_assert_eq!(entries.remove(&name), model.remove(&name).is_some());
                }
                prop_assert_eq!(entries.get(&name), model.get(&name).copied());
                let next = model.range::<[u8], _>((Bound::Excluded(&name[..]), Bound::Unbounded)).next();
                let found = entries.behind(Some(&name)).next().map(|(name, number)| (name.to_vec(), number));
                prop_assert_eq!(found, next.map(|(name, number)| (name.clone(), *number)));
            }
            check(&entries, &model);
            if emptied {
                for name in model.keys() {
                    prop_assert!(entries.remove(name));
                }
                check(&entries, &BTreeMap::new());
                prop_assert_eq!(entries.heap_bytes(), 0);
            }
        }
    }

    #[test]
    fn a_name_takes_little_beside_its_bytes_in_whatever_order_they_come_and_go() {
        let count = 50_000;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| 49_999 - n, |n| n * 7919 % 50_000];
        for order in orders {
            let mut entries = Entries::default();
            let names = || (0..count).map(|n| format!("{:012}", order(n)));
            for (number, name) in names().enumerate() {
                assert!(entries.insert(name.as_bytes(), FileNumber(number as u64)));
            }
            let each = |entries: &Entries| entries.heap_bytes() / entries.len();
            assert!(each(&entries) < 12 + 16, "{}", each(&entries));
            // All but every fiftieth go.
            for (at, name) in names().enumerate() {
                if at % 50 != 0 {
                    assert!(entries.remove(name.as_bytes()));
                }
            }
            assert!(each(&entries) < 12 + 64, "{}", each(&entries));
        }
    }
}
