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
