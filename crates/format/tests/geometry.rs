//! Where things lie: rows, units and slots.

use forebay_format::*;
use proptest::prelude::*;

fn any_geometry() -> impl Strategy<Value = RowGeometry> {
    (1..=28u8, 1..=16u32, 0..2u64 << 20).prop_map(|(data_shards, blocks, data_bytes)| RowGeometry {
        data_shards,
        unit_bytes: blocks * 4096,
        data_bytes,
    })
}

proptest! {
    #[test]
    fn pieces_cover_a_range_exactly_once_in_order_and_within_their_units(
        geometry in any_geometry(),
        cuts in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let cut = |index: prop::sample::Index| index.index(geometry.data_bytes as usize + 1) as u64;
        let (start, end) = (cut(cuts.0).min(cut(cuts.1)), cut(cuts.0).max(cut(cuts.1)));
        let mut covered = start;
        for extent in geometry.locate(start..end) {
            prop_assert_eq!(extent.data_offset, covered);
            prop_assert!(extent.bytes > 0);
            prop_assert!(extent.shard < geometry.data_shards && extent.row < geometry.rows());
            let unit = u64::from(geometry.unit_bytes_of_row(extent.row));
            let in_unit = extent.offset_in_shard_bytes - geometry.unit_offset_bytes(extent.row);
            prop_assert!(in_unit + extent.bytes as u64 <= unit);
            // Row-major: what lies before it in the data is all earlier rows and units.
            let row_bytes = u64::from(geometry.data_shards) * u64::from(geometry.unit_bytes);
            let before = u64::from(extent.row) * row_bytes + u64::from(extent.shard) * unit + in_unit;
            prop_assert_eq!(extent.data_offset, before);
            covered += extent.bytes as u64;
        }
        prop_assert_eq!(covered, end);
    }

    #[test]
    fn the_last_row_wastes_less_than_a_block_a_shard(geometry in any_geometry()) {
        let data_shards = u64::from(geometry.data_shards);
        let capacity = geometry.shard_bytes() * data_shards;
        prop_assert!(capacity >= geometry.data_bytes);
        prop_assert!(capacity < geometry.data_bytes + 4096 * data_shards);
        prop_assert!(geometry.last_unit_bytes() <= geometry.unit_bytes);
        prop_assert_eq!(geometry.last_unit_bytes() % 4096, 0);
        prop_assert_eq!(geometry.rows() == 0, geometry.data_bytes == 0);
    }

    #[test]
    fn nothing_on_a_drive_overlaps(
        lanes in 1..=64u16, slot_mib in 1..=256u64, checkpoint_blocks in 2..=2048u64, drive_gib in 0..=2000u64,
    ) {
        let (slot_bytes, drive_bytes) = (slot_mib << 20, drive_gib << 30);
        match DriveLayout::plan(drive_bytes, lanes, slot_bytes, checkpoint_blocks * 4096) {
            Ok(layout) => {
                prop_assert!(layout.slots >= 4 * u32::from(lanes));
                let mut free_from = 0;
                let superblocks = (0..2).map(|place| (layout.superblock_offset(place), SUPERBLOCK_BYTES as u64));
                let places = (0..lanes).flat_map(|lane| (0..2).map(move |place| (lane, place)));
                let checkpoints =
                    places.map(|(lane, place)| (layout.checkpoint_offset(lane, place), layout.checkpoint_bytes));
                let slots = (0..layout.slots.min(1000)).map(|slot| (layout.slot_offset(slot), slot_bytes));
                for (offset, bytes) in superblocks.chain(checkpoints).chain(slots) {
                    prop_assert!(offset >= free_from && offset % 4096 == 0);
                    free_from = offset + bytes;
                }
                prop_assert_eq!(layout.slots_offset() % SLOTS_ALIGNMENT_BYTES, 0);
                let end = layout.checked_end_offset().expect("on the drive");
                prop_assert!(end <= drive_bytes && end + slot_bytes > drive_bytes);
            }
            Err(LayoutError::TooSmall { needed_bytes, .. }) => {
                prop_assert!(needed_bytes > drive_bytes);
                let layout = DriveLayout::plan(needed_bytes, lanes, slot_bytes, checkpoint_blocks * 4096);
                prop_assert_eq!(layout.map(|layout| layout.slots), Ok(4 * u32::from(lanes)));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

#[test]
fn rows_are_full_but_the_last_and_an_exact_multiple_has_no_short_one() {
    let geometry = |data_bytes| RowGeometry { data_shards: 5, unit_bytes: 32 << 10, data_bytes };
    let shape = |data_bytes| {
        let geometry = geometry(data_bytes);
        (geometry.rows(), geometry.last_unit_bytes(), geometry.shard_bytes())
    };
    let row_bytes = 5 * (32 << 10);
    assert_eq!(shape(0), (0, 0, 0));
    assert_eq!(shape(1), (1, 4096, 4096));
    assert_eq!(shape(5 * 4096), (1, 4096, 4096));
    assert_eq!(shape(5 * 4096 + 1), (1, 8192, 8192));
    assert_eq!(shape(row_bytes - 1), (1, 32 << 10, 32 << 10));
    assert_eq!(shape(row_bytes), (1, 32 << 10, 32 << 10));
    assert_eq!(shape(row_bytes + 1), (2, 4096, (32 << 10) + 4096));
    assert_eq!(geometry(0).locate(0..0).count(), 0);
    let across: Vec<_> = geometry(row_bytes + 5000).locate(row_bytes - 10..row_bytes + 5000).collect();
    let piece = |shard, row, offset_in_shard_bytes, bytes, data_offset| Extent {
        shard,
        row,
        offset_in_shard_bytes,
        bytes,
        data_offset,
    };
    let expected = [
        piece(4, 0, (32 << 10) - 10, 10, row_bytes - 10),
        piece(0, 1, 32 << 10, 4096, row_bytes),
        piece(1, 1, 32 << 10, 904, row_bytes + 4096),
    ];
    assert_eq!(across, expected);
}

#[test]
fn a_drive_that_cannot_be_laid_out_is_refused_with_the_numbers() {
    let error = DriveLayout::plan(1 << 30, 4, 64 << 20, 4 << 20).expect_err("too small");
    let needed_bytes = (33 << 20) + 16 * (64 << 20);
    let too_small = LayoutError::TooSmall {
        drive_bytes: 1 << 30,
        needed_bytes,
        lanes: 4,
        slot_bytes: 64 << 20,
        checkpoint_bytes: 4 << 20,
    };
    assert_eq!(error, too_small);
    assert!(error.to_string().contains(&needed_bytes.to_string()), "{error}");
    for (lanes, slot_bytes, checkpoint_bytes) in
        [(0, 1 << 20, 8192), (65, 1 << 20, 8192), (1, 0, 8192), (1, 1000, 8192), (1, 1 << 20, 4096)]
    {
        let layout = DriveLayout::plan(1 << 40, lanes, slot_bytes, checkpoint_bytes);
        assert!(layout.is_err(), "{lanes} lanes, slots of {slot_bytes}, checkpoints of {checkpoint_bytes}");
    }
    let huge = !0 << 12;
    assert!(matches!(DriveLayout::plan(u64::MAX, 64, huge, huge), Err(LayoutError::TooSmall { .. })));
}

#[test]
fn slots_belong_to_lanes_in_turn() {
    let layout = DriveLayout { lanes: 3, checkpoint_bytes: 1 << 20, slot_bytes: 1 << 20, slots: 14 };
    let of_lane_1: Vec<u32> = (0..layout.slots).filter(|slot| layout.lane_of_slot(*slot) == 1).collect();
    assert_eq!(of_lane_1, [1, 4, 7, 10, 13]);
    assert_eq!(layout.checkpoint_offset(2, 1), (128 << 10) + (5 << 20));
    assert_eq!(layout.slots_offset(), 7 << 20);
    assert_eq!(layout.slot_offset(2), 9 << 20);
}
