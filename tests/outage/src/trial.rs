//! One outage of one lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use redis::{Connection, cmd};
use redis_lock_testkit::Server;

use crate::client::Client;
use crate::fault::Fault;
use crate::lease::{Leases, Overlap};
use crate::link::Link;
use crate::setup::{Formation, LEASE, Setup};

/// A machine under load does anything within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// How soon the first client has to have the lock when the link is cut: a master that has lost its replica an
/// instant too early refuses, and then there is nothing to lose.
const FIRST_GRANT: Duration = Duration::from_millis(200);

/// How long both clients go on when all has happened.
const LINGER: Duration = Duration::from_millis(300);

/// How long a pause lasts.
const PAUSE: Duration = LEASE.saturating_add(Duration::from_millis(200));

/// How often a trial is played anew whose first client did not get the lock in time.
const ATTEMPTS: usize = 20;

/// A server's cron runs each second; faults come at any time between two runs.
const CRON: Duration = Duration::from_secs(1);

/// Plays a fault on new servers, and tells how the leases of the two clients lie.
pub fn play(setup: Setup, fault: Fault) -> anyhow::Result<Overlap> {
    for _ in 0..ATTEMPTS {
        let outcome = match fault.formation() {
            Formation::Alone => restart(setup)?,
            Formation::Pair => Pair::start(setup)?.suffer(fault)?,
        };
        if let Some(overlap) = outcome {
            return Ok(overlap);
        }
    }
    bail!("{setup}, {fault}: the first client never got the lock")
}

/// The clients of a trial: the first one has the lock before the fault.
#[derive(Default)]
struct Clients {
    first: Leases,
    second: Leases,
    stop: AtomicBool,
}

impl Clients {
    /// Both go on for a while once the second one has the lock; then their leases are compared.
    fn conclude(&self, grace: Duration) -> anyhow::Result<Overlap> {
        let outcome = await_some(grace + PATIENCE, &self.second);
        thread::sleep(LINGER);
        outcome.context("the second client never got the lock")?;
        Ok(self.first.compare(&self.second))
    }
}

/// Tells the clients to stop, whatever way their trial ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn join<'scope>(
    scope: &'scope Scope<'scope, '_>,
    client: Client,
    leases: &'scope Leases,
    stop: &'scope AtomicBool,
) {
    scope.spawn(move || client.hold(leases, stop));
}

fn restart(setup: Setup) -> anyhow::Result<Option<Overlap>> {
    let formation = Formation::Alone;
    let mut server = setup.server(formation).try_start()?;
    settle(&mut server.connect(), setup)?;
    let clients = Clients::default();
    thread::scope(|scope| {
        let _end = StopAtEnd(&clients.stop);
        join(scope, Client::new(server.connect(), setup, "first"), &clients.first, &clients.stop);
        await_some(PATIENCE, &clients.first).context("the first client never got the lock")?;
        server.kill();
        server.restart();
        join(scope, Client::new(server.connect(), setup, "second"), &clients.second, &clients.stop);
        clients.conclude(setup.grace(formation)).map(Some)
    })
}

/// A master, its replica, and the link between them. The link goes first.
struct Pair {
    /// A replica's replica: once promoted, a protected one needs a replica itself before it may grant.
    _rest: Server,
    link: Link,
    master: Server,
    replica: Server,
    setup: Setup,
}

impl Pair {
    fn start(setup: Setup) -> anyhow::Result<Self> {
        let master = setup.server(Formation::Pair).try_start()?;
        let link = Link::to(master.port())?;
        let way = format!("127.0.0.1 {}", link.port());
        let replica = setup.server(Formation::Pair).config("replicaof", &way).try_start()?;
        await_link(&replica)?;
        let way = format!("127.0.0.1 {}", replica.port());
        let rest = setup.server(Formation::Pair).config("replicaof", &way).try_start()?;
        await_link(&rest)?;
        let mut con = master.connect();
        settle(&mut con, setup)?;
        // With too few replicas the master refuses; the replica's next sign of life lets it go on.
        await_that(|| Ok(cmd("SET").arg(&["written", "1"]).exec(&mut con).is_ok()))?;
        anyhow::ensure!(replicas_in_step(&mut con)? == 1, "the replica is not in step");
        Ok(Self { _rest: rest, link, master, replica, setup })
    }

    fn suffer(mut self, fault: Fault) -> anyhow::Result<Option<Overlap>> {
        let clients = Clients::default();
        let first = Client::new(self.master.connect(), self.setup, "first");
        let mut master = self.master.connect();
        let mut replica = self.replica.connect();
        thread::scope(|scope| {
            let _end = StopAtEnd(&clients.stop);
            if matches!(fault, Fault::Crash | Fault::Partition) {
                self.link.cut();
            }
            join(scope, first, &clients.first, &clients.stop);
            if await_some(FIRST_GRANT, &clients.first).is_none() {
                return Ok(None);
            }
            match fault {
                Fault::Crash => self.master.kill(),
                Fault::Pause | Fault::LongPause => {
                    replicas_in_step(&mut master)?;
                    self.master.freeze();
                }
                Fault::Partition | Fault::Restart => {}
            }
            if fault == Fault::Pause {
                // A machine that stands still hears nothing of a replica that hangs up.
                self.link.cut();
            }
            cmd("REPLICAOF").arg(&["NO", "ONE"]).exec(&mut replica)?;
            let second = Client::new(self.replica.connect(), self.setup, "second");
            join(scope, second, &clients.second, &clients.stop);
            match fault {
                Fault::Pause => thread::sleep(PAUSE),
                Fault::LongPause => {
                    await_some(self.grace() + PATIENCE, &clients.second);
                }
                Fault::Crash | Fault::Partition | Fault::Restart => {}
            }
            if matches!(fault, Fault::Pause | Fault::LongPause) {
                self.master.thaw();
            }
            clients.conclude(self.grace()).map(Some)
        })
    }

    fn grace(&self) -> Duration {
        self.setup.grace(Formation::Pair)
    }
}

/// Waits until the grace of a server's start is over, and then for any time within a run of its cron.
fn settle(con: &mut Connection, setup: Setup) -> anyhow::Result<()> {
    if setup == Setup::Documented {
        await_that(|| {
            let info: String = cmd("INFO").arg("lock").query(con)?;
            Ok(info.lines().any(|line| line == "lock_grace_left_msec:0"))
        })?;
    }
    thread::sleep(rand::random_range(Duration::ZERO..CRON));
    Ok(())
}

/// Waits until a replica has the data of its master.
fn await_link(replica: &Server) -> anyhow::Result<()> {
    let mut con = replica.connect();
    await_that(|| {
        let info: String = cmd("INFO").arg("replication").query(&mut con)?;
        Ok(info.contains("master_link_status:up"))
    })
}

/// How many replicas have all that this connection has written.
fn replicas_in_step(con: &mut Connection) -> anyhow::Result<u32> {
    Ok(cmd("WAIT").arg(&[1, 5_000]).query(con)?)
}

fn await_some(limit: Duration, leases: &Leases) -> Option<()> {
    poll(limit, || Ok(leases.has_some())).ok().flatten()
}

fn await_that(probe: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    poll(PATIENCE, probe)?.context("a server does not become ready")
}

fn poll(limit: Duration, mut probe: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<Option<()>> {
    let deadline = Instant::now() + limit;
    while !probe()? {
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(()))
}
