//! A file that is written behind, as a machine: what was written is cut into pieces, of which a bounded number of bytes has no answer, and what is refused for now is
//! sent again.

mod appended;
mod config;
mod filling;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use forebay_protocol::{Changer, FileOpen, FileReply, FileWrite, Opener};
use forebay_types::limits::{FILE_BYTES_MAX, PIECE_BYTES_MAX};
use forebay_types::{Crc32c, FileOutcome, Time, crc32c};

pub use config::{WriteConfig, WriteFailure};

use appended::Obstacle;
use filling::Filling;

use super::patience::{Patience, may_change};
use crate::blocks::Blocks;
use crate::client::unexpected;
use crate::session::{Answer, Request, SessionError};

/// Pieces without an answer, or behind one without, however short.
const PIECES_MAX: usize = 1024;

/// What is copied is summed in parts of so many bytes, each while it is in the processor's cache.
const PART_BYTES: usize = 16 << 10;

/// Openings in a row without a write that was taken, before the next one waits as after a refusal.
const OPENINGS_MAX: u32 = 2;

struct Piece {
    /// Which: they are sent in this order, as far as nothing is refused.
    number: u64,
    start: Option<u64>,
    bytes: Bytes,
    /// The sum of what was not copied is made when it is sent: whoever gave the bytes goes on meanwhile.
    crc: Option<u32>,
    /// It belongs behind all that others wrote.
    appends: bool,
    /// It may be written though no answer says so: it was asked of a server that has started since, or lost sight of this client.
    is_doubtful: bool,
}

impl Piece {
    /// Of one whose writer says it.
    fn place(&self) -> u64 {
        self.start.expect("its writer says its place")
    }

    fn range(&self) -> Option<(u64, u64)> {
        self.start.map(|start| (start, start + self.bytes.len() as u64))
    }
}

/// Whether the file is open as far as is known.
enum State {
    Open,
    /// It is to be opened, under a number that is asked for.
    Closed,
    /// It is to be opened so.
    Opening,
    /// The request of this number opens it.
    Asked(u64),
}

/// A file that is written. Who drives it:
/// - gives it bytes ([`WriteBehind::offer`]), and says when what was given is to leave though a piece is not full ([`WriteBehind::end_piece`]);
/// - asks what [`WriteBehind::next_request`] gives and says the answers, in any order ([`WriteBehind::answered`]), and asks again at [`WriteBehind::next_due`];
/// - gives it a number for another opening when it wants one ([`WriteBehind::wants_opening`]);
/// - looks for what failed ([`WriteBehind::take_failure`]): until that is taken nothing more is asked.
pub struct WriteBehind {
    config: WriteConfig,
    state: State,
    /// The piece that fills: where it begins, and its bytes.
    filling_start: u64,
    filling: Filling,
    /// Its sum; none when some of it was written over.
    filling_crc: Option<Crc32c>,
    /// What is offered belongs behind all that others wrote.
    appends: bool,
    /// Pieces so far, and the bytes of the last.
    pieces: u64,
    usual_bytes: usize,
    ready: VecDeque<Piece>,
    asked: BTreeMap<u64, (Piece, Opener)>,
    /// Bytes of pieces that are ready or asked.
    unanswered_bytes: usize,
    /// What must not be written again yet, begin and end: that of pieces without an answer, and of those with one while something that was asked before them has none.
    ranges: BTreeMap<u64, u64>,
    /// Where the latter begin, by their numbers.
    answered: BTreeMap<u64, u64>,
    next_request: u64,
    patience: Patience,
    /// What is in the way of the first piece, and what is done about it.
    obstacle: Option<Obstacle>,
    /// The highest piece that was appended, and is durable.
    appended: u64,
    /// One is, since it had nothing on its way: what is ahead of the others, who ask where the file ends, and are refused behind that.
    is_ahead: bool,
    /// Nothing is asked before.
    hold_until: Time,
    /// Openings since the last write that was taken.
    openings: u32,
    acknowledged_bytes: u64,
    /// Behind the last byte that was taken.
    end: u64,
    failure: Option<WriteFailure>,
    /// The failure stays.
    is_over: bool,
    /// Where the memory of pieces comes from.
    blocks: Blocks,
}

