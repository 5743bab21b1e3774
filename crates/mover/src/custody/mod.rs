//! Custody of one file: what is done with it, in which order, and on whose word its source lets it go.
//!
//! A [`Consignment`] is one output file for all destinations of its route; to each of them it is a [`Delivery`]. Both are machines: they say what is
//! to be done next ([`Step`]), are told how that went ([`Answer`]), and say what must be remembered ([`Change`]). What must be durable before
//! something is done is in the change that came before it: whoever drives them writes changes to the journal before he asks for the next step.
//!
//! ```text
//! found -> sending -> arrived -> verified -> proven      of each delivery
//!   what is there?    sum, asked   asked by its     asked again after
//!                     by the       final name       the wait
//!                     temporary
//!                     name
//! ```
//!
//! A sidecar is a delivery of its own, with the same steps; it begins when its file is verified at that destination. Where tape is waited for, a delivery does so
//! between its second proof and being proven. When all required deliveries are proven the file is registered, where that is wanted; then the source is asked to let
//! the file go, and the consignment is released.

mod consignment;
mod delivery;
mod kept;
mod policy;
mod step;
#[cfg(test)]
mod tests;

pub use consignment::{Consignment, ConsignmentId, Part, PartIdentity, Series};
pub use delivery::Delivery;
pub use kept::{DeliveryState, Kept, Stage, Standing, What};
pub use policy::Policy;
pub use step::{Answer, Change, Changed, Failure, SourceAnswer, SourceStep, Step};
