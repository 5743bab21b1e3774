//! What is known of runs and streams, and what may be done with them.

use std::collections::BTreeMap;
use std::ops::Bound;

use forebay_types::limits::{
    BOOKS_BYTES_MAX, PERSON_BYTES_MAX, REASON_BYTES_MAX, RUNS_MAX, STREAM_VERSIONS_MAX, STREAMS_MAX,
};
use forebay_types::{
    RunChange, RunCounts, RunHold, RunId, RunPuts, RunRecord, RunRequest, RunRule, RunState, RunStep, RunStream,
    SourceFragments, StreamName, StreamRequest, StreamVersion,
};

use crate::record::{Kept, Record, RecordError, decode, encode_run, encode_stream};
use crate::refusal::Refusal;

/// Memory of a run or a version beside its texts and lists, never less than it is.
const ENTRY_BYTES: usize = 640;

/// Something with the request that made it what it is.
struct Entry<T> {
    what: T,
    token: u64,
    /// Bytes of its record.
    bytes: usize,
}

/// All runs that were declared, and all streams that were defined.
#[derive(Default)]
pub struct Books {
    runs: BTreeMap<RunId, Entry<Box<RunRecord>>>,
    /// The versions of each, from 1 on.
    streams: BTreeMap<StreamName, Vec<Entry<StreamVersion>>>,
    record_bytes: usize,
    records: usize,
}

/// What is to be found out before something is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Nothing: it is done at once.
    Nothing,
    /// Lanes go by this rule first, and say what they know of the run.
    Rule(RunRule),
    /// Nothing: it was done before.
    Done,
}

