//! A random test of the waiting lines: many clients on a few locks of a live server, in rounds.
//!
//! A round sends some steps to the server at once: acquires that wait, releases, clients that hang up, are
//! killed or unblocked in the very turn of their grant, foreign edits of the keys, transactions, scripts. Then it
//! reads the replies, and the replication stream up to a fence, which tells the one true order of what
//! happened. Each reply and each grant is held against that ([`judge_replies`], [`judge_segment`]), and at
//! [`quiet`] points how the server sees the lines, and what a replica has.
//!
//! `REDIS_LOCK_SERVER` and `REDIS_LOCK_MODULE` choose what is tested.

mod ask;
mod cast;
mod clock;
mod connection;
mod fleet;
mod foreign;
mod journal;
mod judge_replies;
mod judge_segment;
mod play;
mod quiet;
mod resp;
mod segment;
mod shadow;
mod stage;
mod step;
mod stream;
mod tally;
mod violation;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;

use crate::journal::TOLD;
use crate::stage::Stage;
use crate::violation::Violation;

#[derive(Debug, Parser)]
#[command(name = "lock-soak", about = "Plays at random with the waiting lines of a live server")]
struct Options {
    /// Takes the steps of this seed, as far as time allows
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after so many steps
    #[arg(long, default_value_t = 100_000)]
    steps: u64,
    /// Ends after so many seconds
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Where all that is remembered of a failed run is written
    #[arg(long)]
    journal: Option<PathBuf>,
    /// So many rounds lie between two quiet points
    #[arg(long, default_value_t = 100)]
    quiet_every: u64,
    /// Nobody renames, moves or swaps locks
    #[arg(long)]
    no_carrying: bool,
    /// So many clients
    #[arg(long, default_value_t = 70)]
    clients: usize,
}

/// One quiet point in so many is also a reload.
const RELOAD_EVERY: u64 = 10;

/// How often everything is emptied in a run.
const EMPTYINGS: u64 = 8;

/// By how much memory may grow after the first eighth of a run, in KiB.
const MAX_GROWTH: i64 = 2048;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let mut stage = Stage::set(seed, options.clients)?;
    stage.play.trade.carries = !options.no_carrying;
    println!("server {:?}", stage.server.version());
    let began = Instant::now();
    let outcome = run(&mut stage, &options);
    println!("{}\n{:.1?}", stage.play.tally, began.elapsed());
    match outcome {
        Ok(()) => {
            println!("fine");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let lock = error.downcast_ref::<Violation>().and_then(|violation| violation.lock);
            println!("{}", stage.play.journal.tell(lock, TOLD));
            if let Some(path) = &options.journal {
                fs::write(path, stage.play.journal.tell(None, usize::MAX))?;
            }
            let log = stage.server.log();
            let tail = log.lines().rev().take(15).collect::<Vec<_>>().into_iter().rev();
            println!("{}", tail.collect::<Vec<_>>().join("\n"));
            println!("FAILED in round {}: {error:#}\nseed {seed}", stage.play.round);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn run(stage: &mut Stage, options: &Options) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let emptying = options.steps.div_ceil(EMPTYINGS);
    let mut next_emptying = emptying;
    while stage.play.tally.steps < options.steps && Instant::now() < end {
        let left = options.steps - stage.play.tally.steps;
        stage.play.play_round(left)?;
        if stage.play.round.is_multiple_of(options.quiet_every) {
            stage.play.compare_lines()?;
            stage.play.compare_databases()?;
            stage.compare_replica()?;
            if stage.play.tally.quiet_points.is_multiple_of(RELOAD_EVERY) {
                stage.play.reload()?;
            }
        }
        if stage.play.tally.steps >= next_emptying {
            println!("{} steps, {} grants", stage.play.tally.steps, stage.play.tally.grants);
            next_emptying += emptying;
            stage.play.empty()?;
        }
    }
    stage.play.empty()?;
    stage.compare_replica()?;
    let memory = &stage.play.tally.memory;
    if let [_, first, .., last] = memory.as_slice() {
        ensure!(last - first <= MAX_GROWTH, "MEMORY grows: {memory:?} KiB");
    }
    Ok(())
}
