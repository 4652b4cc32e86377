//! The timers, and what happens when they fire.
//!
//! Whatever the module does ends with [`settle`], which starts the timers that it has made necessary: for the
//! next lease that ends, for the next waiter whose time is up, and for the end of this turn of the event loop.

use crate::leases;
use crate::lock::MonotonicMs;
use crate::node::{self, Role, Timers, Topology, Turn};
use crate::server::{Alarm, Context, Job, ServerStr, ServerString, Timer, after_this};
use crate::unlocks;
use crate::waiting::{self, Served};

/// How many pieces of work one round of a timer does. A round stays within some milliseconds, so that a crowd
/// (leases that end together, a FLUSHALL) does not stall the server.
const ROUND: usize = 500;

/// How soon to look again while nothing may be written (while writes are paused, or without enough replicas),
/// in milliseconds. To reap a key during a pause would end the server.
const BARRED_POLL: u64 = 5;

/// Starts the timers that are needed and do not stand yet.
pub fn settle(ctx: Context<'_>) {
    let (lease, wait, turn) = node::with(|node| {
        let lease = node.leases.next_wake().filter(|_| node.role == Role::Master);
        let needed = |at: &MonotonicMs, timer: &Option<(Timer, MonotonicMs)>| {
            timer.as_ref().is_none_or(|(_, stands_at)| at < stands_at)
        };
        (
            lease.filter(|at| needed(at, &node.timers.lease)),
            node.lines.next_wake().filter(|at| needed(at, &node.timers.wait)),
            node.timers.turn.is_none() && !node.turn.is_empty(),
        )
    });
    if let Some(at) = lease {
        set::<EndOfLease>(ctx, at, |timers| &mut timers.lease);
    }
    if let Some(at) = wait {
        set::<EndOfWait>(ctx, at, |timers| &mut timers.wait);
    }
    if turn {
        wait_for_end_of_turn(ctx, 0);
    }
}

/// The same after a keyspace event. What became free is handed over right after the command that freed it,
/// where the server can do so, or when the turn ends.
pub fn settle_after_event(ctx: Context<'_>) {
    let freed = node::with(|node| !node.turn.freed.is_empty());
    if !(freed && after_this::<Handover>(ctx)) {
        settle(ctx);
    }
}

/// Stops all timers and forgets what waits for the end of the turn: a replica does nothing of its own.
pub fn forget(ctx: Context<'_>) {
    let Timers { lease, wait, turn } = node::with(|node| {
        node.turn = Turn::default();
        std::mem::take(&mut node.timers)
    });
    let timed = [lease, wait].into_iter().flatten().map(|(timer, _)| timer);
    timed.chain(turn).for_each(|timer| timer.stop(ctx));
}

type TimerPlace = fn(&mut Timers) -> &mut Option<(Timer, MonotonicMs)>;

fn set<A: Alarm>(ctx: Context<'_>, at: MonotonicMs, place: TimerPlace) {
    let (old, delay) = node::with(|node| (place(&mut node.timers).take(), at.since(node.now())));
    if let Some((old, _)) = old {
        old.stop(ctx);
    }
    let timer = Timer::start::<A>(ctx, delay);
    node::with(|node| *place(&mut node.timers) = Some((timer, at)));
}

fn wait_for_end_of_turn(ctx: Context<'_>, delay: u64) {
    let timer = Timer::start::<EndOfTurn>(ctx, delay);
    node::with(|node| node.timers.turn = Some(timer));
}

struct EndOfLease;

impl Alarm for EndOfLease {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.timers.lease = None);
        if node::with(|node| node.role) == Role::Replica {
            return;
        }
        if ctx.writes_paused() {
            let at = node::with(|node| node.now().plus(BARRED_POLL));
            return set::<EndOfLease>(ctx, at, |timers| &mut timers.lease);
        }
        for _ in 0..ROUND {
            let Some(lock) = node::with(|node| node.leases.pop_due(node.now())) else { break };
            leases::end_lease(ctx, &lock);
            serve_freed(ctx);
        }
        waiting::deliver(ctx);
        settle(ctx);
    }
}

struct EndOfWait;

impl Alarm for EndOfWait {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.timers.wait = None);
        for _ in 0..ROUND {
            let Some(ticket) = node::with(|node| node.lines.pop_due(node.now())) else { break };
            waiting::time_out(ctx, ticket);
        }
        waiting::deliver(ctx);
        settle(ctx);
    }
}

/// Right after the command that freed a lock.
struct Handover;

impl Job for Handover {
    fn run(ctx: Context<'_>) {
        serve_freed(ctx);
        settle(ctx);
    }
}

struct EndOfTurn;

impl Alarm for EndOfTurn {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.timers.turn = None);
        let mut delay = 0;
        if ctx.writes_paused() || catch_up(ctx) == Served::Barred {
            delay = BARRED_POLL;
        }
        waiting::deliver(ctx);
        if node::with(|node| !node.turn.is_empty()) {
            wait_for_end_of_turn(ctx, delay);
        } else {
            // A crowd may have passed through: its room is given back.
            node::with(|node| node.turn = Turn::default());
        }
        settle(ctx);
    }
}

/// Does a round of what had to wait for the end of the turn.
fn catch_up(ctx: Context<'_>) -> Served {
    for _ in 0..ROUND {
        if let Some(channel) = node::with(|node| node.turn.unheard.pop_front()) {
            unlocks::relay(ctx, &channel);
        } else if let Some(lock) = node::with(|node| node.turn.flushed.pop_front()) {
            unlocks::announce_if_free(ctx, &lock);
        } else {
            break;
        }
    }
    let mut served = serve_freed(ctx);
    for _ in 0..ROUND {
        let Some(place) = node::with(|node| node.turn.sweep).filter(|_| served == Served::Done) else {
            break;
        };
        served = sweep_on(ctx, place);
    }
    served
}

/// Serves the lines for locks that became free while somebody waited for them.
fn serve_freed(ctx: Context<'_>) -> Served {
    let (locks, topology) =
        node::with(|node| (node.turn.freed.iter().take(ROUND).cloned().collect::<Vec<_>>(), node.topology));
    let mut outcome = Served::Done;
    for lock in locks {
        let served = serve_one(ctx, lock.db, ServerString::new(&lock.name).as_str());
        match (served, topology) {
            (Served::Done, _) => node::with(|node| {
                node.turn.freed.remove(&lock);
            }),
            (Served::Barred, Topology::Standalone) => return Served::Barred,
            // The slot of this one may have left; the others need not wait for that.
            (Served::Barred, Topology::Cluster) => outcome = Served::Barred,
        }
    }
    outcome
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
    if served == Served::Done {
        node::with(|node| node.turn.sweep = node.turn.sweep.map(|_| next));
    }
    served
}
