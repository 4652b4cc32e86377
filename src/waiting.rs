//! The waiting lines at work: who waits joins one, and a lock that becomes free is handed to the first.
//!
//! The hash is written at once, and propagated with what freed the lock. The new holder is told when the turn
//! of the event loop ends, just before the server sends all replies: whoever goes before that (closed, killed,
//! unblocked) never had the lock, and the next in line gets it.

use crate::leases;
use crate::lock::{self, Ask, Attempt, Entry, Grant, Newcomer, Record, Ticket, WallMs, Writes};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node::{self, Answer, Handoff, LockName, Node, Recipient, Request, Role, Standing};
use crate::refusal::Refusal;
use crate::server::{Args, Blocked, Context, ServerStr, ServerString, Waiting};
use crate::unlocks::{self, Cause};

/// What came of a request that was ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It waits.
    InLine,
    /// It must not, in a transaction or a script.
    NotAllowed,
}

/// What came of serving a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Nobody waits in front of a free lock.
    Done,
    /// The node can't grant anything now: to be tried again.
    Barred,
}

/// Lets a request wait in line for a lock that somebody else holds, for `timeout` milliseconds (0: without
/// end).
pub fn join(
    ctx: Context<'_>,
    name: ServerStr<'_>,
    owner: ServerStr<'_>,
    ask: Ask,
    timeout: u64,
) -> Result<Joined, Refusal> {
    if !ctx.may_block() {
        return Ok(Joined::NotAllowed);
    }
    let (ticket, waiting, max) =
        node::with(|node| (node.lines.next_ticket(), node.lines.waiting(), node.settings.max_waiters));
    if waiting >= max {
        return Err(Refusal::LineFull { max });
    }
    let Some(client) = Blocked::block(ctx, name, ticket) else { return Ok(Joined::NotAllowed) };
    let db = ctx.db();
    node::with(|node| {
        let now = node.now();
        // One more, as the present millisecond has begun already.
        let deadline = (timeout > 0).then(|| now.plus(timeout).plus(1));
        let newcomer = Newcomer { owner: owner.bytes(), ask, deadline, client };
        node.lines.join(db, name.bytes(), newcomer, now);
    });
    Ok(Joined::InLine)
}

/// Does anybody wait for this lock?
pub fn stands(ctx: Context<'_>, name: ServerStr<'_>) -> bool {
    let db = ctx.db();
    node::with(|node| node.lines.stands(db, name.bytes()))
}

/// The lock's last hold is gone by a command: tells of it, or hands the lock to the first in line.
pub fn freed(ctx: Context<'_>, name: ServerStr<'_>, cause: Cause) {
    leases::gone(ctx, name, cause);
    serve_if_freed(ctx, name);
}

/// Serves the line for this lock if it has become free meanwhile: by the command that runs, or found expired
/// by it.
pub fn serve_if_freed(ctx: Context<'_>, name: ServerStr<'_>) {
    let db = ctx.db();
    let is_freed = node::with(|node| {
        !node.turn.freed.is_empty() && node.turn.freed.contains(&LockName { db, name: name.bytes().into() })
    });
    if is_freed {
        serve(ctx, name);
    }
}

/// Hands the lock of this name to the first in line, if it is free. Where nobody is left in line, the unlock
/// is published.
pub fn serve(ctx: Context<'_>, name: ServerStr<'_>) -> Served {
    if node::with(|node| node.role == Role::Replica || node.grace.is_some()) {
        return Served::Done;
    }
    if ctx.writes_paused() {
        return Served::Barred;
    }
    let db = ctx.db();
    while let Some(ticket) = node::with(|node| node.lines.first(db, name.bytes())) {
        match serve_first(ctx, name, ticket) {
            Ok(Turnout::NextPlease) => {}
            Ok(Turnout::Settled) => {
                strike_off(db, name);
                return Served::Done;
            }
            Ok(Turnout::Barred) => return Served::Barred,
            Err(refusal) => refuse_all(db, name, refusal),
        }
    }
    if strike_off(db, name) && !is_held(ctx, name) {
        unlocks::publish(ctx, name.bytes());
    }
    Served::Done
}

/// Takes a lock off the list of those that became free; was it there?
fn strike_off(db: u32, name: ServerStr<'_>) -> bool {
    node::with(|node| {
        !node.turn.freed.is_empty() && node.turn.freed.remove(&LockName { db, name: name.bytes().into() })
    })
}

