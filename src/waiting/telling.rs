//! Who waited is told what came of it, when the turn of the event loop ends.

use super::denial::denial;
use super::handoff::freed;
use super::request::{confirm_handoff, leave};
use crate::answer::{Answer, Standing};
use crate::lock::{Record, Ticket, Writes};
use crate::lock_hash::Detail;
use crate::lock_key::LockKey;
use crate::node::{self, Handoff, LockName, Node, Request};
use crate::server::{Args, Context, ServerString, Waiting};
use crate::unlocks::Cause;

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
        let was_in_line = node::with(|node| {
            let was_in_line = leave(node, ticket).is_some();
            node.metrics.wait_timed_out += u64::from(was_in_line);
            was_in_line
        });
        match args.as_slice().first().filter(|_| was_in_line) {
            Some(name) => denial(ctx, *name).send(ctx),
            // It was handed the lock a moment ago, which is taken back when the turn ends.
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
