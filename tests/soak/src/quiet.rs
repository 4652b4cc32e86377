//! Quiet points: nobody sends, and the server is asked how it sees things.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::cast::{DATABASES, Lock, Owner};
use crate::connection::Connection;
use crate::fleet::Waiter;
use crate::play::Play;
use crate::resp::{Command, Reply, words};
use crate::violation::Violation;

/// How long the server may take until it agrees.
const AGREEMENT: Duration = Duration::from_secs(3);

/// How long it may take until somebody is told that it has left a line.
const TELLING: Duration = Duration::from_millis(200);

/// How long the longest lease may still last.
const LONGEST_LEASE: Duration = Duration::from_secs(8);

/// The owners in line for each lock.
type Lines = Vec<(Lock, Vec<Owner>)>;

/// The database of who asks; it has no locks.
const ASIDE: &str = "SELECT 2";

impl Play {
    /// Compares how the server sees the lines with what the clients wait for.
    ///
    /// # Errors
    /// When they differ.
    pub fn compare_lines(&mut self) -> anyhow::Result<()> {
        self.tally.quiet_points += 1;
        let since = Instant::now();
        loop {
            self.await_replies()?;
            let before = self.fleet.line();
            let (counts, lines) = self.ask_for_lines()?;
            self.await_replies()?;
            let after = self.fleet.line();
            let is_same = before.len() == after.len()
                && before.iter().zip(&after).all(|(one, other)| one.serial == other.serial);
            if is_same {
                let agreement = compare_all(&lines, counts, &before);
                // Who has left a line may be told so a moment later.
                if agreement.is_ok() || since.elapsed() > TELLING {
                    return agreement;
                }
            }
            ensure!(since.elapsed() < AGREEMENT, "the lines do not come to rest");
        }
    }

    /// `lock_waiting`, `blocked_clients`, and the owners in each line.
    fn ask_for_lines(&mut self) -> anyhow::Result<([usize; 2], Lines)> {
        let mut commands = vec![words("INFO lock"), words("INFO clients")];
        for lock in Lock::all() {
            commands.push(words(&format!("SELECT {}", lock.db())));
            commands.push(vec![b"LOCK.INFO".to_vec(), lock.name(), b"WAITERS".to_vec(), b"1000".to_vec()]);
        }
        commands.push(words(ASIDE));
        let replies = self.admin.ask_all(&commands)?;
        let counts = [fact(&replies[0], "lock_waiting")?, fact(&replies[1], "blocked_clients")?];
        let counts = counts.map(|count| usize::try_from(count).unwrap_or_default());
        let mut lines = Vec::new();
        for (lock, reply) in Lock::all().zip(replies[3..].iter().step_by(2)) {
            match reply {
                Reply::Array(fields) => lines.push((lock, owners_in_line(fields)?)),
                reply => ensure!(reply.is_error("WRONGTYPE"), "LOCK.INFO {lock:?}: {reply:?}"),
            }
        }
        Ok((counts, lines))
    }

    /// Each client is in the database that it has selected.
    ///
    /// # Errors
    /// When one is not.
    pub fn compare_databases(&mut self) -> anyhow::Result<()> {
        let reply = self.admin.ask(&words("CLIENT LIST"))?;
        let list = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
        for line in list.lines() {
            let field = |name: &str| {
                let value = line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
                value.and_then(|value| value.parse::<u64>().ok())
            };
            let ours = self.fleet.clients.iter().position(|client| Some(client.id) == field("id"));
            let Some(number) = ours else { continue };
            ensure!(
                field("db") == Some(self.fleet.clients[number].db.into()),
                "DATABASE: client {number} is in another one than it has selected: {line}"
            );
        }
        Ok(())
    }

