//! Keeps leases to the time that really passes: ends them, sets their keys' TTLs anew after a step of the wall
//! clock, and puts back keys that the server has taken away.

use crate::leases;
use crate::lock::{Expiry, Lease, Memory, TrackedLock};
use crate::lock_hash;
use crate::lock_key::LockKey;
use crate::node::{self, Node};
use crate::server::{Access, Context, Key, ServerString};
use crate::unlocks::Cause;

/// Ends a lease. To open the key makes the server reap it, if by its own clock it has expired, and the server's
/// event then says that the lock is gone; otherwise this does.
pub fn end_lease(ctx: Context<'_>, lock: &TrackedLock) {
    if !ctx.select(lock.db) {
        return;
    }
    let name = ServerString::new(&lock.name);
    let Some(key) = Key::open(ctx, name.as_str(), Access::Write) else { return };
    if key.is_empty() {
        drop(key);
        return leases::gone(ctx, name.as_str(), Cause::Expired);
    }
    let seen = match lock_hash::lease(&key) {
        Lease::Until(end) => Expiry::At(end),
        Lease::Endless => Expiry::Never,
    };
    let is_untouched = node::with(|node| {
        let known = node.leases.get(lock.db, &lock.name);
        known.is_some_and(|known| known.term.expiry == seen)
    });
    if is_untouched && lock_hash::held(&key).is_some() {
        // The wall clock was set back, or goes after the other by a little.
        LockKey::from_key(key).delete();
        leases::gone(ctx, name.as_str(), Cause::Expired);
    } else {
        // Somebody has moved the lease, or put something else there, without an event.
        leases::look_again(ctx, &key);
    }
}

/// After a step of the wall clock: sets the TTL of the next key on record anew. `false` if there is none left.
pub fn retime_next(ctx: Context<'_>) -> bool {
    let next = node::with(|node| {
        let place = node.retiming?;
        let found = node.leases.lock_from(place).map(|(next, db, name)| (next, db, ServerString::new(name)));
        node.retiming = found.as_ref().map(|(next, _, _)| *next);
        found
    });
    let Some((_, db, name)) = next else { return false };
    if ctx.select(db) {
        // That is what opening it does, meanwhile.
        drop(LockKey::open(ctx, name.as_str()));
    }
    true
}

/// Puts back keys that their locks have lost, where the server has room for them, as long as the time allows.
pub fn put_keys_back(ctx: Context<'_>, time_is_left: impl Fn() -> bool) {
    let is_time = |node: &Node| !node.leases.has_all_keys() && node.recovery.next_look() <= node.now();
    if !node::with(|node| is_time(node)) {
        return;
    }
    let memory = Memory::from_ratio(ctx.used_memory_ratio());
    if !node::with(|node| node.recovery.may_put_back(memory, node.now())) {
        return;
    }
    // Each is tried once.
    for _ in 0..node::with(|node| node.leases.lost_keys()) {
        if !(put_next_back(ctx) && time_is_left() && ctx.used_memory_ratio() <= 1.0) {
            break;
        }
    }
}

/// Puts one key back; `false` if there is none to put back.
fn put_next_back(ctx: Context<'_>) -> bool {
    let next = node::with(|node| node.leases.first_lost().map(|(db, name)| (db, ServerString::new(name))));
    let Some((db, name)) = next else { return false };
    if ctx.select(db)
        && ctx.accepts_writes(name.as_str())
        && let Ok(key) = LockKey::open(ctx, name.as_str())
    {
        key.put_back();
    }
    // If it was put back, it is out of the queue already.
    node::with(|node| node.leases.postpone_lost(db, name.as_str().bytes()));
    true
}
