//! Every loss that the parity covers is mended, and no other is pretended to be.

use forebay_erasure::{Codec, CodecError};
use proptest::prelude::*;

/// Bytes that differ from unit to unit and have no period that a table could hide.
fn row(shards: usize, unit_bytes: usize) -> Vec<Vec<u8>> {
    let byte = |shard: usize, at: usize| ((shard * 7919 + at * 31 + (at >> 8) * 17) % 251) as u8;
    (0..shards).map(|shard| (0..unit_bytes).map(|at| byte(shard, at)).collect()).collect()
}

fn encoded(codec: &Codec, data: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xA5; data[0].len()]; codec.parity_shards()];
    let data_refs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    codec.encode(&data_refs, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    data.into_iter().chain(parity).collect()
}

/// Reconstructs `missing` from the rest and compares.
fn mend(codec: &Codec, units: &[Vec<u8>], lost: u32, missing: &[usize]) -> Result<(), CodecError> {
    let present: Vec<Option<&[u8]>> =
        units.iter().enumerate().map(|(shard, unit)| (lost & (1 << shard) == 0).then_some(unit.as_slice())).collect();
    let mut into = vec![vec![0x5A; units[0].len()]; missing.len()];
    codec.reconstruct(&present, missing, &mut into.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())?;
    for (&shard, unit) in missing.iter().zip(&into) {
        assert!(*unit == units[shard], "unit {shard} of {lost:#x} lost");
    }
    Ok(())
}

#[test]
fn every_pattern_of_loss_up_to_10_and_4_is_mended_or_refused() {
    let mut mended = 0;
    for data in 1..=10u8 {
        for parity in 0..=4u8 {
            let codec = Codec::new(data, parity).expect("a possible width");
            let shards = u32::from(data) + u32::from(parity);
            let units = encoded(&codec, row(usize::from(data), 67));
            for lost in 0..1u32 << shards {
                let missing: Vec<usize> = (0..shards as usize).filter(|shard| lost & (1 << shard) != 0).collect();
                let present = (shards - lost.count_ones()) as usize;
                if lost.count_ones() <= u32::from(parity) {
                    assert_eq!(mend(&codec, &units, lost, &missing), Ok(()), "{data}+{parity}");
                    mended += 1;
                } else if lost.count_ones() == u32::from(parity) + 1 {
                    let refused = Err(CodecError::TooFewShards { present, needed: usize::from(data) });
                    assert_eq!(mend(&codec, &units, lost, &missing), refused, "{data}+{parity}");
                }
            }
        }
    }
    assert_eq!(mended, 6_822, "patterns of loss");
}

#[test]
fn one_of_several_lost_units_can_be_asked_for_alone_and_also_one_that_is_there() {
    let codec = Codec::new(8, 2).expect("a possible width");
    let units = encoded(&codec, row(8, 4096));
    for wanted in 0..10 {
        assert_eq!(mend(&codec, &units, 0b10_0000_1000, &[wanted]), Ok(()), "unit {wanted}");
    }
    assert_eq!(mend(&codec, &units, 0b10_0000_1000, &[]), Ok(()));
    let codec = Codec::new(3, 0).expect("a possible width");
    let units = encoded(&codec, row(3, 4096));
    assert_eq!(mend(&codec, &units, 0, &[2, 0]), Ok(()));
}

#[test]
fn one_data_unit_is_copied_to_its_parity() {
    let codec = Codec::new(1, 1).expect("a possible width");
    let units = encoded(&codec, row(1, 512));
    assert_eq!(units[0], units[1]);
}

#[test]
fn impossible_widths_are_refused() {
    for (data, parity) in [(0, 0), (0, 4), (32, 1), (30, 3), (255, 255)] {
        let error = Codec::new(data, parity).expect_err("an impossible width");
        assert_eq!(error, CodecError::Width { data, parity });
        assert!(error.to_string().contains("at most 32"), "{error}");
    }
    assert!(Codec::new(1, 31).is_ok() && Codec::new(32, 0).is_ok() && Codec::new(28, 4).is_ok());
}

proptest! {
    /// Any width, any length that vector instructions may stumble over, any pattern.
    #[test]
    fn what_is_lost_comes_back(
        (data, parity, unit_bytes, seed) in (1..=28u8, 0..=4u8, 0..=3000usize, any::<u64>()),
    ) {
        let codec = Codec::new(data, parity).expect("a possible width");
        let units = encoded(&codec, row(usize::from(data), unit_bytes));
        let shards = usize::from(data) + usize::from(parity);
        let mut lost = 0u32;
        for step in 0..u32::from(parity) {
            lost |= 1 << ((seed >> (8 * step)) as usize % shards);
        }
        let missing: Vec<usize> = (0..shards).filter(|shard| lost & (1 << shard) != 0).collect();
        prop_assert_eq!(mend(&codec, &units, lost, &missing), Ok(()));
    }
}
