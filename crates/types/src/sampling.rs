//! Which events a subscriber wants, and how far one has come.

use std::fmt;
use std::str::FromStr;

use crate::EventKey;

/// A part of all events, in millionths. Which events belong to it says their number alone: lanes, servers and clients choose the same ones, whoever
/// asks for the same part gets the same events, and a larger part has all of a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    /// Every event.
    pub const ALL: Fraction = Fraction(1_000_000);

    /// So many of a million events; `None` when that is more than all of them.
    pub const fn from_millionths(millionths: u32) -> Option<Fraction> {
        if millionths <= Fraction::ALL.0 { Some(Fraction(millionths)) } else { None }
    }

    /// How many of a million events.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Whether an event belongs to it.
    pub const fn has(self, key: EventKey) -> bool {
        place_of(key) < self.0
    }
}

/// Where an event lies among a million: as good as random, and always the same.
const fn place_of(key: EventKey) -> u32 {
    let mixed = key.event.0.wrapping_add((key.run.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mixed = mixed ^ (mixed >> 31);
    ((mixed as u128 * Fraction::ALL.0 as u128) >> 64) as u32
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(Fraction::ALL.0)).fmt(f)
    }
}

/// Text that is no part of all events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no part of all events: a number from 0.000001 to 1, such as 0.1 for every tenth")]
pub struct ParseFractionError {
    /// What was given.
    pub text: String,
}

impl FromStr for Fraction {
    type Err = ParseFractionError;

    fn from_str(text: &str) -> Result<Self, ParseFractionError> {
        let malformed = || ParseFractionError { text: text.to_owned() };
        let part: f64 = text.parse().map_err(|_| malformed())?;
        let millionths = (part * f64::from(Fraction::ALL.0)).round();
        let is_one = millionths >= 1.0 && millionths <= f64::from(Fraction::ALL.0);
        if is_one { Ok(Fraction(millionths as u32)) } else { Err(malformed()) }
    }
}

/// How far a subscriber has come in what a lane tells of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The start of the store that counts.
    pub start: u64,
    /// So many were looked at since.
    pub sequence: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other languages must compute the same; a change of a line here is a change of the protocol.
    #[test]
    fn places_are_the_stored_ones() {
        let places = [
            ((0, 0), 0),
            ((0, 1), 338_166),
            ((0, 128), 684_178),
            ((6525, 130_000), 466_795),
            ((u32::MAX, u64::MAX), 689_359),
        ];
        for ((run, event), place) in places {
            assert_eq!(place_of(EventKey::new(run, event)), place, "{run}/{event}");
        }
    }

    #[test]
    fn a_part_has_as_many_events_as_it_says_and_all_of_a_smaller_one() {
        let fraction = |text: &str| text.parse::<Fraction>().expect(text);
        for (run, step) in [(1, 1), (7, 37), (6525, 128)] {
            let keys = || (0..100_000).map(|event| EventKey::new(run, event * step));
            for (text, wanted) in [("1", 100_000), ("0.1", 10_000), ("0.01", 1000)] {
                let found = keys().filter(|key| fraction(text).has(*key)).count();
                assert!(found.abs_diff(wanted) <= wanted / 8, "{found} of {text} in run {run}");
            }
            assert!(keys().all(|key| !fraction("0.01").has(key) || fraction("0.1").has(key)));
        }
        assert!(!Fraction::from_millionths(0).expect("none").has(EventKey::new(0, 0)));
    }

    #[test]
    fn text_that_is_no_part_is_refused() {
        for text in ["", "0", "-0.1", "1.1", "NaN", "inf", "0.0000001", "10%", "a tenth"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        for text in ["1", "0.1", "0.000001", "0.25"] {
            assert_eq!(text.parse::<Fraction>().expect(text).to_string(), text);
        }
        assert_eq!(Fraction::from_millionths(1_000_001), None);
    }
}
