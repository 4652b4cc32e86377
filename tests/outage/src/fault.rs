//! What befalls the servers.

use std::fmt;

use crate::setup::Formation;

/// A fault, and what the operators do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The master is killed before its replica, which is promoted, got the lock.
    Crash,
    /// The replica is cut off and promoted; the master lives on and serves its clients.
    Partition,
    /// The master stands still for longer than a lease; its replica is promoted meanwhile. Then the master goes
    /// on to serve its clients.
    Pause,
    /// The same for longer than the new master's grace. The old one's system lives on, and closes connections.
    LongPause,
    /// A server without persistence is killed, and starts again.
    Restart,
}

impl Fault {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Crash, Self::Partition, Self::Pause, Self::LongPause, Self::Restart];

    /// Whom it befalls.
    pub fn formation(self) -> Formation {
        match self {
            Self::Crash | Self::Partition | Self::Pause | Self::LongPause => Formation::Pair,
            Self::Restart => Formation::Alone,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "master killed, replica promoted",
            Self::Partition => "partition, replica promoted",
            Self::Pause => "master paused, replica promoted",
            Self::LongPause => "master paused beyond the grace, replica promoted",
            Self::Restart => "restart without data",
        })
    }
}
