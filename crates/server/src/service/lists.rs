//! Requests that are answered at once: leases, accepted events, what is told to those who look on, streams, runs, the state.

use std::time::Duration;

use forebay_engine::Subscription;
use forebay_protocol::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use forebay_protocol::{
    Accepted, AcceptedEvent, AcceptedReply, ErrorCode, ErrorReply, FLAG_MORE, FrameError, Kind, Lease, LeaseReply,
    LeasedEvent, Losses, Message, RunInfo, Runs, RunsReply, Status, StatusReply, StreamInfo, Streams, StreamsReply,
    Subscribe, SubscribeReply, ToldEvent,
};
use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{EventId, RunId, Time};

use super::Core;
use super::begin::{Begun, Refusal};
use crate::lane_requests::LaneRequests;
use crate::limits::{COUNTS_AGE, LEASE_RETRY_MS, LOSSES_AT_ONCE, TOLD_AT_ONCE, TOLD_RETRY_MS};
use crate::status::to_json;

/// How many undecided events the runs have; counting them takes a walk over all runs.
#[derive(Default)]
pub(super) struct UndecidedCounts {
    counts: Vec<(RunId, u64)>,
    at: Option<Time>,
}

impl UndecidedCounts {
    fn of(&mut self, run: Option<RunId>, now: Time, lane: &impl LaneRequests) -> u64 {
        if self.at.is_none_or(|at| now >= at + COUNTS_AGE) {
            self.counts = lane.runs().into_iter().map(|view| (view.run, view.undecided)).collect();
            self.at = Some(now);
        }
        let wanted = |(other, _): &&(RunId, u64)| run.is_none_or(|run| run == *other);
        self.counts.iter().filter(wanted).map(|(_, undecided)| undecided).sum()
    }
}

impl Core {
    pub(super) fn read_list<L: LaneRequests>(
        &mut self,
        kind: Kind,
        table: &[u8],
        lane: &mut L,
    ) -> Result<Begun, Refusal> {
        if kind != Kind::Status {
            self.check_reads(lane)?;
        }
        Ok(match kind {
            Kind::Lease => {
                let lease = Lease::read_table(table)?;
                check_duration(&lease)?;
                answer(self.lease(&lease, lane))
            }
            Kind::Accepted => answer(accepted(Accepted::read_table(table)?, lane)),
            Kind::Subscribe => answer(self.told(Subscribe::read_table(table)?, lane)),
            Kind::Streams => {
                Streams::read_table(table)?;
                answer(StreamsReply { streams: stream_infos(lane) })
            }
            Kind::Runs => {
                Runs::read_table(table)?;
                answer_runs(run_infos(lane))
            }
            Kind::Status => {
                Status::read_table(table)?;
                answer(StatusReply { json: self.report(lane).to_json() })
            }
            Kind::Losses => {
                let Losses { from, max } = Losses::read_table(table)?;
                answer(StatusReply { json: to_json(&lane.losses(from, max.min(LOSSES_AT_ONCE))) })
            }
            _ => {
                return Err(FrameError::BadValue { message: "request", what: "kind", value: kind.code().into() }.into());
            }
        })
    }

    fn lease(&mut self, lease: &Lease, lane: &mut impl LaneRequests) -> LeaseReply {
        let wanted = (lease.max_events as usize).min(BATCH_RECORDS_MAX);
        let mut leased = Vec::new();
        let duration = Duration::from_millis(u64::from(lease.duration_ms));
        if wanted > 0 {
            lane.lease(wanted, duration, lease.run, &mut leased);
        }
        self.events_leased += leased.len() as u64;
        let undecided = self.undecided.of(lease.run, self.now, lane).max(leased.len() as u64);
        let retry_after_ms = if leased.len() < wanted { LEASE_RETRY_MS } else { 0 };
        let event = |event: forebay_engine::LeasedEvent| LeasedEvent {
            key: event.key,
            fragments: event.fragments,
            expected: event.expected,
            attempt: event.attempt,
            bytes: event.bytes,
            incomplete: event.incomplete,
        };
        LeaseReply { events: leased.into_iter().map(event).collect(), undecided, retry_after_ms }
    }

