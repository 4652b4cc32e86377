//! Many who join a line and leave it: what they leave behind.

use anyhow::ensure;
use redis::Connection;
use redis_lock_testkit::Server;

use crate::contender::OWNER;
use crate::crowd::{Crowd, server_for};
use crate::effort::Effort;
use crate::line::{FOREVER, info, owner, wait_for_waiters};
use crate::memory;
use crate::peer::{Peer, first_integer, packed};
use crate::queue::Queue;
use crate::raw::{Batch, RawConnection, Rehearsed, Reply};
use crate::report::{Figure, Section};
use crate::swarm::Swarm;

/// How many leave a line for good.
const QUICK_LEAVERS: usize = 1_000;
const FULL_LEAVERS: usize = 5_000;

/// The lock.
const NAME: &str = "orders:churn";

/// Connections that come and go.
const CLIENTS: usize = 1_000;

/// A lease that outlives the benchmark.
const LONG_LEASE: &str = "1800000";

/// How the waiters leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// Their time is up after 1 to 5 ms.
    TimedOut,
    /// RELEASE … HOLDS 0 takes them out.
    Withdrawn,
}

/// Clients who all join one line and leave it together.
struct Churn {
    control: Connection,
    raw: RawConnection,
    swarm: Swarm,
    /// How each joins, for either exit.
    briefly: Vec<Vec<u8>>,
    for_good: Vec<Vec<u8>>,
    withdrawal: Rehearsed,
}

impl Churn {
    fn start(server: &Server) -> anyhow::Result<Self> {
        let mut raw = RawConnection::open(server.port())?;
        let mut taken = Batch::pipelined();
        taken.push(&["LOCK.ACQUIRE", NAME, OWNER, LONG_LEASE], Reply::Holds(1));
        raw.send(&taken)?;
        let mut withdrawal = Batch::pipelined();
        for client in 0..CLIENTS {
            withdrawal.push(&["LOCK.RELEASE", NAME, &owner(client), "HOLDS", "0"], Reply::Null);
        }
        let withdrawal = raw.rehearse(withdrawal)?;
        let join = |client: usize, timeout: &str| {
            packed(&["LOCK.ACQUIRE", NAME, &owner(client), LONG_LEASE, "BLOCK", timeout])
        };
        Ok(Self {
            control: server.connect(),
            raw,
            swarm: Swarm::connect(server, CLIENTS, Peer::over_unix_socket)?,
            briefly: (0..CLIENTS).map(|client| join(client, &(client % 5 + 1).to_string())).collect(),
            for_good: (0..CLIENTS).map(|client| join(client, FOREVER)).collect(),
            withdrawal,
        })
    }

    /// Has all of them join once and leave.
    fn round(&mut self, exit: Exit) -> anyhow::Result<()> {
        let joins = match exit {
            Exit::TimedOut => &self.briefly,
            Exit::Withdrawn => &self.for_good,
        };
        for (client, join) in joins.iter().enumerate() {
            self.swarm.send_packed(client, join)?;
        }
        if exit == Exit::Withdrawn {
            wait_for_waiters(&mut self.control, NAME, CLIENTS)?;
            self.raw.run(&self.withdrawal)?;
        }
        self.swarm.expect(CLIENTS, |heard| {
            ensure!(first_integer(&heard.reply)? == 0, "one who left was told {:?}", heard.reply);
            Ok(())
        })
    }

    fn rounds(&mut self, rounds: usize) -> anyhow::Result<()> {
        (0..rounds)
            .try_for_each(|round| self.round(if round % 2 == 0 { Exit::TimedOut } else { Exit::Withdrawn }))
    }
}

/// Compares the memory in use before a crowd joins, while it waits and when all have left.
pub fn leave(effort: Effort) -> anyhow::Result<Section> {
    // A server keeps what it has lent its modules' waiters, and gives it up by hundreds a second only.
    let size = effort.pick(QUICK_LEAVERS, FULL_LEAVERS);
    let columns = ["they waited for", "kB used before", "while they wait", "after", "bytes left of each"];
    let mut section =
        Section::new(format!("{size} connections that waited and have left the line"), &columns);
    for queue in [Queue::OneLock, Queue::OwnLocks, Queue::List] {
        let mut crowd = Crowd::start(size, queue)?;
        crowd.gather(size)?;
        let before = crowd.bytes()?;
        crowd.wait_for(queue)?;
        let during = crowd.bytes()?;
        RawConnection::open(crowd.server.port())?.send(&queue.dismissed(size))?;
        crowd.swarm.expect(size, |_| Ok(()))?;
        let after = crowd.bytes()?;
        let mut row = vec![queue.label().to_owned()];
        row.extend([before, during, after].map(|bytes| format!("{:.0}", bytes / 1_024.0)));
        row.push(format!("{:.1}", (after - before) / size as f64));
        section.rows.push(row);
        if queue != Queue::List {
            let name = format!("left of what the waiters took, {}", queue.label());
            let share = (after - before) / (during - before) * 100.0;
            section.figures.push(Figure::single(name, share, "%", 1.0));
        }
    }
    Ok(section)
}

/// Compares the memory in use before and after many have come and gone.
pub fn run(effort: Effort) -> anyhow::Result<Section> {
    let rounds = effort.pick(10, 1_000);
    let server = server_for(CLIENTS);
    let mut churn = Churn::start(&server)?;
    // Whatever the first ones set up stays.
    churn.rounds(4)?;
    let before = memory::settled(&mut churn.control)?;
    churn.rounds(rounds)?;
    let after = memory::settled(&mut churn.control)?;
    let growth = (after as f64 - before as f64) / 1_024.0;

    let joins = rounds * CLIENTS;
    let title = format!("{joins} joined a line and left it, half of them in time, half withdrawn");
    let columns = ["", "timed out", "withdrawn", "waiting", "kB used before", "after"];
    let mut section = Section::new(title, &columns);
    let mut row = vec!["LOCK.ACQUIRE … BLOCK".to_owned()];
    for field in ["lock_wait_timed_out", "lock_wait_withdrawn", "lock_waiting"] {
        row.push(info(&mut churn.control, "lock", field)?.to_string());
    }
    row.extend([before, after].map(|bytes| format!("{:.1}", bytes as f64 / 1_024.0)));
    section.rows.push(row);
    let name = format!("memory gained by {joins} who joined and left");
    section.figures.push(Figure::single(name, growth, "kB", 64.0));
    Ok(section)
}
