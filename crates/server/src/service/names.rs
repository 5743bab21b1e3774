//! Requests for names, runs and streams: asked of the books of lane 0, and answered when what is said is durable.

use forebay_protocol::{ErrorCode, ErrorReply, StatusReply};

use super::begin::{Begun, Refusal};
use super::{Advance, Core, Service};
use crate::connection::Connection;
use crate::lane_requests::LaneRequests;
use crate::namespace::{NameAnswer, NameRequest};
use crate::request::{Body, NameBody};

impl Core {
    pub(super) fn name_request(&mut self, request: NameRequest) -> Result<Begun, Refusal> {
        let Some(names) = &self.names else {
            let sentence = format!(
                "names of files, runs and streams lie in lane 0, this connection is for lane {}: nothing was done; send it on a connection for lane 0",
                self.config.lane
            );
            return Err(ErrorReply { code: ErrorCode::WrongLane, retryable: false, sentence }.into());
        };
        if self.config.read_only && matches!(request, NameRequest::Books(_)) {
            let sentence = "the store was started read-only: nothing was changed of runs and streams".to_owned();
            return Err(ErrorReply { code: ErrorCode::ReadOnly, retryable: false, sentence }.into());
        }
        if let Err((sentence, retryable)) = names.serves() {
            return Err(ErrorReply { code: ErrorCode::NotServing, retryable, sentence }.into());
        }
        Ok(Begun::Waits(Body::Name(NameBody { request, answer: None })))
    }

    /// A name is looked up or changed; the answer waits until what it says is durable.
    pub(super) fn ask_names(
        &mut self,
        key: u64,
        body: &mut NameBody,
        waits: &mut usize,
        lane: &impl LaneRequests,
    ) -> Advance {
        let names = self.names.as_mut().expect("checked when the request was read");
        // They may have failed since.
        if names.serves().is_err() {
            return Advance::Done;
        }
        let Some((answer, stable_at)) = names.answer(key, &body.request, lane.wall_unix_ns()) else {
            self.run_waits.insert(key);
            *waits += 1;
            return Advance::Done;
        };
        body.answer = Some(answer);
        if stable_at > names.durable() {
            self.name_waits.insert((stable_at, key));
            *waits += 1;
        }
        Advance::Done
    }

    /// Answers that wait for names that failed: nobody knows what became of these changes.
    pub(super) fn send_name_answer(&mut self, connection: &mut Connection, number: u64, body: NameBody) {
        match body.answer {
            Some(NameAnswer::Node(reply)) => connection.send(&mut self.chunks, number, &reply),
            Some(NameAnswer::List(reply)) => connection.send(&mut self.chunks, number, &reply),
            Some(NameAnswer::Json(json)) => connection.send(&mut self.chunks, number, &StatusReply { json }),
            Some(NameAnswer::Error(error)) => connection.send(&mut self.chunks, number, &error),
            None => {
                let why = self.names.as_ref().and_then(|names| names.serves().err());
                let (sentence, retryable) = why.unwrap_or(("names of files are not there; try again".to_owned(), true));
                let error = ErrorReply { code: ErrorCode::NotServing, retryable, sentence };
                connection.send(&mut self.chunks, number, &error);
            }
        }
    }
}

impl Service {
    /// Answers those whose names are durable, and all when there will be no more.
    pub(super) fn answer_names(&mut self) {
        let Some(names) = &mut self.core.names else { return };
        let mut answers = Vec::new();
        names.take_answers(&mut answers);
        let (durable, has_failed) = (names.durable(), names.has_failed());
        for (key, answer) in answers {
            self.answer_run(key, Some(answer));
        }
        while has_failed && let Some(key) = self.core.run_waits.first().copied() {
            self.answer_run(key, None);
        }
        while let Some((position, key)) = self.core.name_waits.first().copied() {
            if position > durable && !has_failed {
                break;
            }
            self.core.name_waits.pop_first();
            let request = self.requests.get_mut(&key).expect("requests are kept until they are answered");
            if has_failed && let Body::Name(body) = &mut request.body {
                body.answer = None;
            }
            self.is_answered(key, 1);
        }
    }

    fn answer_run(&mut self, key: u64, answer: Option<NameAnswer>) {
        if !self.core.run_waits.remove(&key) {
            return;
        }
        let request = self.requests.get_mut(&key).expect("requests are kept until they are answered");
        if let Body::Name(body) = &mut request.body {
            body.answer = answer;
        }
        self.is_answered(key, 1);
    }
}
