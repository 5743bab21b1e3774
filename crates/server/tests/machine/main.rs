//! The service of a lane against a pretended lane: whatever bytes come, in whatever pieces, and whatever the lane answers.

mod fake;
mod frames;
mod limits;
mod pressure;
mod puts;
mod reads;
