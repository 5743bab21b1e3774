//! A service at which files are registered: one `POST` each.

use bytes::Bytes;
use forebay_mover::custody::Failure;
use forebay_mover::endpoint::{Moved, Registry};
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use serde_json::Value;
use tokio::time::timeout;

use super::client::{Client, QUIET_MAX, Reply};
use super::upload::Upload;
use crate::{Access, Address, OpenError, Scheme};

/// An answer is as long as what was registered, and no longer than so much more.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A service.
pub(crate) struct WebRegistry {
    client: Client,
    uri: Uri,
}

impl WebRegistry {
    /// Makes it ready.
    ///
    /// # Errors
    /// What is no address of the web, and files that cannot be used.
    pub(crate) fn new(url: &str, access: &Access) -> Result<WebRegistry, OpenError> {
        let failed = |what: &str| OpenError::Access(format!("{what}; give https://HOST[:PORT]/PATH"));
        let uri: Uri = url.parse().map_err(|_| failed("it is no address"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(failed("it is no address with a scheme and a host"));
        };
        let server: Address = format!("{scheme}://{authority}").parse().map_err(|error| failed(&format!("{error}")))?;
        if server.scheme() != Scheme::Web {
            return Err(failed("files are registered over HTTP"));
        }
        Ok(WebRegistry { client: Client::new(&server, access)?, uri })
    }

    async fn post(&self, key: &str, text: &str) -> Result<(), Failure> {
        let mut course = self.client.course(Method::POST, "/")?;
        course.uri = self.uri.clone();
        loop {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
            // A string, as the header's definition wants it (draft-ietf-httpapi-idempotency-key-header).
            let value = HeaderValue::from_str(&format!("\"{key}\"")).expect("digits and a dash");
            headers.insert(HeaderName::from_static("idempotency-key"), value);
            let (upload, blocks, _) = Upload::new(text.len() as u64);
            // It holds one block.
            blocks.try_send(Bytes::copy_from_slice(text.as_bytes())).expect("there is room for one");
            drop(blocks);
            let request = self.client.request(&course, headers, upload)?;
            let answered = timeout(QUIET_MAX, self.client.start(request)).await.map_err(|_| course.silent())?;
            let reply = course.reply(answered)?;
            if !self.client.goes_on(&mut course, &reply)? {
                return answer(reply, text).await;
            }
        }
    }
}

/// What an answer means.
async fn answer(mut reply: Reply, text: &str) -> Result<(), Failure> {
    let status = reply.status();
    if status.is_success() {
        return Ok(());
    }
    if status == StatusCode::CONFLICT {
        let there = body(&mut reply, text.len() + ANSWER_BYTES_MAX).await?;
        if is_same(&there, text) {
            return Ok(());
        }
        return Err(Failure::Refused(reply.told(&format!(
            "something else is registered under this key, or the answer does not say what: {}. Look at what is there, then retry",
            crate::words::plain(&there)
        ))));
    }
    let failure = reply.failure().await;
    Err(match (status.as_u16(), failure) {
        // For later, as of destinations: tokens end, and services are busy.
        (401 | 408 | 423 | 425 | 429 | 500.., failure) => Failure::NotNow(failure.words().to_owned()),
        (_, failure) => Failure::Refused(failure.words().to_owned()),
    })
}

async fn body(reply: &mut Reply, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(bytes) = reply.next_bytes().await? {
        body.extend_from_slice(&bytes[..bytes.len().min(bytes_max - body.len())]);
        if body.len() == bytes_max {
            break;
        }
    }
    Ok(body)
}

/// Whether what is registered says the same, however it is written.
fn is_same(there: &[u8], text: &str) -> bool {
    let there = serde_json::from_slice::<Value>(there);
    there.is_ok_and(|there| serde_json::from_str::<Value>(text).is_ok_and(|ours| ours == there))
}

impl Registry for WebRegistry {
    fn register(&self, key: &str, text: &str, _: &dyn Moved) -> Result<(), Failure> {
        self.client.block_on(self.post(key, text))
    }
}
