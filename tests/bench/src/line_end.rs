//! How late the first in line is granted a lock whose lease has ended, in a keyspace full of other
//! keys that expire some day.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use redis_lock_testkit::Server;

use crate::contender::OWNER;
use crate::cpu;
use crate::effort::Effort;
use crate::keyspace;
use crate::line::{FOREVER, info, owner, wait_until};
use crate::peer::{Peer, first_integer};
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};
use crate::swarm::Swarm;

/// Locks with one waiter each.
const LOCKS: usize = 1_000;

/// When the first lease ends, after the last has begun.
const HEAD_START: Duration = Duration::from_secs(2);

/// How far apart two ends are where they are spread.
const STEP: Duration = Duration::from_millis(4);

/// How long after the last end is waited for a grant that has not come.
const PATIENCE: Duration = Duration::from_secs(3);

/// The waiters' lease: none of theirs ends meanwhile.
const LONG_LEASE: &str = "3600000";

/// When the leases end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    OneByOne,
    AtOnce,
}

impl Ends {
    fn label(self) -> &'static str {
        match self {
            Self::OneByOne => "leases that end one after the other",
            Self::AtOnce => "leases that end at once",
        }
    }

    fn name(self, index: usize) -> String {
        format!("{self:?}:{index:08}")
    }

    /// Has somebody take all locks.
    fn leases(self) -> anyhow::Result<Batch> {
        let mut batch = Batch::pipelined();
        let all_end = (now()? + HEAD_START).as_millis().to_string();
        for index in 0..LOCKS {
            // Not taken in the order in which they end.
            let place = u32::try_from(index * 389 % LOCKS)?;
            let lease = (HEAD_START + STEP * place).as_millis().to_string();
            let name = self.name(index);
            batch.push(&["LOCK.ACQUIRE", &name, OWNER, &lease], Reply::Holds(1));
            if self == Self::AtOnce {
                batch.push(&["PEXPIREAT", &name, &all_end], Reply::Integer(1));
            }
        }
        Ok(batch)
    }
}

/// What became of the waiters.
struct Run {
    ends: Ends,
    /// From the lease's end to the reply, in microseconds.
    lateness: Histogram<u64>,
    early: usize,
    missing: usize,
    /// How long the server was kept from the processor: no fault of its own.
    waited: Duration,
}

impl Run {
    fn row(&self) -> Vec<String> {
        let mut row = vec![self.ends.label().to_owned()];
        row.extend([0.5, 0.99, 1.0].map(|share| format!("{:.2}", self.millis(share))));
        row.extend([self.early, self.missing].map(|count| count.to_string()));
        row.push(self.waited.as_millis().to_string());
        row
    }

    fn millis(&self, share: f64) -> f64 {
        if self.lateness.is_empty() {
            return f64::INFINITY;
        }
        self.lateness.value_at_quantile(share) as f64 / 1e3
    }

    fn figures(&self) -> Vec<Figure> {
        let label = self.ends.label();
        let wrong = (self.early + self.missing) as f64;
        let amiss = Figure::single(format!("grants early or missing, {label}"), wrong, "", 0.0);
        match self.ends {
            Ends::OneByOne => {
                let late = format!("grant late, {label}, p99");
                vec![Figure::single(late, self.millis(0.99), "ms", 5.0), amiss]
            }
            // A thousand grants take what they take: none has a target.
            Ends::AtOnce => vec![amiss],
        }
    }
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let others = effort.pick(100_000, 1_000_000);
    let server = Server::with_module().start();
    keyspace::fill(&server, others)?;
    let title =
        format!("{LOCKS} locks with a waiter each, whose leases end among {others} other volatile keys");
    let columns = ["", "p50, ms late", "p99", "max", "early", "missing", "ms kept from the CPU"];
    let mut section = Section::new(title, &columns);
    for ends in [Ends::OneByOne, Ends::AtOnce] {
        let run = observe(&server, ends)?;
        section.rows.push(run.row());
        section.figures.extend(run.figures());
    }
    Ok(vec![section])
}

fn observe(server: &Server, ends: Ends) -> anyhow::Result<Run> {
    let mut control = server.connect();
    let mut swarm = Swarm::connect(server, LOCKS, Peer::over_tcp)?;
    RawConnection::open(server.port())?.send(&ends.leases()?)?;
    let mut pipeline = redis::pipe();
    for index in 0..LOCKS {
        pipeline.cmd("PEXPIRETIME").arg(ends.name(index));
    }
    let due: Vec<u64> = pipeline.query(&mut control)?;
    for index in 0..LOCKS {
        let acquire = ["LOCK.ACQUIRE", &ends.name(index), &owner(index), LONG_LEASE, "BLOCK", FOREVER];
        swarm.send(index, &acquire)?;
    }
    wait_until(LOCKS, "wait", || Ok(usize::try_from(info(&mut control, "lock", "lock_waiting")?)?))?;

    let waited = cpu::waited(server)?;
    let mut run =
        Run { ends, lateness: Histogram::new(3)?, early: 0, missing: LOCKS, waited: Duration::ZERO };
    let (anchor, wall_clock) = (Instant::now(), now()?);
    let deadline = anchor + HEAD_START + STEP * u32::try_from(LOCKS)? + PATIENCE;
    while run.missing > 0 && Instant::now() < deadline {
        for heard in swarm.replies_within(PATIENCE)? {
            anyhow::ensure!(first_integer(&heard.reply)? == 1, "a waiter was told {:?}", heard.reply);
            run.missing -= 1;
            let at = wall_clock + (heard.at - anchor);
            match at.checked_sub(Duration::from_millis(due[heard.peer])) {
                Some(late) => run.lateness.record(u64::try_from(late.as_micros())?)?,
                None => run.early += 1,
            }
        }
    }
    run.waited = cpu::waited(server)? - waited;
    Ok(run)
}

fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}
