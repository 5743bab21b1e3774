//! A client that appends to files with many appends on their way at once, and looks at what is there: after a crash, too.
//!
//! Of an appended file what is left is a beginning of what its writer wrote, up to a point at or behind the last answer. Of what the server chooses the place for,
//! each append is there once, where its answer said.

use std::collections::BTreeMap;

use forebay_client::Answer;
use forebay_protocol::FileReply;
use forebay_types::{Adler32, FileOutcome, ReadOutcome, Time, crc32c};

use crate::faults::Fault;
use crate::random::Random;
use crate::scenario::Scenario;

use super::one::{Asked, OneFile, Phase};
use super::plays::{Player, Plays};

/// A record begins with its number.
const HEAD_BYTES: usize = 8;
/// Appends of one file that are on their way at once.
const APPENDS_MAX: usize = 64;
/// The longest append.
const APPEND_BYTES_MAX: u64 = 7000;
/// A file is not longer, but for what is on its way.
const FILE_BYTES_MAX: u64 = 300_000;
/// Reads while appends are waited for, and none is answered.
const PEEKS_MAX: u8 = 5;
/// So often, in a thousand, as many as can be are asked at once, in more than one flush, and a crash is to come.
const BURSTS_PER_MILLE: u64 = 30;

/// What is known of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is on its way.
    Asked,
    /// It is there.
    There,
    /// Nobody knows whether it was taken; when something was changed after it, it is there or never will be.
    Perhaps,
    /// It is not there, and never will be.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Append {
    known: Known,
    bytes: usize,
    /// Where it lies, when that is known.
    start: Option<usize>,
}

pub(crate) struct Appender {
    player: Player,
    /// The server may get what is asked later before what is asked earlier: then it chooses the places.
    is_disordered: bool,
    /// The client says where each append of this file begins.
    says_place: bool,
    /// How long the file becomes, and by appends of how many bytes at most.
    bytes_wanted: u64,
    append_bytes_max: u64,
    /// By number, in the order in which they were asked.
    appends: BTreeMap<u64, Append>,
    /// By the number of their change.
    by_change: BTreeMap<u64, u64>,
    next: u64,
    /// Where the next one begins, if the client says so.
    end: usize,
    /// What is there is to be looked at before anything is appended.
    must_look: bool,
    /// What was asked before is there or never will be: reads do not show what was taken and is not durable. The change that makes it so.
    is_fenced: bool,
    fence: u64,
    /// What was there for certain when a read was asked for.
    there: Vec<u64>,
    /// A read that ended there did not show all of that: either it is lost, or it cannot be read now.
    in_doubt: Option<u64>,
    /// Writes at places were refused while later ones were on their way, or there is no room for anything more: it is of no use.
    is_ragged: bool,
    seals: bool,
    wants_crash: bool,
    /// That read is of all that will be there of what was asked before.
    reads_all: bool,
    /// Reads since something was answered that was asked to be appended.
    peeks: u8,
    is_looked_at: bool,
    is_summed: bool,
}

impl Appender {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Appender {
        let is_disordered = scenario.knows(Fault::OvertakenMessage) || scenario.knows(Fault::LostMessage);
        // What is given up may leave a gap before what comes behind it.
        let gives_up = is_disordered && random.per_mille(500);
        let file = OneFile::new(format!("appended {number}"), scenario, &mut random, gives_up, now);
        Appender {
            player: Player::new(file, random, scenario.pace_micros, now),
            is_disordered,
            says_place: false,
            bytes_wanted: 0,
            append_bytes_max: 0,
            appends: BTreeMap::new(),
            by_change: BTreeMap::new(),
            next: 1,
            end: 0,
            must_look: false,
            is_fenced: false,
            fence: 0,
            there: Vec::new(),
            in_doubt: None,
            is_ragged: false,
            seals: false,
            wants_crash: false,
            reads_all: false,
            peeks: 0,
            is_looked_at: false,
            is_summed: false,
        }
    }

    fn content(&self, number: u64, bytes: usize) -> Vec<u8> {
        let mut random = Random::new(number ^ self.player.file.serial << 32);
        let mut content = number.to_le_bytes().to_vec();
        content.extend((HEAD_BYTES..bytes).map(|_| 1 + random.below(255) as u8));
        content
    }

