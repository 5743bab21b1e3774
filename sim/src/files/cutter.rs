//! A client that changes the length of a file beside writes that are on their way, or makes it longer again long after it was cut.

use std::ops::Range;

use forebay_client::Answer;
use forebay_types::{Adler32, FileOutcome, ReadOutcome, Time, crc32c};

use crate::random::Random;
use crate::scenario::Scenario;

use super::changes::{Changes, What};
use super::one::{Asked, OneFile, Phase};
use super::plays::{Player, Plays};

const FILE_BYTES_MAX: usize = 24_000;
const WRITE_BYTES_MAX: u64 = 4000;
/// Changes that are on their way at once.
const CHANGES_MAX: usize = 8;
/// What is left of a file that is cut, and made longer again later.
const LEFT_BYTES: usize = 6000;

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    /// Writes and changes of its length and time, many at once, so many more before it is looked at.
    Busy(u64),
    /// It is written in one go, cut, made longer, and looked at, with long waits between: what still lies on the drives of what was cut must not show.
    Slow(Step),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    /// Of some it is closed before and after something in it is written over, and then it is sealed.
    Over,
    Leave,
    Seal,
    Cut,
    Lengthen,
    Look(u8),
}

pub(crate) struct Cutter {
    player: Player,
    play: Play,
    /// Nothing more is changed before it is looked at.
    rests: bool,
    /// What was asked before cannot come any more.
    is_fenced: bool,
    /// The change that makes it so.
    fence: u64,
    /// There was no room even for that, or for a seal: the file goes, so that there is some.
    has_no_room: bool,
    rounds: u64,
    seals: bool,
    is_summed: bool,
    content: Changes,
    value: u8,
    /// What is written over once it was closed.
    over: Range<usize>,
}

impl Cutter {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Cutter {
        let file = OneFile::new(format!("cut {number}"), scenario, &mut random, true, now);
        Cutter {
            player: Player::new(file, random, scenario.pace_micros, now),
            play: Play::Busy(0),
            rests: false,
            is_fenced: false,
            fence: 0,
            has_no_room: false,
            rounds: 0,
            seals: false,
            is_summed: false,
            content: Changes::default(),
            value: 0,
            over: 0..0,
        }
    }

    fn write(&mut self, now: Time, range: Range<usize>) {
        if range.is_empty() || self.content.meets(&range, self.player.file.waits_from()) {
            return;
        }
        self.value = self.value % 250 + 1;
        let by = self.player.file.write(now, Some(range.start as u64), vec![self.value; range.len()]);
        self.content.asked(by, What::Write(range, self.value));
    }

    fn set_length(&mut self, now: Time, length: usize) {
        let by = self.player.file.set(now, Some(length as u64), None);
        self.content.asked(by, What::Length(length));
    }

    fn set_time(&mut self, now: Time) -> u64 {
        let by = self.player.file.set(now, None, Some(77));
        self.content.asked(by, What::Time);
        by.change
    }

    /// Whether it is closed between what is done with it.
    fn is_left(&self) -> bool {
        self.seals && self.player.file.serial % 4 == 1
    }

    /// It is sealed, with what is on its way, or goes as it is.
    fn finish(&mut self, now: Time) {
        if self.seals {
            self.rests = true;
            self.player.file.seal(now);
        } else if self.player.file.is_idle() {
            self.player.file.remove(now);
        }
    }

    fn be_busy(&mut self, now: Time, left: u64) {
        if left == 0 {
            // The last ones are sealed on their way.
            self.rests = self.rounds > 1 || !self.seals;
            self.rounds -= 1;
            self.play = Play::Busy(self.player.random.within(5..25));
            return;
        }
        for _ in 0..self.player.random.within(1..5).min(left) {
            if self.player.file.changes_on_their_way() >= CHANGES_MAX {
                return;
            }
            self.is_fenced = false;
            self.play = Play::Busy(left - 1);
            let longest = self.content.longest().min(FILE_BYTES_MAX);
            match self.player.random.below(100) {
                0..65 => {
                    let at_end = self.player.random.per_mille(400);
                    let start = if at_end { longest } else { self.player.random.below(longest as u64 + 3000) as usize };
                    let end = start + 1 + self.player.random.below(WRITE_BYTES_MAX) as usize;
                    self.write(now, start..end.min(FILE_BYTES_MAX));
                }
                65..85 => {
                    let length = self.player.random.below(longest as u64 + 3000) as usize;
                    self.set_length(now, length.min(FILE_BYTES_MAX));
                }
                _ => drop(self.set_time(now)),
            }
        }
    }

