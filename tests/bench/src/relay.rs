//! Two clients that hand one lock to each other, again and again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use redis::{Connection, Value};
use redis_lock_testkit::Server;

use crate::contender::LEASE;
use crate::cpu;
use crate::line::{FOREVER, owner, wait_for_waiters};
use crate::peer::{Peer, first_integer};
use crate::redisson::Redisson;
use crate::scripts::Scripts;

/// How often a client that polls asks for the lock.
pub const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A way to wait for the lock.
pub trait Relay {
    /// Has the other client wait and the holder release: the time from the release's being sent to
    /// the reply that says granted. Afterwards the other one is the holder.
    fn hand_over(&mut self) -> anyhow::Result<Duration>;
}

/// The two clients' connections; the first holds the lock.
struct Runners([Peer; 2]);

impl Runners {
    fn connect(server: &Server) -> anyhow::Result<Self> {
        Ok(Self([Peer::over_tcp(server)?, Peer::over_tcp(server)?]))
    }

    fn swap(&mut self) {
        self.0.swap(0, 1);
    }
}

/// Owners of the same length, the holder's first.
struct Owners([String; 2]);

impl Owners {
    fn new() -> Self {
        Self([owner(41), owner(87)])
    }
}

/// The module's waiting line: LOCK.ACQUIRE … BLOCK.
pub struct InLine<'a> {
    server: &'a Server,
    control: Connection,
    runners: Runners,
    owners: Owners,
}

/// A lock that each way has on a server of its own, or under its own name.
const NAME: &str = "orders:line";
const REDISSON_NAME: &str = "orders:hash";
const POLL_NAME: &str = "orders:poll";

impl<'a> InLine<'a> {
    /// Has the first client take the lock.
    pub fn start(server: &'a Server) -> anyhow::Result<Self> {
        let mut runners = Runners::connect(server)?;
        let owners = Owners::new();
        let granted = runners.0[0].ask(&["LOCK.ACQUIRE", NAME, &owners.0[0], LEASE])?;
        ensure!(first_integer(&granted)? == 1, "the first acquire answered {granted:?}");
        Ok(Self { server, control: server.connect(), runners, owners })
    }
}

impl Relay for InLine<'_> {
    fn hand_over(&mut self) -> anyhow::Result<Duration> {
        let Owners([own, other]) = &self.owners;
        let Runners([holder, waiter]) = &mut self.runners;
        waiter.send(&["LOCK.ACQUIRE", NAME, other, LEASE, "BLOCK", FOREVER])?;
        wait_for_waiters(&mut self.control, NAME, 1)?;
        cpu::of_idle(self.server)?;

        let start = Instant::now();
        holder.send(&["LOCK.RELEASE", NAME, own])?;
        let granted = waiter.receive()?;
        let taken = start.elapsed();

        ensure!(first_integer(&granted)? == 1, "the waiter was told {granted:?}");
        let released = holder.receive()?;
        ensure!(released == Value::Int(0), "the release answered {released:?}");
        self.runners.swap();
        self.owners.0.swap(0, 1);
        Ok(taken)
    }
}

/// Redisson's way: the waiter subscribes to the unlock channel and tries again at each message.
pub struct PublishAndRetry<'a> {
    server: &'a Server,
    commands: Redisson,
    runners: Runners,
    /// Of each runner, in the same order: a client can't send commands where it is subscribed.
    subscriptions: Runners,
    owners: Owners,
    serial: u64,
}

impl<'a> PublishAndRetry<'a> {
    /// Has the first client take the lock.
    pub fn start(server: &'a Server) -> anyhow::Result<Self> {
        let commands = Redisson::new(server, REDISSON_NAME)?;
        let mut runners = Runners::connect(server)?;
        let owners = Owners::new();
        let granted = runners.0[0].ask(&commands.acquire(&owners.0[0]))?;
        ensure!(granted == Value::Nil, "the first acquire answered {granted:?}");
        let subscriptions = Runners::connect(server)?;
        Ok(Self { server, commands, runners, subscriptions, owners, serial: 0 })
    }
}

