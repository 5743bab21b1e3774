//! The names of the store's files, on lane 0: read at the start, their journal and snapshots written as files of the lane, and told when they are durable.
//!
//! A machine as the rest of the server: [`Namespace::tend`] takes what the lane said and asks it for what is next. `docs/files.md` says why names lie so.

mod load;
mod recent;
mod runs;
mod serve;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::{Planted, Reply, planted};
use forebay_names::{KEPT_ORDINALS, Names};
use forebay_types::placement::{lane_of, lane_ordinal};
use forebay_types::{FileNumber, NodeKind, RunCounts, RunId, RunRule};

use crate::lane_requests::LaneRequests;
use crate::status::{NamesReport, RunsReport};
pub use load::{NamesFound, NamesLoading};
use recent::Recent;
use runs::RunBooks;
pub(crate) use serve::{NameAnswer, NameRequest};
use write::Writer;

/// The request number under which the names ask their lane; no client's request has it.
pub(crate) const NAMES_REQUEST: u64 = 1;

/// What lanes tell each other about files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesMessage {
    /// To lane 0: a lane serves, and has seen no number at or behind this one, by its place among those of the lane.
    Seen {
        /// The lane.
        lane: u16,
        /// By [`lane_ordinal`].
        next_ordinal: u64,
    },
    /// To each lane: all of its numbers that have names, ascending.
    Named {
        /// Which.
        numbers: Vec<FileNumber>,
        /// What has none may end; else something of the names was lost, and it gets one.
        is_all: bool,
    },
    /// To lane 0: these have bytes and no name, though something of the names was lost.
    Nameless(Vec<FileNumber>),
    /// To the lane of a file: it has no name any more.
    Unnamed(FileNumber),
    /// To lane 0: such a file has ended.
    Ended(FileNumber),
    /// To each lane, at a start, before it takes anything: what holds for runs that were declared; for all others nothing does.
    Rules(Arc<[(RunId, RunRule)]>),
    /// To each lane: what holds for a run from now on. Answered with [`FilesMessage::GoesBy`].
    Rule {
        /// Which telling this is.
        serial: u64,
        /// The run.
        run: RunId,
        /// What holds.
        rule: RunRule,
    },
    /// To lane 0: a lane goes by a rule that it was told, and nothing on its way breaks it any more.
    GoesBy {
        /// The lane.
        lane: u16,
        /// The telling.
        serial: u64,
        /// What the lane knows of the run.
        counts: RunCounts,
    },
}

enum State {
    /// The lane does not know yet what is stored.
    Starting,
    /// Snapshot and journals are read.
    Loading(Box<NamesLoading>),
    /// Names are there.
    Loaded(Box<Loaded>),
    /// There are none until the next start; why.
    Failed(String),
}

struct Loaded {
    names: Names,
    writer: Writer,
    recent: Recent,
    books: RunBooks,
    /// Something of them was lost, which the lanes were not told yet.
    is_damaged: bool,
    /// The lanes were told which numbers have names: requests are served.
    is_serving: bool,
    /// What has no name any more when the journals are durable up to there.
    unnamed: BTreeMap<u64, Vec<(FileNumber, NodeKind)>>,
}

impl Loaded {
    /// Memory that names and books take.
    fn memory_bytes(&self) -> usize {
        self.names.bytes() + self.books.bytes()
    }
}

/// The names of a store, or nothing on the other lanes.
pub(crate) struct Namespace {
    lanes: u16,
    read_only: bool,
    state: State,
    /// What lanes said of the numbers that they have seen.
    seen: Vec<Option<u64>>,
    messages: Vec<(u16, FilesMessage)>,
    /// Memory that names may take.
    index_bytes_max: usize,
}

impl Namespace {
    pub(crate) fn new(lanes: u16, read_only: bool) -> Namespace {
        Namespace {
            lanes,
            read_only,
            state: State::Starting,
            seen: vec![None; usize::from(lanes)],
            messages: Vec::new(),
            index_bytes_max: usize::MAX,
        }
    }

    /// Names may take so much memory.
    pub(crate) fn may_take(&mut self, index_bytes_max: usize) {
        self.index_bytes_max = index_bytes_max;
    }

    /// How many there are, and what memory they take and may take.
    pub(crate) fn report(&self) -> NamesReport {
        let (names, bytes) = match &self.state {
            State::Loaded(loaded) => (loaded.names.entries(), loaded.memory_bytes() as u64),
            State::Starting | State::Loading(_) | State::Failed(_) => (0, 0),
        };
        NamesReport { names, names_bytes: bytes, names_bytes_max: self.index_bytes_max as u64 }
    }

