//! The timer, and what happens when it fires.
//!
//! Whatever the module does ends with [`settle`], which sets the timer for what comes next: a lease that ends, a
//! waiter whose time is up, the end of the grace, or the end of this turn of the event loop.
//!
//! It is one timer, as the server looks at a timer that is set for at once only when it is the first of all.

use std::ops::Bound::{Excluded, Unbounded};

use crate::leases;
use crate::lock::MonotonicMs;
use crate::node::{self, LockName, Node, Role, Topology, Turn};
use crate::server::{Alarm, Context, Job, ServerStr, ServerString, Timer, after_this};
use crate::unlocks;
use crate::waiting::{self, Served};

/// For how many microseconds one kind of work goes on, so that a crowd (leases that end together, a FLUSHALL)
/// does not stall the server.
const ROUND_US: u64 = 2000;

/// How soon to look again while nothing may be written (while writes are paused, or without enough replicas),
/// in milliseconds. To reap a key during a pause would end the server.
const BARRED_POLL: u64 = 5;

/// Later than anything.
const NEVER: MonotonicMs = MonotonicMs(u64::MAX);

/// Sets the timer, if it has to fire earlier than it stands.
pub fn settle(ctx: Context<'_>) {
    if let Some(at) = node::with(next_wake) {
        set_timer(ctx, at);
    }
}

/// When the timer has to fire, if that is before it does. A replica does nothing of its own.
fn next_wake(node: &mut Node) -> Option<MonotonicMs> {
    if node.role == Role::Replica {
        return None;
    }
    let mut at = node.lease_wanted.take().unwrap_or(NEVER);
    if node.lines.waiting() > 0 {
        at = at.min(node.lines.next_wake().unwrap_or(NEVER));
    }
    if let Some(end) = node.grace {
        at = at.min(end);
    }
    if !node.turn.is_empty() {
        at = at.min(node.turn.retry_at.unwrap_or_default());
    }
    let stands_at = node.timer.as_ref().map_or(NEVER, |(_, stands_at)| *stands_at);
    (at < stands_at).then_some(at)
}

/// The same after a keyspace event. What became free is handed over right after the command that freed it,
/// where the server can do so, or when the turn ends.
pub fn settle_after_event(ctx: Context<'_>) {
    let freed = node::with(|node| !node.turn.freed.is_empty());
    if !(freed && after_this::<Handover>(ctx)) {
        settle(ctx);
    }
}

/// Has [`settle`] set the timer for the next lease that ends.
pub fn want_next_lease(node: &mut Node) {
    if let Some(at) = node.leases.next_wake() {
        node.want_lease(at);
    }
}

/// Stops the timer and forgets what waits for the end of the turn: a replica does nothing of its own. What was
/// handed over and not told can't be taken back now; it is when this node is promoted with the same data.
pub fn forget(ctx: Context<'_>) {
    let timer = node::with(|node| {
        let handoffs = std::mem::take(&mut node.turn.handoffs);
        node.turn = Turn { handoffs, ..Turn::default() };
        node.timer.take()
    });
    if let Some((timer, _)) = timer {
        timer.stop(ctx);
    }
}

fn set_timer(ctx: Context<'_>, at: MonotonicMs) {
    let (old, delay) = node::with(|node| (node.timer.take(), at.since(node.now())));
    if let Some((old, _)) = old {
        old.stop(ctx);
    }
    let timer = Timer::start::<Tick>(ctx, delay);
    node::with(|node| node.timer = Some((timer, at)));
}

/// The time that one kind of work may take before others have their turn.
struct Round {
    ends_us: u64,
}

impl Round {
    fn begin() -> Self {
        Self { ends_us: node::with(|node| node.now_us()) + ROUND_US }
    }

    fn goes_on(&self) -> bool {
        node::with(|node| node.now_us()) < self.ends_us
    }
}

/// Right after the command that freed a lock.
struct Handover;

impl Job for Handover {
    fn run(ctx: Context<'_>) {
        serve_freed(ctx, &Round::begin());
        settle(ctx);
    }
}

struct Tick;

