//! The client of a Forebay server.
//!
//! [`Client`] is what programs use: blocking, without threads of its own, one connection per lane opened
//! when it is needed. [`Session`] is the machine underneath, one for each connection: it batches puts,
//! keeps what is unanswered and decides when to send it again. It has no clock, no sockets and no
//! randomness, so that tests and simulators can drive it through every cut and delay. What one call makes of
//! several lanes is in [`spread`], without sockets too. [`files`] is a layer on top for those who want paths and bytes. Who keeps many requests of
//! its own on their way, and takes work from other threads meanwhile, starts them ([`Client::start`]), takes turns ([`Client::turn`], [`Client::turn_waker`])
//! and takes the answers as they come ([`Client::next_answer`]).
//!
//! ```no_run
//! use forebay_client::{Client, ClientConfig};
//! use forebay_types::FragmentId;
//!
//! # fn main() -> Result<(), forebay_client::ClientError> {
//! let mut client = Client::connect(ClientConfig::new("127.0.0.1:7420", "example"))?;
//! let id = FragmentId::new(1, 7, 0x100);
//! client.put(id, 1, b"the bytes of the fragment")?;
//! client.flush()?;
//! let mut results = Vec::new();
//! client.take_put_results(&mut results);
//! assert!(results[0].outcome.is_acknowledged());
//! assert_eq!(client.get(id)?, b"the bytes of the fragment");
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - A put is reported exactly once by [`Client::take_put_results`], as what the server last said of it.
//! - Every call survives a restart of the server: it connects again and repeats what was not answered,
//!   under the same request id, until its deadline. Repeating is safe: all requests are idempotent, but for a write to a file of which the
//!   server chooses the place; that one is repeated only to the start of the server that had it, which remembers it, and is told as unknown else.
//! - Bytes that are read have the checksum that their writer computed, or the call says that they do not.
//!
//! # What it does not do
//! It has no thread: batches leave and replies arrive while one of its methods runs. A program that puts
//! rarely calls [`Client::take_put_results`] or [`Client::flush`] now and then.

mod answer;
mod blocks;
mod chunks;
mod client;
mod config;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what drives the sessions: sockets and the clock"
)]
mod driver;
mod error;
pub mod files;
#[expect(clippy::disallowed_types, reason = "what is shared with another process has a descriptor")]
mod local;
mod session;
pub mod spread;
mod subscription;

pub use answer::{AcceptedPage, Decision, FetchedEvent, FetchedFragment, Lease, PutResult};
pub use blocks::Blocks;
pub use client::{Client, KnownRun, RunPage, Signature};
pub use config::{ClientConfig, ServerInfo};
pub use driver::{Ticket, TurnWaker, Wait};
pub use error::ClientError;
pub use session::{Answer, Part, PutBytes, Request, Session, SessionConfig, SessionError, SessionEvent};

pub use subscription::{Subscription, SubscriptionCounts};

pub use forebay_protocol::{
    AcceptedEvent, ChangeDrive, Class, DriveChange, ErrorCode, EventState, LeasedEvent, RunInfo, StreamInfo, ToldEvent,
};
