//! One run of the server's process.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::builder::server_command;
use crate::clock::WallClock;
use crate::eventually::poll;

/// A server under load on a slow machine answers well within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that is killed when it goes out of use.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Runs the server on `config` with `arguments`, its output appended to `log`.
    pub(crate) fn spawn(
        config: &Path,
        arguments: &[String],
        log: &Path,
        clock: Option<&WallClock>,
    ) -> anyhow::Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        let server = server_command();
        let mut command = Command::new(&server);
        command.arg(config).args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        if let Some(clock) = clock {
            clock.give_to(&mut command);
        }
        let child = command.spawn().with_context(|| format!("can't run {}", server.display()))?;
        Ok(Self(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Polls `ready` until it answers; nothing once the process has ended or the time is up.
    pub(crate) fn wait_until<T>(&mut self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        poll(PATIENCE, || {
            if self.has_ended() {
                return Some(None);
            }
            ready().map(Some)
        })
        .flatten()
    }

    /// Waits for an orderly end that something else has asked for, and forces a late one.
    pub(crate) fn wait_for_end(&mut self) {
        if poll(PATIENCE, || self.has_ended().then_some(())).is_none() {
            self.kill();
        }
    }

    pub(crate) fn kill(&mut self) {
        // Both fail only for a process that has been waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.0), signal).context("can't signal the server")
    }

    /// The time on CPU of all its threads, to the nanosecond.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = schedstat.split(' ').next().unwrap_or_default();
            total += on_cpu.parse::<u64>().context("an odd schedstat")?;
        }
        Ok(Duration::from_nanos(total))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
