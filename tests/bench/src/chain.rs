//! A lock that goes from hand to hand while a line of constant length waits for it.

use std::collections::VecDeque;

use anyhow::{Context as _, ensure};
use redis::{Connection, Value};
use redis_lock_testkit::Server;

use crate::cores::{Cores, Pinned};
use crate::cpu;
use crate::crowd::server_for;
use crate::line::{FOREVER, owner, wait_for_waiters};
use crate::peer::{Peer, first_integer};
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};
use crate::stats::Samples;
use crate::swarm::Swarm;

/// The lock.
const NAME: &str = "orders:chain";

/// A lease that outlives the benchmark.
const LONG_LEASE: &str = "1800000";

/// Handoffs before those that count: whoever joined or left in a crowd has warmed the caches.
const WARM_UP: u32 = 500;

/// However short the line is, this many take turns: so each of them, between two turns, falls out
/// of the processor's caches once, and only the line's length differs.
const LEAST_IN_TURN: usize = 1_000;

/// The holder, the line, and the others.
pub struct Chain {
    server: Server,
    control: Connection,
    swarm: Swarm,
    holder: usize,
    /// Who waits, the first in line in front.
    line: VecDeque<usize>,
    /// Who takes turns but does not wait yet, the next to join in front.
    idle: VecDeque<usize>,
    /// Who has no part in it.
    spare: VecDeque<usize>,
}

impl Chain {
    /// Has one of `longest + 1` connections hold the lock.
    pub fn start(longest: usize) -> anyhow::Result<Self> {
        let server = server_for(longest);
        let mut swarm = Swarm::connect(&server, longest + 1, Peer::over_unix_socket)?;
        swarm.ask_all(&["PING"])?;
        swarm.send(0, &["LOCK.ACQUIRE", NAME, &owner(0), LONG_LEASE])?;
        swarm.expect(1, |heard| {
            ensure!(first_integer(&heard.reply)? == 1, "the lock was not free");
            Ok(())
        })?;
        let control = server.connect();
        let (line, idle, spare) = (VecDeque::new(), VecDeque::new(), (1..=longest).collect());
        Ok(Self { server, control, swarm, holder: 0, line, idle, spare })
    }

    /// Has more of them join until the line is this long.
    pub fn have_in_line(&mut self, length: usize) -> anyhow::Result<()> {
        self.spare.append(&mut self.idle);
        let others = length.max(LEAST_IN_TURN) - self.line.len();
        self.idle = self.spare.drain(..others).collect();
        while self.line.len() < length {
            self.join()?;
        }
        wait_for_waiters(&mut self.control, NAME, length)
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let next = self.idle.pop_front().context("nobody is left to join the line")?;
        self.line.push_back(next);
        self.swarm.send(next, &["LOCK.ACQUIRE", NAME, &owner(next), LONG_LEASE, "BLOCK", FOREVER])
    }

    /// Takes all out of the line.
    pub fn dismiss(&mut self) -> anyhow::Result<()> {
        let mut batch = Batch::pipelined();
        for waiter in &self.line {
            batch.push(&["LOCK.RELEASE", NAME, &owner(*waiter), "HOLDS", "0"], Reply::Null);
        }
        RawConnection::open(self.server.port())?.send(&batch)?;
        self.swarm.expect(self.line.len(), |heard| {
            ensure!(first_integer(&heard.reply)? == 0, "one who was sent away was told {:?}", heard.reply);
            Ok(())
        })?;
        self.spare.append(&mut self.line);
        self.spare.append(&mut self.idle);
        Ok(())
    }

    /// The CPU time of a release, the grant to the first in line, and a newcomer's joining, in
    /// microseconds.
    pub fn measure(&mut self, grants: u32) -> anyhow::Result<f64> {
        let _pinned = Pinned::to(Cores::One, &[&self.server])?;
        (0..WARM_UP).try_for_each(|_| self.hand_over())?;
        let before = cpu::of_idle(&self.server)?;
        (0..grants).try_for_each(|_| self.hand_over())?;
        let spent = cpu::of_idle(&self.server)? - before;
        Ok(spent.as_secs_f64() * 1e6 / f64::from(grants))
    }

    fn hand_over(&mut self) -> anyhow::Result<()> {
        let (old, first) = (self.holder, self.line.pop_front().context("nobody waits")?);
        self.swarm.send(old, &["LOCK.RELEASE", NAME, &owner(old)])?;
        self.swarm.expect(2, |heard| {
            let expected = match &heard.reply {
                Value::Int(0) => heard.peer == old,
                granted => heard.peer == first && first_integer(granted)? == 1,
            };
            ensure!(expected, "{heard:?}, when {old} gave the lock to {first}");
            Ok(())
        })?;
        self.holder = first;
        self.idle.push_back(old);
        self.join()
    }
}

/// CPU time per grant for each length of the line.
pub fn section(lengths: &[usize], measured: &[Samples]) -> Section {
    let mut section = Section::new(
        "A lock that goes from hand to hand: release, grant to the first, another joins; on one core",
        &["in line", "CPU µs per grant", "× the first"],
    );
    for (length, samples) in lengths.iter().zip(measured) {
        let ratio = samples.ratio_to(&measured[0]);
        let row = [length.to_string(), format!("{:.2}", samples.spread()), format!("{ratio:.3}")];
        section.rows.push(row.to_vec());
        if length != &lengths[0] {
            let name = format!("CPU per grant, {length} / {} in line", lengths[0]);
            section.figures.push(Figure::ratio(name, ratio, 1.2));
        }
    }
    section
}
