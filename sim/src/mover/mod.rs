//! The mover's machines in a world of their own: sources whose files and events change, destinations that lie, and kills between any two steps.
//!
//! What must hold, whatever happens:
//! - a file is released only while every required destination has told, twice and far enough apart, that it holds its bytes, and had them all that time;
//! - the same of its sidecar, where there is one, which says what the file is then; and what is wanted on tape is there;
//! - it was registered before, where that is wanted: when all of that was so, under one key, with one content;
//! - no file that somebody else put anywhere is touched;
//! - a file of events is of one luminosity block, is made as the definition says that its run was started with, and goes where that says; none is sent unasked that brings a run to
//!   more events than it has;
//! - no file or event is in two consignments at once, and none is released twice;
//! - when nothing goes wrong any more, and a person did what he was told to, every file is released, and nothing lies about.

mod journal;
mod places;
mod registry;
mod runs;
mod stream;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mistakes::Mistake;
use world::World;

/// What goes wrong around a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoverFault {
    /// The mover is killed, and what it had begun is done or not.
    Kill,
    /// The same, before what it decided is durable.
    KillBeforeCommit,
    /// A destination answers nothing but that it cannot now.
    Away,
    /// A destination refuses.
    Refusal,
    /// Nobody knows whether a step was done.
    NoAnswer,
    /// A step of which nobody knew is done much later.
    DoneLate,
    /// A destination cannot fetch a file itself.
    FetchFailed,
    /// A destination says that it has a file, and cut it.
    Truncated,
    /// The same, with a bit that flipped.
    Flipped,
    /// The file is gone, at once or later.
    Dropped,
    /// The file is another, later.
    Rotten,
    /// A destination tells a wrong checksum of a file that is right.
    WrongChecksum,
    /// Somebody else's file has the name.
    Foreign,
    /// The same, with the right bytes.
    ForeignTwin,
    /// The source's file is written while it is on its way.
    SourceWritten,
    /// The source's file cannot be read now.
    SourceUnreadable,
    /// The source's file is damaged.
    SourceDamaged,
    /// The source lets some of the files or events go that a file was made of, and the others not yet.
    HalfReleased,
    /// An accepted event loses some of what it is made of.
    EventLost,
    /// An accepted event is deleted.
    EventDeleted,
    /// An accepted event cannot be read for now.
    EventUnavailable,
    /// A run control counted fewer events than a run has.
    RunMiscounted,
    /// A stream is defined anew.
    DefinedAnew,
    /// Somebody else's file has the name of a sidecar.
    SidecarForeign,
    /// A sidecar is cut, gone, or another one.
    SidecarSpoiled,
    /// Where files are registered nobody answers.
    RegistryAway,
    /// A registration is refused.
    RegistryRefusal,
    /// Nobody knows whether a file was registered.
    RegistryNoAnswer,
    /// A registration of which nobody knew is done much later.
    RegisteredLate,
    /// Tape takes its time.
    TapeLate,
    /// Nothing comes to tape for as long as things go wrong.
    TapeStuck,
}

impl MoverFault {
    /// All of them.
    pub const ALL: [MoverFault; 31] = [
        MoverFault::Kill,
        MoverFault::KillBeforeCommit,
        MoverFault::Away,
        MoverFault::Refusal,
        MoverFault::NoAnswer,
        MoverFault::DoneLate,
        MoverFault::FetchFailed,
        MoverFault::Truncated,
        MoverFault::Flipped,
        MoverFault::Dropped,
        MoverFault::Rotten,
        MoverFault::WrongChecksum,
        MoverFault::Foreign,
        MoverFault::ForeignTwin,
        MoverFault::SourceWritten,
        MoverFault::SourceUnreadable,
        MoverFault::SourceDamaged,
        MoverFault::HalfReleased,
        MoverFault::EventLost,
        MoverFault::EventDeleted,
        MoverFault::EventUnavailable,
        MoverFault::RunMiscounted,
        MoverFault::DefinedAnew,
        MoverFault::SidecarForeign,
        MoverFault::SidecarSpoiled,
        MoverFault::RegistryAway,
        MoverFault::RegistryRefusal,
        MoverFault::RegistryNoAnswer,
        MoverFault::RegisteredLate,
        MoverFault::TapeLate,
        MoverFault::TapeStuck,
    ];
}

impl fmt::Display for MoverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What runs of the mover came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoverTotals {
    /// Steps that were done at sources and destinations.
    pub steps: u64,
    /// Files that were released.
    pub released: u64,
    /// Starts of a mover.
    pub starts: u64,
    /// How often each fault fired, and how often the mover met what came of it.
    pub faults: BTreeMap<MoverFault, (u64, u64)>,
    /// A sum over everything that happened, in order.
    pub trace: u64,
}

impl MoverTotals {
    /// Adds another run.
    pub fn add(&mut self, other: &MoverTotals) {
        self.steps += other.steps;
        self.released += other.released;
        self.starts += other.starts;
        self.trace = self.trace.rotate_left(7) ^ other.trace;
        for (fault, (fired, met)) in &other.faults {
            let of = self.faults.entry(*fault).or_default();
            of.0 += fired;
            of.1 += met;
        }
    }

    pub(crate) fn fire(&mut self, fault: MoverFault) {
        self.faults.entry(fault).or_default().0 += 1;
    }

    pub(crate) fn meet(&mut self, fault: MoverFault) {
        self.faults.entry(fault).or_default().1 += 1;
    }
}

/// Plays a seed of the mover; `told`: every event goes to stdout.
///
/// # Errors
/// Which promise was broken.
pub fn try_play_mover(seed: u64, told: bool, mistake: Option<Mistake>) -> Result<MoverTotals, String> {
    Mistake::plant(mistake);
    let played = catch_unwind(AssertUnwindSafe(|| World::new(seed, told).run()));
    Mistake::plant(None);
    played.map_err(|what| {
        let words =
            what.downcast_ref::<String>().cloned().or_else(|| what.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        words.unwrap_or_else(|| "a panic without words".to_owned())
    })
}
