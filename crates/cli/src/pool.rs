//! Stores that stand on the pools of a cluster instead of drives.

use clap::Args;

#[cfg(not(feature = "rados"))]
use crate::failure::Failure;

/// Where such a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    /// The pool of its slots, erasure-coded or replicated.
    pub slots: String,
    /// The pool of all else, replicated.
    pub places: String,
}

/// The options that name a store in a cluster.
#[derive(Debug, Args)]
pub struct PoolOptions {
    /// Stand on pools of a Ceph cluster, rados:POOL,META_POOL: the second one is replicated. Ceph's own files and variables say where the cluster is
    /// (CEPH_CONF, CEPH_ARGS="--id USER") [default: drives]
    #[arg(long, value_name = "MEDIA", value_parser = parse_pools, requires = "name")]
    media: Option<Pools>,

    /// The name of the store in the pools: letters, digits, '-' and '_' [default: none, drives have no names]
    #[arg(long, value_name = "NAME", requires = "media")]
    name: Option<String>,
}

impl PoolOptions {
    /// The pools, and the name in them; nothing when the store is on drives.
    pub fn store(&self) -> Option<(&Pools, &str)> {
        Some((self.media.as_ref()?, self.name.as_deref()?))
    }
}

/// `rados:POOL,META_POOL`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_pools(text: &str) -> Result<Pools, String> {
    let pools = text.strip_prefix("rados:").ok_or("say rados:POOL,META_POOL; for drives, name them without --media")?;
    match pools.split_once(',') {
        Some((slots, places)) if !slots.is_empty() && !places.is_empty() && !places.contains(',') => {
            Ok(Pools { slots: slots.to_owned(), places: places.to_owned() })
        }
        _ => Err("say rados:POOL,META_POOL: a pool for the data, which may be erasure-coded, and a replicated one for all else".to_owned()),
    }
}

/// What a program says that was built without librados.
#[cfg(not(feature = "rados"))]
pub fn not_built() -> Failure {
    Failure::usage(
        "this forebay was built without Ceph. Nothing was done. Build it with `cargo build --release -p forebay --features rados`, which needs librados \
         (Debian: librados-dev)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_two_names_behind_rados() {
        let pools = Pools { slots: "ec".to_owned(), places: "meta".to_owned() };
        assert_eq!(parse_pools("rados:ec,meta"), Ok(pools));
        for wrong in ["ec,meta", "rados:", "rados:ec", "rados:ec,", "rados:,meta", "rados:a,b,c", "/data/d0"] {
            assert!(parse_pools(wrong).is_err(), "{wrong}");
        }
    }
}
