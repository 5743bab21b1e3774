//! A server with a real store on files, asked over loopback.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the tests have threads and sockets")]

mod alarms;
mod faults;
mod local;
mod metrics;
mod requests;
mod stop;
mod world;
