//! What is known to be lost, for whoever asks: bounded, and told exactly as far as it is known.

mod remembered;

pub(crate) use remembered::Losses;

use forebay_format::SegmentId;
use forebay_types::{DriveNumber, EventKey, FileNumber, FragmentId, WallTime};
use serde::{Serialize, Serializer};

/// What a loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// It is damaged on more drives than parity makes up for.
    Lost,
    /// As `Lost`, and what would name it is damaged too: fragments and decisions of the runs and events told with it, as far as they do not lie
    /// elsewhere too.
    LostOrUnknown,
    /// It was written in the last moments before an unclean stop, and drives that are missing could tell whether it was acknowledged.
    PossiblyAcknowledged,
    /// Nothing is wrong with it, but too few of its drives answer.
    Unavailable,
}

/// How it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundBy {
    /// By recovery, when the lane started.
    Start,
    /// By a read of a client.
    Read,
    /// By a scrub.
    Scrub,
    /// When a shard was made anew from the others.
    Rebuild,
    /// By whoever asks: it is so now.
    Look,
}

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum LostPart {
    /// A whole segment.
    Segment,
    /// A flush of it.
    Flush {
        /// Its number.
        flush: u32,
        /// Its records: fragments, decisions, releases.
        records: u32,
        /// Smallest and largest run of these.
        runs: (u32, u32),
        /// Smallest and largest event of these, of any run.
        events: (u64, u64),
    },
    /// Flushes of which no drive that answers has a header.
    Flushes {
        /// How many.
        flushes: u64,
    },
    /// A fragment.
    Fragment {
        /// The flush that holds it.
        flush: u32,
        /// Its name.
        #[serde(flatten)]
        id: FragmentId,
        /// Its size.
        bytes: u32,
    },
    /// A whole event in one record, of which what is lost is the directory: which fragments it had is not known any more.
    Event {
        /// The flush that holds it.
        flush: u32,
        /// Its name.
        #[serde(flatten)]
        key: EventKey,
        /// How many it had.
        fragments: u32,
    },
    /// Bytes of a file.
    Piece {
        /// The flush that holds them.
        flush: u32,
        /// The file.
        file: FileNumber,
        /// Where in it they begin.
        start: u64,
        /// How many.
        bytes: u32,
    },
    /// All that lives in a segment.
    Live {
        /// Fragments and decisions.
        records: u64,
        /// Bytes of the fragments.
        bytes: u64,
    },
}

/// Something that is lost or out of reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// What that means.
    pub kind: LossKind,
    /// What it is.
    #[serde(flatten)]
    pub part: LostPart,
    /// The segment that held it.
    #[serde(serialize_with = "as_text")]
    pub segment: SegmentId,
    /// Drives that are there and do not give what was written.
    pub drives_damaged: Vec<u16>,
    /// Drives that are not there.
    pub drives_missing: Vec<u16>,
    /// How it was found.
    pub found_by: FoundBy,
    /// When; absent when the clock was not known.
    pub found_unix_ms: Option<u64>,
}

fn as_text<S: Serializer>(segment: &SegmentId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(segment)
}

/// A part of what a lane knows to be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossPage {
    /// From the place on that was asked for.
    pub losses: Vec<Loss>,
    /// Where the next page begins; absent behind the last.
    pub next: Option<u32>,
    /// Losses that were found when there was no more memory for them; one that is found again counts again.
    pub not_remembered: u64,
    /// Flushes that are damaged on more drives than parity makes up for, and of which it is being found out now what is lost.
    pub being_named: u64,
}

impl Loss {
    pub(crate) fn new(kind: LossKind, segment: SegmentId, part: LostPart, found_by: FoundBy, at: WallTime) -> Loss {
        let (drives_damaged, drives_missing) = (Vec::new(), Vec::new());
        Loss { kind, part, segment, drives_damaged, drives_missing, found_by, found_unix_ms: at.unix_ms() }
    }

    pub(crate) fn on(mut self, damaged: &[DriveNumber], missing: &[DriveNumber]) -> Loss {
        let numbers = |drives: &[DriveNumber]| drives.iter().map(|drive| drive.0).collect();
        (self.drives_damaged, self.drives_missing) = (numbers(damaged), numbers(missing));
        self
    }

    /// The event that it is, or whose fragment.
    pub(crate) fn event(&self) -> Option<EventKey> {
        match self.part {
            LostPart::Fragment { id, .. } => Some(id.key()),
            LostPart::Event { key, .. } => Some(key),
            _ => None,
        }
    }
}
