//! Who owns a store that several servers reach, and how another server takes it over when the owner is dead (`docs/ceph.md`).
//!
//! Two machines, without I/O, clock, threads or random numbers. The [`Owner`] shows that it lives by a pulse, and knows until when it may answer anybody. The
//! [`Standby`] looks at the pulse of who has the lock, and, when it stands still, takes the store over, in this order and no other: the holder is fenced, the
//! newest map of the cluster is waited for, all objects are listed, the lock is broken, and taken. When something fails, or the standby is killed, whoever goes
//! on begins with a look: each step may be done again. A holder that could not be fenced keeps the store, and it is tried again, later each time.
//!
//! # Why nothing is lost
//!
//! An owner answers nobody later than [`Timing::answers_for`] after it *asked* for the last pulse that was written. A standby that is not told to by an operator
//! fences no earlier than [`Timing::dead_after`] after it *saw* a pulse that was not there before, which is after it was written, which is after it was asked for. So
//! an owner that is replaced has stopped before, whatever it believes, as long as both clocks run about as fast ([`Timing::new`] keeps a third between both times).
//! An owner that lapsed because the cluster did not answer may answer again when a pulse of it is written, so that a pool that blocks for a while costs nothing but
//! that while. So the pulse is looked at once more when the list is there, by which nothing of the fenced holder is taken any more: when it has changed, the lock is
//! broken only after [`Timing::answers_for`].
//!
//! What a replaced owner still has on its way to the cluster is refused: the fence keeps away what every drive of the cluster takes from it once that drive knows the map in which
//! the fence stands, and the list makes every drive know it before the lock is broken.

mod owner;
mod standby;
mod timing;

pub use owner::{Owner, Renewal};
pub use standby::{Answer, Patience, Seen, Standby, Step};
pub use timing::{Timing, TimingError};
