//! Mistakes on purpose: those of the engine, of the mover, of what names objects of a pool, and of what is below the engine.

use std::fmt;

use forebay_engine::{Planted, plant};

/// A mistake that the simulator must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// One in the engine.
    Engine(Planted),
    /// One in the mover.
    Mover(forebay_mover::Planted),
    /// One in which objects of a pool hold what of a slot.
    Pool(forebay_media_rados::Planted),
    /// A write is said to be durable and is not yet: somebody left a sync out.
    SyncLeftOut,
}

impl Mistake {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Mistake> {
        let of_pools = forebay_media_rados::Planted::ALL.iter().copied().map(Mistake::Pool);
        let of_mover = forebay_mover::Planted::ALL.iter().copied().map(Mistake::Mover);
        Planted::ALL.iter().copied().map(Mistake::Engine).chain([Mistake::SyncLeftOut]).chain(of_pools).chain(of_mover)
    }

    /// Whether it shows only where more is lost than parity makes up for: it is looked for in the second mode.
    pub fn is_beyond(self) -> bool {
        use Planted::{
            ClosingForgotten, DamageDiscarded, LossClosedOver, LossUnnamed, LossUnreported, UnreadableFreed,
            UnreadablePlaceCounts, WalkEndsAtGap,
        };
        let lost = [ClosingForgotten, DamageDiscarded, LossClosedOver, LossUnnamed, LossUnreported, UnreadableFreed];
        let left = [UnreadablePlaceCounts, WalkEndsAtGap];
        matches!(self, Mistake::Engine(planted) if lost.contains(&planted) || left.contains(&planted))
    }

    /// Whether it is one with files: it is looked for with clients that write some.
    pub fn is_of_files(self) -> bool {
        use Planted::{
            CopyOutranksWrite, EndedBeforeName, NameAnsweredEarly, PieceByArrival, PlaceEncoded, SealedChanges,
            TornHidesFiles, UnitSumsStale,
        };
        let names = [EndedBeforeName, NameAnsweredEarly];
        let bytes = [CopyOutranksWrite, PieceByArrival, PlaceEncoded, SealedChanges, TornHidesFiles, UnitSumsStale];
        matches!(self, Mistake::Engine(planted) if names.contains(&planted) || bytes.contains(&planted))
    }

    /// Whether it is one that only those see who look on: it is looked for with some.
    pub fn is_of_subscribers(self) -> bool {
        matches!(self, Mistake::Engine(Planted::ToldBeforeDurable | Planted::DropsUncounted))
    }

    /// Whether it is one with appends and cuts: it is looked for with clients that have many on their way.
    pub fn is_of_appends(self) -> bool {
        use Planted::{
            AppendOverOthers, AppendTakenTwice, ClosedSumsStale, ConflictLetThrough, HolesLeftOut, LengthOvertakes,
            UnnamedEndsOpen,
        };
        matches!(
            self,
            Mistake::Engine(
                AppendOverOthers
                    | AppendTakenTwice
                    | ClosedSumsStale
                    | ConflictLetThrough
                    | HolesLeftOut
                    | LengthOvertakes
                    | UnnamedEndsOpen
            )
        )
    }

    /// Whether it is one of full lanes: it is looked for with clients that fill them with files.
    pub fn is_of_full_lanes(self) -> bool {
        matches!(self, Mistake::Engine(Planted::HalfEmptied))
    }

    /// Whether it is one with runs: it is looked for with clients that control some.
    pub fn is_of_runs(self) -> bool {
        use Planted::{ClosedRunTakes, DiscardForgotten, HeldRunFrees, RulesUntold, RunAnsweredEarly, RunNotKept};
        let books = [RulesUntold, RunAnsweredEarly, RunNotKept];
        let lanes = [ClosedRunTakes, HeldRunFrees, DiscardForgotten];
        matches!(self, Mistake::Engine(planted) if books.contains(&planted) || lanes.contains(&planted))
    }

    /// Whether it is one of stores in the pools of a cluster: it is looked for on one.
    pub fn is_of_pools(self) -> bool {
        matches!(self, Mistake::Pool(_))
    }

    /// Whether it is one of the mover, which is played in a world of its own.
    pub fn is_of_the_mover(self) -> bool {
        matches!(self, Mistake::Mover(_))
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Mistake> {
        Mistake::all().find(|mistake| mistake.name() == name)
    }

    /// The name under which it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Mistake::Engine(planted) => planted.name(),
            Mistake::Mover(planted) => planted.name(),
            Mistake::Pool(planted) => planted.name(),
            Mistake::SyncLeftOut => "sync-left-out",
        }
    }

    /// From now on what this thread plays makes the mistake, or none does.
    pub(crate) fn plant(mistake: Option<Mistake>) {
        forebay_media_rados::plant(match mistake {
            Some(Mistake::Pool(planted)) => Some(planted),
            _ => None,
        });
        forebay_mover::plant(match mistake {
            Some(Mistake::Mover(planted)) => Some(planted),
            _ => None,
        });
        plant(match mistake {
            Some(Mistake::Engine(planted)) => Some(planted),
            _ => None,
        });
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
