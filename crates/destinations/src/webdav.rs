//! WebDAV over HTTP: XRootD's and dCache's doors, and web servers.

mod client;
mod digest;
mod place;
mod pull;
mod register;
mod send;
mod upload;

use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Content, Destination, Fetching, Moved, Sending};
use forebay_mover::{Name, Summer, Told};
use hyper::header::{ACCEPT_ENCODING, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use client::{Call, Client, Reply, Target};
use digest::{WANTED, digests};
pub(crate) use place::Base;
pub(crate) use register::WebRegistry;
use send::Put;

use crate::{Access, Address, OpenError};

/// A directory of a server that speaks WebDAV.
pub(crate) struct WebDestination(Client);

impl WebDestination {
    /// Makes it ready.
    ///
    /// # Errors
    /// An address with no host, and files that cannot be used.
    pub(crate) fn new(address: &Address, access: &Access) -> Result<WebDestination, OpenError> {
        Client::new(address, access).map(WebDestination)
    }

    async fn call(
        &self,
        method: &'static str,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Reply, Failure> {
        let headers: Vec<(HeaderName, HeaderValue)> = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .chain([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))])
            .collect();
        self.0.call(&Call { method: self::method(method), path, headers: &headers, target: None }).await
    }

    /// What lies there: nothing, or what is said of it.
    async fn head(&self, path: &str, headers: &[(&'static str, &'static str)]) -> Result<Option<Reply>, Failure> {
        let reply = self.call("HEAD", path, headers).await?;
        if reply.is_xrootd() && path.contains('?') {
            return Err(Failure::Refused(reply.told(
                "XRootD does not take what stands behind a question mark for a part of a name. Rename the file; then it is found anew",
            )));
        }
        match reply.status() {
            StatusCode::OK => Ok(Some(reply)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => Err(reply.failure().await),
        }
    }

    async fn told(&self, path: &str, moved: &dyn Moved) -> Result<Option<Told>, Failure> {
        let wanted = [WANTED[0], WANTED[1], (CACHE_CONTROL_NAME, "no-cache")];
        let Some(reply) = self.head(path, &wanted).await? else { return Ok(None) };
        moved.moved(0);
        let digests = digests(reply.headers());
        match reply.content_length() {
            Some(bytes) if digests.adler32.is_some() || digests.crc32c.is_some() => {
                Ok(Some(Told { bytes, adler32: digests.adler32, crc32c: digests.crc32c }))
            }
            bytes => self.read_back(path, bytes, moved).await,
        }
    }

    /// What its bytes come to, all of them.
    async fn read_back(&self, path: &str, bytes: Option<u64>, moved: &dyn Moved) -> Result<Option<Told>, Failure> {
        let mut reply = self.call("GET", path, &[(CACHE_CONTROL_NAME, "no-cache")]).await?;
        match reply.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            _ => return Err(reply.failure().await),
        }
        let (mut summer, mut read_bytes) = (Summer::default(), 0);
        while let Some(block) = reply.next_bytes().await? {
            summer.update(&block);
            read_bytes += block.len() as u64;
            if bytes.is_some_and(|bytes| read_bytes > bytes) {
                return Err(Failure::Unknown(reply.told("it gives more bytes than it says that it has")));
            }
            if !moved.moved(block.len() as u64) {
                return Err(Failure::NotNow("the mover ends".to_owned()));
            }
        }
        Ok(Some(summer.sums().into()))
    }

    async fn put(&self, sending: &Sending<'_>, content: &mut dyn Content, moved: &dyn Moved) -> Result<Answer, Answer> {
        let path = self.0.base.path_of(sending.temporary);
        let mut directories_made = false;
        loop {
            let (reply, is_untouched) = match self.0.put(&path, sending.bytes, content, moved).await? {
                Put::Taken(sums) => return Ok(Answer::Sent(sums)),
                Put::Refused { reply, is_untouched } => (reply, is_untouched || sending.bytes == 0),
            };
            let has_no_directory = matches!(reply.status(), StatusCode::CONFLICT | StatusCode::NOT_FOUND);
            if !has_no_directory || directories_made {
                return Err(Answer::Failed(reply.failure().await));
            }
            self.make_directory_of(&path).await.map_err(Answer::Failed)?;
            directories_made = true;
            if !is_untouched {
                let words = reply.told("its directory was missing, and is there now");
                return Err(Answer::Failed(Failure::NotNow(words)));
            }
        }
    }

    /// The directories that lead to a path, from the lowest that is there.
    async fn make_directory_of(&self, path: &str) -> Result<(), Failure> {
        let mut missing = Vec::new();
        let mut directory = path;
        while let Some((above, _)) = directory.rsplit_once('/') {
            if above.is_empty() || self.0.base.is_above(above) {
                break;
            }
            directory = above;
            missing.push(directory);
            if self.make_directory(directory).await? {
                break;
            }
        }
        missing.pop();
        for directory in missing.into_iter().rev() {
            self.make_directory(directory).await?;
        }
        Ok(())
    }

    /// Makes one directory; one that is there is as good. Whether the one above it is there.
    async fn make_directory(&self, path: &str) -> Result<bool, Failure> {
        let reply = self.call("MKCOL", path, &[]).await?;
        match reply.status() {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Ok(false),
            // What RFC 4918 says of a name that is taken.
            StatusCode::METHOD_NOT_ALLOWED => Ok(true),
            status if status.is_success() => Ok(true),
            _ => Err(reply.failure().await),
        }
    }

    /// Gives a file another name, and says what was answered.
    async fn r#move(&self, from: &str, to: &str, overwrite: &'static str, is_encoded: bool) -> Result<Reply, Failure> {
        let headers = [(HeaderName::from_static("overwrite"), HeaderValue::from_static(overwrite))];
        let target = || Some(Target { path: to, is_encoded });
        let reply =
            self.0.call(&Call { method: method("MOVE"), path: from, headers: &headers, target: target() }).await?;
        if reply.status() != StatusCode::CONFLICT {
            return Ok(reply);
        }
        self.make_directory_of(to).await?;
        self.0.call(&Call { method: method("MOVE"), path: from, headers: &headers, target: target() }).await
    }

    async fn renamed(&self, from: &Name, to: &Name, may_replace: bool) -> Result<Answer, Failure> {
        let (from, to) = (self.0.base.path_of(from), self.0.base.path_of(to));
        let reply = self.call("HEAD", &to, &[]).await?;
        let is_xrootd = reply.is_xrootd();
        match reply.status() {
            // XRootD knows no `Overwrite`, and puts one file in the place of another.
            StatusCode::OK if !may_replace => return Ok(Answer::Taken),
            StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::GONE => {}
            _ => return Err(reply.failure().await),
        }
        let overwrite = if may_replace { "T" } else { "F" };
        let reply = self.r#move(&from, &to, overwrite, !is_xrootd).await?;
        match reply.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(Answer::Done),
            StatusCode::PRECONDITION_FAILED if !may_replace => Ok(Answer::Taken),
            // What has the temporary name no longer may have the other.
            StatusCode::NOT_FOUND | StatusCode::ACCEPTED => {
                Err(Failure::Unknown(reply.told("what was done is looked for")))
            }
            _ => Err(reply.failure().await),
        }
    }

    async fn removed(&self, name: &Name) -> Result<Answer, Failure> {
        let reply = self.call("DELETE", &self.0.base.path_of(name), &[]).await?;
        match reply.status() {
            StatusCode::OK | StatusCode::NO_CONTENT | StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Answer::Done),
            StatusCode::ACCEPTED => {
                Err(Failure::Unknown(reply.told("it will be taken away later; it is asked for again")))
            }
            _ => Err(reply.failure().await),
        }
    }
}

