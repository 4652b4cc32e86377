//! Plays epochs until the time is up or something breaks.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::counts::Counts;
use crate::epoch::{Deed, Epoch};
use crate::fleet::{CLIENTS, EAR, Fleet, PROBE};
use crate::grammar::{LOCKS, lock_command, mutate, sequence};
use crate::memory::Memory;
use crate::noise::noise;
use crate::oracle::{Case, Content, Key, check_shape, first_hold, judge};
use crate::resp::{Command, Reply, words};
use crate::swap::Module;
use crate::tally::Tally;
use crate::values::{DATABASES, Given, PURE_KEYS};

/// How many batches make an epoch.
const BATCHES: usize = 40;

/// How many bursts make a batch, after which the server's health is looked at.
const BURSTS: usize = 60;

/// How many lines are sent on a connection in one go, at most.
const PIPELINE: usize = 8;

/// How often progress is told.
const REPORTS: Duration = Duration::from_secs(5);

/// When to end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After this time.
    pub time: Duration,
    /// After so many steps.
    pub steps: u64,
}

/// A run of the fuzzer.
#[derive(Debug)]
pub struct Campaign {
    /// The servers, and the journal.
    pub fleet: Fleet,
    /// What was done.
    pub tally: Tally,
    /// What was left over.
    pub memory: Memory,
    /// Values that only the servers know.
    pub given: Given,
    /// The module, as the server knows it.
    pub module: Module,
    /// The module's counts, when last looked at.
    pub counts: Counts,
    /// Their balance when the epoch began, with no lock held.
    pub balance: i64,
    /// The last token of a first hold.
    pub last_token: i64,
    /// Chance.
    pub rng: StdRng,
    started: Instant,
    reported: Instant,
}

impl Campaign {
    /// Starts the servers.
    ///
    /// # Errors
    /// When they can't be reached.
    pub fn new(seed: u64) -> anyhow::Result<Self> {
        let fleet = Fleet::start()?;
        let module = Module::of(&mut fleet.control()?)?;
        let given = Given { dumps: dumps(&fleet)?, peer_port: fleet.peer.port() };
        Ok(Self {
            fleet,
            tally: Tally::default(),
            memory: Memory::default(),
            given,
            module,
            counts: Counts::default(),
            balance: 0,
            last_token: 0,
            rng: StdRng::seed_from_u64(seed),
            started: Instant::now(),
            reported: Instant::now(),
        })
    }

    /// Plays.
    ///
    /// # Errors
    /// When something breaks.
    pub fn run(&mut self, kinds: &[Epoch], limits: Limits) -> anyhow::Result<()> {
        for n in 0.. {
            let epoch = Epoch::nth(n, kinds, &mut self.rng);
            self.begin(epoch)?;
            for _ in 0..BATCHES {
                if self.started.elapsed() >= limits.time || self.tally.steps >= limits.steps {
                    return self.end(epoch);
                }
                self.batch(epoch).with_context(|| format!("in epoch {n}, {}", epoch.name()))?;
                self.report(n, epoch);
            }
            self.end(epoch).with_context(|| format!("at the end of epoch {n}, {}", epoch.name()))?;
        }
        Ok(())
    }

    fn report(&mut self, n: usize, epoch: Epoch) {
        if self.reported.elapsed() < REPORTS {
            return;
        }
        self.reported = Instant::now();
        println!(
            "{:6} s  epoch {n} {}  steps {}  commands {}  {}",
            self.started.elapsed().as_secs(),
            epoch.name(),
            self.tally.steps,
            self.tally.commands,
            self.memory
        );
    }

    fn batch(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        if epoch == Epoch::Swapped {
            self.swap_module()?;
        }
        for _ in 0..BURSTS {
            self.burst(epoch)?;
        }
        self.fleet.ask_all(EAR, &[words("PING")])?;
        self.check_health()
    }

    /// Some lines on one connection, in one go; or something that needs its own.
    fn burst(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        let mut commands = Vec::new();
        for _ in 0..self.rng.random_range(1..=PIPELINE) {
            self.tally.steps += 1;
            match epoch.deed(&mut self.rng) {
                Deed::Line(LOCKS) => commands.push(self.lock_command()),
                Deed::Line(rules) => commands.extend(sequence(rules, &mut self.rng, &self.given)),
                Deed::Aside(rules) => {
                    let commands = sequence(rules, &mut self.rng, &self.given);
                    self.execute(PROBE, commands)?;
                }
                Deed::Mutant => commands.push(self.mutant()),
                Deed::Observe => self.observe()?,
                Deed::Noise => {
                    let noise = noise(&self.lock_command(), &mut self.rng);
                    self.fleet.blurt(noise)?;
                }
            }
        }
        let link = self.rng.random_range(0..CLIENTS);
        self.execute(link, commands)
    }

    fn execute(&mut self, link: usize, commands: Vec<Command>) -> anyhow::Result<()> {
        for (command, reply) in self.fleet.execute(link, commands)? {
            self.receive(&command, &reply)?;
        }
        Ok(())
    }

