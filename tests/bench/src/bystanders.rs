//! What the module costs those who don't lock: plain commands on a server with and one without it.
//!
//! A second server without it shows how far apart two servers lie that ought to be equal.

use redis_lock_testkit::Server;

use crate::contender::Contender;
use crate::effort::Effort;
use crate::lane::{Lane, Measured, add_run, interleave};
use crate::pace::Pace;
use crate::raw::{Batch, RawConnection, Reply};
use crate::report::{Figure, Section};
use crate::scripts::Scripts;

/// Commands in a batch, each on a key of its own. Few enough for the processor's caches: where
/// they miss, the figures depend on where a server happens to have its memory.
const KEYS: usize = 1_000;

const VALUE: &str = "a plain value";

/// How many locks are held in the second half.
const HELD: usize = 1_000;

const PLAIN: &str = "plain server";
const CONTROL: &str = "another plain server";
const MODULE: &str = "server with the module";

/// A command that has nothing to do with locks.
#[derive(Clone, Copy, Debug)]
enum Command {
    Get,
    Set,
    Del,
    Expire,
    Hset,
}

const COMMANDS: [Command; 5] = [Command::Get, Command::Set, Command::Del, Command::Expire, Command::Hset];

impl Command {
    fn label(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Del => "DEL",
            Self::Expire => "EXPIRE",
            Self::Hset => "HSET",
        }
    }

    /// What the module may make of its cost. Those that may end a lock it has to hear of.
    fn target(self) -> f64 {
        match self {
            Self::Get | Self::Hset => 1.02,
            Self::Set | Self::Del | Self::Expire => 1.05,
        }
    }

    fn lane<'a>(self, label: &str, server: &'a Server, pace: Pace) -> anyhow::Result<Lane<'a>> {
        let mut connection = RawConnection::open(server.port())?;
        let strings = || each_key(Batch::pipelined(), Reply::Ok, |key| vec!["SET", key, VALUE]);
        connection.send(&strings())?;
        let lane = |reply, command: fn(&str) -> Vec<&str>| {
            Lane::new(label, server, each_key(pace.batch(), reply, command), KEYS)
        };
        match self {
            Self::Get => lane(Reply::Text, |key| vec!["GET", key]),
            Self::Set => lane(Reply::Ok, |key| vec!["SET", key, VALUE]),
            Self::Del => lane(Reply::Integer(1), |key| vec!["DEL", key])?.after(strings()),
            Self::Expire => lane(Reply::Integer(1), |key| vec!["EXPIRE", key, "3600"]),
            Self::Hset => {
                let (reply, pipelined) = (Reply::Integer(1), Batch::pipelined);
                connection.send(&each_key(pipelined(), reply, |key| vec!["DEL", key]))?;
                connection.send(&each_key(pipelined(), reply, |key| vec!["HSET", key, "name", VALUE]))?;
                lane(Reply::Integer(0), |key| vec!["HSET", key, "name", VALUE])
            }
        }
    }
}

/// The same command on each of the keys.
fn each_key(mut batch: Batch, reply: Reply, command: impl Fn(&str) -> Vec<&str>) -> Batch {
    for index in 0..KEYS {
        batch.push(&command(&format!("user:{index:08}")), reply);
    }
    batch
}

/// Rounds in a run, and batches in a round.
fn rounds(pace: Pace, effort: Effort) -> (usize, usize) {
    match pace {
        Pace::Pipelined => (effort.pick(7, 41), 10),
        Pace::Sixteen | Pace::OneByOne => (effort.pick(3, 21), 1),
    }
}

/// One command under one set of circumstances.
struct Row {
    command: Command,
    pace: Pace,
    held: usize,
    measured: Vec<Measured>,
}

impl Row {
    /// Adds a run on these servers.
    fn measure(&mut self, servers: &[(&str, Server)], effort: Effort) -> anyhow::Result<()> {
        let lanes = servers.iter().map(|(label, server)| self.command.lane(label, server, self.pace));
        let mut lanes = lanes.collect::<anyhow::Result<Vec<_>>>()?;
        let (rounds, batches) = rounds(self.pace, effort);
        interleave(&mut lanes, rounds, batches)?;
        add_run(&mut self.measured, lanes)
    }
}

/// Runs the benchmark.
pub fn run(effort: Effort) -> anyhow::Result<Vec<Section>> {
    let circumstances = [(Pace::Pipelined, 0), (Pace::Pipelined, HELD), (Pace::OneByOne, HELD)];
    let rows = circumstances
        .into_iter()
        .flat_map(|(pace, held)| COMMANDS.map(|command| Row { command, pace, held, measured: Vec::new() }));
    let mut rows: Vec<Row> = rows.collect();
    for _ in 0..effort.pick(5, 10) {
        let servers = [
            (PLAIN, Server::without_module().start()),
            (MODULE, Server::with_module().start()),
            (CONTROL, Server::without_module().start()),
        ];
        let (without_locks, with_locks) = rows.split_at_mut(COMMANDS.len());
        for row in without_locks {
            row.measure(&servers, effort)?;
        }
        take_locks(&servers)?;
        for row in with_locks {
            row.measure(&servers, effort)?;
        }
    }
    Ok(vec![section(&rows)])
}

/// Has locks held on all servers: Redisson's on those without the module.
fn take_locks(servers: &[(&str, Server)]) -> anyhow::Result<()> {
    for (label, server) in servers {
        let contender = match *label {
            MODULE => Contender::Module,
            _ => Contender::Redisson,
        };
        let scripts = Scripts::load(&mut server.connect())?;
        RawConnection::open(server.port())?.send(&contender.taken(&scripts, HELD))?;
    }
    Ok(())
}

fn section(rows: &[Row]) -> Section {
    let columns =
        ["", "sent", "locks held", "CPU ns, plain server", "× on another plain server", "× with the module"];
    let mut section = Section::new("Commands of those who don't lock", &columns);
    for row in rows {
        let [plain, module, control] = &row.measured[..] else {
            continue;
        };
        let command = row.command.label();
        let ratio = module.runs.ratio_to(&plain.runs);
        section.rows.push(vec![
            command.to_owned(),
            row.pace.label().to_owned(),
            row.held.to_string(),
            format!("{:.0}", plain.runs.spread()),
            format!("{:.3}", control.runs.ratio_to(&plain.runs)),
            format!("{ratio:.3}"),
        ]);
        let name =
            format!("{command} with / without the module, {}, {} locks held", row.pace.label(), row.held);
        section.figures.push(Figure::ratio(name, ratio, row.command.target()));
    }
    section
}
