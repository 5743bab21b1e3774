//! Which accepted events to take next: walks along the store's list, from its beginning to its end, again
//! and again.
//!
//! The store says which event is the smallest that is not decided. Accepted events below it are in order
//! for good and are taken at once. Those behind it wait, so that files come out in order, but no longer
//! than `order_wait`: marks remember how far the list reached at a time, and when a mark is old enough
//! everything up to it is taken.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_types::{EventKey, RunId, Time};

/// Events in a page of the list.
const PAGE_EVENTS: u32 = 4096;
/// Events that are fetched at once.
const FETCH_EVENTS_MAX: usize = 512;
/// The wait before another walk, when the last one met events that cannot be read for now.
const RETRY: Duration = Duration::from_secs(1);
/// The wait before the next walk, for each page on which nothing was new: ten times what a server takes for one.
const IDLE_PAGE_WAIT: Duration = Duration::from_millis(10);
/// Marks while events wait; each event waits at most an eighth longer than its mark, which is as much earlier.
const MARKS: u32 = 8;

/// How a walk goes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// An event that is not decided holds accepted ones behind it back for so long at most.
    pub order_wait: Duration,
    /// The time between the beginnings of two walks.
    pub poll: Duration,
    /// It shall end when nothing accepted is left.
    pub once: bool,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait until then.
    Wait {
        /// When to go on.
        until: Time,
    },
    /// Ask the store for accepted events.
    List {
        /// Behind this one.
        after: Option<EventKey>,
        /// At most so many.
        max: u32,
    },
}

/// A walk along the list of accepted events of a stream.
#[derive(Debug, Default)]
pub struct Walk {
    /// A walk is under way.
    walking: bool,
    /// The last event of the last page.
    cursor: Option<EventKey>,
    /// The list goes on behind the cursor, as far as is known.
    more: bool,
    next_at: Time,
    /// Pages of this walk on which nothing was new.
    idle_pages: u32,
    /// To be fetched, ascending.
    wanted: VecDeque<AcceptedEvent>,
    /// Events of this walk that were taken.
    took: u64,
    /// Events of this walk that cannot be read for now.
    unavailable: u64,
    /// Events of this walk that are left where they are.
    refused: u64,
    /// The largest event of this walk that waits for undecided ones.
    held: Option<EventKey>,
    /// Everything up to here waited long enough.
    free_until: Option<EventKey>,
    marks: VecDeque<(Time, EventKey)>,
    /// What the last whole walk came to.
    last: Option<Outcome>,
    begun: u64,
    /// The newest that left nothing behind for now.
    whole: u64,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    took: u64,
    unavailable: u64,
    refused: u64,
    held: bool,
}

impl Walk {
    /// The next step, when there is nothing to fetch or to append.
    pub fn next(&mut self, now: Time, pace: &Pace) -> Next {
        assert!(self.wanted.is_empty(), "what is wanted is fetched before the walk goes on");
        if self.walking {
            let goes_on = self.more && (self.held.is_none() || self.mark_is_due(now, pace));
            if goes_on {
                return Next::List { after: self.cursor, max: PAGE_EVENTS };
            }
            self.end(now, pace);
            if pace.once {
                // Whether that was the end is decided before another walk begins.
                return Next::Wait { until: now };
            }
        }
        if now < self.next_at {
            return Next::Wait { until: self.next_at };
        }
        self.begin(now, pace);
        Next::List { after: None, max: PAGE_EVENTS }
    }

    fn begin(&mut self, now: Time, pace: &Pace) {
        let wait = Self::mark_wait(pace);
        self.free_until = None;
        while let Some((_, key)) = self.marks.pop_front_if(|(since, _)| *since + wait <= now) {
            self.free_until = self.free_until.max(Some(key));
        }
        self.walking = true;
        self.begun += 1;
        self.cursor = None;
        self.more = true;
        self.took = 0;
        self.unavailable = 0;
        self.refused = 0;
        self.held = None;
        self.idle_pages = 0;
        self.next_at = now + pace.poll;
    }

