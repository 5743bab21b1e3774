//! Receive buffers: small, shared where possible, and bounded for all connections of a lane together.
//!
//! Only what has arrived whole is given to the lane, so a fragment needs a buffer of its size. Three budgets keep this from standing
//! still: for buffers of [`READ_BYTES`], for larger ones, which are given as a whole to a connection whose fragment (or table) needs one,
//! and for the rests that connections keep between reads. Who holds a larger buffer waits for nothing but its peer, and is closed when
//! that does not go on; who waits for a larger one holds at most one of [`READ_BYTES`]; who waits for one of these holds a rest alone. So
//! nobody waits for himself, nor two for each other.

use crate::limits::{KEPT_BYTES, READ_BYTES, SPARE_BUFFERS_MAX};

/// Bytes in use of one kind, and how many may be.
struct Budget {
    used: usize,
    max: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used.saturating_add(bytes) <= self.max;
        self.used += if fits { bytes } else { 0 };
        fits
    }
}

/// The memory for receive buffers of a lane.
pub(crate) struct Staging {
    base: Budget,
    grown: Budget,
    kept: Budget,
    /// Initialised over their whole length; the last one used is the first one given.
    spare: Vec<Vec<u8>>,
    /// The same of larger ones: with those in use they are within the budget. Memory that is asked for anew for each large unit costs as much as receiving it.
    spare_grown: Vec<Vec<u8>>,
    released: bool,
}

/// What a buffer is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Counted {
    #[default]
    Nowhere,
    Base,
    Grown,
    Kept,
}

impl Staging {
    /// With `budget_bytes`: half for buffers, a quarter each for larger ones and for rests. The largest unit fits in any case.
    pub(crate) fn new(budget_bytes: usize, unit_bytes_max: usize) -> Self {
        let budget = |max| Budget { used: 0, max };
        Staging {
            base: budget((budget_bytes / 2).max(4 * READ_BYTES)),
            grown: budget((budget_bytes / 4).max(unit_bytes_max)),
            kept: budget(budget_bytes / 4),
            spare: Vec::new(),
            spare_grown: Vec::new(),
            released: false,
        }
    }

    /// Whether memory came back since this was last asked.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Bytes that connections hold.
    pub(crate) fn used(&self) -> usize {
        self.base.used + self.grown.used + self.kept.used
    }

    /// Bytes that they may hold.
    pub(crate) fn max(&self) -> usize {
        self.base.max + self.grown.max + self.kept.max
    }

    /// Whether more than half of the memory is in use.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() > self.max() / 2
    }

    /// A buffer of at least `bytes`, or `None` when there is no room for it now.
    fn take(&mut self, bytes: usize) -> Option<(Vec<u8>, Counted)> {
        if bytes <= READ_BYTES {
            let fits = self.base.take(READ_BYTES);
            return fits.then(|| (self.spare.pop().unwrap_or_else(|| vec![0; READ_BYTES]), Counted::Base));
        }
        let room = self.grown.max - self.grown.used;
        let fits = |spare: &Vec<u8>| (bytes..=room).contains(&spare.len());
        let buffer = match self.spare_grown.iter().rposition(fits) {
            Some(at) => self.spare_grown.swap_remove(at),
            None if bytes <= room => {
                self.drop_spare_beyond(room - bytes);
                vec![0; bytes]
            }
            None => return None,
        };
        self.grown.used += buffer.len();
        Some((buffer, Counted::Grown))
    }

    /// Keeps no more of larger buffers that nobody uses than so many bytes. Those used last stay.
    fn drop_spare_beyond(&mut self, bytes: usize) {
        let mut spare_bytes: usize = self.spare_grown.iter().map(Vec::len).sum();
        let dropped = self.spare_grown.iter().take_while(|spare| {
            let drops = spare_bytes > bytes;
            spare_bytes -= if drops { spare.len() } else { 0 };
            drops
        });
        let dropped = dropped.count();
        self.spare_grown.drain(..dropped);
    }

    /// Memory for a rest of so many bytes, if there is room for it or it takes the place of a larger buffer.
    fn keep(&mut self, bytes: usize, instead_of: Counted) -> Option<(Vec<u8>, Counted)> {
        if !self.kept.take(bytes) {
            if instead_of != Counted::Grown {
                return None;
            }
            self.kept.used += bytes;
        }
        Some((vec![0; bytes], Counted::Kept))
    }

    fn give_back(&mut self, buffer: Vec<u8>, counted: Counted) {
        self.released |= !buffer.is_empty();
        match counted {
            Counted::Nowhere => {}
            Counted::Kept => self.kept.used -= buffer.len(),
            Counted::Base => {
                self.base.used -= buffer.len();
                if self.spare.len() < SPARE_BUFFERS_MAX {
                    self.spare.push(buffer);
                }
            }
            Counted::Grown => {
                self.grown.used -= buffer.len();
                // Larger ones than a few fragments need are rare, and not kept from others.
                if buffer.len() <= 8 * READ_BYTES {
                    self.spare_grown.push(buffer);
                    self.drop_spare_beyond(self.grown.max - self.grown.used);
                }
            }
        }
    }
}

