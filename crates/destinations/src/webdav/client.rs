//! Requests to a server, and where its answers lead.

use std::time::Duration;

use forebay_mover::custody::Failure;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, LOCATION, SERVER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use super::place::{Base, encoded, is_loopback, may_have_token, redirected, shown};
use super::upload::Upload;
use crate::runtime::Runtime;
use crate::words::{plain, whole};
use crate::{Access, Address, OpenError, Secret, tls};

/// A connection that stands still for so long is given up. The mover waits for none so long: this ends the thread that it left behind.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(300);
const CONNECT_MAX: Duration = Duration::from_secs(20);
const REDIRECTIONS_MAX: u32 = 5;
/// So much of the body of an error is read, and waited for.
const ERROR_BYTES_MAX: usize = 4096;
const ERROR_WAIT_MAX: Duration = Duration::from_secs(5);

/// A server.
pub(super) struct Client {
    pub(super) base: Base,
    runtime: Runtime,
    http: legacy::Client<HttpsConnector<HttpConnector>, Upload>,
    token: Option<Secret>,
}

/// A request without a body.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(HeaderName, HeaderValue)],
    pub(super) target: Option<Target<'a>>,
}

/// The new name of a file.
pub(super) struct Target<'a> {
    pub(super) path: &'a str,
    /// XRootD takes it as it stands.
    pub(super) is_encoded: bool,
}

/// Where a request goes, and with what.
pub(super) struct Course {
    pub(super) method: Method,
    pub(super) uri: Uri,
    redirections: u32,
    token: Option<String>,
    token_is_new: bool,
}

/// What a server answered.
pub(super) struct Reply {
    method: Method,
    uri: Uri,
    response: Response<Incoming>,
}

