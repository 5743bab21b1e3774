//! BESIII raw: an event of the ATLAS family's eformat, version 3. All fields are words of four bytes.
//!
//! ```text
//! element   0 marker | 4 words, with this header | 8 header words, 7 + N + M | 12 format 0x0300____ | 16 source id
//!          20 N | 24 N status words | 24 + 4N M | 28 + 4N M specific words | then elements of the next level
//! markers  0xaa1234aa event > 0xbb1234bb sub-detectors > 0xcc1234cc ROSes > 0xdd1234dd ROBs, each with a ROD or nothing
//! event    specific words: time (s since 1970), event number, run, L1 id, ...
//! ROD       0 marker 0xee1234ee | 4 header words, 9 | 8 format | 12 source id | 16 run | 20 L1 id | 24 bc | 28 trigger type
//!          32 event type | status and data words | trailer: status words | data words | status position
//! ```
//!
//! Run and event number are those of the event's header: the fields of the same name in ROD headers are not reliable.
//! A ROD is looked at only when no status word of its ROB is set: a ROB that reports an error may hold a damaged one.

mod file;

use std::ops::Range;

use forebay_types::{EventId, RunId, SourceId};

use crate::bytes::{put, u32_at};
use crate::error::{Problem, RenumberError};
use crate::event::{EventInfo, Format, inspect_event};

pub use file::{BesiiiFile, EndRecord, PaddedText, RunRecord, StartRecord};
pub(crate) use file::{END_BYTES, FILE_MARKER, SEPARATOR_BYTES, Separator, head_bytes};

/// Bytes of a header without status and specific words.
pub(crate) const HEADER_BYTES_MIN: usize = 28;
pub(crate) const EVENT_MAX: u64 = u32::MAX as u64;
pub(crate) const EVENT_MARKER: u32 = 0xaa12_34aa;
pub(crate) const SUB_DETECTOR_MARKER: u32 = 0xbb12_34bb;
pub(crate) const ROS_MARKER: u32 = 0xcc12_34cc;
pub(crate) const ROB_MARKER: u32 = 0xdd12_34dd;
pub(crate) const ROD_MARKER: u32 = 0xee12_34ee;
pub(crate) const FORMAT: u32 = 0x0300_0000;
pub(crate) const ROD_HEADER_WORDS: u32 = 9;
pub(crate) const ROD_TRAILER_WORDS: u32 = 3;

const WORD_BYTES: usize = 4;
const HEADER_WORDS_MIN: u64 = 7;
/// Specific words of the event that must be there: time, event number, run.
const EVENT_WORDS_MIN: u64 = 3;
/// Places among the specific words of the event.
const NUMBER_AT: usize = 4;
const RUN_AT: usize = 8;
const L1_ID_AT: usize = 12;
/// Generic status bit: a module ran into a timeout, so that something may be missing.
const STATUS_TIMEOUT: u32 = 1 << 2;

/// A level of nesting.
struct Level {
    marker: u32,
    name: &'static str,
    header: &'static str,
}

const fn level(marker: u32, name: &'static str, header: &'static str) -> Level {
    Level { marker, name, header }
}

const LEVELS: [Level; 4] = [
    level(EVENT_MARKER, "event", "event header"),
    level(SUB_DETECTOR_MARKER, "sub-detector", "sub-detector header"),
    level(ROS_MARKER, "ROS", "ROS header"),
    level(ROB_MARKER, "ROB", "ROB header"),
];
const ROB: usize = 3;

/// An element whose header was checked and which lies within its parent.
struct Element {
    level: usize,
    at: usize,
    /// How many status words it has.
    status_words: usize,
    /// How many specific words it has.
    specific_words: u64,
    /// Where what it holds starts.
    body: usize,
    end: usize,
}

