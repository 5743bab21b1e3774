//! Forebay's machines in a world of their own: virtual time, one thread, one seed.
//!
//! The lanes and the control part of the engine, the server's connections, the client's sessions, the mover run here as they are, on
//! drives, a network and directories that do whatever these do. A model (`model.rs`) compares every answer with what was promised.
//! Nothing of this is part of the product.
//!
//! What may go wrong stays within what is promised: as many drives as there are parities are *victims*, on which everything may happen;
//! on the others only what every drive may do. So every run must end well: nothing that was acknowledged is lost, nothing that was decided
//! comes back, every byte is right, all space returns.
//!
//! The same seed gives the same run, event for event: [`Totals::trace`] is the same.

mod autopsy;
mod calendar;
mod census;
mod destination;
mod drives;
mod faults;
mod files;
mod filter;
mod links;
mod mistakes;
mod model;
mod monitor;
mod mover;
mod network;
mod opening;
mod operator;
mod play;
mod pressure;
mod random;
mod recorder;
mod runs;
mod scenario;
mod search;
mod server;
mod shrink;
mod store;
mod subscriber;
mod trace;
mod truth;
mod world;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use faults::{Fault, FaultCounts};
pub use mistakes::Mistake;
pub use model::Answers;
pub use mover::{MoverFault, MoverTotals, try_play_mover};
pub use play::Play;
pub use search::search;
pub use shrink::shrink;
pub use world::Totals;

/// Plays a seed; `told`: every event goes to stdout.
///
/// # Panics
/// When a promise is broken, with which.
pub fn play(play: &Play, told: bool) -> Totals {
    Mistake::plant(None);
    world::World::new(play, told, None).run()
}

/// Plays a seed.
///
/// # Errors
/// Which promise was broken.
pub fn try_play(play: &Play, mistake: Option<Mistake>) -> Result<Totals, String> {
    Mistake::plant(mistake);
    let played = catch_unwind(AssertUnwindSafe(|| world::World::new(play, false, mistake).run()));
    Mistake::plant(None);
    played.map_err(|what| {
        let words =
            what.downcast_ref::<String>().cloned().or_else(|| what.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        words.unwrap_or_else(|| "a panic without words".to_owned())
    })
}
