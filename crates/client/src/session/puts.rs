//! The puts of a session: the batch that fills, those that wait for credit, those in flight, and the
//! fragments that wait to be tried again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_protocol::limits::{BUSY_MS_MAX, FRAME_PAYLOAD_BYTES_MAX};
use forebay_protocol::{ErrorCode, HelloReply, Kind, PutEntry, PutReply, encode_head, put_table};
use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{FragmentId, PutOutcome, Time};

use super::RESEND;
use super::outbox::{FrameBytes, Outbox};
use super::payload::{Filling, Payload, PutBytes};
use super::random::SplitMix64;
use crate::answer::PutResult;

/// Batches in flight, however small.
const BATCHES_IN_FLIGHT_MAX: usize = 256;

/// A put without a result.
struct Item {
    entry: PutEntry,
    since: Time,
    attempts: u32,
    /// What the server last said.
    last: Option<PutOutcome>,
    /// It was reported (its deadline passed) while its batch was under way.
    reported: bool,
}

impl Item {
    fn bytes(&self) -> usize {
        self.entry.bytes as usize
    }

    fn result(&self, now: Time, outcome: PutOutcome, answered: bool) -> PutResult {
        PutResult { id: self.entry.id, outcome, answered, latency: now.since(self.since) }
    }

    /// The result when no more answer is waited for.
    fn last_result(&self, now: Time) -> PutResult {
        self.result(now, self.last.unwrap_or(PutOutcome::Unavailable), self.last.is_some())
    }
}

/// Puts that travel together. Once closed neither number nor content change any more.
struct Batch {
    head: Vec<u8>,
    payload: Payload,
    items: Vec<Item>,
    in_flight: bool,
    /// It was on its way since its puts were answered last: the server may have stored them.
    was_sent: bool,
    /// When the oldest put without a result was made.
    oldest: Option<Time>,
}

pub(super) struct Puts {
    batch_bytes: usize,
    batch_delay: Duration,
    deadline: Option<Duration>,
    /// The batch that fills, and since when.
    open: Vec<Item>,
    open_payload: Filling,
    open_since: Time,
    /// When the oldest put in it was made: one that is tried again is older than the batch.
    open_oldest: Time,
    closed: BTreeMap<u64, Batch>,
    /// Closed and not on their way.
    ready: VecDeque<u64>,
    ready_bytes: usize,
    /// Waiting to be tried again, by time.
    waiting: BTreeMap<(Time, u64), (Item, Bytes)>,
    waiting_bytes: usize,
    waited: u64,
    credit_bytes: u64,
    frame_bytes_max: usize,
    in_flight: usize,
    in_flight_bytes: u64,
    busy_until: Time,
    refusals: u32,
    pending: usize,
}

impl Puts {
    pub(super) fn new(batch_bytes: usize, batch_delay: Duration, deadline: Option<Duration>) -> Self {
        Puts {
            batch_bytes: batch_bytes.clamp(1, FRAME_PAYLOAD_BYTES_MAX),
            batch_delay,
            deadline,
            open: Vec::new(),
            open_payload: Filling::new(batch_bytes.clamp(1, FRAME_PAYLOAD_BYTES_MAX)),
            open_since: Time::default(),
            open_oldest: Time::default(),
            closed: BTreeMap::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            waited: 0,
            credit_bytes: u64::MAX,
            frame_bytes_max: FRAME_PAYLOAD_BYTES_MAX,
            in_flight: 0,
            in_flight_bytes: 0,
            busy_until: Time::default(),
            refusals: 0,
            pending: 0,
        }
    }

    /// Puts without a result.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Puts of the batches in flight that have no answer; `left` says whether the frame of a batch has left whole.
    pub(super) fn sent(&self, left: impl Fn(u64) -> bool) -> usize {
        let sent = self.closed.iter().filter(|(request, batch)| batch.in_flight && left(**request));
        sent.map(|(_, batch)| batch.items.iter().filter(|item| !item.reported).count()).sum()
    }