    /// The runs that were declared.
    pub(crate) fn runs(&self) -> RunsReport {
        match &self.state {
            State::Loaded(loaded) => loaded.books.report(),
            State::Starting | State::Loading(_) | State::Failed(_) => RunsReport::default(),
        }
    }

    /// Messages for other lanes, and for this one.
    pub(crate) fn take_messages(&mut self, into: &mut Vec<(u16, FilesMessage)>) {
        into.append(&mut self.messages);
        if let State::Loaded(loaded) = &mut self.state {
            loaded.books.take_messages(into);
        }
    }

    /// What became of things that were asked of runs and streams, by the number of the request.
    pub(crate) fn take_answers(&mut self, into: &mut Vec<(u64, NameAnswer)>) {
        if let State::Loaded(loaded) = &mut self.state {
            loaded.books.take_answers(into);
        }
    }

    /// A lane says something of files.
    pub(crate) fn message(&mut self, message: FilesMessage, now_unix_ns: i64) {
        match (message, &mut self.state) {
            (FilesMessage::Seen { lane, next_ordinal }, _) => {
                if let Some(seen) = self.seen.get_mut(usize::from(lane)) {
                    *seen = Some(next_ordinal);
                }
            }
            (FilesMessage::Ended(number), State::Loaded(loaded)) => loaded.names.forget(number),
            (FilesMessage::GoesBy { lane, serial, counts }, State::Loaded(loaded)) => {
                loaded.books.lane_goes_by(lane, serial, counts, &mut loaded.names);
            }
            (FilesMessage::Nameless(numbers), State::Loaded(loaded)) if !self.read_only => {
                for number in numbers {
                    if let Err(error) = loaded.names.adopt(number, now_unix_ns) {
                        tracing::error!(file = number.0, %error, "a file whose name was lost could not be given another one: its bytes stay");
                    }
                }
            }
            _ => {}
        }
    }

    /// Goes on with what is to be read or written; whether the lane was asked for anything.
    pub(crate) fn tend(&mut self, lane: &mut impl LaneRequests) -> bool {
        match &mut self.state {
            State::Starting => {
                if lane.serves_reads().is_err() {
                    return false;
                }
                self.state = State::Loading(Box::new(NamesLoading::plan(self.lanes, lane)));
                self.tend(lane)
            }
            State::Loading(loading) => {
                if self.read_only {
                    // It reads all that the drives give. Behind what was acknowledged there may be the end of a change that a crash tore, which nobody can tell from
                    // what a missing drive would bring back. Nothing is being read when it waits.
                    loading.leave_out();
                }
                let asked = loading.go_on(lane);
                if self.read_only && loading.waits_for_drives() {
                    return self.tend(lane);
                }
                if loading.is_over() {
                    self.load();
                    return self.tend(lane);
                }
                asked
            }
            State::Loaded(loaded) => {
                if !loaded.is_serving && self.seen.iter().all(Option::is_some) {
                    self.serve();
                    return self.tend(lane);
                }
                let asked = !self.read_only && loaded.writer.tend(&mut loaded.names, lane);
                if loaded.writer.is_over() {
                    self.state = State::Failed("their lane takes nothing any more".to_owned());
                }
                self.settle();
                asked
            }
            State::Failed(_) => false,
        }
    }

    /// All was read that there is.
    fn load(&mut self) {
        let State::Loading(loading) = std::mem::replace(&mut self.state, State::Starting) else { return };
        let found = loading.finish();
        tell_damage(&found);
        if let Some(why) = found.newer {
            tracing::error!(
                "neither names nor runs nor fragments are served: {why}. Nothing was changed; start the version that wrote it, or a newer one"
            );
            self.state = State::Failed(why);
            return;
        }
        let is_damaged = found.is_damaged();
        let mut names = found.names;
        if is_damaged && !self.read_only {
            // What is written behind something that cannot be read would not be found by the next start.
            names.begin_snapshot();
        }
        let books = RunBooks::new(found.books, self.lanes);
        let rules = books.rules();
        self.messages.extend((0..self.lanes).map(|lane| (lane, FilesMessage::Rules(rules.clone()))));
        self.state = State::Loaded(Box::new(Loaded {
            books,
            names,
            writer: Writer::new(self.lanes, found.cut, found.obsolete),
            recent: Recent::default(),
            is_damaged,
            is_serving: false,
            unnamed: BTreeMap::new(),
        }));
    }

