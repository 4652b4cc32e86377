//! `LOCK.FORCERELEASE`

use crate::leases;
use crate::lock::Record;
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};
use crate::turn;
use crate::unlocks::Cause;
use crate::waiting;

/// `LOCK.FORCERELEASE key`
///
/// Takes the lock away from whoever holds it, Redisson's read-write locks too. Whoever waits for it is told;
/// the holder is not: it is for operators.
///
/// Replies with 1, or 0 where nobody holds the lock.
pub struct ForceRelease<'a> {
    key: ServerStr<'a>,
}

enum Reply {
    WasHeld,
    WasFree,
}

impl Command for ForceRelease<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.forcerelease",
        flags: c"write fast",
        categories: c"write fast dangerous",
        key: KeyUse::BlindDelete,
        arity: 2,
        summary: c"Takes a lock away from whoever holds it.",
        since: c"0.1.0",
        args: &[Arg::required(c"key", ArgKind::Key)],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match ForceRelease::parse(args).and_then(|request| request.apply(ctx)) {
            Ok(Reply::WasHeld) => ctx.reply_integer(1),
            Ok(Reply::WasFree) => ctx.reply_integer(0),
            Err(refusal) => refusal.reply(ctx),
        }
        turn::settle(ctx);
    }
}

impl<'a> ForceRelease<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key] = args.as_slice() else { return Err(Refusal::WrongArity) };
        Ok(Self { key: *key })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let key = LockKey::open(ctx, self.key)?;
        let record = key.record(None, Detail::NoToken)?;
        let reply = match record {
            Record::Free { .. } => {
                drop(key);
                Reply::WasFree
            }
            Record::Mine { .. } | Record::Other { .. } => {
                key.delete();
                leases::gone(ctx, self.key, Cause::Forced);
                Reply::WasHeld
            }
        };
        waiting::serve_if_freed(ctx, self.key, Some(record));
        Ok(reply)
    }
}