impl Destination for WebDestination {
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer {
        let told = self.0.block_on(self.told(&self.0.base.path_of(name), moved));
        told.map_or_else(Answer::Failed, Answer::Told)
    }

    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer {
        self.0.block_on(self.put(sending, content, moved)).unwrap_or_else(|answer| answer)
    }

    fn pull(&self, fetching: &Fetching, moved: &dyn Moved) -> Answer {
        self.0.block_on(self.pulled(fetching, moved)).unwrap_or_else(Answer::Failed)
    }

    fn rename(&self, from: &Name, to: &Name) -> Answer {
        self.0.block_on(self.renamed(from, to, false)).unwrap_or_else(Answer::Failed)
    }

    fn replace(&self, from: &Name, to: &Name) -> Answer {
        self.0.block_on(self.renamed(from, to, true)).unwrap_or_else(Answer::Failed)
    }

    fn remove(&self, name: &Name) -> Answer {
        self.0.block_on(self.removed(name)).unwrap_or_else(Answer::Failed)
    }

    fn on_tape(&self, _: &Name, _: &dyn Moved) -> Answer {
        Answer::Failed(Failure::Refused("WebDAV cannot say what is on tape".to_owned()))
    }

    fn address_of(&self, name: &Name) -> String {
        self.0.base.uri(&self.0.base.path_of(name)).to_string()
    }

    fn place_of(&self, _name: &Name) -> Option<(u64, u64)> {
        None
    }
}

const CACHE_CONTROL_NAME: &str = "cache-control";

fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("the name of a method")
}
