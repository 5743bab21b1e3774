//! The books of runs and streams, kept beside names in the same journal and snapshots: what clients ask of them, and what the lanes are told.

use std::sync::Arc;

use forebay_engine::Planted;
use forebay_names::Names;
use forebay_protocol::{ErrorCode, ErrorReply, RunList, StreamList};
use forebay_runs::{Action, Answer, Asked, Books, Refusal, Registry};
use forebay_types::{RunChange, RunCounts, RunId, RunRecord, RunRule, StreamVersion};
use serde::Serialize;

use super::{FilesMessage, NameAnswer};
use crate::status::{RunsReport, to_json};

/// Runs in one answer,
const RUNS_AT_ONCE: usize = 256;

/// and bytes of JSON behind which no more are added.
const RUNS_BYTES: usize = 1 << 20;

/// Books with what waits for the lanes.
pub(super) struct RunBooks {
    registry: Registry,
    lanes: u16,
    /// For each lane.
    messages: Vec<(u16, FilesMessage)>,
    answers: Vec<(u64, NameAnswer)>,
}

#[derive(Serialize)]
struct RunsPage<'a> {
    runs: Vec<&'a RunRecord>,
    more: bool,
}

#[derive(Serialize)]
struct StreamsPage<'a> {
    streams: Vec<&'a StreamVersion>,
}

impl RunBooks {
    pub(super) fn new(books: Books, lanes: u16) -> RunBooks {
        RunBooks { registry: Registry::new(books, lanes), lanes, messages: Vec::new(), answers: Vec::new() }
    }

    /// What every lane is told at a start, before it takes anything.
    pub(super) fn rules(&self) -> Arc<[(RunId, RunRule)]> {
        let untold = forebay_engine::planted(Planted::RulesUntold);
        self.registry.books().rules().into_iter().filter(|_| !untold).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.registry.books().bytes()
    }

    pub(super) fn report(&self) -> RunsReport {
        RunsReport::of(self.registry.books().runs_behind(None))
    }

    /// Something is asked, under this number; what it comes to is in [`RunBooks::take_answers`]. `is_full`: nothing new is taken into the books.
    pub(super) fn ask(
        &mut self,
        key: u64,
        asked: Asked,
        is_full: Option<Refusal>,
        now_unix_ns: i64,
        names: &mut Names,
    ) {
        let is_new = match &asked {
            Asked::Run(request) => matches!(request.what, RunChange::Declare { .. }),
            Asked::Stream(_) => true,
        };
        match is_full.filter(|_| is_new) {
            Some(refusal) => self.answers.push((key, refused(&refusal))),
            None => self.registry.ask(key, asked, now_unix_ns),
        }
        self.act(names);
    }

    /// A lane goes by a rule that it was told.
    pub(super) fn lane_goes_by(&mut self, lane: u16, serial: u64, counts: RunCounts, names: &mut Names) {
        self.registry.lane_goes_by(lane, serial, counts);
        self.act(names);
    }

    /// The journals are durable further than before.
    pub(super) fn settle(&mut self, names: &mut Names) {
        self.registry.is_durable(names.durable());
        self.act(names);
    }

    fn act(&mut self, names: &mut Names) {
        while let Some(action) = self.registry.next_action() {
            match action {
                Action::Tell { serial, run, rule } => {
                    let message = |lane| (lane, FilesMessage::Rule { serial, run, rule: rule.clone() });
                    self.messages.extend((0..self.lanes).map(message));
                }
                Action::Keep(_) if forebay_engine::planted(Planted::RunNotKept) => {
                    self.registry.is_kept_at(names.durable());
                    self.registry.is_durable(names.durable());
                }
                Action::Keep(kept) => {
                    let position = names.keep(&kept.key, &kept.value);
                    self.registry.is_kept_at(position);
                    if forebay_engine::planted(Planted::RunAnsweredEarly) {
                        self.registry.is_durable(position);
                    }
                }
                Action::Answer { requests, answer } => {
                    tell_log(&answer);
                    let answer = match &answer {
                        Answer::Run(run) => NameAnswer::Json(to_json(run)),
                        Answer::Stream(stream) => NameAnswer::Json(to_json(stream)),
                        Answer::Refused(refusal) => refused(refusal),
                    };
                    self.answers.extend(requests.into_iter().map(|key| (key, answer.clone())));
                }
            }
        }
    }

    pub(super) fn take_messages(&mut self, into: &mut Vec<(u16, FilesMessage)>) {
        into.append(&mut self.messages);
    }

    pub(super) fn take_answers(&mut self, into: &mut Vec<(u64, NameAnswer)>) {
        into.append(&mut self.answers);
    }

    /// The answer to a list of runs, and up to where the journals must be durable for it.
    pub(super) fn list_runs(&self, list: &RunList) -> (NameAnswer, u64) {
        let max = RUNS_AT_ONCE.min(list.max as usize);
        let mut page = RunsPage { runs: Vec::new(), more: false };
        let mut bytes = 0;
        for run in self.registry.books().runs_behind(list.after) {
            if page.runs.len() == max || bytes > RUNS_BYTES {
                page.more = true;
                break;
            }
            bytes += to_json(run).len();
            page.runs.push(run);
        }
        (NameAnswer::Json(to_json(&page)), self.registry.stable_at())
    }

    /// The answer to a list of streams.
    pub(super) fn list_streams(&self, list: &StreamList) -> (NameAnswer, u64) {
        let books = self.registry.books();
        let streams = match &list.stream {
            Some(name) => books.versions(name).collect(),
            None => books.streams().collect(),
        };
        (NameAnswer::Json(to_json(&StreamsPage { streams })), self.registry.stable_at())
    }
}

fn refused(refusal: &Refusal) -> NameAnswer {
    NameAnswer::Error(ErrorReply { code: ErrorCode::Refused, retryable: false, sentence: refusal.to_string() })
}

/// Who did what with a run, and why, stands in the log, too.
fn tell_log(answer: &Answer) {
    match answer {
        Answer::Run(run) => {
            let step = [&run.discarded, &run.closed, &run.stopped, &run.started].into_iter().find_map(Option::as_ref);
            let step = step.unwrap_or(&run.declared);
            tracing::info!(run = run.run.0, state = %run.state, held = run.is_held(), by = step.by, reason = step.reason, "a run was changed, as a client asked");
        }
        Answer::Stream(stream) => {
            tracing::info!(
                stream = stream.name.as_str(),
                version = stream.version,
                by = stream.by,
                "a stream was defined, as a client asked"
            );
        }
        Answer::Refused(_) => {}
    }
}
