//! What the server asks a lane.

mod files;

use forebay_engine::{
    AcceptedPage, Admission, EventView, Fetch, FetchEvent, Lane, LaneStatus, LeasedEvent, LossPage, Put, Reply,
    RunView, StreamView, Subscription, Token, ToldPage,
};
use forebay_types::{
    DecideOutcome, EventId, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, RunPuts, StreamName, Verdict,
};
use std::time::Duration;

pub use files::FileRequests;

/// The requests of a lane as the server makes them: [`Lane`], or what a test puts in its place. The methods are those of [`Lane`].
#[expect(missing_docs, reason = "each is the method of the same name of the lane, which says what it does")]
pub trait LaneRequests: FileRequests {
    fn put(&mut self, token: Token, put: &Put, payload: &[u8]) -> Admission<PutOutcome>;
    fn decide(&mut self, token: Token, key: EventKey, verdict: &Verdict, incomplete: bool) -> Admission<DecideOutcome>;
    fn delete(&mut self, token: Token, key: EventKey) -> Admission<DecideOutcome>;
    fn release(&mut self, token: Token, key: EventKey, stream: &StreamName) -> Admission<DecideOutcome>;
    fn get(&mut self, token: Token, id: FragmentId, into: &mut Vec<u8>) -> Fetch;
    fn get_whole(&mut self, token: Token, key: EventKey, into: &mut Vec<u8>) -> FetchEvent;
    fn event(&self, key: EventKey) -> Option<EventView>;
    fn outcome_of_unknown(&self, key: EventKey) -> ReadOutcome;
    fn lease(&mut self, max_events: usize, duration: Duration, run: Option<RunId>, into: &mut Vec<LeasedEvent>);
    fn told(&self, wanted: &Subscription, events_max: usize) -> ToldPage;
    fn accepted(&self, stream: &StreamName, after: Option<EventKey>, events_max: usize) -> AcceptedPage;
    fn streams(&self) -> Vec<StreamView>;
    fn runs(&self) -> Vec<RunView>;
    fn rule_run(&mut self, run: RunId, puts: RunPuts, is_held: bool);
    fn events_of_run(&self, run: RunId, from: EventId, events_max: usize, into: &mut Vec<EventKey>);
    fn trace(&mut self, token: Token, key: EventKey);
    fn losses(&mut self, from: u32, max: u32) -> LossPage;
    fn status(&self) -> LaneStatus;
    fn next_reply(&mut self) -> Option<Reply>;
    fn serves_reads(&self) -> Result<(), &str>;
}

impl LaneRequests for Lane {
    fn put(&mut self, token: Token, put: &Put, payload: &[u8]) -> Admission<PutOutcome> {
        Lane::put(self, token, put, payload)
    }

    fn decide(&mut self, token: Token, key: EventKey, verdict: &Verdict, incomplete: bool) -> Admission<DecideOutcome> {
        Lane::decide(self, token, key, verdict, incomplete)
    }

    fn delete(&mut self, token: Token, key: EventKey) -> Admission<DecideOutcome> {
        Lane::delete(self, token, key)
    }

    fn release(&mut self, token: Token, key: EventKey, stream: &StreamName) -> Admission<DecideOutcome> {
        Lane::release(self, token, key, stream)
    }

    fn get(&mut self, token: Token, id: FragmentId, into: &mut Vec<u8>) -> Fetch {
        Lane::get(self, token, id, into)
    }

    fn get_whole(&mut self, token: Token, key: EventKey, into: &mut Vec<u8>) -> FetchEvent {
        Lane::get_whole(self, token, key, into)
    }

    fn event(&self, key: EventKey) -> Option<EventView> {
        Lane::event(self, key)
    }

    fn outcome_of_unknown(&self, key: EventKey) -> ReadOutcome {
        Lane::outcome_of_unknown(self, key)
    }

    fn lease(&mut self, max_events: usize, duration: Duration, run: Option<RunId>, into: &mut Vec<LeasedEvent>) {
        Lane::lease(self, max_events, duration, run, into);
    }

    fn told(&self, wanted: &Subscription, events_max: usize) -> ToldPage {
        Lane::told(self, wanted, events_max)
    }

    fn accepted(&self, stream: &StreamName, after: Option<EventKey>, events_max: usize) -> AcceptedPage {
        Lane::accepted(self, stream, after, events_max)
    }

    fn streams(&self) -> Vec<StreamView> {
        Lane::streams(self)
    }

    fn runs(&self) -> Vec<RunView> {
        Lane::runs(self)
    }

    fn rule_run(&mut self, run: RunId, puts: RunPuts, is_held: bool) {
        Lane::rule_run(self, run, puts, is_held);
    }

    fn events_of_run(&self, run: RunId, from: EventId, events_max: usize, into: &mut Vec<EventKey>) {
        Lane::events_of_run(self, run, from, events_max, into);
    }

    fn trace(&mut self, token: Token, key: EventKey) {
        Lane::trace(self, token, key);
    }

    fn losses(&mut self, from: u32, max: u32) -> LossPage {
        Lane::losses(self, from, max)
    }

    fn status(&self) -> LaneStatus {
        Lane::status(self)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        Lane::next_reply(self)
    }

    fn serves_reads(&self) -> Result<(), &str> {
        Lane::serves_reads(self)
    }
}