impl Books {
    /// Takes a record in that was kept. Later ones of the same key count.
    ///
    /// # Errors
    /// [`RecordError`]; the books are as they were.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
        let bytes = key.len() + value.len();
        match decode(key, value)? {
            Record::Run(run, token) => self.enter_run(run, token, bytes),
            Record::Stream(version, token) => {
                let versions = self.streams.get(&version.name).map_or(0, Vec::len);
                // They are kept one after the other, and a snapshot has them in the order of their keys.
                match (version.version as usize).checked_sub(1) {
                    Some(place) if place < versions => {}
                    Some(place) if place == versions => self.enter_stream(*version, token, bytes),
                    _ => return Err(RecordError::Malformed { what: "a version without those before it", at: 1 }),
                }
            }
        }
        Ok(())
    }

    fn enter_run(&mut self, run: Box<RunRecord>, token: u64, bytes: usize) {
        let before = self.runs.insert(run.run, Entry { what: run, token, bytes });
        let bytes_before = before.as_ref().map_or(0, |before| before.bytes);
        self.record_bytes = self.record_bytes + bytes - bytes_before;
        self.records += usize::from(before.is_none());
    }

    fn enter_stream(&mut self, version: StreamVersion, token: u64, bytes: usize) {
        self.record_bytes += bytes;
        self.records += 1;
        self.streams.entry(version.name.clone()).or_default().push(Entry { what: version, token, bytes });
    }

    /// Memory in use, never less than it is.
    pub fn bytes(&self) -> usize {
        self.record_bytes * 2 + self.records * ENTRY_BYTES
    }

    /// How many runs there are, and how many streams.
    pub fn counts(&self) -> (usize, usize) {
        (self.runs.len(), self.streams.len())
    }

    /// A run.
    pub fn run(&self, run: RunId) -> Option<&RunRecord> {
        self.runs.get(&run).map(|entry| &*entry.what)
    }

    /// The runs behind this one, ascending.
    pub fn runs_behind(&self, after: Option<RunId>) -> impl Iterator<Item = &RunRecord> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.runs.range((from, Bound::Unbounded)).map(|(_, entry)| &*entry.what)
    }

    /// The newest version of each stream.
    pub fn streams(&self) -> impl Iterator<Item = &StreamVersion> {
        self.streams.values().filter_map(|versions| versions.last()).map(|entry| &entry.what)
    }

    /// All versions of a stream, the oldest first.
    pub fn versions(&self, name: &StreamName) -> impl Iterator<Item = &StreamVersion> {
        self.streams.get(name).into_iter().flatten().map(|entry| &entry.what)
    }

    /// What lanes must know of a run.
    pub fn rule(&self, run: RunId) -> RunRule {
        let Some(record) = self.run(run) else { return RunRule::default() };
        let puts = match record.state {
            RunState::Declared | RunState::Running | RunState::Stopped => RunPuts::Taken,
            RunState::Closed => RunPuts::Closed,
            RunState::Discarded => RunPuts::Discarded,
        };
        let prescale = |stream: &RunStream| {
            let version = self.versions(&stream.name).nth(stream.version.checked_sub(1)? as usize)?;
            let prescale = version.definition.prescale;
            (prescale > 1).then(|| (stream.name.clone(), prescale))
        };
        RunRule { puts, is_held: record.is_held(), prescales: record.streams.iter().filter_map(prescale).collect() }
    }

    /// All runs of which lanes must know something.
    pub fn rules(&self) -> Vec<(RunId, RunRule)> {
        let rules = self.runs.keys().map(|run| (*run, self.rule(*run)));
        rules.filter(|(_, rule)| !rule.is_empty()).collect()
    }

    // ---- runs ----

    /// Whether something may be done with a run, as far as that is known here.
    pub(crate) fn check(&self, request: &RunRequest) -> Result<First, Refusal> {
        let run = request.run;
        let known = self.runs.get(&run);
        if let Some(entry) = known.filter(|entry| entry.token == request.token)
            && entry.what.changes == request.changes.saturating_add(1)
        {
            return Ok(First::Done);
        }
        check_text(&request.by, PERSON_BYTES_MAX, Refusal::PERSON)?;
        check_text(&request.reason, REASON_BYTES_MAX, Refusal::REASON)?;
        let record = match (known, &request.what) {
            (None, RunChange::Declare { sources }) => {
                if run == RunId(0) || run == RunId::FILES {
                    return Err(Refusal::NoRunNumber(run));
                }
                if sources.is_empty() {
                    return Err(Refusal::NoSources(run));
                }
                if self.runs.len() >= RUNS_MAX {
                    return Err(Refusal::TooManyRuns);
                }
                self.check_room()?;
                return Ok(First::Rule(RunRule { puts: RunPuts::Wait, ..RunRule::default() }));
            }
            (None, _) => return Err(Refusal::NotDeclared(run)),
            (Some(entry), RunChange::Declare { .. }) => {
                return Err(Refusal::Used { run, state: entry.what.state });
            }
            (Some(entry), _) => &*entry.what,
        };
        if record.changes != request.changes {
            return Err(Refusal::Changed(run));
        }
        check_step(record, request)?;
        let rule = self.rule(run);
        Ok(match request.what {
            RunChange::Close { .. } | RunChange::Discard => First::Rule(RunRule { puts: RunPuts::Wait, ..rule }),
            RunChange::Hold => First::Rule(RunRule { is_held: true, ..rule }),
            _ => First::Nothing,
        })
    }

    /// Does what was checked: `counts` are what the lanes know of the run, where they were asked.
    pub(crate) fn apply(&mut self, request: &RunRequest, counts: RunCounts, now_unix_ns: i64) -> Result<Kept, Refusal> {
        let step = RunStep { at_unix_ns: now_unix_ns, by: request.by.clone(), reason: request.reason.clone() };
        let run = match &request.what {
            RunChange::Declare { .. } if counts.events > 0 => {
                return Err(Refusal::HasEvents { run: request.run, counts });
            }
            RunChange::Declare { sources } => RunRecord::declared(request.run, sources.clone(), step),
            _ => {
                let streams = self.streams().map(|of| RunStream { name: of.name.clone(), version: of.version });
                let streams = if matches!(request.what, RunChange::Start) { streams.collect() } else { Vec::new() };
                let record = self.run(request.run).ok_or(Refusal::NotDeclared(request.run))?;
                changed(record, &request.what, streams, counts, step)?
            }
        };
        let kept = encode_run(&run, request.token);
        self.enter_run(Box::new(run), request.token, kept.key.len() + kept.value.len());
        Ok(kept)
    }

    fn check_room(&self) -> Result<(), Refusal> {
        if self.bytes() > BOOKS_BYTES_MAX { Err(Refusal::BooksFull) } else { Ok(()) }
    }

    // ---- streams ----

    /// The newest version of a stream, when this request made it.
    pub(crate) fn defined_by(&self, request: &StreamRequest) -> Option<&StreamVersion> {
        let newest = self.streams.get(&request.name)?.last()?;
        let is_it = newest.token == request.token && newest.what.version == request.version.saturating_add(1);
        is_it.then_some(&newest.what)
    }

    /// Defines a stream.
    pub(crate) fn define(&mut self, request: &StreamRequest, now_unix_ns: i64) -> Result<Kept, Refusal> {
        check_text(&request.by, PERSON_BYTES_MAX, Refusal::PERSON)?;
        request.definition.check()?;
        let versions = self.streams.get(&request.name).map_or(0, Vec::len);
        if versions != request.version as usize {
            return Err(Refusal::Defined(request.name.clone()));
        }
        if versions == 0 && self.streams.len() >= STREAMS_MAX {
            return Err(Refusal::TooManyStreams);
        }
        if versions >= STREAM_VERSIONS_MAX {
            return Err(Refusal::TooManyVersions(request.name.clone()));
        }
        self.check_room()?;
        let version = StreamVersion {
            name: request.name.clone(),
            version: request.version + 1,
            at_unix_ns: now_unix_ns,
            by: request.by.clone(),
            definition: request.definition.clone(),
        };
        let kept = encode_stream(&version, request.token);
        self.enter_stream(version, request.token, kept.key.len() + kept.value.len());
        Ok(kept)
    }
}

