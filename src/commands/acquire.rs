//! `LOCK.ACQUIRE`

use super::options::{self, Known, Options};
use crate::answer::{Answer, Standing};
use crate::leases::{self, wall_clock};
use crate::lock::{self, Ask, Attempt, Entry, Grant, Hold, Lease, Record};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};
use crate::turn;
use crate::waiting::{self, Joined};

/// `LOCK.ACQUIRE key owner ttl [HOLDS n] [TOKEN t] [BLOCK timeout]`
///
/// Takes the lock for `owner`, or adds a hold where `owner` has it, for `ttl` milliseconds from now. A
/// re-entry never shortens the lease. `HOLDS n` names the hold count to have afterwards instead of one
/// more, so that a retry changes nothing. `TOKEN t` sets the least fencing token. `BLOCK timeout` waits in line
/// for up to so many milliseconds (0: without end) where somebody else holds the lock; the lease then begins
/// with the grant.
///
/// Replies with an array of three integers: the owner's holds (0: denied), the milliseconds left of the
/// lease that stands now (−1: endless), and its fencing token.
pub struct Acquire<'a> {
    key: ServerStr<'a>,
    owner: ServerStr<'a>,
    ask: Ask,
    /// For how many milliseconds it would wait in line, if at all.
    block: Option<u64>,
}

enum Reply {
    Now(Standing),
    /// It waits in line.
    Later,
}

impl Command for Acquire<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.acquire",
        flags: c"write deny-oom fast blocking",
        categories: c"write fast blocking",
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
            Arg::option(c"timeout", c"BLOCK"),
        ],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Acquire::parse(args).and_then(|request| request.apply(ctx)) {
            Ok(Reply::Now(standing)) => {
                if standing.holds == 0 {
                    node::with(|node| node.metrics.denied += 1);
                }
                Answer::Standing(standing).send(ctx);
            }
            Ok(Reply::Later) => {}
            Err(refusal) => refusal.reply(ctx),
        }
        turn::settle(ctx);
    }
}

impl<'a> Acquire<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key, owner, ttl, options @ ..] = args.as_slice() else { return Err(Refusal::WrongArity) };
        let options = Options::parse(options, &[Known::Holds, Known::Token, Known::Block])?;
        Ok(Self {
            key: *key,
            owner: options::owner(*owner)?,
            ask: Ask { ttl: options::ttl(*ttl)?, holds: options.holds(1)?, token: options.token()? },
            block: options.block()?,
        })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let mut key = LockKey::open(ctx, self.key)?;
        let mut record = key.record(Some(self.owner), Detail::All)?;
        let has_line = matches!(record, Record::Free { .. }) && waiting::stands(ctx, self.key);
        if has_line {
            // Who is in line comes first.
            drop(key);
            waiting::serve(ctx, self.key);
            key = LockKey::open(ctx, self.key)?;
            record = key.record(Some(self.owner), Detail::All)?;
        }
        let now = wall_clock(ctx);
        if let Some(left) = node::with(|node| node.grace_left()) {
            return self.wait_out_grace(ctx, key, left);
        }
        let lease = match record {
            // A transaction may pause writes itself and go on. Then the server hides an expired key, but
            // does not reap it, and a write to such a key would end the process.
            Record::Free { .. } if ctx.writes_paused() => return Err(Refusal::Paused),
            Record::Free { .. } if has_line && waiting::stands(ctx, self.key) => {
                return self.wait(ctx, key, Standing::default());
            }
            Record::Free { .. } => Lease::Until(now),
            Record::Mine { .. } | Record::Other { .. } => key.lease(),
        };
        let attempt = node::with(|node| {
            let attempt = lock::acquire(record, lease, self.ask, now, node.tokens_to_give());
            match attempt {
                Ok(Attempt::Granted(Grant { entry: Entry::First, .. })) => node.metrics.granted += 1,
                Ok(Attempt::Granted(Grant { entry: Entry::Again, .. })) => node.metrics.reentered += 1,
                _ => {}
            }
            attempt
        });
        match attempt.map_err(Refusal::Exhausted)? {
            Attempt::Denied { token } => {
                self.wait(ctx, key, Standing { holds: 0, ttl: lease.left(now), token })
            }
            Attempt::Granted(grant) => {
                key.write(self.owner, grant.writes);
                let hold = Hold { owner: self.owner.bytes(), holds: grant.holds, token: grant.token };
                leases::record(ctx, self.key, hold, grant.lease);
                match grant.entry {
                    Entry::First => ctx.notify(c"lock.acquired", self.key),
                    Entry::Again => waiting::confirm(ctx, self.key, self.owner),
                }
                let ttl = grant.lease.left(now);
                Ok(Reply::Now(Standing { holds: grant.holds, ttl, token: grant.token }))
            }
        }
    }

    /// During the grace even a lock that seems free may be held.
    fn wait_out_grace(&self, ctx: Context<'_>, key: LockKey<'_>, left: u64) -> Result<Reply, Refusal> {
        match self.wait(ctx, key, Standing::default())? {
            Reply::Later => Ok(Reply::Later),
            Reply::Now(_) => Err(Refusal::Grace { left }),
        }
    }

    /// Waits, if it wants to and may, for a lock that somebody else holds, or that is for those in line; is denied
    /// otherwise.
    fn wait(&self, ctx: Context<'_>, key: LockKey<'_>, denied: Standing) -> Result<Reply, Refusal> {
        drop(key);
        if let Some(timeout) = self.block
            && waiting::join(ctx, self.key, self.owner, self.ask, timeout)? == Joined::InLine
        {
            leases::learn_of_holder(ctx, self.key);
            return Ok(Reply::Later);
        }
        Ok(Reply::Now(denied))
    }
}
