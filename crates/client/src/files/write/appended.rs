//! What is appended at a place, and is refused since something lies there. Either another writer appended meanwhile: then it goes behind that. Or the server remembers
//! nothing of what it took, since it was started anew or lost sight of this client: then these very bytes lie there.

use forebay_protocol::{FileRead, FileStat};
use forebay_types::limits::FILE_BYTES_MAX;
use forebay_types::{FileOutcome, ReadOutcome, Time};

use super::{Piece, WriteBehind, WriteFailure};
use crate::client::unexpected;
use crate::session::{Answer, Request, SessionError};

/// Something lies where the first piece belongs.
#[derive(Default)]
pub(super) struct Obstacle {
    /// The request that looks at it.
    pub(super) request: Option<u64>,
}

impl WriteBehind {
    /// The server may have been started anew, or have lost sight of this client: what is on its way may be done without an answer.
    pub fn server_was_away(&mut self) {
        self.asked.values_mut().for_each(|(piece, _)| piece.is_doubtful = true);
    }

    /// The first piece that is appended and has no answer.
    fn first_appended(&mut self) -> &mut Piece {
        self.ready.iter_mut().find(|piece| piece.appends).expect("one was refused")
    }

    /// Asks what is in the way, when nothing else is on its way.
    pub(super) fn look_at_obstacle(&mut self) -> Option<(u64, Request)> {
        let is_looked_at = self.obstacle.as_ref().is_some_and(|obstacle| obstacle.request.is_some());
        if is_looked_at || !self.asked.is_empty() {
            return None;
        }
        let number = self.take_number();
        self.obstacle = Some(Obstacle { request: Some(number) });
        let file = self.config.file;
        let first = self.first_appended();
        let request = if first.is_doubtful {
            Request::FileRead(FileRead { file, start: first.place(), bytes: first.bytes.len() as u32 })
        } else {
            Request::FileStat(FileStat { files: vec![file] })
        };
        Some((number, request))
    }

    /// What is in the way.
    pub(super) fn looked(&mut self, now: Time, answer: Result<Answer, SessionError>) {
        self.obstacle = None;
        match answer {
            Ok(Answer::FileBytes(outcome, found)) => self.found(now, outcome, &found),
            Ok(Answer::FileInfos(infos)) if infos.len() == 1 => self.move_on(now, infos[0].length),
            Ok(other) => unexpected(&other),
            Err(error) => self.session_failed(error),
        }
    }

    /// These bytes lie where the first piece belongs.
    fn found(&mut self, now: Time, outcome: ReadOutcome, found: &[u8]) {
        let first = self.first_appended();
        if outcome != ReadOutcome::Found || found.len() < first.bytes.len() && first.bytes.starts_with(found) {
            // Not all of it can be read now, or is durable.
            return self.refused(now, FileOutcome::Unavailable);
        }
        first.is_doubtful = false;
        if found != first.bytes {
            return;
        }
        let (number, start) = (first.number, first.place());
        let place = self.ready.partition_point(|piece| piece.number < number);
        let (piece, request) = (self.ready.remove(place).expect("looked at above"), self.take_number());
        self.is_durable(request, piece, start);
        self.forget_answered();
    }

    /// The file ends there: what is appended goes behind it, unless some of it may be written already.
    fn move_on(&mut self, now: Time, end: u64) {
        let first = self.first_appended();
        let (number, start, bytes) = (first.number, first.place(), first.bytes.len() as u64);
        let refused = |outcome| WriteFailure::Refused { outcome, start: Some(start), bytes };
        if self.appended > number || self.ready.iter().any(|piece| piece.is_doubtful) {
            return self.end_with(refused(FileOutcome::Conflict));
        }
        let mut place = start.max(end);
        for piece in self.ready.iter_mut().filter(|piece| piece.appends) {
            self.ranges.remove(&piece.place());
            piece.start = Some(place);
            place += piece.bytes.len() as u64;
        }
        let filling = self.filling_start..self.filling_start + self.filling.len() as u64;
        if self.appends && !filling.is_empty() {
            self.filling_start = place;
            place += self.filling.len() as u64;
        } else if filling.end > start.max(end) && filling.start < place {
            return self.end_with(refused(FileOutcome::Conflict));
        }
        if place > FILE_BYTES_MAX {
            return self.end_with(refused(FileOutcome::TooLarge));
        }
        // What is written elsewhere may be in the way now.
        if self.overlaps(start.max(end), place) {
            return self.end_with(refused(FileOutcome::Conflict));
        }
        self.ranges.extend(self.ready.iter().filter(|piece| piece.appends).filter_map(Piece::range));
        self.end = self.end.max(place);
        self.refused(now, FileOutcome::Conflict);
    }
}