    /// What happened to events, for somebody who looks on.
    fn told(&mut self, asked: Subscribe, lane: &impl LaneRequests) -> SubscribeReply {
        let Subscribe { max, fraction, run, after, stream } = asked;
        let wanted = Subscription { run, stream, fraction, after };
        let page = lane.told(&wanted, max.min(TOLD_AT_ONCE) as usize);
        let event = |event: &forebay_engine::ToldEvent| ToldEvent {
            key: event.key,
            fragments: event.fragments,
            bytes: event.bytes,
            incomplete: event.incomplete,
        };
        self.told.events += page.events.len() as u64;
        self.told.gone += u64::from(page.gone);
        self.told.dropped += page.dropped;
        SubscribeReply {
            events: page.events.iter().map(event).collect(),
            next: page.next,
            restarted: page.restarted,
            dropped: page.dropped,
            gone: page.gone,
            retry_after_ms: if page.more { 0 } else { TOLD_RETRY_MS },
        }
    }
}

/// A lease that no filter can use is refused: when it has run out a few times, its events would be decided without one.
fn check_duration(lease: &Lease) -> Result<(), ErrorReply> {
    if lease.max_events == 0 || (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease.duration_ms) {
        return Ok(());
    }
    let sentence = format!(
        "a lease of {} ms is refused, and no event was leased: give {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, some times what a filter needs for \
         the events of one lease",
        lease.duration_ms
    );
    Err(ErrorReply { code: ErrorCode::Refused, retryable: false, sentence })
}

fn answer<M: Message + 'static>(message: M) -> Begun {
    Begun::Answer(Box::new(move |core, connection, request| connection.send(&mut core.chunks, request, &message)))
}

fn answer_runs(runs: Vec<RunInfo>) -> Begun {
    Begun::Answer(Box::new(move |core, connection, request| {
        connection.out.append(&mut core.chunks, |chunk| encode_runs(request, &runs, chunk));
    }))
}

/// Appends runs in as many frames as they need.
fn encode_runs(request: u64, runs: &[RunInfo], into: &mut Vec<u8>) {
    let mut parts = runs.chunks(BATCH_RECORDS_MAX).peekable();
    if parts.peek().is_none() {
        RunsReply { runs: Vec::new() }.encode(request, into);
    }
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { FLAG_MORE } else { 0 };
        RunsReply { runs: part.to_vec() }.encode_with(request, flags, into);
    }
}

fn accepted(asked: Accepted, lane: &impl LaneRequests) -> AcceptedReply {
    let page = lane.accepted(&asked.stream, asked.after, (asked.max as usize).min(BATCH_RECORDS_MAX));
    let event = |event: &forebay_engine::AcceptedEvent| AcceptedEvent {
        key: event.key,
        fragments: event.fragments,
        bytes: event.bytes,
        incomplete: event.incomplete,
    };
    AcceptedReply {
        events: page.events.iter().map(event).collect(),
        more: page.more,
        undecided_floor: page.undecided_floor,
    }
}

/// The streams of a lane as they are told.
fn stream_infos(lane: &impl LaneRequests) -> Vec<StreamInfo> {
    lane.streams().into_iter().map(|view| StreamInfo { name: view.name, accepted: view.events }).collect()
}

/// The runs of a lane as they are told: finished events are known too.
fn run_infos(lane: &impl LaneRequests) -> Vec<RunInfo> {
    let info = |view: forebay_engine::RunView| {
        let (first, last) = view.range.unwrap_or_default();
        RunInfo {
            run: view.run,
            events: view.events + view.finished,
            undecided: view.undecided,
            finished: view.finished,
            first_event: EventId(first),
            last_event: EventId(last),
        }
    };
    lane.runs().into_iter().map(info).collect()
}
