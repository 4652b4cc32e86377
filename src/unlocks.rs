//! Tells of unlocks: counts them, and publishes them to whoever waits.
//!
//! A handler of the server's events must not propagate anything: the server would propagate with it the
//! command that it runs, even if that only reads. So what the replicas have to hear waits for a timer that
//! fires when the event-loop turn ends.

use crate::lock::TrackedLock;
use crate::node::{self, Node, Role, Topology, Turn};
use crate::server::{Alarm, Context, Publication, ServerStr, ServerString, Timer};

/// How many unlocks one round at the end of a turn tells of. A round stays within some milliseconds, so that
/// a FLUSHALL of a crowd of locks does not stall the server.
const ROUND: usize = 1000;

/// How soon to look again while writes are paused, in milliseconds.
const PAUSE_POLL: u64 = 5;

/// A channel's name for which this much room is kept, to spare an allocation per unlock.
const USUAL_CHANNEL: usize = 1024;

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

/// Where in the server's work an unlock is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a command of ours or a timer: anything may be propagated.
    Open,
    /// In a handler of the server's events.
    Handler,
}

/// The lock of this name is free. `known` is what the table had of it.
pub fn announce(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause, known: Option<TrackedLock>) {
    node::with(|node| count(node, cause, known));
    let place = match cause {
        Cause::Released | Cause::Forced => {
            ctx.notify(c"lock.released", name);
            Place::Open
        }
        Cause::Expired => {
            ctx.notify(c"lock.expired", name);
            Place::Handler
        }
        Cause::Vanished => Place::Handler,
    };
    publish(ctx, name.bytes(), place);
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

/// Locks that lost their names all at once, by FLUSHDB, FLUSHALL or SWAPDB. They are announced at the end of
/// the turn, unless they are back by then.
pub fn announce_later(ctx: Context<'_>, locks: Vec<TrackedLock>) {
    if !locks.is_empty() {
        node::with(|node| node.turn.flushed.extend(locks));
        wait_for_end_of_turn(ctx, 0);
    }
}

/// Forgets what waits: a replica announces nothing.
pub fn forget(ctx: Context<'_>) {
    if let Some(timer) = node::with(|node| std::mem::take(&mut node.turn).timer) {
        timer.stop(ctx);
    }
}

fn wait_for_end_of_turn(ctx: Context<'_>, delay: u64) {
    if node::with(|node| node.turn.timer.is_none()) {
        let timer = Timer::start::<EndOfTurn>(ctx, delay);
        node::with(|node| node.turn.timer = Some(timer));
    }
}

struct EndOfTurn;

impl Alarm for EndOfTurn {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.turn.timer = None);
        if ctx.writes_paused() {
            // To propagate anything outside of a command then ends the server.
            return wait_for_end_of_turn(ctx, PAUSE_POLL);
        }
        for _ in 0..ROUND {
            if let Some(channel) = node::with(|node| node.turn.unheard.pop_front()) {
                relay(ctx, &channel);
            } else if let Some(lock) = node::with(|node| node.turn.flushed.pop_front()) {
                announce_if_free(ctx, &lock);
            } else {
                // A crowd may have passed through: its room is given back.
                return node::with(|node| node.turn = Turn::default());
            }
        }
        wait_for_end_of_turn(ctx, 0);
    }
}

fn announce_if_free(ctx: Context<'_>, lock: &TrackedLock) {
    let free = node::with(|node| {
        let free = node.role == Role::Master && !node.leases.contains(lock.db, &lock.name);
        if free {
            count(node, Cause::Vanished, None);
        }
        free
    });
    if free {
        publish(ctx, &lock.name, Place::Open);
    }
}

/// Publishes an unlock, message `0`, as Redisson does.
fn publish(ctx: Context<'_>, name: &[u8], place: Place) {
    let (channel, kind, topology) = node::with(|node| {
        let kind = match (node.topology, node.settings.sharded_publish) {
            (Topology::Cluster, true) => Publication::Sharded,
            _ => Publication::Global,
        };
        write_channel(&mut node.channel, &node.settings.channel_prefix, name);
        // To make a string calls nobody back.
        let channel = ServerString::new(&node.channel);
        node.channel.clear();
        node.channel.shrink_to(USUAL_CHANNEL);
        (channel, kind, node.topology)
    });
    node::with_words(|words| ctx.publish(kind, channel.as_str(), words.unlocked.as_str()));
    // In Cluster the bus carries it.
    if topology == Topology::Standalone && ctx.has_replicas() {
        match place {
            Place::Open => relay(ctx, &channel),
            Place::Handler => {
                node::with(|node| node.turn.unheard.push_back(channel));
                wait_for_end_of_turn(ctx, 0);
            }
        }
    }
}

/// Has the replicas publish an unlock to their own subscribers.
fn relay(ctx: Context<'_>, channel: &ServerString) {
    node::with_words(|words| {
        ctx.propagate_to_replicas(c"PUBLISH", &[channel.as_str(), words.unlocked.as_str()]);
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
