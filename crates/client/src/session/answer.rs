//! How the answers to requests other than puts are put together from replies.

mod file;

use bytes::Bytes;
use forebay_protocol::{
    Accepted, AcceptedReply, Decide, DecideReply, Delete, Done, EventState, FileInfo, FileReply, Frame, Get, GetEvent,
    GetEventReply, GetReply, Kind, Lease, LeaseReply, ListReply, Message, NameList, NodeReply, Release, RunInfo,
    RunsReply, StatusReply, StreamInfo, StreamsReply, Subscribe, SubscribeReply,
};
use forebay_types::{Cursor, DecideOutcome, EventKey, FragmentId, ReadOutcome, crc32c};

use super::request::Request;
use super::{Part, SessionError};
use crate::answer::{FetchedEvent, FetchedFragment};

/// Fragments of one event that an answer may have; their expected number is a u16 on the wire.
const EVENT_FRAGMENTS_MAX: usize = 1 << 16;

/// Runs that an answer may list.
const RUNS_MAX: usize = 1 << 20;

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To Get: what was found, in the order of the request, with checked bytes.
    Fragments(Vec<(ReadOutcome, Vec<u8>)>),
    /// To GetEvent: in the order of the request, with checked bytes.
    Events(Vec<FetchedEvent>),
    /// To Delete, Decide and Release: in the order of the request.
    Decided(Vec<DecideOutcome>),
    /// To Lease.
    Lease(LeaseReply),
    /// To Accepted.
    Accepted(AcceptedReply),
    /// To Subscribe: what happened behind the place that was given, not more than was asked for.
    Told(SubscribeReply),
    /// To Streams.
    Streams(Vec<StreamInfo>),
    /// To Runs.
    Runs(Vec<RunInfo>),
    /// To Status, Trace, Losses, ChangeRun, RunList, DefineStream and StreamList: one JSON object.
    Status(String),
    /// To Ping, InjectFault, ChangeDrive and Scrub.
    Done,
    /// To FileOpen, FileClose, FileSet, FileSeal and FileWrite.
    File(FileReply),
    /// To FileRead: what it found, and the bytes, checked; not more than were asked for.
    FileBytes(ReadOutcome, Bytes),
    /// To FileStat: as many as were asked for, in their order.
    FileInfos(Vec<FileInfo>),
    /// To NameLookup and ChangeName.
    Node(NodeReply),
    /// To NameList: valid names, ascending, behind the one that was given, not more than were asked for.
    Names(ListReply),
}

/// How far an answer is.
pub(super) enum Collected {
    More,
    All(Answer),
    /// All came, but something had other bytes than its checksum says.
    Damaged(Damage),
}

/// What came with bytes that are not its own.
#[derive(Clone, Copy)]
pub(super) struct Damage {
    pub(super) part: Part,
    pub(super) expected: u32,
    pub(super) found: u32,
}

impl Damage {
    /// Bytes with a checksum that is not theirs.
    fn of(part: Part, expected: u32, bytes: &[u8]) -> Option<Damage> {
        let found = crc32c(bytes);
        (found != expected).then_some(Damage { part, expected, found })
    }
}

/// Puts the replies to one request together.
pub(super) struct Collector {
    wanted: Wanted,
    damaged: Option<Damage>,
}

enum Wanted {
    Fragments { ids: Vec<FragmentId>, found: Vec<Option<(ReadOutcome, Vec<u8>)>> },
    Events { keys: Vec<EventKey>, found: Vec<Found> },
    Decided { count: usize },
    Lease { max_events: u32 },
    Accepted { after: Option<EventKey>, max: u32 },
    Told { after: Option<Cursor>, max: u32 },
    Streams,
    Runs { runs: Vec<RunInfo> },
    Status,
    Done,
    File(file::Wanted),
}

/// What came of an event; its line and its fragments come in any order.
#[derive(Clone, Default)]
struct Found {
    line: Option<(ReadOutcome, EventState, u16, u32)>,
    fragments: Vec<FetchedFragment>,
}

