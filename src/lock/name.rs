//! A lock's database, its name, and who holds it, in little memory.

use super::Hold;

/// A lock's database and name, in one allocation.
#[derive(Debug)]
pub struct PackedKey(Box<[u8]>);

impl PackedKey {
    /// Packs them.
    pub fn new(db: u32, name: &[u8]) -> Self {
        let mut packed = Vec::with_capacity(name.len() + 1);
        pack(&mut packed, u64::from(db));
        packed.extend_from_slice(name);
        Self(packed.into())
    }

    /// The database and the name.
    pub fn unpack(&self) -> (u32, &[u8]) {
        let (db, name) = unpack(&self.0);
        (db as u32, name)
    }
}

/// A lock's database, its name and its hold, if it is known: one allocation, and the token.
#[derive(Debug)]
pub struct PackedLock {
    /// The database, the length of the name, the name; for a hold also its count, and its owner.
    packed: Box<[u8]>,
    token: u64,
}

impl PackedLock {
    /// Packs them.
    pub fn new(db: u32, name: &[u8], hold: Option<Hold<'_>>) -> Self {
        let owner = hold.map_or(0, |hold| hold.owner.len());
        let mut packed = Vec::with_capacity(name.len() + owner + 4);
        pack(&mut packed, u64::from(db));
        pack(&mut packed, name.len() as u64);
        packed.extend_from_slice(name);
        if let Some(hold) = hold {
            pack(&mut packed, hold.holds);
            packed.extend_from_slice(hold.owner);
        }
        Self { packed: packed.into(), token: hold.map_or(0, |hold| hold.token) }
    }

    /// The database and the name.
    pub fn key(&self) -> (u32, &[u8]) {
        let (db, name, _) = self.parts();
        (db, name)
    }

    /// The hold.
    pub fn hold(&self) -> Option<Hold<'_>> {
        let (_, _, hold) = self.parts();
        if hold.is_empty() {
            return None;
        }
        let (holds, owner) = unpack(hold);
        Some(Hold { owner, holds, token: self.token })
    }

    /// Sets the hold.
    pub fn set_hold(&mut self, hold: Option<Hold<'_>>) {
        let same = |held: Hold<'_>, hold: Hold<'_>| (held.owner, held.holds) == (hold.owner, hold.holds);
        match (self.hold(), hold) {
            (None, None) => {}
            (Some(held), Some(hold)) if same(held, hold) => self.token = hold.token,
            _ => {
                let (db, name) = self.key();
                *self = Self::new(db, name, hold);
            }
        }
    }

    fn parts(&self) -> (u32, &[u8], &[u8]) {
        let (db, rest) = unpack(&self.packed);
        let (length, rest) = unpack(rest);
        let (name, hold) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
        (db as u32, name, hold)
    }
}

/// Writes a number: its low seven bits and whether more follow, and so on (LEB128).
fn pack(packed: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

/// Reads a number; answers what is behind it, too.
fn unpack(packed: &[u8]) -> (u64, &[u8]) {
    let mut number = 0;
    for (index, byte) in packed.iter().enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (number, &packed[index + 1..]);
        }
    }
    (number, &[])
}

#[cfg(test)]
mod tests {
    use super::super::MAX_HOLDS;
    use super::*;
    use proptest::prelude::*;

    fn any_db() -> impl Strategy<Value = u32> {
        prop_oneof![0..3_u32, any::<u32>()]
    }

    fn any_bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), least..200)
    }

    type OwnedHold = (Vec<u8>, u64, u64);

    fn any_hold() -> impl Strategy<Value = Option<OwnedHold>> {
        let holds = prop_oneof![1..3_u64, 1..=MAX_HOLDS];
        prop::option::weighted(0.8, (any_bytes(1), holds, 0..1_u64 << 53))
    }

    fn borrowed(hold: &Option<OwnedHold>) -> Option<Hold<'_>> {
        hold.as_ref().map(|(owner, holds, token)| Hold { owner, holds: *holds, token: *token })
    }

    proptest! {
        #[test]
        fn a_packed_key_unpacks(db in any_db(), name in any_bytes(0)) {
            let key = PackedKey::new(db, &name);
            prop_assert_eq!(key.unpack(), (db, &*name));
            if db < 128 {
                prop_assert_eq!(key.0.len(), name.len() + 1);
            }
        }

        #[test]
        fn a_packed_lock_unpacks(db in any_db(), name in any_bytes(0), first in any_hold(), second in any_hold()) {
            let mut lock = PackedLock::new(db, &name, borrowed(&first));
            prop_assert_eq!((lock.key(), lock.hold()), ((db, &*name), borrowed(&first)));
            lock.set_hold(borrowed(&second));
            prop_assert_eq!((lock.key(), lock.hold()), ((db, &*name), borrowed(&second)));
        }
    }
}
