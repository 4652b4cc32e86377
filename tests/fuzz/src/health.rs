//! What has to hold between batches, and at the beginning and the end of an epoch.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::campaign::Campaign;
use crate::counts::Counts;
use crate::epoch::Epoch;
use crate::fleet::PROBE;
use crate::link::Link;
use crate::memory::Sample;
use crate::resp::{Reply, words};
use crate::values::{BIG, DATABASES, PURE_KEYS};

/// What has to settle, settles within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an epoch may have left behind.
const CLEANUP: [&str; 11] = [
    "REPLICAOF NO ONE",
    "CLIENT UNPAUSE",
    "DEBUG SET-ACTIVE-EXPIRE 1",
    "CONFIG SET maxmemory 0",
    "CONFIG SET maxmemory-policy noeviction",
    "CONFIG SET notify-keyspace-events KEAd",
    "CONFIG SET replica-read-only yes",
    "CONFIG SET lock.max-ttl 86400000",
    "CONFIG SET lock.channel-prefix redisson_lock__channel",
    "CONFIG SET lock.sharded-publish no",
    "SELECT 0",
];

/// What takes up memory besides keys.
const FORGET: [&str; 5] =
    ["FLUSHALL SYNC", "SCRIPT FLUSH SYNC", "SLOWLOG RESET", "LATENCY RESET", "MEMORY PURGE"];

/// Counts the locks of a database that have a token.
const COUNT_LOCKS: &str = "
local locks = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'hash' then
    locks = locks + redis.call('HEXISTS', key, 'lock:token')
  end
end
return locks";

impl Campaign {
    /// Gets ready for an epoch.
    ///
    /// # Errors
    /// When the servers don't.
    pub fn begin(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        self.balance = self.counts.balance();
        if epoch == Epoch::Mirrored {
            self.attach_replica()?;
        }
        Ok(())
    }

    /// Looks at the server's health.
    ///
    /// # Errors
    /// When it is ill.
    pub fn check_health(&mut self) -> anyhow::Result<()> {
        let mut control = self.fleet.control()?;
        let counts = Counts::read(&mut control)?;
        counts.check_growth(&self.counts)?;
        self.counts = counts;
        check_leases(&mut control)
    }

    /// Checks what an epoch has come to, deletes everything, and looks at what is left.
    ///
    /// # Errors
    /// When something is wrong.
    pub fn end(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        self.fleet.reconnect()?;
        self.await_loading()?;
        let cleanup = CLEANUP.map(words);
        self.fleet.ask_all(PROBE, &cleanup)?.context("a connection was closed for no reason")?;
        self.await_loading()?;
        match epoch {
            Epoch::Tidy => self.check_balance()?,
            Epoch::Mirrored => self.check_replica()?,
            Epoch::Wild | Epoch::Demoted | Epoch::Swapped => {}
        }
        Link::open(self.fleet.peer.port())?.ask(&words("REPLICAOF NO ONE"))?;
        self.fleet.ask_all(PROBE, &FORGET.map(words))?;
        self.fill_buffers()?;
        self.check_held()?;
        let sample = self.sample()?;
        self.memory.note(sample)
    }

    fn await_loading(&mut self) -> anyhow::Result<()> {
        let mut control = self.fleet.control()?;
        settle("the data to be loaded", || {
            let reply = control.ask(&words("PING"))?;
            Ok(reply.is_text(b"PONG").then_some(()))
        })
    }

    /// Where only orderly users were, no other key can have made or ended a lock.
    fn check_balance(&mut self) -> anyhow::Result<()> {
        self.check_held()?;
        // A lock that was taken again in the turn that emptied its database did not end by the counts.
        let (held, balance) = (self.counts.get("held"), self.counts.balance() - self.balance);
        ensure!(
            balance >= held,
            "{held} locks are held, but by the counts only {balance}: {:?}",
            self.counts
        );
        Ok(())
    }

    /// The module knows of as many locks as there are.
    fn check_held(&mut self) -> anyhow::Result<()> {
        let mut control = self.fleet.control()?;
        let (mut locks, counts) = (0, &mut self.counts);
        let settled = settle("lock_held", || {
            locks = count_locks(&mut control)?;
            *counts = Counts::read(&mut control)?;
            Ok((counts.get("held") == locks).then_some(()))
        });
        settled.with_context(|| format!("{locks} locks have keys, but INFO says {counts:?}"))
    }

    /// Whatever keeps a buffer for the longest name yet has it now, and so at each sample.
    fn fill_buffers(&mut self) -> anyhow::Result<()> {
        let name = vec![b'K'; BIG];
        let acquire = vec![b"LOCK.ACQUIRE".to_vec(), name.clone(), b"a".to_vec(), b"60000".to_vec()];
        let release = vec![b"LOCK.RELEASE".to_vec(), name, b"a".to_vec()];
        self.fleet.ask_all(PROBE, &[acquire, release])?;
        // Its own buffers are the server's, and go with the connection.
        self.fleet.reconnect()
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        let mut control = self.fleet.control()?;
        let allowed = self.memory.allowed();
        let mut used = i64::MAX;
        // Clients' buffers and lazily freed objects go in the background.
        let deadline = Instant::now() + Duration::from_secs(3);
        let mut looks = 0;
        while looks < 5 || (Instant::now() < deadline && allowed.is_some_and(|allowed| used > allowed)) {
            used = used.min(used_memory(&mut control)?);
            looks += 1;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Sample { commands: self.tally.commands, used, rss: resident(self.fleet.server.pid())? })
    }
}

fn count_locks(control: &mut Link) -> anyhow::Result<i64> {
    let count = vec![b"EVAL".to_vec(), COUNT_LOCKS.into(), b"0".to_vec()];
    let mut locks = 0;
    for db in 0..DATABASES {
        match control.ask_all(&[words(&format!("SELECT {db}")), count.clone()])?.as_slice() {
            [_, Reply::Int(n)] => locks += n,
            other => bail!("counting locks: {other:?}"),
        }
    }
    Ok(locks)
}

/// A lock that was touched by nothing but the module's commands has a lease.
fn check_leases(control: &mut Link) -> anyhow::Result<()> {
    for db in 0..DATABASES {
        let mut commands = vec![words(&format!("SELECT {db}"))];
        for key in PURE_KEYS {
            commands.push(vec![b"HEXISTS".to_vec(), key.to_vec(), b"lock:token".to_vec()]);
            commands.push(vec![b"PTTL".to_vec(), key.to_vec()]);
        }
        for (key, replies) in PURE_KEYS.iter().zip(control.ask_all(&commands)?[1..].chunks_exact(2)) {
            let endless = replies == [Reply::Int(1), Reply::Int(-1)];
            ensure!(!endless, "the lock {} of database {db} has no lease", key.escape_ascii());
        }
    }
    Ok(())
}

fn used_memory(control: &mut Link) -> anyhow::Result<i64> {
    let Reply::Text(text) = control.ask(&words("INFO memory"))? else { bail!("INFO is no string") };
    let text = String::from_utf8(text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.context("INFO memory lacks used_memory")?.parse()?)
}

/// The memory that a process occupies, in bytes.
fn resident(pid: u32) -> anyhow::Result<i64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kib.parse::<i64>()? << 10)
}

/// Asks until there is an answer.
///
/// # Errors
/// When there is none in time.
pub fn settle<T>(what: &str, mut probe: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