/// What arrived on a connection and is not taken. Holds no memory while that is nothing.
#[derive(Default)]
pub(crate) struct Receive {
    buffer: Vec<u8>,
    counted: Counted,
    start: usize,
    end: usize,
}

impl Receive {
    /// What arrived and is not taken.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `bytes` are taken.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "{bytes} of {} bytes cannot be taken", self.len());
        self.start += bytes;
    }

    /// Makes room for a unit of `unit` bytes from the first one not taken. `false`: there is no memory for it now.
    pub(crate) fn prepare(&mut self, unit: usize, staging: &mut Staging) -> bool {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        let is_buffer = matches!(self.counted, Counted::Base | Counted::Grown);
        if !is_buffer || self.buffer.len() < unit {
            let Some((mut buffer, counted)) = staging.take(unit) else { return false };
            let length = self.len();
            buffer[..length].copy_from_slice(self.bytes());
            self.replace(buffer, counted, length, staging);
        } else if self.start + unit > self.buffer.len() || self.len() * 8 <= self.start {
            // Needed, or cheap and worth it for a longer read.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        true
    }

    /// How many bytes from the first one not taken the prepared buffer holds.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Where to read to: up to `limit` bytes from the first one not taken.
    pub(crate) fn space(&mut self, limit: usize) -> &mut [u8] {
        let to = self.buffer.len().min(self.start.saturating_add(limit));
        let from = self.end.min(to);
        &mut self.buffer[from..to]
    }

    /// That so many bytes of [`Receive::space`] were read.
    pub(crate) fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.end, "{bytes} bytes were read into less room");
        self.end += bytes;
    }

    /// Gives back what is not needed while a unit of `awaited` bytes arrives; 0: while nothing is read. A larger buffer stays with who
    /// has one and needs it.
    pub(crate) fn settle(&mut self, awaited: usize, staging: &mut Staging) {
        if self.is_empty() {
            self.clear(staging);
        } else if self.len() <= KEPT_BYTES && (self.counted != Counted::Grown || awaited <= READ_BYTES) {
            self.shrink(staging);
        }
    }

    /// Whether it holds a larger buffer for what a usual one takes.
    pub(crate) fn is_oversized(&self) -> bool {
        self.counted == Counted::Grown && self.len() <= READ_BYTES
    }

    /// Whether it holds a buffer of the usual size.
    pub(crate) fn is_base(&self) -> bool {
        self.counted == Counted::Base
    }

    /// The bytes of a larger buffer that it holds.
    pub(crate) fn grown_bytes(&self) -> usize {
        if self.counted == Counted::Grown { self.buffer.len() } else { 0 }
    }

    /// Keeps no more memory than what arrived needs; that is moved.
    pub(crate) fn shrink(&mut self, staging: &mut Staging) {
        let length = self.len();
        let smaller = match self.counted {
            Counted::Base => staging.keep(length, Counted::Base),
            Counted::Grown if length <= KEPT_BYTES => staging.keep(length, Counted::Grown),
            Counted::Grown if length <= READ_BYTES => staging.take(length),
            _ => None,
        };
        if let Some((mut buffer, counted)) = smaller {
            buffer[..length].copy_from_slice(self.bytes());
            self.replace(buffer, counted, length, staging);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, staging: &mut Staging) {
        self.replace(Vec::new(), Counted::Nowhere, 0, staging);
    }

    /// Goes on with `buffer`, in which the first `length` bytes have arrived.
    fn replace(&mut self, buffer: Vec<u8>, counted: Counted, length: usize, staging: &mut Staging) {
        let before = (std::mem::replace(&mut self.buffer, buffer), std::mem::replace(&mut self.counted, counted));
        staging.give_back(before.0, before.1);
        (self.start, self.end) = (0, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(receive: &mut Receive, staging: &mut Staging, unit: usize, limit: usize, bytes: &[u8]) -> usize {
        assert!(receive.prepare(unit, staging));
        let space = receive.space(limit);
        let taken = space.len().min(bytes.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        receive.filled(taken);
        taken
    }

    #[test]
    fn a_connection_without_bytes_holds_no_memory() {
        let mut staging = Staging::new(16 << 20, 1 << 20);
        let mut one = Receive::default();
        assert_eq!(receive(&mut one, &mut staging, 32, 100, &[7; 200]), 100);
        assert_eq!(staging.used(), READ_BYTES);
        one.consume(60);
        one.settle(100, &mut staging);
        assert_eq!((staging.used(), one.bytes()), (40, &[7; 40][..]));
        assert_eq!(receive(&mut one, &mut staging, 100, 100, &[8; 200]), 60);
        assert_eq!((staging.used(), one.len()), (READ_BYTES, 100));
        one.consume(100);
        one.settle(0, &mut staging);
        assert_eq!((staging.used(), one.buffer.capacity()), (0, 0));
    }

    #[test]
    fn larger_units_get_their_size_and_wait_when_there_is_no_room() {
        let mut staging = Staging::new(4 << 20, 2 << 20);
        let (mut one, mut two) = (Receive::default(), Receive::default());
        let mut small: Vec<Receive> = (0..8).map(|_| Receive::default()).collect();
        assert!(one.prepare(2 << 20, &mut staging));
        assert!(!two.prepare(1 << 20, &mut staging), "the half for large units is given away");
        assert!(small.iter_mut().all(|small| small.prepare(100, &mut staging)), "small ones go on");
        assert!(staging.is_tight());
        one.clear(&mut staging);
        assert!(two.prepare(1 << 20, &mut staging));
        two.clear(&mut staging);
        small.iter_mut().for_each(|small| small.clear(&mut staging));
        assert_eq!(staging.used(), 0);
    }

    #[test]
    fn larger_buffers_are_used_again_within_the_budget() {
        let mut staging = Staging::new(16 << 20, 1 << 20);
        let mut each: Vec<Receive> = (0..4).map(|_| Receive::default()).collect();
        let mut use_all = |bytes: usize, staging: &mut Staging| -> Vec<*const u8> {
            assert!(each.iter_mut().all(|one| one.prepare(bytes, staging)));
            let mut at: Vec<_> = each.iter().map(|one| one.buffer.as_ptr()).collect();
            at.sort_unstable();
            each.iter_mut().for_each(|one| one.clear(staging));
            at
        };
        let spare_bytes = |staging: &Staging| staging.spare_grown.iter().map(Vec::len).sum::<usize>();
        let first = use_all(1 << 20, &mut staging);
        assert_eq!(spare_bytes(&staging), 4 << 20);
        assert_eq!(use_all(900 << 10, &mut staging), first, "no memory is asked for");
        assert!(each[0].prepare(3 << 20, &mut staging));
        assert_eq!(spare_bytes(&staging), 1 << 20, "what is needed takes the place of what is not");
        each[0].clear(&mut staging);
        assert_eq!((staging.grown.used, spare_bytes(&staging)), (0, 1 << 20), "so large a one is not kept");
    }

    #[test]
    fn a_rest_survives_growth_and_moves() {
        let mut staging = Staging::new(16 << 20, 4 << 20);
        let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let mut one = Receive::default();
        let mut given = receive(&mut one, &mut staging, 1, usize::MAX, &bytes);
        assert_eq!(given, READ_BYTES);
        one.consume(200_000);
        given += receive(&mut one, &mut staging, READ_BYTES + 1, 100_000, &bytes[given..]);
        assert_eq!(one.bytes(), &bytes[200_000..given]);
        assert_eq!(given, 300_000);
        one.consume(90_000);
        assert!(one.prepare(20_000, &mut staging));
        assert_eq!(one.bytes(), &bytes[290_000..]);
    }
}
