//! When a lease begins, moves and ends.
//!
//! [`gone`] is the one place where a lock becomes free, whatever freed it; only those that a flush or a swap
//! takes away together go by [`flushed`] and [`swapped`].

use crate::lock::{Lease, MonotonicMs, TrackedLock, WallMs};
use crate::lock_hash::{self, Origin};
use crate::node::{self, Node, Role};
use crate::server::{Access, Alarm, Context, Key, ServerStr, ServerString, Timer};
use crate::unlocks::{self, Cause};

/// How many leases one round of the timer ends. A round stays within some milliseconds, so that a crowd of
/// leases that end together does not stall the server.
const ROUND: usize = 500;

/// How soon the timer looks again while writes are paused, in milliseconds. To reap a key then would end the
/// server.
const PAUSE_POLL: u64 = 5;

/// Records that the lock of this name has this lease, and sees to it that its end is noticed.
pub fn record(ctx: Context<'_>, name: ServerStr<'_>, lease: Lease, now: WallMs) {
    let db = ctx.db();
    let wake = node::with(|node| {
        let wake = track(node, db, name.bytes(), lease, now)?;
        is_needed_before(node, wake).then_some(wake)
    });
    if let Some(wake) = wake {
        set_timer(ctx, wake);
    }
}

/// Puts a lock into the table; the answer is when the timer has to fire for it, at the latest.
pub fn track(node: &mut Node, db: u32, name: &[u8], lease: Lease, now: WallMs) -> Option<MonotonicMs> {
    let clock = node.now();
    let end = match lease {
        // The server shows a key until the millisecond of its expiry is over.
        Lease::Until(end) => Some(clock.plus(end.0.saturating_sub(now.0).max(0).unsigned_abs() + 1)),
        Lease::Endless => None,
    };
    node.leases.track(db, name, end, clock)
}

/// The lock of this name in the selected database has become free: takes it off the record, and announces it.
///
/// An end that the module did not make itself counts only for a lock on record.
pub fn gone(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause) {
    let db = ctx.db();
    let (known, role) = node::with(|node| (node.leases.remove(db, name.bytes()), node.role));
    let own = matches!(cause, Cause::Released | Cause::Forced);
    if role == Role::Master && (own || known.is_some()) {
        unlocks::announce(ctx, name, cause, known);
    }
}

/// Takes all locks of a database off the record, or (`None`) of all.
pub fn flushed(ctx: Context<'_>, db: Option<u32>) {
    let (locks, role) = node::with(|node| (node.leases.drain(db), node.role));
    if role == Role::Master {
        unlocks::announce_later(ctx, locks);
    }
}

/// The locks of two databases have changed places.
pub fn swapped(ctx: Context<'_>, first: u32, second: u32) {
    let (locks, role) = node::with(|node| (node.leases.swap(first, second), node.role));
    if role == Role::Master {
        unlocks::announce_later(ctx, locks);
    }
}

fn is_needed_before(node: &Node, wake: MonotonicMs) -> bool {
    node.role == Role::Master && node.timer.as_ref().is_none_or(|(_, at)| wake < *at)
}

/// Starts the timer for the next lease that ends, if it does not stand already.
pub fn set_timer_for_next(ctx: Context<'_>) {
    let wake = node::with(|node| {
        let wake = node.leases.next_wake()?;
        is_needed_before(node, wake).then_some(wake)
    });
    if let Some(wake) = wake {
        set_timer(ctx, wake);
    }
}

fn set_timer(ctx: Context<'_>, at: MonotonicMs) {
    let (old, delay) = node::with(|node| (node.timer.take(), at.0.saturating_sub(node.now().0)));
    if let Some((old, _)) = old {
        old.stop(ctx);
    }
    let timer = Timer::start::<EndOfLease>(ctx, delay);
    node::with(|node| node.timer = Some((timer, at)));
}

/// Stops the timer, if it stands.
pub fn stop_timer(ctx: Context<'_>) {
    if let Some((timer, _)) = node::with(|node| node.timer.take()) {
        timer.stop(ctx);
    }
}

struct EndOfLease;

impl Alarm for EndOfLease {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.timer = None);
        if node::with(|node| node.role) == Role::Replica {
            return;
        }
        if ctx.writes_paused() {
            let at = node::with(|node| node.now().plus(PAUSE_POLL));
            set_timer(ctx, at);
            return;
        }
        for _ in 0..ROUND {
            let Some(lock) = node::with(|node| node.leases.pop_due(node.now())) else { break };
            end_lease(ctx, &lock);
        }
        set_timer_for_next(ctx);
    }
}

/// Opens the lock's key to write, which makes the server reap it if it has expired, and propagate that. The
/// server's own event then says that it is gone; where there is no key and no event, this does.
fn end_lease(ctx: Context<'_>, lock: &TrackedLock) {
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
    record(ctx, name, lock_hash::lease(key), WallMs(ctx.wall_clock_us() / 1000));
}
