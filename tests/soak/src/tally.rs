//! What a run consisted of.

use std::fmt;
use std::time::Duration;

/// Counts.
#[derive(Debug, Default)]
pub struct Tally {
    pub steps: u64,
    pub rounds: u64,
    /// First holds, by the module.
    pub grants: u64,
    /// Requests in line that got the lock.
    pub handoffs: u64,
    /// First holds that their owner's client never heard of, and that were taken back in time.
    pub taken_back: u64,
    /// First holds that their owner acted on before it was told.
    pub confirmed: u64,
    /// First holds whose reply was lost with a connection, as it may be.
    pub reply_lost: u64,
    /// First holds that nobody was told of, and that a foreign edit copied to another name before they were
    /// taken back.
    pub copied: u64,
    pub denials: u64,
    /// Requests in line whose time was up.
    pub timeouts: u64,
    pub unblocked: u64,
    pub withdrawn: u64,
    /// Requests in line that were told WRONGTYPE.
    pub wrong_type: u64,
    pub killed: u64,
    pub hung_up: u64,
    pub foreign: u64,
    pub transactions: u64,
    pub scripts: u64,
    pub pauses: u64,
    pub reloads: u64,
    /// Rounds after which a line had to wait for its free lock.
    pub unsettled: u64,
    /// Rounds whose replies came before a grant had been told or taken back.
    pub told_late: u64,
    /// The longest time until that was done.
    pub latest_telling: Duration,
    /// The longest time until such a line was served.
    pub slowest_service: Duration,
    /// The most by which a time-out was late.
    pub latest_timeout: Duration,
    pub most_waiting: usize,
    pub quiet_points: u64,
    /// First holds that were held against somebody who had waited for longer.
    pub order_checked: u64,
    pub memory: Vec<i64>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} steps in {} rounds, {} quiet points", self.steps, self.rounds, self.quiet_points)?;
        writeln!(
            f,
            "grants {} (told to waiters {}, taken back {}, acted on untold {}, reply lost with its connection {}, copied {}), order checked {}",
            self.grants,
            self.handoffs,
            self.taken_back,
            self.confirmed,
            self.reply_lost,
            self.copied,
            self.order_checked
        )?;
        writeln!(
            f,
            "denied {}, timed out {} (latest by {:?}), unblocked {}, withdrawn {}, told WRONGTYPE {}, most in line {}",
            self.denials,
            self.timeouts,
            self.latest_timeout,
            self.unblocked,
            self.withdrawn,
            self.wrong_type,
            self.most_waiting
        )?;
        writeln!(
            f,
            "killed {}, hung up {}, foreign edits {}, transactions {}, scripts {}, pauses {}, reloads {}",
            self.killed,
            self.hung_up,
            self.foreign,
            self.transactions,
            self.scripts,
            self.pauses,
            self.reloads
        )?;
        writeln!(
            f,
            "after a round, lines that waited for a free lock {}, at most {:?}; grants not told yet {}, at most {:?}",
            self.unsettled, self.slowest_service, self.told_late, self.latest_telling
        )?;
        write!(f, "used memory with no lock and nobody in line, KiB: {:?}", self.memory)
    }
}
