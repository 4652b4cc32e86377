//! The table of live leases: which locks are held, by whom, and when each lease ends.
//!
//! The hash in the keyspace stays the truth about who holds a lock. The table exists so that a lease's end is
//! noticed when it comes; so that a key that vanishes is known to have been a lock; and so that a lock outlives
//! its key, where the server takes that away before the lease has ended: to make room, or because somebody has
//! stepped the clock.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use super::arena::Arena;
use super::index::Index;
use super::name::PackedLock;
use super::wheel::Wheel;
use super::{Hold, MonotonicMs, WallMs};
use hashbrown::{DefaultHashBuilder, hash_table};

/// Slack memory is given back when no more locks than this are left: to move more would take too long.
const SMALL: usize = 1024;

/// What was last seen of the TTL of a lock's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It expires at this time.
    At(WallMs),
    /// It has none.
    Never,
    /// The server has taken the key away, though the lease has not ended.
    KeyLost,
}

/// When a lock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// When its lease ends; `None` for an endless lease.
    pub lease_end: Option<MonotonicMs>,
    /// What its key says of that.
    pub expiry: Expiry,
}

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

/// What the table knows of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'t> {
    /// When it ends.
    pub term: Term,
    /// Who holds it. `None` where it is not one owner's alone, as with Redisson's read-write locks: such a lock
    /// does not outlive its key.
    pub hold: Option<Hold<'t>>,
}

#[derive(Debug)]
struct Entry {
    lock: PackedLock,
    /// In eight bytes, see [`Entry::expiry`].
    expiry: i64,
}

impl Entry {
    const NEVER: i64 = i64::MAX;
    const KEY_LOST: i64 = i64::MIN;

    fn expiry(&self) -> Expiry {
        match self.expiry {
            Self::NEVER => Expiry::Never,
            Self::KEY_LOST => Expiry::KeyLost,
            at => Expiry::At(WallMs(at)),
        }
    }

    fn set_expiry(&mut self, expiry: Expiry) {
        self.expiry = match expiry {
            Expiry::Never => Self::NEVER,
            Expiry::KeyLost => Self::KEY_LOST,
            Expiry::At(at) => at.0,
        };
    }
}

/// All locks held through the module on this node.
#[derive(Debug, Default)]
pub struct LeaseTable {
    index: Index,
    hasher: DefaultHashBuilder,
    /// The locks, by the ids under which the wheel has their leases.
    entries: Arena<Entry>,
    wheel: Wheel,
    /// Locks that have lost their keys, and maybe have them again, or are gone.
    lost: VecDeque<u32>,
}

impl LeaseTable {
    /// The number of locks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is the lock in the table?
    pub fn contains(&self, db: u32, name: &[u8]) -> bool {
        self.find(db, name).is_some()
    }

