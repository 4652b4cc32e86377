//! How often do two clients hold one lock at the same time, when servers fail?
//!
//! Each trial is an outage of its own, on real servers of its own: a first client takes the lock and keeps it as
//! long as it can, a [`fault`] comes, and a second client asks until it has the lock. Each counts its leases as
//! clients ought to, by its own monotonic clock from before it sends a request. A double hold is an instant at
//! which both have a lease that has not ended. This is counted for each configuration of [`setup`].
//!
//! `REDIS_LOCK_SERVER` and `REDIS_LOCK_MODULE` choose what is tested.

mod client;
mod fault;
mod lease;
mod link;
mod setup;
mod table;
mod trial;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use clap::Parser;
use rand::seq::SliceRandom as _;

use crate::fault::Fault;
use crate::lease::Overlap;
use crate::setup::Setup;
use crate::table::Table;

#[derive(Debug, Parser)]
#[command(name = "lock-outage", about = "Counts double holds when servers fail, with and without the module")]
struct Options {
    /// So many outages for each fault and configuration
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// As few as show that it works
    #[arg(long, conflicts_with = "trials")]
    quick: bool,
    /// So many at a time; they wait most of it
    #[arg(long, default_value_t = 24)]
    parallel: usize,
}

/// With `--quick`.
const QUICK_TRIALS: usize = 10;

/// After so many trials there is a sign of life.
const PROGRESS: usize = 100;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let began = Instant::now();
    let trials = if options.quick { QUICK_TRIALS } else { options.trials };
    let table = run(&plan(trials), options.parallel)?;
    println!("{table}");
    eprintln!("{:.0?}", began.elapsed());
    let surprises = table.surprises();
    surprises.iter().for_each(|surprise| eprintln!("FAILED: {surprise}"));
    Ok(if surprises.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All trials, in random order, so that what else the machine does falls on all alike.
fn plan(trials: usize) -> Vec<(Setup, Fault)> {
    let cells = Setup::ALL.into_iter().flat_map(|setup| Fault::ALL.map(|fault| (setup, fault)));
    let mut plan: Vec<_> = cells.flat_map(|cell| std::iter::repeat_n(cell, trials)).collect();
    plan.shuffle(&mut rand::rng());
    plan
}

fn run(plan: &[(Setup, Fault)], parallel: usize) -> anyhow::Result<Table> {
    let next = AtomicUsize::new(0);
    let (report, reports) = mpsc::channel::<anyhow::Result<(Setup, Fault, Overlap)>>();
    thread::scope(|scope| {
        for _ in 0..parallel.max(1) {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                while let Some(&(setup, fault)) = plan.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = trial::play(setup, fault).map(|overlap| (setup, fault, overlap));
                    if report.send(outcome).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        let mut table = Table::default();
        for (n, outcome) in (1..).zip(reports) {
            let (setup, fault, overlap) = outcome?;
            table.count(setup, fault, overlap);
            if n % PROGRESS == 0 {
                eprintln!("{n} of {} trials", plan.len());
            }
        }
        Ok(table)
    })
}
