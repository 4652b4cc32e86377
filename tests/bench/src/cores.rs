//! Which processor core runs whom. Left to the kernel, a benchmark that asks and waits in turn has two
//! outcomes: both sides on one core, or each on its own, where every message has to wake a core up.

use redis_lock_testkit::Server;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How this thread and the servers share the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// All on one: nobody has to be woken up on another, and the figures are the steadiest.
    One,
    /// The servers on another core than the client, as where there is a network between them.
    Two,
}

impl Cores {
    /// What titles call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::One => "client and server on one core",
            Self::Two => "client and server on two cores",
        }
    }
}

/// This thread stays on its core until this goes out of use.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Puts this thread and the servers' main threads on their cores; where there is but one, on that.
    pub fn to(cores: Cores, servers: &[&Server]) -> anyhow::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core));
        let clients = allowed.next().unwrap_or(0);
        let others = match cores {
            Cores::One => clients,
            Cores::Two => allowed.next().unwrap_or(clients),
        };
        for server in servers {
            let pid = Pid::from_raw(i32::try_from(server.pid())?);
            sched_setaffinity(pid, &only(others))?;
        }
        sched_setaffinity(None, &only(clients))?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was allowed before. If it fails, this thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
