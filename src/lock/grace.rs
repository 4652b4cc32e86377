//! The grace period: after a start or a promotion a node grants nothing until every lease that it may have
//! forgotten has ended, as with NFSv4 (RFC 8881, section 8.4.2) and Chubby.

use super::MonotonicMs;

/// How long the grace is. It has to be as long as the longest lease that may be lost, so it bounds leases, and
/// a shorter one is not in force before the leases granted under the longer have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GracePeriod {
    /// The length in force, in milliseconds; 0: there is no grace.
    length: u64,
    /// A shorter length that was set, and from when on it is in force.
    lowered: Option<(u64, MonotonicMs)>,
    /// When the last of the leases granted so far ends.
    leases_end: MonotonicMs,
}

impl GracePeriod {
    /// A grace of so many milliseconds.
    pub fn new(length: u64) -> Self {
        Self { length, ..Self::default() }
    }

    /// The length in force, in milliseconds.
    pub fn length(&self, now: MonotonicMs) -> u64 {
        match self.lowered {
            Some((length, from)) if from <= now => length,
            _ => self.length,
        }
    }

    /// Sets the length: a longer one is in force at once, a shorter one when the leases granted have ended.
    pub fn set(&mut self, length: u64, now: MonotonicMs) {
        self.length = self.length(now);
        self.lowered = None;
        if length >= self.length {
            self.length = length;
        } else {
            self.lowered = Some((length, self.leases_end));
        }
    }

    /// Takes note of a lease that was granted.
    pub fn note_lease(&mut self, end: MonotonicMs) {
        self.leases_end = self.leases_end.max(end);
    }

    /// The longest lease that it covers, in milliseconds: a length that was set binds leases at once. `None`
    /// without a grace.
    pub fn longest_lease(&self) -> Option<u64> {
        let length = self.lowered.map_or(self.length, |(length, _)| length);
        (length > 0).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lower_length_waits_for_the_leases_granted() {
        let mut grace = GracePeriod::new(1000);
        grace.note_lease(MonotonicMs(700));
        grace.note_lease(MonotonicMs(300));
        grace.set(100, MonotonicMs(200));
        assert_eq!((grace.length(MonotonicMs(699)), grace.longest_lease()), (1000, Some(100)));
        assert_eq!(grace.length(MonotonicMs(700)), 100);
        grace.set(0, MonotonicMs(800));
        assert_eq!((grace.length(MonotonicMs(800)), grace.longest_lease()), (0, None));
    }

    #[test]
    fn a_higher_length_is_in_force_at_once() {
        let mut grace = GracePeriod::default();
        grace.note_lease(MonotonicMs(900));
        grace.set(500, MonotonicMs(0));
        assert_eq!((grace.length(MonotonicMs(0)), grace.longest_lease()), (500, Some(500)));
    }

    proptest! {
        /// A node that crashes at any time has a grace that outlives each lease granted while a grace was set.
        #[test]
        fn the_length_in_force_covers_every_lease(
            first in 1..1000_u64, steps in prop::collection::vec((1..1000_u64, any::<bool>(), 0..400_u64), 1..40),
        ) {
            let mut grace = GracePeriod::new(first);
            let mut now = 0;
            let mut last_end = 0;
            for (value, is_set, pass) in steps {
                if is_set {
                    grace.set(value, MonotonicMs(now));
                } else {
                    let lease = value.min(grace.longest_lease().unwrap_or(u64::MAX));
                    grace.note_lease(MonotonicMs(now + lease));
                    last_end = last_end.max(now + lease);
                }
                now += pass;
                prop_assert!(now + grace.length(MonotonicMs(now)) >= last_end);
            }
        }
    }
}
