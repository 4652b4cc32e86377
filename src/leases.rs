//! When a lease begins, moves and ends, and who holds the lock until then.
//!
//! [`gone`] is the one place where a lock becomes free, whatever freed it; only those that a flush or a swap
//! takes away together go by [`flushed`] and [`swapped`]. Whoever is in line for it is served by
//! [`crate::waiting`].

use crate::clock;
use crate::lock::{CLOCK_TOLERANCE_MS, Expiry, Hold, Known, Lease, Term, TrackedLock, WallMs};
use crate::lock_hash::{self, Origin};
use crate::node::{self, Handoff, LockName, Node, Role};
use crate::server::{Access, Context, Key, ServerStr, ServerString};
use crate::unlocks::{self, Cause};

/// The wall clock by which leases begin.
pub fn wall_clock(ctx: Context<'_>) -> WallMs {
    WallMs(ctx.wall_clock_us() / 1000)
}

/// Looks whether somebody has stepped the wall clock, unless somebody looked a moment ago.
pub fn watch_clock(ctx: Context<'_>) {
    let now = wall_clock(ctx);
    if node::with(|node| std::mem::replace(&mut node.clocks_seen, now) != now) {
        check_clock(ctx);
    }
}

/// Looks whether somebody has stepped the wall clock. Then the TTLs of all keys on record have to be set anew, and
/// the timer, which the server keeps by that clock.
pub fn check_clock(ctx: Context<'_>) {
    let wall_clock = wall_clock(ctx);
    let timer = node::with(|node| {
        if !node.clocks_were_stepped(wall_clock) {
            return None;
        }
        node.metrics.clock_steps += 1;
        node.retiming = (node.leases.len() > 0).then_some(0);
        node.want_lease(node.now());
        node.timer.take()
    });
    if let Some((timer, _)) = timer {
        timer.stop(ctx);
    }
}

/// Records that the lock of this name has this holder and this lease.
pub fn record(ctx: Context<'_>, name: ServerStr<'_>, hold: Hold<'_>, lease: Lease) {
    let db = ctx.db();
    node::with(|node| track(node, db, name.bytes(), Some(hold), lease));
}

/// Records that the holder of the lock of this name has so many holds left.
pub fn recount(ctx: Context<'_>, name: ServerStr<'_>, holds: u64) {
    let db = ctx.db();
    node::with(|node| node.leases.recount(db, name.bytes(), holds));
}

/// Records what the hash at an open key of this database says.
pub fn learn(key: &Key<'_>, db: u32) {
    let (name, lease) = (key.name(), lock_hash::lease(key));
    let hold = lock_hash::hold(key);
    let hold = hold.as_ref().map(|(owner, holds, token)| Hold {
        owner: owner.as_str().bytes(),
        holds: *holds,
        token: *token,
    });
    node::with(|node| track(node, db, name.bytes(), hold, lease));
}

/// The same for a lock that somebody waits for, if nobody knew of it: it may be Redisson's.
pub fn learn_of_holder(ctx: Context<'_>, name: ServerStr<'_>) {
    let db = ctx.db();
    if node::with(|node| node.leases.contains(db, name.bytes())) {
        return;
    }
    if let Some(key) = Key::open(ctx, name, Access::Read)
        && lock_hash::held(&key).is_some()
    {
        learn(&key, db);
    }
}

