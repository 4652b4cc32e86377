//! When a lease begins, moves and ends.
//!
//! [`gone`] is the one place where a lock becomes free, whatever freed it; only those that a flush or a swap
//! takes away together go by [`flushed`] and [`swapped`]. Whoever is in line for it is served by
//! [`crate::waiting`].

use crate::lock::{Lease, TrackedLock, WallMs};
use crate::lock_hash::{self, Origin};
use crate::node::{self, Handoff, LockName, Node, Role};
use crate::server::{Access, Context, Key, ServerStr, ServerString};
use crate::unlocks::{self, Cause};

/// The wall clock by which leases begin.
pub fn wall_clock(ctx: Context<'_>) -> WallMs {
    WallMs(ctx.wall_clock_us() / 1000)
}

/// Records that the lock of this name has this lease, so that its end is noticed.
pub fn record(ctx: Context<'_>, name: ServerStr<'_>, lease: Lease, now: WallMs) {
    let db = ctx.db();
    node::with(|node| track(node, db, name.bytes(), lease, now));
}

/// Puts a lock into the table.
pub fn track(node: &mut Node, db: u32, name: &[u8], lease: Lease, now: WallMs) {
    let clock = node.now();
    let end = match lease {
        // The server shows a key until the millisecond of its expiry is over.
        Lease::Until(end) => Some(clock.plus(end.0.saturating_sub(now.0).max(0).unsigned_abs() + 1)),
        Lease::Endless => None,
    };
    if let Some(end) = end {
        node.grace_period.note_lease(end);
    }
    if let Some(wake) = node.leases.track(db, name, end, clock) {
        node.want_lease(wake);
    }
}

/// The lock of this name in the selected database has become free: takes it off the record, and tells of it.
/// Where somebody is in line for it, nobody else is told: the lock waits to be handed over.
///
/// An end that the module did not make itself counts only for a lock on record.
pub fn gone(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause) {
    let db = ctx.db();
    let (known, role) = node::with(|node| (node.leases.remove(db, name.bytes()), node.role));
    if role != Role::Master || !(cause.is_own() || known.is_some()) {
        return;
    }
    unlocks::note(ctx, name, cause, known);
    let hands_over = node::with(|node| {
        let hands_over = node.hands_over(db, name.bytes());
        if hands_over {
            node.turn.freed.insert(LockName { db, name: name.bytes().into() });
        }
        hands_over
    });
    match (hands_over, cause.is_own()) {
        (true, _) => {}
        (false, true) => unlocks::publish(ctx, name.bytes()),
        (false, false) => unlocks::publish_in_handler(ctx, name.bytes()),
    }
}

/// Takes all locks of a database off the record, or (`None`) of all. Which of them are free shows when the
/// turn ends.
pub fn flushed(db: Option<u32>) {
    node::with(|node| {
        let locks = node.leases.drain(db);
        judge_later(node, locks);
    });
}

/// The locks of two databases have changed places.
pub fn swapped(first: u32, second: u32) {
    node::with(|node| {
        let locks = node.leases.swap(first, second);
        let handoffs = std::mem::take(&mut node.turn.handoffs).into_iter();
        node.turn.handoffs = handoffs.map(|(lock, handoff)| (lock.swapped(first, second), handoff)).collect();
        judge_later(node, locks);
    });
}

fn judge_later(node: &mut Node, locks: Vec<TrackedLock>) {
    if node.role == Role::Master {
        node.turn.flushed.extend(locks);
        review_lines(node);
    }
}

/// Has all lines looked at when the turn ends.
pub fn review_lines(node: &mut Node) {
    if node.lines.waiting() > 0 {
        node.turn.sweep = Some(0);
    }
}

/// Opens a lock's key to write, which makes the server reap it if it has expired, and propagate that. The
/// server's own event then says that it is gone; where there is no key and no event, this does.
pub fn end_lease(ctx: Context<'_>, lock: &TrackedLock) {
    if !ctx.select(lock.db) {
        return;
    }
    let name = ServerString::new(&lock.name);
    let Some(key) = Key::open(ctx, name.as_str(), Access::Write) else { return };
    if key.is_empty() {
        gone(ctx, name.as_str(), Cause::Expired);
    } else {
        // Somebody has moved the lease, or put something else there, without an event; or the wall clock
        // was stepped back.
        look_again(ctx, name.as_str(), &key);
    }
}

/// Takes note of the token of every lock on record. A replica does not hear of a token that was raised while
/// the lease stayed as it was.
pub fn observe_tokens(ctx: Context<'_>) {
    let locks: Vec<_> =
        node::with(|node| node.leases.names().map(|(db, name)| (db, name.to_vec())).collect());
    for (db, name) in locks {
        let name = ServerString::new(&name);
        if ctx.select(db)
            && let Some(key) = Key::open(ctx, name.as_str(), Access::Read)
            && let Some(token) = lock_hash::token(&key)
        {
            node::with(|node| node.tokens.observe(token));
        }
    }
}

/// A key that somebody else has touched: a held lock of ours goes on record with the lease that its key has
/// now, and a lock on record that is none any more is gone.
pub fn review(ctx: Context<'_>, name: ServerStr<'_>) {
    match Key::open(ctx, name, Access::Read) {
        Some(key) => look_again(ctx, name, &key),
        None => gone(ctx, name, Cause::Vanished),
    }
}

/// A key has come from another name, another database, or from outside.
pub fn arrived(ctx: Context<'_>, name: ServerStr<'_>) {
    if node::with(|node| !node.turn.handoffs.is_empty())
        && let Some(key) = Key::open(ctx, name, Access::Read)
        && let Some(token) = lock_hash::token(&key)
    {
        let lock = LockName { db: ctx.db(), name: name.bytes().into() };
        node::with(|node| follow(node, lock, token));
    }
    review(ctx, name);
}

/// A lock that was handed over in this turn may have been renamed or moved before its holder was told.
fn follow(node: &mut Node, lock: LockName, token: u64) {
    let is_it = |(at, handoff): &(&LockName, &Handoff)| {
        handoff.token == token && !node.leases.contains(at.db, &at.name)
    };
    let Some(before) = node.turn.handoffs.iter().find(is_it).map(|(at, _)| at.clone()) else { return };
    let Some(handoff) = node.turn.handoffs.remove(&before) else { return };
    if let Some(overwritten) = node.turn.handoffs.insert(lock, handoff) {
        // Who had got the lock of that name, and lost it again, is still to be told.
        node.turn.tell_all(overwritten);
    }
}

fn look_again(ctx: Context<'_>, name: ServerStr<'_>, key: &Key<'_>) {
    if let Some(token) = lock_hash::token(key) {
        node::with(|node| node.tokens.observe(token));
    }
    let known = || node::with(|node| node.leases.contains(ctx.db(), name.bytes()));
    match lock_hash::held(key) {
        Some(Origin::Ours) => {}
        // Its owner has renewed or re-entered it through the module.
        Some(Origin::Redisson) if known() => {}
        _ => return gone(ctx, name, Cause::Vanished),
    }
    record(ctx, name, lock_hash::lease(key), wall_clock(ctx));
}
