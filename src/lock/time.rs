//! Points in time and leases, as newtypes: the two clocks must never be mixed up.

/// A point on the wall clock in milliseconds since the Unix epoch, as `PEXPIREAT` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallMs(pub i64);

impl WallMs {
    /// The point `ttl` milliseconds later.
    pub fn plus(self, ttl: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ttl))
    }
}

/// A point on a clock that no one can step, in milliseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicMs(pub u64);

impl MonotonicMs {
    /// The point `ms` milliseconds later.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The milliseconds that have passed since an earlier point.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When a lock's lease ends, by the TTL of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It ends at this time.
    Until(WallMs),
    /// The key has no TTL (somebody used `PERSIST`): the lease does not end by itself.
    Endless,
}

impl Lease {
    /// Milliseconds left as the commands report them: −1 for an endless lease, else at least 1,
    /// because a key that the server still shows is still held.
    pub fn left(self, now: WallMs) -> i64 {
        match self {
            Self::Until(end) => end.0.saturating_sub(now.0).max(1),
            Self::Endless => -1,
        }
    }

    /// Would a lease of `ttl` milliseconds from `now` end later than this one?
    pub fn is_outlived_by(self, now: WallMs, ttl: u64) -> bool {
        match self {
            Self::Until(end) => now.plus(ttl) > end,
            Self::Endless => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_the_server_still_shows_is_never_reported_as_zero() {
        assert_eq!(Lease::Until(WallMs(100)).left(WallMs(40)), 60);
        assert_eq!(Lease::Until(WallMs(100)).left(WallMs(100)), 1);
        assert_eq!(Lease::Until(WallMs(100)).left(WallMs(900)), 1);
        assert_eq!(Lease::Endless.left(WallMs(900)), -1);
    }

    #[test]
    fn only_a_later_end_outlives() {
        let lease = Lease::Until(WallMs(100));
        assert!(!lease.is_outlived_by(WallMs(0), 100));
        assert!(lease.is_outlived_by(WallMs(0), 101));
        assert!(!Lease::Endless.is_outlived_by(WallMs(0), u64::MAX));
    }
}
