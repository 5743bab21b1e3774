//! Making what fails shorter: whatever can be left out is left out, one thing after the other, for as long as it still fails.

use crate::faults::Fault;
use crate::play::Play;

/// The rounds through everything that can be left out: what could not be left out at first sometimes can when something else is.
const ROUNDS_MAX: usize = 3;

/// The shortest that was found to fail, beginning with `play`, which does; `fails` tells of each try how it fails, if it does.
pub fn shrink(play: &Play, mut fails: impl FnMut(&Play) -> Option<String>) -> Play {
    let mut best = play.clone();
    for _ in 0..ROUNDS_MAX {
        let before = best.clone();
        for fault in Fault::ALL {
            if !best.without.contains(fault) {
                let mut shorter = best.clone();
                shorter.without.push(*fault);
                take(&mut best, shorter, &mut fails);
            }
        }
        let fewer_writers = Play { writers: Some(1), ..best.clone() };
        take(&mut best, fewer_writers, &mut fails);
        let fewer_filters = Play { filters: Some(1), ..best.clone() };
        take(&mut best, fewer_filters, &mut fails);
        lower(&mut best, 1200, |play, events| play.events = Some(events), &mut fails);
        lower(&mut best, 90_000, |play, millis| play.trouble_ms = Some(millis), &mut fails);
        if best == before {
            break;
        }
    }
    best
}

/// Takes what is shorter if it fails, too.
fn take(best: &mut Play, shorter: Play, mut fails: impl FnMut(&Play) -> Option<String>) -> bool {
    let failed = shorter != *best && fails(&shorter).is_some();
    if failed {
        *best = shorter;
    }
    failed
}

/// Finds a small number with which it fails, beginning below `most`.
fn lower(best: &mut Play, most: u64, set: impl Fn(&mut Play, u64), fails: &mut impl FnMut(&Play) -> Option<String>) {
    let (mut failing, mut passing) = (most, 0);
    while failing - passing > 1 + failing / 16 {
        let middle = passing + (failing - passing) / 2;
        let mut shorter = best.clone();
        set(&mut shorter, middle);
        if take(best, shorter, &mut *fails) { failing = middle } else { passing = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays_and_all_else_goes() {
        let fails = |play: &Play| {
            let crashes = !play.without.contains(&Fault::Crash) && !play.without.contains(&Fault::TornWrite);
            let long = play.events.unwrap_or(500) >= 17 && play.trouble_ms.unwrap_or(90_000) >= 1000;
            (crashes && long).then(|| "lost".to_owned())
        };
        let short = shrink(&Play::of(3), fails);
        assert_eq!(short.without.len(), Fault::ALL.len() - 2);
        assert!(fails(&short).is_some());
        assert_eq!((short.seed, short.writers, short.filters), (3, Some(1), Some(1)));
        assert!(short.events.is_some_and(|events| events < 20), "{short}");
        assert!(short.trouble_ms.is_some_and(|millis| millis < 1100), "{short}");
    }
}
