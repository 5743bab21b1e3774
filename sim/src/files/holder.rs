//! A client that writes a file, opens it for reading, removes its name, and goes on reading it: as long as it has it open it is there, whatever is emptied and moved meanwhile.

use forebay_client::Answer;
use forebay_types::{ReadOutcome, Time};

use crate::random::Random;
use crate::scenario::Scenario;

use super::one::{Asked, OneFile, Phase};
use super::plays::{Player, Plays};

/// The longest file, and the longest piece.
const FILE_BYTES_MAX: u64 = 30_000;
const PIECE_BYTES_MAX: u64 = 6000;
const WRITES_MAX: usize = 4;
/// A file without a name is read so often, at the most.
const READS_MAX: u64 = 12;

pub(crate) struct Holder {
    player: Player,
    bytes_wanted: u64,
    /// Where the next piece begins.
    end: u64,
    seals: bool,
    /// Something was not done, or nobody knows: the file goes.
    has_failed: bool,
    /// Connections when it was opened for reading, and afterwards.
    greetings: Option<u64>,
    reads_left: u64,
    rests_until: Time,
}

impl Holder {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Holder {
        let file = OneFile::new(format!("held {number}"), scenario, &mut random, true, now);
        Holder {
            player: Player::new(file, random, scenario.pace_micros, now),
            bytes_wanted: 0,
            end: 0,
            seals: false,
            has_failed: false,
            greetings: None,
            reads_left: 0,
            rests_until: now,
        }
    }

    fn byte_at(&self, place: u64) -> u8 {
        ((place + self.player.file.serial * 77) * 31 % 251 + 1) as u8
    }

    fn write(&mut self, now: Time) {
        let bytes = self.player.random.within(1..PIECE_BYTES_MAX).min(self.bytes_wanted - self.end);
        let payload = (self.end..self.end + bytes).map(|place| self.byte_at(place)).collect();
        self.player.file.write(now, Some(self.end), payload);
        self.end += bytes;
    }

    fn take_read(&mut self, outcome: ReadOutcome, bytes: &[u8]) {
        let is_sure = self.greetings == Some(self.player.file.greetings);
        match outcome {
            ReadOutcome::Found => {
                let wrong = (0..).zip(bytes).find(|(place, byte)| **byte != self.byte_at(*place));
                assert!(wrong.is_none(), "a file that is held: {wrong:?} is not what was written there");
                assert!(bytes.len() as u64 <= self.end, "a file that is held became longer");
            }
            ReadOutcome::Unavailable => {}
            // Not beyond a restart of the server, or of a connection that it did not see come back in time.
            outcome => assert!(!is_sure, "a file that somebody has open is {outcome:?}"),
        }
    }
}

impl Plays for Holder {
    fn player(&self) -> &Player {
        &self.player
    }

    fn player_mut(&mut self) -> &mut Player {
        &mut self.player
    }

    fn begin_file(&mut self) {
        let random = &mut self.player.random;
        self.bytes_wanted = random.within(1..FILE_BYTES_MAX);
        (self.seals, self.reads_left) = (random.per_mille(500), random.within(1..READS_MAX));
        (self.end, self.has_failed, self.greetings) = (0, false, None);
    }

    fn use_file(&mut self, now: Time) {
        let (is_idle, on_their_way) = (self.player.file.is_idle(), self.player.file.changes_on_their_way());
        match self.player.file.phase {
            _ if self.player.file.is_looked_at() || now < self.rests_until => {}
            Phase::Open | Phase::Sealed if self.has_failed && is_idle => self.player.file.remove(now),
            Phase::Open | Phase::Sealed if self.has_failed => {}
            Phase::Open if self.end < self.bytes_wanted && !self.player.ends && on_their_way < WRITES_MAX => {
                self.write(now);
            }
            Phase::Open if self.seals && is_idle => self.player.file.seal(now),
            Phase::Open | Phase::Sealed if is_idle => self.player.file.hold(),
            Phase::Held if is_idle => {
                self.greetings = Some(self.player.file.greetings);
                self.player.file.remove(now);
            }
            Phase::Unnamed if self.reads_left > 0 && !self.player.ends => {
                self.reads_left -= 1;
                self.rests_until = now + self.player.random.millis(0..800);
                self.player.file.read(now);
            }
            Phase::Unnamed if is_idle => self.player.file.let_go(),
            _ => {}
        }
    }

    fn take(&mut self, asked: Asked, answer: Option<Answer>) {
        match (asked, answer) {
            (Asked::Read, Some(Answer::FileBytes(outcome, bytes))) => self.take_read(outcome, &bytes),
            (Asked::Read, None) => {}
            (Asked::Change(_) | Asked::Seal(_), _) => {
                self.has_failed |= !matches!(self.player.file.phase, Phase::Open | Phase::Sealed);
            }
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }
}
