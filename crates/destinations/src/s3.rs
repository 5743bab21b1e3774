//! S3. It has no renaming: what is uploaded and not completed has no name yet, and a small object under the temporary name says which upload that is.

mod keys;
mod marker;
mod trouble;
mod upload;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Content, Destination, Moved, Sending};
use forebay_mover::{Name, Summer, Sums, Told};
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectMeta, ObjectStoreExt, PutPayload, RetryConfig};

use keys::FileKeys;
use marker::{MARKER_BYTES_MAX, Marker, Sent};
use trouble::{failure, is_no_such_upload, is_not_found, is_under_way};
use upload::Parts;

use crate::runtime::Runtime;
use crate::{Access, Address, OpenError, Secret, tls};

const CONNECT_MAX: Duration = Duration::from_secs(20);
/// A connection that stands still for so long is given up. The mover waits for none so long: this ends the thread that it left behind.
const QUIET_MAX: Duration = Duration::from_secs(300);
/// Of so many files it is remembered which ETag they had when they were completed; of others all is read back.
const REMEMBERED_MAX: usize = 10_000;

/// A prefix of a bucket.
pub(crate) struct S3Destination {
    runtime: Runtime,
    store: AmazonS3,
    bucket: String,
    prefix: String,
    completed: Mutex<BTreeMap<String, (String, Sums)>>,
}

/// What lies under a temporary name.
enum Found {
    Nothing,
    Marker(Marker),
    /// No marker: so many bytes.
    Another(u64),
}

