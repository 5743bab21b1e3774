//! What a lane that fills asks of its clients, by how full it is alone (docs/space.md): how long writers wait after each put, and whose reads from the
//! drives are slowed. Nothing here refuses or frees anything.

use forebay_engine::LaneStatus;
use forebay_protocol::Class;
use serde::Serialize;

use crate::limits::{
    BUSY_MS, BUSY_PERCENT, FILLING_BELOW_PER_MILLE, FILLING_BELOW_SEGMENTS, READS_BYTES_MAX, READS_MAX,
    SLOWED_BELOW_PERCENT, SLOWED_PART, SLOWED_UNTIL_PERCENT,
};
use crate::schedule::class_place;

/// Whose reads from the drives are slowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Nobody's.
    #[default]
    None,
    /// Those of monitors, which free nothing.
    MonitorsSlowed,
    /// And those of movers, which free what they read when their file is proven.
    MoversSlowed,
    /// And those of filters, which free most of what they read, at once.
    FiltersSlowed,
}

impl Pressure {
    /// All steps, the first first.
    pub const ALL: [Pressure; 4] =
        [Pressure::None, Pressure::MonitorsSlowed, Pressure::MoversSlowed, Pressure::FiltersSlowed];

    /// The step that holds now, when this one held before. `left`: what is left, in percent of the filling mark.
    fn after(self, left: u64) -> Pressure {
        let holds = |step: &Pressure| {
            let (below, until) = (SLOWED_BELOW_PERCENT[*step as usize - 1], SLOWED_UNTIL_PERCENT[*step as usize - 1]);
            left < if *step <= self { until } else { below }
        };
        Pressure::ALL[1..].iter().copied().rev().find(holds).unwrap_or_default()
    }

    /// Of what a class may have under way unslowed, it may have one part of so many.
    fn part(self, class: Class) -> usize {
        let is_slowed = match class {
            Class::Readout => false,
            Class::Filter => self >= Pressure::FiltersSlowed,
            Class::Mover => self >= Pressure::MoversSlowed,
            Class::Monitor => self >= Pressure::MonitorsSlowed,
        };
        if is_slowed { SLOWED_PART[class_place(class)] } else { 1 }
    }

    /// Reads from drives that a class may have under way, and bytes of them; one more fragment may exceed these.
    pub(crate) fn reads_max(self, class: Class) -> (usize, usize) {
        (READS_MAX / self.part(class), READS_BYTES_MAX / self.part(class))
    }

    /// In the words of an operator; nothing when nobody is slowed.
    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            Pressure::None => None,
            Pressure::MonitorsSlowed => Some("reads of monitors are slowed"),
            Pressure::MoversSlowed => Some("reads of monitors and movers are slowed"),
            Pressure::FiltersSlowed => Some("reads of monitors, movers and filters are slowed"),
        }
    }
}

/// What a lane asks of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Whose reads are slowed.
    pub(crate) step: Pressure,
    /// How long writers wait after each put, in milliseconds.
    pub(crate) busy_ms: u32,
}

impl Asked {
    /// What is asked by a lane of this status, of which this was asked before.
    pub(crate) fn after(self, status: &LaneStatus) -> Asked {
        let Some(left) = left_percent(status) else { return Asked::default() };
        Asked { step: self.step.after(left), busy_ms: busy_ms(left) }
    }

    /// A put was just refused for want of room, whatever was known before: its writer waits the longest until the lane is looked at again.
    pub(crate) fn refused(self) -> Asked {
        Asked { busy_ms: BUSY_MS.1, ..self }
    }

    /// Nothing more is taken, or nothing but what goes into the last segment.
    pub(crate) fn is_full(self) -> bool {
        self.busy_ms == BUSY_MS.1
    }
}

/// Below so many free segments a lane is filling, when fragments may take so many altogether.
pub(crate) fn filling_below(segments: u64) -> u64 {
    // A lane of few segments has fewer than that share before the last one: the mark comes earlier.
    (segments * FILLING_BELOW_PER_MILLE).div_ceil(1000).max(FILLING_BELOW_SEGMENTS.min(segments / 4)).max(1)
}

/// What is left of the room or of the index, whichever is less, in percent of the filling mark. `None`: nothing can be written anyway.
fn left_percent(status: &LaneStatus) -> Option<u64> {
    let segments = status.segments_total.saturating_sub(status.segments_reserved);
    if status.state != "serving" || segments == 0 {
        return None;
    }
    let is_empty = status.segments_free >= segments;
    let room = if is_empty { u64::MAX } else { status.segments_free * 100 / filling_below(segments) };
    let index_free = status.index_bytes_max.saturating_sub(status.index_bytes);
    let index =
        index_free.saturating_mul(100).checked_div((status.index_bytes_max * FILLING_BELOW_PER_MILLE).div_ceil(1000));
    Some(room.min(index.unwrap_or(u64::MAX)))
}