fn track(node: &mut Node, db: u32, name: &[u8], hold: Option<Hold<'_>>, lease: Lease) {
    let term = match lease {
        Lease::Until(end) => Term { lease_end: node.clocks.lease_end(end), expiry: Expiry::At(end) },
        Lease::Endless => Term { lease_end: None, expiry: Expiry::Never },
    };
    if let Some(end) = term.lease_end {
        node.grace_period.note_lease(end);
    }
    let now = node.now();
    if let Some(wake) = node.leases.track(db, name, Known { term, hold }, now) {
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

/// The server has reaped the key of a lock on record. That is the end of the lock, unless its lease has not ended
/// yet: then somebody has stepped the clock.
pub fn reaped(ctx: Context<'_>, name: ServerStr<'_>) {
    check_clock(ctx);
    let db = ctx.db();
    // Some servers announce an EXPIRE into the past in the same way. The key was not due then.
    let was_due = node::with(|node| {
        let known = node.leases.get(db, name.bytes());
        known.is_some_and(|known| may_be_lost(known.term.expiry))
    });
    if !(was_due && outlives_key(db, name, CLOCK_TOLERANCE_MS)) {
        gone(ctx, name, Cause::Expired);
    }
}

/// The server has evicted the key of a lock on record. The lock is held until its lease ends.
pub fn evicted(ctx: Context<'_>, name: ServerStr<'_>) {
    if !outlives_key(ctx.db(), name, 0) {
        gone(ctx, name, Cause::Vanished);
    }
}

/// The server has taken a lock's key away: notes it if the lock is held all the same, with more than so many
/// milliseconds left.
fn outlives_key(db: u32, name: ServerStr<'_>, least: u64) -> bool {
    node::with(|node| {
        let now = node.now();
        let Some(known) = node.leases.get(db, name.bytes()) else { return false };
        let is_held = known.hold.is_some() && known.term.lease_end.is_none_or(|end| end.since(now) > least);
        if node.role != Role::Master || !is_held {
            return false;
        }
        node.leases.set_expiry(db, name.bytes(), Expiry::KeyLost);
        node.recovery.lost(now);
        true
    })
}

/// The lease of a held lock whose key is not as it should be, by the wall clock as it is now: the key is lost (with
/// the hold then), or still has the TTL from before the clock was stepped. `None` where there is nothing to mend.
pub fn as_kept<'n>(node: &'n Node, db: u32, name: &[u8], seen: Expiry) -> Option<(Lease, Option<Hold<'n>>)> {
    let known = node.leases.get(db, name)?;
    let lease = known.term.lease_end.map_or(Lease::Endless, |end| Lease::Until(node.clocks.expiry(end)));
    let is_over = known.term.lease_end.is_some_and(|end| end <= node.now());
    match seen {
        Expiry::KeyLost if is_over || !may_be_lost(known.term.expiry) => None,
        Expiry::KeyLost => known.hold.map(|hold| (lease, Some(hold))),
        // Somebody has moved the lease since.
        _ if seen != known.term.expiry => None,
        Expiry::At(expiry) if known.term.lease_end.is_some() && lease != Lease::Until(expiry) => {
            Some((lease, None))
        }
        _ => None,
    }
}

/// Has the server taken a key of this expiry away, or does it hide it?
fn may_be_lost(expiry: Expiry) -> bool {
    match expiry {
        Expiry::KeyLost => true,
        Expiry::At(expiry) => expiry.0 <= clock::wall_clock_us() / 1000,
        Expiry::Never => false,
    }
}

/// The key of a lock on record has been given the TTL that its lease is.
pub fn retimed(ctx: Context<'_>, name: ServerStr<'_>, lease: Lease) {
    let db = ctx.db();
    if let Lease::Until(end) = lease {
        node::with(|node| node.leases.set_expiry(db, name.bytes(), Expiry::At(end)));
    }
}

/// Forgets the locks that have lost their keys: this node is no master any more.
pub fn forget_lost(node: &mut Node) {
    while let Some((db, name)) = node.leases.first_lost() {
        let name = name.to_vec();
        node.leases.remove(db, &name);
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
    watch_clock(ctx);
    match Key::open(ctx, name, Access::Read) {
        Some(key) => look_again(ctx, &key),
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

/// The same as [`review`], for a key that is open.
pub fn look_again(ctx: Context<'_>, key: &Key<'_>) {
    let name = key.name();
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
    learn(key, ctx.db());
}