    /// What the server last said of a put that waits to be tried again.
    pub(super) fn wait_for(&self) -> Option<PutOutcome> {
        self.waiting.values().find_map(|(item, _)| item.last)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn is_in_flight(&self, request: u64) -> bool {
        self.closed.get(&request).is_some_and(|batch| batch.in_flight)
    }

    pub(super) fn has_room(&self) -> bool {
        let waits = self.open_payload.len() + self.ready_bytes + self.waiting_bytes;
        let records = self.open.len() + self.waiting.len();
        waits < 2 * self.batch_bytes && self.ready.len() < BATCHES_IN_FLIGHT_MAX && records < 2 * BATCH_RECORDS_MAX
    }

    pub(super) fn ready_batches(&self) -> usize {
        self.ready.len()
    }

    /// The bytes of a closed batch.
    pub(super) fn frame(&self, request: u64) -> FrameBytes<'_> {
        self.closed
            .get(&request)
            .map_or_else(FrameBytes::default, |batch| FrameBytes { head: &batch.head, payload: Some(&batch.payload) })
    }

    pub(super) fn push(
        &mut self,
        now: Time,
        id: FragmentId,
        expected: u16,
        payload: PutBytes<'_>,
        crc: u32,
        next_request: &mut u64,
    ) {
        assert!(payload.len() <= FRAME_PAYLOAD_BYTES_MAX, "a fragment of {} bytes fits no frame", payload.len());
        let entry = PutEntry { id, bytes: payload.len() as u32, crc, expected };
        let item = Item { entry, since: now, attempts: 0, last: None, reported: false };
        self.pending += 1;
        self.add(now, item, payload, next_request);
    }

    /// The most bytes that travel together; a larger fragment goes alone.
    fn batch_bytes_max(&self) -> usize {
        let credit = usize::try_from(self.credit_bytes).unwrap_or(usize::MAX);
        self.batch_bytes.min(credit.max(1)).min(self.frame_bytes_max)
    }

    fn add(&mut self, now: Time, item: Item, payload: PutBytes<'_>, next_request: &mut u64) {
        let max = self.batch_bytes_max();
        if self.open_payload.len() + payload.len() > max {
            self.close_batch(next_request);
        }
        if self.open.is_empty() {
            self.open_since = now;
            self.open_oldest = item.since;
        }
        self.open_payload.add(payload);
        self.open_oldest = self.open_oldest.min(item.since);
        self.open.push(item);
        if self.open_payload.len() >= max || self.open.len() == BATCH_RECORDS_MAX {
            self.close_batch(next_request);
        }
    }

    /// Closes the batch that fills: it gets its number and its table.
    pub(super) fn close_batch(&mut self, next_request: &mut u64) {
        if self.open.is_empty() {
            return;
        }
        let request = *next_request;
        *next_request += 1;
        let items = std::mem::take(&mut self.open);
        let payload = self.open_payload.take();
        let entries: Vec<PutEntry> = items.iter().map(|item| item.entry).collect();
        let mut head = Vec::new();
        encode_head(Kind::Put, 0, request, &put_table(&entries), payload.len(), &mut head);
        self.ready_bytes += payload.len();
        self.ready.push_back(request);
        let oldest = Some(self.open_oldest);
        self.closed.insert(request, Batch { head, payload, items, in_flight: false, was_sent: false, oldest });
    }

