//! `LOCK.ACQUIRE`

use super::options::{self, Known, Options};
use super::wall_clock;
use crate::leases;
use crate::lock::{self, Ask, Attempt, Entry, Grant, Lease, Record};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};

/// `LOCK.ACQUIRE key owner ttl [HOLDS n] [TOKEN t]`
///
/// Takes the lock for `owner`, or adds a hold where `owner` has it, for `ttl` milliseconds from now. A
/// re-entry never shortens the lease. `HOLDS n` names the hold count to have afterwards instead of one
/// more, so that a retry changes nothing. `TOKEN t` sets the least fencing token.
///
/// Replies with an array of three integers: the owner's holds (0: denied), the milliseconds left of the
/// lease that stands now (−1: endless), and its fencing token.
pub struct Acquire<'a> {
    key: ServerStr<'a>,
    owner: ServerStr<'a>,
    ask: Ask,
}

/// The reply's three integers.
struct Reply {
    holds: u64,
    ttl: i64,
    token: u64,
}

impl Command for Acquire<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.acquire",
        flags: c"write deny-oom fast",
        categories: c"write fast",
        key: KeyUse::Update,
        arity: -4,
        summary: c"Takes a lock, or adds a hold to it.",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"owner", ArgKind::Text),
            Arg::required(c"ttl", ArgKind::Integer),
            Arg::option(c"holds", c"HOLDS"),
            Arg::option(c"token", c"TOKEN"),
        ],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Acquire::parse(ctx, args).and_then(|request| request.apply(ctx)) {
            Ok(reply) => reply.send(ctx),
            Err(refusal) => refusal.reply(ctx),
        }
    }
}

impl<'a> Acquire<'a> {
    fn parse(ctx: Context<'_>, args: Args<'a>) -> Result<Self, Refusal> {
        let [key, owner, ttl, options @ ..] = args.as_slice() else { return Err(Refusal::WrongArity) };
        let options = Options::parse(options, &[Known::Holds, Known::Token])?;
        Ok(Self {
            key: *key,
            owner: options::owner(*owner)?,
            ask: Ask { ttl: options::ttl(*ttl)?, holds: options.holds(1)?, token: options.token(ctx)? },
        })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let now = wall_clock(ctx);
        let key = LockKey::open(ctx, self.key)?;
        let record = key.record(Some(self.owner), Detail::All)?;
        let lease = match record {
            // A transaction may pause writes itself and go on. Then the server hides an expired key, but
            // does not reap it, and a write to such a key would end the process.
            Record::Free { .. } if ctx.writes_paused() => return Err(Refusal::Paused),
            Record::Free { .. } => Lease::Until(now),
            Record::Mine { .. } | Record::Other { .. } => key.lease(),
        };
        let attempt = node::with(|node| {
            let attempt = lock::acquire(record, lease, self.ask, now, &mut node.tokens);
            match attempt {
                Ok(Attempt::Denied { .. }) => node.metrics.denied += 1,
                Ok(Attempt::Granted(Grant { entry: Entry::First, .. })) => node.metrics.granted += 1,
                Ok(Attempt::Granted(Grant { entry: Entry::Again, .. })) => node.metrics.reentered += 1,
                Err(_) => {}
            }
            attempt
        });
        match attempt.map_err(Refusal::Exhausted)? {
            Attempt::Denied { token } => Ok(Reply { holds: 0, ttl: lease.left(now), token }),
            Attempt::Granted(grant) => {
                key.write(self.owner, grant.writes);
                leases::record(ctx, self.key, grant.lease, now);
                if grant.entry == Entry::First {
                    ctx.notify(c"lock.acquired", self.key);
                }
                Ok(Reply { holds: grant.holds, ttl: grant.lease.left(now), token: grant.token })
            }
        }
    }
}

impl Reply {
    fn send(&self, ctx: Context<'_>) {
        // Counts and tokens stay below 2⁵³.
        ctx.reply_array(3);
        ctx.reply_integer(self.holds.cast_signed());
        ctx.reply_integer(self.ttl);
        ctx.reply_integer(self.token.cast_signed());
    }
}
