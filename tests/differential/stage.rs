//! A server, and one connection that also hears every unlock.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use redis::{Connection, PushInfo, PushKind, RedisResult, Value};
use redis_lock_testkit::{Server, eventually};

use crate::redisson::channel;
use crate::runner::Verdict;

/// Where histories are played, one after another.
pub struct Stage {
    /// The connection that plays. It speaks RESP3, in which an unlock is heard between replies: a
    /// reply that comes back means that all earlier unlocks were heard.
    pub connection: Connection,
    pushes: Receiver<PushInfo>,
    heard: HashMap<Vec<u8>, usize>,
    histories: usize,
    _server: Server,
}

impl Stage {
    /// Starts a server and listens to its unlocks.
    pub fn new() -> RedisResult<Self> {
        let server = Server::with_module().start();
        let mut connection = server.connect_resp3();
        let (sender, pushes) = mpsc::channel();
        connection.set_push_sender(sender);
        connection.psubscribe_resp3("redisson_lock__channel:*")?;
        Ok(Self { connection, pushes, heard: HashMap::new(), histories: 0, _server: server })
    }

    /// Names for the locks of one history, used by no other.
    pub fn fresh_name(&mut self) -> Vec<u8> {
        self.histories += 1;
        // With a byte that is no UTF-8, a NUL, and braces in every other one.
        match self.histories % 2 {
            0 => format!("lock {}\0", self.histories).into_bytes(),
            _ => [b"\xff{lock}:", self.histories.to_string().as_bytes()].concat(),
        }
    }

    /// How many unlocks of a lock were heard since last asked.
    pub fn unlocks(&mut self, lock: &[u8]) -> Verdict<usize> {
        for push in self.pushes.try_iter().filter(|push| push.kind == PushKind::PMessage) {
            let [_, channel, message]: [Vec<u8>; 3] = redis::from_redis_value(Value::Array(push.data))?;
            proptest::prop_assert_eq!(message, b"0");
            *self.heard.entry(channel).or_default() += 1;
        }
        Ok(self.heard.remove(&channel(lock)).unwrap_or(0))
    }

    /// Lets a lease end now, and waits until it has.
    pub fn expire(&mut self, lock: &[u8]) -> RedisResult<()> {
        redis::cmd("PEXPIRE").arg(lock).arg(1).exec(&mut self.connection)?;
        eventually(Duration::from_secs(5), || {
            let exists = redis::cmd("EXISTS").arg(lock).query::<bool>(&mut self.connection);
            exists.map_or_else(|error| Some(Err(error)), |exists| (!exists).then_some(Ok(())))
        })
    }

    /// Takes the lock's key away.
    pub fn remove(&mut self, lock: &[u8]) -> RedisResult<()> {
        redis::cmd("DEL").arg(lock).exec(&mut self.connection)
    }

    /// Moves the end of the lease, if there is one.
    pub fn move_lease(&mut self, lock: &[u8], ends: i64) -> RedisResult<()> {
        redis::cmd("PEXPIREAT").arg(lock).arg(ends).exec(&mut self.connection)
    }
}