    /// Takes up the retries that are due, and closes the batch that fills when it is old enough and could
    /// leave: while credit is used up it grows instead.
    pub(super) fn advance(&mut self, now: Time, is_up: bool, next_request: &mut u64, results: &mut Vec<PutResult>) {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 <= now) {
            let (item, payload) = entry.remove();
            self.waiting_bytes -= payload.len();
            if self.deadline.is_some_and(|deadline| item.since + deadline <= now) {
                self.pending -= 1;
                results.push(item.last_result(now));
            } else {
                self.add(now, item, PutBytes::Shared(&payload), next_request);
            }
        }
        let due = !self.open.is_empty() && now >= self.open_since + self.batch_delay;
        if due && is_up && self.ready.is_empty() && self.may_send(now, self.open_payload.len()) {
            self.close_batch(next_request);
        }
    }

    fn may_send(&self, now: Time, bytes: usize) -> bool {
        let within = self.in_flight < BATCHES_IN_FLIGHT_MAX && self.in_flight_bytes + bytes as u64 <= self.credit_bytes;
        now >= self.busy_until && (self.in_flight == 0 || within)
    }

    /// Takes the next batch that credit allows on its way.
    pub(super) fn start_next(&mut self, now: Time) -> Option<u64> {
        let request = *self.ready.front()?;
        let bytes = self.closed[&request].payload.len();
        if !self.may_send(now, bytes) {
            return None;
        }
        self.ready.pop_front();
        self.ready_bytes -= bytes;
        self.in_flight += 1;
        self.in_flight_bytes += bytes as u64;
        let batch = self.closed.get_mut(&request).expect("ready batches are closed ones");
        (batch.in_flight, batch.was_sent) = (true, true);
        Some(request)
    }

    pub(super) fn connected(&mut self, now: Time, greeting: &HelloReply) {
        self.credit_bytes = u64::from(greeting.credit_bytes);
        self.frame_bytes_max = (greeting.frame_payload_bytes_max as usize).clamp(1, FRAME_PAYLOAD_BYTES_MAX);
        self.busy_until = now;
    }

    /// What was in flight will be sent again, in its order.
    pub(super) fn connection_lost(&mut self) {
        (self.in_flight, self.in_flight_bytes) = (0, 0);
        self.closed.retain(|_, batch| {
            batch.in_flight = false;
            batch.oldest.is_some()
        });
        self.ready = self.closed.keys().copied().collect();
        self.ready_bytes = self.closed.values().map(|batch| batch.payload.len()).sum();
    }

    fn land(&mut self, request: u64) -> Batch {
        let batch = self.closed.remove(&request).expect("only batches in flight land");
        self.in_flight -= 1;
        self.in_flight_bytes -= batch.payload.len() as u64;
        batch
    }

    /// The server answered a batch: reports what is final, and keeps the rest for later.
    ///
    /// # Errors
    /// When the answer is not one to this batch, which stays in flight.
    pub(super) fn answered(
        &mut self,
        now: Time,
        request: u64,
        reply: &PutReply,
        random: &mut SplitMix64,
        results: &mut Vec<PutResult>,
    ) -> Result<(), String> {
        let items = self.closed[&request].items.len();
        if reply.outcomes.len() != items {
            return Err(format!("{items} puts were answered with {} outcomes", reply.outcomes.len()));
        }
        let busy = Duration::from_millis(u64::from(reply.busy_ms.min(BUSY_MS_MAX)));
        self.credit_bytes = u64::from(reply.credit_bytes);
        self.busy_until = self.busy_until.max(now + busy);
        self.refusals = 0;
        let batch = self.land(request);
        let lengths: Vec<usize> = batch.items.iter().map(Item::bytes).collect();
        let outcomes = reply.outcomes.iter();
        let kept: usize =
            lengths.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_retryable()).map(|(bytes, _)| bytes).sum();
        // A few that wait must not hold the memory of the whole batch.
        let copies = 2 * kept < batch.payload.len();
        let payloads = batch.payload.split(lengths.into_iter());
        for ((mut item, payload), outcome) in batch.items.into_iter().zip(payloads).zip(&reply.outcomes) {
            if item.reported {
                continue;
            }
            let expiry = self.deadline.map(|deadline| item.since + deadline);
            if !outcome.is_retryable() || expiry.is_some_and(|at| at <= now) {
                self.pending -= 1;
                results.push(item.result(now, *outcome, true));
                continue;
            }
            let delay = RESEND.delay(item.attempts, random).max(busy);
            item.attempts = item.attempts.saturating_add(1);
            item.last = Some(*outcome);
            let due = expiry.map_or(now + delay, |at| at.min(now + delay));
            self.waited += 1;
            self.waiting_bytes += payload.len();
            let payload = if copies { Bytes::copy_from_slice(&payload) } else { payload };
            self.waiting.insert((due, self.waited), (item, payload));
        }
        Ok(())
    }

    /// The server could not serve the batch for now: it is sent again, under its number.
    pub(super) fn refused_for_now(&mut self, now: Time, request: u64, random: &mut SplitMix64) {
        let mut batch = self.land(request);
        self.busy_until = self.busy_until.max(now + RESEND.delay(self.refusals, random));
        self.refusals = self.refusals.saturating_add(1);
        if batch.oldest.is_none() {
            return;
        }
        (batch.in_flight, batch.was_sent) = (false, false);
        self.ready_bytes += batch.payload.len();
        let place = self.ready.partition_point(|other| *other < request);
        self.ready.insert(place, request);
        self.closed.insert(request, batch);
    }

    /// The server will not serve the batch. Gives the number of puts that are reported by it.
    pub(super) fn refused(
        &mut self,
        now: Time,
        request: u64,
        code: ErrorCode,
        outbox: &mut Outbox,
        results: &mut Vec<PutResult>,
    ) -> usize {
        let batch = self.land(request);
        let before = results.len();
        let outcome = match code {
            ErrorCode::ReadOnly => Some(PutOutcome::ReadOnly),
            ErrorCode::TooLarge => Some(PutOutcome::TooLarge),
            _ => None,
        };
        for item in batch.items.iter().filter(|item| !item.reported) {
            results.push(outcome.map_or_else(|| item.last_result(now), |outcome| item.result(now, outcome, true)));
        }
        self.pending -= results.len() - before;
        outbox.forget_frame(request, batch.head, &batch.payload);
        results.len() - before
    }

    /// Reports the puts whose deadline has passed, as what the server last said. Gives the number of
    /// those of which it never said anything.
    pub(super) fn expire(&mut self, now: Time, results: &mut Vec<PutResult>) -> usize {
        let Some(limit) = self.deadline else { return 0 };
        let before = results.len();
        let late = |since: Time| since + limit <= now;
        if !self.open.is_empty() && late(self.open_oldest) {
            self.expire_open(now, limit, results);
        }
        let batches: Vec<u64> =
            self.closed.iter().filter(|(_, batch)| batch.oldest.is_some_and(late)).map(|(n, _)| *n).collect();
        for request in batches {
            let batch = self.closed.get_mut(&request).expect("it was just found");
            for item in batch.items.iter_mut().filter(|item| !item.reported && late(item.since)) {
                item.reported = true;
                let result = item.last_result(now);
                results.push(PutResult { answered: result.answered && !batch.was_sent, ..result });
            }
            batch.oldest = batch.items.iter().filter(|item| !item.reported).map(|item| item.since).min();
            if batch.oldest.is_none() && !batch.in_flight {
                let batch = self.closed.remove(&request).expect("it was just found");
                self.ready.retain(|ready| *ready != request);
                self.ready_bytes -= batch.payload.len();
            }
        }
        self.pending -= results.len() - before;
        results[before..].iter().filter(|result| !result.answered).count()
    }

    fn expire_open(&mut self, now: Time, limit: Duration, results: &mut Vec<PutResult>) {
        let payload = self.open_payload.take();
        let items = std::mem::take(&mut self.open);
        let lengths: Vec<usize> = items.iter().map(Item::bytes).collect();
        for (item, bytes) in items.into_iter().zip(payload.split(lengths.into_iter())) {
            if item.since + limit <= now {
                results.push(item.last_result(now));
            } else {
                self.open_payload.add(PutBytes::Shared(&bytes));
                self.open.push(item);
            }
        }
        self.open_oldest = self.open.iter().map(|item| item.since).min().unwrap_or_default();
    }

    /// Reports every put: nothing more can be sent. Gives their number.
    pub(super) fn give_up(&mut self, now: Time, results: &mut Vec<PutResult>) -> usize {
        let before = results.len();
        let mut report = |item: &Item, was_sent: bool| {
            if !item.reported {
                let result = item.last_result(now);
                results.push(PutResult { answered: result.answered && !was_sent, ..result });
            }
        };
        for batch in std::mem::take(&mut self.closed).into_values() {
            batch.items.iter().for_each(|item| report(item, batch.was_sent));
        }
        std::mem::take(&mut self.waiting).into_values().for_each(|(item, _)| report(&item, false));
        std::mem::take(&mut self.open).iter().for_each(|item| report(item, false));
        self.open_payload.take();
        self.ready.clear();
        (self.ready_bytes, self.waiting_bytes, self.in_flight, self.in_flight_bytes, self.pending) = (0, 0, 0, 0, 0);
        results.len() - before
    }

    /// When something is due: a deadline, a retry, or a batch that is old enough to leave.
    pub(super) fn next_deadline(&self, is_up: bool) -> Option<Time> {
        let open_oldest = (!self.open.is_empty()).then_some(self.open_oldest);
        let oldest = self.closed.values().filter_map(|batch| batch.oldest).chain(open_oldest).min();
        let expiry = self.deadline.and_then(|deadline| oldest.map(|since| since + deadline));
        let retry = self.waiting.first_key_value().map(|((due, _), _)| *due);
        let leave = if !is_up {
            None
        } else if let Some(request) = self.ready.front() {
            let bytes = self.closed[request].payload.len();
            self.may_send(self.busy_until, bytes).then_some(self.busy_until)
        } else if !self.open.is_empty() && self.may_send(self.busy_until, self.open_payload.len()) {
            Some(self.busy_until.max(self.open_since + self.batch_delay))
        } else {
            None
        };
        [expiry, retry, leave].into_iter().flatten().min()
    }
}
