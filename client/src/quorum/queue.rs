//! Waiting in line at one node, the head.

use std::sync::Arc;
use std::time::Duration;

use super::farewell::Farewell;
use super::outbox::Outbox;
use super::{Answer, Block, Cause, Moment, NodeIndex, Request, Terms, Ticket};
use crate::Owner;

/// A place in the line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Who waits.
    pub owner: Owner,
    /// Where.
    pub head: NodeIndex,
    ticket: Ticket,
    next_look: Moment,
    looks: Vec<Look>,
    /// Whom the last look found at the head, with no majority to confirm it.
    suspect: Option<Arc<[u8]>>,
}

/// What a node says while we wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Look {
    None,
    Asked(Ticket),
    Holder(Option<Arc<[u8]>>),
    Failed,
}

/// What came of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Still in line.
    Waiting,
    /// We are the first: the head has granted.
    First,
    /// The head says no: the time is up.
    Denied {
        /// What is left of the holder's lease.
        left: Option<Duration>,
    },
    /// The head is gone, or can't be trusted to know who holds the lock.
    Astray(Option<Cause>),
}

impl Place {
    /// Joins the line at `head` until `deadline`. One request lasts the whole wait: a second one would begin at the
    /// end of the line.
    pub fn join(
        owner: Owner,
        head: NodeIndex,
        terms: &Terms,
        deadline: Option<Moment>,
        now: Moment,
        out: &mut Outbox,
    ) -> Self {
        let block = match deadline {
            // A time-out of zero would be none at all.
            Some(deadline) => Block::For(deadline.since(now).max(Duration::from_millis(1))),
            None => Block::Forever,
        };
        let request = Request::Acquire { ttl: terms.ttl, least_token: terms.least_token, block };
        let ticket = out.put(head, &owner, request, None);
        let looks = vec![Look::None; terms.nodes];
        Self { owner, head, ticket, next_look: now + terms.beat(), looks, suspect: None }
    }

    /// When the next look is due.
    pub fn timeout(&self) -> Moment {
        self.next_look
    }

    /// Asks all nodes who holds the lock, where that is due.
    pub fn handle_timeout(&mut self, terms: &Terms, now: Moment, out: &mut Outbox) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + terms.beat();
        for (node, look) in self.looks.iter_mut().enumerate() {
            *look =
                Look::Asked(out.put(NodeIndex(node), &self.owner, Request::Probe, Some(terms.node_limit)));
        }
    }

    /// Takes an answer; `None` if it belongs to something else.
    pub fn handle_answer(
        &mut self,
        terms: &Terms,
        from: NodeIndex,
        ticket: Ticket,
        answer: &Answer,
    ) -> Option<Turn> {
        if from == self.head && ticket == self.ticket {
            return Some(match answer {
                Answer::Granted { .. } => Turn::First,
                Answer::Failed(cause) => Turn::Astray(Some(cause.clone())),
                Answer::Denied { left } => Turn::Denied { left: *left },
                _ => Turn::Denied { left: None },
            });
        }
        let look = self.looks.get_mut(from.0)?;
        if *look != Look::Asked(ticket) {
            return None;
        }
        *look = match answer {
            Answer::Alive { holder } => Look::Holder(holder.clone()),
            _ => Look::Failed,
        };
        if let (true, Answer::Failed(cause)) = (from == self.head, answer) {
            return Some(Turn::Astray(Some(cause.clone())));
        }
        if self.looks.iter().any(|look| matches!(look, Look::Asked(_))) {
            return Some(Turn::Waiting);
        }
        Some(self.judge(terms))
    }

    /// All nodes have said who holds the lock, or failed to. A holder that no majority can know, found twice in a
    /// row, is what is left of something that broke: no use in waiting for its end.
    fn judge(&mut self, terms: &Terms) -> Turn {
        let Look::Holder(Some(holder)) = self.looks[self.head.0].clone() else {
            self.suspect = None;
            return Turn::Waiting;
        };
        let may_agree = |look: &&Look| match look {
            Look::Holder(seen) => seen.as_ref() == Some(&holder),
            _ => true,
        };
        if self.looks.iter().filter(may_agree).count() >= terms.quorum() {
            self.suspect = None;
            return Turn::Waiting;
        }
        if self.suspect.as_ref() == Some(&holder) {
            return Turn::Astray(None);
        }
        self.suspect = Some(holder);
        Turn::Waiting
    }

    /// Leaves the line.
    pub fn into_farewell(self, terms: &Terms, out: &mut Outbox) -> Farewell {
        let mut farewell = Farewell::begin(self.owner, terms);
        farewell.release(self.head, out);
        farewell
    }
}
