//! A map from the numbers of files, which lie close together, that takes little more memory than its values.

use std::collections::BTreeMap;

use crate::FileNumber;
use crate::memory::tree_bytes;

/// Numbers of one group; as many as bits of the map of those that are there.
const GROUP: u64 = u128::BITS as u64;

/// A vector that is to grow gets room for so many more, as a part of what it has.
const GROWTH_PART: usize = 8;

/// The values of neighbouring numbers, ascending.
#[derive(Clone, Debug)]
struct Group<V> {
    there: u128,
    values: Vec<V>,
}

impl<V> Group<V> {
    /// The place of a number among the values, if it is there.
    fn find(&self, bit: u32) -> Result<usize, usize> {
        let before = self.there & ((1u128 << bit) - 1);
        let at = before.count_ones() as usize;
        if self.there >> bit & 1 == 1 { Ok(at) } else { Err(at) }
    }
}

/// A map from [`FileNumber`].
///
/// Numbers lie in groups of 128 neighbours, each with one vector of values: of numbers that are given in order a value costs an eighth more than its size at most and
/// in a full group no more, and nothing for its number. A number alone in its group costs about 100 bytes more.
#[derive(Clone, Debug)]
pub struct NumberMap<V> {
    groups: BTreeMap<u64, Group<V>>,
    len: usize,
    /// Places of all vectors.
    places: usize,
}

impl<V> Default for NumberMap<V> {
    fn default() -> Self {
        NumberMap { groups: BTreeMap::new(), len: 0, places: 0 }
    }
}

fn split(number: FileNumber) -> (u64, u32) {
    (number.0 / GROUP, (number.0 % GROUP) as u32)
}

impl<V> NumberMap<V> {
    /// How many numbers are there.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory in use, never less than it is, but for what the values have outside of themselves.
    pub fn bytes(&self) -> usize {
        // An allocation may take so much more than what it was asked for.
        let groups_bytes = tree_bytes(self.groups.len(), size_of::<(u64, Group<V>)>()) + self.groups.len() * 32;
        groups_bytes + self.places * size_of::<V>()
    }

    /// The value of a number.
    pub fn get(&self, number: FileNumber) -> Option<&V> {
        let (group, bit) = split(number);
        let group = self.groups.get(&group)?;
        group.find(bit).ok().map(|at| &group.values[at])
    }

    /// The value of a number, to change it.
    pub fn get_mut(&mut self, number: FileNumber) -> Option<&mut V> {
        let (group, bit) = split(number);
        let group = self.groups.get_mut(&group)?;
        group.find(bit).ok().map(|at| &mut group.values[at])
    }

    /// The value of a number, which is made if there is none.
    pub fn get_or_insert_with(&mut self, number: FileNumber, make: impl FnOnce() -> V) -> &mut V {
        let (group, bit) = split(number);
        let group = self.groups.entry(group).or_insert_with(|| Group { there: 0, values: Vec::new() });
        let at = group.find(bit).unwrap_or_else(|at| {
            let places = group.values.capacity();
            if group.values.len() == places {
                let more = (places / GROWTH_PART + 1).min(GROUP as usize - places);
                group.values.reserve_exact(more);
            }
            group.values.insert(at, make());
            group.there |= 1 << bit;
            self.len += 1;
            self.places += group.values.capacity() - places;
            at
        });
        &mut group.values[at]
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: FileNumber) -> Option<V> {
        let (key, bit) = split(number);
        let group = self.groups.get_mut(&key)?;
        let at = group.find(bit).ok()?;
        let places = group.values.capacity();
        let value = group.values.remove(at);
        group.there &= !(1 << bit);
        let len = group.values.len();
        if places > len + len / GROWTH_PART * 2 + 2 {
            group.values.shrink_to(len);
        }
        self.places = self.places + group.values.capacity() - places;
        self.len -= 1;
        if len == 0 {
            self.places -= group.values.capacity();
            self.groups.remove(&key);
        }
        Some(value)
    }

    /// Numbers from one on, ascending, with their values.
    pub fn range_from(&self, first: FileNumber) -> impl Iterator<Item = (FileNumber, &V)> + '_ {
        let groups = self.groups.range(first.0 / GROUP..);
        let numbers = groups.flat_map(|(key, group)| {
            let bits = (0..GROUP).filter(move |bit| group.there >> bit & 1 == 1);
            bits.zip(&group.values).map(move |(bit, value)| (FileNumber(key * GROUP + bit), value))
        });
        numbers.skip_while(move |(number, _)| *number < first)
    }

    /// The largest number.
    pub fn last(&self) -> Option<FileNumber> {
        let (key, group) = self.groups.last_key_value()?;
        let last = u128::BITS - 1 - group.there.leading_zeros();
        Some(FileNumber(key * GROUP + u64::from(last)))
    }

    /// All numbers, ascending, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (FileNumber, &V)> + '_ {
        self.range_from(FileNumber(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((prop_oneof![0..300u64, u64::MAX - 200..=u64::MAX], any::<bool>()), 0..400)) {
            let (mut map, mut model) = (NumberMap::default(), BTreeMap::new());
            for (step, (number, inserts)) in steps.into_iter().enumerate() {
                let number = FileNumber(number);
                if inserts {
                    let value = *map.get_or_insert_with(number, || step);
                    prop_assert_eq!(value, *model.entry(number).or_insert(step));
                } else {
                    prop_assert_eq!(map.remove(number), model.remove(&number));
                }
                prop_assert_eq!(map.get(number), model.get(&number));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(map.get_mut(number).copied() == model.get(&number).copied());
                prop_assert_eq!(map.last(), model.keys().next_back().copied());
            }
            let of = |from: u64| map.range_from(FileNumber(from)).map(|(number, value)| (number, *value)).collect::<Vec<_>>();
            for from in [0, 1, 127, 128, 129, 250, u64::MAX - 100, u64::MAX] {
                let expected: Vec<_> = model.range(FileNumber(from)..).map(|(number, value)| (*number, *value)).collect();
                prop_assert_eq!(of(from), expected);
            }
            let places: usize = map.groups.values().map(|group| group.values.capacity()).sum();
            prop_assert_eq!(map.places, places);
            prop_assert!(places <= map.len() + map.len() / 4 + 3 * map.groups.len());
            prop_assert!(map.groups.values().all(|group| group.values.capacity() <= GROUP as usize));
        }
    }
}
