//! `forebay drive`: drives are given up, taken out of use and replaced under a server that serves, and what they held is made anew. That it was
//! is seen by taking drives away that were there before.

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod kills;
mod refusals;
mod store;
