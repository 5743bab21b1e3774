//! What the client does for those who look on.

use std::time::Duration;

use forebay_protocol::ToldEvent;
use forebay_types::{Fraction, RunId, StreamName, Time};

use super::Client;
use crate::answer::FetchedEvent;
use crate::error::ClientError;
use crate::subscription::Subscription;

impl Client {
    /// Looks on from now on: at events of one run or of all, when they are accepted into `stream` or else as soon as filters may have them, and of these at a
    /// fraction. Best effort: what is missed is counted ([`Subscription::counts`]), and nothing waits for it. The client should be of
    /// [`Class::Monitor`](crate::Class::Monitor).
    ///
    /// # Errors
    /// When the server gives no answer, or is too old for it.
    pub fn subscribe(
        &mut self,
        run: Option<RunId>,
        stream: Option<StreamName>,
        fraction: Fraction,
    ) -> Result<Subscription, ClientError> {
        let mut subscription = Subscription::new(run, stream, fraction, self.info().lanes);
        self.look_on(&mut subscription)?;
        Ok(subscription)
    }

    /// The next events of which the subscriber is told, with their sizes. It waits for the first of them for `longest`, and gives back none when there were none.
    ///
    /// # Errors
    /// When the server gives no answer. The subscription goes on with the next call.
    pub fn next_told(
        &mut self,
        subscription: &mut Subscription,
        longest: Duration,
    ) -> Result<Vec<ToldEvent>, ClientError> {
        self.await_told(subscription, self.now() + longest)?;
        Ok(subscription.take_told())
    }

    /// As [`Client::next_told`], with the events read: some MiB at once, the others with the next call. Events that are over meanwhile are left out, and counted.
    ///
    /// # Errors
    /// As [`Client::next_told`]. Events that were to be read then count as unreadable.
    pub fn next_events(
        &mut self,
        subscription: &mut Subscription,
        longest: Duration,
    ) -> Result<Vec<FetchedEvent>, ClientError> {
        let until = self.now() + longest;
        loop {
            self.await_told(subscription, until)?;
            let keys = subscription.take_for_reading();
            let events = self.get_events(&keys, None).inspect_err(|_| subscription.was_not_read(keys.len()))?;
            let events = subscription.was_read(events);
            if !events.is_empty() || self.now() >= until {
                return Ok(events);
            }
        }
    }

    /// Asks until something is told, or that time has come; once at least unless something waits already.
    fn await_told(&mut self, subscription: &mut Subscription, until: Time) -> Result<(), ClientError> {
        while !subscription.has_waiting() {
            let pause = subscription.retry_after().min(until.since(self.now()));
            self.rest(pause)?;
            self.look_on(subscription)?;
            if self.now() >= until {
                break;
            }
        }
        Ok(())
    }

    fn look_on(&mut self, subscription: &mut Subscription) -> Result<(), ClientError> {
        let answers = self.ask(subscription.requests())?;
        subscription.answered(answers);
        Ok(())
    }
}
