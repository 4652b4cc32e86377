//! Finds ids by a hash of what they stand for, which is kept elsewhere.

use hashbrown::{HashTable, hash_table};

/// The index is split so that none of its parts stalls the server for long when it grows: with a
/// million ids, a part holds four thousand.
const PARTS: usize = 256;

/// A set of ids, each under a hash.
#[derive(Debug)]
pub struct Index(Box<[HashTable<u32>]>);

impl Default for Index {
    fn default() -> Self {
        Self((0..PARTS).map(|_| HashTable::new()).collect())
    }
}

impl Index {
    /// The id under this hash that `is` the one.
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0[part(hash)].find(hash, |id| is(*id)).copied()
    }

    /// The place of that id, taken or vacant. `hash_of` hashes an id anew, for when the index grows.
    pub fn entry(
        &mut self,
        hash: u64,
        mut is: impl FnMut(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> hash_table::Entry<'_, u32> {
        self.0[part(hash)].entry(hash, |id| is(*id), |id| hash_of(*id))
    }

    /// Takes that id out.
    pub fn remove(&mut self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.0[part(hash)].find_entry(hash, |id| is(*id)).ok()?;
        Some(found.remove().0)
    }

    /// The number of ids.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.iter().map(HashTable::len).sum()
    }
}

fn part(hash: u64) -> usize {
    // The table inside a part uses the lowest and the highest bits.
    (hash >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::DefaultHashBuilder;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    #[test]
    fn no_part_grows_far_beyond_the_others() {
        let hasher = DefaultHashBuilder::default();
        let hash_of = |id: u32| hasher.hash_one((0_u32, &id.to_be_bytes()[..]));
        let mut index = Index::default();
        for id in 0..100_000 {
            let hash = hash_of(id);
            index.entry(hash, |known| known == id, hash_of).insert(id);
        }
        let fullest = index.0.iter().map(HashTable::len).max();
        assert!(fullest < Some(2 * 100_000 / PARTS), "{fullest:?} in one part");
    }

    proptest! {
        /// `spread` is the number of different hashes: with few, most of them collide.
        #[test]
        fn an_index_finds_what_is_in_it(
            spread in 1..2_000_u64, steps in prop::collection::vec(0..600_u32, 1..1500),
        ) {
            let hash_of = |id: u32| (u64::from(id) % spread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for id in steps {
                let is = |known: u32| known == id;
                prop_assert_eq!(index.find(hash_of(id), is), model.get(&id).copied());
                if model.remove(&id) {
                    prop_assert_eq!(index.remove(hash_of(id), is), Some(id));
                    prop_assert_eq!(index.remove(hash_of(id), is), None);
                } else {
                    match index.entry(hash_of(id), is, hash_of) {
                        hash_table::Entry::Occupied(_) => prop_assert!(false, "it is not in there"),
                        hash_table::Entry::Vacant(place) => drop(place.insert(id)),
                    }
                    model.insert(id);
                }
            }
            for id in 0..600 {
                prop_assert_eq!(index.find(hash_of(id), |known| known == id), model.get(&id).copied());
            }
            prop_assert_eq!(index.len(), model.len());
        }
    }
}
