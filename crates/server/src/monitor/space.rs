//! How full the store and its index are.

use forebay_types::Time;

use super::limits::{
    FREE_PERCENT_PLENTY, INDEX_PERCENT_FULL, INDEX_PERCENT_GOOD, INDEX_PERCENT_HIGH, REFUSAL_TOLD, ROOM_GOOD_HALVES,
    TIME_LEFT_GOOD_S, TIME_LEFT_LOW_S,
};
use super::observation::{Observation, SeenLane};
use super::{Wanted, human, list};
use crate::alarm::Alarm;
use crate::pressure::{Pressure, filling_below};

const ADVICE: &str = "see that filters decide and recorders ship, or delete events";

/// A count of refusals, and when it last grew.
#[derive(Default)]
struct Refusals {
    count: u64,
    grew: Option<Time>,
}

impl Refusals {
    /// Whether there was one within the last moments.
    fn are_recent(&mut self, now: Time, count: u64) -> bool {
        if count > self.count {
            self.grew = Some(now);
        }
        self.count = count;
        self.grew.is_some_and(|grew| now.since(grew) < REFUSAL_TOLD)
    }
}

/// Rules about room.
#[derive(Default)]
pub(super) struct Space {
    no_space: Refusals,
    index_full: Refusals,
    is_filling: bool,
    is_index_near_full: bool,
}

impl Space {
    pub(super) fn judge(&mut self, now: Time, seen: &Observation, wanted: &mut Wanted) {
        let full = self.full(now, seen);
        let filling = filling(seen, self.is_filling);
        self.is_filling = filling.is_some();
        let index_full = self.index_full(now, seen);
        let index_near_full = index_near_full(seen, self.is_index_near_full);
        self.is_index_near_full = index_near_full.is_some();
        // What is full is not filling as well.
        let filling = filling.filter(|_| full.is_none());
        let index_near_full = index_near_full.filter(|_| index_full.is_none());
        let alarms = [
            (Alarm::Full, full),
            (Alarm::Filling, filling),
            (Alarm::IndexFull, index_full),
            (Alarm::IndexNearFull, index_near_full),
        ];
        wanted.extend(alarms.into_iter().filter_map(|(alarm, words)| Some((alarm, words?))));
    }

    fn full(&mut self, now: Time, seen: &Observation) -> Option<String> {
        let refused = seen.sum(|lane| lane.puts_no_space);
        let recent = self.no_space.are_recent(now, refused);
        let full: Vec<&SeenLane> = written(seen).filter(|lane| lane.segments_free == 0).collect();
        let refuses = full.iter().any(|lane| lane.puts_no_space > 0);
        (refuses || recent).then(|| {
            let lanes = match full.len() {
                0 => "a lane was full just now".to_owned(),
                1 => format!("lane {} is full", full[0].lane),
                _ => format!("{} are full", list("lane", "lanes", full.iter().map(|lane| lane.lane))),
            };
            let pressed = pressed(seen);
            format!(
                "{lanes}: new fragments are refused until there is room ({refused} since the start){pressed}; nothing is lost; {ADVICE}"
            )
        })
    }

    fn index_full(&mut self, now: Time, seen: &Observation) -> Option<String> {
        let refused = seen.sum(|lane| lane.puts_index_full);
        let recent = self.index_full.are_recent(now, refused);
        let percent = index_percent(seen)?;
        (recent || refused > 0 && percent >= INDEX_PERCENT_FULL).then(|| {
            format!(
                "the index takes {percent} % of its memory: {refused} puts were refused since the start{}; nothing is lost; {ADVICE}, or raise \
                 index-bytes and start again",
                pressed(seen)
            )
        })
    }
}

/// Lanes that take fragments.
fn written(seen: &Observation) -> impl Iterator<Item = &SeenLane> {
    seen.lanes.iter().filter(|lane| lane.capacity_bytes > 0 && lane.state != "read-only")
}

fn filling(seen: &Observation, raised: bool) -> Option<String> {
    let (free, capacity) =
        written(seen).fold((0, 0), |(free, capacity), lane| (free + lane.free_bytes, capacity + lane.capacity_bytes));
    let percent = (free * 100).checked_div(capacity)?;
    let time_left_s = written(seen).filter_map(|lane| lane.time_left_s).min_by(f64::total_cmp);
    let time = time_left_s.map(|seconds| {
        format!(
            ", full in {} at the rates of the last minute",
            human(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e12)))
        )
    });
    let (time, pressed) = (time.unwrap_or_default(), pressed(seen));
    let last: Vec<u16> = written(seen).filter(|lane| lane.segments_free == 0).map(|lane| lane.lane).collect();
    if !last.is_empty() {
        let lanes = list("lane", "lanes", &last);
        return Some(format!(
            "{percent} % are free{time}; {lanes} on the last segment: soon new fragments are refused{pressed}; {ADVICE}"
        ));
    }
    let halves = if raised { ROOM_GOOD_HALVES } else { 2 };
    if written(seen).any(|lane| 2 * lane.segments_free < halves * filling_below(lane.segments)) {
        return Some(format!("{percent} % are free{time}{pressed}; {ADVICE}"));
    }
    let bound_s = if raised { TIME_LEFT_GOOD_S } else { TIME_LEFT_LOW_S };
    let soon = time_left_s.is_some_and(|seconds| seconds < bound_s) && percent < FREE_PERCENT_PLENTY;
    soon.then(|| format!("{percent} % are free{time}{pressed}; {ADVICE}"))
}

/// Who is slowed, and by how much, in the fullest lane.
fn pressed(seen: &Observation) -> String {
    let wait_ms = written(seen).map(|lane| lane.put_wait_ms).max().filter(|ms| *ms > 0);
    let writers = wait_ms.map(|ms| format!("writers are asked to wait {ms} ms after each put"));
    let readers = written(seen).map(|lane| lane.pressure).max().and_then(Pressure::words).map(str::to_owned);
    let words: Vec<String> = writers.into_iter().chain(readers).collect();
    if words.is_empty() { String::new() } else { format!("; {}", words.join(", ")) }
}

/// Of the lane whose index is the fullest.
fn index_percent(seen: &Observation) -> Option<u64> {
    seen.lanes.iter().filter_map(|lane| lane.index_bytes.saturating_mul(100).checked_div(lane.index_bytes_max)).max()
}

fn index_near_full(seen: &Observation, raised: bool) -> Option<String> {
    let bound = if raised { INDEX_PERCENT_GOOD } else { INDEX_PERCENT_HIGH };
    let percent = index_percent(seen).filter(|percent| *percent >= bound)?;
    Some(format!(
        "the index takes {percent} % of its memory: soon new fragments are refused{}; {ADVICE}, or raise index-bytes and start again",
        pressed(seen)
    ))
}