    fn end(&mut self, now: Time, pace: &Pace) {
        self.walking = false;
        match self.held {
            Some(held) if self.mark_is_due(now, pace) => self.marks.push_back((now, held)),
            Some(_) => {}
            None => self.marks.clear(),
        }
        if self.unavailable + self.refused > 0 {
            self.next_at = now + RETRY.max(pace.poll);
        }
        // While much is on its way, a walk is for little that is new.
        self.next_at = self.next_at.max(now + IDLE_PAGE_WAIT * self.idle_pages);
        if self.held.is_none() && self.unavailable == 0 {
            self.whole = self.begun;
        }
        let (took, unavailable, refused) = (self.took, self.unavailable, self.refused);
        self.last = Some(Outcome { took, unavailable, refused, held: self.held.is_some() });
    }

    fn mark_wait(pace: &Pace) -> Duration {
        pace.order_wait * (MARKS - 1) / MARKS
    }

    fn mark_is_due(&self, now: Time, pace: &Pace) -> bool {
        self.marks.back().is_none_or(|(since, _)| *since + pace.order_wait / MARKS <= now)
    }

    /// A page of the list.
    pub fn page(&mut self, page: AcceptedPage, pace: &Pace, is_taken: impl Fn(&EventKey) -> bool) {
        self.more = page.more && !page.events.is_empty();
        let before = (self.wanted.len(), self.held);
        for event in page.events {
            self.cursor = self.cursor.max(Some(event.key));
            if is_taken(&event.key) {
                continue;
            }
            let in_order = page.undecided_floor.is_none_or(|floor| event.key < floor) || pace.order_wait.is_zero();
            if in_order || self.free_until.is_some_and(|free| event.key <= free) {
                self.wanted.push_back(event);
            } else {
                self.held = self.held.max(Some(event.key));
            }
        }
        let is_full = self.more && before == (self.wanted.len(), self.held);
        self.idle_pages = self.idle_pages.saturating_add(u32::from(is_full));
    }

    /// The run of what is to be fetched next.
    pub fn next_run(&self) -> Option<RunId> {
        self.wanted.front().map(|event| event.key.run)
    }

    /// What to fetch at once, of one run; the first event whatever its size.
    pub fn take_batch(&mut self, fetch_bytes: u64) -> Option<Vec<AcceptedEvent>> {
        let mut bytes = 0u64;
        let mut batch = Vec::new();
        while let Some(event) = self.wanted.front() {
            bytes = bytes.saturating_add(event.bytes);
            let is_of_another = batch.last().is_some_and(|last: &AcceptedEvent| last.key.run != event.key.run);
            if is_of_another || !batch.is_empty() && (bytes > fetch_bytes || batch.len() == FETCH_EVENTS_MAX) {
                break;
            }
            batch.extend(self.wanted.pop_front());
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// An event of this walk is in a file.
    pub fn took(&mut self) {
        self.took += 1;
    }

    /// So many events of this walk cannot be read for now.
    pub fn saw_unavailable(&mut self, events: u64) {
        self.unavailable += events;
    }

    /// So many events of this walk stay where they are, for a reason that is told elsewhere.
    pub fn refused(&mut self, events: u64) {
        self.refused += events;
    }

    /// Events that were taken are to be taken again: what was found so far says nothing.
    pub fn start_over(&mut self) {
        self.last = None;
        self.took = self.took.max(1);
    }

    /// Whether the last whole walk says that nothing is left, and that is the end.
    pub fn found_nothing(&self, pace: &Pace) -> bool {
        let nothing = |last: Outcome| last.took == 0 && last.unavailable + last.refused == 0 && !last.held;
        pace.once && !self.walking && self.last.is_some_and(nothing)
    }

    /// Walks that were begun.
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// The newest walk that came to its end with nothing left behind: neither for undecided events nor as it could not be read.
    pub const fn whole(&self) -> u64 {
        self.whole
    }

    /// How many events the last whole walk could not read, or had to leave, when it found nothing else; `None` before
    /// the end of a walk.
    pub fn only_unavailable(&self) -> Option<Option<u64>> {
        let left = |last: Outcome| last.unavailable + last.refused;
        self.last.map(|last| (last.took == 0 && left(last) > 0).then(|| left(last)))
    }
}
