//! Whose a store is that several servers reach.

use std::net::SocketAddr;

/// What must be given back when nothing is done with a store any more.
pub enum Owned {
    /// Nobody else reaches the drives.
    Alone,
    /// Files that other servers mount.
    Shared(forebay_ownership::FilesOwnership),
    /// Pools of a cluster.
    #[cfg(feature = "rados")]
    Pool(forebay_media_rados::Ownership),
}

impl Owned {
    /// Which address it became, when any free port was asked for.
    pub fn listens_at(&self, address: SocketAddr) {
        if let Owned::Shared(ownership) = self {
            ownership.listens_at(address);
        }
    }

    /// Leaves it to the next.
    pub fn give_back(self) {
        let kept = match self {
            Owned::Alone => None,
            Owned::Shared(ownership) => ownership.give_back().err().map(|error| error.to_string()),
            #[cfg(feature = "rados")]
            Owned::Pool(ownership) => ownership.give_back().err().map(|error| error.to_string()),
        };
        if let Some(error) = kept {
            tracing::warn!("{error}; the next server waits until this one counts as dead");
        }
    }
}
