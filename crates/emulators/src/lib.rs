//! The read-out and the event filter as emulators: programs that do to a store what a detector and its
//! filter do, with recorded or generated events, and the check that nothing was lost on the way.
//!
//! - [`readout`]: writers that each own some sources put the fragments of events, at a rate or flat out,
//!   the input multiplied under new event numbers. The hash of each event is kept in a [`HashLedger`],
//!   outside the store.
//! - [`filter`]: readers lease events, read them whole or in steps, verify them, and accept a fraction
//!   into streams by a [`Choice`] that every filter makes alike.
//! - [`check_files`]: compares what the recorder shipped with the ledger.
//!
//! What is promised: what was put, decided and seen is counted, exactly; an event that is incomplete,
//! lost or wrong is decided, marked and named, never silently dropped. What is not: any physics.
//!
//! Both work on a [`ReadoutStore`] or [`FilterStore`], which the client of a server is, so that tests
//! can pretend one.

mod check;
mod choice;
mod event_set;
pub mod filter;
mod histogram;
mod ledger;
pub mod readout;
mod reports;
mod store;

pub use check::{CheckError, CheckReport, StreamReport, check_files};
pub use choice::{Choice, ChoiceError, StreamRule};
pub use event_set::EventSet;
pub use histogram::Histogram;
pub use ledger::{EventHash, HashLedger, LedgerError, LedgerFile};
pub use reports::Reports;
pub use store::{FilterStore, ReadoutStore, StoreError};
