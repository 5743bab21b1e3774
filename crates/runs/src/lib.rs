//! The books of runs and streams: which runs were declared, how far each is, what streams are defined to be.
//!
//! A machine without I/O, as that of names. [`Registry`] takes what is asked and gives what is to be told to the lanes, what is to be kept, and answers, each of which counts when
//! what was kept for it is durable. [`Books`] are what is known; a start makes them of all that was kept. `docs/runs.md` says what the states do.
//!
//! It knows nothing of journals, lanes' contents or connections. What is kept is one record for each run and each version of a stream, absolute: a record may be met twice.

mod books;
mod record;
mod refusal;
mod registry;
#[cfg(test)]
mod tests;

pub use books::Books;
pub use record::{Kept, RECORD_BYTES_MAX, RecordError};
pub use refusal::Refusal;
pub use registry::{Action, Answer, Asked, Registry};
