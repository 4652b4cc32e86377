//! The ways to take a lock and give it back, as pipelined commands.
//!
//! All of them use names and owners of the same length and the same lease.

use std::ops::Range;

use redis_lock_testkit::{Flavor, Server};

use crate::pace::Pace;
use crate::raw::{Batch, Reply};
use crate::scripts::Scripts;

/// Who locks: the form of Redisson's owners, a UUID and a thread's number.
pub const OWNER: &str = "4f6d9a6e-0c1b-4f39-9d59-6c1f2a7be310:87";

/// Who else locks.
const OTHER: &str = "b1b7f3a2-58d4-4f0e-a1c7-0e9d3c5a6f24:31";

/// Redisson's default lease, in milliseconds.
pub const LEASE: &str = "30000";

/// A lease that outlives every measurement.
const LONG_LEASE: &str = "3600000";

/// What became of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock was free.
    Granted,
    /// Somebody else holds it.
    Denied,
}

/// A way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `SET NX PX`, then `DEL` without asking whose lock it is.
    SetDel,
    /// `SET NX PX`, then a script that deletes the key if it is ours.
    SetScript,
    /// `SET NX PX`, then Valkey's command that does the same.
    SetDelifeq,
    /// Redisson's scripts.
    Redisson,
    /// `LOCK.ACQUIRE`, then `LOCK.RELEASE`.
    Module,
}

impl Contender {
    /// Those that this server can do, the one that the others are held against first.
    pub fn on(server: &Server) -> Vec<Self> {
        let mut all = vec![Self::SetDel, Self::SetScript, Self::SetDelifeq, Self::Redisson, Self::Module];
        if !server.version().at_least(Flavor::Valkey, 9, 0) {
            all.retain(|contender| *contender != Self::SetDelifeq);
        }
        all
    }

    /// What the tables call a cycle of acquire and release.
    pub fn cycle_label(self) -> &'static str {
        match self {
            Self::SetDel => "SET NX PX + DEL",
            Self::SetScript => "SET NX PX + compare-and-delete script",
            Self::SetDelifeq => "SET NX PX + DELIFEQ",
            Self::Redisson => "Redisson: EVALSHA + EVALSHA + DEL",
            Self::Module => "LOCK.ACQUIRE + LOCK.RELEASE",
        }
    }

    /// The commands of a cycle.
    pub fn commands(self) -> &'static [&'static str] {
        match self {
            Self::SetDel => &["set", "del"],
            Self::SetScript => &["set", "evalsha"],
            Self::SetDelifeq => &["set", "delifeq"],
            Self::Redisson => &["evalsha", "del"],
            Self::Module => &["lock.acquire", "lock.release"],
        }
    }

    /// Acquires and releases each of these locks, which are free, one after the other.
    pub fn cycles(self, scripts: &Scripts, locks: Range<usize>, pace: Pace) -> Batch {
        let mut batch = pace.batch();
        for index in locks {
            let name = &self.name(index);
            self.acquire(scripts, &mut batch, [name, OWNER, LEASE], Outcome::Granted);
            self.release(scripts, &mut batch, name, index);
        }
        batch
    }

    /// Has somebody else take `count` locks.
    pub fn taken(self, scripts: &Scripts, count: usize) -> Batch {
        let mut batch = Batch::pipelined();
        for index in 0..count {
            let lock = [&self.name(index), OTHER, LONG_LEASE];
            self.acquire(scripts, &mut batch, lock, Outcome::Granted);
        }
        batch
    }

    /// Asks `repeats` times for each of these locks that somebody else has.
    pub fn denials(self, scripts: &Scripts, locks: usize, repeats: usize, pace: Pace) -> Batch {
        let mut batch = pace.batch();
        for index in (0..repeats).flat_map(|_| 0..locks) {
            let lock = [&self.name(index), OWNER, LEASE];
            self.acquire(scripts, &mut batch, lock, Outcome::Denied);
        }
        batch
    }

    /// Adds an acquire of `[name, owner, lease]`.
    pub fn acquire(
        self,
        scripts: &Scripts,
        batch: &mut Batch,
        [name, owner, lease]: [&str; 3],
        outcome: Outcome,
    ) {
        let reply = match (self, outcome) {
            (Self::Module, Outcome::Granted) => Reply::Holds(1),
            (Self::Module, Outcome::Denied) => Reply::Holds(0),
            (Self::Redisson, Outcome::Denied) => Reply::Positive,
            (Self::Redisson, Outcome::Granted) | (_, Outcome::Denied) => Reply::Null,
            (_, Outcome::Granted) => Reply::Ok,
        };
        match self {
            Self::Module => batch.push(&["LOCK.ACQUIRE", name, owner, lease], reply),
            Self::Redisson => {
                let sha = scripts.redisson.acquire.get_hash();
                batch.push(&["EVALSHA", sha, "1", name, lease, owner], reply);
            }
            _ => batch.push(&["SET", name, owner, "NX", "PX", lease], reply),
        }
    }

    /// Adds the release of a lock that [`OWNER`] holds once; `serial` tells the releases of one
    /// name apart.
    pub fn release(self, scripts: &Scripts, batch: &mut Batch, name: &str, serial: usize) {
        match self {
            Self::SetDel => batch.push(&["DEL", name], Reply::Integer(1)),
            Self::SetScript => {
                let sha = scripts.compare_and_delete.get_hash();
                batch.push(&["EVALSHA", sha, "1", name, OWNER], Reply::Integer(1));
            }
            Self::SetDelifeq => batch.push(&["DELIFEQ", name, OWNER], Reply::Integer(1)),
            Self::Redisson => scripts.redisson.unlock(batch, name, serial),
            Self::Module => batch.push(&["LOCK.RELEASE", name, OWNER], Reply::Integer(0)),
        }
    }

    /// A lock's name; contenders on one server don't meet.
    pub fn name(self, index: usize) -> String {
        format!("orders:{}:{index:08}", self as u8)
    }
}