impl S3Destination {
    /// Makes it ready.
    ///
    /// # Errors
    /// What is no bucket, and files that cannot be used.
    pub(crate) fn new(address: &Address, access: &Access) -> Result<S3Destination, OpenError> {
        let bucket = address.host();
        if !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')) {
            return Err(OpenError::Access("its bucket is none; give s3://BUCKET/PATH, and --s3-endpoint".to_owned()));
        }
        let store = builder(access)?.with_bucket_name(bucket).build();
        let store = store.map_err(|error| OpenError::Access(crate::words::whole(&error)))?;
        let runtime =
            Runtime::new().map_err(|error| OpenError::Missing(format!("no thread could be started: {error}")))?;
        let prefix = if address.path().is_empty() { String::new() } else { format!("{}/", address.path()) };
        Ok(S3Destination { runtime, store, bucket: bucket.to_owned(), prefix, completed: Mutex::default() })
    }

    fn path_of(&self, name: &Name) -> Result<Path, Failure> {
        let key = format!("{}{name}", self.prefix);
        Path::parse(&key)
            .map_err(|error| Failure::Refused(format!("{key}: no name that S3 takes: {error}; rename the file")))
    }

    async fn head(&self, path: &Path) -> Result<Option<ObjectMeta>, Failure> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(failure("look for", path.as_ref(), &error)),
        }
    }

    async fn found(&self, path: &Path) -> Result<Found, Failure> {
        let failed = |error: &object_store::Error| failure("look for", path.as_ref(), error);
        let got = match self.store.get(path).await {
            Ok(got) => got,
            Err(error) if is_not_found(&error) => return Ok(Found::Nothing),
            Err(error) => return Err(failed(&error)),
        };
        let bytes = got.meta.size;
        if bytes > MARKER_BYTES_MAX {
            return Ok(Found::Another(bytes));
        }
        let read = got.bytes().await.map_err(|error| failed(&error))?;
        Ok(Marker::parse(&read).map_or(Found::Another(bytes), Found::Marker))
    }

    async fn put_marker(&self, path: &Path, marker: &Marker) -> Result<(), Failure> {
        let put = self.store.put(path, PutPayload::from(marker.to_bytes())).await;
        put.map(drop).map_err(|error| failure("remember an upload under", path.as_ref(), &error))
    }

    async fn delete(&self, path: &Path) -> Result<(), Failure> {
        match self.store.delete(path).await {
            Err(error) if !is_not_found(&error) => Err(failure("delete", path.as_ref(), &error)),
            _ => Ok(()),
        }
    }

    /// Gives an upload up; one that is gone is as good.
    async fn abort(&self, path: &Path, upload: &String) -> Result<(), Failure> {
        match self.store.abort_multipart(path, upload).await {
            Ok(()) => Ok(()),
            Err(error) if is_no_such_upload(&error) || is_not_found(&error) => Ok(()),
            Err(error) => Err(failure("give up the upload of", path.as_ref(), &error)),
        }
    }

    async fn told(&self, name: &Name, moved: &dyn Moved) -> Result<Option<Told>, Failure> {
        let path = self.path_of(name)?;
        if !is_temporary(name) {
            return self.told_of_file(&path, moved).await;
        }
        let nothing = |bytes| Some(Told { bytes, adler32: None, crc32c: None });
        Ok(match self.found(&path).await? {
            Found::Nothing => None,
            Found::Marker(Marker { sent: Some(sent), .. }) => Some(sent.sums().into()),
            Found::Marker(Marker { sent: None, .. }) => nothing(0),
            Found::Another(bytes) => nothing(bytes),
        })
    }

    async fn told_of_file(&self, path: &Path, moved: &dyn Moved) -> Result<Option<Told>, Failure> {
        let Some(meta) = self.head(path).await? else { return Ok(None) };
        moved.moved(0);
        let remembered = self.completed.lock().unwrap_or_else(PoisonError::into_inner).get(path.as_ref()).cloned();
        if let Some((etag, sums)) = remembered
            && meta.size == sums.bytes
            && etag_of(&meta) == Some(etag.as_str())
        {
            return Ok(Some(sums.into()));
        }
        let got = match self.store.get(path).await {
            Ok(got) => got,
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => return Err(failure("read back", path.as_ref(), &error)),
        };
        let (mut summer, mut blocks) = (Summer::default(), got.into_stream());
        while let Some(block) = blocks.next().await {
            let block = block.map_err(|error| failure("read back", path.as_ref(), &error))?;
            summer.update(&block);
            if !moved.moved(block.len() as u64) {
                return Err(Failure::NotNow("the mover ends".to_owned()));
            }
        }
        Ok(Some(summer.sums().into()))
    }

    async fn sent(&self, sending: &Sending<'_>, content: &mut dyn Content, moved: &dyn Moved) -> Result<Sums, Answer> {
        if !is_temporary(sending.temporary) {
            let words = format!("{}: no name of an attempt, which S3 needs; nothing was sent", sending.temporary);
            return Err(Answer::Failed(Failure::Refused(words)));
        }
        let (temporary, last) = (self.path_of(sending.temporary), self.path_of(sending.last));
        let (temporary, last) = (temporary.map_err(Answer::Failed)?, last.map_err(Answer::Failed)?);
        let upload = self.store.create_multipart(&last).await;
        let upload = upload.map_err(|error| Answer::Failed(failure("begin an upload of", last.as_ref(), &error)))?;
        let mut marker = Marker { key: last.to_string(), upload, sent: None };
        self.put_marker(&temporary, &marker).await.map_err(Answer::Failed)?;
        let sent = Parts::send((&self.store, &last, &marker.upload), sending.bytes, content, moved).await?;
        let sums = sent.sums();
        marker.sent = Some(sent);
        self.put_marker(&temporary, &marker).await.map_err(Answer::Failed)?;
        moved.moved(0);
        Ok(sums)
    }

    async fn renamed(&self, from: &Name, to: &Name, may_replace: bool) -> Result<Answer, Failure> {
        let (temporary, last) = (self.path_of(from)?, self.path_of(to)?);
        let marker = match self.found(&temporary).await? {
            Found::Marker(marker) if marker.key == last.as_ref() => marker,
            // What was completed has its name, perhaps.
            _ => {
                return Err(Failure::Unknown(format!(
                    "{temporary}: no upload of {last} waits there; what was done is looked for"
                )));
            }
        };
        let Some(sent) = &marker.sent else {
            return Err(Failure::Unknown(format!("{temporary}: not all parts of {last} are there")));
        };
        // What has the ETag of this upload is this upload, completed before: it is completed once more, which changes nothing.
        if !may_replace && self.head(&last).await?.is_some_and(|meta| !is_of(&meta, sent)) {
            return Ok(Answer::Taken);
        }
        let parts = sent.part_etags.iter().map(|etag| PartId { content_id: etag.clone() }).collect();
        let completed = self.store.complete_multipart(&last, &marker.upload, parts).await;
        match completed {
            Ok(_) => self.remember(&last, sent),
            Err(error) if is_no_such_upload(&error) || is_under_way(&error) => {
                self.check_completed(&temporary, &last, sent, &error).await?;
            }
            Err(error) => return Err(failure("complete", last.as_ref(), &error)),
        }
        self.delete(&temporary).await?;
        Ok(Answer::Done)
    }

    /// It cannot be completed: was it before?
    async fn check_completed(
        &self,
        temporary: &Path,
        last: &Path,
        sent: &Sent,
        error: &object_store::Error,
    ) -> Result<(), Failure> {
        if self.head(last).await?.is_some_and(|meta| is_of(&meta, sent)) {
            self.remember(last, sent);
            return Ok(());
        }
        // It must not be given up meanwhile: that might take the parts from under what is being completed.
        if is_under_way(error) {
            return Err(Failure::Unknown(format!(
                "{last} is being completed, or its upload is gone: Ceph says the same of both. If it says so for hours, delete {temporary} there; then the file is sent again"
            )));
        }
        // Nothing waits for it any more: what is there under the other name decides.
        self.delete(temporary).await?;
        Err(Failure::Unknown(format!(
            "the upload of {last} is gone, by a rule of the bucket or by somebody; what is there is looked for"
        )))
    }

    /// What has the ETag that follows from the parts has their sums.
    fn remember(&self, last: &Path, sent: &Sent) {
        let mut completed = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
        completed.remove(last.as_ref());
        if let Some(etag) = &sent.etag {
            if completed.len() >= REMEMBERED_MAX {
                completed.clear();
            }
            completed.insert(last.to_string(), (etag.clone(), sent.sums()));
        }
    }

    /// Whether what has the final name may be this upload: to give it up then might take the bytes from it. One that is left instead does no harm.
    async fn may_be_completed(&self, last: &Path, marker: &Marker) -> Result<bool, Failure> {
        let Some(sent) = &marker.sent else { return Ok(false) };
        let is_unknown = |meta: &ObjectMeta| sent.etag.is_none() && meta.size == sent.sums().bytes;
        Ok(self.head(last).await?.is_some_and(|meta| is_of(&meta, sent) || is_unknown(&meta)))
    }

    async fn removed(&self, name: &Name) -> Result<Answer, Failure> {
        let path = self.path_of(name)?;
        if is_temporary(name)
            && let Found::Marker(marker) = self.found(&path).await?
        {
            let last =
                Path::parse(&marker.key).map_err(|error| Failure::Refused(format!("{path}: no marker: {error}")))?;
            if !self.may_be_completed(&last, &marker).await? {
                self.abort(&last, &marker.upload).await?;
            }
        }
        self.delete(&path).await?;
        Ok(Answer::Done)
    }
}

