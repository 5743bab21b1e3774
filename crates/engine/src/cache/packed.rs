//! Data of many small flushes, one behind the other in buffers of the pool.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forebay_media::AlignedBuffer;

use crate::pool::BufferPool;
use crate::shared::SharedBytes;

/// Places are counted in bytes without end; a buffer holds so many of them, and goes back when nothing in it is wanted any more.
#[derive(Default)]
pub(super) struct Packed {
    buffer_bytes: u64,
    buffers: BTreeMap<u64, PackedBuffer>,
    /// Where the next byte goes.
    end: u64,
}

struct PackedBuffer {
    memory: Arc<AlignedBuffer>,
    /// Flushes that have data here.
    flushes: u32,
}

impl PackedBuffer {
    fn of(memory: AlignedBuffer) -> PackedBuffer {
        PackedBuffer { memory: Arc::new(memory), flushes: 0 }
    }
}

impl Packed {
    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.len() * self.buffer_bytes as usize
    }

    /// Copies a flush's data in; its place.
    pub(super) fn insert<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>, pool: &mut BufferPool) -> Range<u64> {
        self.buffer_bytes = pool.buffer_bytes() as u64;
        let start = self.end;
        for mut piece in pieces {
            while !piece.is_empty() {
                let (number, at) = (self.end / self.buffer_bytes, (self.end % self.buffer_bytes) as usize);
                let buffer = self.buffers.entry(number).or_insert_with(|| PackedBuffer::of(pool.take_one()));
                let memory = Arc::get_mut(&mut buffer.memory).expect("what fills is not shared");
                let (now, later) = piece.split_at(piece.len().min(memory.len() - at));
                memory[at..at + now.len()].copy_from_slice(now);
                self.end += now.len() as u64;
                piece = later;
            }
        }
        let place = start..self.end;
        for number in self.numbers(&place) {
            self.buffers.get_mut(&number).expect("it was just written").flushes += 1;
        }
        place
    }

    /// Appends what lies at a place to `into`.
    pub(super) fn append(&self, place: Range<u64>, into: &mut Vec<u8>) {
        self.parts(place).for_each(|(memory, part)| into.extend_from_slice(&memory[part]));
    }

    /// Whether what lies before `end` is in buffers that are full: to the one that fills more is written.
    pub(super) fn can_share(&self, end: u64) -> bool {
        end <= self.end - self.end % self.buffer_bytes
    }

    /// Adds what lies at a place to `into`, where it lies.
    ///
    /// # Panics
    /// When it cannot be shared.
    pub(super) fn share(&self, place: Range<u64>, into: &mut Vec<SharedBytes>) {
        assert!(self.can_share(place.end), "{place:?} of {} bytes may not be full", self.end);
        into.extend(self.parts(place).map(|(memory, part)| SharedBytes::new(Arc::clone(memory), part)));
    }

    /// The buffers of a place, and where in each of them it lies.
    fn parts(&self, place: Range<u64>) -> impl Iterator<Item = (&Arc<AlignedBuffer>, Range<usize>)> {
        self.numbers(&place).map(move |number| {
            let begin = number * self.buffer_bytes;
            let (start, end) = (place.start.max(begin) - begin, place.end.min(begin + self.buffer_bytes) - begin);
            let buffer = self.buffers.get(&number).expect("what is wanted is here");
            (&buffer.memory, start as usize..end as usize)
        })
    }

    /// The flush at a place is not wanted any more.
    pub(super) fn remove(&mut self, place: Range<u64>, pool: &mut BufferPool) {
        for number in self.numbers(&place) {
            let buffer = self.buffers.get_mut(&number).expect("what is wanted is here");
            buffer.flushes -= 1;
            if buffer.flushes == 0 {
                pool.give_back_shared([self.buffers.remove(&number).expect("looked at just now").memory]);
                // The one that fills is given back too: what comes next begins another.
                self.end = self.end.max((number + 1) * self.buffer_bytes);
            }
        }
    }

    fn numbers(&self, place: &Range<u64>) -> Range<u64> {
        match place.is_empty() {
            true => 0..0,
            false => place.start / self.buffer_bytes..(place.end - 1) / self.buffer_bytes + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_come_back_as_they_were_and_every_buffer_goes_back_to_the_pool() {
        let mut pool = BufferPool::new(8192);
        let mut packed = Packed::default();
        let data: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; 700 * usize::from(n)]).collect();
        let mut places = Vec::new();
        for (n, data) in data.iter().enumerate() {
            let (first, second) = data.split_at(data.len() / 3);
            places.push(packed.insert([first, second].into_iter(), &mut pool));
            if n % 3 == 2 {
                packed.remove(places[n - 1].clone(), &mut pool);
            }
        }
        let total: usize = data.iter().map(Vec::len).sum();
        assert!(packed.bytes() <= total.next_multiple_of(8192));
        for (n, place) in places.into_iter().enumerate().filter(|(n, _)| n % 3 != 1) {
            let mut read = vec![0xEE];
            packed.append(place.clone(), &mut read);
            assert_eq!(read[1..], data[n]);
            packed.remove(place, &mut pool);
        }
        assert_eq!(packed.bytes(), 0);
        assert_eq!(pool.lent_bytes(), 0);
        let place = packed.insert([&[1, 2, 3][..]].into_iter(), &mut pool);
        assert_eq!(place.start % 8192, 0, "a buffer that was given back is not written to");
    }

    #[test]
    fn what_is_shared_stays_and_what_fills_is_not_shared() {
        let mut pool = BufferPool::new(8192);
        let mut packed = Packed::default();
        let (first, second) = (vec![1; 5000], vec![2; 5000]);
        let places = [&first, &second].map(|data| packed.insert([&data[..]].into_iter(), &mut pool));
        assert_eq!(places.clone().map(|place| packed.can_share(place.end)), [true, false]);
        assert!(packed.can_share(8192) && !packed.can_share(8193));
        // More is written while somebody has what is full.
        let mut shared = Vec::new();
        packed.share(places[0].clone(), &mut shared);
        packed.insert([&[3; 7000][..]].into_iter(), &mut pool);
        packed.share(places[1].clone(), &mut shared);
        places.into_iter().for_each(|place| packed.remove(place, &mut pool));
        assert_eq!(pool.lent_bytes(), 8192, "the second buffer has the third's data, too");
        assert_eq!(pool.bytes(), 0);
        let bytes: Vec<u8> = shared.iter().flat_map(|part| part.to_vec()).collect();
        assert!(bytes == [first, second].concat(), "they lie as they lay");
        drop(shared);
        assert_eq!(pool.lent_bytes(), 0);
    }
}
