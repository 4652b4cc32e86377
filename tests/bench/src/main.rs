//! `lock-bench`: what the lock commands cost, each figure a ratio within one run and beside its
//! target.
//!
//! The servers are started by the test kit: `REDIS_LOCK_SERVER` names another one than
//! `redis-server`, `REDIS_LOCK_MODULE` another module than the workspace's release build.

mod contender;
mod cpu;
mod cycle;
mod effort;
mod lane;
mod pair;
mod raw;
mod report;
mod scripts;
mod stats;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::effort::Effort;
use crate::report::Section;

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
}

type Benchmark = fn(Effort) -> anyhow::Result<Vec<Section>>;

impl Command {
    fn benchmarks(self) -> &'static [Benchmark] {
        match self {
            Self::All => &[cycle::run],
            Self::Cycle => &[cycle::run],
        }
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let effort = if cli.quick { Effort::Quick } else { Effort::Full };
    let mut sections = Vec::new();
    for benchmark in cli.command.benchmarks() {
        for section in benchmark(effort)? {
            table::print(&section);
            sections.push(section);
        }
    }
    if let Some(path) = cli.json {
        let file = fs::File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
        serde_json::to_writer_pretty(file, &sections)?;
    }
    Ok(())
}
