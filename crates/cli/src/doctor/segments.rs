//! How the segments of a lane lie on its drives.

use forebay_engine::{FlushCheck, FlushFate, Found, HeaderCheck, SegmentFound, ShardCheck, StoredSegment};
use forebay_types::DriveNumber;

use super::report::{DAMAGE_LISTED_MAX, Damage, LaneStart, Segment, Shard};

/// A segment as recovery found it, before its flushes are checked.
pub fn segment(found: &SegmentFound, stored: Option<&StoredSegment>, absent: &[DriveNumber]) -> Segment {
    let state = match found.found {
        Found::Empty => "unused",
        Found::Unreadable => "unreadable",
        Found::Table | Found::Walked => "whole",
    };
    let shards = found.shards.iter().map(|place| Shard {
        drive: place.drive.0,
        slot: place.slot,
        state: if absent.contains(&place.drive) { "missing" } else { state },
        damage: Vec::new(),
        damage_left_out: 0,
    });
    let torn = found.flushes.iter().filter(|flush| flush.fate == FlushFate::Torn);
    Segment {
        segment: found.id.to_string(),
        state: found.listed,
        found: found.found,
        data_shards: found.data_shards,
        parity_shards: found.parity_shards,
        flushes: stored.map_or(0, |stored| stored.flushes.len()),
        flushes_torn: torn.map(|flush| flush.flush).collect(),
        at_start: at_start(found, stored),
        live_records: stored.map_or(0, |stored| stored.live_records),
        live_bytes: stored.map_or(0, |stored| stored.live_bytes),
        shards: shards.collect(),
    }
}

impl Segment {
    /// Takes in what a check of one flush found. What is torn is no damage: it was being written when the store stopped.
    pub fn take(&mut self, check: &FlushCheck) {
        if check.flush.is_some_and(|flush| self.flushes_torn.contains(&flush)) {
            return;
        }
        for (shard, checked) in self.shards.iter_mut().zip(&check.shards) {
            for damage in damage_of(check.flush, checked) {
                shard.state = "damaged";
                if shard.damage.len() < DAMAGE_LISTED_MAX {
                    shard.damage.push(damage);
                } else {
                    shard.damage_left_out += 1;
                }
            }
        }
    }

    /// Puts what is listed in order: checks come as the drives answer.
    pub fn sort(&mut self) {
        for shard in &mut self.shards {
            // The closing flush lies behind all others.
            shard.damage.sort_by_key(|damage| (damage.flush.is_none(), damage.flush, damage.offset_bytes));
        }
    }

    /// Whether a shard is missing or damaged.
    pub fn is_harmed(&self) -> bool {
        let unused = self.found == Found::Empty;
        !unused && self.shards.iter().any(|shard| shard.state != "whole")
    }
}

fn damage_of(flush: Option<u32>, shard: &ShardCheck) -> impl Iterator<Item = Damage> + '_ {
    let header = match shard.header {
        HeaderCheck::Right | HeaderCheck::Absent => None,
        HeaderCheck::Unreadable => Some(true),
        HeaderCheck::Wrong | HeaderCheck::Differs => Some(false),
    };
    let header = header.map(|read_failed| Damage {
        flush,
        what: "header",
        row: 0,
        rows: 0,
        offset_bytes: shard.header_offset_bytes,
        bytes: shard.header_bytes,
        read_failed,
    });
    let units = shard.units.iter().map(move |units| Damage {
        flush,
        what: "units",
        row: units.rows.start,
        rows: units.rows.end - units.rows.start,
        offset_bytes: units.offset_bytes,
        bytes: units.bytes,
        read_failed: units.unreadable,
    });
    header.into_iter().chain(units)
}

/// Whether fragments of this flush must be read to know whether they can be: not all of its rows are whole on enough drives.
pub fn is_doubtful(check: &FlushCheck, data_shards: u8) -> bool {
    let headers = check.shards.iter().filter(|shard| shard.header == HeaderCheck::Right).count();
    !check.is_readable() || headers < usize::from(data_shards)
}

/// What a start does with a segment.
fn at_start(found: &SegmentFound, stored: Option<&StoredSegment>) -> &'static str {
    let stays = found.flushes.iter().any(|flush| flush.fate == FlushFate::Stays);
    match found.found {
        Found::Empty => "unused",
        Found::Unreadable => "stays",
        Found::Table | Found::Walked if stored.is_none_or(|stored| stored.live_records == 0) => "freed",
        Found::Table => "stays",
        // What is torn lives elsewhere by then.
        Found::Walked if stays => "closed",
        Found::Walked => "freed",
    }
}

/// What a start does in a lane with these segments, when the drives `out` are no members.
pub fn start(segments: &[Segment], found: &[SegmentFound], out: &[DriveNumber]) -> LaneStart {
    let count = |word| segments.iter().filter(|segment| segment.at_start == word).count() as u64;
    let live = segments.iter().filter(|segment| segment.live_records > 0);
    let on_no_member = live.flat_map(|segment| &segment.shards).filter(|shard| out.contains(&DriveNumber(shard.drive)));
    let mut start = LaneStart {
        segments_closed: count("closed"),
        segments_freed: count("freed"),
        shards_made_anew: on_no_member.count() as u64,
        ..LaneStart::default()
    };
    for flush in found.iter().flat_map(|segment| &segment.flushes) {
        match flush.fate {
            FlushFate::Torn => {
                start.flushes_written_again += 1;
                start.records_written_again += u64::from(flush.records);
            }
            FlushFate::Discarded => start.flushes_discarded += 1,
            FlushFate::Stays | FlushFate::Unavailable | FlushFate::Lost => {}
        }
    }
    start
}
