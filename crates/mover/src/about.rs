//! What is known of a file besides the sums of its bytes, once it was checked: for its sidecar, and for whoever registers it.

use std::sync::Arc;

use forebay_types::{EventId, EventKey, RunId};
use serde::{Deserialize, Serialize};

use crate::sums::Sums;

/// Events with gaps between them are told as so many ranges at most; where there are more, as none.
const RANGES_MAX: usize = 4096;

/// What a check of a file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What its bytes come to, as they are stored.
    pub sums: Sums,
    /// What else is known of it.
    pub about: Arc<About>,
}

/// What is known of a file besides the sums of its bytes. The journal keeps it, so that a start says the same of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The format of its events, if it has events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// Its parts, in the order of the recipe.
    pub parts: Vec<AboutPart>,
    /// What it comes to before it is compressed, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncompressed: Option<Uncompressed>,
}

/// The sums of a file before it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uncompressed {
    /// The size in bytes.
    pub bytes: u64,
    /// Its Adler-32.
    pub adler32: u32,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboutPart {
    /// Where it begins in the file before that is compressed, bytes: the bytes of the part itself in an archive, what is around its events in a file that has something around them.
    pub at: u64,
    /// The Adler-32 of the part as the source has it.
    pub adler32: u32,
}

/// Events of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// How many.
    pub count: u64,
    /// The run of all of them; none where there are several.
    pub run: Option<RunId>,
    /// The first and last numbers of events that follow each other; none where there are several runs, or far too many gaps.
    pub ranges: Vec<[EventId; 2]>,
}

impl Events {
    /// Another one, behind those that were noted.
    pub fn note(&mut self, key: EventKey) {
        let is_first = self.count == 0;
        self.count += 1;
        if is_first {
            (self.run, self.ranges) = (Some(key.run), vec![[key.event; 2]]);
        } else if self.run != Some(key.run) {
            (self.run, self.ranges) = (None, Vec::new());
        } else if let Some([_, last]) = self.ranges.last_mut() {
            if last.0.checked_add(1) == Some(key.event.0) {
                *last = key.event;
            } else if self.ranges.len() < RANGES_MAX {
                self.ranges.push([key.event; 2]);
            } else {
                self.ranges = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(keys: impl IntoIterator<Item = (u32, u64)>) -> Events {
        let mut events = Events::default();
        for (run, event) in keys {
            events.note(EventKey { run: RunId(run), event: EventId(event) });
        }
        events
    }

    #[test]
    fn neighbours_are_one_range_and_far_too_many_are_none() {
        let events = noted([(7, 1), (7, 2), (7, 3), (7, 9), (7, 8), (7, u64::MAX), (7, 0)]);
        let ranges: Vec<(u64, u64)> = events.ranges.iter().map(|[first, last]| (first.0, last.0)).collect();
        assert_eq!(ranges, [(1, 3), (9, 9), (8, 8), (u64::MAX, u64::MAX), (0, 0)]);
        assert_eq!((events.count, events.run), (7, Some(RunId(7))));
        let mixed = noted([(7, 1), (8, 2), (8, 3), (7, 4)]);
        assert_eq!((mixed.count, mixed.run, mixed.ranges.len()), (4, None, 0));
        let odd = |count| noted((0..count).map(|number| (7, 2 * number)));
        assert_eq!(odd(RANGES_MAX as u64).ranges.len(), RANGES_MAX);
        let many = odd(RANGES_MAX as u64 + 5);
        assert_eq!((many.count, many.run, many.ranges.len()), (RANGES_MAX as u64 + 5, Some(RunId(7)), 0));
    }
}
