//! The timer, and what happens when it fires.
//!
//! Whatever the module does ends with [`settle`], which sets the timer for what comes next: a lease that ends, a
//! waiter whose time is up, the end of the grace, or the end of this turn of the event loop.
//!
//! It is one timer, as the server looks at a timer that is set for at once only when it is the first of all.

use std::ops::Bound::{Excluded, Unbounded};

use crate::keeping;
use crate::leases;
use crate::lock::MonotonicMs;
use crate::node::{self, LockName, Node, Role, Topology, Turn};
use crate::server::{Alarm, Context, Job, ServerString, Timer, after_this};
use crate::unlocks;
use crate::waiting::{self, Served};

/// For how many microseconds one kind of work goes on, so that a crowd (leases that end together, a FLUSHALL)
/// does not stall the server.
const ROUND_US: u64 = 2000;

/// How soon to look again while nothing may be written (while writes are paused, or without enough replicas),
/// in milliseconds. To reap a key during a pause would end the server.
const BARRED_POLL: u64 = 5;

/// For how many microseconds what is barred is tried again: a small part of the time until the next try.
const RETRY_US: u64 = 500;

/// A crowd of unlocks for which room is kept.
const USUAL_CROWD: usize = 64;

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
    let soonest = node.turn.paused_until.unwrap_or_default();
    if !node.turn.is_done() {
        at = at.min(soonest);
    }
    if let Some((retry_at, _)) = node.turn.retry {
        at = at.min(soonest.max(retry_at));
    }
    if node.retiming.is_some() {
        at = at.min(soonest);
    }
    if !node.leases.has_all_keys() {
        at = at.min(soonest.max(node.recovery.next_look()));
    }
    let stands_at = node.timer.as_ref().map_or(NEVER, |(_, stands_at)| *stands_at);
    (at < stands_at).then_some(at)
}

/// The same after a keyspace event. What became free is handed over right after the command that freed it,
/// where the server can do so, or when the turn ends.
pub fn settle_after_event(ctx: Context<'_>) {
    let needed = node::with(|node| !node.turn.freed.is_empty() && !node.turn.job_stands);
    if needed {
        let stands = after_this::<Handover>(ctx);
        node::with(|node| node.turn.job_stands = stands);
    }
    if node::with(|node| !node.turn.job_stands) {
        settle(ctx);
    }
}

/// Has [`settle`] set the timer for the next lease that ends.
pub fn want_next_lease(node: &mut Node) {
    if let Some(at) = node.leases.next_wake() {
        node.want_lease(at);
    }
}

