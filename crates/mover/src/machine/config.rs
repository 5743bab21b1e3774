//! What a mover is told at the start: its routes, and where they lead.

use std::time::Duration;

use super::events::StreamConfig;
use super::merge::Merge;
use crate::custody::Policy;
use crate::events::Terms;
use crate::planted::{Planted, planted};

/// The place of a route in [`MoverConfig::routes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteIndex(pub usize);

/// The place of a destination in [`MoverConfig::destinations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DestinationIndex(pub usize);

/// From one source to its destinations.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Its name, as the journal has it.
    pub name: String,
    /// Where to, and whether the source waits for it; of events that go where their stream is defined to go, all of these places.
    pub destinations: Vec<(DestinationIndex, bool)>,
    /// Those of them that fetch files themselves by the door of the source, where a file is moved as it is.
    pub pulls: Vec<DestinationIndex>,
    /// How patient it is.
    pub policy: Policy,
    /// A file that nobody touched for so long is complete.
    pub settle: Duration,
    /// Whether files are merged, and how; of events always.
    pub merge: Option<Merge>,
    /// Accepted events of a stream are moved, rather than files.
    pub events: Option<StreamConfig>,
    /// The level at which files are compressed, if they are.
    pub zstd: Option<i32>,
    /// Whether a `.json` lies beside each file.
    pub sidecar: bool,
    /// Whether each file is registered before its source lets it go.
    pub register: bool,
    /// The time between two looks at the source.
    pub scan_every: Duration,
    /// The higher, the earlier.
    pub priority: i32,
    /// Files that are read or sent at once.
    pub streams_max: usize,
}

impl RouteConfig {
    /// Stands for the settings that decide about the bytes of its files: what is merged, how and under which names, and how it is compressed.
    pub(super) fn settings(&self, terms: Option<&Terms>) -> u64 {
        let merge = self.merge.as_ref().map_or_else(String::new, Merge::settings);
        let made = terms.map_or_else(String::new, |Terms { making, blocks, .. }| format!("; {making:?}, {blocks:?}"));
        xxhash_rust::xxh3::xxh3_64(format!("zstd {:?}; merge {merge}{made}", self.zstd).as_bytes())
    }

    /// Where a file of events goes, if that is as its stream is defined.
    pub(super) fn defined(&self, terms: Option<&Terms>) -> Option<DestinationIndex> {
        let defined = self.events.as_ref()?.defined.as_ref()?;
        let newest = defined.values().flatten().next_back().filter(|_| planted(Planted::NewestDefinition));
        newest.or(defined.get(&terms?.destination)?.as_ref()).copied()
    }
}

/// A destination, of one route or of several.
#[derive(Clone, Debug)]
pub struct DestinationConfig {
    /// Its address, as the journal has it.
    pub address: String,
    /// Files that are sent there at once.
    pub streams_max: usize,
    /// Whether a file is proven there only when it is on tape, or whatever else is waited for.
    pub until_tape: bool,
}

/// What a mover is told at the start.
#[derive(Clone, Debug)]
pub struct MoverConfig {
    /// Its routes.
    pub routes: Vec<RouteConfig>,
    /// Their destinations.
    pub destinations: Vec<DestinationConfig>,
    /// Files that are read or sent at once, over all routes.
    pub streams_max: usize,
    /// End when what is there now was moved, or cannot be.
    pub once: bool,
    /// With `once`: what fails for so long without being refused is given up, and left for the next time.
    pub patience: Duration,
    /// The journal's own number, in every temporary name.
    pub token: u64,
}
