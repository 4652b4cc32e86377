//! Storage for values under small integer ids, in chunks: growing never moves what is there (a vector of a
//! million would stall the server to double itself), and hardly more is allocated than is used.

use std::ops::{Index, IndexMut};

const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;

/// An array that grows by a chunk at a time.
#[derive(Debug)]
pub struct Chunks<T>(Vec<Box<[T; CHUNK]>>);

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Chunks<T> {
    /// Makes room for the id; new places hold `filler`.
    pub fn reach(&mut self, id: u32, filler: T) {
        while id as usize >= self.0.len() * CHUNK {
            self.0.push(Box::new([filler; CHUNK]));
        }
    }
}

impl<T> Index<u32> for Chunks<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        &self.0[(id >> CHUNK_BITS) as usize][id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Chunks<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.0[(id >> CHUNK_BITS) as usize][id as usize % CHUNK]
    }
}

#[derive(Debug)]
enum Place<T> {
    /// Free; with the next free place, if there is one.
    Free(Option<u32>),
    Taken(T),
}

/// Values that come and go; the id of one that has gone is used again.
#[derive(Debug)]
pub struct Arena<T> {
    places: Chunks<Place<T>>,
    first_free: Option<u32>,
    used: u32,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { places: Chunks::default(), first_free: None, used: 0, len: 0 }
    }
}

impl<T> Arena<T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of values that there was room for at once so far.
    pub fn reached(&self) -> usize {
        self.used as usize
    }

    /// The id that the next value gets.
    pub fn next_id(&self) -> u32 {
        self.first_free.unwrap_or(self.used)
    }

    /// Puts a value in; answers its id.
    pub fn insert(&mut self, value: T) -> u32 {
        let id = self.next_id();
        if id == self.used {
            if (id as usize).is_multiple_of(CHUNK) {
                self.places.0.push(Box::new([const { Place::Free(None) }; CHUNK]));
            }
            self.used += 1;
        } else if let Place::Free(next) = self.places[id] {
            self.first_free = next;
        }
        self.places[id] = Place::Taken(value);
        self.len += 1;
        id
    }

    /// Takes a value out.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        match std::mem::replace(&mut self.places[id], Place::Free(self.first_free)) {
            Place::Taken(value) => {
                self.first_free = Some(id);
                self.len -= 1;
                Some(value)
            }
            free @ Place::Free(_) => {
                self.places[id] = free;
                None
            }
        }
    }

    /// A value.
    pub fn get(&self, id: u32) -> Option<&T> {
        match &self.places[id] {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// A value, to change it.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match &mut self.places[id] {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.0.iter().flat_map(|chunk| chunk.iter()).filter_map(|place| match place {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        })
    }

    /// The ids of all values.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        (0..self.used).filter(|id| self.get(*id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_place_costs_no_more_than_its_value() {
        assert_eq!(size_of::<Place<Box<[u8]>>>(), 16);
    }

    proptest! {
        #[test]
        fn an_arena_keeps_what_is_in_it(steps in prop::collection::vec(prop::option::weighted(0.4, 0..600_u32), 1..1500)) {
            let mut arena = Arena::default();
            let mut model = BTreeMap::new();
            let mut most = 0;
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    Some(id) if (id as usize) < arena.reached() => {
                        prop_assert_eq!(arena.remove(id), model.remove(&id));
                    }
                    Some(_) => {}
                    None => {
                        let next = arena.next_id();
                        prop_assert_eq!(arena.insert(value), next);
                        prop_assert!(model.insert(next, value).is_none(), "the id was taken");
                    }
                }
                most = most.max(model.len());
                prop_assert_eq!(arena.len(), model.len());
                prop_assert_eq!(arena.reached(), most);
            }
            for (id, value) in &model {
                prop_assert_eq!(arena.get(*id), Some(value));
            }
            prop_assert!(arena.iter().eq(model.values()));
            prop_assert!(arena.ids().eq(model.keys().copied()));
        }
    }
}