fn is_held(ctx: Context<'_>, name: ServerStr<'_>) -> bool {
    let record = LockKey::peek(ctx, name).ok().flatten().map(|key| key.record(None, Detail::NoToken));
    matches!(record, Some(Ok(Record::Mine { .. } | Record::Other { .. })))
}

/// What came of serving the first in line.
enum Turnout {
    /// The lock is held now, by the first in line or by somebody else.
    Settled,
    /// The first has left without the lock.
    NextPlease,
    /// The node can't grant anything now.
    Barred,
}

fn serve_first(ctx: Context<'_>, name: ServerStr<'_>, ticket: Ticket) -> Result<Turnout, Refusal> {
    let Some(first) = node::with(|node| node.lines.owner(ticket).map(ServerString::new)) else {
        return Ok(Turnout::NextPlease);
    };
    let key = LockKey::open(ctx, name)?;
    let owner = match key.record(Some(first.as_str()), Detail::All)? {
        Record::Free { .. } if !ctx.is_command() && !ctx.accepts_writes(name) => return Ok(Turnout::Barred),
        Record::Free { .. } | Record::Mine { .. } => first,
        Record::Other { .. } => {
            // A script of another kind took it meanwhile: its end must be noticed, and if its holder is in
            // line, it must not wait for itself.
            leases::record(ctx, name, key.lease(), wall_clock(ctx));
            match key.first_owner().filter(|holder| is_in_line(ctx, name, holder.as_str())) {
                Some(holder) => holder,
                None => return Ok(Turnout::Settled),
            }
        }
    };
    drop(key);
    Ok(grant_all(ctx, name, owner.as_str()))
}

fn is_in_line(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) -> bool {
    let db = ctx.db();
    node::with(|node| node.lines.first_of(db, name.bytes(), owner.bytes()).is_some())
}

/// Grants all requests of an owner whom nobody stands against. They are told at the end of the turn.
fn grant_all(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) -> Turnout {
    let db = ctx.db();
    let mut handoff = Handoff { owner: owner.bytes().into(), before: 0, token: 0, recipients: Vec::new() };
    while let Some(ticket) = node::with(|node| node.lines.first_of(db, name.bytes(), owner.bytes())) {
        if let Err(refusal) = grant(ctx, name, owner, ticket, &mut handoff) {
            dismiss(ticket, Answer::Refused(refusal));
        }
    }
    if handoff.recipients.is_empty() {
        return Turnout::NextPlease;
    }
    node::with(|node| {
        let lock = LockName { db, name: name.bytes().into() };
        if let Some(earlier) = node.turn.handoffs.insert(lock, handoff) {
            confirm_handoff(node, earlier);
        }
    });
    Turnout::Settled
}

/// Grants one request of an owner whom nobody stands against.
fn grant(
    ctx: Context<'_>,
    name: ServerStr<'_>,
    owner: ServerStr<'_>,
    ticket: Ticket,
    handoff: &mut Handoff,
) -> Result<(), Refusal> {
    let now = wall_clock(ctx);
    let key = LockKey::open(ctx, name)?;
    let record = key.record(Some(owner), Detail::All)?;
    let lease = key.lease();
    let Some((ask, attempt)) = node::with(|node| {
        let ask = node.lines.get(ticket)?.ask;
        Some((ask, lock::acquire(record, lease, ask, now, &mut node.tokens)))
    }) else {
        return Ok(());
    };
    match attempt {
        Ok(Attempt::Granted(grant)) => {
            key.write(owner, grant.writes);
            leases::record(ctx, name, grant.lease, now);
            if let (true, Record::Mine { holds, .. }) = (handoff.recipients.is_empty(), record) {
                handoff.before = holds;
            }
            hand_over(ticket, ask, grant, now, handoff);
            if grant.entry == Entry::First {
                ctx.notify(c"lock.acquired", name);
            }
        }
        Ok(Attempt::Denied { token }) => {
            dismiss(ticket, Answer::Standing(Standing { holds: 0, ttl: lease.left(now), token }));
        }
        Err(exhausted) => dismiss(ticket, Answer::Refused(Refusal::Exhausted(exhausted))),
    }
    Ok(())
}

