//! What a client believes to hold, by its own clock.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A lease as its holder counts it: known from the reply on, and counted from before the request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// When the reply came.
    pub known: Instant,
    /// When the request was sent, and the lease's length later.
    pub end: Instant,
}

impl Lease {
    fn overlaps(self, other: Self) -> bool {
        self.known.max(other.known) < self.end.min(other.end)
    }
}

/// The leases of one client, which another thread may read while they grow.
#[derive(Debug, Default)]
pub struct Leases(Mutex<Vec<Lease>>);

impl Leases {
    /// Adds one, unless its reply came too late for it.
    pub fn add(&self, lease: Lease) {
        if lease.known < lease.end {
            self.with(|leases| leases.push(lease));
        }
    }

    /// Is there any yet?
    pub fn has_some(&self) -> bool {
        self.with(|leases| !leases.is_empty())
    }

    /// How these leases lie to those of somebody else on the same lock.
    pub fn compare(&self, other: &Self) -> Overlap {
        let (ours, theirs) = (self.snapshot(), other.snapshot());
        if ours.iter().any(|our| theirs.iter().any(|their| our.overlaps(*their))) {
            return Overlap::Double;
        }
        let began = theirs.iter().map(|lease| lease.known).min();
        let gaps = ours.iter().filter_map(|lease| began?.checked_duration_since(lease.end));
        Overlap::None { gap: gaps.min() }
    }

    fn snapshot(&self) -> Vec<Lease> {
        self.with(|leases| leases.clone())
    }

    fn with<R>(&self, work: impl FnOnce(&mut Vec<Lease>) -> R) -> R {
        let mut leases = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        work(&mut leases)
    }
}

/// How the leases of two clients lie to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// At some instant both held a lease that had not ended.
    Double,
    /// They never did.
    None {
        /// How long after the last lease of the first client the second one got its first.
        gap: Option<Duration>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's leases, in milliseconds from a common start.
    fn leases(start: Instant, spans: &[(u64, u64)]) -> Leases {
        let at = |ms| start + Duration::from_millis(ms);
        let leases = Leases::default();
        spans.iter().for_each(|&(known, end)| leases.add(Lease { known: at(known), end: at(end) }));
        leases
    }

    #[test]
    fn two_who_hold_at_once_hold_double() {
        let start = Instant::now();
        let first = leases(start, &[(0, 100), (50, 150)]);
        assert_eq!(first.compare(&leases(start, &[(149, 200)])), Overlap::Double);
        assert_eq!(leases(start, &[(149, 200)]).compare(&first), Overlap::Double);
    }

    #[test]
    fn the_gap_is_from_the_last_end_to_the_first_grant() {
        let start = Instant::now();
        let second = leases(start, &[(170, 200), (180, 210)]);
        let gap = Some(Duration::from_millis(20));
        assert_eq!(leases(start, &[(0, 100), (50, 150)]).compare(&second), Overlap::None { gap });
    }

    #[test]
    fn a_lease_that_is_over_when_the_reply_comes_is_none() {
        let start = Instant::now();
        assert!(!leases(start, &[(100, 100)]).has_some());
    }
}
