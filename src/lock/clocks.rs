//! The wall clock and the monotonic clock side by side: the server counts TTLs on the one, leases end by the
//! other, and a step of the first must not move the second.

use super::{MonotonicMs, WallMs};

/// How far the wall clock may stray from the monotonic one before that counts as a step, in microseconds. A
/// clock that is slewed does not stray: the kernel slews both.
const TOLERANCE_US: i64 = 50_000;

/// The same, in milliseconds: a lease that has no more than this left may end with its key.
pub const CLOCK_TOLERANCE_MS: u64 = TOLERANCE_US as u64 / 1000;

/// Ends later than this are never waited for: 8,900 years after the start, as far as timers reach.
const HORIZON: MonotonicMs = MonotonicMs(1 << 47);

/// The wall clock in microseconds, and the monotonic clock right before and right after it was read: between the
/// two the process may have been kept waiting.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The monotonic clock before.
    pub before_us: u64,
    /// The wall clock.
    pub wall_us: i64,
    /// The monotonic clock after.
    pub after_us: u64,
}

impl Reading {
    /// Does another look at the wall clock show the same time?
    pub fn agrees_with(&self, wall: WallMs) -> bool {
        (self.wall_us / 1000).abs_diff(wall.0) <= CLOCK_TOLERANCE_MS
    }
}

/// How the two clocks lie to each other.
#[derive(Debug, Default)]
pub struct Clocks {
    /// By how much the wall clock is ahead.
    lead_us: i64,
    /// By how much it was at first.
    first_lead_us: i64,
}

impl Clocks {
    /// Takes the clocks as they are.
    pub fn new(reading: Reading) -> Self {
        let lead_us = lead(reading.wall_us, reading.after_us);
        Self { lead_us, first_lead_us: lead_us }
    }

    /// Answers whether the wall clock was stepped since the last look, and takes it as it is then.
    pub fn were_stepped(&mut self, reading: Reading) -> bool {
        let least = lead(reading.wall_us, reading.after_us);
        let most = lead(reading.wall_us, reading.before_us);
        let stepped = least > self.lead_us.saturating_add(TOLERANCE_US)
            || most < self.lead_us.saturating_sub(TOLERANCE_US);
        if stepped {
            self.lead_us = least;
        }
        stepped
    }

    /// When a lease has ended whose key expires at this time: the server shows a key until the millisecond of
    /// its expiry is over. `None` where that is beyond all waiting.
    pub fn lease_end(&self, expiry: WallMs) -> Option<MonotonicMs> {
        let end_us = i128::from(expiry.0) * 1000 + 1000 - i128::from(self.lead_us);
        let end = MonotonicMs(u64::try_from((end_us + 999).div_euclid(1000).max(0)).unwrap_or(u64::MAX));
        (end < HORIZON).then_some(end)
    }

    /// When the key of a lease expires that ends at this time: the inverse of [`Clocks::lease_end`].
    pub fn expiry(&self, lease_end: MonotonicMs) -> WallMs {
        let end_us = lease_end.0.cast_signed().saturating_mul(1000).saturating_add(self.lead_us);
        WallMs(end_us.div_euclid(1000) - 1)
    }

    /// What the wall clock would show had nobody stepped it, in microseconds.
    pub fn unstepped_us(&self, now_us: u64) -> i64 {
        self.first_lead_us.saturating_add_unsigned(now_us)
    }
}

fn lead(wall_us: i64, monotonic_us: u64) -> i64 {
    wall_us.saturating_sub_unsigned(monotonic_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(monotonic_us: u64, wall_us: i64) -> Reading {
        Reading { before_us: monotonic_us, wall_us, after_us: monotonic_us }
    }

    #[test]
    fn a_step_is_seen_once() {
        let mut clocks = Clocks::new(at(100, 1_000_000));
        assert!(!clocks.were_stepped(at(5_000_100, 6_000_000)));
        for step in [86_400_000_000, -86_400_000_000, 300_000, -300_000] {
            let before = clocks.lead_us;
            let stepped = at(9_000_000, 9_000_000 + before + step);
            assert!(clocks.were_stepped(stepped), "{step}");
            assert!(!clocks.were_stepped(stepped), "{step}");
        }
    }

    #[test]
    fn a_look_agrees_with_another_unless_a_step_lies_between() {
        let look = at(0, 1_000_000_000);
        assert!([1_000_000, 1_000_050, 999_950].iter().all(|&wall| look.agrees_with(WallMs(wall))));
        assert!(![1_000_051, 999_949, i64::MIN].iter().any(|&wall| look.agrees_with(WallMs(wall))));
    }

    #[test]
    fn small_steps_count_once_they_add_up() {
        let mut clocks = Clocks::new(at(0, 0));
        assert!(!clocks.were_stepped(at(0, 30_000)));
        assert!(clocks.were_stepped(at(0, 60_000)));
    }

    #[test]
    fn to_be_kept_waiting_between_two_looks_is_no_step() {
        let mut clocks = Clocks::new(at(0, 0));
        assert!(!clocks.were_stepped(Reading {
            before_us: 1_000_000,
            wall_us: 1_000_000,
            after_us: 9_000_000
        }));
        assert!(!clocks.were_stepped(Reading {
            before_us: 1_000_000,
            wall_us: 9_000_000,
            after_us: 9_000_000
        }));
    }

    #[test]
    fn ends_beyond_all_waiting_are_none() {
        let clocks = Clocks::new(at(0, 1_700_000_000_000_000));
        assert_eq!(clocks.lease_end(WallMs(i64::MAX)), None);
        assert_eq!(clocks.lease_end(WallMs(i64::MIN)), Some(MonotonicMs(0)));
    }

    proptest! {
        #[test]
        fn a_lease_ends_when_its_key_has_expired(
            started_us in 0..1_i64 << 52, uptime_us in 0..1_u64 << 45, ttl in 0..100_000_000_i64,
        ) {
            let clocks = Clocks::new(at(0, started_us));
            let expiry = WallMs((started_us.saturating_add_unsigned(uptime_us)) / 1000 + ttl);
            let end = clocks.lease_end(expiry).expect("within centuries");
            prop_assert_eq!(clocks.expiry(end), expiry);
            let wall_at_end_us = started_us.saturating_add_unsigned(end.0 * 1000);
            let over_us = (expiry.0 + 1) * 1000;
            prop_assert!(wall_at_end_us >= over_us && wall_at_end_us < over_us + 1000);
        }

        #[test]
        fn a_step_moves_the_expiry_and_not_the_end(
            step_us in prop_oneof![-400_000_000_000..-60_000_i64, 60_000..400_000_000_000_i64], ttl in 0..100_000_000_i64,
        ) {
            let mut clocks = Clocks::new(at(7, 1_700_000_000_000_321));
            let expiry = WallMs(1_700_000_000_000 + ttl);
            let end = clocks.lease_end(expiry).expect("within centuries");
            prop_assert!(clocks.were_stepped(at(7, 1_700_000_000_000_321 + step_us)));
            let moved_us = (clocks.expiry(end).0 - expiry.0) * 1000;
            prop_assert!((moved_us - step_us).abs() <= 1000, "{moved_us}");
            prop_assert_eq!(clocks.lease_end(clocks.expiry(end)), Some(end));
        }
    }
}
