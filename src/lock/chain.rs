//! Doubly linked lists of small ids, several for each id: to append, to leave from the middle and to take the
//! first are constant time.

use super::arena::Chunks;

/// No neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link { previous: NONE, next: NONE };

/// A list's ends; its links are in a [`Chains`].
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl Chain {
    /// The first id.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The number of ids.
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// The links of all ids, `KINDS` for each: an id is in at most one list of a kind.
#[derive(Debug, Default)]
pub struct Chains<const KINDS: usize>(Chunks<[Link; KINDS]>);

impl<const KINDS: usize> Chains<KINDS> {
    /// Puts an id at the end of a list of this kind.
    pub fn append(&mut self, kind: usize, chain: &mut Chain, id: u32) {
        self.0.reach(id, [UNLINKED; KINDS]);
        self.0[id][kind] = Link { previous: chain.last, next: NONE };
        if chain.last == NONE {
            chain.first = id;
        } else {
            self.0[chain.last][kind].next = id;
        }
        chain.last = id;
        chain.len += 1;
    }

    /// Takes an id out of the list of this kind that it is in.
    pub fn remove(&mut self, kind: usize, chain: &mut Chain, id: u32) {
        let Link { previous, next } = self.0[id][kind];
        if previous == NONE {
            chain.first = next;
        } else {
            self.0[previous][kind].next = next;
        }
        if next == NONE {
            chain.last = previous;
        } else {
            self.0[next][kind].previous = previous;
        }
        chain.len -= 1;
    }

    /// The ids of a list, in order.
    pub fn walk(&self, kind: usize, chain: Chain) -> impl Iterator<Item = u32> {
        std::iter::successors(chain.first(), move |id| {
            let next = self.0[*id][kind].next;
            (next != NONE).then_some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_chain_keeps_its_order(steps in prop::collection::vec((0..40_u32, 0..2_usize), 1..200)) {
            let mut chains = Chains::<2>::default();
            let mut ends = [Chain::default(); 2];
            let mut model = [Vec::new(), Vec::new()];
            for (id, kind) in steps {
                match model[kind].iter().position(|known| *known == id) {
                    Some(place) => {
                        chains.remove(kind, &mut ends[kind], id);
                        model[kind].remove(place);
                    }
                    None => {
                        chains.append(kind, &mut ends[kind], id);
                        model[kind].push(id);
                    }
                }
                for kind in 0..2 {
                    prop_assert!(chains.walk(kind, ends[kind]).eq(model[kind].iter().copied()));
                    prop_assert_eq!(ends[kind].len() as usize, model[kind].len());
                    prop_assert_eq!(ends[kind].first(), model[kind].first().copied());
                }
            }
        }
    }
}
