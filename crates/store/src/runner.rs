//! Driving one lane on its drives.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_engine::{Lane, LaneEvent, Membership};
use forebay_media::{Completion, DriveFile, Media};
use forebay_types::{DriveNumber, Time, WallTime};

/// Called when there is a message for a lane.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// What the control part has for a lane.
#[derive(Clone)]
pub(crate) enum Message {
    Membership(Membership),
    /// A drive that the next membership names.
    Drive(DriveNumber, Arc<DriveFile>),
}

/// Messages of the control part for one lane.
#[derive(Default)]
pub(crate) struct Mailbox {
    messages: Mutex<VecDeque<Message>>,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    pub(crate) fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    fn take(&self) -> Option<Message> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// What the calendar says; not known when the clock stands before 1970.
fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since.as_millis()).unwrap_or(0))
}

/// A lane, its drives and its clock. It decides nothing: it carries operations, completions and messages to and fro.
pub struct LaneRunner {
    lane: Lane,
    media: Box<dyn Media + Send>,
    started: Instant,
    completions: Vec<Completion>,
    events: Sender<(u16, LaneEvent)>,
    mailbox: Arc<Mailbox>,
    number: u16,
}

impl LaneRunner {
    pub(crate) fn new(
        number: u16,
        lane: Lane,
        media: Box<dyn Media + Send>,
        started: Instant,
        events: Sender<(u16, LaneEvent)>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        LaneRunner { lane, media, started, completions: Vec::new(), events, mailbox, number }
    }

    /// The lane, for requests and replies. Call [`LaneRunner::turn`] after each batch of requests.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// The lane's time.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Takes in what the drives and the control part said, lets the lane decide, and gives the drives what it wants. Returns how many
    /// operations came back: when there were some, requests that the lane was too busy for may be offered again.
    pub fn turn(&mut self) -> usize {
        self.media.completions(&mut self.completions);
        self.take_turn()
    }

    /// Like [`LaneRunner::turn`], but waits for the drives for up to `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> usize {
        self.media.wait(timeout, &mut self.completions);
        self.take_turn()
    }

    fn take_turn(&mut self) -> usize {
        let now = self.now();
        self.lane.set_wall_time(wall_time());
        self.lane.set_media_full(self.media.is_full());
        let mut handled = self.completions.len();
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.lane.complete(now, completion);
        }
        self.completions = completions;
        while let Some(message) = self.mailbox.take() {
            self.take_message(message);
            handled += 1;
        }
        self.lane.pump(now);
        while let Some((drive, offset_bytes, bytes)) = self.lane.next_freed() {
            self.media.discard(drive, offset_bytes, bytes);
        }
        let mut submitted = false;
        while let Some((id, operation)) = self.lane.next_operation() {
            self.media.submit(id, operation);
            submitted = true;
        }
        if submitted {
            self.media.kick();
        }
        while let Some(event) = self.lane.next_event() {
            // The control part lives as long as any lane; if it died with a panic, there is nobody to tell.
            let _ = self.events.send((self.number, event));
        }
        handled
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Membership(membership) => self.lane.membership(&membership),
            Message::Drive(drive, file) => {
                if let Err(error) = self.media.add_drive(drive, file) {
                    let lane = self.number;
                    tracing::error!(lane, %drive, %error, "a new drive cannot be reached by this lane: it will be taken out again");
                }
            }
        }
    }

    /// A descriptor that becomes readable when drives have answered.
    pub fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.media.ready()
    }

    /// After how long [`LaneRunner::turn`] must be called although nothing came.
    pub fn next_wakeup(&self) -> Option<Duration> {
        self.lane.next_wakeup().map(|time| time.since(self.now()))
    }

    /// What to call when the control part has a message for this lane; it is called from another thread.
    pub fn set_waker(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        // Given once; a second one would mean two event loops for one lane.
        let first = self.mailbox.waker.set(wake).is_ok();
        assert!(first, "a lane has one event loop");
    }
}
