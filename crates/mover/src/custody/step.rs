//! What custody asks for, how that can go, and what must be remembered of it.

use super::{ConsignmentId, Kept, Standing, What};
use crate::about::Checked;
use crate::name::Name;
use crate::sums::{Sums, Told};

/// What is to be done at a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Say what lies under the name: size and a checksum, computed there, or from all bytes read back past every cache.
    Ask {
        /// The name.
        name: Name,
    },
    /// Say whether what lies under the name is on tape, or whatever else is waited for there.
    AskTape {
        /// The name.
        name: Name,
    },
    /// Stream the bytes of the source, or of the sidecar, there under the temporary name, durably, and say what they came to.
    Send {
        /// The temporary name.
        temporary: Name,
        /// The final one, which it gets later: some destinations must know it from the beginning.
        last: Name,
    },
    /// Let the destination fetch the source's file itself, by the source's door, under the temporary name. Nobody here sees the bytes: what came of it is asked for.
    Pull {
        /// The temporary name.
        temporary: Name,
        /// The final one.
        last: Name,
    },
    /// Give a file of ours its final name, durably. A name that is taken stays with what has it ([`Answer::Taken`]).
    Rename {
        /// The temporary name.
        from: Name,
        /// The final one.
        to: Name,
    },
    /// The same, in the place of a file of ours that is wrong.
    Replace {
        /// The temporary name.
        from: Name,
        /// The final one.
        to: Name,
    },
    /// Take a file of ours away; one that is not there is as good.
    Remove {
        /// Its name.
        name: Name,
    },
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Step::Ask`]: what the destination says, or that there is nothing. The latter to [`Step::AskTape`], too.
    Told(Option<Told>),
    /// To [`Step::AskTape`]: whether it is.
    OnTape(bool),
    /// To [`Step::Send`]: what the bytes that were sent came to.
    Sent(Sums),
    /// To [`Step::Pull`], and to [`Step::Send`] where somebody else read what was sent: it says that it has it.
    Pulled,
    /// To [`Step::Rename`], [`Step::Replace`] and [`Step::Remove`]: it is done.
    Done,
    /// To [`Step::Rename`]: the name is taken.
    Taken,
    /// The destination did not do it.
    Failed(Failure),
    /// To [`Step::Send`]: the source did not give what was to be sent. Nothing lies there under its final name.
    Source(SourceAnswer),
}

/// Why a destination did not do something, in its own words. Nobody may make one of these of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It will not, until somebody changes something: no such directory, no right.
    Refused(String),
    /// It cannot now: it is away, full, or slow.
    NotNow(String),
    /// Nobody knows whether it did: cut off, or no answer in time.
    Unknown(String),
}

impl Failure {
    /// What the destination said.
    pub fn words(&self) -> &str {
        let (Failure::Refused(words) | Failure::NotNow(words) | Failure::Unknown(words)) = self;
        words
    }

    /// Whether it says something of the whole destination.
    pub fn is_of_the_destination(&self) -> bool {
        !matches!(self, Failure::Refused(_))
    }
}

/// What is to be done at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Read all of it, look at its structure, and say what its bytes come to.
    Check,
    /// Let it go: it was proven. Done twice it is as done once.
    Release,
}

/// How a step at the source went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// To [`SourceStep::Check`]: it is whole, and this was found.
    Whole(Checked),
    /// To [`SourceStep::Release`]: it is let go.
    Released,
    /// It is not what was found: somebody wrote it, or took it away.
    Changed(String),
    /// Its content is not what it should be; waiting does not help.
    Damaged(String),
    /// It cannot be read or let go now.
    NotNow(String),
}

/// What must be remembered, durably, before the next step is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of which consignment.
    pub consignment: ConsignmentId,
    /// Of what of it.
    pub of: Changed,
    /// Why, in words for people.
    pub why: String,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The consignment itself.
    Standing {
        /// As it was.
        from: Box<Standing>,
        /// As it is.
        to: Box<Standing>,
    },
    /// A delivery, by its place.
    Delivery {
        /// Which.
        place: usize,
        /// Where to.
        destination: String,
        /// Of the file, or of its sidecar.
        what: What,
        /// As it was.
        from: Box<Kept>,
        /// As it is.
        to: Box<Kept>,
    },
}