    /// Appends some, all at once.
    fn append_some(&mut self, now: Time) {
        self.wants_crash = self.player.random.per_mille(BURSTS_PER_MILLE);
        let count = if self.wants_crash { APPENDS_MAX as u64 } else { self.player.random.within(1..9) };
        for _ in 0..count {
            let asked: usize = self.appends.values().map(|append| append.bytes).sum();
            if self.player.file.changes_on_their_way() >= APPENDS_MAX || asked as u64 >= self.bytes_wanted {
                return;
            }
            let bytes = HEAD_BYTES + self.player.random.below(self.append_bytes_max) as usize;
            let (number, start) = (self.next, self.says_place.then_some(self.end));
            let by = self.player.file.write(now, start.map(|start| start as u64), self.content(number, bytes));
            self.appends.insert(number, Append { known: Known::Asked, bytes, start });
            self.by_change.insert(by.change, number);
            (self.next, self.end) = (self.next + 1, self.end + bytes);
            (self.is_fenced, self.is_looked_at) = (false, false);
        }
    }

    /// Reads what is there. If nothing is on its way, it is all that will be there of what was asked before.
    fn read(&mut self, now: Time) {
        self.there = self.appends.iter().filter(|(_, a)| a.known == Known::There).map(|(number, _)| *number).collect();
        self.reads_all = self.player.file.is_idle();
        self.peeks = self.peeks.saturating_add(1);
        self.player.file.read(now);
    }

    fn take_append(&mut self, change: u64, answer: Option<Answer>) {
        self.peeks = 0;
        let number = self.by_change.remove(&change).expect("it was asked");
        let append = self.appends.get_mut(&number).expect("it was asked");
        match answer {
            Some(Answer::File(FileReply { outcome: FileOutcome::Done, start })) => {
                let start = start as usize;
                assert!(append.start.is_none_or(|place| place == start), "{append:?} lies at {start}");
                (append.known, append.start) = (Known::There, Some(start));
            }
            // Asked again of a server that has started since, perhaps.
            Some(Answer::File(FileReply { outcome: FileOutcome::NotOpen, .. })) | None => {
                append.known = Known::Perhaps;
                self.must_look = true;
            }
            Some(Answer::File(_)) => {
                append.known = if self.says_place { Known::Perhaps } else { Known::Gone };
                self.must_look = true;
                // What comes behind it is no append any more.
                let later = self.appends.range(number + 1..).any(|(_, later)| later.known != Known::Gone);
                self.is_ragged |= self.says_place && later;
            }
            answer => panic!("{answer:?} answers an append"),
        }
    }

    fn take_read(&mut self, outcome: ReadOutcome, bytes: &[u8]) {
        match outcome {
            ReadOutcome::Found => {}
            ReadOutcome::NotFound if self.there.is_empty() => {}
            ReadOutcome::Unavailable => return,
            outcome => panic!("{outcome:?}, and {:?} are there", self.there),
        }
        if self.is_ragged {
            return;
        }
        let found = self.check(bytes);
        if self.there.iter().any(|number| !found.contains_key(number)) {
            self.in_doubt = Some(bytes.len() as u64);
            return;
        }
        if !self.reads_all {
            return;
        }
        (self.is_looked_at, self.must_look) = (true, false);
        for (number, append) in &mut self.appends {
            match found.get(number) {
                Some(start) => (append.known, append.start) = (Known::There, Some(*start)),
                None => append.known = Known::Gone,
            }
        }
        // Bytes that are not there are asked for again, as others.
        self.appends.retain(|_, append| append.known == Known::There);
        self.end = bytes.len();
    }

    /// What stands where a read ended that did not show all.
    fn take_rest(&self, end: u64, outcome: ReadOutcome, bytes: &[u8]) {
        let is_end = outcome == ReadOutcome::Found && bytes.is_empty();
        assert!(!is_end, "of {:?}, which were acknowledged, not all are among the {end} bytes of the file", self.there);
        assert!(matches!(outcome, ReadOutcome::Found | ReadOutcome::Unavailable), "byte {end} reads as {outcome:?}");
    }

    /// Whether this may be in the file; gives where each append lies.
    fn check(&self, bytes: &[u8]) -> BTreeMap<u64, usize> {
        let (mut at, mut last) = (0, 0);
        let mut found = BTreeMap::new();
        while at < bytes.len() {
            let number = bytes[at..].first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
            let append = self.appends.get(&number);
            let append = append.unwrap_or_else(|| panic!("byte {at} begins no append: {number}, after {found:?}"));
            let content = self.content(number, append.bytes);
            assert!(bytes[at..].starts_with(&content), "append {number} at {at} is not whole: {append:?}");
            assert!(append.start.is_none_or(|start| start == at), "append {number} lies at {at}: {append:?}");
            assert!(append.known != Known::Gone, "append {number} at {at} was refused, or was not there before");
            assert!(number > last || self.is_disordered, "append {number} at {at} comes after {last}");
            assert!(found.insert(number, at).is_none(), "append {number} is there twice");
            (at, last) = (at + content.len(), number);
        }
        found
    }
}