impl Element {
    /// Reads the element of `level` at `at`; its parent ends at `parent_end`.
    fn parse(bytes: &[u8], level: usize, at: usize, parent_end: usize) -> Result<Element, Problem> {
        let Level { marker, name, header } = LEVELS[level];
        let (place, left) = (at as u64, (parent_end - at) as u64);
        let nested = |what, expected| Problem::Nested { what, at: place, expected, found: left };
        if left < HEADER_BYTES_MIN as u64 {
            return Err(nested(header, HEADER_BYTES_MIN as u64));
        }
        let word = |offset: usize| u32_at(bytes, at + offset);
        if word(0) != marker {
            return Err(Problem::Marker { what: name, at: place, expected: marker, found: word(0) });
        }
        if word(12) >> 16 != FORMAT >> 16 {
            let expected = "0x03000000 to 0x0300ffff";
            return Err(Problem::Version { what: name, at: place + 12, expected, found: word(12) });
        }
        let [size, header_size] = [word(4), word(8)].map(|words| u64::from(words) * WORD_BYTES as u64);
        if header_size < HEADER_BYTES_MIN as u64 {
            return Err(Problem::Short {
                what: header,
                at: place,
                expected: HEADER_BYTES_MIN as u64,
                found: header_size,
            });
        }
        if size < header_size {
            return Err(Problem::Short { what: name, at: place, expected: header_size, found: size });
        }
        if size > left {
            return Err(nested(name, size));
        }
        let (header_words, status_words) = (u64::from(word(8)), u64::from(word(20)));
        let counted = |expected| Problem::HeaderWords { what: name, at: place, expected, found: header_words };
        if HEADER_WORDS_MIN + status_words > header_words {
            return Err(counted(HEADER_WORDS_MIN + status_words));
        }
        let specific_words = u64::from(word(24 + status_words as usize * WORD_BYTES));
        if HEADER_WORDS_MIN + status_words + specific_words != header_words {
            return Err(counted(HEADER_WORDS_MIN + status_words + specific_words));
        }
        let (body, end) = (at + header_size as usize, at + size as usize);
        Ok(Element { level, at, status_words: status_words as usize, specific_words, body, end })
    }

    /// The event itself, with a header that names it.
    fn event(bytes: &[u8]) -> Result<Element, Problem> {
        let event = Element::parse(bytes, 0, 0, bytes.len())?;
        if event.specific_words < EVENT_WORDS_MIN {
            let expected = event.body as u64 + (EVENT_WORDS_MIN - event.specific_words) * WORD_BYTES as u64;
            return Err(Problem::Short { what: "event header", at: 0, expected, found: event.body as u64 });
        }
        Ok(event)
    }

    /// Where its specific words start.
    fn specific(&self) -> usize {
        self.at + HEADER_BYTES_MIN + self.status_words * WORD_BYTES
    }

    fn has_status(&self, bytes: &[u8]) -> bool {
        let start = self.at + HEADER_BYTES_MIN - WORD_BYTES;
        bytes[start..start + self.status_words * WORD_BYTES].iter().any(|byte| *byte != 0)
    }

    /// Calls `visit` for everything that it holds, down to the ROBs, in order.
    fn visit(&self, bytes: &[u8], visit: &mut dyn FnMut(&Element)) -> Result<(), Problem> {
        let mut at = self.body;
        while at < self.end {
            let element = Element::parse(bytes, self.level + 1, at, self.end)?;
            visit(&element);
            match element.level {
                ROB => check_rod(bytes, &element)?,
                _ => element.visit(bytes, visit)?,
            }
            at = element.end;
        }
        Ok(())
    }
}

/// Checks marker and lengths of what a ROB holds, unless it reports an error.
fn check_rod(bytes: &[u8], rob: &Element) -> Result<(), Problem> {
    let words = ((rob.end - rob.body) / WORD_BYTES) as u64;
    if words == 0 || rob.has_status(bytes) {
        return Ok(());
    }
    let (at, found) = (rob.body as u64, words * WORD_BYTES as u64);
    let words_min = u64::from(ROD_HEADER_WORDS + ROD_TRAILER_WORDS);
    if words < words_min {
        return Err(Problem::Short { what: "ROD", at, expected: words_min * WORD_BYTES as u64, found });
    }
    let marker = u32_at(bytes, rob.body);
    if marker != ROD_MARKER {
        return Err(Problem::Marker { what: "ROD", at, expected: ROD_MARKER, found: marker });
    }
    let header_words = u32_at(bytes, rob.body + 4);
    if header_words < ROD_HEADER_WORDS {
        let [expected, found] = [ROD_HEADER_WORDS, header_words].map(|words| u64::from(words) * WORD_BYTES as u64);
        return Err(Problem::Short { what: "ROD header", at, expected, found });
    }
    let trailer = rob.end - ROD_TRAILER_WORDS as usize * WORD_BYTES;
    let counts = [header_words, u32_at(bytes, trailer), u32_at(bytes, trailer + 4), ROD_TRAILER_WORDS];
    let counted = counts.map(u64::from).iter().sum();
    if counted != words {
        return Err(Problem::RodWords { at, expected: words, found: counted });
    }
    Ok(())
}

