//! A server with a real store on files, asked over loopback.

mod faults;
mod requests;
mod stop;
mod world;
