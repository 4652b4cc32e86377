//! Things to compare, measured in turn.

use anyhow::Context as _;
use redis_lock_testkit::Server;

use crate::cpu;
use crate::raw::{Batch, RawConnection, Rehearsed};
use crate::stats::Samples;

/// One way to do something, on a server and a connection of its own choice.
pub struct Lane<'a> {
    /// What the tables call it.
    pub label: String,
    /// The server's CPU time per operation, in nanoseconds, of each round.
    pub samples: Samples,
    server: &'a Server,
    connection: RawConnection,
    before: Option<Rehearsed>,
    work: Rehearsed,
    operations: usize,
    commands: &'static [&'static str],
}

impl<'a> Lane<'a> {
    /// A lane that runs `work`, a batch of this many operations.
    pub fn new(
        label: impl Into<String>,
        server: &'a Server,
        work: Batch,
        operations: usize,
    ) -> anyhow::Result<Self> {
        let mut connection = RawConnection::open(server.port())?;
        let work = connection.rehearse(work)?;
        Ok(Self {
            label: label.into(),
            samples: Samples::default(),
            server,
            connection,
            before: None,
            work,
            operations,
            commands: &[],
        })
    }

    /// Has `before` run, outside the measurement, ahead of each batch.
    pub fn after(mut self, before: Batch) -> anyhow::Result<Self> {
        self.before = Some(self.connection.rehearse(before)?);
        Ok(self)
    }

    /// Has [`Measured::calls`] tell of these commands.
    pub fn counting(mut self, commands: &'static [&'static str]) -> Self {
        self.commands = commands;
        self
    }

    /// Runs the batch this many times and returns the nanoseconds per operation.
    fn measure(&mut self, batches: usize) -> anyhow::Result<f64> {
        // The processor's caches still hold what the lane before needed.
        self.run_once()?;
        let mut spent = 0;
        for _ in 0..batches {
            if let Some(before) = &self.before {
                self.connection.run(before)?;
            }
            let start = cpu::of_idle(self.server)?;
            self.connection.run(&self.work)?;
            spent += (cpu::of_idle(self.server)? - start).as_nanos();
        }
        Ok(spent as f64 / (batches * self.operations) as f64)
    }

    /// Runs the batch once, unmeasured.
    pub fn run_once(&mut self) -> anyhow::Result<()> {
        if let Some(before) = &self.before {
            self.connection.run(before)?;
        }
        self.connection.run(&self.work)
    }

    /// What one call of each of the lane's commands takes, in µs, by the server's own account.
    fn calls(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut connection = self.server.connect();
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection)?;
        self.run_once()?;
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection)?;
        let usec =
            |command| usec_per_call(&stats, command).with_context(|| format!("no {command} was counted"));
        self.commands.iter().map(|command| usec(command)).collect()
    }
}

/// Finds a command in INFO commandstats: `cmdstat_get:calls=2,usec=3,usec_per_call=1.50,…`.
fn usec_per_call(stats: &str, command: &str) -> Option<f64> {
    let fields = stats.lines().find_map(|line| {
        let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        name.eq_ignore_ascii_case(command).then_some(fields)
    })?;
    let usec = fields.split(',').find_map(|field| field.strip_prefix("usec_per_call="))?;
    usec.parse().ok()
}

/// What is left of a lane when its servers are gone.
pub struct Measured {
    /// The lane's label.
    pub label: String,
    /// The median round of each run.
    pub runs: Samples,
    /// For each command that the lane counts, the server's own account of one call, in µs.
    pub calls: Vec<(&'static str, Samples)>,
}

impl Measured {
    fn of(lane: &Lane<'_>) -> Self {
        let calls = lane.commands.iter().map(|command| (*command, Samples::default()));
        Self { label: lane.label.clone(), runs: Samples::default(), calls: calls.collect() }
    }

    fn add(&mut self, mut lane: Lane<'_>) -> anyhow::Result<()> {
        self.runs.push(lane.samples.spread().median);
        for ((_, samples), usec) in self.calls.iter_mut().zip(lane.calls()?) {
            samples.push(usec);
        }
        Ok(())
    }
}

/// Adds a run of these lanes to the earlier runs of the same lanes on other servers.
///
/// A run counts as one, however many rounds it had: what the rounds of a run have in common, such
/// as where the process happens to have its memory, can make more of a difference than they do.
pub fn add_run(measured: &mut Vec<Measured>, lanes: Vec<Lane<'_>>) -> anyhow::Result<()> {
    if measured.is_empty() {
        measured.extend(lanes.iter().map(Measured::of));
    }
    measured.iter_mut().zip(lanes).try_for_each(|(measured, lane)| measured.add(lane))
}

/// Measures the lanes in turn, round after round, so that whatever else the machine does strikes
/// all of them alike.
pub fn interleave(lanes: &mut [Lane<'_>], rounds: usize, batches: usize) -> anyhow::Result<()> {
    for _ in 0..rounds {
        for lane in &mut *lanes {
            let sample = lane.measure(batches)?;
            lane.samples.push(sample);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_whatever_its_case() {
        let stats = "cmdstat_set:calls=1,usec_per_call=9.00\r\n\
                     cmdstat_LOCK.ACQUIRE:calls=2,usec=3,usec_per_call=1.50,failed_calls=0\r\n";
        assert_eq!(usec_per_call(stats, "lock.acquire"), Some(1.5));
        assert_eq!(usec_per_call(stats, "lock"), None);
    }
}
