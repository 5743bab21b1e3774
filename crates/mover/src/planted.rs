//! Mistakes that are made on purpose, one at a time, so that the simulator can show that it finds them.
//!
//! They are compiled only with the feature `planted`, which nothing but the simulator may switch on (`make lint` looks); without it
//! [`planted`] is `false` for the compiler too, and nothing of them is left.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A file whose renaming was answered well counts as proven.
    BelievedUnasked,
    /// One look is proof enough.
    ProvenAtOneLook,
    /// A file that is there is taken for ours by its size.
    AdoptedBySize,
    /// A renaming of which nobody knows whether it was done counts as done, and as a proof.
    UnknownTakenForDone,
    /// The second proof is asked for without the wait.
    AskedAgainAtOnce,
    /// A file that is in the way is set aside, whoever made it.
    ForeignReplaced,
    /// A destination that proved a file once is believed for ever.
    ProofForEver,
    /// A file is let go when its first destination has proven it.
    LetGoByOne,
    /// What a start finds in the source is planned without looking at what the journal plans to send.
    PlannedAnew,
}

#[cfg(feature = "planted")]
impl Planted {
    /// All of them.
    pub const ALL: &[Planted] = &[
        Planted::BelievedUnasked,
        Planted::ProvenAtOneLook,
        Planted::AdoptedBySize,
        Planted::UnknownTakenForDone,
        Planted::AskedAgainAtOnce,
        Planted::ForeignReplaced,
        Planted::ProofForEver,
        Planted::LetGoByOne,
        Planted::PlannedAnew,
    ];

    /// The name under which it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Planted::BelievedUnasked => "believed-unasked",
            Planted::ProvenAtOneLook => "proven-at-one-look",
            Planted::AdoptedBySize => "adopted-by-size",
            Planted::UnknownTakenForDone => "unknown-taken-for-done",
            Planted::AskedAgainAtOnce => "asked-again-at-once",
            Planted::ForeignReplaced => "foreign-replaced",
            Planted::ProofForEver => "proof-for-ever",
            Planted::LetGoByOne => "let-go-by-one",
            Planted::PlannedAnew => "planned-anew",
        }
    }
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static NOW: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// From now on this thread makes the mistake, and no other.
    pub fn plant(mistake: Option<Planted>) {
        NOW.set(mistake);
    }

    pub(crate) fn planted(mistake: Planted) -> bool {
        NOW.get() == Some(mistake)
    }
}

#[cfg(feature = "planted")]
pub use switch::plant;
#[cfg(feature = "planted")]
pub(crate) use switch::planted;

/// Whether the mistake is to be made.
#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Planted) -> bool {
    false
}