    /// Each lane has said which numbers it has seen: it is told which of them have names.
    fn serve(&mut self) {
        let State::Loaded(loaded) = &mut self.state else { return };
        for (lane, next) in self.seen.iter().enumerate() {
            loaded.names.numbers_begin_at(lane as u16, next.unwrap_or(0));
        }
        let mut by_lane = vec![Vec::new(); usize::from(self.lanes)];
        for (number, kind) in loaded.names.numbers() {
            if kind == NodeKind::File {
                by_lane[usize::from(lane_of(number.key(), self.lanes))].push(number);
            }
        }
        for (lane, numbers) in by_lane.into_iter().enumerate() {
            self.messages.push((lane as u16, FilesMessage::Named { numbers, is_all: !loaded.is_damaged }));
        }
        loaded.is_serving = true;
    }

    /// The lane answered what the names asked it.
    pub(crate) fn take_reply(&mut self, reply: Reply) {
        match &mut self.state {
            State::Loading(loading) => loading.take_reply(reply),
            State::Loaded(loaded) => {
                if let Err(why) = loaded.writer.take_reply(reply, &mut loaded.names) {
                    tracing::error!("names are not served until the next start: {why}");
                    self.state = State::Failed(why);
                }
            }
            State::Starting | State::Failed(_) => {}
        }
        self.settle();
    }

    /// What became durable takes effect.
    fn settle(&mut self) {
        let State::Loaded(loaded) = &mut self.state else { return };
        loaded.books.settle(&mut loaded.names);
        let is_early = planted(Planted::EndedBeforeName);
        let durable = if is_early { loaded.names.position() } else { loaded.names.durable() };
        while let Some(first) = loaded.unnamed.first_entry().filter(|first| *first.key() <= durable) {
            for (number, kind) in first.remove() {
                match kind {
                    NodeKind::File => {
                        let lane = lane_of(number.key(), self.lanes);
                        self.messages.push((lane, FilesMessage::Unnamed(number)));
                    }
                    _ => loaded.names.forget(number),
                }
            }
        }
    }

    /// Up to where the journals are durable.
    pub(crate) fn durable(&self) -> u64 {
        match &self.state {
            State::Loaded(loaded) => loaded.names.durable(),
            _ => 0,
        }
    }

    /// Whether there are none until the next start.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Whether something waits that no answer of the lane will wake.
    pub(crate) fn waits(&self) -> bool {
        match &self.state {
            State::Loading(loading) => loading.waits_for_drives(),
            State::Loaded(loaded) => loaded.writer.waits(),
            State::Starting | State::Failed(_) => false,
        }
    }

    /// Why names cannot be asked now, in a sentence; and whether they may be later.
    pub(crate) fn serves(&self) -> Result<(), (String, bool)> {
        match &self.state {
            State::Loaded(loaded) if loaded.is_serving => Ok(()),
            State::Failed(why) => Err((
                format!(
                    "names of files, runs and streams cannot be served until the server is started again: {why}. What was acknowledged is on the drives; a change of a \
                     name that was not answered was made or was not"
                ),
                true,
            )),
            State::Loading(loading) if loading.waits_for_drives() => Err((
                "names of files, runs and streams cannot be read now: too few of the drives that hold them answer. Nothing is lost that these drives bring back; see \
                 `forebay status`"
                    .to_owned(),
                true,
            )),
            _ => Err(("names of files, runs and streams are being read; try again in a moment".to_owned(), true)),
        }
    }
}

/// Losses that the log tells one by one.
const LOSSES_TOLD: usize = 100;

fn tell_damage(found: &NamesFound) {
    for why in &found.damage {
        tracing::error!(
            "names of files are missing: {why}. No bytes of files are lost by that: what has no name any more gets one under /lost+found"
        );
    }
    for loss in found.losses.iter().take(LOSSES_TOLD) {
        tracing::error!(?loss, "a part of the names does not fit the rest");
    }
}

/// Whether a number is of the journals and snapshots that keep the names of all others.
pub fn keeps_names(number: FileNumber, lanes: u16) -> bool {
    lane_of(number.key(), lanes) == 0 && lane_ordinal(number.0, lanes) < KEPT_ORDINALS
}

const _: () = assert!(RunId::FILES.0 == u32::MAX, "what lies where is a part of the format");
