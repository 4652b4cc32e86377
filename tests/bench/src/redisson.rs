//! The commands of a Redisson client that waits for a lock: publish and retry.

use redis_lock_testkit::Server;

use crate::contender::LEASE;
use crate::scripts::{LATCH_LIFE, Scripts};

/// The commands for one lock.
pub struct Redisson {
    name: String,
    channel: String,
    scripts: Scripts,
}

impl Redisson {
    /// Makes the scripts known to a server.
    pub fn new(server: &Server, name: &str) -> anyhow::Result<Self> {
        let mut connection = server.connect();
        Ok(Self {
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            scripts: Scripts::load(&mut connection)?,
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
        let sha = self.scripts.redisson.unlock.get_hash();
        ["EVALSHA", sha, "3", &self.name, &self.channel, latch, "0", LEASE, owner, "publish", LATCH_LIFE]
    }

    /// The key that makes it safe to retry an unlock; the client deletes it afterwards.
    pub fn latch(&self, serial: u64) -> String {
        format!("redisson_unlock_latch:{{{}}}:{serial:032x}", self.name)
    }
}
