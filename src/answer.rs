//! The reply of an ACQUIRE, at once or after a wait.

use crate::refusal::Refusal;
use crate::server::Context;

/// What an ACQUIRE is told.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// How the lock stands towards its owner.
    Standing(Standing),
    /// Nobody can have the lock.
    Refused(Refusal),
}

/// How a lock stands towards an owner: the reply of an ACQUIRE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The owner's holds; 0: denied.
    pub holds: u64,
    /// The milliseconds left of the lease that stands now; −1 where it is endless, 0 where nobody holds the
    /// lock.
    pub ttl: i64,
    /// The token of the hold that stands now, 0 where there is none.
    pub token: u64,
}

impl Answer {
    /// Replies with it.
    pub fn send(self, ctx: Context<'_>) {
        match self {
            Self::Refused(refusal) => refusal.reply(ctx),
            Self::Standing(Standing { holds, ttl, token }) => {
                // Counts and tokens stay below 2⁵³.
                ctx.reply_array(3);
                ctx.reply_integer(holds.cast_signed());
                ctx.reply_integer(ttl);
                ctx.reply_integer(token.cast_signed());
            }
        }
    }
}
