//! What clients have in common that play with one file after another.

use forebay_client::Answer;
use forebay_types::Time;

use crate::links::Links;
use crate::random::Random;

use super::UsesFiles;
use super::one::{Asked, OneFile, Phase};

/// What each of them has.
pub(super) struct Player {
    pub(super) file: OneFile,
    pub(super) random: Random,
    pub(super) next_at: Time,
    pace_micros: u64,
    pub(super) ends: bool,
}

impl Player {
    pub(super) fn new(file: OneFile, random: Random, pace_micros: u64, now: Time) -> Player {
        Player { file, random, next_at: now, pace_micros, ends: false }
    }
}

/// What differs between them.
pub(super) trait Plays {
    fn player(&self) -> &Player;

    fn player_mut(&mut self) -> &mut Player;

    /// Another file comes.
    fn begin_file(&mut self);

    /// Something is done with a file that is open or sealed.
    fn use_file(&mut self, now: Time);

    /// An answer to what it asked came, or will not come.
    fn take(&mut self, asked: Asked, answer: Option<Answer>);

    /// It is its turn.
    fn begin_turn(&mut self) {}

    fn wants_crash(&self) -> bool {
        false
    }
}

impl<P: Plays> UsesFiles for P {
    fn links(&mut self) -> &mut Links {
        &mut self.player_mut().file.links
    }

    fn next_at(&self) -> Option<Time> {
        let own = (!self.is_done()).then_some(self.player().next_at);
        [own, self.player().file.links.next_deadline()].into_iter().flatten().min()
    }

    fn end(&mut self) {
        self.player_mut().ends = true;
    }

    fn is_done(&self) -> bool {
        self.player().ends && self.player().file.phase == Phase::None
    }

    fn act(&mut self, now: Time) {
        self.begin_turn();
        for (asked, answer) in self.player_mut().file.take_answers() {
            self.take(asked, answer);
        }
        if now < self.player().next_at || self.is_done() {
            return;
        }
        let player = self.player_mut();
        player.next_at = now + player.random.micros(0..2 * player.pace_micros);
        if player.file.phase == Phase::None {
            self.begin_file();
        }
        let player = self.player_mut();
        if !player.file.go_on(now, player.ends) {
            self.use_file(now);
        }
    }

    fn operations(&self) -> u64 {
        self.player().file.operations
    }

    fn where_it_is(&self) -> String {
        self.player().file.where_it_is()
    }

    fn wants_crash(&self) -> bool {
        Plays::wants_crash(self)
    }
}