impl Collector {
    pub(super) fn new(request: Request) -> Self {
        let wanted = match request {
            Request::Get(Get { ids }) => Wanted::Fragments { found: vec![None; ids.len()], ids },
            Request::GetEvent(GetEvent { events, .. }) => {
                Wanted::Events { found: vec![Found::default(); events.len()], keys: events }
            }
            Request::Delete(Delete { events }) | Request::Release(Release { events, .. }) => {
                Wanted::Decided { count: events.len() }
            }
            Request::Decide(Decide { entries, .. }) => Wanted::Decided { count: entries.len() },
            Request::Lease(Lease { max_events, .. }) => Wanted::Lease { max_events },
            Request::Accepted(Accepted { after, max, .. }) => Wanted::Accepted { after, max },
            Request::Subscribe(Subscribe { after, max, .. }) => Wanted::Told { after, max },
            Request::Streams(_) => Wanted::Streams,
            Request::Runs(_) => Wanted::Runs { runs: Vec::new() },
            Request::Status(_) | Request::Trace(_) | Request::Losses(_) => Wanted::Status,
            Request::ChangeRun(_) | Request::RunList(_) | Request::DefineStream(_) | Request::StreamList(_) => {
                Wanted::Status
            }
            Request::Ping(_) | Request::InjectFault(_) | Request::ChangeDrive(_) | Request::Scrub(_) => Wanted::Done,
            Request::FileOpen(_) | Request::FileClose(_) | Request::FileSet(_) | Request::FileSeal(_) => {
                Wanted::File(file::Wanted::Changed)
            }
            Request::FileWrite(write, _) => {
                Wanted::File(file::Wanted::Written { start: write.start, bytes: write.bytes })
            }
            Request::FileRead(read) => Wanted::File(file::Wanted::Bytes(read)),
            Request::FileStat(stat) => Wanted::File(file::Wanted::Infos { count: stat.files.len() }),
            Request::NameLookup(_) => Wanted::File(file::Wanted::Found),
            Request::ChangeName(_) => Wanted::File(file::Wanted::Renamed),
            Request::NameList(NameList { after, max, .. }) => Wanted::File(file::Wanted::Names { after, max }),
        };
        Collector { wanted, damaged: None }
    }

    /// Forgets what came: the request is sent again.
    pub(super) fn restart(&mut self) {
        self.damaged = None;
        match &mut self.wanted {
            Wanted::Fragments { found, .. } => found.fill(None),
            Wanted::Events { found, .. } => found.fill(Found::default()),
            Wanted::Runs { runs } => runs.clear(),
            _ => {}
        }
    }

    /// Takes a reply; `shared` is its payload where that may be kept as it is.
    pub(super) fn take(&mut self, frame: &Frame<'_>, shared: Option<&Bytes>) -> Result<Collected, SessionError> {
        let more = frame.header.more();
        let answer = match (&mut self.wanted, frame.kind()) {
            (Wanted::Fragments { ids, found }, Some(Kind::GetReply)) => {
                take_fragments(ids, found, &mut self.damaged, frame)?;
                if more {
                    return Ok(Collected::More);
                }
                None
            }
            (Wanted::Events { keys, found }, Some(Kind::GetEventReply)) => {
                take_events(keys, found, &mut self.damaged, frame)?;
                if more {
                    return Ok(Collected::More);
                }
                None
            }
            (Wanted::Runs { runs }, Some(Kind::RunsReply)) => {
                runs.extend(RunsReply::decode(frame.table, frame.payload)?.runs);
                if runs.len() > RUNS_MAX {
                    return broken(format!("more than {RUNS_MAX} runs were listed"));
                }
                if more {
                    return Ok(Collected::More);
                }
                Some(Answer::Runs(std::mem::take(runs)))
            }
            _ if more => return broken(format!("{:#06x} came in parts", frame.header.kind)),
            (Wanted::File(wanted), _) => Some(wanted.take(frame, &mut self.damaged, shared)?),
            (wanted, _) => Some(wanted.take_single(frame)?),
        };
        if let Some(damage) = self.damaged {
            return Ok(Collected::Damaged(damage));
        }
        match answer {
            Some(answer) => Ok(Collected::All(answer)),
            None => self.wanted.finish().map(Collected::All),
        }
    }
}

impl Wanted {
    fn take_single(&self, frame: &Frame<'_>) -> Result<Answer, SessionError> {
        let Frame { table, payload, .. } = *frame;
        Ok(match (self, frame.kind()) {
            (Wanted::Decided { count }, Some(Kind::DecideReply)) => {
                let outcomes = DecideReply::decode(table, payload)?.outcomes;
                if outcomes.len() != *count {
                    return broken(format!("{count} events were answered with {} outcomes", outcomes.len()));
                }
                Answer::Decided(outcomes)
            }
            (Wanted::Lease { max_events }, Some(Kind::LeaseReply)) => {
                let reply = LeaseReply::decode(table, payload)?;
                if reply.events.len() > *max_events as usize {
                    return broken(format!("{} events were leased instead of {max_events}", reply.events.len()));
                }
                Answer::Lease(reply)
            }
            (Wanted::Accepted { after, max }, Some(Kind::AcceptedReply)) => {
                let reply = AcceptedReply::decode(table, payload)?;
                let ascending = reply.events.windows(2).all(|pair| pair[0].key < pair[1].key);
                let behind = reply.events.first().is_none_or(|first| after.is_none_or(|after| first.key > after));
                if !ascending || !behind || reply.events.len() > *max as usize {
                    return broken("accepted events were listed out of order".to_owned());
                }
                Answer::Accepted(reply)
            }
            (Wanted::Told { after, max }, Some(Kind::SubscribeReply)) => {
                let reply = SubscribeReply::decode(table, payload)?;
                check_told(&reply, *after, *max)?;
                Answer::Told(reply)
            }
            (Wanted::Streams, Some(Kind::StreamsReply)) => {
                Answer::Streams(StreamsReply::decode(table, payload)?.streams)
            }
            (Wanted::Status, Some(Kind::StatusReply)) => Answer::Status(StatusReply::decode(table, payload)?.json),
            (Wanted::Done, Some(Kind::Done)) => {
                Done::decode(table, payload)?;
                Answer::Done
            }
            _ => return broken(format!("frame {:#06x} answers something else than was asked", frame.header.kind)),
        })
    }

