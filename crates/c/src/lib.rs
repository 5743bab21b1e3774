//! The client of a Forebay server for C, and for all that speaks C.
//!
//! `include/forebay.h` is made of this crate (`tests/header.rs`), and `include/forebay.hpp` is C++ over it. The rules for programs stand in `docs/c.md`.
//!
//! # What it promises
//! - Nothing unwinds into C: each function that can fail gives a code, and a mistake of ours is one, too ([`code::FOREBAY_INTERNAL`]).
//! - A null pointer, a bad length or a number that means nothing is refused. What lies behind a pointer that is not null is believed.
//! - Any thread may use any handle but a `forebay_config`; a handle is locked inside while a call uses it. Whoever frees one sees to it that nobody uses it.
//! - What `abi.txt` lists is never taken away or given another meaning under the same `FOREBAY_ABI_VERSION`.
//!
//! # What it does not do
//! It decides nothing: whatever it says and does is said and done by `forebay-client`.
#![expect(non_camel_case_types, reason = "the names are those of C")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the rules for pointers are said once, in `raw`, and for C in the header"
)]

mod call;
mod client;
mod code;
mod config;
mod events;
mod failure;
mod fetched;
mod files;
mod listing;
mod pool;
mod raw;
mod reader;
mod runs;
mod stat;
mod subscription;
mod text;
mod writer;

pub use call::*;
pub use client::*;
pub use code::*;
pub use config::*;
pub use events::*;
pub use fetched::*;
pub use files::*;
pub use listing::*;
pub use reader::*;
pub use runs::*;
pub use stat::*;
pub use subscription::*;
pub use text::*;
pub use writer::*;
