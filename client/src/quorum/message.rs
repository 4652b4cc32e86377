//! What nodes are asked, and what they answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Owner;

/// A node, by its place in the configured list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub usize);

/// Names one request; its answer carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// `LOCK.ACQUIRE … HOLDS 1`: the same again changes nothing.
    Acquire {
        /// The lease.
        ttl: Duration,
        /// `TOKEN`: what the hold's fencing token must be at least.
        least_token: Option<u64>,
        /// `BLOCK`: how long to wait in line. A request that may wait needs a connection of its own.
        block: Block,
    },
    /// `LOCK.RENEW`
    Renew {
        /// The lease.
        ttl: Duration,
        /// `TOKEN`: what the hold's fencing token becomes at least.
        least_token: Option<u64>,
    },
    /// `LOCK.RELEASE … HOLDS 0`: whatever the owner holds or waits for is gone. A blocked request of the owner's is
    /// called back first.
    Release,
    /// `LOCK.INFO`, on a connection that nothing holds up: is the node alive, and who holds the lock?
    Probe,
}

/// How long a node may let an ACQUIRE wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// Not at all.
    No,
    /// For so long.
    For(Duration),
    /// Until granted.
    Forever,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The owner holds the lock.
    Granted {
        /// The hold's fencing token.
        token: u64,
    },
    /// Somebody else does.
    Denied {
        /// What is left of the lease; `None` for an endless one.
        left: Option<Duration>,
    },
    /// The lease is renewed.
    Renewed,
    /// There was nothing to renew.
    NotHeld,
    /// The owner holds nothing now.
    Released(Before),
    /// The node is alive, and this is who holds the lock there.
    Alive {
        /// The holder.
        holder: Option<Arc<[u8]>>,
    },
    /// The node did not do it.
    Failed(Cause),
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// The owner's hold.
    Held,
    /// Nothing of the owner's.
    Absent,
}

/// Why a node did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    /// The kind.
    pub kind: CauseKind,
    /// The whole story, for people.
    pub text: Arc<str>,
}

/// Kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CauseKind {
    /// The node could not be reached: it has not seen the request.
    Unreachable,
    /// No answer came in time, or the connection broke: nobody knows whether the request was carried out.
    Silent,
    /// The node has started lately, and waits until what it may have forgotten has ended.
    Grace,
    /// The node refused: an error reply.
    Refused,
}

impl Cause {
    /// A cause with its text.
    pub fn new(kind: CauseKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }

    /// May the request have had an effect, or have one yet?
    pub fn leaves_doubt(&self) -> bool {
        matches!(self.kind, CauseKind::Silent | CauseKind::Unreachable)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// The node.
    pub to: NodeIndex,
    /// For whom.
    pub owner: Owner,
    /// Its name.
    pub ticket: Ticket,
    /// The request.
    pub request: Request,
    /// When no answer came for so long, the answer is [`CauseKind::Silent`].
    pub limit: Option<Duration>,
}
