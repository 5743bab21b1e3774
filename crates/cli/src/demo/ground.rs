//! What the demo's store stands on: five files, or the pools of a cluster.

use std::path::PathBuf;
use std::time::Instant;

use forebay_store::{InitOptions, InitReport};

use super::place::Place;
use super::{DATA, DemoCommand, PARITY};
use crate::failure::Failure;
use crate::init;
use crate::output::Output;
use crate::pool::Pools;
use crate::size::human_bytes;

/// A store that was made for the demo.
pub enum Ground {
    /// On files in the scratch directory.
    Drives(Vec<PathBuf>),
    /// In pools, under this name.
    Pool(Pools, String),
}

impl Ground {
    /// Makes the store.
    ///
    /// # Errors
    /// It cannot be made; with pools also that there is one of this name.
    pub fn make(command: &DemoCommand, place: &Place, output: &Output) -> Result<Ground, Failure> {
        let start = Instant::now();
        let seconds = || start.elapsed().as_secs_f64();
        let Some((pools, name)) = command.pool.store() else {
            let options = InitOptions { drive_bytes: Some(command.drive_bytes), ..InitOptions::new(DATA, PARITY) };
            let report = init::with_progress(&place.drives(), &options, output)?;
            output.line(&format!(
                "store     {} files of {} zeroed in {:.1} s, {DATA}+{PARITY}, {} lanes",
                place.drives().len(),
                human_bytes(command.drive_bytes),
                seconds(),
                report.geometry.lanes
            ));
            return Ok(Ground::Drives(place.drives()));
        };
        let bytes = command.drive_bytes.saturating_mul(u64::from(DATA));
        let report = make_in((pools, name), bytes)?;
        output.line(&format!(
            "store     {name} of {} in pools {} and {} made in {:.1} s, {} lanes",
            human_bytes(bytes),
            pools.slots,
            pools.places,
            seconds(),
            report.geometry.lanes
        ));
        Ok(Ground::Pool(pools.clone(), name.to_owned()))
    }

    /// What its server is told of it.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            Ground::Drives(drives) => drives.iter().map(|path| path.display().to_string()).collect(),
            Ground::Pool(pools, name) => {
                let media = format!("rados:{},{}", pools.slots, pools.places);
                ["--media", &media, "--name", name].map(str::to_owned).to_vec()
            }
        }
    }

    /// Removes from pools what nobody serves any more; drives go with the scratch directory.
    ///
    /// # Errors
    /// It is still there.
    pub fn finish(self, keep: bool, output: &Output) -> Result<(), Failure> {
        let Ground::Pool(pools, name) = &self else { return Ok(()) };
        if keep {
            output.note(&format!("kept the store: forebay serve {}", self.arguments().join(" ")));
            return Ok(());
        }
        let removed = remove_from((pools, name.as_str()));
        removed.map_err(|failure| {
            let words = format!(
                "{}\nThe demo's store {name} may still be in the pools: docs/ceph.md says how to remove it",
                failure.message
            );
            Failure { message: words, ..failure }
        })
    }
}

#[cfg(feature = "rados")]
fn make_in(store: (&Pools, &str), bytes: u64) -> Result<InitReport, Failure> {
    crate::rados::Place::open(store, None)?.init(bytes, &InitOptions::new(1, 0))
}

#[cfg(feature = "rados")]
fn remove_from(store: (&Pools, &str)) -> Result<(), Failure> {
    crate::rados::Place::open(store, None)?.remove(&|| false)
}

#[cfg(not(feature = "rados"))]
fn make_in(_: (&Pools, &str), _: u64) -> Result<InitReport, Failure> {
    Err(crate::pool::not_built())
}

#[cfg(not(feature = "rados"))]
fn remove_from(_: (&Pools, &str)) -> Result<(), Failure> {
    Err(crate::pool::not_built())
}
