//! Numbers for the generator: SplitMix64 (Steele, Lea, Flood 2014), the same on every machine.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is small: the bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A size from `least` to `most` with the given median and a long tail, as hits in a detector have.
    pub(crate) fn skewed(&mut self, least: usize, median: usize, most: usize) -> usize {
        let u = self.below(1 << 16);
        let above = (median - least) as u64 * u / ((1 << 16) - u);
        (least as u64 + above).min(most as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut random = Random::new(1_234_567);
        let reference = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next(), random.next(), random.next()], reference);
    }

    #[test]
    fn skewed_sizes_keep_their_bounds_and_their_median() {
        let mut random = Random::new(9);
        let mut sizes: Vec<usize> = (0..10_001).map(|_| random.skewed(8, 28, 1320)).collect();
        sizes.sort_unstable();
        assert_eq!((sizes[0], sizes[10_000]), (8, 1320));
        assert!((26..=30).contains(&sizes[5_000]), "{}", sizes[5_000]);
    }
}
