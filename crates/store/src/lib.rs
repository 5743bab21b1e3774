//! A store on real drives: making one ([`init`]), opening it ([`open`]), driving its lanes ([`LaneRunner`]), and, of one that is
//! stopped, looking at it ([`examine`]) and giving it the newest format version ([`upgrade`]).
//!
//! What decides is in `forebay-engine`; this crate gives it drives, time and random numbers, and carries messages between the lanes and
//! the control part. It does not listen on any network.

mod config;
mod control;
mod drives;
mod examine;
mod init;
mod open;
mod paths;
mod profile;
mod remote;
mod runner;
mod superblocks;
mod upgrade;

pub use forebay_media::{DriveCounts, DriveMeters, Licence, RemoteDrive};

pub use config::{StoreConfig, machine_memory_bytes};
pub use control::{ClusterStatus, ControlHandle, ControlStatus, DriveStatus};
pub use drives::Replacement;
pub use examine::{
    Examination, ExaminedDrive, ExaminedStore, LaneLook, ReadWanted, Standing, SuperblockPlace, examine, examine_remote,
};
pub use init::{InitError, InitOptions, InitProgress, InitReport, Sampled, init};
pub use open::{LaneSeed, OpenStoreError, OpenedStore, StoreInfo, open};
pub use profile::Profile;
pub use remote::{RemotePlan, open_remote, plan_remote, remote_layout};
pub use runner::LaneRunner;
pub use upgrade::{UpgradeError, UpgradeReport, upgrade};
