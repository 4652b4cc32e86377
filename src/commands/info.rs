//! `LOCK.INFO`

use super::options::{Known, Options};
use crate::leases::wall_clock;
use crate::lock::{Record, WallMs};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node;
use crate::refusal::Refusal;
use crate::server::{Arg, ArgKind, Args, Command, Context, KeyUse, ServerStr, ServerString, Spec};
use crate::turn;

/// `LOCK.INFO key [WAITERS count]`
///
/// Tells who holds the lock, and how many wait in line for it. It works on replicas too, where nobody does.
///
/// Replies with a map (with RESP2 a flat array): `state` (`held` or `free`), `owner` (null where free),
/// `holds`, `ttl` (−2 where free, −1 where endless), `token` (0 where there is none), `waiters`
/// and `grace` (the node's grace period, in milliseconds); with WAITERS also `line`: of the first `count` in line the owner, and how many milliseconds it has waited.
pub struct Info<'a> {
    key: ServerStr<'a>,
    count: Option<u64>,
}

/// Who is in line.
struct Line {
    waiters: u32,
    /// The grace period of this node, in milliseconds.
    grace: u64,
    first: Option<Vec<(ServerString, u64)>>,
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
        arity: -2,
        summary: c"Tells who holds a lock, and who waits for it.",
        since: c"0.1.0",
        args: &[Arg::required(c"key", ArgKind::Key), Arg::option(c"count", c"WAITERS")],
    };

    fn run(ctx: Context<'_>, args: Args<'_>) {
        match Info::parse(args).and_then(|request| Ok((request.apply(ctx)?, request.line(ctx)))) {
            Ok((reply, line)) => reply.send(ctx, &line),
            Err(refusal) => refusal.reply(ctx),
        }
        turn::settle(ctx);
    }
}

impl<'a> Info<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let [key, options @ ..] = args.as_slice() else { return Err(Refusal::WrongArity) };
        let options = Options::parse(options, &[Known::Waiters])?;
        Ok(Self { key: *key, count: options.waiters()? })
    }

    fn apply(&self, ctx: Context<'_>) -> Result<Reply, Refusal> {
        let now = wall_clock(ctx);
        match LockKey::peek(ctx, self.key)? {
            None => Ok(Reply::Free),
            Some(key) => Self::look(&key, now),
        }
    }

    fn line(&self, ctx: Context<'_>) -> Line {
        let (db, name) = (ctx.db(), self.key.bytes());
        node::with(|node| {
            let now = node.now();
            let first = self.count.map(|count| {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let queue = node.lines.queue(db, name).take(count);
                queue.map(|(owner, since)| (ServerString::new(owner), now.since(since))).collect()
            });
            Line { waiters: node.lines.len(db, name), grace: node.grace_period.length(now), first }
        })
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
    fn send(&self, ctx: Context<'_>, line: &Line) {
        let (state, owner, holds, ttl, token) = match self {
            Self::Free => ("free", None, 0, -2, 0),
            Self::Held { owner, holds, ttl, token } => ("held", owner.as_ref(), *holds, *ttl, *token),
        };
        ctx.reply_map(if line.first.is_some() { 8 } else { 7 });
        ctx.reply_bytes(b"state");
        ctx.reply_bytes(state.as_bytes());
        ctx.reply_bytes(b"owner");
        match owner {
            Some(owner) => ctx.reply_bytes(owner.as_str().bytes()),
            None => ctx.reply_null(),
        }
        let integers = [
            ("holds", holds.cast_signed()),
            ("ttl", ttl),
            ("token", token.cast_signed()),
            ("waiters", i64::from(line.waiters)),
            ("grace", line.grace.cast_signed()),
        ];
        for (name, value) in integers {
            ctx.reply_bytes(name.as_bytes());
            ctx.reply_integer(value);
        }
        if let Some(first) = &line.first {
            ctx.reply_bytes(b"line");
            ctx.reply_array(first.len());
            for (owner, waited) in first {
                ctx.reply_array(2);
                ctx.reply_bytes(owner.as_str().bytes());
                ctx.reply_integer(waited.cast_signed());
            }
        }
    }
}
