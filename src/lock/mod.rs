//! The lock's logic, in plain Rust: no server types, and time is an argument.
//!
//! [`Record`] is what a hash says about a lock, [`acquire`], [`renew`] and [`release`] decide what a
//! command does to it, [`TokenCounter`] hands out fencing tokens, and [`LeaseTable`] knows when each
//! lease ends and who holds the lock until then. [`Clocks`] keeps that apart from steps of the wall clock, and
//! [`Recovery`] says when a key that was taken from a held lock is put back.

mod arena;
mod chain;
mod clocks;
mod decide;
mod grace;
mod hold;
mod index;
mod line;
mod name;
mod owner;
mod record;
mod recovery;
mod table;
mod time;
mod token;
mod wheel;

pub use clocks::{CLOCK_TOLERANCE_MS, Clocks, Reading};
pub use decide::{Ask, Attempt, Entry, Exhausted, Grant, Released, Writes, acquire, release, renew};
pub use grace::GracePeriod;
pub use hold::Hold;
pub use line::{Lines, Newcomer, Ticket};
pub use owner::{BadOwner, MODE_FIELD, TOKEN_FIELD, check_owner, is_redisson, is_reserved};
pub use record::{LockHash, NotALock, Record};
pub use recovery::{Memory, Recovery};
pub use table::{Expiry, Known, LeaseTable, Term, TrackedLock};
pub use time::{Lease, MonotonicMs, WallMs};
pub use token::{MAX_TOKEN, TokenCounter};

/// The largest hold count: the largest integer that a double (JSON, Lua, JavaScript) carries exactly.
pub const MAX_HOLDS: u64 = (1 << 53) - 1;

/// The longest time-out of a wait, in milliseconds, and the most waiters to be told of: as large.
pub const MAX_TIMEOUT: u64 = (1 << 53) - 1;
