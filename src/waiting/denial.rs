//! A request leaves its line without the lock.

use super::handoff::serve;
use super::request::{dismiss, leave, take_handoff};
use crate::answer::{Answer, Standing};
use crate::leases::wall_clock;
use crate::lock::{Record, Ticket};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node::{self, Message, Request};
use crate::refusal::Refusal;
use crate::server::{Blocked, Context, ServerStr, ServerString};

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
        node::with(|node| {
            node.turn.answers.extend(self.0.into_iter().map(|client| Message::new(client, answer)))
        });
    }
}

/// What is said to somebody who does not get the lock.
pub(super) fn denial(ctx: Context<'_>, name: ServerStr<'_>) -> Answer {
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
