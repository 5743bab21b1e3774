//! What librados says when something fails.

use std::io;

/// An operation on the cluster failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Ceph: {what}: {message} (os error {errno})")]
pub struct RadosError {
    /// What was to be done, with names.
    pub what: String,
    /// The error number of the operating system.
    pub errno: i32,
    /// The same in words.
    pub message: String,
}

impl RadosError {
    /// Of what librados returned, which is negative.
    pub(crate) fn new(what: impl Into<String>, returned: i32) -> Self {
        let errno = returned.saturating_neg();
        RadosError { what: what.into(), errno, message: words_of(errno) }
    }

    /// Whether it is this error number.
    pub(crate) fn is(&self, errno: rustix::io::Errno) -> bool {
        self.errno == errno.raw_os_error()
    }
}

/// The words of an error number, without the number. Some mean something else here than to a drive.
pub(crate) fn words_of(errno: i32) -> String {
    use rustix::io::Errno;
    let is = |known: Errno| errno == known.raw_os_error();
    if is(Errno::SHUTDOWN) {
        return "this client is on the cluster's blocklist: another server has taken the store over".to_owned();
    }
    if is(Errno::CANCELED) {
        return "somebody else owns the store now".to_owned();
    }
    if is(Errno::PERM) || is(Errno::ACCESS) {
        return "this user's key has no right to that: `ceph auth get client.USER` shows its rights, docs/ceph.md those that are needed".to_owned();
    }
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A return value that is negative when something failed.
pub(crate) fn check(returned: i32, what: impl FnOnce() -> String) -> Result<i32, RadosError> {
    if returned < 0 { Err(RadosError::new(what(), returned)) } else { Ok(returned) }
}
