//! Counts of what happened since the module was loaded.

use hdrhistogram::Histogram;

/// An hour: what is later than that is counted as that late.
const LATEST_US: u64 = 60 * 60 * 1_000_000;

/// Counts of outcomes.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Locks taken: first holds.
    pub granted: u64,
    /// Acquires that found another holder.
    pub denied: u64,
    /// Acquires by the holder.
    pub reentered: u64,
    /// Renewals by the holder.
    pub renewed: u64,
    /// Locks freed by their owner.
    pub released: u64,
    /// Locks whose lease ended.
    pub expired: u64,
    /// Locks freed by force.
    pub forced: u64,
    /// Locks whose key something else took away.
    pub vanished: u64,
    /// Requests granted from a line, re-entries among them.
    pub handed_over: u64,
    /// Requests in line whose time was up, or that `CLIENT UNBLOCK` ended so.
    pub wait_timed_out: u64,
    /// Requests in line whose client went away.
    pub wait_gone: u64,
    /// Requests in line that their owner withdrew.
    pub wait_withdrawn: u64,
    /// The longest wait in line that has ended, in milliseconds.
    pub longest_wait_ms: u64,
    /// Steps of the wall clock that were seen.
    pub clock_steps: u64,
    /// Keys of held locks that the server had taken away, and that were put back.
    pub put_back: u64,
    lateness: Option<Histogram<u64>>,
}

impl Metrics {
    /// Counts a lock whose lease ended, and how much later than its end that was noticed.
    pub fn count_expiry(&mut self, late_us: u64) {
        self.expired += 1;
        if self.lateness.is_none() {
            self.lateness = Histogram::new_with_bounds(1, LATEST_US, 2).ok();
        }
        if let Some(lateness) = &mut self.lateness {
            lateness.saturating_record(late_us);
        }
    }

    /// How much later than their end leases were seen to end, in microseconds.
    pub fn lateness(&self, quantile: f64) -> u64 {
        self.lateness.as_ref().map_or(0, |lateness| lateness.value_at_quantile(quantile))
    }
}
