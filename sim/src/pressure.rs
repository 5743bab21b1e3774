//! What must be so of what a lane asks of its clients as it fills, however the server decides it (docs/space.md).

use forebay_engine::{Lane, LaneStatus};
use forebay_server::{Pressure, Service};
use forebay_types::Time;

/// What a writer may send to a lane that refuses it, at the most.
const CREDIT_BYTES_FULL_MAX: u32 = 16 << 10;

/// Looks at a lane whenever its server did.
#[derive(Debug, Default)]
pub(crate) struct PressureCheck {
    step: Pressure,
    /// At the last look: puts that had been refused for want of room, whether writers were asked to wait, whether they had no need to.
    refused: u64,
    asks_to_wait: bool,
    had_room: bool,
}

impl PressureCheck {
    /// The server took the lane's replies; gives the step that holds, when it is another one than before.
    pub(crate) fn replies_taken(&mut self, clock: Time, lane: &Lane, service: &Service) -> Option<Pressure> {
        if service.looked_at() != Some(clock) {
            return None;
        }
        let (status, step, busy_ms) = (lane.status(), service.pressure(), service.busy_ms());
        let segments = status.segments_total.saturating_sub(status.segments_reserved);
        let tell = || format!("{step:?}, {busy_ms} ms with {} of {segments} segments free", status.segments_free);
        let is_written = status.state == "serving" && segments > 0;
        let is_short = is_written && (has_less_than(5, &status, segments) || status.segments_free == 0);
        let is_empty = status.segments_free >= segments && !has_less_than(50, &status, segments);
        assert!(is_written || (step, busy_ms) == (Pressure::None, 0), "nobody can write, and who waits: {}", tell());
        assert!(!is_short || busy_ms > 0, "less than a twentieth is left, and nobody is asked to wait: {}", tell());
        assert!(!is_empty || step == Pressure::None, "the pressure is over, and who is slowed still is: {}", tell());
        let credit_bytes = service.credit_bytes();
        assert!(
            !is_written || status.segments_free > 0 || credit_bytes <= CREDIT_BYTES_FULL_MAX,
            "nothing is left, and each writer may have {credit_bytes} bytes refused at once: {}",
            tell()
        );
        assert!(
            !is_empty || credit_bytes > CREDIT_BYTES_FULL_MAX,
            "there is room, and writers are let send no more than {credit_bytes} bytes: {}",
            tell()
        );
        // From a twentieth to nothing between two looks is all that may come as a surprise; and then the refusal itself asks to wait.
        let refused = status.counters.puts_no_space + status.counters.puts_index_full;
        let told = self.asks_to_wait || self.had_room;
        assert!(refused == self.refused || told, "puts were refused, and nobody was asked to wait before: {}", tell());
        (self.refused, self.asks_to_wait, self.had_room) = (refused, busy_ms > 0, is_written && !is_short);
        let before = std::mem::replace(&mut self.step, step);
        (step != before).then_some(step)
    }

    /// The server did what it could do for now.
    pub(crate) fn turn_ended(service: &Service) {
        assert!(
            !service.has_stuck_readers(),
            "readers wait for reads of which none is under way: {:?}",
            service.pressure()
        );
    }
}

/// Whether so many percent of the room or of the index are more than what is left.
fn has_less_than(percent: u64, status: &LaneStatus, segments: u64) -> bool {
    let index_free = status.index_bytes_max.saturating_sub(status.index_bytes);
    status.segments_free * 100 < segments * percent || index_free * 100 < status.index_bytes_max * percent
}
