//! A lock's database and name in little memory.

/// A lock's database and name, in one allocation: the number's low seven bits and whether more follow, and
/// so on; then the name.
#[derive(Debug)]
pub struct PackedKey(Box<[u8]>);

impl PackedKey {
    /// Packs them.
    pub fn new(mut db: u32, name: &[u8]) -> Self {
        let mut packed = Vec::with_capacity(name.len() + 1);
        while db > 0x7f {
            packed.push(db as u8 | 0x80);
            db >>= 7;
        }
        packed.push(db as u8);
        packed.extend_from_slice(name);
        Self(packed.into())
    }

    /// The database and the name.
    pub fn unpack(&self) -> (u32, &[u8]) {
        let mut db = 0;
        for (index, byte) in self.0.iter().enumerate() {
            db |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return (db, &self.0[index + 1..]);
            }
        }
        (db, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_packed_key_unpacks(db in prop_oneof![0..3_u32, any::<u32>()], name in prop::collection::vec(any::<u8>(), 0..20)) {
            let key = PackedKey::new(db, &name);
            prop_assert_eq!(key.unpack(), (db, &*name));
            if db < 128 {
                prop_assert_eq!(key.0.len(), name.len() + 1);
            }
        }
    }
}
