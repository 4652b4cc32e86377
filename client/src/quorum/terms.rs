//! On which terms a lock is wanted.

use std::time::Duration;

use super::{Moment, NodeIndex};

/// What is wanted, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How many nodes are configured: N, whether they can be reached or not.
    pub nodes: usize,
    /// The lease.
    pub ttl: Duration,
    /// How long each node has to answer.
    pub node_limit: Duration,
    /// What clocks may differ by.
    pub drift: Drift,
    /// How long to wait for the lock.
    pub wait: Wait,
    /// What is tried first.
    pub start: Start,
    /// Whether the lease is renewed.
    pub renewal: Renewal,
    /// Where the line for this lock begins: everybody must know the same node.
    pub head: NodeIndex,
    /// A fencing token that is greater than any seen so far: when the nodes agree to it, that saves a round.
    pub least_token: Option<u64>,
    /// What to do when a round fails.
    pub retry: Retry,
}

impl Terms {
    /// The least number of nodes of which every two sets share one: ⌊N/2⌋+1.
    pub fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    /// When a lease that was asked for at `began` can't be counted on any more. Not later than
    /// `began`, where the drift leaves nothing.
    pub fn valid_until(&self, began: Moment, ttl: Duration) -> Moment {
        began + ttl.saturating_sub(self.drift.of(ttl))
    }

    /// How long a node may block a request that it has to answer within [`Terms::node_limit`].
    pub fn node_patience(&self) -> Duration {
        (self.node_limit / 5 * 4).max(Duration::from_millis(1))
    }

    /// The pause between two renewals, and between two looks at the line.
    pub fn beat(&self) -> Duration {
        (self.ttl / 3).max(Duration::from_millis(1))
    }

    /// All nodes, the first being where the line begins.
    pub fn order(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        let (head, nodes) = (self.head.0, self.nodes);
        (0..nodes).map(move |n| NodeIndex((head + n) % nodes))
    }
}

/// How much of a lease is not counted on, as no two clocks go at the same speed.
///
/// The default, a hundredth of the lease and 2 ms, is that of the description of Redlock
/// (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drift {
    /// Millionths of the lease.
    pub per_million: u32,
    /// And this.
    pub base: Duration,
}

impl Default for Drift {
    fn default() -> Self {
        Self { per_million: 10_000, base: Duration::from_millis(2) }
    }
}

impl Drift {
    /// The drift of a lease.
    pub fn of(&self, ttl: Duration) -> Duration {
        let share = ttl.as_nanos() * u128::from(self.per_million) / 1_000_000;
        Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX)).saturating_add(self.base)
    }
}

/// How long to wait for a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Not at all.
    No,
    /// For so long.
    For(Duration),
    /// Until it is ours.
    Forever,
}

/// What is tried first, by those who may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// All nodes are asked at once: one round trip where the lock is free.
    Direct,
    /// The line is joined: one round trip more, and the better choice for a lock that was found taken a moment ago,
    /// as asking would cost every node a request, and take single nodes from those whose turn it is.
    InLine,
}

/// Whether the lease is renewed while the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// Every third of it.
    Watchdog,
    /// Never, unless extended by hand.
    Fixed,
}

/// What to do when a round fails though the wait is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// The first pause is up to this long, chosen at random; each further one up to twice as long as the one before.
    pub base: Duration,
    /// No pause is longer.
    pub cap: Duration,
    /// So many rounds in a row may find too few nodes, or too slow ones, before the wait is given up.
    pub outages: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { base: Duration::from_millis(20), cap: Duration::from_secs(1), outages: 3 }
    }
}

impl Retry {
    /// The pause before another try: "full jitter"
    /// (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>).
    pub(super) fn pause(&self, failures: u32, seed: u64) -> Duration {
        let most = self.base.saturating_mul(1 << failures.min(16)).min(self.cap);
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(fastrand::Rng::with_seed(seed).u64(0..=most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(nodes: usize) -> Terms {
        Terms {
            nodes,
            ttl: Duration::from_secs(30),
            node_limit: Duration::from_millis(50),
            drift: Drift::default(),
            wait: Wait::No,
            start: Start::Direct,
            renewal: Renewal::Fixed,
            head: NodeIndex(0),
            least_token: None,
            retry: Retry::default(),
        }
    }

    #[test]
    fn a_quorum_is_more_than_half_of_the_nodes_configured() {
        let quorums: Vec<_> = (1..=6).map(|nodes| terms(nodes).quorum()).collect();
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4]);
    }

    proptest! {
        #[test]
        fn validity_is_the_lease_less_the_drift(began in 0_u64..1 << 40, ttl in 1_u64..1 << 40) {
            let (began, ttl) = (Moment::from_start(Duration::from_micros(began)), Duration::from_micros(ttl));
            let validity = terms(1).valid_until(began, ttl).since(began);
            prop_assert!(validity <= ttl.saturating_sub(ttl / 100).saturating_sub(Duration::from_millis(2)));
        }

        #[test]
        fn a_pause_is_within_its_bounds(failures in 0_u32..100, seed: u64) {
            let retry = Retry::default();
            prop_assert!(retry.pause(failures, seed) <= retry.cap);
            prop_assert!(retry.pause(0, seed) <= retry.base);
        }
    }
}
