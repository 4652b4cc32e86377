//! What a crowd can wait for.

use crate::contender::OWNER;
use crate::line::{FOREVER, owner};
use crate::raw::{Batch, Reply};
use crate::swarm::Swarm;

/// Leases and waits that outlive the benchmark.
const LONG: &str = "1800000";

/// What a crowd waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// All for one lock.
    OneLock,
    /// Each for a lock of its own.
    OwnLocks,
    /// A list's next element: what the server itself has.
    List,
}

impl Queue {
    /// What the tables call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::OneLock => "LOCK.ACQUIRE … BLOCK, one lock",
            Self::OwnLocks => "LOCK.ACQUIRE … BLOCK, a lock each",
            Self::List => "BLPOP, one list, for comparison",
        }
    }

    fn name(self, index: usize) -> String {
        match self {
            Self::OneLock => "orders:one".to_owned(),
            Self::OwnLocks => format!("orders:{index:08}"),
            Self::List => "orders:list".to_owned(),
        }
    }

    /// Has somebody else hold what the crowd will wait for.
    pub fn taken(self, crowd: usize) -> Batch {
        let locks = match self {
            Self::OneLock => 1,
            Self::OwnLocks => crowd,
            Self::List => 0,
        };
        let mut batch = Batch::pipelined();
        for index in 0..locks {
            batch.push(&["LOCK.ACQUIRE", &self.name(index), OWNER, LONG], Reply::Holds(1));
        }
        batch
    }

    /// Has one of the crowd wait.
    pub fn join(self, swarm: &Swarm, index: usize) -> anyhow::Result<()> {
        let name = self.name(index);
        match self {
            Self::List => swarm.send(index, &["BLPOP", &name, FOREVER]),
            _ => swarm.send(index, &["LOCK.ACQUIRE", &name, &owner(index), LONG, "BLOCK", LONG]),
        }
    }

    /// Sends all of them away.
    pub fn dismissed(self, crowd: usize) -> Batch {
        let mut batch = Batch::pipelined();
        for index in 0..crowd {
            let name = self.name(index);
            match self {
                // An element goes to a client right away, so the list never grows.
                Self::List => batch.push(&["RPUSH", &name, "x"], Reply::Integer(1)),
                _ => batch.push(&["LOCK.RELEASE", &name, &owner(index), "HOLDS", "0"], Reply::Null),
            }
        }
        batch
    }
}
