//! What the server says: frames, greetings, answers, errors.

use bytes::Bytes;
use forebay_protocol::{
    ErrorCode, ErrorReply, FileReply, Frame, HelloReply, Kind, Message, PROTOCOL_VERSION, PutReply,
};
use forebay_types::{FileOutcome, Time};

use super::answer::{Answer, Collected, Damage};
use super::outbox::Sending;
use super::receiving::Received;
use super::{DAMAGED_MAX, Link, NONSENSE_MAX, RESEND, Session, SessionError, SessionEvent};

impl Session {
    /// The server said something that it must not say.
    fn misbehaved(&mut self, now: Time, error: SessionError) {
        self.nonsense += 1;
        let damaged_on_the_way = matches!(&error, SessionError::Protocol(error) if error.is_retryable());
        if (self.greeting.is_none() && !damaged_on_the_way) || self.nonsense >= NONSENSE_MAX {
            self.fail(now, error);
        } else {
            self.reset(now, error.to_string());
        }
    }

    pub(super) fn take_frames(&mut self, now: Time) {
        let mut received = std::mem::take(&mut self.received);
        loop {
            if !self.wants_connection() {
                received.clear();
                break;
            }
            let taken = match received.next(self.blocks.blocks()) {
                Ok(Some(Received::Small(frame))) => self.take_frame(now, &frame, None),
                Ok(Some(Received::Large(head, payload))) => match head.with_payload(&payload) {
                    Ok(frame) => self.take_frame(now, &frame, Some(&payload)),
                    Err(error) => Err(error.into()),
                },
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = taken {
                self.misbehaved(now, error);
            }
        }
        self.received = received;
    }

    /// Takes a frame; `shared` is its payload where that may be kept as it is.
    fn take_frame(&mut self, now: Time, frame: &Frame<'_>, shared: Option<&Bytes>) -> Result<(), SessionError> {
        let request = frame.header.request;
        if frame.kind() == Some(Kind::Error) {
            let reply = ErrorReply::decode(frame.table, frame.payload)?;
            self.take_error(now, request, reply);
            return Ok(());
        }
        if let Link::Greeting { request: greeting, .. } = self.link {
            if frame.kind() != Some(Kind::HelloReply) || request != greeting {
                return Err(SessionError::Broken(format!("frame {:#06x} came before the greeting", frame.header.kind)));
            }
            let reply = HelloReply::decode(frame.table, frame.payload)?;
            return self.greeted(now, reply);
        }
        if self.puts.is_in_flight(request) {
            return self.take_put_reply(now, frame);
        }
        let Some(call) = self.calls.get_mut(&request).filter(|call| call.resend_at.is_none()) else {
            return Ok(()); // of a request that was answered or given up
        };
        if self.outbox.holds(request) {
            return Err(SessionError::Broken(format!("{} was answered before it was sent", call.name)));
        }
        let collected = call.collector.take(frame, shared)?;
        // An answer that comes in parts is waited for as long as it goes on: a slow server would never come to the end of it otherwise, each
        // time asked anew.
        call.since = now;
        self.take_collected(now, request, collected);
        Ok(())
    }

    fn take_collected(&mut self, now: Time, request: u64, collected: Collected) {
        (self.failures, self.nonsense) = (0, 0);
        match collected {
            Collected::More => {}
            // It does not know any more what became of it.
            Collected::All(Answer::File(FileReply { outcome: FileOutcome::NotOpen, .. }))
                if self.calls.get(&request).is_some_and(|call| call.is_doubtful) =>
            {
                self.fail_unknown(request, "the server does not remember the request");
            }
            Collected::All(answer) => {
                let call = self.calls.remove(&request).expect("it was just answered");
                self.events.push_back(SessionEvent::Answer { request: call.asked_as, answer });
            }
            Collected::Damaged(Damage { part, expected, found }) => {
                let call = self.calls.get_mut(&request).expect("it was just answered");
                call.damaged += 1;
                if call.damaged < DAMAGED_MAX {
                    self.last_problem = format!("{part} came with the wrong bytes");
                    self.resend_later(now, request);
                } else {
                    let times = call.damaged;
                    self.fail_call(request, SessionError::Damaged { part, times, expected, found });
                }
            }
        }
    }

    fn resend_later(&mut self, now: Time, request: u64) {
        if let Some(call) = self.calls.get_mut(&request) {
            call.resend_at = Some(now + RESEND.delay(call.resends, &mut self.random));
            call.is_out = false;
            call.resends = call.resends.saturating_add(1);
            call.collector.restart();
        }
    }

    fn greeted(&mut self, now: Time, reply: HelloReply) -> Result<(), SessionError> {
        if reply.protocol_version != PROTOCOL_VERSION || reply.lane != self.config.lane {
            return Err(SessionError::Broken(format!(
                "version {} and lane {} were greeted with version {} and lane {}",
                PROTOCOL_VERSION, self.config.lane, reply.protocol_version, reply.lane
            )));
        }
        let (store, lanes) = *self.config.store.get_or_insert((reply.store, reply.lanes));
        if store != reply.store {
            self.fail(now, SessionError::OtherStore { expected: store, found: reply.store });
            return Ok(());
        }
        if lanes != reply.lanes {
            let error = format!("store {store} has {} lanes now, it had {lanes}", reply.lanes);
            self.fail(now, SessionError::Broken(error));
            return Ok(());
        }
        if self.greeting.as_ref().is_some_and(|before| before.epoch != reply.epoch) {
            self.fail_doubtful();
        }
        self.link = Link::Up;
        self.puts.connected(now, &reply);
        for (request, call) in &mut self.calls {
            (call.resend_at, call.is_out) = (None, true);
            self.outbox.push(Sending::Call(*request));
        }
        self.greeting = Some(reply.clone());
        self.events.push_back(SessionEvent::Greeted(reply));
        Ok(())
    }

    fn take_put_reply(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), SessionError> {
        let request = frame.header.request;
        if frame.kind() != Some(Kind::PutReply) || self.outbox.holds(request) {
            return Err(SessionError::Broken(format!("frame {:#06x} answered a put", frame.header.kind)));
        }
        let reply = PutReply::decode(frame.table, frame.payload)?;
        let puts = self.puts.answered(now, request, &reply, &mut self.random, &mut self.put_results);
        puts.map_err(SessionError::Broken)?;
        (self.failures, self.nonsense) = (0, 0);
        Ok(())
    }

    fn take_error(&mut self, now: Time, request: u64, reply: ErrorReply) {
        self.last_problem = format!("{} ({})", reply.sentence, reply.code);
        let greeting = matches!(self.link, Link::Greeting { .. });
        let unsent = self.outbox.holds(request);
        if greeting && !reply.retryable && reply.code != ErrorCode::NotGreeted {
            self.fail(now, SessionError::Refused { request: Kind::Hello.name(), reply });
        } else if greeting || request == 0 || (unsent && reply.retryable) {
            // It answers nothing that was asked, what has not left whole, or a greeting where another one came before: both sides no longer
            // agree on what was said.
            self.reset(now, self.last_problem.clone());
        } else if self.puts.is_in_flight(request) {
            self.put_refused(now, request, reply);
        } else if reply.retryable {
            self.resend_later(now, request);
        } else if let Some(name) = self.calls.get(&request).map(|call| call.name) {
            self.fail_call(request, SessionError::Refused { request: name, reply });
        }
    }

    fn put_refused(&mut self, now: Time, request: u64, reply: ErrorReply) {
        if reply.retryable {
            self.puts.refused_for_now(now, request, &mut self.random);
            return;
        }
        let puts = self.puts.refused(now, request, reply.code, &mut self.outbox, &mut self.put_results);
        let error = SessionError::Refused { request: Kind::Put.name(), reply };
        self.events.push_back(SessionEvent::PutsFailed { puts, error });
    }
}
