//! A server that holds many locks.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use redis_lock_testkit::Server;

use crate::contender::{Contender, OWNER, Outcome};
use crate::lane::Lane;
use crate::pace::Pace;
use crate::raw::{Batch, RawConnection};
use crate::scripts::Scripts;

/// Cycles in a batch, on names of their own: far more than stay in the processor's caches.
const CYCLES: usize = 20_000;

/// The first of the cycles' names, above all that are held.
const FREE: usize = 50_000_000;

/// Locks taken or released in one go.
const CHUNK: usize = 20_000;

/// Memory counts as settled when it has not moved for this long: tables shrink in the background.
const SETTLED: Duration = Duration::from_millis(500);

/// A server whose locks are all held by one owner.
pub struct Holder {
    contender: Contender,
    server: Server,
    scripts: Scripts,
    connection: redis::Connection,
    held: usize,
    /// Bytes in use when nothing was held.
    empty: u64,
}

impl Holder {
    /// Starts a server that holds nothing yet.
    pub fn start(contender: Contender) -> anyhow::Result<Self> {
        let server = match contender {
            Contender::Module => Server::with_module().start(),
            _ => Server::without_module().start(),
        };
        let mut connection = server.connect();
        let scripts = Scripts::load(&mut connection)?;
        // What is set up at the first use is no cost of a lock.
        RawConnection::open(server.port())?.send(&contender.cycles(
            &scripts,
            FREE..FREE + 1,
            Pace::Pipelined,
        ))?;
        let empty = settled_memory(&mut connection)?;
        Ok(Self { contender, server, scripts, connection, held: 0, empty })
    }

    /// Takes locks until this many are held.
    pub fn hold(&mut self, total: usize) -> anyhow::Result<()> {
        let mut raw = RawConnection::open(self.server.port())?;
        for chunk in chunks(self.held, total) {
            let mut batch = Batch::pipelined();
            for index in chunk {
                let lock = [&self.contender.name(index), OWNER, &lease(index)];
                self.contender.acquire(&self.scripts, &mut batch, lock, Outcome::Granted);
            }
            raw.send(&batch)?;
        }
        self.held = total;
        Ok(())
    }

    /// Gives all of them back.
    pub fn release_all(&mut self) -> anyhow::Result<()> {
        let mut raw = RawConnection::open(self.server.port())?;
        for chunk in chunks(0, self.held) {
            let mut batch = Batch::pipelined();
            for index in chunk {
                let name = self.contender.name(index);
                self.contender.release(&self.scripts, &mut batch, &name, index);
            }
            raw.send(&batch)?;
        }
        self.held = 0;
        Ok(())
    }

    /// Bytes in use above what an empty server uses, for each of `locks`.
    pub fn bytes_per_lock(&mut self, locks: usize) -> anyhow::Result<f64> {
        let used = settled_memory(&mut self.connection)?;
        Ok((used as f64 - self.empty as f64) / locks as f64)
    }

    /// Acquires and releases other locks while those are held.
    pub fn lane(&self) -> anyhow::Result<Lane<'_>> {
        let work = self.contender.cycles(&self.scripts, FREE..FREE + CYCLES, Pace::Pipelined);
        Lane::new(self.contender.cycle_label(), &self.server, work, CYCLES)
    }
}

/// Leases of half an hour to an hour, in no order, so that a new one goes before all of them.
fn lease(index: usize) -> String {
    (1_800_000 + index * 7_919 % 1_800_000).to_string()
}

fn chunks(from: usize, to: usize) -> impl Iterator<Item = Range<usize>> {
    (from..to).step_by(CHUNK).map(move |start| start..to.min(start + CHUNK))
}

fn used_memory(connection: &mut redis::Connection) -> anyhow::Result<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query(connection)?;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.context("INFO without used_memory")?.trim().parse()?)
}

/// Waits for the server's tables to find their size; a few hundred bytes always come and go.
fn settled_memory(connection: &mut redis::Connection) -> anyhow::Result<u64> {
    const COMES_AND_GOES: u64 = 4_096;
    let mut used = used_memory(connection)?;
    let mut since = Instant::now();
    while since.elapsed() < SETTLED {
        thread::sleep(Duration::from_millis(50));
        let now = used_memory(connection)?;
        if now.abs_diff(used) > COMES_AND_GOES {
            (used, since) = (now, Instant::now());
        }
    }
    Ok(used)
}
