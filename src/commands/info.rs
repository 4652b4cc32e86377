//! `LOCK.INFO`

use super::wall_clock;
use crate::lock::{Record, WallMs};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, ServerString, Spec};

/// `LOCK.INFO key`
///
/// Tells who holds the lock. It works on replicas too.
///
/// Replies with a map (with RESP2 a flat array): `state` (`held` or `free`), `owner` (null where free),
/// `holds`, `ttl` (−2 where free, −1 where endless), `token` (0 where there is none) and `waiters`.
pub struct Info<'a> {
    key: ServerStr<'a>,
}

enum Reply {
    Free,
    Held { owner: Option<ServerString>, holds: u64, ttl: i64, token: u64 },
}

impl Command for Info<'_> {
    const SPEC: Spec = Spec {
        name: c"lock.info",
        flags: c"readonly fast",
        categories: c"read fast",
        key: KeyUse::Read,
        arity: 2,
        summary: c"Tells who holds a lock.",
        since: c"0.1.0",
        args: &[Arg::required(c"key", ArgKind::Key)],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Info::parse(args).and_then(|request| request.apply(ctx)) {
            Ok(reply) => reply.send(ctx),
            Err(refusal) => refusal.reply(ctx),
        }
    }
}

impl<'a> Info<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key] = args.as_slice() else { return Err(Refusal::WrongArity) };
        Ok(Self { key: *key })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let now = wall_clock(ctx);
        match LockKey::peek(ctx, self.key)? {
            None => Ok(Reply::Free),
            Some(key) => Self::look(&key, now),
        }
    }

    fn look(key: &LockKey<'_>, now: WallMs) -> Result<Reply, Refusal> {
        let Record::Other { mut token } = key.record(None, Detail::All)? else { return Ok(Reply::Free) };
        let owner = key.first_owner();
        let mut holds = 0;
        if let Some(owner) = &owner
            && let Record::Mine { holds: count, token: own, .. } =
                key.record(Some(owner.as_str()), Detail::All)?
        {
            (holds, token) = (count, own);
        }
        Ok(Reply::Held { owner, holds, ttl: key.lease().left(now), token })
    }
}

impl Reply {
    fn send(&self, ctx: Context<'_>) {
        let (state, owner, holds, ttl, token) = match self {
            Self::Free => ("free", None, 0, -2, 0),
            Self::Held { owner, holds, ttl, token } => ("held", owner.as_ref(), *holds, *ttl, *token),
        };
        ctx.reply_map(6);
        ctx.reply_bytes(b"state");
        ctx.reply_bytes(state.as_bytes());
        ctx.reply_bytes(b"owner");
        match owner {
            Some(owner) => ctx.reply_bytes(owner.as_str().bytes()),
            None => ctx.reply_null(),
        }
        let integers =
            [("holds", holds.cast_signed()), ("ttl", ttl), ("token", token.cast_signed()), ("waiters", 0)];
        for (name, value) in integers {
            ctx.reply_bytes(name.as_bytes());
            ctx.reply_integer(value);
        }
    }
}
