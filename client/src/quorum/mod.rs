//! The quorum algorithm, as a state machine without sockets, clocks or chance: answers and time go in, requests
//! and events come out.
//!
//! [`Lock`] is one lock that is wanted, held, or being given back. It goes through
//!
//! * [`round`] — all nodes are asked at once; a majority that grants, and knows the fencing token, holds the lock;
//! * [`queue`] — waiting in line at one node, where another holds the lock;
//! * [`holding`] — renewal, repair of nodes that have lost it, and loss;
//! * [`farewell`] — giving back whatever an owner has, or may have, anywhere.
//!
//! [`terms`] has the arithmetic of validity, [`message`] what is said between client and node.
//!
//! The algorithm is Redlock (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>) with
//! what it lacks: a token that grows over the quorum, a line instead of races, renewal with repair, and nodes that
//! keep a grace period after a restart.

mod event;
mod farewell;
mod holding;
mod lock;
mod message;
mod outbox;
mod queue;
mod round;
#[cfg(test)]
mod simulation;
mod terms;
mod time;

pub use event::{Event, Loss, Refusal, Released};
pub use lock::Lock;
pub use message::{Answer, Before, Block, Cause, CauseKind, NodeIndex, Request, Ticket, Transmit};
pub use terms::{Drift, Renewal, Retry, Start, Terms, Wait};
pub use time::Moment;
