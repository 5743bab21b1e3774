//! What a stream is defined to be.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::sources::{ParseSourcesError, SourceSet};
use crate::StreamName;
use crate::limits::{DESTINATION_BYTES_MAX, FORMAT_BYTES_MAX};

/// The sources that a stream is shipped with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamSources {
    /// All that an event has.
    #[default]
    All,
    /// These, as for calibration.
    Part(SourceSet),
}

impl FromStr for StreamSources {
    type Err = ParseSourcesError;

    fn from_str(text: &str) -> Result<StreamSources, ParseSourcesError> {
        if text == "all" { Ok(StreamSources::All) } else { text.parse().map(StreamSources::Part) }
    }
}

impl TryFrom<String> for StreamSources {
    type Error = ParseSourcesError;

    fn try_from(text: String) -> Result<StreamSources, ParseSourcesError> {
        text.parse()
    }
}

impl From<StreamSources> for String {
    fn from(sources: StreamSources) -> String {
        sources.to_string()
    }
}

impl fmt::Display for StreamSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamSources::All => f.write_str("all"),
            StreamSources::Part(sources) => sources.fmt(f),
        }
    }
}

/// Where a luminosity block of a stream ends and the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockRule {
    /// A run is one block.
    #[default]
    Run,
    /// After so many event numbers.
    Events(u64),
    /// After so many seconds.
    Seconds(u64),
}

impl fmt::Display for BlockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockRule::Run => f.write_str("run"),
            BlockRule::Events(events) => write!(f, "{events} events"),
            BlockRule::Seconds(seconds) => write!(f, "{seconds} s"),
        }
    }
}

/// What a stream is. The store applies the prescale; all else is for whoever ships.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDefinition {
    /// The sources that it is shipped with.
    pub sources: StreamSources,
    /// One event in so many is kept, at least 1.
    pub prescale: u32,
    /// The format of its files; empty when nobody said. At most [`FORMAT_BYTES_MAX`] bytes.
    pub format: String,
    /// Streams with a higher one are shipped first.
    pub priority: u16,
    /// Where it goes; empty when nobody said. At most [`DESTINATION_BYTES_MAX`] bytes.
    pub destination: String,
    /// Its luminosity blocks.
    pub block: BlockRule,
}

impl Default for StreamDefinition {
    fn default() -> StreamDefinition {
        StreamDefinition {
            sources: StreamSources::All,
            prescale: 1,
            format: String::new(),
            priority: 0,
            destination: String::new(),
            block: BlockRule::Run,
        }
    }
}

/// A definition that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stream cannot be defined so: {0}")]
pub struct ParseStreamError(pub String);

impl StreamDefinition {
    /// Whether it means something.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ParseStreamError> {
        let wrong = |what: String| Err(ParseStreamError(what));
        if self.prescale == 0 {
            return wrong("a prescale of 0 keeps nothing; 1 keeps every event, 10 one in ten".to_owned());
        }
        if matches!(self.block, BlockRule::Events(0) | BlockRule::Seconds(0)) {
            return wrong("a luminosity block of 0 never ends where it begins; give 1 or more".to_owned());
        }
        if self.format.len() > FORMAT_BYTES_MAX || !self.format.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong(format!("a format is a word of at most {FORMAT_BYTES_MAX} ASCII letters, digits and signs"));
        }
        let bytes = self.destination.len();
        if bytes > DESTINATION_BYTES_MAX || self.destination.chars().any(char::is_control) {
            let what = "bytes without control characters";
            return wrong(format!("a destination has at most {DESTINATION_BYTES_MAX} {what}, this one has {bytes}"));
        }
        if matches!(&self.sources, StreamSources::Part(sources) if sources.is_empty()) {
            return wrong("it would have no sources; say `all`, or which".to_owned());
        }
        Ok(())
    }
}

/// A version of the definition of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamVersion {
    /// The stream.
    pub name: StreamName,
    /// 1 for the first, one more for each.
    pub version: u32,
    /// When it was defined, in nanoseconds since 1970.
    pub at_unix_ns: i64,
    /// By whom, as they said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What it is from then on.
    #[serde(flatten)]
    pub definition: StreamDefinition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_that_mean_nothing_are_refused() {
        let sound =
            StreamDefinition { prescale: 10, destination: "root://eos//eos/x".to_owned(), ..Default::default() };
        assert_eq!(sound.check(), Ok(()));
        for wrong in [
            StreamDefinition { prescale: 0, ..sound.clone() },
            StreamDefinition { block: BlockRule::Events(0), ..sound.clone() },
            StreamDefinition { block: BlockRule::Seconds(0), ..sound.clone() },
            StreamDefinition { format: "two words".to_owned(), ..sound.clone() },
            StreamDefinition { format: "x".repeat(65), ..sound.clone() },
            StreamDefinition { destination: "x".repeat(1025), ..sound.clone() },
            StreamDefinition { destination: "a\nb".to_owned(), ..sound.clone() },
            StreamDefinition { sources: StreamSources::Part(SourceSet::default()), ..sound },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