impl Plays for Appender {
    fn player(&self) -> &Player {
        &self.player
    }

    fn player_mut(&mut self) -> &mut Player {
        &mut self.player
    }

    fn begin_file(&mut self) {
        self.says_place = !self.is_disordered && self.player.random.per_mille(500);
        self.bytes_wanted = self.player.random.within(1..FILE_BYTES_MAX);
        self.append_bytes_max = if self.player.random.per_mille(300) { 60 } else { APPEND_BYTES_MAX };
        self.seals = self.player.random.per_mille(500);
        self.appends.clear();
        self.by_change.clear();
        self.in_doubt = None;
        (self.end, self.must_look, self.is_ragged) = (0, false, false);
        (self.is_fenced, self.is_looked_at, self.is_summed) = (false, false, false);
    }

    fn use_file(&mut self, now: Time) {
        if self.player.file.is_looked_at() {
            return;
        }
        let asked: usize = self.appends.values().map(|append| append.bytes).sum();
        let is_written = asked as u64 >= self.bytes_wanted || self.player.ends;
        let is_idle = self.player.file.is_idle();
        if let Some(end) = self.in_doubt {
            return self.player.file.read_from(now, end);
        }
        match self.player.file.phase {
            _ if self.is_ragged && is_idle => self.player.file.remove(now),
            _ if self.is_ragged => {}
            Phase::Open if self.must_look && is_idle && !self.is_fenced => {
                self.fence = self.player.file.set(now, None, Some(77)).change;
            }
            _ if self.must_look && is_idle => self.read(now),
            _ if self.must_look => {}
            Phase::Sealed if !is_idle => {}
            Phase::Sealed if !self.is_looked_at => self.read(now),
            Phase::Sealed if !self.is_summed => self.player.file.stat(now),
            Phase::Open if is_written && self.seals && (is_idle || self.player.random.per_mille(300)) => {
                self.is_looked_at = false;
                self.player.file.seal(now);
            }
            // While it reads without end nothing is silent, and an append that was lost on its way is not asked again.
            Phase::Open if is_written && !self.is_looked_at && (is_idle || self.peeks < PEEKS_MAX) => self.read(now),
            Phase::Open if is_written && !self.is_looked_at => {}
            Phase::Open if !is_written && self.player.random.per_mille(100) => self.read(now),
            Phase::Open if !is_written => self.append_some(now),
            _ if is_idle => self.player.file.remove(now),
            _ => {}
        }
    }

    fn take(&mut self, asked: Asked, answer: Option<Answer>) {
        match (asked, answer) {
            (Asked::Change(change), answer) if change == self.fence => {
                let outcome = match answer {
                    Some(Answer::File(reply)) => Some(reply.outcome),
                    _ => None,
                };
                self.is_fenced = outcome == Some(FileOutcome::Done);
                // There is no room even to say so: the file goes, so that there is some.
                self.is_ragged |= outcome == Some(FileOutcome::NoSpace);
            }
            (Asked::Change(change), answer) => self.take_append(change, answer),
            (Asked::Seal(_), _) => self.must_look |= self.player.file.phase != Phase::Open,
            (Asked::Read, Some(Answer::FileBytes(outcome, bytes))) => match self.in_doubt.take() {
                Some(end) => self.take_rest(end, outcome, &bytes),
                None => self.take_read(outcome, &bytes),
            },
            (Asked::Stat, Some(Answer::FileInfos(infos))) => {
                self.is_summed = true;
                let mut adler32 = Adler32::default();
                let bytes = self.all();
                adler32.update(&bytes);
                let sums = (crc32c(&bytes), adler32.finish());
                assert!(infos[0].sums.is_none_or(|told| told == sums), "the sums of a sealed file: {infos:?}");
            }
            (_, None) => {}
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }

    fn begin_turn(&mut self) {
        self.wants_crash = false;
    }

    fn wants_crash(&self) -> bool {
        self.wants_crash
    }
}

impl Appender {
    /// All that is there, of a file that nothing is appended to any more.
    fn all(&self) -> Vec<u8> {
        let mut there: Vec<(usize, u64)> =
            self.appends.iter().filter_map(|(number, append)| Some((append.start?, *number))).collect();
        there.sort_unstable();
        there.iter().flat_map(|(_, number)| self.content(*number, self.appends[number].bytes)).collect()
    }
}