    /// Compares the data of master, replica and shadow.
    ///
    /// # Errors
    /// When they don't come to be the same.
    pub fn compare_replica(&mut self, replica: &mut Connection) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            let mut differs = None;
            for lock in Lock::all() {
                let (ours, theirs) = (contents(&mut self.admin, lock)?, contents(replica, lock)?);
                if ours != theirs {
                    differs = Some((lock, format!("{ours:?} on the master, {theirs:?} on the replica")));
                }
            }
            self.admin.ask(&words(ASIDE))?;
            let Some((lock, difference)) = differs else { return Ok(()) };
            if since.elapsed() > AGREEMENT {
                return Err(Violation::of(lock, format!("REPLICA: {difference}")).into());
            }
            self.await_replies()?;
            self.set_fence()?;
        }
    }

    /// Has the server load its data anew. All leases must last until that is done: what has ended by then is
    /// not loaded, and replicas are not told.
    ///
    /// # Errors
    /// When it fails.
    pub fn reload(&mut self) -> anyhow::Result<()> {
        let mut commands = Vec::new();
        for db in 0..DATABASES {
            commands.push(words(&format!("SELECT {db}")));
            let names = Lock::all_in(db).map(Lock::name);
            commands.extend(names.map(|name| vec![b"PEXPIRE".to_vec(), name, b"3000".to_vec()]));
        }
        commands.extend([words("DEBUG RELOAD"), words(ASIDE)]);
        self.current.touched.extend(Lock::all());
        let replies = self.admin.ask_all(&commands)?;
        let reloaded = replies.iter().rev().nth(1);
        ensure!(reloaded.is_some_and(|reply| reply.text() == Some(b"OK")), "DEBUG RELOAD: {reloaded:?}");
        self.tally.reloads += 1;
        Ok(())
    }

    /// Takes everybody out of the lines, waits for the end of all leases, and looks what is left.
    ///
    /// # Errors
    /// When something is left that should not be.
    pub fn empty(&mut self) -> anyhow::Result<()> {
        self.compare_lines()?;
        for waiter in self.fleet.line() {
            let Waiter { lock, owner, .. } = waiter;
            let withdraw: Command =
                vec![b"LOCK.RELEASE".to_vec(), lock.name(), owner.name(), b"HOLDS".to_vec(), b"0".to_vec()];
            self.current.touched.insert(lock);
            self.current.withdrawn.insert((lock, owner));
            self.current.left.insert((lock, owner));
            self.admin.ask_all(&[words(&format!("SELECT {}", lock.db())), withdraw])?;
        }
        self.admin.ask(&words(ASIDE))?;
        let since = Instant::now();
        while let Some(waiter) = self.fleet.line().first() {
            if since.elapsed() > AGREEMENT {
                return Err(Violation::of(waiter.lock, format!("NOT WITHDRAWN: {waiter:?}")).into());
            }
            self.read_ready(Duration::from_millis(1))?;
            self.await_replies()?;
        }
        self.compare_lines()?;
        self.wait_for_no_keys()?;
        let memory = self.measure_memory()?;
        self.tally.memory.push(memory >> 10);
        self.play_round(0)
    }

    fn wait_for_no_keys(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            let questions = ["SELECT 0", "DBSIZE", "SELECT 1", "DBSIZE", "INFO lock", ASIDE].map(words);
            let replies = self.admin.ask_all(&questions)?;
            let held = fact(&replies[4], "lock_held")?;
            if [&replies[1], &replies[3]] == [&Reply::Int(0); 2] && held == 0 {
                return Ok(());
            }
            ensure!(since.elapsed() < LONGEST_LEASE, "LEFT OVER: {replies:?}");
            self.set_fence()?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The least of some samples, as clients' buffers come and go.
    fn measure_memory(&mut self) -> anyhow::Result<i64> {
        let mut least = i64::MAX;
        for _ in 0..8 {
            let info = self.admin.ask(&words("INFO memory"))?;
            least = least.min(fact(&info, "used_memory")?);
            self.set_fence()?;
            std::thread::sleep(Duration::from_millis(150));
        }
        Ok(least)
    }
}

fn compare_all(lines: &[(Lock, Vec<Owner>)], counts: [usize; 2], waiters: &[Waiter]) -> anyhow::Result<()> {
    lines.iter().try_for_each(|(lock, line)| compare_line(*lock, line, waiters))?;
    ensure!(
        counts == [waiters.len(); 2],
        "COUNT: {} wait; lock_waiting and blocked_clients are {counts:?}",
        waiters.len()
    );
    Ok(())
}

/// The owners in a line, and that nobody overtook anybody in it.
fn compare_line(lock: Lock, line: &[Owner], waiters: &[Waiter]) -> anyhow::Result<()> {
    let mut ours: Vec<&Waiter> = waiters.iter().filter(|waiter| waiter.lock == lock).collect();
    ours.sort_by_key(|waiter| waiter.round);
    let differs = || {
        let expected: Vec<_> = ours.iter().map(|waiter| (waiter.round, waiter.owner)).collect();
        Violation::of(lock, format!("LINE: {line:?}; it should be, by rounds, {expected:?}"))
    };
    if ours.len() != line.len() {
        return Err(differs().into());
    }
    let mut rest = line;
    for round in ours.chunk_by(|one, other| one.round == other.round) {
        let (here, behind) = rest.split_at(round.len());
        let (mut here, mut expected) = (here.to_vec(), round.iter().map(|w| w.owner).collect::<Vec<_>>());
        here.sort_unstable();
        expected.sort_unstable();
        if here != expected {
            return Err(differs().into());
        }
        rest = behind;
    }
    Ok(())
}

fn owners_in_line(fields: &[Reply]) -> anyhow::Result<Vec<Owner>> {
    let Some(Reply::Array(line)) = fields.last() else { bail!("no line in {fields:?}") };
    let owner = |entry: &Reply| match entry {
        Reply::Array(entry) => entry.first()?.text().and_then(Owner::of_name),
        _ => None,
    };
    line.iter().map(|entry| owner(entry).with_context(|| format!("{entry:?}"))).collect()
}

/// All of a lock's key that a replica must have too.
fn contents(server: &mut Connection, lock: Lock) -> anyhow::Result<Vec<Reply>> {
    let name = lock.name();
    let look = |command: &str| vec![command.as_bytes().to_vec(), name.clone()];
    let select = words(&format!("SELECT {}", lock.db()));
    let mut replies = server.ask_all(&[select, look("TYPE"), look("HGETALL"), look("PEXPIRETIME")])?;
    if let Reply::Array(fields) = &mut replies[2] {
        fields.sort_by(|one, other| one.text().cmp(&other.text()));
    }
    Ok(replies)
}

/// A number in the reply of INFO.
pub fn fact(info: &Reply, name: &str) -> anyhow::Result<i64> {
    let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in {info:?}"))
}
