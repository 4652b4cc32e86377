//! What a lock's key says about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, RedisResult};

/// Two commands that ought to set the same lease run this far apart at most, in milliseconds.
const TOLERANCE: i64 = 400;

/// The field in which the module keeps the fencing token.
const TOKEN: &[u8] = b"lock:token";

/// What PEXPIRETIME and PTTL answer where there is no key.
const NO_KEY: i64 = -2;

/// A lock at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The hold count of each owner; none where the lock is free.
    pub holds: BTreeMap<Vec<u8>, i64>,
    /// The fencing token; 0 where there is none.
    pub token: i64,
    /// When the lease ends, in milliseconds since 1970; negative where there is no lease.
    pub ends: i64,
}

impl Snapshot {
    /// A lock without a key: nobody holds it.
    pub fn free() -> Self {
        Self { holds: BTreeMap::new(), token: 0, ends: NO_KEY }
    }

    /// Looks at some keys, all at one moment.
    pub fn take<const N: usize>(connection: &mut Connection, keys: [&[u8]; N]) -> RedisResult<[Self; N]> {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for key in keys {
            pipe.cmd("HGETALL").arg(key).cmd("PEXPIRETIME").arg(key);
        }
        let mut replies = pipe.query::<Vec<redis::Value>>(connection)?.into_iter();
        let mut snapshots = Vec::with_capacity(N);
        while let (Some(fields), Some(ends)) = (replies.next(), replies.next()) {
            let mut holds: BTreeMap<Vec<u8>, i64> = redis::from_redis_value(fields)?;
            let token = holds.remove(TOKEN).unwrap_or(0);
            snapshots.push(Self { holds, token, ends: redis::from_redis_value(ends)? });
        }
        Ok(snapshots.try_into().expect("two replies for each key"))
    }

    /// Makes a key say the same, but for the token, which Redisson has no use for.
    pub fn write(&self, connection: &mut Connection, key: &[u8]) -> RedisResult<()> {
        let mut pipe = redis::pipe();
        pipe.cmd("DEL").arg(key);
        for (owner, holds) in &self.holds {
            pipe.cmd("HSET").arg(key).arg(owner).arg(holds);
        }
        pipe.cmd("PEXPIREAT").arg(key).arg(self.ends);
        pipe.exec(connection)
    }

    /// How often this owner holds the lock.
    pub fn holds_of(&self, owner: &[u8]) -> i64 {
        self.holds.get(owner).copied().unwrap_or(0)
    }

    /// Is the lock held at all?
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// How many milliseconds the lease has left, as PTTL says it.
    pub fn left(&self) -> i64 {
        if self.ends < 0 { self.ends } else { self.ends - now() }
    }

    /// Do both say the same, but for the token and the moment between two commands?
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.holds == other.holds && is_same_time(self.ends, other.ends)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (owner, holds) in &self.holds {
            write!(f, "{} × \"{}\", ", holds, owner.escape_ascii())?;
        }
        write!(f, "token {}, ends {}", self.token, self.ends)
    }
}

/// Are two times, or two spans of time, the same but for the moment between two commands?
pub fn is_same_time(one: i64, other: i64) -> bool {
    (one < 0) == (other < 0) && (one - other).abs() <= TOLERANCE
}

/// The time, in milliseconds since 1970; the servers run on the same clock.
pub fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock set after 1970");
    since_1970.as_millis().try_into().expect("a clock set to this era")
}
