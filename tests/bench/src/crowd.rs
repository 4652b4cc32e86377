//! What a hundred thousand waiters cost: memory, and the server's time per grant and while nothing
//! happens.

use std::thread;
use std::time::Duration;

use redis::Connection;
use redis_lock_testkit::Server;

use crate::chain::{self, Chain};
use crate::churn;
use crate::contender::OWNER;
use crate::cpu;
use crate::effort::Effort;
use crate::line::{FOREVER, info, owner, wait_until};
use crate::memory;
use crate::open_files;
use crate::peer::{Peer, SOCKET, first_integer};
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};
use crate::stats::Samples;
use crate::swarm::Swarm;

/// As many as may wait on one node by default.
const FULL_CROWD: usize = 100_000;
const QUICK_CROWD: usize = 5_000;

/// Files that a server opens besides its crowd's connections, and then some.
const OTHER_FILES: usize = 500;

/// Leases and waits outlive the benchmark.
const LONG: &str = "1800000";

/// What a crowd waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// All for one lock.
    OneLock,
    /// Each for a lock of its own.
    OwnLocks,
    /// A list's next element: what the server itself has.
    List,
}

impl Queue {
    fn label(self) -> &'static str {
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
    fn taken(self, crowd: usize) -> Batch {
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
    fn join(self, swarm: &Swarm, index: usize) -> anyhow::Result<()> {
        let name = self.name(index);
        match self {
            Self::List => swarm.send(index, &["BLPOP", &name, FOREVER]),
            _ => swarm.send(index, &["LOCK.ACQUIRE", &name, &owner(index), LONG, "BLOCK", LONG]),
        }
    }

    /// Sends all of them away.
    fn dismissed(self, crowd: usize) -> Batch {
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

    /// Ends what [`taken`](Self::taken) began.
    fn freed(self, crowd: usize) -> Batch {
        let mut batch = Batch::pipelined();
        match self {
            Self::OneLock => batch.push(&["LOCK.RELEASE", &self.name(0), OWNER], Reply::Integer(0)),
            Self::OwnLocks => (0..crowd)
                .for_each(|index| batch.push(&["LOCK.RELEASE", &self.name(index), OWNER], Reply::Integer(0))),
            Self::List => {}
        }
        batch
    }
}

/// What a crowd that waits costs beside the same crowd that doesn't.
struct Stay {
    queue: Queue,
    /// Per connection, idle and waiting, above a server without connections (but with the locks).
    idle_bytes: f64,
    waiting_bytes: f64,
    /// What is left per waiter when all have gone away from the line.
    left_bytes: f64,
    /// Milliseconds of CPU per second: before, during and after.
    idle_cpu: Samples,
    waiting_cpu: Samples,
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let wanted = effort.pick(QUICK_CROWD, FULL_CROWD);
    let files = open_files::allow(u64::try_from(wanted + OTHER_FILES)?);
    let crowd = wanted.min(usize::try_from(files)?.saturating_sub(OTHER_FILES));
    Ok(vec![stays(effort, crowd)?, grants(effort, crowd)?, churn::run(effort)?])
}

/// A server that takes this many connections, over its socket too.
pub fn server_for(crowd: usize) -> Server {
    let clients = (crowd + 100).to_string();
    Server::with_module().config("maxclients", &clients).config("unixsocket", SOCKET).start()
}

fn stays(effort: Effort, crowd: usize) -> anyhow::Result<Section> {
    let server = server_for(crowd);
    let mut control = server.connect();
    // The buffers that servers keep for a connection's replies shrink sooner so. Not all know it.
    let _ = redis::cmd("DEBUG").arg(&["REPLYBUFFER", "PEAK-RESET-TIME", "100"]).exec(&mut control);
    let empty = memory::settled(&mut control)?;
    let mut swarm = Swarm::connect(&server, crowd, Peer::over_unix_socket)?;
    // Whatever a first command sets up is no cost of waiting.
    swarm.ask_all(&["PING"])?;
    let idle = memory::settled(&mut control)?;
    let per_connection = (idle - empty) as f64 / crowd as f64;

    let mut stays = Vec::new();
    for queue in [Queue::OneLock, Queue::OwnLocks, Queue::List] {
        stays.push(stay(effort, queue, &server, &mut swarm, per_connection)?);
    }
    drop(swarm);
    wait_until(1, "clients are connected", || connected(&mut control))?;
    let gone = memory::settled(&mut control)?;
    let left = (gone as f64 - empty as f64) / crowd as f64;
    Ok(stays_section(crowd, &stays, left))
}

fn connected(control: &mut Connection) -> anyhow::Result<usize> {
    Ok(usize::try_from(info(control, "clients", "connected_clients")?)?)
}

fn stay(
    effort: Effort,
    queue: Queue,
    server: &Server,
    swarm: &mut Swarm,
    idle_bytes: f64,
) -> anyhow::Result<Stay> {
    let crowd = swarm.len();
    let mut control = server.connect();
    let mut raw = RawConnection::open(server.port())?;
    let each = |now: u64, base: u64| (now as f64 - base as f64) / crowd as f64;
    let rest = |samples: &mut Samples| {
        for _ in 0..effort.pick(2, 5) {
            samples.push(cpu_at_rest(server, Duration::from_secs(effort.pick(1, 2)))?);
        }
        anyhow::Ok(())
    };
    let (mut idle_cpu, mut waiting_cpu) = (Samples::default(), Samples::default());

    raw.send(&queue.taken(crowd))?;
    let before = memory::settled(&mut control)?;
    rest(&mut idle_cpu)?;

    for index in 0..crowd {
        queue.join(swarm, index)?;
    }
    wait_until(crowd, "clients are blocked", || {
        Ok(usize::try_from(info(&mut control, "clients", "blocked_clients")?)?)
    })?;
    let during = memory::settled(&mut control)?;
    rest(&mut waiting_cpu)?;

    raw.send(&queue.dismissed(crowd))?;
    swarm.expect(crowd, |heard| {
        let holds = if queue == Queue::List { 0 } else { first_integer(&heard.reply)? };
        anyhow::ensure!(holds == 0, "one who was sent away was told {:?}", heard.reply);
        Ok(())
    })?;
    let after = memory::settled(&mut control)?;
    rest(&mut idle_cpu)?;
    raw.send(&queue.freed(crowd))?;
    Ok(Stay {
        queue,
        idle_bytes,
        waiting_bytes: idle_bytes + each(during, before),
        left_bytes: each(after, before),
        idle_cpu,
        waiting_cpu,
    })
}

/// Milliseconds of CPU that a server uses in a second in which nobody asks it anything.
fn cpu_at_rest(server: &Server, time: Duration) -> anyhow::Result<f64> {
    let before = cpu::of_idle(server)?;
    thread::sleep(time);
    let spent = cpu::of_idle(server)? - before;
    Ok(spent.as_secs_f64() * 1e3 / time.as_secs_f64())
}

fn stays_section(crowd: usize, stays: &[Stay], left: f64) -> Section {
    let columns = [
        "they wait for",
        "bytes per waiter",
        "with its connection",
        "left when they stopped",
        "CPU ms per s, waiting",
        "idle",
        "waiting / idle",
    ];
    let mut section =
        Section::new(format!("{crowd} connections that wait, beside the same ones idle"), &columns);
    for stay in stays {
        let (waiting, idle) = (stay.waiting_cpu.spread(), stay.idle_cpu.spread());
        let ratio = waiting.median / idle.median;
        section.rows.push(vec![
            stay.queue.label().to_owned(),
            format!("{:.0}", stay.waiting_bytes - stay.idle_bytes),
            format!("{:.0}", stay.waiting_bytes),
            format!("{:.2}", stay.left_bytes),
            format!("{waiting:.2}"),
            format!("{idle:.2}"),
            format!("{ratio:.3}"),
        ]);
        if stay.queue == Queue::List {
            continue;
        }
        let label = stay.queue.label();
        section.figures.extend([
            Figure::single(format!("CPU waiting / idle, {label}"), ratio, "", 1.1),
            Figure::single(format!("left per waiter, {label}"), stay.left_bytes, "bytes", 1.0),
        ]);
    }
    let name = "left when all connections are closed, per connection";
    section.figures.push(Figure::single(name, left, "bytes", 20.0));
    section
}

fn grants(effort: Effort, crowd: usize) -> anyhow::Result<Section> {
    let lengths = [10, 1_000, crowd];
    let mut chain = Chain::start(crowd)?;
    let mut measured = [(); 3].map(|()| Samples::default());
    for _ in 0..effort.pick(5, 7) {
        for (length, samples) in lengths.into_iter().zip(&mut measured) {
            chain.have_in_line(length)?;
            samples.push(chain.measure(effort.pick(2_000, 5_000))?);
        }
        chain.dismiss()?;
    }
    Ok(chain::section(&lengths, &measured))
}
