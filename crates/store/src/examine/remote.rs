//! Looking at a store on a drive that is none of this machine's.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_engine::{FoundDrive, OpenRequest, plan_open};
use forebay_format::SUPERBLOCK_STRIDE_BYTES;
use forebay_media::RemoteDrive;

use super::{Examination, ExaminedDrive, ExaminedStore, Standing, SuperblockPlace, only_reading};
use crate::config::StoreConfig;
use crate::open::{OpenStoreError, REMOTE};
use crate::remote::{Place, newest_of_places, places_of};

/// Looks at a store on a remote drive, which nobody else writes to meanwhile. Nothing is written, whatever `config` says.
///
/// # Errors
/// [`OpenStoreError`]: there is no store, a newer version wrote it, or it cannot be read.
pub fn examine_remote(drive: Arc<dyn RemoteDrive>, config: &StoreConfig) -> Result<Examination, OpenStoreError> {
    let config = only_reading(config);
    let name = drive.name();
    let places = places_of(&*drive);
    let superblocks = places.iter().enumerate().filter_map(superblock_place).collect();
    let superblock = newest_of_places(&name, places)?;
    let examined = ExaminedDrive {
        path: PathBuf::from(&name),
        bytes: Some(drive.bytes()),
        superblocks,
        newest: Some(superblock.clone()),
        standing: Standing::Member(REMOTE),
    };
    let found = [FoundDrive { path: name, superblock }];
    let plan = plan_open(&found, OpenRequest { read_only: true })?;
    let refusals = plan_open(&found, OpenRequest { read_only: false }).err().into_iter().map(Into::into).collect();
    let store = ExaminedStore {
        superblock: plan.superblock.clone(),
        absent: Vec::new(),
        plan,
        candidates: Vec::new(),
        remote: Some(drive),
        config,
    };
    Ok(Examination { drives: vec![examined], store: Some(store), refusals })
}

/// One that was never written is none.
fn superblock_place((number, place): (usize, &Place)) -> Option<SuperblockPlace> {
    let generation = match place {
        Ok(superblock) => Ok(superblock.as_ref()?.generation),
        Err(reason) => Err(reason.to_string()),
    };
    Some(SuperblockPlace { offset_bytes: number as u64 * SUPERBLOCK_STRIDE_BYTES, generation })
}