impl WriteBehind {
    /// Nothing is written yet. Pieces of many bytes fill `blocks`.
    ///
    /// # Panics
    /// When a piece may have no bytes.
    pub fn new(config: WriteConfig, blocks: Blocks) -> WriteBehind {
        assert!(config.piece_bytes_max > 0, "a piece has bytes");
        let patience = Patience::new(config.patience, config.seed);
        let config = WriteConfig { piece_bytes_max: config.piece_bytes_max.min(PIECE_BYTES_MAX), ..config };
        WriteBehind {
            config,
            state: State::Open,
            filling_start: 0,
            filling: Filling::default(),
            filling_crc: None,
            appends: false,
            pieces: 0,
            usual_bytes: 0,
            ready: VecDeque::new(),
            asked: BTreeMap::new(),
            unanswered_bytes: 0,
            ranges: BTreeMap::new(),
            answered: BTreeMap::new(),
            next_request: 0,
            patience,
            obstacle: None,
            appended: 0,
            is_ahead: false,
            hold_until: Time::default(),
            openings: 0,
            acknowledged_bytes: 0,
            end: 0,
            failure: None,
            is_over: false,
            blocks,
        }
    }

    /// Bytes that the server answered to be durable.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// Bytes that were taken and are not answered.
    pub fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes + self.filling.len()
    }

    /// Behind the last byte of the file that was taken or appended here; 0 before.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The file is as long as that, whoever made it so; nothing of it is on its way.
    pub fn has_length(&mut self, length: u64) {
        self.end = length;
    }

    /// Whether all that was taken is answered.
    pub fn is_idle(&self) -> bool {
        self.unanswered_bytes() == 0
    }

    /// Whether there is something to ask, now or later.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether what is offered from now on belongs behind all that others wrote, wherever it is offered: what another writer appended meanwhile moves it on, together with all
    /// that comes after it ([`WriteBehind::end`]). It fails as a conflict when some of that is written already.
    pub fn set_appends(&mut self, appends: bool) {
        if self.appends != appends {
            self.end_piece();
            self.appends = appends;
        }
    }

    /// Takes bytes that belong behind `offset`, as many as there is room for; none while some of them overlap what is not answered, or what was asked before it. Of what is appended the offset means
    /// nothing, and no piece has a part of it if it fits one.
    ///
    /// # Errors
    /// [`FileOutcome::TooLarge`] for what no file is so long for.
    pub fn offer(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, FileOutcome> {
        if self.config.append {
            return Ok(self.offer_append(bytes));
        }
        offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or(FileOutcome::TooLarge)?;
        let filling_end = self.filling_start + self.filling.len() as u64;
        if !self.filling.is_empty() && (self.filling_start..filling_end).contains(&offset) {
            // It was not sent yet.
            let at = (offset - self.filling_start) as usize;
            let count = bytes.len().min(self.filling.len() - at);
            self.filling.write_over(at, &bytes[..count]);
            self.filling_crc = None;
            return Ok(count);
        }
        if !self.filling.is_empty() && filling_end != offset {
            self.end_piece();
        }
        let room = self.room();
        let count = bytes.len().min(room);
        if count == 0 || self.overlaps(offset, offset + count as u64) {
            return Ok(0);
        }
        if self.filling.is_empty() {
            self.filling_start = offset;
        }
        self.fill(&bytes[..count]);
        self.end = self.end.max(offset + count as u64);
        Ok(count)
    }

    /// The same of bytes that are shared until they are answered: where nothing fills and they are a whole piece, or more than one, they are not copied, unless a server on this
    /// machine takes the copy without its being sent.
    ///
    /// # Errors
    /// As [`WriteBehind::offer`].
    pub fn offer_shared(&mut self, offset: u64, bytes: &Bytes) -> Result<usize, FileOutcome> {
        let count = self.config.piece_bytes_max;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let is_whole = end.is_some() && bytes.len() >= count && self.filling.is_empty() && !self.config.append;
        if !is_whole || self.blocks.are_better_copied(bytes) {
            return self.offer(offset, bytes);
        }
        if self.room() == 0 || self.overlaps(offset, offset + count as u64) {
            return Ok(0);
        }
        self.end = self.end.max(offset + count as u64);
        let bytes = bytes.slice(..count);
        self.add_piece(Some(offset), None, bytes);
        Ok(count)
    }

    fn offer_append(&mut self, bytes: &[u8]) -> usize {
        let is_split = self.filling.len() + bytes.len() > self.config.piece_bytes_max;
        if is_split && !self.filling.is_empty() && bytes.len() <= self.config.piece_bytes_max {
            self.end_piece();
        }
        let count = bytes.len().min(self.room());
        if count < bytes.len() && bytes.len() <= self.config.piece_bytes_max {
            return 0;
        }
        self.fill(&bytes[..count]);
        count
    }

    /// How many bytes may be added to the piece that fills.
    fn room(&self) -> usize {
        let is_full = self.unanswered_bytes >= self.config.unanswered_bytes_max
            || self.ready.len() + self.asked.len() + self.answered.len() >= PIECES_MAX;
        if self.filling.is_empty() && is_full { 0 } else { self.config.piece_bytes_max - self.filling.len() }
    }

    fn fill(&mut self, bytes: &[u8]) {
        if self.filling.is_empty() {
            self.filling = Filling::of(self.usual_bytes.max(bytes.len()), &self.blocks);
            self.filling_crc = Some(Crc32c::default());
        }
        for part in bytes.chunks(PART_BYTES) {
            if let Some(crc) = &mut self.filling_crc {
                crc.update(part);
            }
            self.filling.extend(part, &self.blocks);
        }
        if self.filling.len() == self.config.piece_bytes_max {
            self.end_piece();
        }
    }

    /// Whether some of these bytes lie where something has no answer.
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..end).next_back().is_some_and(|(_, before_end)| *before_end > start)
    }

    /// What was taken leaves, though it fills no piece.
    pub fn end_piece(&mut self) {
        if self.filling.is_empty() {
            return;
        }
        let bytes = self.filling.take();
        let crc = self.filling_crc.take().map_or_else(|| crc32c(&bytes), |crc| crc.finish());
        self.add_piece((!self.config.append).then_some(self.filling_start), Some(crc), bytes);
    }

    fn add_piece(&mut self, start: Option<u64>, crc: Option<u32>, bytes: Bytes) {
        self.pieces += 1;
        let appends = self.appends && start.is_some();
        let piece = Piece { number: self.pieces, start, crc, bytes, appends, is_doubtful: false };
        self.usual_bytes = piece.bytes.len();
        self.unanswered_bytes += piece.bytes.len();
        self.ranges.extend(piece.range());
        self.ready.push_back(piece);
    }

    /// Whether it needs a number for another opening ([`WriteBehind::open_as`]).
    pub fn wants_opening(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The number of the next opening: higher than that of the last one.
    pub fn open_as(&mut self, opener: Opener) {
        if self.wants_opening() {
            (self.config.opener, self.state) = (opener, State::Opening);
        }
    }

    /// The file was opened again while nothing was on its way.
    ///
    /// # Panics
    /// When something is.
    pub fn was_opened_as(&mut self, opener: Opener) {
        assert!(self.is_idle(), "what is on its way is asked under the opening that it began with");
        (self.config.opener, self.state) = (opener, State::Open);
    }

    /// Who has the file open.
    pub fn opener(&self) -> Opener {
        self.config.opener
    }

    /// What to ask next, with the number under which to say the answer; nothing before [`WriteBehind::next_due`] when there is such, or before something else is answered.
    pub fn next_request(&mut self, now: Time) -> Option<(u64, Request)> {
        if self.failure.is_some() || now < self.hold_until {
            return None;
        }
        let opener = self.config.opener;
        match self.state {
            State::Closed | State::Asked(_) => None,
            State::Opening => {
                let number = self.take_number();
                self.state = State::Asked(number);
                Some((number, Request::FileOpen(FileOpen { file: self.config.file, by: opener, write: true })))
            }
            State::Open => {
                // What was refused is tried with one piece first.
                // Where others append, too, the first one finds its place alone.
                let finds_place = !self.is_ahead && self.ready.front().is_some_and(|piece| piece.appends);
                let one_by_one = self.config.append || finds_place || self.patience.is_tried();
                if one_by_one && !self.asked.is_empty() {
                    return None;
                }
                if self.obstacle.is_some() {
                    return self.look_at_obstacle();
                }
                let mut piece = self.ready.pop_front()?;
                let crc = *piece.crc.get_or_insert_with(|| crc32c(&piece.bytes));
                let Piece { start, ref bytes, appends, .. } = piece;
                let (number, by) = self.next_change();
                let write = FileWrite { file: self.config.file, by, start, bytes: bytes.len() as u32, crc, appends };
                let request = Request::FileWrite(write, bytes.clone());
                self.asked.insert(number, (piece, opener));
                Some((number, request))
            }
        }
    }

    fn next_change(&mut self) -> (u64, Changer) {
        let change = self.take_number();
        let waits_from = self.asked.keys().next().map_or(change, |first| *first);
        (change, Changer { opener: self.config.opener, change, waits_from })
    }

    /// Who makes the next change of the file that no write is.
    ///
    /// # Panics
    /// When writes are on their way.
    pub fn changer(&mut self) -> Changer {
        assert!(self.is_idle(), "what changes the file as a whole waits for its writes");
        self.next_change().1
    }

    fn take_number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// When [`WriteBehind::next_request`] may have something again that it has not now.
    pub fn next_due(&self, now: Time) -> Option<Time> {
        let has_more = !self.ready.is_empty() || matches!(self.state, State::Opening);
        (self.failure.is_none() && has_more && self.hold_until > now).then_some(self.hold_until)
    }

    /// The answer to a request. Those to requests that nobody knows are ignored.
    pub fn answered(&mut self, now: Time, number: u64, answer: Result<Answer, SessionError>) {
        if self.obstacle.as_ref().is_some_and(|obstacle| obstacle.request == Some(number)) {
            return self.looked(now, answer);
        }
        let answer = answer.map(|answer| match answer {
            Answer::File(reply) => reply,
            other => unexpected(&other),
        });
        if matches!(self.state, State::Asked(asked) if asked == number) {
            return self.opened(now, answer);
        }
        let Some((mut piece, by)) = self.asked.remove(&number) else { return };
        match answer {
            Ok(FileReply { outcome: FileOutcome::Done, start }) => self.is_durable(number, piece, start),
            Ok(FileReply { outcome: FileOutcome::NotOpen, .. }) => {
                let is_news = by == self.config.opener && matches!(self.state, State::Open);
                piece.is_doubtful = true;
                self.keep(piece);
                if is_news {
                    self.state = State::Closed;
                    self.openings += 1;
                    if self.openings > OPENINGS_MAX {
                        self.refused(now, FileOutcome::NotOpen);
                    }
                }
            }
            Ok(FileReply { outcome, .. }) if may_change(outcome) => {
                self.keep(piece);
                self.refused(now, outcome);
            }
            Ok(FileReply { outcome: FileOutcome::Conflict, .. }) if piece.appends => {
                self.keep(piece);
                self.obstacle.get_or_insert_default();
            }
            Ok(FileReply { outcome, .. }) => {
                let (start, bytes) = (piece.start, piece.bytes.len() as u64);
                self.keep(piece);
                self.end_with(WriteFailure::Refused { outcome, start, bytes });
            }
            Err(SessionError::Unknown { last, .. } | SessionError::Deadline { last, .. }) if piece.start.is_none() => {
                let bytes = piece.bytes.len() as u64;
                self.unanswered_bytes -= piece.bytes.len();
                self.fail(WriteFailure::AppendUnknown { bytes, last });
            }
            Err(error) => {
                self.keep(piece);
                self.session_failed(error);
            }
        }
        self.forget_answered();
    }

    /// What was answered may be written again when all that comes then says that this one is waited for no more.
    fn forget_answered(&mut self) {
        let first = self.asked.keys().next().copied();
        while let Some(entry) = self.answered.first_entry()
            && first.is_none_or(|first| *entry.key() < first)
        {
            self.ranges.remove(&entry.remove());
        }
    }

    fn session_failed(&mut self, error: SessionError) {
        match error {
            SessionError::Deadline { .. } => self.fail(WriteFailure::Session(error)),
            error => self.end_with(WriteFailure::Session(error)),
        }
    }

    fn opened(&mut self, now: Time, answer: Result<FileReply, SessionError>) {
        self.state = State::Closed;
        match answer.map(|reply| reply.outcome) {
            Ok(FileOutcome::Done) => self.state = State::Open,
            Ok(outcome) if may_change(outcome) || outcome == FileOutcome::NotOpen => self.refused(now, outcome),
            Ok(outcome) => self.end_with(WriteFailure::Refused { outcome, start: None, bytes: 0 }),
            Err(error) => self.session_failed(error),
        }
    }

    fn is_durable(&mut self, number: u64, piece: Piece, start: u64) {
        let bytes = piece.bytes.len();
        self.acknowledged_bytes += bytes as u64;
        self.end = self.end.max(start + bytes as u64);
        self.unanswered_bytes -= bytes;
        if piece.appends {
            self.appended = self.appended.max(piece.number);
            self.is_ahead = !self.is_idle();
        }
        if let Some(start) = piece.start {
            self.answered.insert(number, start);
        }
        self.patience.went_well();
        self.openings = 0;
    }

    /// It is to be asked again, before those that came after it.
    fn keep(&mut self, piece: Piece) {
        let place = self.ready.partition_point(|ready| ready.number < piece.number);
        self.ready.insert(place, piece);
    }

    fn refused(&mut self, now: Time, outcome: FileOutcome) {
        match self.patience.refused(now) {
            Some(again) => self.hold_until = self.hold_until.max(again),
            None => {
                let (start, bytes) = self.ready.front().map_or((None, 0), |piece| (piece.start, piece.bytes.len()));
                self.fail(WriteFailure::Refused { outcome, start, bytes: bytes as u64 });
            }
        }
    }

    fn fail(&mut self, failure: WriteFailure) {
        self.failure.get_or_insert(failure);
    }

    /// Nothing more is written.
    fn end_with(&mut self, failure: WriteFailure) {
        if !self.is_over {
            (self.failure, self.is_over) = (Some(failure), true);
        }
    }

    /// What failed, if something did. What may succeed later is told once, and tried again from then on; else nothing more is written, and that is told each time.
    pub fn take_failure(&mut self) -> Option<WriteFailure> {
        if self.is_over { self.failure.clone() } else { self.failure.take() }
    }
}
