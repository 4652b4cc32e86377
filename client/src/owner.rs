//! Who asks for a lock.

use std::fmt;

use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};
use uuid::Uuid;

/// An owner that no other process can be: a random UUID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Uuid);

impl Owner {
    /// A new owner. Never reuse one after an attempt that failed: a late request of the old attempt would
    /// count for the new one.
    pub fn unique() -> Self {
        Self(Uuid::new_v4())
    }

    /// The owner of this random number.
    pub(crate) fn from_random(random: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }

    /// The `n`th owner derived of this one: two that differ are two owners, and those of two unique ones differ.
    pub(crate) fn nth(&self, n: u64) -> Self {
        Self::from_random(self.0.as_u128().wrapping_add(u128::from(n)))
    }

    /// A number that is as unique.
    pub(crate) fn seed(&self) -> u64 {
        self.0.as_u64_pair().1
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl ToRedisArgs for Owner {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl ToSingleRedisArg for Owner {}