    /// What is known of a lock.
    pub fn get(&self, db: u32, name: &[u8]) -> Option<Known<'_>> {
        if self.len() == 0 {
            return None;
        }
        let id = self.find(db, name)?;
        let entry = self.entries.get(id)?;
        Some(Known {
            term: Term { lease_end: self.wheel.due(id), expiry: entry.expiry() },
            hold: entry.lock.hold(),
        })
    }

    /// Puts a lock in, or sets what is known of one that is there.
    ///
    /// Answers when [`LeaseTable::pop_due`] has to be called for it next, at the latest.
    pub fn track(&mut self, db: u32, name: &[u8], known: Known<'_>, now: MonotonicMs) -> Option<MonotonicMs> {
        let id = self.find_or_insert(db, name, known.hold);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.set_expiry(known.term.expiry);
        }
        if known.term.expiry == Expiry::KeyLost {
            self.lost.push_back(id);
        }
        match known.term.lease_end {
            Some(end) => Some(self.wheel.schedule(id, end, now)),
            None => {
                self.wheel.park(id);
                None
            }
        }
    }

    /// The hold count of a lock in the table has changed.
    pub fn recount(&mut self, db: u32, name: &[u8], holds: u64) {
        let Some(entry) = self.find(db, name).and_then(|id| self.entries.get_mut(id)) else { return };
        let packed = entry.lock.hold().map(|hold| {
            let (db, name) = entry.lock.key();
            PackedLock::new(db, name, Some(Hold { holds, ..hold }))
        });
        if let Some(packed) = packed {
            entry.lock = packed;
        }
    }

    /// The key of a lock has another TTL, or is gone, and the lease stays as it is.
    pub fn set_expiry(&mut self, db: u32, name: &[u8], expiry: Expiry) {
        let Some(id) = self.find(db, name) else { return };
        if let Some(entry) = self.entries.get_mut(id) {
            entry.set_expiry(expiry);
            if expiry == Expiry::KeyLost {
                self.lost.push_back(id);
            }
        }
    }

    /// Has no lock lost its key?
    pub fn has_all_keys(&self) -> bool {
        self.lost.is_empty()
    }

    /// The number of locks that have lost their keys, or had until lately.
    pub fn lost_keys(&self) -> usize {
        self.lost.len()
    }

    /// The lock that lost its key first, of those that have none still.
    pub fn first_lost(&mut self) -> Option<(u32, &[u8])> {
        let is_lost = |id: u32| {
            let known = (id as usize) < self.entries.reached();
            known && self.entries.get(id).is_some_and(|entry| entry.expiry() == Expiry::KeyLost)
        };
        while self.lost.front().is_some_and(|id| !is_lost(*id)) {
            self.lost.pop_front();
        }
        Some(self.entries.get(*self.lost.front()?)?.lock.key())
    }

    /// Moves the lock to the end of those that have lost their keys, if it is the first of them still.
    pub fn postpone_lost(&mut self, db: u32, name: &[u8]) {
        if self.first_lost() == Some((db, name)) {
            self.lost.rotate_left(1);
        }
    }

    /// The first lock at or behind this place among all: the place behind it, its database and its name.
    pub fn lock_from(&self, place: u32) -> Option<(u32, u32, &[u8])> {
        (place..self.entries.reached() as u32).find_map(|id| {
            let (db, name) = self.entries.get(id)?.lock.key();
            Some((id + 1, db, name))
        })
    }

    /// Takes a lock out; answers when it would have ended.
    pub fn remove(&mut self, db: u32, name: &[u8]) -> Option<Term> {
        if self.len() == 0 {
            return None;
        }
        let id = self.unlist(db, name)?;
        let lease_end = self.wheel.due(id);
        self.wheel.park(id);
        let entry = self.entries.remove(id)?;
        self.give_back_slack();
        Some(Term { lease_end, expiry: entry.expiry() })
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
        self.entries.iter().map(|entry| entry.lock.key())
    }

    /// Takes out all locks of a database, or of all.
    pub fn drain(&mut self, db: Option<u32>) -> Vec<TrackedLock> {
        let locks = match db {
            None => {
                let before = self.take_all();
                before.entries.ids().filter_map(|id| before.lock(id)).collect()
            }
            Some(db) => self.locks_of(|candidate| candidate == db),
        };
        for lock in &locks {
            self.remove(lock.db, &lock.name);
        }
        locks
    }

    /// Follows a SWAPDB: the locks of two databases change places. Answers the locks, as they were
    /// named before, whose name is no lock in its database any more.
    pub fn swap(&mut self, first: u32, second: u32) -> Vec<TrackedLock> {
        let before = self.locks_of(|db| db == first || db == second);
        let ids: Vec<_> = before.iter().filter_map(|lock| self.unlist(lock.db, &lock.name)).collect();
        for id in ids {
            self.list_in(id, |db| if db == first { second } else { first });
        }
        before.into_iter().filter(|lock| !self.contains(lock.db, &lock.name)).collect()
    }

    /// Takes a lock out of the index alone.
    fn unlist(&mut self, db: u32, name: &[u8]) -> Option<u32> {
        let hash = self.hash(db, name);
        let entries = &self.entries;
        self.index.remove(hash, |id| names(entries.get(id), db, name))
    }

    /// Puts an entry that the index lacks into it, in the database that its own becomes.
    fn list_in(&mut self, id: u32, becomes: impl Fn(u32) -> u32) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let (db, name) = entry.lock.key();
        let db = becomes(db);
        let lock = PackedLock::new(db, name, entry.lock.hold());
        let hash = self.hasher.hash_one(lock.key());
        entry.lock = lock;
        let (entries, hasher) = (&self.entries, &self.hasher);
        let place = self.index.entry(
            hash,
            |other| other == id,
            |id| hasher.hash_one(entries.get(id).map(|entry| entry.lock.key()).unwrap_or_default()),
        );
        if let hash_table::Entry::Vacant(place) = place {
            place.insert(id);
        }
    }

    fn locks_of(&self, wanted: impl Fn(u32) -> bool) -> Vec<TrackedLock> {
        let is_wanted = |id: &u32| self.entries.get(*id).is_some_and(|entry| wanted(entry.lock.key().0));
        self.entries.ids().filter(is_wanted).filter_map(|id| self.lock(id)).collect()
    }

    fn hash(&self, db: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((db, name))
    }

    fn find(&self, db: u32, name: &[u8]) -> Option<u32> {
        let hash = self.hash(db, name);
        self.index.find(hash, |id| names(self.entries.get(id), db, name))
    }

    fn find_or_insert(&mut self, db: u32, name: &[u8], hold: Option<Hold<'_>>) -> u32 {
        let hash = self.hash(db, name);
        let (entries, hasher) = (&self.entries, &self.hasher);
        let found = self.index.entry(
            hash,
            |id| names(entries.get(id), db, name),
            |id| hasher.hash_one(entries.get(id).map(|entry| entry.lock.key()).unwrap_or_default()),
        );
        match found {
            hash_table::Entry::Occupied(found) => {
                let id = *found.get();
                if let Some(entry) = self.entries.get_mut(id) {
                    entry.lock.set_hold(hold);
                }
                id
            }
            hash_table::Entry::Vacant(place) => {
                let entry = Entry { lock: PackedLock::new(db, name, hold), expiry: Entry::NEVER };
                *place.insert(self.entries.insert(entry)).get()
            }
        }
    }

    fn lock(&self, id: u32) -> Option<TrackedLock> {
        let (db, name) = self.entries.get(id)?.lock.key();
        Some(TrackedLock { db, name: name.into(), lease_end: self.wheel.due(id) })
    }

    /// After a crowd has left, the room it took is given back.
    fn give_back_slack(&mut self) {
        if self.entries.reached() > SMALL && self.len() < SMALL.min(self.entries.reached() / 8) {
            let before = self.take_all();
            self.put_all(&before);
        }
    }

    fn take_all(&mut self) -> Self {
        let before = std::mem::take(self);
        self.wheel = Wheel::starting_at(before.wheel.now());
        before
    }

    /// Takes over what another table has. The caller's next wake-up stays right: no lease ends earlier than it did
    /// before.
    fn put_all(&mut self, before: &Self) {
        let now = self.wheel.now();
        for id in before.entries.ids() {
            let Some(entry) = before.entries.get(id) else { continue };
            let (db, name) = entry.lock.key();
            let term = Term { lease_end: before.wheel.due(id), expiry: entry.expiry() };
            self.track(db, name, Known { term, hold: entry.lock.hold() }, now);
        }
    }
}

/// Is this the entry of that lock?
fn names(entry: Option<&Entry>, db: u32, name: &[u8]) -> bool {
    entry.is_some_and(|entry| entry.lock.key() == (db, name))
}

#[cfg(test)]
mod tests;
