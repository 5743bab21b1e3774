//! A client that fills its lane with a file of large pieces, goes on asking for a while when there is no room for more, and removes the file at last: what must work in a full
//! lane is that.

use forebay_client::Answer;
use forebay_types::{FileOutcome, ReadOutcome, Time};

use crate::random::Random;
use crate::scenario::Scenario;

use super::one::{Asked, OneFile};
use super::plays::{Player, Plays};

/// Files are filled so often, at the most: nobody else writes meanwhile.
const FILES_MAX: u64 = 4;
/// The longest piece.
const PIECE_BYTES_MAX: u64 = 60_000;
/// Pieces that are on their way at once.
const WRITES_MAX: usize = 4;
/// Refusals after which it is taken for full, at the most.
const REFUSALS_MAX: u64 = 40;
/// So often, in a thousand, a piece is written over another.
const OVER_PER_MILLE: u64 = 100;

pub(crate) struct Filler {
    player: Player,
    files_left: u64,
    piece_bytes: u64,
    /// Pieces have other sizes than the same one, so often in a thousand.
    odd_per_mille: u64,
    /// Where the next one begins.
    end: u64,
    refusals_left: u64,
    /// It stays full until then.
    rests_until: Option<Time>,
    looks_left: u8,
}

impl Filler {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Filler {
        let file = OneFile::new(format!("filled {number}"), scenario, &mut random, true, now);
        Filler {
            files_left: random.within(1..FILES_MAX + 1),
            player: Player::new(file, random, scenario.pace_micros.min(3000), now),
            piece_bytes: 0,
            odd_per_mille: 0,
            end: 0,
            refusals_left: 0,
            rests_until: None,
            looks_left: 0,
        }
    }

    fn fill(&mut self, now: Time) {
        for _ in 0..self.player.random.within(1..4) {
            if self.player.file.changes_on_their_way() >= WRITES_MAX {
                return;
            }
            let is_odd = self.player.random.per_mille(self.odd_per_mille);
            let bytes = if is_odd { self.player.random.within(1..self.piece_bytes + 1) } else { self.piece_bytes };
            // What is written over may still be on its way: the same bytes stand at each place, whoever comes last.
            let over = self.end > bytes && self.player.random.per_mille(OVER_PER_MILLE);
            let start = if over { self.player.random.below(self.end - bytes) } else { self.end };
            let payload = (start..start + bytes).map(byte_at).collect();
            self.player.file.write(now, Some(start), payload);
            self.end = self.end.max(start + bytes);
        }
    }
}

/// What stands at a place of any such file, unless nothing does.
fn byte_at(place: u64) -> u8 {
    (place * 31 % 251 + 1) as u8
}

impl Plays for Filler {
    fn player(&self) -> &Player {
        &self.player
    }

    fn player_mut(&mut self) -> &mut Player {
        &mut self.player
    }

    fn begin_file(&mut self) {
        if self.files_left == 0 {
            self.player.ends = true;
            return;
        }
        self.files_left -= 1;
        let random = &mut self.player.random;
        self.piece_bytes = random.within(PIECE_BYTES_MAX / 8..PIECE_BYTES_MAX + 1);
        self.odd_per_mille = *random.one_of(&[0, 100, 500]).expect("there are some");
        self.refusals_left = random.within(1..REFUSALS_MAX + 1);
        (self.end, self.rests_until, self.looks_left) = (0, None, random.below(6) as u8);
    }

    fn use_file(&mut self, now: Time) {
        if self.player.file.is_looked_at() {
            return;
        }
        let is_idle = self.player.file.is_idle();
        let is_full = self.refusals_left == 0;
        match self.rests_until {
            _ if self.player.ends && is_idle => self.player.file.remove(now),
            None if is_full && is_idle => self.rests_until = Some(now + self.player.random.millis(0..3000)),
            None if is_full || self.player.ends => {}
            None => self.fill(now),
            Some(_) if self.looks_left > 0 => {
                self.looks_left -= 1;
                self.player.file.read(now);
            }
            Some(until) if now >= until && is_idle => self.player.file.remove(now),
            Some(_) => self.player.file.stat(now),
        }
    }

    fn take(&mut self, asked: Asked, answer: Option<Answer>) {
        match (asked, answer) {
            (Asked::Change(_), Some(Answer::File(reply))) => {
                let is_refused = reply.outcome == FileOutcome::NoSpace;
                self.refusals_left = self.refusals_left.saturating_sub(u64::from(is_refused));
            }
            (Asked::Read, Some(Answer::FileBytes(ReadOutcome::Found, bytes))) => {
                // Of what was refused, or has not come, nothing stands where others come behind it.
                let wrong = (0..).zip(&bytes).find(|(place, byte)| **byte != byte_at(*place) && **byte != 0);
                assert!(wrong.is_none(), "a file that fills its lane: {wrong:?} is not what was written there");
            }
            (Asked::Change(_) | Asked::Read | Asked::Stat, _) => {}
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }
}
