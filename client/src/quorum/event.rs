//! What the caller is told.

use std::time::Duration;

use super::{Cause, Moment, NodeIndex};

/// What has happened to a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It is ours.
    Held {
        /// The fencing token: greater than that of every earlier holder.
        token: u64,
        /// Until when, unless it is renewed.
        valid_until: Moment,
    },
    /// It could not be had. Nothing is held, and what nodes may have granted is being given back.
    Refused(Refusal),
    /// The watchdog has renewed it.
    Renewed {
        /// Until when it is ours now.
        valid_until: Moment,
    },
    /// It was extended, as asked for.
    Extended {
        /// Until when it is ours now.
        valid_until: Moment,
    },
    /// It could not be extended. It is ours until the time known before.
    NotExtended {
        /// What went wrong, where.
        causes: Vec<(NodeIndex, Cause)>,
    },
    /// It is not ours any more.
    Lost(Loss),
    /// It was given back.
    Released(Released),
}

/// Why a lock could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Others hold it.
    Busy {
        /// When enough nodes may be free: what is left of their leases. `None` if that is not known.
        left: Option<Duration>,
        /// Nodes that failed to answer, besides.
        causes: Vec<(NodeIndex, Cause)>,
    },
    /// Too few nodes answered.
    Unavailable {
        /// Why.
        causes: Vec<(NodeIndex, Cause)>,
    },
    /// A majority granted it too late: nothing was left of the lease.
    TooLate {
        /// How long that took.
        elapsed: Duration,
    },
}

/// How a lock was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// So many nodes say that it is not ours that no majority is left: released by force, or deleted.
    Taken,
    /// Its time has run out, as it could not be renewed, or was not to be.
    Expired {
        /// What went wrong with the last renewal, where.
        causes: Vec<(NodeIndex, Cause)>,
    },
}

/// What came of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Released {
    /// So many nodes have let it go.
    pub held: usize,
    /// So many had nothing of ours.
    pub absent: usize,
    /// Nodes that did not answer: there it ends with its lease.
    pub causes: Vec<(NodeIndex, Cause)>,
}