    fn be_slow(&mut self, now: Time, step: Step) {
        self.is_fenced = false;
        let next = match step {
            Step::Write => {
                let end = self.player.random.within(LEFT_BYTES as u64 + 1..FILE_BYTES_MAX as u64) as usize;
                let piece = WRITE_BYTES_MAX as usize;
                for start in (0..end).step_by(piece) {
                    self.write(now, start..end.min(start + piece));
                }
                if self.is_left() { Step::Over } else { Step::Cut }
            }
            Step::Over => {
                if self.player.file.phase == Phase::Open {
                    self.player.file.leave();
                }
                let start = self.player.random.below(LEFT_BYTES as u64 / 2) as usize;
                self.over = start..start + 1 + self.player.random.below(LEFT_BYTES as u64 / 2) as usize;
                Step::Leave
            }
            Step::Leave => {
                self.write(now, self.over.clone());
                Step::Seal
            }
            Step::Seal => {
                if self.player.file.phase == Phase::Open {
                    self.player.file.leave();
                }
                self.rounds = 0;
                Step::Look(0)
            }
            Step::Cut => {
                let length = self.player.random.below(LEFT_BYTES as u64) as usize;
                self.set_length(now, length);
                Step::Lengthen
            }
            Step::Lengthen => {
                match self.player.random.per_mille(500) {
                    true => self.set_length(now, FILE_BYTES_MAX),
                    false => self.write(now, FILE_BYTES_MAX - 10..FILE_BYTES_MAX),
                }
                if self.seals {
                    // It says how long it is, too.
                    self.rests = true;
                    self.player.file.seal(now);
                }
                Step::Look(4)
            }
            Step::Look(0) => {
                self.rounds = 0;
                return;
            }
            Step::Look(left) => {
                self.rests = true;
                Step::Look(left - 1)
            }
        };
        self.play = Play::Slow(next);
        self.player.next_at = now + self.player.random.millis(0..4000);
    }

    fn take_read(&mut self, outcome: ReadOutcome, bytes: &[u8]) {
        match outcome {
            ReadOutcome::Found => self.content.found(bytes.to_vec()),
            ReadOutcome::NotFound => self.content.found(Vec::new()),
            ReadOutcome::Unavailable => return,
            outcome => panic!("it is there, and reads as {outcome:?}"),
        }
        self.rests = false;
        if matches!(self.play, Play::Slow(_)) {
            self.player.next_at = self.player.next_at + self.player.random.millis(0..3000);
        }
    }
}

impl Plays for Cutter {
    fn player(&self) -> &Player {
        &self.player
    }

    fn player_mut(&mut self) -> &mut Player {
        &mut self.player
    }

    fn begin_file(&mut self) {
        self.play = if self.player.random.per_mille(500) { Play::Slow(Step::Write) } else { Play::Busy(10) };
        (self.rests, self.is_fenced, self.is_summed, self.has_no_room) = (false, false, false, false);
        self.rounds = self.player.random.within(1..8);
        self.seals = self.player.random.per_mille(500);
        self.content = Changes::default();
    }

    fn use_file(&mut self, now: Time) {
        let is_idle = self.player.file.is_idle();
        if self.player.file.is_looked_at() {
            return;
        }
        if self.has_no_room {
            if is_idle {
                self.player.file.remove(now);
            }
        } else if self.player.file.phase == Phase::Sealed {
            match (is_idle, self.rests, self.is_summed) {
                (false, ..) => {}
                (true, true, _) => self.player.file.read(now),
                (true, false, false) => self.player.file.stat(now),
                (true, false, true) => self.player.file.remove(now),
            }
        } else if self.rests {
            match (is_idle, self.is_fenced) {
                (false, _) => {}
                // It comes behind all, as nothing is waited for.
                (true, false) => self.fence = self.set_time(now),
                (true, true) => self.player.file.read(now),
            }
        } else if self.player.ends || self.rounds == 0 {
            self.finish(now);
        } else {
            match self.play {
                Play::Busy(left) => self.be_busy(now, left),
                Play::Slow(step) if is_idle => self.be_slow(now, step),
                Play::Slow(_) => {}
            }
        }
    }

    fn take(&mut self, asked: Asked, answer: Option<Answer>) {
        match (asked, answer) {
            (Asked::Change(change), Some(Answer::File(reply))) if reply.outcome == FileOutcome::Done => {
                self.content.is_done(change);
                self.is_fenced |= self.fence == change;
            }
            (Asked::Change(_) | Asked::Seal(_), Some(Answer::File(reply))) => {
                self.rests = true;
                let asked_last = asked == Asked::Change(self.fence) || matches!(asked, Asked::Seal(_));
                self.has_no_room |= asked_last && reply.outcome == FileOutcome::NoSpace;
            }
            (Asked::Change(_) | Asked::Seal(_), None) => self.rests = true,
            (Asked::Read, Some(Answer::FileBytes(outcome, bytes))) => self.take_read(outcome, &bytes),
            (Asked::Stat, Some(Answer::FileInfos(infos))) => {
                self.is_summed = true;
                if let (Some(sums), Some(bytes)) = (infos[0].sums, self.content.certain()) {
                    let mut adler32 = Adler32::default();
                    adler32.update(bytes);
                    assert_eq!(sums, (crc32c(bytes), adler32.finish()), "the sums of a sealed file");
                }
            }
            (_, None) => {}
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }

    fn begin_turn(&mut self) {
        // Of what was asked under an earlier opening nothing comes any more, but what was taken may not show before something later is durable.
        self.is_fenced &= !matches!(self.player.file.phase, Phase::Closed | Phase::Opening);
    }
}
