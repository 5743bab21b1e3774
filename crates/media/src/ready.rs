//! Waiting for a descriptor, for the implementations that have one.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{Completion, Media};

/// Whether `fd` became readable before `timeout` passed. May return early, as false, when interrupted.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    // A time that the kernel cannot express is for ever.
    let timeout = Timespec::try_from(timeout).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(count) => count > 0,
        Err(Errno::INTR) => false,
        Err(error) => panic!("poll of the media's own descriptor failed: {error}"),
    }
}

/// [`Media::wait`] for a media with a descriptor.
///
/// # Panics
/// When it has none.
pub fn wait_for<M: Media>(media: &mut M, timeout: Duration, into: &mut Vec<Completion>) {
    wait_by(media, timeout, into, |media, left| {
        wait_readable(media.ready().expect("this media has a descriptor"), left);
    });
}

/// [`Media::wait`] by something that returns when there may be a completion, or after the time it is given.
pub(crate) fn wait_by<M: Media>(
    media: &mut M,
    timeout: Duration,
    into: &mut Vec<Completion>,
    pause: impl Fn(&M, Duration),
) {
    let before = into.len();
    media.kick();
    let start = Instant::now();
    loop {
        media.completions(into);
        let left = timeout.saturating_sub(start.elapsed());
        if into.len() > before || left.is_zero() {
            return;
        }
        pause(media, left);
    }
}