impl Relay for PublishAndRetry<'_> {
    fn hand_over(&mut self) -> anyhow::Result<Duration> {
        let Owners([own, other]) = &self.owners;
        let Runners([holder, waiter]) = &mut self.runners;
        let Runners([_, subscription]) = &mut self.subscriptions;
        let acquire = self.commands.acquire(other);
        let denied = waiter.ask(&acquire)?;
        subscription.ask(&["SUBSCRIBE", self.commands.channel()])?;
        let denied_again = waiter.ask(&acquire)?;
        ensure!(denied != Value::Nil && denied_again != Value::Nil, "the lock was not held");
        self.serial += 1;
        let latch = self.commands.latch(self.serial);
        cpu::of_idle(self.server)?;

        let start = Instant::now();
        holder.send(&self.commands.unlock(own, &latch))?;
        subscription.receive()?;
        let granted = waiter.ask(&acquire)?;
        let taken = start.elapsed();

        ensure!(granted == Value::Nil, "the waiter was told {granted:?}");
        let released = holder.receive()?;
        ensure!(released == Value::Int(1), "the unlock answered {released:?}");
        holder.ask(&["DEL", &latch])?;
        subscription.ask(&["UNSUBSCRIBE", self.commands.channel()])?;
        self.runners.swap();
        self.subscriptions.swap();
        self.owners.0.swap(0, 1);
        Ok(taken)
    }
}

/// The textbook's way: SET NX PX again and again.
pub struct Polling<'a> {
    server: &'a Server,
    scripts: Scripts,
    runners: Runners,
    owners: Owners,
    rounds: u32,
}

impl<'a> Polling<'a> {
    /// Has the first client take the lock.
    pub fn start(server: &'a Server) -> anyhow::Result<Self> {
        let scripts = Scripts::load(&mut server.connect())?;
        let mut runners = Runners::connect(server)?;
        let owners = Owners::new();
        let granted = runners.0[0].ask(&["SET", POLL_NAME, &owners.0[0], "NX", "PX", LEASE])?;
        ensure!(granted == Value::Okay, "the first acquire answered {granted:?}");
        Ok(Self { server, scripts, runners, owners, rounds: 0 })
    }

    /// The golden ratio's multiples fall evenly between two polls.
    fn moment_of_release(&mut self) -> Duration {
        self.rounds += 1;
        let share = f64::from(self.rounds) * 0.618_033_988_749_895;
        POLL_PERIOD.mul_f64(share.fract())
    }
}

impl Relay for Polling<'_> {
    fn hand_over(&mut self) -> anyhow::Result<Duration> {
        let pause = self.moment_of_release();
        let Owners([own, other]) = &self.owners;
        let Runners([holder, waiter]) = &mut self.runners;
        let acquire = ["SET", POLL_NAME, other, "NX", "PX", LEASE];
        let release = ["EVALSHA", self.scripts.compare_and_delete.get_hash(), "1", POLL_NAME, own];
        ensure!(waiter.ask(&acquire)? == Value::Nil, "the lock was not held");
        let mut next_poll = Instant::now() + POLL_PERIOD;
        thread::sleep(pause);
        cpu::of_idle(self.server)?;

        let start = Instant::now();
        holder.send(&release)?;
        loop {
            thread::sleep(next_poll.saturating_duration_since(Instant::now()));
            next_poll += POLL_PERIOD;
            if waiter.ask(&acquire)? == Value::Okay {
                break;
            }
        }
        let taken = start.elapsed();

        let released = holder.receive()?;
        ensure!(released == Value::Int(1), "the release answered {released:?}");
        self.runners.swap();
        self.owners.0.swap(0, 1);
        Ok(taken)
    }
}
