//! How full the lane may become, so that it can always be emptied and always start.
//!
//! What must work in a full lane, whatever crashes and drives that fail (up to m of them) it went through:
//!
//! - **Decisions.** A rejection, deletion or release needs no segment: when none may be opened, a checkpoint alone makes it durable (see
//!   [`super::carry`]); so does an acceptance. Checkpoints have places of their own, and room in them is kept (`Lane::ranges_max`). So
//!   each segment comes free when its fragments are over, for no decision keeps a segment alive that space is wanted of.
//! - **Recovery.** It writes again what was on its way at the crash, at most [`Space::undurable_bytes_max`] of a drive's slots, and what
//!   drives that were lost with the crash had alone been known to hold. That fits the segments that nobody else may take. It writes to segments that
//!   no checkpoint lists until all is durable: a further crash leaves them unlisted, their slots are free, and the next start
//!   finds what this one found. So crashes during recovery take nothing, however many there are.
//! - **A drive that fails.** What was on its way is written again, to one segment more for each of the m drives that may fail.
//! - **Making room.** Copies may take the last segment above the reserve, and of the others only decisions may, when nothing is worth being copied; while copies write to it no
//!   fragment goes into it unless fragments might have opened one themselves. What is begun to be emptied is emptied ([`super::compact`]), so that it comes free, and is not less than
//!   what its copies take.
//! - **Removing files.** What lives of files keeps its segments, and it ends by the journal of names, which is a file itself. So the journal may take the
//!   segment that decisions may take, and there, too, no fragment goes into what fragments might not have opened.
//!
//! Recovery, or the loss of a drive, may leave fewer free segments than that. Then nothing is written but decisions, by checkpoints, and copies, alone, to one
//! segment of the reserve, until there are enough again: nothing is on its way that a crash could tear and that lies nowhere else, and recovery writes again only what does
//! (`Lane::drop_needless_replays`). So every writer other than recovery and copies starts with the whole reserve free, and the argument holds after each crash as it did before the first.
//!
//! With more drives than a segment has shards, fragments also leave free what making the shards of one lost drive anew takes on the others, and
//! what shards that are missing already take.
//!
//! A process that is killed after each start leaves one segment with little in it each time. Fragments may take segments only as long as the
//! reserve is free, so that ends in a full lane as described, and deleting its events empties it.

use super::Lane;
use super::write::Purpose;
use crate::slots::Width;

/// A lane of fewer segments than this keeps none back for decisions in the log, and none for copies: it holds no files.
const SEGMENTS_FEW: usize = 6;

/// Of so many segments one more is kept for making room, up to so many.
const SEGMENTS_PER_KEPT: usize = 16;
const KEPT_MORE_MAX: usize = 3;

/// The limits that follow from the number and the size of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// Bytes of all flushes on their way on each drive, unless a single one is larger.
    pub(super) undurable_bytes_max: usize,
    /// Free segments that only what is written again may take.
    reserve: usize,
    /// Free segments, when the drives fail that may fail.
    left: usize,
    /// Free segments, when what lies on a drive that fails is to be made anew on the others.
    left_for_fragments: usize,
    total: usize,
}

impl Space {
    /// Whether a segment may be opened.
    pub(super) fn admits(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Fragment => self.free_for_fragments() > 0,
            Purpose::Decision => self.left > self.reserve + usize::from(self.total >= SEGMENTS_FEW),
            Purpose::Copy { turn } => self.free_for_copies() > turn,
            Purpose::Again => true,
        }
    }

    /// Free segments that fragments may not take.
    pub(super) fn kept_from_fragments(&self) -> usize {
        self.reserve + self.kept_for_copies() + usize::from(self.total >= SEGMENTS_FEW)
    }

    /// Free segments for making room: a full lane gets it by copies, and these need a segment to begin with, which decisions leave them. Each crash while they are
    /// written may leave one more with little in it, until copies have put these together; so there are some more where that is a small part of the lane.
    fn kept_for_copies(&self) -> usize {
        if self.total >= SEGMENTS_FEW { 1 + (self.total / SEGMENTS_PER_KEPT).min(KEPT_MORE_MAX) } else { 0 }
    }

    /// Free segments that copies may take.
    pub(super) fn free_for_copies(&self) -> usize {
        self.left.saturating_sub(self.reserve)
    }

    /// Free segments that fragments may take.
    pub(super) fn free_for_fragments(&self) -> usize {
        self.left.min(self.left_for_fragments).saturating_sub(self.kept_from_fragments())
    }

    /// Whether files may be written: what lives of them keeps all segments of a full lane, and they are removed by a journal in the log.
    pub(super) fn holds_files(&self) -> bool {
        self.total >= SEGMENTS_FEW
    }

    /// How much of the lane fragments may still take, in percent of all of it.
    pub(super) fn percent_free(&self) -> u64 {
        self.free_for_fragments() as u64 * 100 / self.total.max(1) as u64
    }

    /// Whether what recovery may need is free.
    pub(super) fn has_reserve(&self) -> bool {
        self.left >= self.reserve
    }

    /// Whether what was taken since leaves as much for new segments as there was.
    pub(super) fn leaves_as_much_as(&self, before: &Space) -> bool {
        self.left >= before.left
    }

    /// Whether copies may take one of the reserve, when nothing else is on its way: what a crash could tear then lies elsewhere as well.
    pub(super) fn lends_one(&self) -> bool {
        self.total >= SEGMENTS_FEW && self.left > 0
    }

    /// Whether segments that hold little shall be given up.
    pub(super) fn is_scarce(&self) -> bool {
        self.left <= self.reserve + 2
    }
}

impl Lane {
    pub(super) fn space(&self, width: Width) -> Space {
        let geometry = &self.config.geometry;
        let parity = usize::from(width.parity);
        // What is written again after drives were lost is narrower, and takes as much more of each drive.
        let narrow = width.data.saturating_sub(width.parity).max(geometry.data_shards_min).min(width.data);
        // The rest is for headers, for the closing flush, and for what a large record leaves empty.
        let slot_bytes = usize::try_from(geometry.slot_bytes).unwrap_or(usize::MAX) / 8 * 5;
        let usable_bytes = (slot_bytes / usize::from(width.data) * usize::from(narrow)).max(1);
        let total = usize::try_from(self.slots.total()).unwrap_or(usize::MAX) / width.shards();
        let wanted_bytes = self.config.flush_depth.saturating_mul(self.pool.buffer_bytes());
        let segments = wanted_bytes.div_ceil(usable_bytes).clamp(1, (total / 8).max(1));
        Space {
            undurable_bytes_max: segments * usable_bytes,
            reserve: (segments + parity).min(total.saturating_sub(1)),
            left: self.slots.left_after_losses(width, geometry.data_shards_min),
            left_for_fragments: self.slots.left_after_rebuild(width, self.shards_to_make()),
            total,
        }
    }

    /// After something was written again: as long as what recovery may need is not free, nothing else is written.
    pub(super) fn keep_reserve(&mut self) {
        if self.width().is_none_or(|width| !self.space(width).has_reserve()) {
            self.retire_segment();
        }
    }
}