fn hand_over(ticket: Ticket, ask: Ask, grant: Grant, now: WallMs, handoff: &mut Handoff) {
    node::with(|node| {
        match grant.entry {
            Entry::First => node.metrics.granted += 1,
            Entry::Again => node.metrics.reentered += 1,
        }
        node.metrics.handed_over += 1;
        let Some(client) = leave(node, ticket) else { return };
        let standing = Standing { holds: grant.holds, ttl: grant.lease.left(now), token: grant.token };
        handoff.token = grant.token;
        handoff.recipients.push(Recipient { client, asked: ask.holds, standing });
    });
}

/// Takes a request out of its line.
fn leave(node: &mut Node, ticket: Ticket) -> Option<Blocked<Request>> {
    let waiter = node.lines.leave(ticket)?;
    let waited = node.now().since(waiter.since);
    node.metrics.longest_wait_ms = node.metrics.longest_wait_ms.max(waited);
    Some(waiter.client)
}

/// Takes a request out of its line, with an answer for the end of the turn.
fn dismiss(ticket: Ticket, answer: Answer) {
    node::with(|node| {
        if let Some(client) = leave(node, ticket) {
            node.turn.answers.push((client, answer));
        }
    });
}

fn refuse_all(db: u32, name: ServerStr<'_>, refusal: Refusal) {
    while let Some(ticket) = node::with(|node| node.lines.first(db, name.bytes())) {
        dismiss(ticket, Answer::Refused(refusal));
    }
}

/// The owner acts on its lock: it knows of its hold already, so nobody takes it back.
pub fn confirm(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) {
    let db = ctx.db();
    node::with(|node| {
        if let Some(handoff) = take_handoff(node, db, name, owner) {
            confirm_handoff(node, handoff);
        }
    });
}

fn take_handoff(node: &mut Node, db: u32, name: ServerStr<'_>, owner: ServerStr<'_>) -> Option<Handoff> {
    if node.turn.handoffs.is_empty() {
        return None;
    }
    let lock = LockName { db, name: name.bytes().into() };
    node.turn.handoffs.get(&lock).filter(|handoff| *handoff.owner == *owner.bytes())?;
    node.turn.handoffs.remove(&lock)
}

fn confirm_handoff(node: &mut Node, handoff: Handoff) {
    let answers = handoff.recipients.into_iter().map(|to| (to.client, Answer::Standing(to.standing)));
    node.turn.answers.extend(answers);
}

/// Requests that their owner has withdrawn, and that are to be told so.
pub struct Withdrawn(Vec<Blocked<Request>>);

/// Takes all requests of an owner out of the line for this lock, those too that have been granted in this
/// turn and were not told.
pub fn withdraw(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) -> Withdrawn {
    let db = ctx.db();
    node::with(|node| {
        let mut clients = Vec::new();
        if node.lines.stands(db, name.bytes()) {
            while let Some(ticket) = node.lines.first_of(db, name.bytes(), owner.bytes()) {
                clients.extend(leave(node, ticket));
            }
        }
        if let Some(handoff) = take_handoff(node, db, name, owner) {
            clients.extend(handoff.recipients.into_iter().map(|to| to.client));
        }
        node.metrics.wait_withdrawn += clients.len() as u64;
        Withdrawn(clients)
    })
}

impl Withdrawn {
    /// Denies them the lock as it stands now.
    pub fn deny(self, ctx: Context<'_>, name: ServerStr<'_>) {
        if self.0.is_empty() {
            return;
        }
        let answer = denial(ctx, name);
        node::with(|node| node.turn.answers.extend(self.0.into_iter().map(|client| (client, answer))));
    }
}

/// What is said to somebody who does not get the lock.
fn denial(ctx: Context<'_>, name: ServerStr<'_>) -> Answer {
    if let Some(left) = node::with(|node| node.grace_left()) {
        return Answer::Refused(Refusal::Grace { left });
    }
    let now = wall_clock(ctx);
    let standing = || match LockKey::peek(ctx, name)? {
        None => Ok(Standing::default()),
        Some(key) => Ok(match key.record(None, Detail::All)? {
            Record::Free { .. } => Standing::default(),
            Record::Mine { token, .. } | Record::Other { token } => {
                Standing { holds: 0, ttl: key.lease().left(now), token }
            }
        }),
    };
    standing().map_or_else(Answer::Refused, Answer::Standing)
}