/// Stops the timer and forgets what waits for the end of the turn: a replica does nothing of its own.
pub fn forget(ctx: Context<'_>) {
    let timer = node::with(|node| {
        node.turn = Turn::default();
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
    fn begin(length_us: u64) -> Self {
        Self { ends_us: node::with(|node| node.now_us()) + length_us }
    }

    fn goes_on(&self) -> bool {
        node::with(|node| node.now_us()) < self.ends_us
    }
}

/// Right after the command that freed a lock.
struct Handover;

impl Job for Handover {
    fn run(ctx: Context<'_>) {
        node::with(|node| node.turn.job_stands = false);
        serve_freed(ctx, &Round::begin(ROUND_US));
        settle(ctx);
    }
}

struct Tick;

impl Alarm for Tick {
    fn ring(ctx: Context<'_>) {
        node::with(|node| (node.timer, node.turn.paused_until) = (None, None));
        if node::with(|node| node.role) == Role::Replica {
            return;
        }
        leases::check_clock(ctx);
        end_grace();
        let paused = ctx.writes_paused();
        if !paused {
            end_leases(ctx);
            mend_keys(ctx);
            catch_up(ctx);
            retry_barred(ctx);
        }
        end_waits(ctx);
        waiting::deliver(ctx);
        node::with(|node| {
            if paused {
                let later = node.now().plus(BARRED_POLL);
                node.turn.paused_until = Some(later);
                node.want_lease(later);
            } else {
                want_next_lease(node);
            }
        });
        settle(ctx);
        // A timer that is set in a timer fires a millisecond later at the earliest: what comes up before must
        // not rely on it.
        node::with(|node| {
            let next = node.now().plus(1);
            if let Some((_, at)) = &mut node.timer {
                *at = (*at).max(next);
            }
        });
    }
}

/// Ends the grace, if its time has come.
fn end_grace() {
    node::with(|node| {
        if node.grace.is_some_and(|end| end <= node.now()) {
            node.grace = None;
            // Other nodes of a quorum may have given tokens until now.
            node.tokens.seed(node.token_clock_us());
            leases::review_lines(node);
        }
    });
}

fn end_leases(ctx: Context<'_>) {
    let round = Round::begin(ROUND_US);
    while round.goes_on() {
        let Some(lock) = node::with(|node| node.leases.pop_due(node.now())) else { break };
        keeping::end_lease(ctx, &lock);
        serve_freed(ctx, &round);
    }
}

/// Goes on setting TTLs anew after a step of the wall clock, and putting back the keys that locks have lost.
fn mend_keys(ctx: Context<'_>) {
    let round = Round::begin(ROUND_US);
    while round.goes_on() && keeping::retime_next(ctx) {}
    keeping::put_keys_back(ctx, || round.goes_on());
}

fn end_waits(ctx: Context<'_>) {
    let round = Round::begin(ROUND_US);
    while round.goes_on() {
        let Some(ticket) = node::with(|node| node.lines.pop_due(node.now())) else { break };
        waiting::time_out(ctx, ticket);
    }
}

/// Does a round of what had to wait for the end of the turn.
fn catch_up(ctx: Context<'_>) {
    let round = Round::begin(ROUND_US);
    serve_freed(ctx, &round);
    while round.goes_on() {
        if let Some(channel) = node::with(|node| node.turn.unheard.pop_front()) {
            unlocks::relay(ctx, &channel);
        } else if let Some(lock) = node::with(|node| node.turn.flushed.pop_front()) {
            unlocks::announce_if_free(ctx, &lock);
        } else if let Some(place) = node::with(|node| node.turn.sweep) {
            sweep_on(ctx, place);
        } else {
            // A crowd may have passed through: its room is given back.
            return node::with(|node| {
                node.turn.unheard.shrink_to(USUAL_CROWD);
                node.turn.flushed.shrink_to(USUAL_CROWD);
            });
        }
    }
}

/// Serves the lines for locks that became free while somebody waited for them.
fn serve_freed(ctx: Context<'_>, round: &Round) {
    while let Some(lock) = node::with(|node| node.turn.freed.first().cloned()) {
        serve_or_bar(ctx, lock);
        if !round.goes_on() {
            break;
        }
    }
}

/// Tries again what could not be granted, for a short while, going on where the last try ended.
fn retry_barred(ctx: Context<'_>) {
    let due = node::with(|node| {
        let is_due = node.turn.retry.as_ref().is_some_and(|(at, _)| *at <= node.now());
        if is_due { node.turn.retry.take() } else { None }
    });
    let Some((_, mut last)) = due else { return };
    let round = Round::begin(RETRY_US);
    while round.goes_on() {
        let next = node::with(|node| match &last {
            None => node.turn.barred.first().cloned(),
            Some(last) => node.turn.barred.range((Excluded(last), Unbounded)).next().cloned(),
        });
        last = next.clone();
        let Some(lock) = next else { break };
        let served = serve_one(ctx, &lock);
        if served == Served::Barred && node::with(|node| node.topology) == Topology::Standalone {
            // As it is for this one, so it is for all.
            break;
        }
        if served == Served::Done {
            node::with(|node| node.turn.barred.remove(&lock));
        }
    }
    node::with(|node| {
        let later = node.now().plus(BARRED_POLL);
        node.turn.retry = (!node.turn.barred.is_empty()).then_some((later, last));
    });
}

/// Serves the line for a lock, or has it tried again later.
fn serve_or_bar(ctx: Context<'_>, lock: LockName) {
    let served = serve_one(ctx, &lock);
    node::with(|node| {
        node.turn.freed.remove(&lock);
        if served == Served::Barred {
            node.turn.barred.insert(lock);
            let later = node.now().plus(BARRED_POLL);
            node.turn.retry.get_or_insert((later, None));
        }
    });
}

fn serve_one(ctx: Context<'_>, lock: &LockName) -> Served {
    if ctx.select(lock.db) {
        waiting::serve(ctx, ServerString::new(&lock.name).as_str())
    } else {
        Served::Done
    }
}

/// Serves the next line of a sweep over all.
fn sweep_on(ctx: Context<'_>, place: u32) {
    let found = node::with(|node| {
        let (next, db, name) = node.lines.line_from(place)?;
        Some((next, LockName { db, name: name.into() }))
    });
    node::with(|node| node.turn.sweep = found.as_ref().map(|(next, _)| *next));
    if let Some((_, lock)) = found {
        serve_or_bar(ctx, lock);
    }
}
