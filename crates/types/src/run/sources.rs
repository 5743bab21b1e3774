//! Sets of sources, as ranges.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SourceId;
use crate::limits::SOURCE_RANGES_MAX;

/// Some sources: ranges that ascend and do not touch each other, at most [`SOURCE_RANGES_MAX`]. Written `0-15,32`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceSet(Box<[(SourceId, SourceId)]>);

impl SourceSet {
    /// From ranges, the first and the last source of each; `None` when they do not ascend, touch each other, or are too many.
    pub fn from_ranges(ranges: &[(SourceId, SourceId)]) -> Option<SourceSet> {
        let forwards = ranges.iter().all(|(first, last)| first <= last);
        let apart = ranges.windows(2).all(|pair| u64::from(pair[0].1.0) + 1 < u64::from(pair[1].0.0));
        (forwards && apart && ranges.len() <= SOURCE_RANGES_MAX).then(|| SourceSet(ranges.into()))
    }

    /// The ranges: the first and the last source of each.
    pub fn ranges(&self) -> &[(SourceId, SourceId)] {
        &self.0
    }

    /// How many sources these are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last.0) - u64::from(first.0) + 1).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a source is among them.
    pub fn has(&self, source: SourceId) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= source);
        behind > 0 && source <= self.0[behind - 1].1
    }
}

/// Text that names no sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no sources: {why}. Write single sources and ranges, as in 0-15,32 or 0x100-0x1ff")]
pub struct ParseSourcesError {
    /// What was given, or its beginning.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl FromStr for SourceSet {
    type Err = ParseSourcesError;

    fn from_str(text: &str) -> Result<SourceSet, ParseSourcesError> {
        let error = |why: String| ParseSourcesError { text: text.chars().take(80).collect(), why };
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part.is_empty() {
                return Err(error("a part of it is empty".to_owned()));
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<SourceId>().map_err(|wrong| error(wrong.to_string()));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(error(format!("{part} goes backwards")));
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(SourceId, SourceId)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut().filter(|before| u64::from(first.0) <= u64::from(before.1.0) + 1) {
                Some(before) => before.1 = before.1.max(last),
                None => merged.push((first, last)),
            }
        }
        let count = merged.len();
        SourceSet::from_ranges(&merged)
            .ok_or_else(|| error(format!("it has {count} ranges, and at most {SOURCE_RANGES_MAX} are taken")))
    }
}

impl TryFrom<String> for SourceSet {
    type Error = ParseSourcesError;

    fn try_from(text: String) -> Result<SourceSet, ParseSourcesError> {
        if text.is_empty() { Ok(SourceSet::default()) } else { text.parse() }
    }
}

impl From<SourceSet> for String {
    fn from(sources: SourceSet) -> String {
        sources.to_string()
    }
}

impl fmt::Display for SourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            f.write_str(if place > 0 { "," } else { "" })?;
            if first == last { write!(f, "{first}")? } else { write!(f, "{first}-{last}")? }
        }
        Ok(())
    }
}

/// So many fragments came of each source from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFragments {
    /// The first source.
    pub first: SourceId,
    /// The last one.
    pub last: SourceId,
    /// Fragments of each of them.
    pub fragments: u64,
}

impl SourceFragments {
    /// Whether these ascend, do not overlap, and are not too many.
    pub fn are_sound(all: &[SourceFragments]) -> bool {
        let forwards = all.iter().all(|of| of.first <= of.last);
        forwards && all.windows(2).all(|pair| pair[0].last < pair[1].first) && all.len() <= SOURCE_RANGES_MAX
    }

    /// Puts the counts of single sources together, neighbours with the same count into one; `None` when that gives too many.
    pub fn of_counts(counts: impl IntoIterator<Item = (SourceId, u64)>) -> Option<Vec<SourceFragments>> {
        let sorted: std::collections::BTreeMap<SourceId, u64> = counts.into_iter().collect();
        let mut all: Vec<SourceFragments> = Vec::new();
        for (source, fragments) in sorted {
            let follows = |before: &&mut SourceFragments| {
                before.fragments == fragments && u64::from(before.last.0) + 1 == u64::from(source.0)
            };
            match all.last_mut().filter(follows) {
                Some(before) => before.last = source,
                None => all.push(SourceFragments { first: source, last: source, fragments }),
            }
        }
        (all.len() <= SOURCE_RANGES_MAX).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_typed_is_put_in_order() {
        let sources: SourceSet = "32, 0-15,8-16,0x100-0x101".parse().expect("sources");
        assert_eq!(sources.to_string(), "0-16,32,256-257");
        assert_eq!(sources.count(), 20);
        let has = [0, 16, 17, 32, 33, 255, 256, 258].map(|source| sources.has(SourceId(source)));
        assert_eq!(has, [true, true, false, true, false, false, true, false]);
        let all: SourceSet = "0-4294967295".parse().expect("sources");
        assert_eq!((all.count(), all.has(SourceId::EVENT_FRAME)), (1 << 32, true));
    }

    #[test]
    fn what_names_no_sources_is_refused_with_what_is_wrong() {
        for (text, why) in [
            ("", "empty"),
            ("1,,2", "empty"),
            ("5-2", "5-2 goes backwards"),
            ("a", "not the number of a source"),
            ("-1", "not the number of a source"),
            ("1-", "not the number of a source"),
            ("4294967296", "not the number of a source"),
        ] {
            let error = text.parse::<SourceSet>().expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("0-15,32"), "{text}: {error}");
        }
        let many: Vec<String> = (0..=SOURCE_RANGES_MAX).map(|source| (2 * source).to_string()).collect();
        assert!(many.join(",").parse::<SourceSet>().expect_err("too many").to_string().contains("1025 ranges"));
    }

    proptest! {
        #[test]
        fn a_set_reads_back_what_it_prints(sources in prop::collection::btree_set(0..60u32, 0..40)) {
            let text: Vec<String> = sources.iter().map(u32::to_string).collect();
            let set = SourceSet::try_from(text.join(",")).expect("sources");
            prop_assert_eq!(SourceSet::try_from(set.to_string()), Ok(set.clone()));
            prop_assert_eq!(SourceSet::from_ranges(set.ranges()), Some(set.clone()));
            prop_assert_eq!(set.count(), sources.len() as u64);
            prop_assert!((0..60).all(|source| set.has(SourceId(source)) == sources.contains(&source)));
        }

        #[test]
        fn counts_of_sources_are_put_together(counts in prop::collection::btree_map(0..50u32, 0..3u64, 0..40)) {
            let all = SourceFragments::of_counts(counts.iter().map(|(s, c)| (SourceId(*s), *c))).expect("few");
            prop_assert!(SourceFragments::are_sound(&all));
            let again = all.iter().flat_map(|of| (of.first.0..=of.last.0).map(|source| (source, of.fragments)));
            prop_assert_eq!(again.collect::<std::collections::BTreeMap<_, _>>(), counts);
        }
    }
}
