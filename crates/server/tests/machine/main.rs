//! The service of a lane against a pretended lane: whatever bytes come, in whatever pieces, and whatever the lane answers.

mod fake;
mod files;
mod frames;
mod limits;
mod names;
mod pressure;
mod puts;
mod reads;
mod runs;
mod subscribe;
