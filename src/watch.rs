//! What others do to a lock's key, and what happens to the node and to those who wait.

use crate::answer::Answer;
use crate::leases;
use crate::lock::Ticket;
use crate::lock_hash;
use crate::node::{self, Receipt, Request, Role};
use crate::server::{Args, Context, KeyspaceEvent, Observer, ServerEvent, ServerStr, Waiting, for_each_hash};
use crate::turn;
use crate::unlocks::Cause;
use crate::waiting;

/// Listens to the server.
pub struct Watch;

impl Observer for Watch {
    /// Called for a good part of all commands of all clients: what does not concern a lock leaves at once.
    fn keyspace_event(ctx: Context<'_>, event: KeyspaceEvent<'_>) {
        let key = event.key;
        match event.name {
            b"rename_to" | b"move_to" | b"copy_to" | b"restore" => leases::arrived(ctx, key),
            // A replica learns of its master's locks by the lease that comes with each.
            b"expire" if node::with(|node| node.role) == Role::Replica => leases::review(ctx, key),
            _ if !is_on_record(ctx, key) => return,
            b"expired" => leases::reaped(ctx, key),
            b"evicted" => leases::evicted(ctx, key),
            b"del" | b"rename_from" | b"move_from" => leases::gone(ctx, key, Cause::Vanished),
            _ => leases::review(ctx, key),
        }
        turn::settle_after_event(ctx);
    }

    fn server_event(ctx: Context<'_>, event: ServerEvent) {
        match event {
            ServerEvent::Loaded => take_stock(ctx),
            ServerEvent::Promoted => {
                node::with(|node| {
                    node.role = Role::Master;
                    node.tokens.seed(node.token_clock_us());
                    node.begin_grace();
                });
                leases::observe_tokens(ctx);
                node::with(turn::want_next_lease);
            }
            ServerEvent::Demoted => {
                node::with(|node| {
                    node.role = Role::Replica;
                    node.grace = None;
                    leases::forget_lost(node);
                });
                turn::forget(ctx);
            }
            ServerEvent::Flushed(db) => leases::flushed(db),
            ServerEvent::Swapped(first, second) => leases::swapped(first, second),
            ServerEvent::Cron => leases::check_clock(ctx),
        }
        turn::settle(ctx);
    }
}

/// Those who wait.
impl Waiting for Request {
    type Ticket = Ticket;
    type Answer = Answer;
    type Receipt = Box<Receipt>;

    fn answer(ctx: Context<'_>, answer: Answer) {
        answer.send(ctx);
    }

    fn give_up(ctx: Context<'_>, args: Args<'_>, ticket: Ticket) {
        waiting::give_up(ctx, args.as_slice().first().copied(), ticket).send(ctx);
        turn::settle(ctx);
    }

    fn gone(_ctx: Context<'_>, ticket: Ticket) {
        waiting::gone(ticket);
    }

    fn missed(ctx: Context<'_>, receipt: Box<Receipt>) {
        waiting::missed(*receipt);
        turn::settle(ctx);
    }
}

fn is_on_record(ctx: Context<'_>, key: ServerStr<'_>) -> bool {
    node::with(|node| node.leases.len() > 0 && node.leases.contains(ctx.db(), key.bytes()))
}

/// Builds the table anew from the data, after a load.
pub fn take_stock(ctx: Context<'_>) {
    leases::check_clock(ctx);
    node::with(|node| {
        node.leases.drain(None);
        node.tokens.seed(node.token_clock_us());
    });
    let mut db = 0;
    while ctx.select(db) {
        for_each_hash(ctx, &mut |key| {
            let Some(token) = lock_hash::token(key) else { return };
            node::with(|node| node.tokens.observe(token));
            if lock_hash::held(key).is_some() {
                leases::learn(key, db);
            }
        });
        db += 1;
    }
    node::with(leases::review_lines);
}
