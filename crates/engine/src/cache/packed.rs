//! Data of many small flushes, one behind the other in buffers of the pool.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_media::AlignedBuffer;

use crate::pool::BufferPool;

/// Places are counted in bytes without end; a buffer holds so many of them, and goes back when nothing in it is wanted any more.
#[derive(Default)]
pub(super) struct Packed {
    buffer_bytes: u64,
    buffers: BTreeMap<u64, PackedBuffer>,
    /// Where the next byte goes.
    end: u64,
}

struct PackedBuffer {
    memory: AlignedBuffer,
    /// Flushes that have data here.
    flushes: u32,
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
                let buffer =
                    self.buffers.entry(number).or_insert_with(|| PackedBuffer { memory: pool.take_one(), flushes: 0 });
                let (now, later) = piece.split_at(piece.len().min(buffer.memory.len() - at));
                buffer.memory[at..at + now.len()].copy_from_slice(now);
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
    pub(super) fn append(&self, mut place: Range<u64>, into: &mut Vec<u8>) {
        while !place.is_empty() {
            let (number, at) = (place.start / self.buffer_bytes, place.start % self.buffer_bytes);
            let bytes = (place.end - place.start).min(self.buffer_bytes - at);
            let buffer = self.buffers.get(&number).expect("what is wanted is here");
            into.extend_from_slice(&buffer.memory[at as usize..(at + bytes) as usize]);
            place.start += bytes;
        }
    }

    /// The flush at a place is not wanted any more.
    pub(super) fn remove(&mut self, place: Range<u64>, pool: &mut BufferPool) {
        for number in self.numbers(&place) {
            let buffer = self.buffers.get_mut(&number).expect("what is wanted is here");
            buffer.flushes -= 1;
            if buffer.flushes == 0 {
                pool.give_back(self.buffers.remove(&number).expect("looked at just now").memory);
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
        let place = packed.insert([&[1, 2, 3][..]].into_iter(), &mut pool);
        assert_eq!(place.start % 8192, 0, "a buffer that was given back is not written to");
    }
}