    /// Looks at a reply whose state is not known.
    fn receive(&mut self, command: &Command, reply: &Reply) -> anyhow::Result<()> {
        self.tally.count(reply);
        check_shape(command, reply).with_context(|| describe(command, reply))?;
        if let Some(token) = first_hold(command, reply) {
            ensure!(
                token > self.last_token,
                "a first hold got a token no greater than {}\n{}",
                self.last_token,
                describe(command, reply)
            );
            self.last_token = token;
        }
        Ok(())
    }

    /// A command on a key of any kind.
    fn lock_command(&mut self) -> Command {
        let pure = self.rng.random_ratio(1, 4).then_some(&PURE_KEYS[..]);
        lock_command(pure, &mut self.rng, &self.given)
    }

    fn mutant(&mut self) -> Command {
        let mut command = self.lock_command();
        mutate(&mut command, &mut self.rng, &self.given);
        command
    }

    /// Sends a command in a transaction that looks at the key before and after it, and judges.
    fn observe(&mut self) -> anyhow::Result<()> {
        let command = if self.rng.random_ratio(1, 4) { self.mutant() } else { self.lock_command() };
        let [_, key, ..] = command.as_slice() else { return Ok(()) };
        let protocol = self.rng.random_range(2..=3);
        let db = self.rng.random_range(0..DATABASES);
        let mut commands = Vec::from(
            [
                format!("HELLO {protocol}"),
                format!("SELECT {db}"),
                "MULTI".into(),
                "CONFIG GET lock.max-ttl".into(),
                "INFO lock".into(),
            ]
            .map(|text| words(&text)),
        );
        let look = ["TYPE", "PTTL", "HGETALL"].map(|name| vec![name.into(), key.clone()]);
        commands.extend(look.clone());
        commands.push(command.clone());
        commands.extend(look);
        commands.push(words("EXEC"));
        let Some(mut replies) = self.fleet.ask_all(PROBE, &commands)? else { return Ok(()) };
        match replies.pop() {
            Some(Reply::Array(seen)) => self.judge(&command, &seen),
            // The server itself refused something: too few arguments, or nothing is allowed now.
            _ => Ok(()),
        }
    }

    fn judge(&mut self, command: &Command, seen: &[Reply]) -> anyhow::Result<()> {
        let [
            Reply::Array(limit) | Reply::Map(limit),
            Reply::Text(info),
            before @ ..,
            reply,
            kind,
            ttl,
            fields,
        ] = seen
        else {
            return Ok(());
        };
        let after = [kind.clone(), ttl.clone(), fields.clone()];
        let (Some(before), Some(after), Some(max_ttl)) =
            (Key::from_replies(before), Key::from_replies(&after), number(limit.get(1)))
        else {
            return Ok(());
        };
        let last_token = self.last_token;
        self.receive(command, reply)?;
        if before.content == Content::Absent && some_keys_are_lost(info) {
            self.tally.judge("maybe evicted");
            return Ok(());
        }
        let kind = judge(&Case { command, reply, before: &before, after: &after, max_ttl, last_token })
            .with_context(|| format!("{}\nbefore {before:?}\nafter  {after:?}", describe(command, reply)))?;
        self.tally.judge(kind);
        Ok(())
    }
}

/// Are there locks whose keys the server has evicted? They are held without a key.
fn some_keys_are_lost(info: &[u8]) -> bool {
    let mut lines = info.split(|byte| *byte == b'\n');
    lines.any(|line| line.strip_prefix(b"lock_keys_lost:").is_some_and(|count| count.trim_ascii() != b"0"))
}

fn number(reply: Option<&Reply>) -> Option<u64> {
    match reply {
        Some(Reply::Text(digits)) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

fn describe(command: &Command, reply: &Reply) -> String {
    let words: Vec<String> =
        command.iter().map(|word| format!("{:.200}", word.escape_ascii().to_string())).collect();
    format!("{}\n→ {reply:?}", words.join(" "))
}

/// What DUMP answers for locks of both kinds, a read-write lock, and for what is none.
fn dumps(fleet: &Fleet) -> anyhow::Result<Vec<Vec<u8>>> {
    const MAKERS: [&str; 5] = [
        "LOCK.ACQUIRE dumped owner 60000",
        "HSET dumped 8743c9c0-0795-4907-87fd-6c719a6b4586:1 2",
        "HSET dumped mode write 8743c9c0-0795-4907-87fd-6c719a6b4586:1 1",
        "HSET dumped owner 1 lock:token 4503599627370497",
        "SET dumped text",
    ];
    let mut control = fleet.control()?;
    let mut dumps = Vec::new();
    for maker in MAKERS {
        control.ask(&words(maker))?;
        if let Reply::Text(dump) = control.ask(&words("DUMP dumped"))? {
            dumps.push(dump);
        }
        control.ask(&words("DEL dumped"))?;
    }
    ensure!(dumps.len() == MAKERS.len(), "the server can't dump its keys");
    Ok(dumps)
}
