//! The timers, and what happens when they fire.
//!
//! Whatever the module does ends with [`settle`], which starts the timers that it has made necessary: for the
//! next lease that ends, for the next waiter whose time is up, and for the end of this turn of the event loop.

use std::ops::Bound::{Excluded, Unbounded};

use crate::leases;
use crate::lock::MonotonicMs;
use crate::node::{self, LockName, Role, Timers, Topology, Turn};
use crate::server::{Alarm, Context, Job, ServerStr, ServerString, Timer, after_this};
use crate::unlocks;
use crate::waiting::{self, Served};

/// For how many microseconds a timer works in one go, so that a crowd (leases that end together, a FLUSHALL)
/// does not stall the server.
const ROUND_US: u64 = 2000;

/// How soon to look again while nothing may be written (while writes are paused, or without enough replicas),
/// in milliseconds. To reap a key during a pause would end the server.
const BARRED_POLL: u64 = 5;

/// Starts the timers that are needed and do not stand yet.
pub fn settle(ctx: Context<'_>) {
    let (lease, wait, grace, turn) = node::with(|node| {
        let lease = node.leases.next_wake().filter(|_| node.role == Role::Master);
        let needed = |at: &MonotonicMs, timer: &Option<(Timer, MonotonicMs)>| {
            timer.as_ref().is_none_or(|(_, stands_at)| at < stands_at)
        };
        (
            lease.filter(|at| needed(at, &node.timers.lease)),
            node.lines.next_wake().filter(|at| needed(at, &node.timers.wait)),
            node.grace.filter(|at| needed(at, &node.timers.grace)),
            node.timers.turn.is_none() && node.role == Role::Master && !node.turn.is_empty(),
        )
    });
    if let Some(at) = lease {
        set::<EndOfLease>(ctx, at, |timers| &mut timers.lease);
    }
    if let Some(at) = wait {
        set::<EndOfWait>(ctx, at, |timers| &mut timers.wait);
    }
    if let Some(at) = grace {
        set::<EndOfGrace>(ctx, at, |timers| &mut timers.grace);
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

/// Stops all timers and forgets what waits for the end of the turn: a replica does nothing of its own. What was
/// handed over and not told can't be taken back now; it is when this node is promoted with the same data.
pub fn forget(ctx: Context<'_>) {
    let Timers { lease, wait, grace, turn } = node::with(|node| {
        let handoffs = std::mem::take(&mut node.turn.handoffs);
        node.turn = Turn { handoffs, ..Turn::default() };
        std::mem::take(&mut node.timers)
    });
    let timed = [lease, wait, grace].into_iter().flatten().map(|(timer, _)| timer);
    timed.chain(turn).for_each(|timer| timer.stop(ctx));
}

/// The time that a timer may take before others have their turn.
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
        let round = Round::begin();
        while round.goes_on() {
            let Some(lock) = node::with(|node| node.leases.pop_due(node.now())) else { break };
            leases::end_lease(ctx, &lock);
            serve_freed(ctx, &round);
        }
        waiting::deliver(ctx);
        settle(ctx);
    }
}

struct EndOfWait;

impl Alarm for EndOfWait {
    fn ring(ctx: Context<'_>) {
        node::with(|node| node.timers.wait = None);
        let round = Round::begin();
        while round.goes_on() {
            let Some(ticket) = node::with(|node| node.lines.pop_due(node.now())) else { break };
            waiting::time_out(ctx, ticket);
        }
        waiting::deliver(ctx);
        settle(ctx);
    }
}

struct EndOfGrace;

impl Alarm for EndOfGrace {
    fn ring(ctx: Context<'_>) {
        let now_us = ctx.wall_clock_us().unsigned_abs();
        node::with(|node| {
            node.timers.grace = None;
            node.grace = None;
            // Other nodes of a quorum may have given tokens until now.
            node.tokens.seed(now_us);
            leases::review_lines(node);
        });
        settle(ctx);
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