fn check_text(text: &str, bytes_max: usize, refusal: Refusal) -> Result<(), Refusal> {
    if text.len() > bytes_max || text.chars().any(char::is_control) { Err(refusal) } else { Ok(()) }
}

/// Whether a run may go from its state to what is asked for.
fn check_step(record: &RunRecord, request: &RunRequest) -> Result<(), Refusal> {
    let (run, state) = (record.run, record.state);
    let must_be = |may: bool, wanted| if may { Ok(()) } else { Err(Refusal::State { run, state, wanted }) };
    let reason = |what| if request.reason.is_empty() { Err(Refusal::NoReason(what)) } else { Ok(()) };
    match &request.what {
        RunChange::Declare { .. } => Err(Refusal::Used { run, state }),
        RunChange::Start => must_be(state == RunState::Declared, "started"),
        RunChange::Stop { fragments, .. } => {
            must_be(state == RunState::Running, "stopped")?;
            assert!(SourceFragments::are_sound(fragments), "whoever reads them checks them");
            Ok(())
        }
        RunChange::Close { accept_difference } => {
            must_be(state == RunState::Stopped, "closed")?;
            if *accept_difference { reason("closed over a difference") } else { Ok(()) }
        }
        RunChange::Hold => {
            must_be(state != RunState::Discarded, "held")?;
            not_held(record)?;
            reason("held")
        }
        RunChange::EndHold if record.is_held() => Ok(()),
        RunChange::EndHold => Err(Refusal::NotHeld(run)),
        RunChange::Discard => {
            must_be(!matches!(state, RunState::Running | RunState::Discarded), "discarded")?;
            not_held(record)?;
            reason("discarded")
        }
    }
}

fn not_held(record: &RunRecord) -> Result<(), Refusal> {
    match record.hold.as_ref().filter(|_| record.is_held()) {
        Some(hold) => Err(Refusal::Held { run: record.run, by: hold.begun.by.clone() }),
        None => Ok(()),
    }
}

/// A run after a change that may be made.
fn changed(
    record: &RunRecord,
    change: &RunChange,
    streams: Vec<RunStream>,
    counts: RunCounts,
    step: RunStep,
) -> Result<RunRecord, Refusal> {
    let mut run = record.clone();
    run.changes = run.changes.checked_add(1).ok_or(Refusal::Changed(run.run))?;
    match change {
        RunChange::Declare { .. } => return Err(Refusal::Used { run: run.run, state: run.state }),
        RunChange::Start => (run.state, run.started, run.streams) = (RunState::Running, Some(step), streams),
        RunChange::Stop { events, fragments } => {
            (run.state, run.stopped) = (RunState::Stopped, Some(step));
            (run.expected_events, run.expected_fragments) = (*events, fragments.clone());
        }
        RunChange::Close { accept_difference } => {
            let agrees = run.expected_events == Some(counts.events) && counts.undecided == 0;
            if !agrees && !accept_difference {
                return Err(Refusal::Differs { run: run.run, expected: run.expected_events, counts });
            }
            (run.state, run.closed, run.counted) = (RunState::Closed, Some(step), Some(counts));
        }
        RunChange::Hold => run.hold = Some(RunHold { begun: step, ended: None }),
        RunChange::EndHold => {
            let hold = run.hold.as_mut().ok_or(Refusal::NotHeld(record.run))?;
            hold.ended = Some(step);
        }
        RunChange::Discard => (run.state, run.discarded) = (RunState::Discarded, Some(step)),
    }
    Ok(run)
}
