//! What those who run for long tell of themselves, a server as a mover: alarms with stable codes, metrics over HTTP, and who may reach an address.
//!
//! What raises an alarm and what a number means belongs to whoever has it; here is what is the same for all of them: how an alarm comes and goes
//! ([`alarm::Raised`]), how numbers are written down ([`metrics::text`]), and the thread that serves them ([`http::MetricsServer`]).

pub mod alarm;
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "what serves: sockets, threads and the clock")]
pub mod http;
pub mod metrics;
#[expect(clippy::disallowed_types, reason = "what listens")]
pub mod reach;
pub mod words;