impl Destination for S3Destination {
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer {
        self.runtime.block_on(self.told(name, moved)).map_or_else(Answer::Failed, Answer::Told)
    }

    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer {
        self.runtime.block_on(self.sent(sending, content, moved)).map_or_else(|answer| answer, Answer::Sent)
    }

    fn rename(&self, from: &Name, to: &Name) -> Answer {
        self.runtime.block_on(self.renamed(from, to, false)).unwrap_or_else(Answer::Failed)
    }

    fn replace(&self, from: &Name, to: &Name) -> Answer {
        self.runtime.block_on(self.renamed(from, to, true)).unwrap_or_else(Answer::Failed)
    }

    fn remove(&self, name: &Name) -> Answer {
        self.runtime.block_on(self.removed(name)).unwrap_or_else(Answer::Failed)
    }

    fn on_tape(&self, _: &Name, _: &dyn Moved) -> Answer {
        Answer::Failed(Failure::Refused("S3 cannot say what is on tape".to_owned()))
    }

    fn address_of(&self, name: &Name) -> String {
        format!("s3://{}/{}{name}", self.bucket, self.prefix)
    }

    fn place_of(&self, _name: &Name) -> Option<(u64, u64)> {
        None
    }
}

/// Whether it is the name of an attempt, which no file has.
fn is_temporary(name: &Name) -> bool {
    name.file().starts_with('.') && name.file().ends_with(".part")
}

fn etag_of(meta: &ObjectMeta) -> Option<&str> {
    meta.e_tag.as_deref().map(|etag| etag.trim_matches('"'))
}

/// Whether an object has the ETag that follows from the parts of an upload.
fn is_of(meta: &ObjectMeta, sent: &Sent) -> bool {
    sent.etag.is_some() && etag_of(meta) == sent.etag.as_deref()
}

/// Where, with which keys, and who may vouch for it. What fails is told, and tried again by the mover alone.
fn builder(access: &Access) -> Result<AmazonS3Builder, OpenError> {
    let mut builder = AmazonS3Builder::from_env();
    let mut options =
        ClientOptions::new().with_connect_timeout(CONNECT_MAX).with_read_timeout(QUIET_MAX).with_timeout_disabled();
    if let Some(endpoint) = &access.s3_endpoint {
        let is_plain = endpoint.starts_with("http://");
        if !is_plain && !endpoint.starts_with("https://") {
            let words = format!("{endpoint:?} is no address of an S3 service; give --s3-endpoint https://HOST:PORT");
            return Err(OpenError::Access(words));
        }
        options = options.with_allow_http(is_plain);
        builder = builder.with_endpoint(endpoint.trim_end_matches('/')).with_virtual_hosted_style_request(false);
    }
    for certificate in access.ca_file.as_deref().map(tls::certificates).transpose()?.unwrap_or_default() {
        let certificate = Certificate::from_der(&certificate);
        let certificate = certificate
            .map_err(|error| OpenError::Access(format!("a certificate of the file for --ca-file: {error}")))?;
        options = options.with_root_certificate(certificate);
    }
    if let Some(file) = &access.s3_credentials_file {
        let keys = FileKeys(Secret::new(file.clone()));
        keys.get()?;
        builder = builder.with_credentials(Arc::new(keys));
    }
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    Ok(builder.with_client_options(options).with_retry(retry).with_disable_bulk_delete(true))
}
