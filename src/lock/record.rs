//! What a hash says about a lock.

use super::owner::is_redisson;

/// How a lock stands towards one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nobody holds it: there is no key, or only the token is left of it.
    Free {
        /// The token that is left; 0 where there is none.
        token: u64,
    },
    /// The caller holds it.
    Mine {
        /// The caller's hold count, at least 1.
        holds: u64,
        /// The hold's fencing token; 0 for a hold that Redisson's scripts made.
        token: u64,
        /// How many more owners the hash has: none, unless somebody edited it by hand.
        others: usize,
    },
    /// Somebody else holds it, or readers or a writer of Redisson's do.
    Other {
        /// The hold's fencing token; 0 where it has none.
        token: u64,
    },
}

/// The hash is somebody's data, or the caller's hold count in it is no positive integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALock;

/// Read access to a hash, as far as telling locks apart needs it. Cheap questions come first.
pub trait LockHash {
    /// The number of fields.
    fn len(&self) -> usize;
    /// The value of the caller's field, or `Err` where it is no integer.
    fn holds(&self) -> Option<Result<i64, NotALock>>;
    /// The value of the token field; a value that is no token counts as 0.
    fn token(&self) -> Option<u64>;
    /// Is the caller's name of the form of Redisson's owners?
    fn caller_is_redisson(&self) -> bool;
    /// Is Redisson's read-write marker there?
    fn has_mode(&self) -> bool;
    /// Do all field names satisfy the test? Looks at every field, unless one fails.
    fn all_fields(&self, test: fn(&[u8]) -> bool) -> bool;
}

impl Record {
    /// Tells whether the hash is a lock, and how it stands towards the caller.
    ///
    /// A hash is a lock when it has the token field, or Redisson's read-write marker, or nothing but
    /// fields of the form of Redisson's owners.
    pub fn read(hash: &impl LockHash) -> Result<Self, NotALock> {
        let fields = hash.len();
        match (hash.token(), hash.holds()) {
            // The common shapes, told by their size alone.
            (Some(token), None) if fields == 1 => Ok(Self::Free { token }),
            (Some(token), None) => Ok(Self::Other { token }),
            (Some(token), Some(holds)) if fields == 2 => Self::mine(holds, token, 0),
            (None, Some(holds)) if fields == 1 && hash.caller_is_redisson() => Self::mine(holds, 0, 0),
            // A reader's field under the marker is no exclusive hold, not even for that reader.
            (token, _) if hash.has_mode() => Ok(Self::Other { token: token.unwrap_or(0) }),
            (Some(token), Some(holds)) => Self::mine(holds, token, fields - 2),
            (None, holds) if hash.all_fields(is_redisson) => {
                holds.map_or(Ok(Self::Other { token: 0 }), |holds| Self::mine(holds, 0, fields - 1))
            }
            (None, _) => Err(NotALock),
        }
    }

    fn mine(holds: Result<i64, NotALock>, token: u64, others: usize) -> Result<Self, NotALock> {
        match u64::try_from(holds?) {
            Ok(holds) if (1..=super::MAX_HOLDS).contains(&holds) => Ok(Self::Mine { holds, token, others }),
            _ => Err(NotALock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MODE_FIELD, TOKEN_FIELD};
    use super::*;

    const A: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    const B: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:2";

    struct Fake<'a> {
        caller: &'a str,
        fields: &'a [(&'a str, &'a str)],
    }

    impl Fake<'_> {
        fn value(&self, name: &[u8]) -> Option<&str> {
            let found = self.fields.iter().find(|(field, _)| field.as_bytes() == name);
            found.map(|(_, value)| *value)
        }
    }

    impl LockHash for Fake<'_> {
        fn len(&self) -> usize {
            self.fields.len()
        }
        fn holds(&self) -> Option<Result<i64, NotALock>> {
            let value = self.value(self.caller.as_bytes())?;
            Some(value.parse().map_err(|_| NotALock))
        }
        fn token(&self) -> Option<u64> {
            self.value(TOKEN_FIELD).map(|value| value.parse().unwrap_or(0))
        }
        fn caller_is_redisson(&self) -> bool {
            is_redisson(self.caller.as_bytes())
        }
        fn has_mode(&self) -> bool {
            self.value(MODE_FIELD).is_some()
        }
        fn all_fields(&self, test: fn(&[u8]) -> bool) -> bool {
            self.fields.iter().all(|(field, _)| test(field.as_bytes()))
        }
    }

    fn read(caller: &str, fields: &[(&str, &str)]) -> Result<Record, NotALock> {
        Record::read(&Fake { caller, fields })
    }

    #[test]
    fn a_hash_with_the_token_field_is_a_lock() {
        let held = [("me", "2"), ("lock:token", "7")];
        assert_eq!(read("me", &held), Ok(Record::Mine { holds: 2, token: 7, others: 0 }));
        assert_eq!(read("you", &held), Ok(Record::Other { token: 7 }));
        let twice = [("me", "2"), ("you", "1"), ("lock:token", "7")];
        assert_eq!(read("me", &twice), Ok(Record::Mine { holds: 2, token: 7, others: 1 }));
        assert_eq!(read("them", &twice), Ok(Record::Other { token: 7 }));
    }

    #[test]
    fn the_token_field_alone_is_a_free_lock() {
        assert_eq!(read("me", &[("lock:token", "7")]), Ok(Record::Free { token: 7 }));
        assert_eq!(read("me", &[("lock:token", "junk")]), Ok(Record::Free { token: 0 }));
    }

    #[test]
    fn redissons_lock_is_held_without_a_token() {
        assert_eq!(read(A, &[(A, "3")]), Ok(Record::Mine { holds: 3, token: 0, others: 0 }));
        assert_eq!(read(B, &[(A, "3")]), Ok(Record::Other { token: 0 }));
        assert_eq!(read("me", &[(A, "3"), (B, "1")]), Ok(Record::Other { token: 0 }));
        assert_eq!(read(B, &[(A, "3"), (B, "1")]), Ok(Record::Mine { holds: 1, token: 0, others: 1 }));
    }

    #[test]
    fn redissons_read_write_lock_is_held_by_others_for_everybody() {
        let readers = [("mode", "read"), (A, "1")];
        for caller in [A, B, "me"] {
            assert_eq!(read(caller, &readers), Ok(Record::Other { token: 0 }));
        }
        assert_eq!(read("me", &[("mode", "write")]), Ok(Record::Other { token: 0 }));
        let odd = [("mode", "read"), ("me", "1"), ("lock:token", "9")];
        assert_eq!(read("me", &odd), Ok(Record::Other { token: 9 }));
    }

    #[test]
    fn any_other_hash_is_data() {
        assert_eq!(read("me", &[("me", "1")]), Err(NotALock));
        assert_eq!(read("me", &[("name", "x"), ("age", "3")]), Err(NotALock));
        assert_eq!(read(A, &[(A, "1"), ("age", "3")]), Err(NotALock));
    }

    #[test]
    fn a_hold_count_that_is_no_positive_integer_is_no_lock() {
        for count in ["0", "-1", "x", "1.5", "", "9007199254740992", "99999999999999999999"] {
            assert_eq!(read("me", &[("me", count), ("lock:token", "7")]), Err(NotALock), "{count}");
            assert_eq!(read(A, &[(A, count)]), Err(NotALock), "{count}");
        }
    }
}
