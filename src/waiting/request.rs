//! A request in line: how it joins, and how it leaves.

use crate::answer::Answer;
use crate::lock::{Ask, Newcomer, Ticket};
use crate::node::{self, Handoff, LockName, Message, Node, Request};
use crate::refusal::Refusal;
use crate::server::{Blocked, Context, ServerStr};

/// What came of a request that was ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It waits.
    InLine,
    /// It must not, in a transaction or a script.
    NotAllowed,
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
    let anybody = node::with(|node| node.lines.waiting() > 0);
    anybody && {
        let db = ctx.db();
        node::with(|node| node.lines.stands(db, name.bytes()))
    }
}

/// Takes a request out of its line.
pub(super) fn leave(node: &mut Node, ticket: Ticket) -> Option<Blocked<Request>> {
    let waiter = node.lines.leave(ticket)?;
    let waited = node.now().since(waiter.since);
    node.metrics.longest_wait_ms = node.metrics.longest_wait_ms.max(waited);
    Some(waiter.client)
}

/// Takes a request out of its line, with an answer for the end of the turn.
pub(super) fn dismiss(ticket: Ticket, answer: Answer) {
    node::with(|node| {
        if let Some(client) = leave(node, ticket) {
            node.turn.answers.push(Message::new(client, answer));
        }
    });
}

/// The owner acts on its lock: it knows of its hold already, so nobody takes it back.
pub fn confirm(ctx: Context<'_>, name: ServerStr<'_>, owner: ServerStr<'_>) {
    if node::with(|node| node.turn.handoffs.is_empty()) {
        return;
    }
    let db = ctx.db();
    node::with(|node| {
        if let Some(handoff) = take_handoff(node, db, name, owner) {
            node.turn.tell_all(handoff);
        }
    });
}

pub(super) fn take_handoff(
    node: &mut Node,
    db: u32,
    name: ServerStr<'_>,
    owner: ServerStr<'_>,
) -> Option<Handoff> {
    if node.turn.handoffs.is_empty() {
        return None;
    }
    let lock = LockName { db, name: name.bytes().into() };
    node.turn.handoffs.get(&lock).filter(|handoff| *handoff.owner == *owner.bytes())?;
    node.turn.handoffs.remove(&lock)
}
