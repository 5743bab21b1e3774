//! The server of a Forebay store.
//!
//! [`Server`] listens, and serves the lanes of an [`forebay_store::OpenedStore`]: one thread for each lane, with the connections that
//! named it, so that no request crosses threads; one that accepts; one for control connections. What decides is in [`Service`], a machine
//! without clock, threads or sockets; the rest carries bytes.
//!
//! How a put goes through: the lane's thread reads from the socket into a receive buffer that fits the core's cache (`staging.rs`), takes
//! the table of the put (`service/begin.rs`) and gives each fragment to the lane as soon as it is there whole (`service/puts.rs`); the lane
//! copies it into its flush, which is the only copy. When all fragments are durable, `service/finish.rs` writes the answer.
//!
//! # What it promises
//! - A connection that stalls, in either direction, harms only itself: what it holds is bounded, and given up after a while.
//! - Backpressure reaches writers in words (credit, a wait while the store fills) before their sockets stand still.
//! - A stop refuses what is new, makes durable what was taken, answers it and marks the store clean.
//! - What is wrong is told by alarms with stable codes ([`alarm`]), by the state, by the log and at `/metrics`; whoever asks there
//!   waits for no lane, and no lane for them.
//! - An idle connection holds less than 1 KiB in this process: about 600 bytes of state, measured, and no buffers.
//!
//! # What it is not
//! It knows nobody: until clients are authenticated it listens on loopback, or elsewhere only when told which networks to trust.

pub mod alarm;
mod changes;
mod config;
mod connection;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what drives the machines: sockets and the clock"
)]
mod driver;
mod greeting;
mod lane_requests;
pub mod limits;
mod metrics;
mod monitor;
mod namespace;
mod open_files;
mod openings;
mod outgoing;
mod pressure;
mod put_table;
mod rates;
mod request;
mod schedule;
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "what starts the drivers: sockets and threads")]
mod server;
mod service;
mod smart;
mod staging;
mod status;

pub use config::{RatedWrites, ServerConfig};
pub use greeting::{Greeting, NotGreeted};
pub use lane_requests::{FileRequests, LaneRequests};
pub use namespace::{FilesMessage, NamesFound, NamesLoading, keeps_names};
pub use pressure::Pressure;
pub use server::{Listener, Server, ServerError, StartError, StopHandle, Stopped};
pub use service::{Service, ServiceConfig, Stall, Step};

/// Name and version, as the greeting and the status tell them.
pub const SERVER_NAME: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));
