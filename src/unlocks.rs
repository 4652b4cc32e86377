//! Tells of unlocks: counts them, and publishes them to whoever waits elsewhere.
//!
//! A handler of the server's events must not propagate anything: the server would propagate with it the
//! command that it runs, even if that only reads. So what the replicas have to hear waits for the end of the
//! event-loop turn.

use crate::lock::{Term, TrackedLock};
use crate::node::{self, LockName, Node, Role, Topology};
use crate::server::{Context, Publication, ServerStr, ServerString};

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

impl Cause {
    /// Did the module end the hold itself, in a place where it may propagate?
    pub fn is_own(self) -> bool {
        matches!(self, Self::Released | Self::Forced)
    }
}

/// Counts the end of a hold, and tells the subscribers of keyspace events. `known` is what the table had of
/// the lock.
pub fn note(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause, known: Option<Term>) {
    node::with(|node| count(node, cause, known));
    match cause {
        Cause::Released | Cause::Forced => ctx.notify(c"lock.released", name),
        Cause::Expired => ctx.notify(c"lock.expired", name),
        Cause::Vanished => {}
    }
}

fn count(node: &mut Node, cause: Cause, known: Option<Term>) {
    match cause {
        Cause::Released => node.metrics.released += 1,
        Cause::Forced => node.metrics.forced += 1,
        Cause::Vanished => node.metrics.vanished += 1,
        Cause::Expired => {
            let end = known.and_then(|term| term.lease_end);
            // The table has the end of the lease's last millisecond.
            let late = end.map_or(0, |end| node.now_us().saturating_sub(end.0.saturating_sub(1) * 1000));
            node.metrics.count_expiry(late);
        }
    }
}

/// Has the replicas publish an unlock that a handler could not tell them of.
pub fn relay(ctx: Context<'_>, channel: &ServerString) {
    node::with_words(|words| {
        ctx.propagate_to_replicas(c"PUBLISH", &[channel.as_str(), words.unlocked.as_str()]);
    });
}

/// Tells of a lock that lost its name by a flush or a swap, unless it is back. Where somebody is in line for
/// it, it waits to be handed over.
pub fn announce_if_free(ctx: Context<'_>, lock: &TrackedLock) {
    let (db, name) = (lock.db, &lock.name);
    let free = node::with(|node| {
        let free = node.role == Role::Master && !node.leases.contains(db, name);
        if free {
            count(node, Cause::Vanished, None);
        }
        let has_line = free && node.hands_over(db, name);
        if has_line {
            node.turn.freed.insert(LockName { db, name: name.clone() });
        }
        free && !has_line
    });
    if free {
        publish(ctx, name);
    }
}

/// Publishes an unlock, message `0`, as Redisson does; at once on the replicas too.
pub fn publish(ctx: Context<'_>, name: &[u8]) {
    let channel = publish_here(ctx, name);
    if reaches_replicas(ctx) {
        relay(ctx, &channel);
    }
}

/// The same from a handler of the server's events: the replicas hear of it when the turn ends.
pub fn publish_in_handler(ctx: Context<'_>, name: &[u8]) {
    let channel = publish_here(ctx, name);
    if reaches_replicas(ctx) {
        node::with(|node| node.turn.unheard.push_back(channel));
    }
}

/// In Cluster the bus carries it.
fn reaches_replicas(ctx: Context<'_>) -> bool {
    ctx.has_replicas() && node::with(|node| node.topology) == Topology::Standalone
}

fn publish_here(ctx: Context<'_>, name: &[u8]) -> ServerString {
    let (channel, kind) = node::with(|node| {
        let kind = match (node.topology, node.settings.sharded_publish) {
            (Topology::Cluster, true) => Publication::Sharded,
            _ => Publication::Global,
        };
        write_channel(&mut node.channel, &node.settings.channel_prefix, name);
        // To make a string calls nobody back.
        let channel = ServerString::new(&node.channel);
        node.channel.clear();
        node.channel.shrink_to(USUAL_CHANNEL);
        (channel, kind)
    });
    node::with_words(|words| ctx.publish(kind, channel.as_str(), words.unlocked.as_str()));
    channel
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
