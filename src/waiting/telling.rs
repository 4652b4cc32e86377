//! Who waited is told what came of it, when the turn of the event loop ends.

use super::denial::denial;
use super::handoff::freed;
use super::request::leave;
use crate::answer::{Answer, Standing};
use crate::leases;
use crate::lock::{Record, Ticket, Writes};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node::{self, Handoff, LockName, Message, Node, Receipt, Recipient};
use crate::server::{Context, ServerStr, ServerString};
use crate::unlocks::Cause;

/// Tells everybody who is to be told something. To be called in a timer, when no command can come between
/// this and the sending of the replies.
pub fn deliver(ctx: Context<'_>) {
    if !ctx.writes_paused() {
        for receipt in node::with(|node| std::mem::take(&mut node.turn.missed)) {
            take_back_missed(ctx, &receipt);
        }
    }
    // To take a lock back hands it to the next, who may be gone as well.
    while let Some((lock, handoff)) = node::with(|node| next_handoff(node, ctx)) {
        if handoff.is_complete() {
            node::with(|node| tell(node, lock, handoff));
        } else {
            take_back(ctx, &lock, handoff);
        }
    }
    for message in node::with(|node| std::mem::take(&mut node.turn.answers)) {
        message.client.resume(message.answer, message.receipt);
    }
}

/// What was handed over is to be told. What a single request got is taken back even later, if it turns out that
/// it did not reach the client.
fn tell(node: &mut Node, lock: LockName, mut handoff: Handoff) {
    if handoff.recipients.len() != 1 {
        return node.turn.tell_all(handoff);
    }
    let Some(Recipient { client, standing, .. }) = handoff.recipients.pop() else { return };
    let Handoff { owner, before, lease, .. } = handoff;
    let receipt = Receipt { lock, owner, before, standing, lease };
    let answer = Answer::Standing(standing);
    node.turn.answers.push(Message { client, answer, receipt: Some(Box::new(receipt)) });
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
    let Handoff { owner, before, token, recipients, .. } = handoff;
    let granted = recipients.last().map_or(before, |last| last.standing.holds);
    let mut keep = before;
    node::with(|node| {
        let (there, gone): (Vec<_>, Vec<_>) = recipients.into_iter().partition(|to| to.client.is_there());
        node.metrics.wait_gone += gone.len() as u64;
        node.metrics.handed_over = node.metrics.handed_over.saturating_sub(gone.len() as u64);
        for to in there {
            keep = to.asked.map_or(keep + 1, |asked| asked.max(keep));
            let answer = Answer::Standing(Standing { holds: keep, ..to.standing });
            node.turn.answers.push(Message::new(to.client, answer));
        }
    });
    let surplus = granted.saturating_sub(keep);
    take_down(ctx, lock, &owner, |_, holds, present| {
        (present == token && surplus > 0).then(|| holds.saturating_sub(surplus))
    });
}

/// Takes back what a request got whose client has gone in the last moment, unless anything has happened to the
/// hold since: then its owner may know of it.
fn take_back_missed(ctx: Context<'_>, receipt: &Receipt) {
    let Receipt { lock, owner, before, standing, lease } = receipt;
    node::with(|node| {
        node.metrics.wait_gone += 1;
        node.metrics.handed_over = node.metrics.handed_over.saturating_sub(1);
    });
    take_down(ctx, lock, owner, |key, holds, token| {
        let is_untouched = (holds, token, key.lease()) == (standing.holds, standing.token, *lease);
        is_untouched.then_some(*before)
    });
}

/// Takes an owner's hold count down to what `keep` makes of its holds and its token, or leaves it.
fn take_down(
    ctx: Context<'_>,
    lock: &LockName,
    owner: &[u8],
    keep: impl FnOnce(&LockKey<'_>, u64, u64) -> Option<u64>,
) {
    if !ctx.select(lock.db) {
        return;
    }
    let (name, owner) = (ServerString::new(&lock.name), ServerString::new(owner));
    let (name, owner) = (name.as_str(), owner.as_str());
    let Ok(key) = LockKey::open(ctx, name) else { return };
    let Ok(Record::Mine { holds, token, others }) = key.record(Some(owner), Detail::All) else { return };
    match keep(&key, holds, token) {
        None => {}
        Some(0) if others > 0 => key.remove_owner(owner),
        Some(0) => {
            key.delete();
            freed(ctx, name, Cause::Released);
        }
        Some(left) => {
            key.write(owner, Writes { holds: Some(left), ..Writes::default() });
            leases::recount(ctx, name, left);
        }
    }
}

/// `CLIENT UNBLOCK` has ended the wait of a request for this lock: what it is told.
pub fn give_up(ctx: Context<'_>, name: Option<ServerStr<'_>>, ticket: Ticket) -> Answer {
    let was_in_line = node::with(|node| {
        let was_in_line = leave(node, ticket).is_some();
        node.metrics.wait_timed_out += u64::from(was_in_line);
        was_in_line
    });
    // Where it was handed the lock a moment ago, that is taken back when the turn ends.
    name.filter(|_| was_in_line).map_or(Answer::Standing(Standing::default()), |name| denial(ctx, name))
}

/// The client of a request is gone.
pub fn gone(ticket: Ticket) {
    node::with(|node| {
        let was_in_line = leave(node, ticket).is_some();
        node.metrics.wait_gone += u64::from(was_in_line);
    });
}

/// What a request was granted did not reach its client.
pub fn missed(receipt: Receipt) {
    node::with(|node| node.turn.missed.push(receipt));
}
