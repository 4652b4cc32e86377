//! Requests that wait to be sent.

use std::collections::VecDeque;
use std::time::Duration;

use super::{NodeIndex, Request, Ticket, Transmit};
use crate::Owner;

/// Requests that wait to be sent, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outbox {
    queue: VecDeque<Transmit>,
    tickets: u64,
}

impl Outbox {
    /// Puts a request in; answers its ticket.
    pub fn put(&mut self, to: NodeIndex, owner: &Owner, request: Request, limit: Option<Duration>) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.queue.push_back(Transmit { to, owner: owner.clone(), ticket, request, limit });
        ticket
    }

    /// The next request to be sent.
    pub fn take(&mut self) -> Option<Transmit> {
        self.queue.pop_front()
    }
}
