//! The locks and the owners of the play.

use std::fmt;

/// How many databases have locks.
pub const DATABASES: u8 = 2;

/// How many locks each of them has.
const KEYS: u8 = 8;

/// How many owners there are.
pub const OWNERS: u8 = 12;

/// How many locks there are.
pub const LOCKS: usize = DATABASES as usize * KEYS as usize;

/// A place for a lock: a database and a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock(u8);

impl Lock {
    /// The lock of this number in a database.
    pub fn new(db: u8, number: u8) -> Self {
        Self(db * KEYS + number % KEYS)
    }

    /// All locks.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..DATABASES * KEYS).map(Self)
    }

    /// All locks of a database.
    pub fn all_in(db: u8) -> impl Iterator<Item = Self> {
        (0..KEYS).map(move |number| Self::new(db, number))
    }

    /// Its place among all.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// Its database.
    pub fn db(self) -> u8 {
        self.0 / KEYS
    }

    /// The lock of the same name in another database.
    pub fn in_db(self, db: u8) -> Self {
        Self::new(db, self.0 % KEYS)
    }

    /// Its name.
    pub fn name(self) -> Vec<u8> {
        format!("lock-{}", self.0 % KEYS).into_bytes()
    }

    /// The lock of this name, if it is one.
    pub fn of_name(db: u8, name: &[u8]) -> Option<Self> {
        let number: u8 = std::str::from_utf8(name).ok()?.strip_prefix("lock-")?.parse().ok()?;
        (db < DATABASES && number < KEYS).then(|| Self::new(db, number))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/lock-{}", self.db(), self.0 % KEYS)
    }
}

/// In whose name a lock is held or waited for. The names are such as Redisson makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u8);

const UUID: &str = "5d0bd2b5-7d4c-4f0e-8a3c-6f6f1f0d9c11:";

impl Owner {
    /// Its name.
    pub fn name(self) -> Vec<u8> {
        format!("{UUID}{}", self.0).into_bytes()
    }

    /// The owner of this name, if it is one.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let number = std::str::from_utf8(name).ok()?.strip_prefix(UUID)?.parse().ok()?;
        (number < OWNERS).then_some(Self(number))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner-{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for lock in Lock::all() {
            assert_eq!(Lock::of_name(lock.db(), &lock.name()), Some(lock));
        }
        assert_eq!(Lock::all().count(), LOCKS);
        assert_eq!(Lock::of_name(DATABASES, b"lock-0"), None);
        assert_eq!(Owner::of_name(&Owner(3).name()), Some(Owner(3)));
        assert_eq!(Owner::of_name(b"lock:token"), None);
    }
}
