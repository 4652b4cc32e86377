//! A client that wants the lock, and keeps it as long as it can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, RedisResult, Value, cmd};

use crate::lease::{Lease, Leases};
use crate::setup::{LEASE, Setup};

/// The one lock of a trial.
const LOCK: &str = "lock";

/// Between two requests. Short, so that no gap in a server's refusals stays unused.
const PAUSE: Duration = Duration::from_millis(8);

/// Redisson's, as the differential test has them.
const ACQUIRE: &str = include_str!("../../differential/lua/acquire.lua");
const RENEW: &str = include_str!("../../differential/lua/renew.lua");

/// A client of one server.
pub struct Client {
    connection: Connection,
    setup: Setup,
    owner: &'static str,
}

impl Client {
    /// A client that takes locks as `setup` says.
    pub fn new(connection: Connection, setup: Setup, owner: &'static str) -> Self {
        Self { connection, setup, owner }
    }

    /// Takes the lock over and over, and notes each lease, until told to stop or the server is gone. It renews
    /// as often as it can, so that its lease ends as late as the server lets it.
    pub fn hold(mut self, leases: &Leases, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            for request in [self.renew(), self.acquire()] {
                let sent = Instant::now();
                match self.is_granted(&request) {
                    Ok(true) => {
                        leases.add(Lease { known: Instant::now(), end: sent + LEASE });
                        break;
                    }
                    Ok(false) => {}
                    Err(error) if error.is_unrecoverable_error() => return,
                    // The server is there, and refuses.
                    Err(_) => {}
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn is_granted(&mut self, request: &Cmd) -> RedisResult<bool> {
        Ok(match request.query(&mut self.connection)? {
            // The scripts answer nil to who gets the lock, and to others how long it will take.
            Value::Nil => true,
            Value::Array(items) => matches!(items.first(), Some(Value::Int(1..))),
            Value::Int(1) if self.setup != Setup::Scripts => true,
            _ => false,
        })
    }

    fn acquire(&self) -> Cmd {
        self.request("LOCK.ACQUIRE", ACQUIRE)
    }

    fn renew(&self) -> Cmd {
        self.request("LOCK.RENEW", RENEW)
    }

    fn request(&self, command: &str, script: &str) -> Cmd {
        let lease = LEASE.as_secs() * 1_000 + u64::from(LEASE.subsec_millis());
        let mut request;
        match self.setup {
            Setup::Scripts => {
                request = cmd("EVAL");
                request.arg(script).arg(1).arg(LOCK).arg(lease).arg(self.owner);
            }
            Setup::Unprotected | Setup::Documented => {
                request = cmd(command);
                request.arg(LOCK).arg(self.owner).arg(lease);
            }
        }
        request
    }
}
