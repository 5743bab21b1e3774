//! How the crates make mistakes on purpose, one at a time, so that the simulator can show that it finds them.

/// Makes `Planted`, the mistakes of a crate with the names under which they are asked for, `plant`, by which a thread makes one of them from then on, and `planted`,
/// whether one is to be made.
///
/// They are compiled only with the crate's feature `planted`, which nothing but the simulator may switch on (`make lint` looks); without it `planted` is `false`
/// for the compiler too, and nothing of them is left.
#[doc(hidden)]
#[macro_export]
macro_rules! planted_mistakes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Planted { $($(#[$doc])* $name,)+ }

        #[cfg(feature = "planted")]
        impl Planted {
            /// All of them.
            pub const ALL: &[Planted] = &[$(Planted::$name),+];

            /// The name under which it is asked for.
            pub const fn name(self) -> &'static str {
                match self { $(Planted::$name => $text,)+ }
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

            /// Whether the mistake is to be made.
            pub fn planted(mistake: Planted) -> bool {
                NOW.get() == Some(mistake)
            }
        }

        #[cfg(feature = "planted")]
        pub use switch::{plant, planted};

        /// Whether the mistake is to be made.
        #[cfg(not(feature = "planted"))]
        pub const fn planted(_: Planted) -> bool {
            false
        }
    };
}
