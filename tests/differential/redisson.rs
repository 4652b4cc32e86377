//! What a Redisson client sends, by scripts written anew from what its own do.

use redis::{Connection, FromRedisValue, RedisResult};

use crate::locker::{Answer, Hold, Locker};
use crate::runner::Verdict;

/// The lease that a client goes on with after a partial unlock, in milliseconds.
pub const UNLOCK_LEASE: i64 = 30_000;

/// How long a latch lives if the client doesn't remove it, in milliseconds.
const LATCH_LIFE: i64 = 16_000;

/// The message of an unlock.
const UNLOCKED: &str = "0";

/// A client whose scripts a server has learned.
pub struct Redisson {
    acquire: String,
    unlock: String,
    force: String,
    renew: String,
    unlocks: u128,
}

impl Redisson {
    /// Teaches a server the scripts.
    pub fn new(connection: &mut Connection) -> RedisResult<Self> {
        let mut load = |script| redis::cmd("SCRIPT").arg("LOAD").arg(script).query(connection);
        Ok(Self {
            acquire: load(include_str!("lua/acquire.lua"))?,
            unlock: load(include_str!("lua/unlock.lua"))?,
            force: load(include_str!("lua/force.lua"))?,
            renew: load(include_str!("lua/renew.lua"))?,
            unlocks: 0,
        })
    }
}

impl Locker for Redisson {
    fn acquire(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer> {
        let lease = hold.lease.to_string();
        let left: Option<i64> =
            call(connection, &self.acquire, &[hold.lock], &[lease.as_bytes(), hold.owner])?;
        Ok(left.map_or(Answer::Granted, |left| Answer::Denied { left }))
    }

    fn ask(&mut self, connection: &mut Connection, hold: Hold<'_>, _: i64) -> Verdict<Answer> {
        self.acquire(connection, hold)
    }

    fn renew(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer> {
        let lease = hold.lease.to_string();
        let [renewed]: [i64; 1] =
            call(connection, &self.renew, &[hold.lock], &[lease.as_bytes(), hold.owner])?;
        Ok(if renewed == 1 { Answer::Renewed } else { Answer::NotHeld })
    }

    fn release(&mut self, connection: &mut Connection, lock: &[u8], owner: &[u8]) -> Verdict<Answer> {
        self.unlocks += 1;
        let latch = format!("redisson_unlock_latch:{{{}}}:{:032x}", lock.escape_ascii(), self.unlocks);
        let (lease, latch_life) = (UNLOCK_LEASE.to_string(), LATCH_LIFE.to_string());
        let freed: Option<i64> = call(
            connection,
            &self.unlock,
            &[lock, &channel(lock), latch.as_bytes()],
            &[UNLOCKED.as_bytes(), lease.as_bytes(), owner, b"PUBLISH", latch_life.as_bytes()],
        )?;
        redis::cmd("DEL").arg(latch).exec(connection)?;
        Ok(match freed {
            Some(1) => Answer::Freed,
            Some(_) => Answer::HoldsLeft,
            None => Answer::NotHeld,
        })
    }

    fn release_all(
        &mut self,
        connection: &mut Connection,
        lock: &[u8],
        owner: &[u8],
        n: i64,
    ) -> Verdict<Answer> {
        for _ in 1..n {
            self.release(connection, lock, owner)?;
        }
        self.release(connection, lock, owner)
    }

    fn force(&mut self, connection: &mut Connection, lock: &[u8]) -> Verdict<Answer> {
        let forced: i64 =
            call(connection, &self.force, &[lock, &channel(lock)], &[UNLOCKED.as_bytes(), b"PUBLISH"])?;
        Ok(if forced == 1 { Answer::Freed } else { Answer::NotHeld })
    }
}

/// The channel on which a lock's unlocks are told. Names with braces are not wrapped again.
pub fn channel(lock: &[u8]) -> Vec<u8> {
    const PREFIX: &[u8] = b"redisson_lock__channel:";
    if lock.contains(&b'{') { [PREFIX, lock].concat() } else { [PREFIX, b"{", lock, b"}"].concat() }
}

fn call<T: FromRedisValue>(
    connection: &mut Connection,
    script: &str,
    keys: &[&[u8]],
    args: &[&[u8]],
) -> RedisResult<T> {
    redis::cmd("EVALSHA").arg(script).arg(keys.len()).arg(keys).arg(args).query(connection)
}
