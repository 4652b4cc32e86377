//! The scripts that lock without the module.

use redis::Script;

use crate::contender::{LEASE, OWNER};
use crate::raw::{Batch, Reply};

/// Deletes the key if it still holds the owner's value: the textbook's release.
const COMPARE_AND_DELETE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0";

/// How long the latch lives if the client doesn't remove it, in milliseconds.
pub const LATCH_LIFE: &str = "16000";

const ACQUIRE: &str = "
local name, lease, owner = KEYS[1], ARGV[1], ARGV[2]
if redis.call('exists', name) == 0 or redis.call('hexists', name, owner) == 1 then
    redis.call('hincrby', name, owner, 1)
    redis.call('pexpire', name, lease)
    return nil
end
return redis.call('pttl', name)";

const UNLOCK: &str = "
local name, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease, owner, publish, latch_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
if redis.call('hexists', name, owner) == 0 then
    return nil
end
if redis.call('hincrby', name, owner, -1) > 0 then
    redis.call('pexpire', name, lease)
    redis.call('set', latch, 0, 'px', latch_life)
    return 0
end
redis.call('del', name)
redis.call(publish, channel, message)
redis.call('set', latch, 1, 'px', latch_life)
return 1";

/// Scripts that a server knows.
pub struct Scripts {
    /// Releases what `SET NX` took.
    pub compare_and_delete: Script,
    /// What a Redisson client sends.
    pub redisson: Redisson,
}

/// Redisson's scripts, written anew from what they do.
pub struct Redisson {
    /// Answers null, or the milliseconds that the holder's lease still has.
    pub acquire: Script,
    /// Gives a hold back, and publishes the unlock.
    pub unlock: Script,
}

impl Scripts {
    /// Makes the scripts known to a server.
    pub fn load(connection: &mut redis::Connection) -> anyhow::Result<Self> {
        let scripts = Self {
            compare_and_delete: Script::new(COMPARE_AND_DELETE),
            redisson: Redisson { acquire: Script::new(ACQUIRE), unlock: Script::new(UNLOCK) },
        };
        scripts.compare_and_delete.load(connection)?;
        scripts.redisson.acquire.load(connection)?;
        scripts.redisson.unlock.load(connection)?;
        Ok(scripts)
    }
}

impl Redisson {
    /// Adds an unlock and the removal of the latch that makes it safe to retry.
    pub fn unlock(&self, batch: &mut Batch, name: &str, serial: usize) {
        let sha = self.unlock.get_hash();
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let latch = format!("redisson_unlock_latch:{{{name}}}:{serial:032x}");
        let keys = [name, &channel, &latch];
        let args = ["0", LEASE, OWNER, "publish", LATCH_LIFE];
        let unlock = [&["EVALSHA", sha, "3"][..], &keys, &args].concat();
        batch.push(&unlock, Reply::Integer(1));
        batch.push(&["DEL", &latch], Reply::Integer(1));
    }
}
