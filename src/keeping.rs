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

/// May the keys that locks have lost be put back now? Asks at most when it is time.
pub fn may_put_back(ctx: Context<'_>) -> bool {
    let is_time = |node: &Node| !node.leases.has_all_keys() && node.recovery.next_look() <= node.now();
    if !node::with(|node| is_time(node)) {
        return false;
    }
    let memory = Memory::from_ratio(ctx.used_memory_ratio());
    node::with(|node| node.recovery.may_put_back(memory, node.now()))
}

/// Puts one key back that its lock has lost; `false` if there is none left, or the node can't write now.
pub fn put_next_back(ctx: Context<'_>) -> bool {
    let Some((db, name)) = node::with(|node| node.leases.pop_lost()) else { return false };
    if !ctx.select(db) {
        return true;
    }
    let key_name = ServerString::new(&name);
    let accepted = ctx.accepts_writes(key_name.as_str());
    if accepted && let Ok(key) = LockKey::open(ctx, key_name.as_str()) {
        key.put_back();
    } else {
        node::with(|node| node.leases.set_expiry(db, &name, Expiry::KeyLost));
    }
    accepted && ctx.used_memory_ratio() <= 1.0
}
