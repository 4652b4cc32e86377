//! The waiting lines at work: who waits joins one, and a lock that becomes free is handed to the first.
//!
//! The hash is written at once, and propagated with what freed the lock. The new holder is told when the turn
//! of the event loop ends, just before the server sends all replies: whoever goes before that (closed, killed,
//! unblocked) never had the lock, and the next in line gets it.

mod denial;
mod handoff;
mod request;
mod telling;

pub use denial::{time_out, withdraw};
pub use handoff::{Served, serve, serve_if_freed};
pub use request::{Joined, confirm, join, stands};
pub use telling::{deliver, give_up, gone, missed};
