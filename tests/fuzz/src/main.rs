//! A structured fuzzer: hostile commands, on keys in every state, for a live server with the module.
//!
//! It plays *epochs*, each with rules of its own (see [`epoch::Epoch`]), from a [`grammar`] of
//! commands whose variables stand for hostile [`values`]. A share of the commands is sent in
//! transactions that look at the key before and after, and held against an [`oracle`]: the contract,
//! written down a second time. After each batch the server must be well; after each epoch everything
//! is deleted, and memory must be back where it was.
//!
//! When something breaks, the last commands, the server's log and the seed are saved; `--replay`
//! sends such a journal again.

mod campaign;
mod counts;
mod epoch;
mod fleet;
mod grammar;
mod health;
mod journal;
mod link;
mod memory;
mod noise;
mod oracle;
mod replica;
mod resp;
mod swap;
mod tally;
mod values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};

use crate::campaign::{Campaign, Limits};
use crate::epoch::Epoch;
use crate::fleet::Fleet;
use crate::journal::Journal;

#[derive(Debug, Parser)]
#[command(name = "lock-fuzz", about = "Fuzzes a live server with the lock module")]
struct Options {
    /// Repeats the run of this seed, as far as time allows it
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after so many seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Ends after so many steps
    #[arg(long, default_value_t = u64::MAX)]
    steps: u64,
    /// Plays epochs of these kinds only
    #[arg(long)]
    only: Vec<Epoch>,
    /// Where a failure is written down
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
    /// Sends the commands of a journal again, and nothing else
    #[arg(long)]
    replay: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    match &options.replay {
        Some(journal) => replay(journal),
        None => fuzz(&options),
    }
}

fn fuzz(options: &Options) -> anyhow::Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let limits = Limits { time: Duration::from_secs(options.seconds), steps: options.steps };
    let mut campaign = Campaign::new(seed)?;
    let kinds = if options.only.is_empty() { Epoch::value_variants() } else { &options.only };
    let outcome = campaign.run(kinds, limits);
    let summary = format!("{}; {}", campaign.tally, campaign.memory);
    match outcome {
        Ok(()) => {
            println!("fine: {summary}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let place = save(&campaign.fleet, &options.out.join(seed.to_string()), &format!("{error:#}\n"))?;
            println!("FAILED: {error:#}\n{summary}\nseed {seed}; journal and log are in {place}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Writes down what led to a failure. Answers where.
fn save(fleet: &Fleet, folder: &Path, reason: &str) -> anyhow::Result<String> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("reason.txt"), reason)?;
    fs::write(folder.join("journal.txt"), fleet.journal.to_text())?;
    fs::write(folder.join("server.log"), fleet.server.log())?;
    fs::write(folder.join("peer.log"), fleet.peer.log())?;
    Ok(folder.display().to_string())
}

fn replay(journal: &Path) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(journal).with_context(|| journal.display().to_string())?;
    let entries = Journal::parse(&text)?;
    let mut fleet = Fleet::start()?;
    for (line, entry) in entries.into_iter().enumerate() {
        let shown = format!("{entry:.300?}");
        if let Err(error) = fleet.repeat(entry).and_then(|()| fleet.control().map(drop)) {
            println!("FAILED at line {}: {error:#}\n{shown}\n{}", line + 1, fleet.server.log());
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("the server has survived it");
    Ok(ExitCode::SUCCESS)
}