/// The time of a request is up: it gets the lock after all, if that is free now, or is denied.
pub fn time_out(ctx: Context<'_>, ticket: Ticket) {
    let Some((db, name)) =
        node::with(|node| node.lines.lock(ticket).map(|(db, name)| (db, ServerString::new(name))))
    else {
        return;
    };
    let name = name.as_str();
    if ctx.select(db) {
        serve(ctx, name);
    }
    if node::with(|node| node.lines.get(ticket).is_some()) {
        let answer = denial(ctx, name);
        node::with(|node| node.metrics.wait_timed_out += 1);
        dismiss(ticket, answer);
    }
}

/// Tells everybody who is to be told something. To be called in a timer, when no command can come between
/// this and the sending of the replies.
pub fn deliver(ctx: Context<'_>) {
    // To take a lock back hands it to the next, who may be gone as well.
    while let Some((lock, handoff)) = node::with(|node| next_handoff(node, ctx)) {
        if handoff.is_complete() {
            node::with(|node| confirm_handoff(node, handoff));
        } else {
            take_back(ctx, &lock, handoff);
        }
    }
    for (client, answer) in node::with(|node| std::mem::take(&mut node.turn.answers)) {
        client.resume(answer);
    }
}

/// While writes are paused, nothing can be taken back.
fn next_handoff(node: &mut Node, ctx: Context<'_>) -> Option<(LockName, Handoff)> {
    if !ctx.writes_paused() {
        return node.turn.handoffs.pop_first();
    }
    let (lock, _) = node.turn.handoffs.iter().find(|(_, handoff)| handoff.is_complete())?;
    let lock = lock.clone();
    node.turn.handoffs.remove_entry(&lock)
}

/// Some who were granted a lock have gone without having been told: takes back what they got, and no more.
fn take_back(ctx: Context<'_>, lock: &LockName, handoff: Handoff) {
    let Handoff { owner, before, token, recipients } = handoff;
    let mut keep = before;
    node::with(|node| {
        let (there, gone): (Vec<_>, Vec<_>) = recipients.into_iter().partition(|to| to.client.is_there());
        node.metrics.wait_gone += gone.len() as u64;
        node.metrics.handed_over = node.metrics.handed_over.saturating_sub(gone.len() as u64);
        for to in there {
            keep = to.asked.map_or(keep + 1, |asked| asked.max(keep));
            node.turn.answers.push((to.client, Answer::Standing(Standing { holds: keep, ..to.standing })));
        }
    });
    if !ctx.select(lock.db) {
        return;
    }
    let (name, owner) = (ServerString::new(&lock.name), ServerString::new(&owner));
    let (name, owner) = (name.as_str(), owner.as_str());
    let Ok(key) = LockKey::open(ctx, name) else { return };
    match key.record(Some(owner), Detail::All) {
        Ok(Record::Mine { holds, token: present, others }) if present == token && holds > keep => {
            if keep > 0 {
                key.write(owner, Writes { holds: Some(keep), ..Writes::default() });
            } else if others > 0 {
                key.remove_owner(owner);
            } else {
                key.delete();
                freed(ctx, name, Cause::Released);
            }
        }
        _ => {}
    }
}

impl Waiting for Request {
    type Ticket = Ticket;
    type Answer = Answer;

    fn answer(ctx: Context<'_>, answer: Answer) {
        answer.send(ctx);
    }

    fn give_up(ctx: Context<'_>, args: Args<'_>, ticket: Ticket) {
        node::with(|node| {
            let was_in_line = leave(node, ticket).is_some();
            node.metrics.wait_timed_out += u64::from(was_in_line);
        });
        match args.as_slice().first() {
            Some(name) => denial(ctx, *name).send(ctx),
            None => Answer::Standing(Standing::default()).send(ctx),
        }
    }

    fn gone(_ctx: Context<'_>, ticket: Ticket) {
        node::with(|node| {
            let was_in_line = leave(node, ticket).is_some();
            node.metrics.wait_gone += u64::from(was_in_line);
        });
    }
}

impl Answer {
    /// Replies with it.
    pub fn send(self, ctx: Context<'_>) {
        match self {
            Self::Refused(refusal) => refusal.reply(ctx),
            Self::Standing(Standing { holds, ttl, token }) => {
                // Counts and tokens stay below 2⁵³.
                ctx.reply_array(3);
                ctx.reply_integer(holds.cast_signed());
                ctx.reply_integer(ttl);
                ctx.reply_integer(token.cast_signed());
            }
        }
    }
}

/// The wall clock by which leases begin.
pub fn wall_clock(ctx: Context<'_>) -> WallMs {
    WallMs(ctx.wall_clock_us() / 1000)
}
