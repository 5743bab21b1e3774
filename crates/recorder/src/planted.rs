//! Mistakes that are made on purpose, one at a time, so that the simulator can show that it finds them.
//!
//! They are compiled only with the feature `planted`, which nothing but the simulator may switch on (`make lint` looks); without it
//! [`planted`] is `false` for the compiler too, and nothing of them is left.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A file is announced, and its events released, before its names are durable.
    ReleasedBeforeSynced,
    /// A file that does not come back as it was written is announced all the same.
    ReleasedUnread,
    /// A start does not go on with files that were announced and not released.
    AnnouncedForgotten,
}

#[cfg(feature = "planted")]
impl Planted {
    /// All of them.
    pub const ALL: &[Planted] = &[Planted::ReleasedBeforeSynced, Planted::ReleasedUnread, Planted::AnnouncedForgotten];

    /// The name under which it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Planted::ReleasedBeforeSynced => "released-before-synced",
            Planted::ReleasedUnread => "released-unread",
            Planted::AnnouncedForgotten => "announced-forgotten",
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
