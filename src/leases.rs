//! Who is told when a lease begins, moves and ends.
//!
//! [`gone`] is the one place where a lock becomes free, whatever freed it.

use crate::lock::{Lease, MonotonicMs, TrackedLock, WallMs};
use crate::lock_hash::{self, Origin};
use crate::node::{self, Node, Role, Topology};
use crate::server::{Access, Alarm, Context, Key, Publication, ServerStr, ServerString, Timer};

/// How many leases one round of the timer ends. A round stays within some milliseconds, so that a crowd of
/// leases that end together does not stall the server.
const ROUND: usize = 500;

/// How soon a timer looks again while writes are paused, in milliseconds. Propagating anything outside of a
/// command then ends the server.
const PAUSE_POLL: u64 = 5;

/// What freed a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its owner gave the last hold back.
    Released,
    /// An operator took it away.
    Forced,
    /// Its lease ended.
    Expired,
    /// Something else took its key away.
    Vanished,
}

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

/// The lock of this name in the selected database has become free: counts it, and tells who waits for it.
///
/// An end that the module did not make itself counts only for a lock on record.
pub fn gone(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause) {
    let db = ctx.db();
    let announce = node::with(|node| {
        let known = node.leases.remove(db, name.bytes());
        let own = matches!(cause, Cause::Released | Cause::Forced);
        let announce = node.role == Role::Master && (own || known.is_some());
        if announce {
            count(node, cause, known);
        }
        announce
    });
    if announce {
        match cause {
            Cause::Released | Cause::Forced => ctx.notify(c"lock.released", name),
            Cause::Expired => ctx.notify(c"lock.expired", name),
            Cause::Vanished => {}
        }
        publish_unlock(ctx, name.bytes());
    }
}

fn count(node: &mut Node, cause: Cause, known: Option<TrackedLock>) {
    match cause {
        Cause::Released => node.metrics.released += 1,
        Cause::Forced => node.metrics.forced += 1,
        Cause::Vanished => node.metrics.vanished += 1,
        Cause::Expired => {
            let end = known.and_then(|lock| lock.lease_end);
            // The table has the end of the lease's last millisecond.
            let late = end.map_or(0, |end| node.now_us().saturating_sub(end.0.saturating_sub(1) * 1000));
            node.metrics.count_expiry(late);
        }
    }
}

/// Locks that lost their names all at once, by FLUSHDB, FLUSHALL or SWAPDB. Whether they are free shows when
/// the event-loop turn ends: DEBUG RELOAD flushes too, and brings them back.
pub fn gone_together(ctx: Context<'_>, locks: Vec<TrackedLock>) {
    let start = node::with(|node| {
        let matter = node.role == Role::Master && !locks.is_empty();
        if matter {
            node.flushed.extend(locks);
        }
        matter && node.end_of_turn.is_none()
    });
    if start {
        let timer = Timer::start::<EndOfTurn>(ctx, 0);
        node::with(|node| node.end_of_turn = Some(timer));
    }
}

struct EndOfTurn;

impl Alarm for EndOfTurn {
    fn ring(ctx: Context<'_>) {
        if ctx.writes_paused() {
            let timer = Timer::start::<Self>(ctx, PAUSE_POLL);
            node::with(|node| node.end_of_turn = Some(timer));
            return;
        }
        let flushed = node::with(|node| {
            node.end_of_turn = None;
            std::mem::take(&mut node.flushed)
        });
        for lock in flushed {
            let free = node::with(|node| {
                let free = node.role == Role::Master && !node.leases.contains(lock.db, &lock.name);
                node.metrics.vanished += u64::from(free);
                free
            });
            if free {
                publish_unlock(ctx, &lock.name);
            }
        }
    }
}

/// Publishes an unlock, message `0`, as Redisson does.
fn publish_unlock(ctx: Context<'_>, name: &[u8]) {
    let (channel, kind, topology) = node::with(|node| {
        let kind = match (node.topology, node.settings.sharded_publish) {
            (Topology::Cluster, true) => Publication::Sharded,
            _ => Publication::Global,
        };
        let mut channel = std::mem::take(&mut node.channel);
        write_channel(&mut channel, &node.settings.channel_prefix, name);
        (channel, kind, node.topology)
    });
    let channel_name = ServerString::new(&channel);
    node::with(|node| node.channel = channel);
    node::with_words(|words| {
        let message = words.unlocked.as_str();
        ctx.publish(kind, channel_name.as_str(), message);
        if topology == Topology::Standalone && ctx.has_replicas() {
            ctx.propagate_to_replicas(c"PUBLISH", &[channel_name.as_str(), message]);
        }
    });
}

/// `<prefix>:{<name>}`, in the cluster slot of the name; a name that has a brace keeps its slot by itself.
fn write_channel(channel: &mut Vec<u8>, prefix: &[u8], name: &[u8]) {
    let (open, close): (&[u8], &[u8]) = if name.contains(&b'{') { (b":", b"") } else { (b":{", b"}") };
    channel.clear();
    for part in [prefix, open, name, close] {
        channel.extend_from_slice(part);
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

/// Stops the timers that stand.
pub fn stop_timers(ctx: Context<'_>) {
    let (end_of_lease, end_of_turn) = node::with(|node| (node.timer.take(), node.end_of_turn.take()));
    for timer in end_of_lease.map(|(timer, _)| timer).into_iter().chain(end_of_turn) {
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
            && let Some(Origin::Ours(token)) = lock_hash::held(&key)
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
    let known = || node::with(|node| node.leases.contains(ctx.db(), name.bytes()));
    match lock_hash::held(key) {
        Some(Origin::Ours(token)) => node::with(|node| node.tokens.observe(token)),
        // Its owner has renewed or re-entered it through the module.
        Some(Origin::Redisson) if known() => {}
        _ => return gone(ctx, name, Cause::Vanished),
    }
    record(ctx, name, lock_hash::lease(key), WallMs(ctx.wall_clock_us() / 1000));
}

#[cfg(test)]
mod tests {
    use super::write_channel;

    #[test]
    fn channels_are_named_as_redissons() {
        let mut channel = Vec::new();
        for (name, expected) in
            [("job", "p:{job}"), ("{app}:job", "p:{app}:job"), ("a}\0", "p:{a}\0}"), ("", "p:{}")]
        {
            write_channel(&mut channel, b"p", name.as_bytes());
            assert_eq!(channel, expected.as_bytes());
        }
    }
}
