//! What the client does with events: read, lease, decide, list, release.

use std::time::Duration;

use forebay_protocol::{self as protocol, Delete, LeaseReply, decide_from_verdicts};
use forebay_types::limits::{BATCH_RECORDS_MAX, STREAMS_MAX};
use forebay_types::{DecideOutcome, EventKey, RunId, SourceId, StreamName, Verdict};

use super::scatter::share;
use super::{Client, unexpected};
use crate::answer::{AcceptedPage, Decision, FetchedEvent, Lease};
use crate::error::ClientError;
use crate::session::{Answer, Request};
use crate::spread::{ListAccepted, ReadEvents, Telling, release_of};

/// Takes in what a lane gave of `asked` events. When it is worth to ask again is told by those that gave too few.
fn take_leased(lease: &mut Lease, reply: LeaseReply, asked: u32) {
    if reply.events.len() < asked as usize {
        lease.retry_after = lease.retry_after.min(Duration::from_millis(u64::from(reply.retry_after_ms)));
    }
    lease.events.extend(reply.events);
}

impl Client {
    /// Reads events, or some sources of them, over all lanes at once; the answers are in the order of
    /// `events`.
    ///
    /// # Errors
    /// When the server gives no answer at all.
    pub fn get_events(
        &mut self,
        events: &[EventKey],
        sources: Option<&[SourceId]>,
    ) -> Result<Vec<FetchedEvent>, ClientError> {
        let read = ReadEvents::new(events, sources, self.info().lanes);
        let answers = self.ask(read.requests())?;
        Ok(read.answered(answers))
    }

    /// Leases up to `max_events` undecided events, from all lanes in turn. An event that is not decided
    /// within `duration` goes to another filter; the server takes 100 ms to an hour.
    ///
    /// # Errors
    /// When the server gives no answer, or refuses the duration; leases of lanes that did answer run out
    /// by themselves.
    pub fn lease(
        &mut self,
        max_events: u32,
        duration: Duration,
        filter: u64,
        run: Option<RunId>,
    ) -> Result<Lease, ClientError> {
        let lanes = self.info().lanes;
        let duration_ms = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let most = BATCH_RECORDS_MAX as u32;
        let ask = |max: u32| Request::Lease(protocol::Lease { max_events: max.min(most), duration_ms, filter, run });
        let shares = share(max_events, lanes, self.next_lane);
        self.next_lane = (self.next_lane + 1) % lanes;

        let mut lease = Lease { events: Vec::new(), undecided: 0, retry_after: Duration::MAX };
        let mut rich = Vec::new();
        for (lane, answer) in (0..).zip(self.ask_all_lanes(|lane| ask(shares[usize::from(lane)]))?) {
            let Answer::Lease(reply) = answer else { unexpected(&answer) };
            if reply.events.len() >= shares[usize::from(lane)].min(most) as usize && reply.undecided > 0 {
                rich.push(lane);
            }
            lease.undecided = lease.undecided.saturating_add(reply.undecided);
            take_leased(&mut lease, reply, shares[usize::from(lane)].min(most));
        }
        // What poor lanes could not give, those that gave all they were asked for may have.
        for lane in rich {
            let missing = max_events.saturating_sub(lease.events.len() as u32);
            if missing == 0 || lanes == 1 {
                break;
            }
            match self.ask_one(lane, ask(missing))? {
                Answer::Lease(reply) => take_leased(&mut lease, reply, missing.min(most)),
                other => unexpected(&other),
            }
        }
        if lease.events.len() >= max_events as usize || lease.retry_after == Duration::MAX {
            lease.retry_after = Duration::ZERO;
        }
        Ok(lease)
    }

    /// Accepted events of a stream that it has not released, behind `after`, at most `max`.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn accepted(
        &mut self,
        stream: &StreamName,
        after: Option<EventKey>,
        max: u32,
    ) -> Result<AcceptedPage, ClientError> {
        let list = ListAccepted::new(max);
        let answers = self.ask(list.requests(stream, after, self.info().lanes))?;
        Ok(list.answered(answers))
    }

    /// Tells decisions; the outcomes are in their order. What could not be made durable for now is told
    /// again until the deadline.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; telling the same again is safe. When a
    /// decision accepts into no stream, or into more than a store has, before any is told.
    pub fn decide(&mut self, decisions: &[Decision]) -> Result<Vec<DecideOutcome>, ClientError> {
        for decision in decisions {
            if let Verdict::Accept(streams) = &decision.verdict
                && !(1..=STREAMS_MAX).contains(&streams.len())
            {
                return Err(ClientError::Streams { key: decision.key, streams: streams.len() });
            }
        }
        self.tell(
            decisions.len(),
            |place| decisions[place].key,
            |places| {
                let told = places.iter().map(|place| &decisions[*place]);
                let told = told.map(|decision| (decision.key, &decision.verdict, decision.incomplete));
                let (decide, taken) = decide_from_verdicts(told).expect("each names 1 to 64 streams");
                (Request::Decide(decide), taken)
            },
        )
    }

    /// Drops events, whatever was decided; the outcomes are in their order. What could not be made
    /// durable for now is told again until the deadline.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; deleting the same again is safe.
    pub fn delete(&mut self, events: &[EventKey]) -> Result<Vec<DecideOutcome>, ClientError> {
        let request = |places: &[usize]| {
            let events = places.iter().map(|place| events[*place]).collect();
            (Request::Delete(Delete { events }), places.len())
        };
        self.tell(events.len(), |place| events[place], request)
    }

    /// Says that `stream` has these events safely elsewhere; the outcomes are in their order. What could
    /// not be made durable for now is told again until the deadline.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; releasing the same again is safe.
    pub fn release(&mut self, stream: &StreamName, events: &[EventKey]) -> Result<Vec<DecideOutcome>, ClientError> {
        self.tell(events.len(), |place| events[place], release_of(stream, events))
    }

    /// Tells `count` things about events and gathers their outcomes; `request` makes a request of the
    /// first so many of some places.
    fn tell(
        &mut self,
        count: usize,
        key_of: impl Fn(usize) -> EventKey,
        request: impl Fn(&[usize]) -> (Request, usize),
    ) -> Result<Vec<DecideOutcome>, ClientError> {
        let until = self.driver.config().deadline.map(|deadline| self.driver.now() + deadline);
        let mut telling = Telling::new((0..count).map(key_of), self.info().lanes, until);
        loop {
            let requests = telling.requests(&request);
            let answers = self.ask(requests)?;
            match telling.answered(self.driver.now(), answers) {
                Some(pause) => self.driver.rest(pause).map_err(|error| self.system(error))?,
                None => return Ok(telling.outcomes()),
            }
        }
    }
}