impl Client {
    pub(super) fn new(address: &Address, access: &Access) -> Result<Client, OpenError> {
        let base = Base::of(address)?;
        if access.token_file.is_some() && !base.is_encrypted() && !is_loopback(&base.uri("/")) {
            return Err(OpenError::Access(
                "a token would be sent where everybody on the way can read it; give https://, or no --token-file"
                    .to_owned(),
            ));
        }
        let token = access.token_file.clone().map(Secret::new);
        if let Some(token) = &token {
            token.get()?;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let tls = tls::config(access.ca_file.as_deref())?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new())
            // XRootD 5.5 says that it keeps a connection, and ends it after some answers all the same.
            .pool_max_idle_per_host(0)
            // XRootD 5.5 knows headers by their usual case alone.
            .http1_title_case_headers(true)
            .build(connector);
        let runtime =
            Runtime::new().map_err(|error| OpenError::Missing(format!("no thread could be started: {error}")))?;
        Ok(Client { base, runtime, http, token })
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// What is answered, wherever that is.
    pub(super) async fn call(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let mut course = self.course(call.method.clone(), call.path)?;
        loop {
            let mut headers: HeaderMap = call.headers.iter().cloned().collect();
            if let Some(target) = &call.target {
                headers.insert(HeaderName::from_static("destination"), target.header(&course.uri)?);
            }
            let request = self.request(&course, headers, Upload::empty())?;
            let answered = timeout(QUIET_MAX, self.http.request(request)).await.map_err(|_| course.silent())?;
            let reply = course.reply(answered)?;
            if !self.goes_on(&mut course, &reply)? {
                return Ok(reply);
            }
        }
    }

    /// Begins a request.
    pub(super) fn course(&self, method: Method, path: &str) -> Result<Course, Failure> {
        let token = self.token.as_ref().map(Secret::get).transpose().map_err(unreadable)?;
        Ok(Course { method, uri: self.base.uri(path), redirections: 0, token, token_is_new: false })
    }

    /// A request on its way.
    pub(super) fn request(
        &self,
        course: &Course,
        headers: HeaderMap,
        body: Upload,
    ) -> Result<Request<Upload>, Failure> {
        let mut request = Request::new(body);
        *request.method_mut() = course.method.clone();
        *request.uri_mut() = course.uri.clone();
        *request.headers_mut() = headers;
        if let Some(token) = course.token.as_ref().filter(|_| may_have_token(&self.base, &course.uri)) {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value
                .map_err(|_| Failure::NotNow("the token file has characters in it that no token has".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    pub(super) fn start(&self, request: Request<Upload>) -> legacy::ResponseFuture {
        self.http.request(request)
    }

    /// Whether the same is to be asked again: elsewhere, or with a token that is newer.
    pub(super) fn goes_on(&self, course: &mut Course, reply: &Reply) -> Result<bool, Failure> {
        let status = reply.status();
        if matches!(status.as_u16(), 301 | 302 | 307 | 308) {
            let location = reply.response.headers().get(LOCATION);
            let to = location.and_then(|location| redirected(&course.uri, location.as_bytes()));
            course.redirections += 1;
            let Some(to) = to.filter(|_| course.redirections <= REDIRECTIONS_MAX) else {
                return Err(Failure::NotNow(reply.told("it leads elsewhere, to no address of the web or for ever")));
            };
            course.uri = to;
            return Ok(true);
        }
        if let (StatusCode::UNAUTHORIZED, Some(token), false) = (status, &self.token, course.token_is_new) {
            let token = Some(token.get_anew().map_err(unreadable)?);
            course.token_is_new = true;
            return Ok(std::mem::replace(&mut course.token, token.clone()) != token);
        }
        Ok(false)
    }
}

impl Target<'_> {
    /// Where it is asked for now: some servers compare the host with their own.
    fn header(&self, asked: &Uri) -> Result<HeaderValue, Failure> {
        let (scheme, authority) =
            (asked.scheme_str().unwrap_or("http"), asked.authority().map_or("", |host| host.as_str()));
        let path = if self.is_encoded { encoded(self.path) } else { self.path.to_owned() };
        HeaderValue::from_bytes(format!("{scheme}://{authority}{path}").as_bytes()).map_err(|_| {
            Failure::Refused(format!("{}: a name that cannot be given over HTTP; rename the file", self.path))
        })
    }
}

impl Course {
    /// The answer, or why there is none.
    pub(super) fn reply(&self, answered: Result<Response<Incoming>, legacy::Error>) -> Result<Reply, Failure> {
        let (method, uri) = (self.method.clone(), self.uri.clone());
        match answered {
            Ok(response) => Ok(Reply { method, uri, response }),
            Err(error) => {
                let what = whole(&error);
                let words = format!("{method} {}: {what}", shown(&uri));
                Err(match (error.is_connect(), what.contains("certificate")) {
                    (true, true) => Failure::NotNow(format!(
                        "{words}. Nothing was sent to a server that is not known; if it is the right one, give the certificate of who vouches for it with --ca-file"
                    )),
                    (true, false) => Failure::NotNow(format!("{words}. The server is away, or the address is wrong")),
                    (false, _) => {
                        Failure::Unknown(format!("{words}. The connection was cut; what was done is looked for"))
                    }
                })
            }
        }
    }

    pub(super) fn silent(&self) -> Failure {
        let seconds = QUIET_MAX.as_secs();
        Failure::Unknown(format!("{} {}: no answer for {seconds} s", self.method, shown(&self.uri)))
    }
}

impl Reply {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub(super) fn content_length(&self) -> Option<u64> {
        self.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    pub(super) fn is_xrootd(&self) -> bool {
        self.headers().get(SERVER).is_some_and(|server| server.as_bytes().to_ascii_lowercase().starts_with(b"xrootd"))
    }

    pub(super) fn told(&self, what: &str) -> String {
        format!("{} {}: {}: {what}", self.method, shown(&self.uri), self.status())
    }

    /// The next bytes of the body; none at its end.
    pub(super) async fn next_bytes(&mut self) -> Result<Option<bytes::Bytes>, Failure> {
        loop {
            let frame = timeout(QUIET_MAX, self.response.body_mut().frame()).await;
            let frame = frame.map_err(|_| Failure::Unknown(self.told("it stands still in the middle")))?;
            match frame.transpose() {
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Err(error) => {
                    return Err(Failure::Unknown(self.told(&format!("it was cut in the middle: {}", whole(&error)))));
                }
            }
        }
    }

    /// The beginning of what is said about an error.
    async fn body_words(&mut self) -> String {
        let mut said = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = self.next_bytes().await {
                said.extend_from_slice(&bytes[..bytes.len().min(ERROR_BYTES_MAX - said.len())]);
                if said.len() == ERROR_BYTES_MAX {
                    break;
                }
            }
        };
        drop(timeout(ERROR_WAIT_MAX, read).await);
        plain(&said)
    }

    /// What an answer that is no success means.
    pub(super) async fn failure(mut self) -> Failure {
        let said = self.body_words().await;
        let (kind, advice): (fn(String) -> Failure, _) = match self.status().as_u16() {
            // Tokens end, and somebody brings new ones: no file is quarantined for that.
            401 => (
                Failure::NotNow,
                "It takes no such token. Put one that it takes into the file of --token-file; it goes on by itself then",
            ),
            403 => (
                Failure::Refused,
                "There is no right to do this there. Ask for it, or give a token that has it, then retry",
            ),
            404 | 410 => {
                (Failure::Refused, "There is no such directory or file. Look whether the address is right, then retry")
            }
            405 | 501 => (
                Failure::Refused,
                "It does not do this here. Look whether it is a WebDAV server that may be written to, then retry",
            ),
            507 => (Failure::NotNow, "It is full; make room there"),
            408 | 423 | 425 | 429 | 500.. => (Failure::NotNow, "It cannot now"),
            _ => (Failure::Refused, "Look at what it says, then retry"),
        };
        let said = if said.is_empty() { advice.to_owned() } else { format!("{said}. {advice}") };
        kind(self.told(&said))
    }
}

fn unreadable(error: OpenError) -> Failure {
    Failure::NotNow(error.to_string())
}
