//! Well-formed events of all formats, with the sources and sizes of recorded ones.

mod besiii;
mod faser;
mod mdf;

use forebay_types::{EventId, EventKey, RunId};

use crate::event::{Format, RawEvent};
use crate::random::Random;

/// Makes events of one run, numbered from 1. The same format, seed and run give the same bytes on
/// every machine (compressed ones: with the same zlib).
///
/// The content is noise with about the entropy of detector data; no physics can be done with it.
///
/// - FASER: 11 or 14 sources, as the seed decides (trigger, 9 or 12 tracker planes, digitizer), about
///   20 kB an event.
/// - MDF: about 1,240 banks and 240 kB; [compressed](Generator::compressed) 1,025 banks.
/// - BESIII: 42 ROBs, about 12 kB. What a file holds around events is no part of them, see [`Container`](crate::Container).
pub struct Generator {
    format: Format,
    run: RunId,
    next: EventId,
    compressed: bool,
    random: Random,
    /// FASER: which of the two detectors it is.
    extended: bool,
}

impl Generator {
    /// A generator of events of `run`.
    ///
    /// # Panics
    /// When the format cannot hold the run ([`Format::run_max`]).
    pub fn new(format: Format, seed: u64, run: RunId) -> Generator {
        assert!(run <= format.run_max(), "run {run} does not fit into the {format} format");
        let mut random = Random::new(seed);
        let extended = random.below(2) == 1;
        Generator { format, run, next: EventId(1), compressed: false, random, extended }
    }

    /// Compresses the payload of MDF events with zlib. Other events stay as they are.
    pub fn compressed(mut self, compressed: bool) -> Generator {
        self.compressed = compressed;
        self
    }

    /// Numbers the events from `first` on.
    ///
    /// # Panics
    /// When the format cannot hold the number ([`Format::event_max`]).
    pub fn starting_at(mut self, first: EventId) -> Generator {
        let format = self.format;
        assert!(first <= format.event_max(), "event number {first} does not fit into the {format} format");
        self.next = first;
        self
    }

    /// The next event. After the largest event number of the format comes 0.
    pub fn next_event(&mut self) -> RawEvent {
        let key = EventKey { run: self.run, event: self.next };
        self.next = EventId(if key.event < self.format.event_max() { key.event.0 + 1 } else { 0 });
        let bytes = match self.format {
            Format::Faser => faser::event(&mut self.random, key, self.extended),
            Format::Mdf => mdf::event(&mut self.random, key, self.compressed),
            Format::Besiii => besiii::event(&mut self.random, key),
        };
        RawEvent { format: self.format, key, bytes }
    }
}

/// Appends `length` bytes with about six bits of entropy each.
fn fill(random: &mut Random, bytes: &mut Vec<u8>, length: usize) {
    let end = bytes.len() + length;
    bytes.reserve(length + 8);
    while bytes.len() < end {
        bytes.extend_from_slice(&(random.next() & 0x3F7F_3F3F_7F3F_1F3F).to_le_bytes());
    }
    bytes.truncate(end);
}
