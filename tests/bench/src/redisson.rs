//! The commands of a Redisson client that waits for a lock: publish and retry.

use redis::Script;
use redis_lock_testkit::Server;

use crate::contender::LEASE;
use crate::scripts::Scripts;

/// How long the latch lives if the client doesn't remove it, in milliseconds.
const LATCH_LIFE: &str = "16000";

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

/// The commands for one lock.
pub struct Redisson {
    name: String,
    channel: String,
    scripts: Scripts,
    unlock: Script,
}

impl Redisson {
    /// Makes the scripts known to a server.
    pub fn new(server: &Server, name: &str) -> anyhow::Result<Self> {
        let mut connection = server.connect();
        let unlock = Script::new(UNLOCK);
        unlock.load(&mut connection)?;
        Ok(Self {
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            scripts: Scripts::load(&mut connection)?,
            unlock,
        })
    }

    /// Where unlocks are published.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Answers null where the lock was free, else the milliseconds that it is still held.
    pub fn acquire<'a>(&'a self, owner: &'a str) -> [&'a str; 6] {
        ["EVALSHA", self.scripts.redisson.acquire.get_hash(), "1", &self.name, LEASE, owner]
    }

    /// Answers 1 where the owner has given back its last hold.
    pub fn unlock<'a>(&'a self, owner: &'a str, latch: &'a str) -> [&'a str; 11] {
        let sha = self.unlock.get_hash();
        ["EVALSHA", sha, "3", &self.name, &self.channel, latch, "0", LEASE, owner, "publish", LATCH_LIFE]
    }

    /// The key that makes it safe to retry an unlock; the client deletes it afterwards.
    pub fn latch(&self, serial: u64) -> String {
        format!("redisson_unlock_latch:{{{}}}:{serial:032x}", self.name)
    }
}
