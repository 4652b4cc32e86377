//! A lock that becomes free is handed to the first in its line.

use super::request::{dismiss, leave, stands};
use crate::answer::{Answer, Standing};
use crate::leases::{self, wall_clock};
use crate::lock::{self, Ask, Attempt, Entry, Grant, Hold, Lease, Record, Ticket, WallMs};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node::{self, Handoff, LockName, Recipient, Role};
use crate::refusal::Refusal;
use crate::server::{Context, ServerStr, ServerString};
use crate::unlocks::{self, Cause};

/// What came of serving a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Nobody waits in front of a free lock.
    Done,
    /// The node can't grant anything now: to be tried again.
    Barred,
}

/// The lock's last hold is gone by a command: tells of it, or hands the lock to the first in line.
pub fn freed(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause) {
    leases::gone(ctx, name, cause);
    serve_if_freed(ctx, name, None);
}

/// Serves the line for this lock if it has become free meanwhile (by the command that runs, or found expired by
/// it), or if the command has found it free.
pub fn serve_if_freed(ctx: Context<'_>, name: ServerStr<'_>, found: Option<Record>) {
    if matches!(found, Some(Record::Free { .. })) && stands(ctx, name) {
        serve(ctx, name);
        return;
    }
    if node::with(|node| node.turn.freed.is_empty() && node.turn.barred.is_empty()) {
        return;
    }
    let lock = LockName { db: ctx.db(), name: name.bytes().into() };
    if node::with(|node| node.turn.freed.contains(&lock) || node.turn.barred.contains(&lock)) {
        serve(ctx, name);
    }
}

/// Hands the lock of this name to the first in line, if it is free. Where nobody is left in line, the unlock
/// is published.
pub fn serve(ctx: Context<'_>, name: ServerStr<'_>) -> Served {
    if node::with(|node| node.role == Role::Replica || node.grace.is_some()) {
        return Served::Done;
    }
    if ctx.writes_paused() {
        return Served::Barred;
    }
    let db = ctx.db();
    while let Some(ticket) = node::with(|node| node.lines.first(db, name.bytes())) {
        match serve_first(ctx, name, ticket) {
            Ok(Turnout::NextPlease) => {}
            Ok(Turnout::Settled) => {
                strike_off(db, name);
                return Served::Done;
            }
            Ok(Turnout::Barred) => return Served::Barred,
            Err(refusal) => refuse_all(db, name, refusal),
        }
    }
    if strike_off(db, name) && !is_held(ctx, name) {
        unlocks::publish(ctx, name.bytes());
    }
    Served::Done
}

/// Takes a lock off the lists of those that became free; was it there?
fn strike_off(db: u32, name: ServerStr<'_>) -> bool {
    if node::with(|node| node.turn.freed.is_empty() && node.turn.barred.is_empty()) {
        return false;
    }
    let lock = LockName { db, name: name.bytes().into() };
    node::with(|node| node.turn.freed.remove(&lock) | node.turn.barred.remove(&lock))
}

fn is_held(ctx: Context<'_>, name: ServerStr<'_>) -> bool {
    let record = LockKey::peek(ctx, name).ok().flatten().map(|key| key.record(None, Detail::NoToken));
    matches!(record, Some(Ok(Record::Mine { .. } | Record::Other { .. })))
}

/// What came of serving the first in line.
enum Turnout {
    /// The lock is held now, by the first in line or by somebody else.
    Settled,
    /// The first has left without the lock.
    NextPlease,
    /// The node can't grant anything now.
    Barred,
}

fn serve_first(ctx: Context<'_>, name: ServerStr<'_>, ticket: Ticket) -> Result<Turnout, Refusal> {
    let Some(first) = node::with(|node| node.lines.owner(ticket).map(ServerString::new)) else {
        return Ok(Turnout::NextPlease);
    };
    let key = LockKey::open(ctx, name)?;
    let owner = match key.record(Some(first.as_str()), Detail::All)? {
        Record::Free { .. } if !ctx.is_command() && !ctx.accepts_writes(name) => return Ok(Turnout::Barred),
        Record::Free { .. } | Record::Mine { .. } => first,
        Record::Other { .. } => {
            // A script of another kind took it meanwhile: its end must be noticed, and if its holder is in
            // line, it must not wait for itself.
            key.learn();
            match key.first_owner().filter(|holder| is_in_line(ctx, name, holder.as_str())) {
                Some(holder) => holder,
                None => return Ok(Turnout::Settled),
            }
        }
    };
    drop(key);
    Ok(grant_all(ctx, name, owner.as_str()))
}

