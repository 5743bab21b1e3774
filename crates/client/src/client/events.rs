//! What the client does with events: read, lease, decide, list, release.

use std::time::Duration;

use forebay_protocol::{self as protocol, Accepted, Delete, GetEvent, LeaseReply, Release, decide_from_verdicts};
use forebay_types::limits::{BATCH_RECORDS_MAX, STREAMS_MAX};
use forebay_types::{DecideOutcome, EventKey, RunId, SourceId, StreamName, Verdict};

use super::scatter::{merge_accepted, scatter, share};
use super::{Client, unexpected};
use crate::answer::{AcceptedPage, Decision, FetchedEvent, Lease};
use crate::error::ClientError;
use crate::session::{Answer, Request};

/// The waits before what could not be made durable for now is told again; they double between these.
const RETELL_MIN: Duration = Duration::from_millis(50);
const RETELL_MAX: Duration = Duration::from_secs(2);

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
        // More sources than a request names: all are asked for, and those not wanted left out.
        let named = sources.filter(|sources| sources.len() <= BATCH_RECORDS_MAX).map(<[_]>::to_vec);
        let parts = scatter(events.len(), |place| self.lane_of(events[place]));
        let request = |places: &[usize]| {
            let events = places.iter().map(|place| events[*place]).collect();
            Request::GetEvent(GetEvent { events, sources: named.clone() })
        };
        let answers = self.ask(parts.iter().map(|(lane, places)| (*lane, request(places))).collect())?;
        let mut fetched: Vec<Option<FetchedEvent>> = vec![None; events.len()];
        for ((_, places), answer) in parts.iter().zip(answers) {
            let Answer::Events(events) = answer else { unexpected(&answer) };
            for (place, mut event) in places.iter().zip(events) {
                if let (Some(sources), None) = (sources, &named) {
                    event.fragments.retain(|fragment| sources.contains(&fragment.source));
                }
                fetched[*place] = Some(event);
            }
        }
        Ok(fetched.into_iter().map(|event| event.expect("each event lies in one lane")).collect())
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
        let max = max.min(BATCH_RECORDS_MAX as u32);
        let answers = self.ask_all_lanes(|_| Request::Accepted(Accepted { stream: stream.clone(), after, max }))?;
        let replies = answers.into_iter().map(|answer| match answer {
            Answer::Accepted(reply) => reply,
            other => unexpected(&other),
        });
        Ok(merge_accepted(replies.collect(), max))
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
        let request = |places: &[usize]| {
            let events = places.iter().map(|place| events[*place]).collect();
            (Request::Release(Release { stream: stream.clone(), events }), places.len())
        };
        self.tell(events.len(), |place| events[place], request)
    }

    /// Tells `count` things about events and gathers their outcomes; `request` makes a request of the
    /// first so many of some places.
    fn tell(
        &mut self,
        count: usize,
        key_of: impl Fn(usize) -> EventKey,
        request: impl Fn(&[usize]) -> (Request, usize),
    ) -> Result<Vec<DecideOutcome>, ClientError> {
        let started = self.driver.now();
        let mut outcomes = vec![DecideOutcome::Unavailable; count];
        let mut left: Vec<usize> = (0..count).collect();
        let mut pause = RETELL_MIN;
        while !left.is_empty() {
            let mut places_of = Vec::new();
            let mut requests = Vec::new();
            for (lane, part) in scatter(left.len(), |index| self.lane_of(key_of(left[index]))) {
                let mut places: Vec<usize> = part.into_iter().map(|index| left[index]).collect();
                while !places.is_empty() {
                    let (request, taken) = request(&places);
                    requests.push((lane, request));
                    let behind = places.split_off(taken);
                    places_of.push(std::mem::replace(&mut places, behind));
                }
            }
            for (places, answer) in places_of.iter().zip(self.ask(requests)?) {
                let Answer::Decided(decided) = answer else { unexpected(&answer) };
                for (place, outcome) in places.iter().zip(decided) {
                    outcomes[*place] = outcome;
                }
            }
            left.retain(|place| matches!(outcomes[*place], DecideOutcome::NoSpace | DecideOutcome::Unavailable));
            let spent = self.driver.now().since(started) + pause;
            if left.is_empty() || self.driver.config().deadline.is_some_and(|deadline| spent >= deadline) {
                break;
            }
            self.driver.rest(pause).map_err(|error| self.system(error))?;
            pause = (pause * 2).min(RETELL_MAX);
        }
        Ok(outcomes)
    }
}
