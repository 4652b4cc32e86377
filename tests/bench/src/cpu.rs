//! The CPU time that a server has used, and how long it had to wait for it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use redis_lock_testkit::Server;

/// A server that has answered everything goes to sleep well within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The CPU time so far of a server that has just answered everything.
///
/// The kernel's account of a thread is exact to the nanosecond only when the thread goes to sleep;
/// while it runs, the account lags by up to a tick. So this waits until the server sleeps.
pub fn of_idle(server: &Server) -> anyhow::Result<Duration> {
    let deadline = Instant::now() + PATIENCE;
    while !is_asleep(server.pid())? {
        ensure!(Instant::now() < deadline, "the server never comes to rest");
        thread::yield_now();
    }
    Ok(server.cpu())
}

/// Whether the main thread waits for events.
fn is_asleep(pid: u32) -> anyhow::Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses before the state may hold anything.
    let (_, state) = stat.rsplit_once(") ").context("an odd /proc/<pid>/stat")?;
    Ok(state.starts_with('S'))
}

/// How long the main thread has so far been ready to run while others had the processor.
pub fn waited(server: &Server) -> anyhow::Result<Duration> {
    let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", server.pid()))?;
    let waited = schedstat.split(' ').nth(1).context("an odd /proc/<pid>/schedstat")?;
    Ok(Duration::from_nanos(waited.parse()?))
}