/// How long writers are asked to wait with so much left, in milliseconds.
fn busy_ms(left: u64) -> u32 {
    let (from, to) = BUSY_MS;
    let beyond = BUSY_PERCENT.checked_sub(left).map(|percent| percent as u32);
    // By the square: a wait that began with its full weight would stop writers by turns where a little less speed is all that is needed.
    beyond.map_or(0, |percent| from + (to - from) * percent.pow(2) / (BUSY_PERCENT as u32).pow(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps that hold as the room goes this way.
    fn steps(free: &[u64], segments: u64) -> Vec<Pressure> {
        let mut asked = Asked::default();
        let step = |free: &u64| {
            asked = asked.after(&status(*free, segments, 0));
            asked.step
        };
        free.iter().map(step).collect()
    }

    fn status(segments_free: u64, segments: u64, index_bytes: u64) -> LaneStatus {
        LaneStatus {
            segments_total: segments + 2,
            segments_free,
            segments_reserved: 2,
            index_bytes,
            index_bytes_max: 1000,
            ..crate::rates::tests::status(0, 0, 0)
        }
    }

    use Pressure::{FiltersSlowed, MonitorsSlowed, MoversSlowed, None as Nobody};

    #[test]
    fn readers_are_slowed_in_their_order_and_let_go_in_the_reverse_one() {
        let (fills, empties) = ([25, 20, 19, 15, 14, 10, 5, 4, 0], [4, 9, 10, 19, 20, 24, 25]);
        assert_eq!(
            steps(&fills, 100),
            [
                Nobody,
                Nobody,
                MonitorsSlowed,
                MonitorsSlowed,
                MoversSlowed,
                MoversSlowed,
                MoversSlowed,
                FiltersSlowed,
                FiltersSlowed
            ]
        );
        let slow = [FiltersSlowed, FiltersSlowed, MoversSlowed, MoversSlowed, MonitorsSlowed, MonitorsSlowed, Nobody];
        assert_eq!(steps(&empties, 100), slow);
        assert_eq!(steps(&[0, 100], 100), [FiltersSlowed, Nobody], "all steps end at once when there is room");
    }

    #[test]
    fn what_goes_to_and_fro_by_a_segment_changes_no_step() {
        for segments in [8, 16, 40, 100, 5000] {
            for free in 0..segments {
                let held = steps(&[free, free + 1, free, free + 1, free], segments);
                assert!(held[1..].iter().all(|step| *step == held[1]), "{free} of {segments}: {held:?}");
            }
        }
    }

    #[test]
    fn writers_are_asked_to_wait_before_the_last_segment_and_ever_longer() {
        for segments in [1, 2, 3, 4, 7, 8, 15, 16, 39, 40, 100, 5000] {
            let asked: Vec<u32> =
                (0..=segments).map(|free| Asked::default().after(&status(free, segments, 0)).busy_ms).collect();
            assert_eq!(asked[0], BUSY_MS.1, "{segments}");
            assert!(asked.is_sorted_by(|less, more| less >= more), "{segments}: {asked:?}");
            assert!(asked[segments as usize] == 0, "nobody waits for an empty lane of {segments}");
            assert!(segments < 8 || asked[1] >= BUSY_MS.0, "{segments}: nobody waits with one segment left");
        }
    }

    #[test]
    fn the_fuller_of_room_and_index_counts() {
        let asked = |free, index| Asked::default().after(&status(free, 100, index));
        assert_eq!(asked(100, 800), Asked::default());
        assert_eq!(asked(100, 810), Asked { step: MonitorsSlowed, busy_ms: 0 });
        assert_eq!(asked(100, 960), Asked { step: FiltersSlowed, busy_ms: 8 });
        assert_eq!(asked(4, 0), Asked { step: FiltersSlowed, busy_ms: 8 });
        assert_eq!(asked(4, 960), Asked { step: FiltersSlowed, busy_ms: 8 });
        assert_eq!(asked(100, 1200), Asked { step: FiltersSlowed, busy_ms: 200 });
    }

    #[test]
    fn a_lane_that_cannot_be_written_asks_nothing() {
        let status = LaneStatus { state: "read-only", ..status(0, 100, 0) };
        assert_eq!(Asked { step: FiltersSlowed, busy_ms: 7 }.after(&status), Asked::default());
    }

    #[test]
    fn every_class_keeps_a_share_at_every_step() {
        for step in Pressure::ALL {
            for class in [Class::Readout, Class::Filter, Class::Mover, Class::Monitor] {
                let (reads, bytes) = step.reads_max(class);
                assert!(reads >= 64 && bytes >= 1 << 20, "{step:?} leaves {class:?} {reads} reads of {bytes} bytes");
            }
            let share = |class| step.reads_max(class).1;
            assert!(share(Class::Monitor) <= share(Class::Mover) && share(Class::Mover) <= share(Class::Filter));
        }
    }
}
