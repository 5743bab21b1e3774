//! The numbers of many events, in as many bytes as it takes to tell them apart.

/// Ranges between two places at which a list can be entered.
const ENTRY_RANGES: usize = 1024;
/// A list has no more events: its bytes are held in memory, and written to a journal at once.
pub const LIST_EVENTS_MAX: u64 = 1 << 20;

/// Ascending numbers of events, each once. A range of neighbours takes a few bytes, an event that lies apart one or two.
///
/// Encoded it is a sequence of numbers, seven bits a byte, the lowest first: of each range twice how many numbers lie between it and the one before, plus one if it
/// has more than one event, and then how many more than two it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventList {
    /// All ranges but the last, which may grow.
    encoded: Vec<u8>,
    /// The largest event of those.
    encoded_last: Option<u64>,
    last: Option<(u64, u64)>,
    events: u64,
    ranges: usize,
    entries: Vec<Entry>,
}

/// A place at which a list can be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// The first event of the range there.
    first: u64,
    /// The event before it.
    before: Option<u64>,
    at: usize,
}

/// Bytes that are no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list of events is damaged at its byte {at}: {what}")]
pub struct ListError {
    /// Where.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl EventList {
    /// Adds an event behind all that are there.
    ///
    /// # Panics
    /// When it is not behind them, or there are [`LIST_EVENTS_MAX`].
    pub fn push(&mut self, event: u64) {
        self.push_range(event, event);
    }

    fn push_range(&mut self, first: u64, last: u64) {
        assert!(self.last().is_none_or(|before| before < first) && first <= last, "events ascend");
        self.events += last - first + 1;
        assert!(self.events <= LIST_EVENTS_MAX, "a list has an end");
        match &mut self.last {
            Some((_, end)) if *end + 1 == first => *end = last,
            range => {
                if let Some(before) = range.replace((first, last)) {
                    encode(self.encoded_last, before, &mut self.encoded);
                    self.encoded_last = Some(before.1);
                }
                if self.ranges.is_multiple_of(ENTRY_RANGES) {
                    self.entries.push(Entry { first, before: self.encoded_last, at: self.encoded.len() });
                }
                self.ranges += 1;
            }
        }
    }

    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.events
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The smallest.
    pub fn first(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.first)
    }

    /// The largest.
    pub fn last(&self) -> Option<u64> {
        self.last.map(|(_, last)| last)
    }

    /// Ranges of neighbours, both ends included, ascending, beginning with the one that has `from` or lies behind it.
    pub fn ranges_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let entry = self.entries.partition_point(|entry| entry.first <= from).saturating_sub(1);
        let (mut at, mut before) = self.entries.get(entry).map_or((0, None), |entry| (entry.at, entry.before));
        let encoded = std::iter::from_fn(move || {
            (at < self.encoded.len()).then(|| {
                let range = decode(before, &self.encoded, &mut at).expect("it was encoded here");
                before = Some(range.1);
                range
            })
        });
        encoded.chain(self.last).skip_while(move |(_, last)| *last < from)
    }

    /// All events, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges_from(0).flat_map(|(first, last)| first..=last)
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encoded.clone();
        if let Some(last) = self.last {
            encode(self.encoded_last, last, &mut bytes);
        }
        bytes
    }

    /// As it was kept.
    ///
    /// # Errors
    /// What is no list, or a longer one than any that was kept.
    pub fn decode(bytes: &[u8]) -> Result<EventList, ListError> {
        let mut list = EventList::default();
        let mut at = 0;
        while at < bytes.len() {
            let error = |what| ListError { at, what };
            let mut next = at;
            let (first, last) = decode(list.last(), bytes, &mut next).map_err(error)?;
            if last - first >= LIST_EVENTS_MAX - list.events {
                return Err(error("it has more than 1048576 events"));
            }
            if list.last().is_some_and(|before| before + 1 == first) {
                return Err(error("two of its ranges are one"));
            }
            list.push_range(first, last);
            at = next;
        }
        Ok(list)
    }
}

impl FromIterator<u64> for EventList {
    fn from_iter<I: IntoIterator<Item = u64>>(events: I) -> EventList {
        let mut list = EventList::default();
        events.into_iter().for_each(|event| list.push(event));
        list
    }
}

