//! Making the store that a seed begins with.

use forebay_format::{
    CheckpointBody, CheckpointHeader, DriveEntry, DriveLayout, DriveState, FORMAT_VERSION, FORMAT_VERSION_OLDEST,
    ProgramVersion, Start, Superblock, encode_checkpoint, place_of,
};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};

use crate::drives::Drives;
use crate::scenario::Scenario;

/// The store.
pub(crate) const STORE: StoreUuid = StoreUuid::from_bytes([7; 16]);
/// The nonce of the start that made it.
const NONCE: u64 = 77;

/// As `forebay init` leaves the drives.
pub(crate) fn make(drives: &mut Drives, scenario: &Scenario) {
    let geometry = scenario.geometry;
    let layout =
        DriveLayout::plan(scenario.drive_bytes, scenario.lanes, geometry.slot_bytes, geometry.checkpoint_bytes)
            .expect("the drives are large enough");
    let entries: Vec<DriveEntry> = (0..scenario.shape.drives)
        .map(|number| DriveEntry {
            uuid: DriveUuid::from_bytes([number as u8 + 1; 16]),
            number: DriveNumber(number),
            state: DriveState::Member,
            slots: layout.slots,
            changed: 0,
            bytes: scenario.drive_bytes,
        })
        .collect();
    drives.slots_begin_at(layout.slots_offset());
    if scenario.pool {
        drives.are_a_pool(layout.slot_bytes);
    }
    let body = CheckpointBody::default().encode();
    for entry in &entries {
        for lane in 0..scenario.lanes {
            let offset_bytes = layout.checkpoint_offset(lane, place_of(1));
            let header = CheckpointHeader {
                store: STORE,
                drive: entry.uuid,
                offset_bytes,
                lane,
                epoch: 1,
                sequence: 1,
                body_bytes: 0,
                body_crc: 0,
            };
            drives.put(entry.number, offset_bytes, &encode_checkpoint(&header, &body));
        }
        for generation in [1, 2] {
            let superblock = superblock(entry, &entries, generation, scenario);
            drives.put(entry.number, layout.superblock_offset(place_of(generation)), &superblock.encode());
        }
    }
}

fn superblock(own: &DriveEntry, entries: &[DriveEntry], generation: u64, scenario: &Scenario) -> Superblock {
    Superblock {
        // Seeds of stores without files are older than stores that have some.
        format_version: if scenario.files || scenario.appends || scenario.full || scenario.runs {
            FORMAT_VERSION
        } else {
            FORMAT_VERSION_OLDEST
        },
        program: ProgramVersion::OWN,
        store: STORE,
        drive: own.uuid,
        number: own.number,
        generation,
        membership: 1,
        epoch: 1,
        nonce: NONCE,
        clean: true,
        created_unix_s: 0,
        geometry: scenario.geometry,
        history: vec![Start { epoch: 1, nonce: NONCE }],
        drives: entries.to_vec(),
    }
}
