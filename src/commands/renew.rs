//! `LOCK.RENEW`

use super::options::{self, Known, Options};
use crate::leases::{self, wall_clock};
use crate::lock::{self, Hold, Lease, Record};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};
use crate::turn;
use crate::waiting;

/// `LOCK.RENEW key owner ttl [TOKEN t]`
///
/// Makes the lease the longer of what is left and `ttl` milliseconds from now. `TOKEN t` raises the hold's
/// fencing token to at least `t`.
///
/// Replies with 1, or 0 where `owner` does not hold the lock; then nothing has changed.
pub struct Renew<'a> {
    key: ServerStr<'a>,
    owner: ServerStr<'a>,
    ttl: u64,
    token: u64,
}

enum Reply {
    Renewed,
    NotHeld,
}

impl Command for Renew<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.renew",
        flags: c"write fast",
        categories: c"write fast",
        key: KeyUse::BlindUpdate,
        arity: -4,
        summary: c"Lengthens the lease of a lock that the owner holds.",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"owner", ArgKind::Text),
            Arg::required(c"ttl", ArgKind::Integer),
            Arg::option(c"token", c"TOKEN"),
        ],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Renew::parse(args).and_then(|request| request.apply(ctx)) {
            Ok(Reply::Renewed) => ctx.reply_integer(1),
            Ok(Reply::NotHeld) => ctx.reply_integer(0),
            Err(refusal) => refusal.reply(ctx),
        }
        turn::settle(ctx);
    }
}

impl<'a> Renew<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key, owner, ttl, options @ ..] = args.as_slice() else { return Err(Refusal::WrongArity) };
        let options = Options::parse(options, &[Known::Token])?;
        Ok(Self {
            key: *key,
            owner: options::owner(*owner)?,
            ttl: options::ttl(*ttl)?,
            token: options.token()?,
        })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let now = wall_clock(ctx);
        let key = LockKey::open(ctx, self.key)?;
        let record = key.record(Some(self.owner), Detail::All)?;
        let lease = key.lease();
        let writes = node::with(|node| {
            let writes = lock::renew(record, lease, self.ttl, self.token, now, &mut node.tokens);
            node.metrics.renewed += u64::from(writes.is_some());
            writes
        });
        let Some(writes) = writes else {
            drop(key);
            waiting::serve_if_freed(ctx, self.key, Some(record));
            return Ok(Reply::NotHeld);
        };
        waiting::confirm(ctx, self.key, self.owner);
        key.write(self.owner, writes);
        if let Record::Mine { holds, token, .. } = record {
            let hold = Hold { owner: self.owner.bytes(), holds, token: writes.token.unwrap_or(token) };
            leases::record(ctx, self.key, hold, writes.lease_end.map_or(lease, Lease::Until));
        }
        if writes.lease_end.is_some() {
            ctx.notify(c"lock.renewed", self.key);
        }
        Ok(Reply::Renewed)
    }
}
