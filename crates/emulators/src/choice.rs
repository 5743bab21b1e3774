//! What the emulated filter decides: a pure function of the seed and the event, so that any filter, at any
//! time, decides the same.

use forebay_types::limits::STREAMS_MAX;
use forebay_types::{EventKey, StreamName, Verdict};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A stream and how much of the events it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRule {
    /// The stream.
    pub name: StreamName,
    /// The fraction of the events that it takes, 0 to 1.
    pub fraction: f64,
}

/// A rule that cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// A fraction that is none.
    #[error("{what}: {fraction} is no fraction; give a number from 0 to 1")]
    Fraction {
        /// Of what.
        what: String,
        /// What was given.
        fraction: f64,
    },
    /// The same stream twice.
    #[error("stream {name} is there twice; give each stream one fraction")]
    Twice {
        /// The stream.
        name: StreamName,
    },
    /// Too many streams.
    #[error("{found} streams; a store has at most {STREAMS_MAX}")]
    TooMany {
        /// How many.
        found: usize,
    },
}

/// The choice: each stream takes its fraction of the events, independently of the others. What no stream
/// takes is rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    seed: u64,
    /// A stream takes an event when the event's number for it is below this; the number of all is 2^64.
    streams: Vec<(StreamName, u128)>,
    early: u128,
}

impl Choice {
    /// A choice with this seed. Of what is rejected, `early_fraction` is rejected after the first step.
    ///
    /// # Errors
    /// Fractions outside 0 to 1, a stream twice, too many streams.
    pub fn new(seed: u64, rules: &[StreamRule], early_fraction: f64) -> Result<Choice, ChoiceError> {
        if rules.len() > STREAMS_MAX {
            return Err(ChoiceError::TooMany { found: rules.len() });
        }
        let mut streams: Vec<(StreamName, u128)> = Vec::with_capacity(rules.len());
        for rule in rules {
            if streams.iter().any(|(name, _)| *name == rule.name) {
                return Err(ChoiceError::Twice { name: rule.name.clone() });
            }
            let limit = limit(rule.fraction).ok_or_else(|| ChoiceError::Fraction {
                what: format!("stream {}", rule.name),
                fraction: rule.fraction,
            })?;
            streams.push((rule.name.clone(), limit));
        }
        let early = limit(early_fraction)
            .ok_or_else(|| ChoiceError::Fraction { what: "early rejection".to_owned(), fraction: early_fraction })?;
        Ok(Choice { seed, streams, early })
    }

    /// What becomes of the event.
    pub fn verdict(&self, key: EventKey) -> Verdict {
        let takes = |name: &StreamName, limit| self.number(key, b's', name.as_str()) < limit;
        let names: Vec<StreamName> =
            self.streams.iter().filter(|(name, limit)| takes(name, *limit)).map(|(name, _)| name.clone()).collect();
        if names.is_empty() { Verdict::Reject } else { Verdict::Accept(names) }
    }

    /// Whether the event is rejected after the first step.
    pub fn rejects_early(&self, key: EventKey) -> bool {
        self.number(key, b'e', "") < self.early && self.verdict(key) == Verdict::Reject
    }

    /// A number below 2^64 that only the seed, the event and the purpose decide.
    fn number(&self, key: EventKey, purpose: u8, name: &str) -> u128 {
        let mut input = Vec::with_capacity(13 + name.len());
        input.extend_from_slice(&key.run.0.to_le_bytes());
        input.extend_from_slice(&key.event.0.to_le_bytes());
        input.push(purpose);
        input.extend_from_slice(name.as_bytes());
        xxh3_64_with_seed(&input, self.seed).into()
    }
}

fn limit(fraction: f64) -> Option<u128> {
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    (0.0..=1.0).contains(&fraction).then_some((fraction * ALL) as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, fraction: f64) -> StreamRule {
        StreamRule { name: name.parse().expect("a name"), fraction }
    }

    fn names(verdict: &Verdict) -> Vec<&str> {
        match verdict {
            Verdict::Reject => Vec::new(),
            Verdict::Accept(names) => names.iter().map(StreamName::as_str).collect(),
        }
    }

    #[test]
    fn fractions_are_met_and_streams_are_independent() {
        let choice = Choice::new(1, &[rule("a", 0.3), rule("b", 0.5)], 0.25).expect("good rules");
        let (mut a, mut b, mut both, mut early, mut rejected) = (0, 0, 0, 0, 0);
        const EVENTS: u64 = 40_000;
        for event in 0..EVENTS {
            let key = EventKey::new(7, event);
            let verdict = choice.verdict(key);
            let names = names(&verdict);
            a += u64::from(names.contains(&"a"));
            b += u64::from(names.contains(&"b"));
            both += u64::from(names.len() == 2);
            rejected += u64::from(names.is_empty());
            early += u64::from(choice.rejects_early(key));
        }
        // Four standard deviations of a binomial distribution are about 0.01 of the events.
        let near = |found: u64, of: u64, fraction: f64| (found as f64 / of as f64 - fraction).abs() < 0.012;
        assert!(near(a, EVENTS, 0.3) && near(b, EVENTS, 0.5), "{a}, {b}");
        assert!(near(both, EVENTS, 0.15), "{both}");
        assert!(near(rejected, EVENTS, 0.35) && near(early, rejected, 0.25), "{rejected}, {early}");
    }

    #[test]
    fn all_and_nothing_are_exact() {
        let choice = Choice::new(1, &[rule("all", 1.0), rule("none", 0.0)], 1.0).expect("good rules");
        let none = Choice::new(1, &[], 1.0).expect("good rules");
        for event in 0..1000 {
            let key = EventKey::new(event as u32, event);
            assert_eq!(names(&choice.verdict(key)), ["all"]);
            assert!(!choice.rejects_early(key) && none.rejects_early(key));
        }
    }

    /// Filters of different versions must agree: a change of these lines is a change of every choice.
    #[test]
    fn the_choice_is_the_stored_one() {
        let choice = Choice::new(42, &[rule("physics", 0.5)], 0.0).expect("good rules");
        let chosen: Vec<u64> =
            (0..16).filter(|event| choice.verdict(EventKey::new(1920, *event)) != Verdict::Reject).collect();
        let swapped = Choice::new(42, &[rule("x", 0.5), rule("physics", 0.5)], 0.0).expect("good rules");
        for event in 0..16 {
            let verdict = swapped.verdict(EventKey::new(1920, event));
            assert_eq!(names(&verdict).contains(&"physics"), chosen.contains(&event), "other streams do not matter");
        }
        assert_eq!(chosen, CHOSEN);
        let other = Choice::new(43, &[rule("physics", 0.5)], 0.0).expect("good rules");
        assert!((0..64).any(|e| other.verdict(EventKey::new(1920, e)) != choice.verdict(EventKey::new(1920, e))));
    }

    const CHOSEN: [u64; 11] = [0, 1, 4, 5, 6, 7, 10, 12, 13, 14, 15];

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(Choice::new(1, &[rule("a", fraction)], 0.0), Err(ChoiceError::Fraction { .. })));
            assert!(Choice::new(1, &[], fraction).is_err());
        }
        assert!(matches!(Choice::new(1, &[rule("a", 0.1), rule("a", 0.2)], 0.0), Err(ChoiceError::Twice { .. })));
        let many: Vec<StreamRule> = (0..65).map(|n| rule(&format!("s{n}"), 0.1)).collect();
        assert_eq!(Choice::new(1, &many, 0.0), Err(ChoiceError::TooMany { found: 65 }));
    }
}