impl Alarm for Tick {
    fn ring(ctx: Context<'_>) {
        node::with(|node| (node.timer, node.turn.retry_at) = (None, None));
        if node::with(|node| node.role) == Role::Replica {
            return;
        }
        end_grace(ctx);
        let paused = ctx.writes_paused();
        let served = if paused {
            Served::Barred
        } else {
            end_leases(ctx);
            catch_up(ctx)
        };
        end_waits(ctx);
        waiting::deliver(ctx);
        node::with(|node| {
            let later = node.now().plus(BARRED_POLL);
            if node.turn.is_empty() {
                // A crowd may have passed through: its room is given back.
                node.turn = Turn::default();
            } else if served == Served::Barred {
                node.turn.retry_at = Some(later);
            }
            if paused {
                node.want_lease(later);
            } else {
                want_next_lease(node);
            }
        });
        settle(ctx);
    }
}

/// Ends the grace, if its time has come.
fn end_grace(ctx: Context<'_>) {
    let now_us = ctx.wall_clock_us().unsigned_abs();
    node::with(|node| {
        if node.grace.is_some_and(|end| end <= node.now()) {
            node.grace = None;
            // Other nodes of a quorum may have given tokens until now.
            node.tokens.seed(now_us);
            leases::review_lines(node);
        }
    });
}

fn end_leases(ctx: Context<'_>) {
    let round = Round::begin();
    while round.goes_on() {
        let Some(lock) = node::with(|node| node.leases.pop_due(node.now())) else { break };
        leases::end_lease(ctx, &lock);
        serve_freed(ctx, &round);
    }
}

fn end_waits(ctx: Context<'_>) {
    let round = Round::begin();
    while round.goes_on() {
        let Some(ticket) = node::with(|node| node.lines.pop_due(node.now())) else { break };
        waiting::time_out(ctx, ticket);
    }
}

/// Does a round of what had to wait for the end of the turn.
fn catch_up(ctx: Context<'_>) -> Served {
    let round = Round::begin();
    while round.goes_on() {
        if let Some(channel) = node::with(|node| node.turn.unheard.pop_front()) {
            unlocks::relay(ctx, &channel);
        } else if let Some(lock) = node::with(|node| node.turn.flushed.pop_front()) {
            unlocks::announce_if_free(ctx, &lock);
        } else {
            break;
        }
    }
    let mut served = serve_freed(ctx, &round);
    while round.goes_on() && served == Served::Done {
        let Some(place) = node::with(|node| node.turn.sweep) else { break };
        served = sweep_on(ctx, place);
    }
    served
}

/// Serves the lines for locks that became free while somebody waited for them.
fn serve_freed(ctx: Context<'_>, round: &Round) -> Served {
    let mut barred = None;
    loop {
        let lock = node::with(|node| match &barred {
            None => node.turn.freed.first().cloned(),
            Some(last) => node.turn.freed.range((Excluded(last), Unbounded)).next().cloned(),
        });
        let Some(lock) = lock else { break };
        match serve_one(ctx, lock.db, ServerString::new(&lock.name).as_str()) {
            Served::Done => node::with(|node| {
                node.turn.freed.remove(&lock);
            }),
            // The slot of this one may have left; the others need not wait for that.
            Served::Barred if node::with(|node| node.topology) == Topology::Cluster => barred = Some(lock),
            Served::Barred => return Served::Barred,
        }
        if !round.goes_on() {
            break;
        }
    }
    if barred.is_some() { Served::Barred } else { Served::Done }
}

fn serve_one(ctx: Context<'_>, db: u32, name: ServerStr<'_>) -> Served {
    if ctx.select(db) { waiting::serve(ctx, name) } else { Served::Done }
}

/// Serves the next line of a sweep over all.
fn sweep_on(ctx: Context<'_>, place: u32) -> Served {
    let found = node::with(|node| {
        let (next, db, name) = node.lines.line_from(place)?;
        Some((next, db, ServerString::new(name)))
    });
    let Some((next, db, name)) = found else {
        node::with(|node| node.turn.sweep = None);
        return Served::Done;
    };
    let served = serve_one(ctx, db, name.as_str());
    node::with(|node| match (served, node.topology) {
        (Served::Barred, Topology::Standalone) => served,
        _ => {
            if served == Served::Barred {
                node.turn.freed.insert(LockName { db, name: name.as_str().bytes().into() });
            }
            node.turn.sweep = node.turn.sweep.map(|_| next);
            Served::Done
        }
    })
}
