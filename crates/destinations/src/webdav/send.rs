//! Bytes on their way to a server.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Content, Moved};
use forebay_mover::{Summer, Sums};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, EXPECT, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use hyper_util::client::legacy;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use super::client::{Client, Course, QUIET_MAX, Reply};
use super::upload::Upload;
use crate::words::changed;

/// A server that says neither where the bytes shall go nor that it takes them gets them after so long: it does not know `Expect`.
const EXPECTED_WITHIN: Duration = Duration::from_secs(5);

/// How a file was taken.
pub(super) enum Put {
    /// All of it, with what it came to.
    Taken(Sums),
    /// Not: what was answered, and whether that was before anything was taken from the source.
    Refused { reply: Box<Reply>, is_untouched: bool },
}

/// An answer, or why there is none, while or after bytes are sent.
type Answered = Result<Response<Incoming>, legacy::Error>;

/// A request under way, and what is known of its bytes.
struct Sender<'a, 'b> {
    course: &'a Course,
    blocks: mpsc::Sender<Bytes>,
    response: Pin<&'b mut legacy::ResponseFuture>,
    bytes: u64,
}

enum Fed {
    All(Sums),
    Answered(Answered),
}

impl Client {
    /// Puts a file where the server wants to have it. Nothing is taken from the source before it says so: what it refuses, or sends elsewhere, costs nothing.
    pub(super) async fn put(
        &self,
        path: &str,
        bytes: u64,
        content: &mut dyn Content,
        moved: &dyn Moved,
    ) -> Result<Put, Answer> {
        let mut course = self.course(Method::PUT, path).map_err(Answer::Failed)?;
        loop {
            let put = self.put_once(&course, bytes, content, moved).await?;
            match put {
                Put::Refused { reply, is_untouched: true }
                    if self.goes_on(&mut course, &reply).map_err(Answer::Failed)? => {}
                put => return Ok(put),
            }
        }
    }

    async fn put_once(
        &self,
        course: &Course,
        bytes: u64,
        content: &mut dyn Content,
        moved: &dyn Moved,
    ) -> Result<Put, Answer> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        if bytes > 0 {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        let (upload, blocks, begun) = Upload::new(bytes);
        let mut request = self.request(course, headers, upload).map_err(Answer::Failed)?;
        let wanted = Arc::new(Notify::new());
        let tell = Arc::clone(&wanted);
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                tell.notify_one();
            }
        });
        let mut response = pin!(self.start(request));
        let mut sender = Sender { course, blocks, response: response.as_mut(), bytes };
        if bytes > 0
            && let Some(answered) = sender.until_wanted(&begun, &wanted).await.map_err(Answer::Failed)?
        {
            let reply = Box::new(course.reply(answered).map_err(Answer::Failed)?);
            return Ok(Put::Refused { reply, is_untouched: true });
        }
        match sender.feed(content, moved).await? {
            Fed::All(sums) => sender.finish(sums).await.map_err(Answer::Failed),
            Fed::Answered(answered) => sender.early(answered).map_err(Answer::Failed),
        }
    }
}

impl Sender<'_, '_> {
    /// Waits until the server takes the bytes, or answers without them.
    async fn until_wanted(&mut self, begun: &Notify, wanted: &Notify) -> Result<Option<Answered>, Failure> {
        let patient = async {
            begun.notified().await;
            drop(timeout(EXPECTED_WITHIN, wanted.notified()).await);
        };
        tokio::select! {
            answered = self.response.as_mut() => Ok(Some(answered)),
            () = patient => Ok(None),
            () = sleep(QUIET_MAX) => Err(self.course.silent()),
        }
    }

    async fn feed(&mut self, content: &mut dyn Content, moved: &dyn Moved) -> Result<Fed, Answer> {
        let (mut summer, mut fed_bytes) = (Summer::default(), 0);
        while let Some(block) = content.next_block().map_err(Answer::Source)? {
            summer.update(block);
            fed_bytes += block.len() as u64;
            if fed_bytes > self.bytes {
                break;
            }
            let (block_bytes, block) = (block.len() as u64, Bytes::copy_from_slice(block));
            tokio::select! {
                biased;
                answered = self.response.as_mut() => return Ok(Fed::Answered(answered)),
                sent = self.blocks.send(block) => if sent.is_err() {
                    return self.answer().await.map(Fed::Answered).map_err(Answer::Failed);
                },
                () = sleep(QUIET_MAX) => return Err(Answer::Failed(self.course.silent())),
            }
            if !moved.moved(block_bytes) {
                return Err(Answer::Failed(Failure::NotNow("the mover ends".to_owned())));
            }
        }
        if fed_bytes == self.bytes { Ok(Fed::All(summer.sums())) } else { Err(Answer::Source(changed(self.bytes))) }
    }

    async fn answer(&mut self) -> Result<Answered, Failure> {
        timeout(QUIET_MAX, self.response.as_mut()).await.map_err(|_| self.course.silent())
    }

    /// All was sent: what the server says to it.
    async fn finish(mut self, sums: Sums) -> Result<Put, Failure> {
        let answered = self.answer().await?;
        let reply = Box::new(self.course.reply(answered)?);
        Ok(if reply.status().is_success() { Put::Taken(sums) } else { Put::Refused { reply, is_untouched: false } })
    }

    /// It was answered before all was sent: whatever it says, it cannot have all.
    fn early(&self, answered: Answered) -> Result<Put, Failure> {
        let reply = Box::new(self.course.reply(answered)?);
        if reply.status().is_success() {
            return Err(Failure::Unknown(reply.told("it was answered before all of the file was sent")));
        }
        Ok(Put::Refused { reply, is_untouched: false })
    }
}
