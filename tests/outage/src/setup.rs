//! The configurations that are compared.

use std::fmt;
use std::time::Duration;

use redis_lock_testkit::{Builder, Server};

/// The lease that every client asks for.
pub const LEASE: Duration = Duration::from_millis(1_000);

/// After how long without a sign of life from its replica a protected master refuses writes, in seconds.
const MAX_LAG_SECONDS: u64 = 1;

/// The grace of a node alone: no lease is longer.
const GRACE_ALONE: Duration = LEASE;

/// The grace of a node that may be promoted: lease + lag + 3 s, the sum that the documentation's configuration
/// for a master and its replicas has.
const GRACE_OF_PAIR: Duration = LEASE.saturating_add(Duration::from_secs(MAX_LAG_SECONDS + 3));

/// How a server is set up, and how its locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Redisson's scripts, on a server as it comes.
    Scripts,
    /// The module as it is loaded without any setting.
    Unprotected,
    /// The module as `docs/guarantees.md` configures it, scaled down.
    Documented,
}

/// Who else keeps the data of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formation {
    /// Nobody.
    Alone,
    /// A replica that may be promoted.
    Pair,
}

impl Setup {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Scripts, Self::Unprotected, Self::Documented];

    /// A server to be, configured alike on every node.
    pub fn server(self, formation: Formation) -> Builder {
        let server = match self {
            Self::Scripts => return Server::without_module(),
            Self::Unprotected => return Server::with_module(),
            Self::Documented => Server::with_module()
                .module_arg("grace-period", &self.grace(formation).as_millis().to_string())
                .module_arg("max-ttl", &LEASE.as_millis().to_string()),
        };
        match formation {
            Formation::Alone => server,
            Formation::Pair => server
                .config("min-replicas-to-write", "1")
                .config("min-replicas-max-lag", &MAX_LAG_SECONDS.to_string()),
        }
    }

    /// For how long a node grants nothing after its start or promotion.
    pub fn grace(self, formation: Formation) -> Duration {
        match (self, formation) {
            (Self::Scripts | Self::Unprotected, _) => Duration::ZERO,
            (Self::Documented, Formation::Alone) => GRACE_ALONE,
            (Self::Documented, Formation::Pair) => GRACE_OF_PAIR,
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scripts => "Redisson's scripts, no module",
            Self::Unprotected => "the module, no `grace-period`, no `min-replicas-to-write`",
            Self::Documented => "the module, configured as above",
        })
    }
}
