//! The table of live leases: which locks are held, and when each lease ends.
//!
//! The hash in the keyspace stays the truth about who holds a lock. The table exists so that a
//! lease's end is noticed when it comes, and so that a key that vanishes is known to have been a lock.

use std::hash::BuildHasher;

use super::MonotonicMs;
use super::arena::Arena;
use super::index::Index;
use super::name::PackedKey;
use super::wheel::Wheel;
use hashbrown::{DefaultHashBuilder, hash_table};

/// Slack memory is given back when no more locks than this are left: to move more would take too long.
const SMALL: usize = 1024;

/// A lock of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedLock {
    /// The number of its database.
    pub db: u32,
    /// Its name.
    pub name: Box<[u8]>,
    /// When its lease ends; `None` for an endless lease.
    pub lease_end: Option<MonotonicMs>,
}

/// All locks held through the module on this node.
#[derive(Debug, Default)]
pub struct LeaseTable {
    index: Index,
    hasher: DefaultHashBuilder,
    /// The locks, by the ids under which the wheel has their leases.
    keys: Arena<PackedKey>,
    wheel: Wheel,
}

impl LeaseTable {
    /// The number of locks.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Is the lock in the table?
    pub fn contains(&self, db: u32, name: &[u8]) -> bool {
        self.find(db, name).is_some()
    }

    /// Puts a lock in, or moves the lease of one that is there; `None` is an endless lease.
    ///
    /// Answers when [`LeaseTable::pop_due`] has to be called for it next, at the latest.
    pub fn track(
        &mut self,
        db: u32,
        name: &[u8],
        lease_end: Option<MonotonicMs>,
        now: MonotonicMs,
    ) -> Option<MonotonicMs> {
        let id = self.find_or_insert(db, name);
        match lease_end {
            Some(end) => Some(self.wheel.schedule(id, end, now)),
            None => {
                self.wheel.park(id);
                None
            }
        }
    }

    /// Takes a lock out.
    pub fn remove(&mut self, db: u32, name: &[u8]) -> Option<TrackedLock> {
        if self.len() == 0 {
            return None;
        }
        let hash = self.hash(db, name);
        let keys = &self.keys;
        let id = self.index.remove(hash, |id| names(keys.get(id), db, name))?;
        let lock = self.lock(id)?;
        self.wheel.park(id);
        self.keys.remove(id);
        self.give_back_slack();
        Some(lock)
    }

    /// A lock whose lease has ended by `now`, the earliest first. It stays in the table, but comes
    /// up again only after its lease was set anew with [`LeaseTable::track`].
    pub fn pop_due(&mut self, now: MonotonicMs) -> Option<TrackedLock> {
        let id = self.wheel.pop_due(now)?;
        self.lock(id)
    }

    /// When [`LeaseTable::pop_due`] has to be called next, at the latest.
    pub fn next_wake(&self) -> Option<MonotonicMs> {
        self.wheel.next_wake()
    }

    /// The databases and names of all locks.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.keys.iter().map(PackedKey::unpack)
    }

    /// Takes out all locks of a database, or of all.
    pub fn drain(&mut self, db: Option<u32>) -> Vec<TrackedLock> {
        match db {
            None => self.take_all(),
            Some(db) => self.take(|candidate| candidate == db),
        }
    }

    /// Follows a SWAPDB: the locks of two databases change places. Answers the locks, as they were
    /// named before, whose name is no lock in its database any more.
    pub fn swap(&mut self, first: u32, second: u32) -> Vec<TrackedLock> {
        let before = self.take(|db| db == first || db == second);
        let other = |db| if db == first { second } else { first };
        self.put(before.iter().map(|lock| TrackedLock { db: other(lock.db), ..lock.clone() }));
        before.into_iter().filter(|lock| !self.contains(lock.db, &lock.name)).collect()
    }

    /// Takes out the locks of some databases. Costs little where there are none.
    fn take(&mut self, wanted: impl Fn(u32) -> bool) -> Vec<TrackedLock> {
        let is_wanted = |id: &u32| self.keys.get(*id).is_some_and(|key| wanted(key.unpack().0));
        let found: Vec<_> = self.keys.ids().filter(is_wanted).filter_map(|id| self.lock(id)).collect();
        for lock in &found {
            self.remove(lock.db, &lock.name);
        }
        found
    }

    fn hash(&self, db: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((db, name))
    }

    fn find(&self, db: u32, name: &[u8]) -> Option<u32> {
        let hash = self.hash(db, name);
        self.index.find(hash, |id| names(self.keys.get(id), db, name))
    }

    fn find_or_insert(&mut self, db: u32, name: &[u8]) -> u32 {
        let hash = self.hash(db, name);
        let (keys, hasher) = (&self.keys, &self.hasher);
        let found = self.index.entry(
            hash,
            |id| names(keys.get(id), db, name),
            |id| hasher.hash_one(keys.get(id).map(PackedKey::unpack).unwrap_or_default()),
        );
        match found {
            hash_table::Entry::Occupied(found) => *found.get(),
            hash_table::Entry::Vacant(place) => {
                let id = self.keys.insert(PackedKey::new(db, name));
                *place.insert(id).get()
            }
        }
    }

    fn lock(&self, id: u32) -> Option<TrackedLock> {
        let (db, name) = self.keys.get(id)?.unpack();
        Some(TrackedLock { db, name: name.into(), lease_end: self.wheel.due(id) })
    }

    /// After a crowd has left, the room it took is given back.
    fn give_back_slack(&mut self) {
        if self.keys.reached() > SMALL && self.len() < SMALL.min(self.keys.reached() / 8) {
            let all = self.take_all();
            self.put(all);
        }
    }

    fn take_all(&mut self) -> Vec<TrackedLock> {
        let before = std::mem::take(self);
        self.wheel = Wheel::starting_at(before.wheel.now());
        before.keys.ids().filter_map(|id| before.lock(id)).collect()
    }

    /// The caller's next wake-up stays right: no lease ends earlier than it did before.
    fn put(&mut self, locks: impl IntoIterator<Item = TrackedLock>) {
        let now = self.wheel.now();
        for lock in locks {
            self.track(lock.db, &lock.name, lock.lease_end, now);
        }
    }
}