/// The size of the event that starts with these bytes, at least [`HEADER_BYTES_MIN`] of them.
pub(crate) fn event_bytes(prefix: &[u8]) -> Result<u64, Problem> {
    let found = u32_at(prefix, 0);
    if found != EVENT_MARKER {
        return Err(Problem::Marker { what: "event", at: 0, expected: EVENT_MARKER, found });
    }
    let bytes = u64::from(u32_at(prefix, 4)) * WORD_BYTES as u64;
    if bytes < HEADER_BYTES_MIN as u64 {
        return Err(Problem::TooSmall { expected: HEADER_BYTES_MIN as u64, found: bytes });
    }
    Ok(bytes)
}

/// Calls `part` for every stretch of a whole event in order: ROBs with their source, what lies between them with none.
pub(crate) fn walk(bytes: &[u8], mut part: impl FnMut(Option<SourceId>, Range<usize>)) -> Result<(), Problem> {
    let mut end = 0;
    Element::event(bytes)?.visit(bytes, &mut |element| {
        if element.level != ROB {
            return;
        }
        if end < element.at {
            part(None, end..element.at);
        }
        part(Some(SourceId(u32_at(bytes, element.at + 16))), element.at..element.end);
        end = element.end;
    })?;
    if end < bytes.len() {
        part(None, end..bytes.len());
    }
    Ok(())
}

pub(crate) fn inspect(bytes: &[u8]) -> Result<EventInfo, Problem> {
    let event = Element::event(bytes)?;
    let mut fragments = 0;
    event.visit(bytes, &mut |element| fragments += usize::from(element.level == ROB))?;
    let specific = event.specific();
    let number = EventId(u32_at(bytes, specific + NUMBER_AT).into());
    let taken_unix_s = u64::from(u32_at(bytes, specific));
    Ok(EventInfo {
        run: RunId(u32_at(bytes, specific + RUN_AT)),
        event: Ok(number),
        fragments,
        whole: false,
        taken_unix_us: (taken_unix_s > 0).then_some(taken_unix_s * 1_000_000),
    })
}

pub(crate) fn renumber(bytes: &mut [u8], run: RunId, event: EventId) -> Result<(), RenumberError> {
    inspect_event(Format::Besiii, bytes)?;
    let Ok(number) = u32::try_from(event.0) else {
        return Err(RenumberError::EventTooLarge { event, format: Format::Besiii, largest: EVENT_MAX });
    };
    let header = Element::event(bytes)?;
    let specific = header.specific();
    let before = u32_at(bytes, specific + NUMBER_AT);
    put(bytes, specific + NUMBER_AT, &number.to_le_bytes());
    put(bytes, specific + RUN_AT, &run.0.to_le_bytes());
    if header.specific_words > EVENT_WORDS_MIN && u32_at(bytes, specific + L1_ID_AT) == before {
        put(bytes, specific + L1_ID_AT, &number.to_le_bytes());
    }
    Ok(())
}

/// Adapts the headers of an event that lost some of its ROBs: the words of each element, and the event's status.
pub(crate) fn remake_headers(bytes: &mut [u8]) -> Result<(), Problem> {
    // Elements that are not closed yet, from the outermost.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let left = (bytes.len() - at) as u64;
        let place = at as u64;
        if left < HEADER_BYTES_MIN as u64 {
            let expected = HEADER_BYTES_MIN as u64;
            return Err(Problem::Overrun { what: "header", at: place, expected, found: left });
        }
        let found = u32_at(bytes, at);
        let Some(level) = LEVELS.iter().position(|level| level.marker == found) else {
            return Err(Problem::Marker { what: "ROB", at: place, expected: ROB_MARKER, found });
        };
        while open.last().is_some_and(|(outer, _)| *outer >= level) {
            let (_, start) = open.pop().expect("it was looked at");
            close(bytes, start, at);
        }
        let words = if level == ROB { u32_at(bytes, at + 4) } else { u32_at(bytes, at + 8) };
        let step = u64::from(words) * WORD_BYTES as u64;
        if step < HEADER_BYTES_MIN as u64 || step > left {
            return Err(Problem::Overrun { what: LEVELS[level].name, at: place, expected: step, found: left });
        }
        if level != ROB {
            open.push((level, at));
        }
        at += step as usize;
    }
    while let Some((_, start)) = open.pop() {
        close(bytes, start, at);
    }
    if at > 0 && u32_at(bytes, 20) > 0 {
        let status = u32_at(bytes, 24) | STATUS_TIMEOUT;
        put(bytes, 24, &status.to_le_bytes());
    }
    Ok(())
}

/// The element at `start` ends at `end`.
fn close(bytes: &mut [u8], start: usize, end: usize) {
    let words = u32::try_from((end - start) / WORD_BYTES).expect("an event of at most 512 MiB has fewer words");
    put(bytes, start + 4, &words.to_le_bytes());
}
