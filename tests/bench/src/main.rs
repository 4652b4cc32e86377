//! `lock-bench`: what the lock commands cost, each figure a ratio within one run and beside its
//! target.
//!
//! The servers are started by the test kit: `REDIS_LOCK_SERVER` names another one than
//! `redis-server`, `REDIS_LOCK_MODULE` another module than the workspace's release build.

mod bystanders;
mod chain;
mod churn;
mod contender;
mod contention;
mod cores;
mod cpu;
mod crowd;
mod cycle;
mod effort;
mod expiry;
mod handoff;
mod holder;
mod keyspace;
mod lane;
mod line;
mod line_end;
mod memory;
mod open_files;
mod pace;
mod pair;
mod peer;
mod profile;
mod queue;
mod race;
mod raw;
mod redisson;
mod relay;
mod report;
mod resp;
mod scripts;
mod size;
mod stats;
mod swarm;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use redis_lock_testkit::Server;

use crate::effort::Effort;
use crate::report::{Report, Section};

/// Measures what the lock commands cost the server.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Take a quick look, less exact
    #[arg(long, global = true)]
    quick: bool,

    /// Also write the results to this file, as JSON
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Everything with a target
    All,
    /// CPU per acquire and release, and per denied acquire, beside the ways to do without
    Cycle,
    /// The same, and memory, while many locks are held
    Size,
    /// How late unlock notifications come when leases end
    Expiry,
    /// CPU per command of those who don't lock, with and without the module
    Bystanders,
    /// From a release to the next holder's grant, alone and among many
    Handoff,
    /// How late the first in line is granted a lock whose lease has ended
    LineEnd,
    /// What a hundred thousand waiters cost
    Crowd,
    /// Where the server's time goes, by perf
    Profile,
}

type Benchmark = fn(Effort) -> anyhow::Result<Vec<Section>>;

impl Command {
    fn benchmarks(self) -> &'static [Benchmark] {
        match self {
            Self::All => &[
                cycle::run,
                size::run,
                expiry::run,
                bystanders::run,
                handoff::run,
                line_end::run,
                crowd::run,
            ],
            Self::Cycle => &[cycle::run],
            Self::Size => &[size::run],
            Self::Expiry => &[expiry::run],
            Self::Bystanders => &[bystanders::run],
            Self::Handoff => &[handoff::run],
            Self::LineEnd => &[line_end::run],
            Self::Crowd => &[crowd::run],
            Self::Profile => &[],
        }
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Command::Profile = cli.command {
        return profile::run();
    }
    let effort = if cli.quick { Effort::Quick } else { Effort::Full };
    let server = Server::without_module().start().version().to_string();
    println!("{server}. Medians [10th–90th percentile]; a target is what a figure ought not to exceed.");
    let mut sections = Vec::new();
    for benchmark in cli.command.benchmarks() {
        for section in benchmark(effort)? {
            table::print(&section);
            sections.push(section);
        }
    }
    if let Some(path) = cli.json {
        let file = fs::File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
        serde_json::to_writer_pretty(file, &Report { server, sections })?;
    }
    Ok(())
}
