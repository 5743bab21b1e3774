//! What a lane is asked by those who look on, and what it says.

use forebay_types::{Cursor, EventKey, Fraction, RunId, StreamName};

/// What somebody wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Events of this run alone.
    pub run: Option<RunId>,
    /// Events when they are accepted into this stream; `None`: events as soon as filters may have them, decided or not.
    pub stream: Option<StreamName>,
    /// Of these, so many.
    pub fraction: Fraction,
    /// What happened behind this; `None`: nothing yet, only where what happens from now on begins.
    pub after: Option<Cursor>,
}

/// An event of which somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldEvent {
    /// The event.
    pub key: EventKey,
    /// Its fragments, as they are now.
    pub fragments: u32,
    /// Their bytes.
    pub bytes: u64,
    /// When it happened some of its fragments were missing, or nobody had said how many there should be.
    pub incomplete: bool,
}

/// What happened, as far as it is told at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldPage {
    /// The events, in the order in which it happened.
    pub events: Vec<ToldEvent>,
    /// To be given with the next request.
    pub next: Cursor,
    /// What was asked for began in an earlier start. What happened in that one and was not told is not known, and not counted.
    pub restarted: bool,
    /// Events of all runs that were forgotten before they were looked at.
    pub dropped: u64,
    /// Events that were wanted and are over by now.
    pub gone: u32,
    /// Whether more happened than was looked at.
    pub more: bool,
}