    /// The answer of several frames after the last of them.
    fn finish(&mut self) -> Result<Answer, SessionError> {
        match self {
            Wanted::Fragments { ids, found } => {
                let missing = found.iter().filter(|found| found.is_none()).count();
                if missing > 0 {
                    return broken(format!("of {} fragments, {missing} were not answered", ids.len()));
                }
                Ok(Answer::Fragments(std::mem::take(found).into_iter().flatten().collect()))
            }
            Wanted::Events { keys, found } => {
                let missing = found.iter().filter(|found| found.line.is_none()).count();
                if missing > 0 {
                    return broken(format!("of {} events, {missing} were not answered", keys.len()));
                }
                let events = keys.iter().zip(std::mem::take(found)).map(|(key, found)| found.finish(*key));
                Ok(Answer::Events(events.collect()))
            }
            _ => broken("an answer ended that never began".to_owned()),
        }
    }
}

impl Found {
    fn finish(mut self, key: EventKey) -> FetchedEvent {
        let (outcome, state, expected, stored) = self.line.expect("checked before");
        self.fragments.sort_by_key(|fragment| fragment.source);
        self.fragments.dedup_by_key(|fragment| fragment.source);
        FetchedEvent { key, outcome, state, expected, stored, fragments: self.fragments }
    }
}

fn take_fragments(
    ids: &[FragmentId],
    found: &mut [Option<(ReadOutcome, Vec<u8>)>],
    damaged: &mut Option<Damage>,
    frame: &Frame<'_>,
) -> Result<(), SessionError> {
    for (entry, payload) in GetReply::decode(frame.table, frame.payload)?.entries() {
        let index = entry.index as usize;
        let Some(id) = ids.get(index) else {
            return broken(format!("fragment {index} of {} was answered", ids.len()));
        };
        check(*id, entry.outcome, entry.crc, payload, damaged);
        found[index] = Some((entry.outcome, payload.to_vec()));
    }
    Ok(())
}

fn take_events(
    keys: &[EventKey],
    found: &mut [Found],
    damaged: &mut Option<Damage>,
    frame: &Frame<'_>,
) -> Result<(), SessionError> {
    let no_such = |index: u32| SessionError::Broken(format!("event {index} of {} was answered", keys.len()));
    let reply = GetEventReply::decode(frame.table, frame.payload)?;
    for line in reply.lines() {
        let found = found.get_mut(line.index as usize).ok_or_else(|| no_such(line.index))?;
        found.line = Some((line.outcome, line.state, line.expected, line.fragments));
    }
    for (entry, payload) in reply.entries() {
        let key = keys.get(entry.index as usize).ok_or_else(|| no_such(entry.index))?;
        check(key.fragment(entry.source), entry.outcome, entry.crc, payload, damaged);
        let fragment = FetchedFragment { source: entry.source, outcome: entry.outcome, payload: payload.to_vec() };
        let fragments = &mut found[entry.index as usize].fragments;
        if fragments.len() == EVENT_FRAGMENTS_MAX {
            return broken(format!("event {key} came with more than {EVENT_FRAGMENTS_MAX} fragments"));
        }
        fragments.push(fragment);
    }
    Ok(())
}

fn check(id: FragmentId, outcome: ReadOutcome, crc: u32, payload: &[u8], damaged: &mut Option<Damage>) {
    if outcome == ReadOutcome::Found {
        *damaged = Damage::of(Part::Fragment(id), crc, payload).or(*damaged);
    }
}

/// What is told and counted lies between the places.
fn check_told(reply: &SubscribeReply, after: Option<Cursor>, max: u32) -> Result<(), SessionError> {
    let from = match after {
        None => reply.next.sequence,
        Some(_) if reply.restarted => 0,
        Some(after) if after.start == reply.next.start => after.sequence,
        Some(_) => return broken("a subscriber was told of another start, and not that there was one".to_owned()),
    };
    let told = (reply.events.len() as u64).saturating_add(reply.gone.into()).saturating_add(reply.dropped);
    let passed = reply.next.sequence.checked_sub(from);
    if reply.events.len() > max as usize || passed.is_none_or(|passed| told > passed) {
        let (events, dropped, to) = (reply.events.len(), reply.dropped, reply.next.sequence);
        return broken(format!(
            "a subscriber was told of {events} events, {dropped} more were dropped, from {from} to {to}"
        ));
    }
    Ok(())
}

fn broken<T>(what: String) -> Result<T, SessionError> {
    Err(SessionError::Broken(what))
}
