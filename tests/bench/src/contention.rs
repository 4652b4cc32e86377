//! A lock that many clients want all the time: who gets it how often, and at what cost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redis_lock_testkit::Server;

use crate::cores::{Cores, Pinned};
use crate::effort::Effort;
use crate::race::{Event, LineRace, PublishRace, Race};
use crate::report::{Figure, Section};

/// How often each client is served at least, on average, where the way to wait can do it: one time
/// more or less is then a hundredth.
const TURNS: u64 = 100;

/// How often nothing comes until it is asked who waits.
const PAUSE: Duration = Duration::from_millis(20);

/// The ways to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Line,
    PublishAndRetry,
}

impl Way {
    fn label(self) -> &'static str {
        match self {
            Self::Line => "LOCK.ACQUIRE … BLOCK",
            Self::PublishAndRetry => "Redisson: publish and retry",
        }
    }

    fn race(self, clients: usize, seconds: u64) -> anyhow::Result<Outcome> {
        let window = Duration::from_secs(seconds);
        match self {
            Self::Line => {
                let server = Server::with_module().start();
                // Until everybody has had enough turns to compare them.
                let turns = TURNS * clients as u64;
                run_race(self, &server, LineRace::start(&server, clients)?, clients, window, turns)
            }
            Self::PublishAndRetry => {
                let server = Server::without_module().start();
                run_race(self, &server, PublishRace::start(&server, clients)?, clients, window, 0)
            }
        }
    }
}

/// What became of one race.
struct Outcome {
    way: Way,
    clients: usize,
    /// How often each client got the lock.
    turns: Vec<u64>,
    took: Duration,
    commands: u64,
    cpu: Duration,
    /// In microseconds.
    waits: Histogram<u64>,
}

impl Outcome {
    fn grants(&self) -> f64 {
        self.turns.iter().sum::<u64>() as f64
    }

    fn commands_per_grant(&self) -> f64 {
        self.commands as f64 / self.grants()
    }

    /// How much more often the most served got the lock than the least served, in per cent.
    fn unfairness(&self) -> f64 {
        let (least, most) = self.extremes();
        (most as f64 / least as f64 - 1.0) * 100.0
    }

    fn extremes(&self) -> (u64, u64) {
        let turns = || self.turns.iter().copied();
        (turns().min().unwrap_or(0), turns().max().unwrap_or(0))
    }

    fn row(&self) -> Vec<String> {
        let (least, most) = self.extremes();
        vec![
            self.way.label().to_owned(),
            self.clients.to_string(),
            format!("{:.0}", self.grants() / self.took.as_secs_f64()),
            format!("{:.3}", self.commands_per_grant()),
            format!("{:.1}", self.cpu.as_secs_f64() * 1e6 / self.grants()),
            most.to_string(),
            least.to_string(),
            format!("{:.1}", self.waits.value_at_quantile(0.5) as f64 / 1e3),
            format!("{:.1}", self.waits.value_at_quantile(0.99) as f64 / 1e3),
        ]
    }

    fn figures(&self) -> Vec<Figure> {
        let clients = self.clients;
        let name = format!("commands per grant, {clients} contenders");
        let commands = Figure::single(name, self.commands_per_grant(), "", 2.05);
        let name = format!("most served above least served, {clients} contenders");
        vec![commands, Figure::single(name, self.unfairness(), "%", 2.0)]
    }
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let columns = [
        "",
        "contenders",
        "grants per s",
        "commands per grant",
        "CPU µs per grant",
        "most served",
        "least",
        "wait p50, ms",
        "p99",
    ];
    let mut section =
        Section::new("One lock that many want all the time, client and server on two cores", &columns);
    for clients in [64, 1_000] {
        for way in [Way::Line, Way::PublishAndRetry] {
            let outcome = way.race(clients, effort.pick(2, 6))?;
            section.rows.push(outcome.row());
            if way == Way::Line {
                section.figures.extend(outcome.figures());
            }
        }
    }
    Ok(vec![section])
}

/// Lets the clients in when all of them wait, for `window` and until they have had so many turns.
fn run_race(
    way: Way,
    server: &Server,
    mut race: impl Race,
    clients: usize,
    window: Duration,
    turns: u64,
) -> anyhow::Result<Outcome> {
    let _pinned = Pinned::to(Cores::Two, &[server])?;
    gather(&mut race, clients)?;
    let (commands, cpu) = (race.commands()?, server.cpu());
    let start = Instant::now();
    race.open_the_gate()?;

    let mut since = vec![start; clients];
    let mut outcome = Outcome {
        way,
        clients,
        turns: vec![0; clients],
        took: Duration::ZERO,
        commands: 0,
        cpu: Duration::ZERO,
        waits: Histogram::new(3)?,
    };
    let mut granted = 0;
    while start.elapsed() < window || granted < turns {
        for heard in race.swarm().replies()? {
            match race.heed(&heard)? {
                Event::Granted(client) => {
                    granted += 1;
                    outcome.turns[client] += 1;
                    let wait = heard.at.saturating_duration_since(since[client]);
                    outcome.waits.record(u64::try_from(wait.as_micros())?)?;
                    race.release(client)?;
                }
                Event::Released(client) => {
                    since[client] = Instant::now();
                    race.join(client)?;
                }
                Event::Progress => {}
            }
        }
    }
    outcome.took = start.elapsed();
    outcome.cpu = server.cpu() - cpu;
    outcome.commands = race.commands()? - commands;
    Ok(outcome)
}

/// Has all clients ask for the lock, and waits until all of them wait for it.
fn gather(race: &mut impl Race, clients: usize) -> anyhow::Result<()> {
    for client in 0..clients {
        race.join(client)?;
    }
    loop {
        for heard in race.swarm().replies_within(PAUSE)? {
            race.heed(&heard)?;
        }
        if race.waiting()? == clients {
            return Ok(());
        }
    }
}
