//! `LOCK.RELEASE`

use super::options::{self, Known, Options};
use crate::lock::{self, Released};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};
use crate::unlocks::Cause;

/// `LOCK.RELEASE key owner [HOLDS n]`
///
/// Gives one hold back, or all down to `n`; the lease stays as it is. With the last hold the lock is free,
/// and whoever waits for it is told.
///
/// Replies with the holds left (0: the lock is free), or null where `owner` does not hold it.
pub struct Release<'a> {
    key: ServerStr<'a>,
    owner: ServerStr<'a>,
    keep: Option<u64>,
}

impl Command for Release<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.release",
        flags: c"write fast",
        categories: c"write fast",
        key: KeyUse::Delete,
        arity: -3,
        summary: c"Gives holds of a lock back.",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"owner", ArgKind::Text),
            Arg::option(c"holds", c"HOLDS"),
        ],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Release::parse(args).and_then(|request| request.apply(ctx)) {
            Ok(Some(holds)) => ctx.reply_integer(holds.cast_signed()),
            Ok(None) => ctx.reply_null(),
            Err(refusal) => refusal.reply(ctx),
        }
    }
}

impl<'a> Release<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key, owner, options @ ..] = args.as_slice() else { return Err(Refusal::WrongArity) };
        let options = Options::parse(options, &[Known::Holds])?;
        Ok(Self { key: *key, owner: options::owner(*owner)?, keep: options.holds(0)? })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Option<u64>, Refusal> {
        let key = LockKey::open(ctx, self.key)?;
        match lock::release(key.record(Some(self.owner), Detail::NoToken)?, self.keep) {
            Released::NotHeld => Ok(None),
            Released::Left => {
                key.remove_owner(self.owner);
                Ok(Some(0))
            }
            Released::Free => {
                key.delete(Cause::Released);
                Ok(Some(0))
            }
            Released::Kept { holds, writes } => {
                key.write(self.owner, writes);
                Ok(Some(holds))
            }
        }
    }
}