/// Is this the key of that lock?
fn names(key: Option<&PackedKey>, db: u32, name: &[u8]) -> bool {
    key.is_some_and(|key| key.unpack() == (db, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Track(u32, u8, Option<u64>),
        Remove(u32, u8),
        Advance(u64),
        Drain(Option<u32>),
        Swap(u32, u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let db = || 0..3_u32;
        let name = || 0..30_u8;
        prop_oneof![
            20 => (db(), name(), prop::option::weighted(0.9, 1..10_000_u64))
                .prop_map(|(db, name, ttl)| Step::Track(db, name, ttl)),
            10 => (db(), name()).prop_map(|(db, name)| Step::Remove(db, name)),
            8 => (0..3_000_u64).prop_map(Step::Advance),
            1 => prop::option::of(db()).prop_map(Step::Drain),
            1 => (db(), db()).prop_map(|(a, b)| Step::Swap(a, b)),
        ]
    }

    type Model = BTreeMap<(u32, u8), Option<u64>>;

    fn key(lock: &TrackedLock) -> (u32, u8) {
        (lock.db, lock.name[0])
    }

    proptest! {
        #[test]
        fn the_table_keeps_every_lease(steps in prop::collection::vec(any_step(), 1..200)) {
            let mut table = LeaseTable::default();
            let mut model = Model::new();
            let mut told = BTreeSet::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Track(db, name, ttl) => {
                        let end = ttl.map(|ttl| now + ttl);
                        let wake = table.track(db, &[name], end.map(MonotonicMs), MonotonicMs(now));
                        prop_assert_eq!(wake.is_some(), end.is_some());
                        prop_assert!(wake.is_none_or(|wake| Some(wake.0) <= end));
                        model.insert((db, name), end);
                        told.remove(&(db, name));
                    }
                    Step::Remove(db, name) => {
                        let removed = table.remove(db, &[name]).map(|lock| lock.lease_end);
                        let expected = model.remove(&(db, name)).map(|end| end.map(MonotonicMs));
                        prop_assert_eq!(removed, expected);
                        told.remove(&(db, name));
                    }
                    Step::Advance(by) => {
                        now += by;
                        while let Some(lock) = table.pop_due(MonotonicMs(now)) {
                            prop_assert_eq!(model[&key(&lock)], lock.lease_end.map(|end| end.0));
                            prop_assert!(lock.lease_end <= Some(MonotonicMs(now)));
                            prop_assert!(table.contains(lock.db, &lock.name));
                            prop_assert!(told.insert(key(&lock)), "told twice");
                        }
                        let silent = |(id, end): (&_, &Option<u64>)| told.contains(id) || end.is_none_or(|end| end > now);
                        prop_assert!(model.iter().all(silent));
                    }
                    Step::Drain(db) => {
                        let mut gone: Vec<_> = table.drain(db).iter().map(key).collect();
                        gone.sort_unstable();
                        let leaves = |id: &(u32, u8)| db.is_none_or(|db| db == id.0);
                        let expected: Vec<_> = model.keys().copied().filter(leaves).collect();
                        prop_assert_eq!(gone, expected);
                        model.retain(|id, _| !leaves(id));
                        told.retain(|id| !leaves(id));
                    }
                    Step::Swap(a, b) => {
                        let mut gone: Vec<_> = table.swap(a, b).iter().map(key).collect();
                        gone.sort_unstable();
                        let swap = |db| if db == a { b } else if db == b { a } else { db };
                        let after: Model = model.iter().map(|((db, name), end)| ((swap(*db), *name), *end)).collect();
                        let expected: Vec<_> = model.keys().copied().filter(|id| !after.contains_key(id)).collect();
                        prop_assert_eq!(gone, expected);
                        model = after;
                        // Whoever moves is told again, which is harmless.
                        told.retain(|(db, _)| *db != a && *db != b);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                let waiting = model.iter().filter(|(id, _)| !told.contains(*id));
                let first = waiting.filter_map(|(_, end)| *end).min();
                prop_assert_eq!(table.next_wake().is_some(), first.is_some());
                prop_assert!(table.next_wake().map(|wake| wake.0) <= first.map(|end| end.max(now)));
            }
        }
    }

    #[test]
    fn a_crowd_that_leaves_gives_its_room_back() {
        let mut table = LeaseTable::default();
        let name = |n: u64| n.to_be_bytes();
        for n in 0..100_000 {
            table.track(0, &name(n), Some(MonotonicMs(n + 1)), MonotonicMs(0));
        }
        for n in 1..100_000 {
            assert_eq!(table.remove(0, &name(n)).and_then(|lock| lock.lease_end), Some(MonotonicMs(n + 1)));
        }
        assert!(table.keys.reached() <= SMALL, "room for {} locks", table.keys.reached());
        assert_eq!(table.pop_due(MonotonicMs(1)).map(|lock| lock.name), Some(name(0).into()));
    }
}
