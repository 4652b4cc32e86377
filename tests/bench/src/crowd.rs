//! What a hundred thousand waiters cost: memory, and the server's time per grant and while nothing
//! happens.

use std::thread;
use std::time::Duration;

use redis_lock_testkit::Server;

use crate::chain::{self, Chain};
use crate::churn;
use crate::cpu;
use crate::effort::Effort;
use crate::line::{info, wait_until};
use crate::memory;
use crate::open_files;
use crate::peer::{Peer, SOCKET};
use crate::queue::Queue;
use crate::raw::RawConnection;
use crate::report::{Figure, Section};
use crate::stats::Samples;
use crate::swarm::Swarm;

/// As many as may wait on one node by default.
const FULL_CROWD: usize = 100_000;
const QUICK_CROWD: usize = 5_000;

/// Files that are open besides a crowd's connections, and then some.
const OTHER_FILES: usize = 500;

/// How long jemalloc takes to hand freed pages back to the kernel: work that is left over from before.
const AFTERMATH: Duration = Duration::from_secs(12);

/// Many connections to one server.
pub struct Crowd {
    /// The server.
    pub server: Server,
    /// The connections.
    pub swarm: Swarm,
}

impl Crowd {
    /// Starts a server that can take so many connections, and has it hold what they may wait for.
    pub fn start(size: usize, queue: Queue) -> anyhow::Result<Self> {
        let server = server_for(size);
        // The buffers that a server keeps for a connection's replies shrink sooner so; not all know it.
        let sooner = ["REPLYBUFFER", "PEAK-RESET-TIME", "100"];
        let _ = redis::cmd("DEBUG").arg(&sooner).exec(&mut server.connect());
        RawConnection::open(server.port())?.send(&queue.taken(size))?;
        let swarm = Swarm::connect(&server, 0, Peer::over_unix_socket)?;
        Ok(Self { server, swarm })
    }

    /// Opens the connections.
    pub fn gather(&mut self, size: usize) -> anyhow::Result<()> {
        self.swarm = Swarm::connect(&self.server, size, Peer::over_unix_socket)?;
        // Whatever a first command sets up is no cost of waiting.
        self.swarm.ask_all(&["PING"])
    }

    /// Has all of them wait.
    pub fn wait_for(&self, queue: Queue) -> anyhow::Result<()> {
        let mut control = self.server.connect();
        for index in 0..self.swarm.len() {
            queue.join(&self.swarm, index)?;
        }
        wait_until(self.swarm.len(), "clients are blocked", || {
            Ok(usize::try_from(info(&mut control, "clients", "blocked_clients")?)?)
        })
    }

    /// The bytes that the server uses, once it uses them steadily.
    pub fn bytes(&self) -> anyhow::Result<f64> {
        Ok(memory::settled(&mut self.server.connect())? as f64)
    }
}

/// A server that takes this many connections, over its socket too.
pub fn server_for(crowd: usize) -> Server {
    let clients = (crowd + 100).to_string();
    Server::with_module().config("maxclients", &clients).config("unixsocket", SOCKET).start()
}

/// What a crowd costs, idle and then waiting.
struct Stay {
    queue: Queue,
    /// Per connection, above a server without any.
    idle_bytes: f64,
    /// What waiting adds to it.
    waiting_bytes: f64,
    /// Milliseconds of CPU per second.
    idle_cpu: Samples,
    waiting_cpu: Samples,
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let wanted = effort.pick(QUICK_CROWD, FULL_CROWD);
    let files = open_files::allow(u64::try_from(wanted + OTHER_FILES)?);
    let crowd = wanted.min(usize::try_from(files)?.saturating_sub(OTHER_FILES));
    Ok(vec![stays(effort, crowd)?, grants(effort, crowd)?, churn::leave(effort)?, churn::run(effort)?])
}

fn stays(effort: Effort, size: usize) -> anyhow::Result<Section> {
    let queues = [Queue::OneLock, Queue::OwnLocks, Queue::List];
    let stays = queues.into_iter().map(|queue| stay(effort, queue, size));
    Ok(stays_section(size, &stays.collect::<anyhow::Result<Vec<_>>>()?))
}

fn stay(effort: Effort, queue: Queue, size: usize) -> anyhow::Result<Stay> {
    let mut crowd = Crowd::start(size, queue)?;
    let cpu = |crowd: &Crowd| {
        thread::sleep(effort.pick(Duration::ZERO, AFTERMATH));
        let samples = (0..effort.pick(5, 15)).map(|_| cpu_at_rest(&crowd.server));
        samples.collect::<anyhow::Result<Samples>>()
    };
    let empty = crowd.bytes()?;
    crowd.gather(size)?;
    let (idle, idle_cpu) = (crowd.bytes()?, cpu(&crowd)?);
    crowd.wait_for(queue)?;
    let (waiting, waiting_cpu) = (crowd.bytes()?, cpu(&crowd)?);
    let each = |bytes: f64| bytes / size as f64;
    let (idle_bytes, waiting_bytes) = (each(idle - empty), each(waiting - idle));
    Ok(Stay { queue, idle_bytes, waiting_bytes, idle_cpu, waiting_cpu })
}

/// Milliseconds of CPU that a server uses in a second in which nobody asks it anything.
fn cpu_at_rest(server: &Server) -> anyhow::Result<f64> {
    let time = Duration::from_secs(1);
    let before = cpu::of_idle(server)?;
    thread::sleep(time);
    let spent = cpu::of_idle(server)? - before;
    Ok(spent.as_secs_f64() * 1e3 / time.as_secs_f64())
}

fn stays_section(size: usize, stays: &[Stay]) -> Section {
    let columns = [
        "they wait for",
        "bytes per waiter",
        "per idle connection",
        "CPU ms per s, waiting",
        "idle",
        "waiting / idle",
    ];
    let title = format!("{size} connections that wait while nothing happens, and before they did");
    let mut section = Section::new(title, &columns);
    for stay in stays {
        let (waiting, idle) = (stay.waiting_cpu.spread(), stay.idle_cpu.spread());
        // Whatever else the machine does only adds.
        let ratio = waiting.low / idle.low;
        section.rows.push(vec![
            stay.queue.label().to_owned(),
            format!("{:.0}", stay.waiting_bytes),
            format!("{:.0}", stay.idle_bytes),
            format!("{waiting:.2}"),
            format!("{idle:.2}"),
            format!("{ratio:.3}"),
        ]);
        if stay.queue != Queue::List {
            let name = format!("CPU waiting / idle, {}", stay.queue.label());
            section.figures.push(Figure::single(name, ratio, "", 1.1));
        }
    }
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
