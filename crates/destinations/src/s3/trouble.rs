//! What a failure of S3 means.

use std::error::Error;

use forebay_mover::custody::Failure;
use object_store::client::{HttpError, HttpErrorKind};

use crate::words::{plain, whole};

/// How `object_store` tells an answer that is no success; the type of it is not public.
const STATUS: &str = "Server returned non-2xx status code: ";

/// The status that a server answered with.
fn status(error: &(dyn Error + 'static)) -> Option<u16> {
    chain(error).find_map(|error| error.to_string().strip_prefix(STATUS)?.get(..3)?.parse().ok())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.source();
        Some(this)
    })
}

/// Whether a server says that there is no such upload, or that there is none any more.
pub(super) fn is_no_such_upload(error: &object_store::Error) -> bool {
    whole(error).contains("NoSuchUpload")
}

/// Whether it is being completed, as Ceph 16 says also, and for ever, of an upload that is gone.
pub(super) fn is_under_way(error: &object_store::Error) -> bool {
    whole(error).contains("completion is already in progress")
}

/// Whether there is no such object.
pub(super) fn is_not_found(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !whole(error).contains("NoSuchBucket")
}

/// What an operator is told, and what it means.
pub(super) fn failure(action: &str, key: &str, error: &object_store::Error) -> Failure {
    let said = plain_end(&whole(error));
    let words = |advice: &str| format!("{action} {key}: {said}. {advice}");
    if let Some(status) = status(error) {
        return match status {
            _ if said.contains("QuotaExceeded") => Failure::NotNow(words("It is full; make room there")),
            401 | 403 => Failure::Refused(words(
                "The keys have no right to do this there, or are wrong. They need to read, write, delete and list (without which what is missing is not told); put others into their file, then retry",
            )),
            404 => Failure::Refused(words(
                "There is no such bucket, or no longer what was begun there. Look whether the address is right, then retry",
            )),
            507 => Failure::NotNow(words("It is full; make room there")),
            408 | 409 | 423 | 425 | 429 | 500.. => Failure::NotNow(words("It cannot now")),
            _ => Failure::Refused(words("Look at what it says, then retry")),
        };
    }
    match chain(error).find_map(|error| error.downcast_ref::<HttpError>()).map(HttpError::kind) {
        Some(HttpErrorKind::Connect) if said.contains("certificate") => Failure::NotNow(words(
            "Nothing was sent to a server that is not known; if it is the right one, give the certificate of who vouches for it with --ca-file",
        )),
        Some(HttpErrorKind::Connect) => Failure::NotNow(words("The server is away, or the address is wrong")),
        Some(_) => Failure::Unknown(words("The connection was cut; what was done is looked for")),
        None if chain(error).any(|error| error.is::<crate::OpenError>()) => Failure::NotNow(said),
        None => Failure::Unknown(words("What was done is looked for")),
    }
}

/// The end of it is what the server said itself.
fn plain_end(text: &str) -> String {
    let said = text.rfind(STATUS).map_or(text, |at| &text[at + STATUS.len()..]);
    // An answer is XML: code and message are what a person reads.
    let of = |tag: &str| Some(said.split_once(&format!("<{tag}>"))?.1.split_once('<')?.0);
    match (of("Code"), of("Message")) {
        (Some(code), message) => {
            plain(format!("{} {code}: {}", said.get(..3).unwrap_or_default(), message.unwrap_or_default()).as_bytes())
        }
        _ => plain(said.as_bytes()),
    }
}