fn is_in_line(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) -> bool {
    let db = ctx.db();
    node::with(|node| node.lines.first_of(db, name.bytes(), owner.bytes()).is_some())
}

/// Grants all requests of an owner whom nobody stands against. They are told at the end of the turn.
fn grant_all(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) -> Turnout {
    let db = ctx.db();
    let owner_name = owner.bytes().into();
    let mut handoff =
        Handoff { owner: owner_name, before: 0, token: 0, lease: Lease::Endless, recipients: Vec::new() };
    while let Some(ticket) = node::with(|node| node.lines.first_of(db, name.bytes(), owner.bytes())) {
        if let Err(refusal) = grant(ctx, name, owner, ticket, &mut handoff) {
            dismiss(ticket, Answer::Refused(refusal));
        }
    }
    if handoff.recipients.is_empty() {
        return Turnout::NextPlease;
    }
    node::with(|node| {
        let lock = LockName { db, name: name.bytes().into() };
        if let Some(earlier) = node.turn.handoffs.insert(lock, handoff) {
            node.turn.tell_all(earlier);
        }
    });
    Turnout::Settled
}

/// Grants one request of an owner whom nobody stands against.
fn grant(
    ctx: Context<'_>,
    name: ServerStr<'_>,
    owner: ServerStr<'_>,
    ticket: Ticket,
    handoff: &mut Handoff,
) -> Result<(), Refusal> {
    let now = wall_clock(ctx);
    let key = LockKey::open(ctx, name)?;
    let record = key.record(Some(owner), Detail::All)?;
    let lease = key.lease();
    let Some((ask, attempt)) = node::with(|node| {
        let mut ask = node.lines.get(ticket)?.ask;
        // The bound may have been lowered since.
        ask.ttl = ask.ttl.min(node.longest_lease());
        Some((ask, lock::acquire(record, lease, ask, now, node.tokens_to_give())))
    }) else {
        return Ok(());
    };
    match attempt {
        Ok(Attempt::Granted(grant)) => {
            key.write(owner, grant.writes);
            let hold = Hold { owner: owner.bytes(), holds: grant.holds, token: grant.token };
            leases::record(ctx, name, hold, grant.lease);
            if let (true, Record::Mine { holds, .. }) = (handoff.recipients.is_empty(), record) {
                handoff.before = holds;
            }
            hand_over(ticket, ask, grant, now, handoff);
            if grant.entry == Entry::First {
                ctx.notify(c"lock.acquired", name);
            }
        }
        Ok(Attempt::Denied { token }) => {
            dismiss(ticket, Answer::Standing(Standing { holds: 0, ttl: lease.left(now), token }));
        }
        Err(exhausted) => dismiss(ticket, Answer::Refused(Refusal::Exhausted(exhausted))),
    }
    Ok(())
}

fn hand_over(ticket: Ticket, ask: Ask, grant: Grant, now: WallMs, handoff: &mut Handoff) {
    node::with(|node| {
        match grant.entry {
            Entry::First => node.metrics.granted += 1,
            Entry::Again => node.metrics.reentered += 1,
        }
        node.metrics.handed_over += 1;
        let Some(client) = leave(node, ticket) else { return };
        let standing = Standing { holds: grant.holds, ttl: grant.lease.left(now), token: grant.token };
        (handoff.token, handoff.lease) = (grant.token, grant.lease);
        handoff.recipients.push(Recipient { client, asked: ask.holds, standing });
    });
}

fn refuse_all(db: u32, name: ServerStr<'_>, refusal: Refusal) {
    while let Some(ticket) = node::with(|node| node.lines.first(db, name.bytes())) {
        dismiss(ticket, Answer::Refused(refusal));
    }
}