fn encode(before: Option<u64>, (first, last): (u64, u64), into: &mut Vec<u8>) {
    let between = before.map_or(first, |before| first - before - 1);
    // Of 64 bits one would be lost: the number is of 65 at most.
    let is_range = first < last;
    encode_number(u128::from(between) << 1 | u128::from(is_range), into);
    if is_range {
        encode_number(u128::from(last - first - 1), into);
    }
}

fn encode_number(mut number: u128, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn decode(before: Option<u64>, bytes: &[u8], at: &mut usize) -> Result<(u64, u64), &'static str> {
    let too_large = "an event has a number of more than 64 bits";
    let number = decode_number(bytes, at)?;
    let between = u64::try_from(number >> 1).map_err(|_| too_large)?;
    let first = match before {
        None => between,
        Some(before) => before.checked_add(1).and_then(|next| next.checked_add(between)).ok_or(too_large)?,
    };
    if number & 1 == 0 {
        return Ok((first, first));
    }
    let more = u64::try_from(decode_number(bytes, at)?).map_err(|_| too_large)?;
    let last = first.checked_add(1).and_then(|second| second.checked_add(more)).ok_or(too_large)?;
    Ok((first, last))
}

fn decode_number(bytes: &[u8], at: &mut usize) -> Result<u128, &'static str> {
    let mut number = 0u128;
    // Ten bytes have 70 bits.
    for shift in 0..10 {
        let byte = *bytes.get(*at).ok_or("it ends within a number")?;
        *at += 1;
        number |= u128::from(byte & 0x7F) << (7 * shift);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than ten bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_and_can_be_entered_anywhere() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let sparse = [2, 50, 1000, 1 << 40][seed as usize % 4];
            let mut events = vec![random.u64(..1 << 50)];
            for _ in 0..random.usize(..6000) {
                let last = events[events.len() - 1];
                events.push(last + if random.u32(..3) > 0 { 1 } else { random.u64(1..sparse) });
            }
            let list: EventList = events.iter().copied().collect();
            assert_eq!(EventList::decode(&list.encode()), Ok(list.clone()), "seed {seed}");
            assert_eq!((list.len(), list.first()), (events.len() as u64, events.first().copied()));
            assert_eq!(list.last(), events.last().copied());
            assert!(list.iter().eq(events.iter().copied()), "seed {seed}");
            for _ in 0..50 {
                let from = events[random.usize(..events.len())].saturating_add_signed(random.i64(-2..2));
                let there =
                    list.ranges_from(from).flat_map(|(first, last)| first..=last).filter(|event| *event >= from);
                assert!(there.eq(events.iter().copied().filter(|event| *event >= from)), "seed {seed} from {from}");
            }
        }
    }

    #[test]
    fn what_lies_apart_takes_a_byte_or_two_and_neighbours_nothing() {
        let bytes = |events: &mut dyn Iterator<Item = u64>| events.collect::<EventList>().encode().len();
        assert_eq!(bytes(&mut (1..100_000)), 4);
        assert_eq!(bytes(&mut (0..1000).map(|event| event * 50)), 1000);
        assert_eq!(bytes(&mut (0..1000).map(|event| event * 5000)), 2 * 1000 - 1);
        let ends = [0, u64::MAX - 1, u64::MAX].into_iter().collect::<EventList>();
        assert_eq!(EventList::decode(&ends.encode()), Ok(ends));
        assert_eq!(EventList::decode(&[]), Ok(EventList::default()));
    }

    #[test]
    fn what_is_no_list_is_told() {
        for (bytes, what) in [
            (&[0x80][..], "it ends within a number"),
            (&[0x80; 11], "a number has more than ten bytes"),
            (
                &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
                "an event has a number of more than 64 bits",
            ),
            (&[3, 0xFF, 0xFF, 0xFF, 0x7F], "it has more than 1048576 events"),
            (&[8, 0], "two of its ranges are one"),
        ] {
            assert_eq!(EventList::decode(bytes).map_err(|error| error.what), Err(what), "{bytes:x?}");
        }
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            if let Ok(list) = EventList::decode(&bytes) {
                assert!(list.len() <= LIST_EVENTS_MAX);
            }
        }
    }
}
