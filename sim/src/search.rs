//! Which seeds find the mistakes that are planted.
#![expect(
    clippy::disallowed_methods,
    reason = "this drives: mistakes are looked for on all processors, and what is played knows nothing of it"
)]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use crate::mistakes::Mistake;
use crate::mover::try_play_mover;
use crate::play::Play;
use crate::try_play;

/// Seeds that found a mistake before, and are played first: `MISTAKE SEED` on each line. One that does not any more costs a play, and the search goes on as without.
const KNOWN: &str = include_str!("../known-seeds.txt");

fn known_seed(mistake: Mistake) -> Option<u64> {
    KNOWN.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == mistake.name())?.1.parse().ok()
}

/// Plants these mistakes, one at a time, in seed after seed until one finds it, on all processors. As soon as the first seed that does is known `tell`
/// is given it, with what broke. Gives the mistakes that no seed found.
pub fn search(
    mistakes: impl IntoIterator<Item = Mistake>,
    seeds: Range<u64>,
    tell: impl Fn(Mistake, u64, &str) + Sync,
) -> Vec<Mistake> {
    let known = |mistake| known_seed(mistake).filter(|seed| seeds.contains(seed));
    let begin = |mistake| Search { known: known(mistake), ..Search::new(mistake, seeds.clone()) };
    let searches: Mutex<Vec<Search>> = Mutex::new(mistakes.into_iter().map(begin).collect());
    let lock = || -> MutexGuard<'_, Vec<Search>> { searches.lock().expect("nobody fails with it") };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                let mut at = None;
                while let Some((at, mistake, seed)) = { next_play(&mut lock(), &mut at) } {
                    let what = find(mistake, seed);
                    if let Some((seed, what)) = lock()[at].note(seed, what) {
                        tell(mistake, *seed, what);
                    }
                }
            });
        }
    });
    let searches = searches.into_inner().expect("nobody fails with it");
    searches.into_iter().filter(|search| search.found.is_none()).map(|search| search.mistake).collect()
}

/// Plays one seed with a mistake; gives what was found, if anything was.
fn find(mistake: Mistake, seed: u64) -> Option<String> {
    if mistake.is_of_the_mover() {
        let found = try_play_mover(seed, false, Some(mistake)).err()?;
        return try_play_mover(seed, false, None).is_ok().then_some(found);
    }
    let (beyond, files, appends) = (mistake.is_beyond(), mistake.is_of_files(), mistake.is_of_appends());
    let (subscribers, full, runs) = (mistake.is_of_subscribers(), mistake.is_of_full_lanes(), mistake.is_of_runs());
    let pool = mistake.is_of_pools();
    let play = Play { beyond, files, appends, subscribers, full, runs, pool, ..Play::of(seed) };
    let found = try_play(&play, Some(mistake)).err()?;
    // What goes wrong without it as well was not found by it.
    try_play(&play, None).is_ok().then_some(found)
}

/// A mistake that is looked for.
struct Search {
    mistake: Mistake,
    /// Somebody plays it, or did.
    is_begun: bool,
    /// Is played first.
    known: Option<u64>,
    /// Seeds that nobody played yet.
    left: Range<u64>,
    playing: BTreeSet<u64>,
    /// The first seed that found it, and what broke.
    found: Option<(u64, String)>,
}

impl Search {
    fn new(mistake: Mistake, seeds: Range<u64>) -> Search {
        Search { mistake, is_begun: false, known: None, left: seeds, playing: BTreeSet::new(), found: None }
    }

    fn has_more(&self) -> bool {
        self.found.is_none() && (self.known.is_some() || !self.left.is_empty())
    }

    /// What came of a seed; gives the first that found it once all before it are played.
    fn note(&mut self, seed: u64, what: Option<String>) -> Option<&(u64, String)> {
        self.playing.remove(&seed);
        let is_first = self.found.as_ref().is_none_or(|(first, _)| seed < *first);
        if let Some(what) = what.filter(|_| is_first) {
            self.found = Some((seed, what));
        }
        self.found.as_ref().filter(|(first, _)| seed <= *first && self.playing.range(..first).next().is_none())
    }
}

/// Goes on with the search `at`; when that needs no more, with one that nobody began, and at last with what others began.
fn next_play(searches: &mut [Search], at: &mut Option<usize>) -> Option<(usize, Mistake, u64)> {
    let is_new = |search: &Search| !search.is_begun && search.has_more();
    let next = at
        .filter(|at| searches[*at].has_more())
        .or_else(|| searches.iter().position(is_new))
        .or_else(|| searches.iter().position(Search::has_more))?;
    *at = Some(next);
    let search = &mut searches[next];
    search.is_begun = true;
    let seed = search.known.take().or_else(|| search.left.next()).expect("it has more");
    search.playing.insert(seed);
    Some((next, search.mistake, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(seeds: Range<u64>) -> Search {
        let mistake = Mistake::all().next().expect("there are some");
        Search::new(mistake, seeds)
    }

    #[test]
    fn whoever_has_nothing_left_helps_with_what_others_began() {
        let mut searches = [begun(0..3), begun(0..1)];
        let (mut one, mut other) = (None, None);
        let seeds =
            |searches: &mut [Search], at: &mut Option<usize>| next_play(searches, at).map(|(at, _, seed)| (at, seed));
        assert_eq!(seeds(&mut searches, &mut one), Some((0, 0)));
        assert_eq!(seeds(&mut searches, &mut other), Some((1, 0)));
        assert_eq!(seeds(&mut searches, &mut one), Some((0, 1)));
        assert_eq!(seeds(&mut searches, &mut other), Some((0, 2)), "its own has no seeds left");
        assert_eq!(seeds(&mut searches, &mut one), None);
    }

    #[test]
    fn what_found_it_before_is_played_first() {
        let mut searches = [Search { known: Some(5), ..begun(0..9) }];
        let mut at = None;
        let seeds: Vec<u64> = (0..3).map(|_| next_play(&mut searches, &mut at).expect("it has more").2).collect();
        assert_eq!(seeds, [5, 0, 1]);
        for line in KNOWN.lines() {
            let (name, seed) = line.split_once(' ').expect("a mistake and a seed");
            assert!(Mistake::named(name).is_some() && seed.parse::<u64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn the_first_seed_that_finds_it_is_told_once_and_when_those_before_it_are_played() {
        let mut search = begun(0..9);
        search.playing.extend([3, 4, 5, 6]);
        assert_eq!(search.note(5, Some("it broke".to_owned())), None, "3 and 4 may find it too");
        assert_eq!(search.note(6, Some("later".to_owned())), None);
        assert_eq!(search.note(3, None), None);
        assert_eq!(search.note(4, None), Some(&(5, "it broke".to_owned())));
        assert!(!search.has_more());
    }
}
