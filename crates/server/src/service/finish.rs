//! From the lane's replies to answers.

use forebay_engine::Reply;
use forebay_protocol::{DecideReply, PutReply, StatusReply};
use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{DecideOutcome, EventKey};

use super::files::{ENDS_REQUEST, outcome_of_change, outcome_of_write};
use super::runs::DISCARDS_REQUEST;
use super::{Core, Service};
use crate::connection::{Connection, Place};
use crate::namespace::NAMES_REQUEST;
use crate::request::{Body, Request, Tell, TellBody, of_token};
use crate::status::to_json;

impl Service {
    pub(super) fn take_reply(&mut self, reply: Reply) {
        let token = match &reply {
            Reply::Stored { token, .. }
            | Reply::Refused { token, .. }
            | Reply::Decided { token, .. }
            | Reply::Read { token, .. }
            | Reply::ReadEvent { token, .. }
            | Reply::ReadFile { token, .. }
            | Reply::Traced { token, .. } => *token,
        };
        let (key, record) = of_token(token);
        match (key, &reply) {
            (NAMES_REQUEST, _) => {
                if let Some(names) = &mut self.core.names {
                    names.take_reply(reply);
                }
                return;
            }
            (ENDS_REQUEST, Reply::Decided { outcome, .. }) => {
                let is_done = matches!(outcome, DecideOutcome::Done | DecideOutcome::AlreadyDone);
                return self.file_has_ended(record as u16, is_done);
            }
            (DISCARDS_REQUEST, Reply::Decided { outcome, .. }) => return self.core.rules.discard_ended(*outcome),
            _ => {}
        }
        let request = self.requests.get_mut(&key).expect("requests are kept until the lane has answered all of them");
        let id = request.connection;
        let mut connection = self.connections.get_mut(&id);
        let answers = match (reply, &mut request.body) {
            (Reply::Stored { records, .. }, Body::Put(_)) => records as usize,
            (Reply::Refused { records, outcome, .. }, Body::Put(put)) => {
                put.refused = Some(outcome);
                records as usize
            }
            (Reply::Decided { outcome, .. }, Body::Tell(tell)) => {
                tell.outcomes[record] = outcome;
                1
            }
            (Reply::Read { outcome, payload, crc, .. }, _) => {
                self.core.take_read(record as u16, request, connection.as_deref_mut(), outcome, payload, crc);
                1
            }
            (Reply::ReadEvent { outcome, parts, payload, .. }, _) => {
                let connection = connection.as_deref_mut();
                self.core.take_event(record as u16, request, connection, outcome, &parts, payload);
                1
            }
            (Reply::Stored { .. }, Body::FileWrite(write)) => {
                self.core.write_ended(write);
                1
            }
            (Reply::Refused { outcome, .. }, Body::FileWrite(write)) => {
                write.outcome = outcome_of_write(outcome);
                self.core.write_ended(write);
                1
            }
            (Reply::Decided { outcome, .. }, Body::File(file)) => {
                file.outcome = outcome_of_change(outcome);
                1
            }
            (Reply::ReadFile { outcome, payload, .. }, _) => {
                self.core.take_file_read(request, connection, outcome, payload);
                1
            }
            (Reply::Traced { trace, .. }, Body::Trace(body)) => {
                body.json = to_json(&*trace);
                1
            }
            _ => unreachable!("the lane answers what it was asked"),
        };
        self.is_answered(key, answers);
    }

    /// So many of the answers that a request waits for have come.
    pub(super) fn is_answered(&mut self, key: u64, answers: usize) {
        let request = self.requests.get_mut(&key).expect("requests are kept until the lane has answered all of them");
        let id = request.connection;
        let connection = self.connections.get_mut(&id);
        assert!(answers <= request.waits, "{answers} records were answered, {} were waiting", request.waits);
        request.waits -= answers;
        let is_over = request.offered && request.waits == 0;
        let over = if is_over { self.requests.remove(&key) } else { None };
        if let Some(connection) = connection {
            if let Some(request) = over {
                self.core.finish(id, connection, request);
            }
            self.core.touch(id, connection);
            self.core.wake_for_out(id, connection);
        }
    }
}

impl Core {
    /// Answers a request of which everything is known. Reads have been answered piece by piece.
    pub(super) fn finish(&mut self, id: u64, connection: &mut Connection, request: Request) {
        connection.unanswered -= 1;
        connection.records_unanswered -= request.body.records();
        match request.body {
            Body::Put(mut put) => {
                let outcomes = put.take_outcomes();
                assert!(
                    outcomes.len() == put.entries.len() && outcomes.len() <= BATCH_RECORDS_MAX,
                    "each has its outcome"
                );
                let busy_ms = self.asked.busy_ms;
                self.put_replies_busy += u64::from(busy_ms > 0);
                let reply = PutReply { credit_bytes: self.credit_bytes(), busy_ms, outcomes };
                connection.send(&mut self.chunks, request.number, &reply);
                self.recycle(put);
            }
            Body::Tell(tell) => {
                tell_deleted(self.config.lane, id, &tell);
                connection.send(&mut self.chunks, request.number, &DecideReply { outcomes: tell.outcomes });
            }
            Body::Trace(trace) => {
                connection.send(&mut self.chunks, request.number, &StatusReply { json: trace.json });
            }
            Body::File(file) => self.send_file_reply(connection, request.number, file.outcome, 0),
            Body::FileWrite(write) => self.send_file_reply(connection, request.number, write.outcome, write.start),
            Body::Name(name) => self.send_name_answer(connection, request.number, name),
            Body::Get(_) | Body::GetEvent(_) | Body::FileRead(_) => {}
        }
        if connection.place == Place::Answers {
            self.queue(id, connection);
        }
    }
}

/// Deletions are the one way in which data go that no filter rejected and no recorder shipped: somebody said so, and it is on record what went.
fn tell_deleted(lane: u16, connection: u64, tell: &TellBody) {
    let Tell::Delete(events) = &tell.what else { return };
    let deleted = events.iter().zip(&tell.outcomes).filter(|(_, outcome)| **outcome == DecideOutcome::Done);
    let deleted: Vec<EventKey> = deleted.map(|(key, _)| *key).collect();
    if let (Some(first), Some(last)) = (deleted.iter().min(), deleted.iter().max()) {
        let events = deleted.len();
        tracing::info!(lane, connection, events, %first, %last, "events were deleted, as a client asked");
    }
}
