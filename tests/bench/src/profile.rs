//! Where the server's time goes while locks are acquired and released: the top of a perf report.
//!
//! perf samples the clock, which works in virtual machines too. Where it is not permitted,
//! callgrind counts instructions instead: point `REDIS_LOCK_SERVER` at a script that runs
//! `exec valgrind --tool=callgrind redis-server "$@"`, run `lock-bench cycle --quick`, and look at
//! its output with `callgrind_annotate`.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use redis_lock_testkit::Server;

use crate::contender::Contender;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::scripts::Scripts;

/// Distinct names in a batch.
const NAMES: usize = 1_000;

/// How long perf watches.
const SECONDS: &str = "5";

/// Samples per second: no round number, so as not to fall into step with the server's own timers.
const FREQUENCY: &str = "1999";

/// Symbols below this share of the samples, in per cent, are left out.
const LEAST_SHARE: &str = "0.7";

/// Runs the server under load and prints where its time went.
pub fn run() -> anyhow::Result<()> {
    let server = Server::with_module().start();
    let scripts = Scripts::load(&mut server.connect())?;
    let batch = Contender::Module.cycles(&scripts, 0..NAMES, Pace::Pipelined);
    let mut lane = Lane::new(Contender::Module.cycle_label(), &server, batch, NAMES)?;
    let data = server.dir().join("perf.data");

    let mut perf = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-F", FREQUENCY, "-p", &server.pid().to_string(), "-o"])
        .arg(&data)
        .args(["--", "sleep", SECONDS])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("can't run perf")?;
    let status = loop {
        lane.run_once()?;
        if let Some(status) = perf.try_wait()? {
            break status;
        }
    };
    ensure!(status.success(), "perf failed: {status}; is it permitted here?");

    let report = Command::new("perf")
        .args(["report", "--stdio", "--no-children", "--fields", "overhead,dso,symbol"])
        .args(["--percent-limit", LEAST_SHARE, "--input"])
        .arg(&data)
        .output()?;
    ensure!(report.status.success(), "perf report failed: {}", report.status);
    println!("Server CPU during {}:\n", lane.label);
    let report = String::from_utf8_lossy(&report.stdout);
    for line in report.lines().filter(|line| line.contains('%')) {
        println!("{line}");
    }
    Ok(())
}
