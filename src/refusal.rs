//! Why a command was refused, and what the client is told. A refused command changes nothing.

use std::ffi::CString;

use crate::lock::{
    BadOwner, Exhausted, MAX_HOLDS, MAX_TIMEOUT, MAX_TOKEN, MODE_FIELD, NotALock, TOKEN_FIELD,
};
use crate::server::Context;

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too few or too many arguments.
    WrongArity,
    /// An option that is unknown, repeated, or lacks its value.
    Syntax,
    /// A lease that is no integer, or out of range.
    Ttl {
        /// The longest lease granted, in milliseconds.
        max: u64,
    },
    /// A hold count that is no integer, or out of range.
    Holds {
        /// The least count allowed here.
        min: u64,
    },
    /// A time-out of BLOCK that is no integer, or out of range.
    Timeout,
    /// A count of WAITERS that is no integer, or out of range.
    Waiters,
    /// As many wait as may.
    LineFull {
        /// How many that is.
        max: usize,
    },
    /// A token that is no integer, or out of range.
    Token,
    /// A token more than a day ahead of the node's clock.
    TokenTooFarAhead,
    /// An owner that nobody may be.
    Owner(BadOwner),
    /// The key is no hash.
    WrongType,
    /// The key is a hash, but no lock.
    NotALock,
    /// The grace lasts: this node may have forgotten who holds the lock.
    Grace {
        /// How much longer, in milliseconds.
        left: u64,
    },
    /// This node is a replica.
    Replica,
    /// Writes are paused, and the lock may be held by a key that the server hides meanwhile.
    Paused,
    /// A counter is at its end.
    Exhausted(Exhausted),
}

impl From<NotALock> for Refusal {
    fn from(_: NotALock) -> Self {
        Self::NotALock
    }
}

impl Refusal {
    /// Tells the client.
    pub fn reply(self, ctx: Context<'_>) {
        match self.text() {
            None => ctx.reply_wrong_arity(),
            // The texts are ours, and free of NUL bytes.
            Some(text) => ctx.reply_error(&CString::new(text).unwrap_or_default()),
        }
    }

    /// The text; `None` where the server has its own.
    fn text(self) -> Option<String> {
        let text = match self {
            Self::WrongArity => return None,
            Self::Syntax => "ERR syntax error".into(),
            Self::Ttl { max } => format!("ERR ttl must be an integer from 1 to {max} (milliseconds)"),
            Self::Holds { min } => format!("ERR HOLDS must be an integer from {min} to {MAX_HOLDS}"),
            Self::Timeout => format!(
                "ERR BLOCK must be an integer from 0 to {MAX_TIMEOUT} (milliseconds; 0 waits without end)"
            ),
            Self::Waiters => format!("ERR WAITERS must be an integer from 0 to {MAX_TIMEOUT}"),
            Self::LineFull { max } => format!(
                "LINEFULL {max} requests are waiting on this node already, which is lock.max-waiters; try \
                 again later, or raise it"
            ),
            Self::Token => format!("ERR TOKEN must be an integer from 1 to {MAX_TOKEN}"),
            Self::TokenTooFarAhead => {
                "BADTOKEN TOKEN may be at most a day of microseconds ahead of this node's clock; \
                 check the token and the clocks"
                    .into()
            }
            Self::Owner(BadOwner::Empty) => "BADOWNER the owner must not be empty".into(),
            Self::Owner(BadOwner::Reserved) => format!(
                "BADOWNER '{}' and '{}' are reserved and can't own a lock",
                TOKEN_FIELD.escape_ascii(),
                MODE_FIELD.escape_ascii(),
            ),
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
            Self::NotALock => "WRONGTYPE The hash at this key is not a lock".into(),
            Self::Grace { left } => format!(
                "GRACE {left} milliseconds are left of the grace period in which this node, just started or \
                 promoted, grants nothing; try again then, or BLOCK"
            ),
            Self::Replica => "READONLY You can't write against a replica.".into(),
            Self::Paused => {
                "PAUSED writes are paused on this node; try again when the pause has ended".into()
            }
            Self::Exhausted(Exhausted::Holds) => {
                format!("ERR the hold count can't exceed {MAX_HOLDS}; release holds, or set HOLDS")
            }
            Self::Exhausted(Exhausted::Tokens) => {
                format!("ERR the fencing tokens are used up at {MAX_TOKEN}; check this node's clock")
            }
        };
        Some(text)
    }
}
