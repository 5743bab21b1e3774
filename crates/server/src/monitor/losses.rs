//! What is lost or out of reach, in words.

use std::collections::BTreeSet;

use super::list;
use super::observation::{Observation, SeenLosses};

/// A number of things, with the words for one of them and for several.
struct Told {
    count: u64,
    one: &'static str,
    many: &'static str,
}

impl Told {
    fn words(self) -> Option<String> {
        let Told { count, one, many } = self;
        (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { many }))
    }
}

/// What is wrong, and what is to be done about it; `None` when nothing is lost and all is within reach.
pub(super) fn data_lost(seen: &Observation) -> Option<String> {
    let mut told: Vec<String> = lost(seen).into_iter().filter_map(Told::words).collect();
    told.extend(out_of_reach(seen));
    (!told.is_empty()).then(|| format!("{}; `forebay lost` names what can be named; wipe no drive", told.join("; ")))
}

fn lost(seen: &Observation) -> [Told; 4] {
    let sum = |of: fn(&SeenLosses) -> u64| seen.sum(|lane| of(&lane.lost));
    [
        Told {
            count: sum(|lost| lost.flushes),
            one: "acknowledged flush is damaged on more drives than parity can mend: what it held is lost",
            many: "acknowledged flushes are damaged on more drives than parity can mend: what they held is lost",
        },
        Told {
            count: sum(|lost| lost.segments),
            one: "segment could not be read at the start, and none of its drives is missing: its fragments are lost",
            many: "segments could not be read at the start, and none of their drives is missing: their fragments are lost",
        },
        Told {
            count: sum(|lost| lost.fragments),
            one: "fragment is damaged beyond repair",
            many: "fragments are damaged beyond repair",
        },
        Told {
            count: sum(|lost| lost.flushes_possibly),
            one: "flush of the last moments before an unclean stop needs drives that are absent: perhaps acknowledged",
            many: "flushes of the last moments before an unclean stop need drives that are absent: perhaps acknowledged",
        },
    ]
}

/// What is acknowledged and sound as far as that is known, and cannot be read for want of drives.
fn out_of_reach(seen: &Observation) -> Option<String> {
    let sum = |of: fn(&SeenLosses) -> u64| seen.sum(|lane| of(&lane.lost));
    let segments = sum(|lost| lost.out_of_reach.segments);
    let flushes = sum(|lost| lost.flushes_unavailable);
    let unread = sum(|lost| lost.segments_unavailable);
    let bytes = sum(|lost| lost.out_of_reach.bytes);
    let size = match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    };
    let parts = [
        (segments, format!("{} with {size}", counted(segments, "segment"))),
        (unread, format!("{} that the start could not read", counted(unread, "segment"))),
        (flushes, format!("{} that the start could not read", counted(flushes, "flush"))),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words).collect();
    if parts.is_empty() {
        return None;
    }
    let drives: BTreeSet<u16> =
        seen.lanes.iter().flat_map(|lane| lane.lost.out_of_reach.drives.iter().copied()).collect();
    let back = match drives.len() {
        0 => "put back the drives that are missing, as they are, and start the server with them".to_owned(),
        1 => format!("put back {}, as it is, and start the server with it", list("drive", "drives", drives)),
        _ => format!("put back {}, as they are, and start the server with them", list("drive", "drives", drives)),
    };
    Some(format!("out of reach, and not lost: {}: {back}", parts.join(", ")))
}

fn counted(count: u64, what: &str) -> String {
    match (count, what) {
        (1, what) => format!("1 {what}"),
        (count, "flush") => format!("{count} flushes"),
        (count, what) => format!("{count} {what}s"),
    }
}
