//! `LOCK.RELEASE`

use super::options::{self, Known, Options};
use crate::leases;
use crate::lock::{self, Record, Released};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, Spec};
use crate::turn;
use crate::unlocks::Cause;
use crate::waiting;

/// `LOCK.RELEASE key owner [HOLDS n]`
///
/// Gives one hold back, or all down to `n`; the lease stays as it is. With the last hold the lock is free: the
/// first in line has it then, or, where nobody is, its subscribers are told. `HOLDS 0` also takes the owner's
/// requests out of the line.
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
        turn::settle(ctx);
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
        let record = key.record(Some(self.owner), Detail::NoToken)?;
        if self.keep == Some(0) {
            let withdrawn = waiting::withdraw(ctx, self.key, self.owner);
            let left = self.give_back(ctx, key, record);
            withdrawn.deny(ctx, self.key);
            Ok(left)
        } else {
            waiting::confirm(ctx, self.key, self.owner);
            Ok(self.give_back(ctx, key, record))
        }
    }

    fn give_back(&self, ctx: Context<'_>, key: LockKey<'_>, record: Record) -> Option<u64> {
        let left = match lock::release(record, self.keep) {
            Released::NotHeld => {
                drop(key);
                None
            }
            Released::Left => {
                key.remove_owner(self.owner);
                Some(0)
            }
            Released::Free => {
                key.delete();
                leases::gone(ctx, self.key, Cause::Released);
                Some(0)
            }
            Released::Kept { holds, writes } => {
                key.write(self.owner, writes);
                leases::recount(ctx, self.key, holds);
                Some(holds)
            }
        };
        waiting::serve_if_freed(ctx, self.key, Some(record));
        left
    }
}
