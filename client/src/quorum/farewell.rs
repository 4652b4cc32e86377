//! Giving back what an owner has, or may have, on every node.

use super::outbox::Outbox;
use super::{Answer, Before, Cause, NodeIndex, Released, Request, Terms, Ticket};
use crate::Owner;

/// How often a node is told to release before it is left to the end of the lease.
const TRIES: u32 = 2;

/// Releases under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Farewell {
    owner: Owner,
    partings: Vec<Parting>,
    limit: std::time::Duration,
    quorum: usize,
}

/// How it stands with one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parting {
    /// There is nothing of ours.
    Nothing,
    /// An ACQUIRE is under way; what it gets is given back.
    Expecting(Ticket),
    /// A RELEASE is under way.
    Releasing(Ticket, u32),
    /// The node has released the lock, or had nothing to release.
    Released(Before),
    /// It does not answer. The lease ends by itself.
    Failed(Cause),
}

impl Farewell {
    /// Nothing yet.
    pub fn begin(owner: Owner, terms: &Terms) -> Self {
        let partings = vec![Parting::Nothing; terms.nodes];
        Self { owner, partings, limit: terms.node_limit, quorum: terms.quorum() }
    }

    /// Releases on all nodes.
    pub fn everywhere(owner: Owner, terms: &Terms, out: &mut Outbox) -> Self {
        let mut farewell = Self::begin(owner, terms);
        (0..terms.nodes).for_each(|node| farewell.release(NodeIndex(node), out));
        farewell
    }

    /// An ACQUIRE is still under way to this node.
    pub fn expect(&mut self, node: NodeIndex, ticket: Ticket) {
        self.partings[node.0] = Parting::Expecting(ticket);
    }

    /// Releases on this node.
    pub fn release(&mut self, node: NodeIndex, out: &mut Outbox) {
        self.send(node, TRIES, out);
    }

    /// Takes an answer; `false` if it belongs to something else.
    pub fn handle_answer(
        &mut self,
        from: NodeIndex,
        ticket: Ticket,
        answer: &Answer,
        out: &mut Outbox,
    ) -> bool {
        match self.partings.get(from.0) {
            Some(Parting::Expecting(asked)) if *asked == ticket => match answer {
                Answer::Granted { .. } => self.send(from, TRIES, out),
                Answer::Failed(cause) if cause.leaves_doubt() => self.send(from, TRIES, out),
                _ => self.partings[from.0] = Parting::Nothing,
            },
            Some(Parting::Releasing(asked, tries)) if *asked == ticket => match answer {
                Answer::Released(before) => self.partings[from.0] = Parting::Released(*before),
                Answer::Failed(_) if *tries > 1 => self.send(from, tries - 1, out),
                Answer::Failed(cause) => self.partings[from.0] = Parting::Failed(cause.clone()),
                _ => self.partings[from.0] = Parting::Nothing,
            },
            _ => return false,
        }
        true
    }

    /// Has every node answered, or been given up?
    pub fn is_over(&self) -> bool {
        !self.partings.iter().any(|parting| matches!(parting, Parting::Expecting(_) | Parting::Releasing(..)))
    }

    /// What came of it, as soon as a majority has confirmed it or nothing more will come.
    pub fn outcome(&self) -> Option<Released> {
        let count =
            |before| self.partings.iter().filter(|parting| **parting == Parting::Released(before)).count();
        let (held, absent) = (count(Before::Held), count(Before::Absent));
        let is_decided = held >= self.quorum || self.is_over();
        is_decided.then(|| {
            let causes = self.partings.iter().enumerate().filter_map(|(node, parting)| match parting {
                Parting::Failed(cause) => Some((NodeIndex(node), cause.clone())),
                _ => None,
            });
            Released { held, absent, causes: causes.collect() }
        })
    }

    fn send(&mut self, node: NodeIndex, tries: u32, out: &mut Outbox) {
        let ticket = out.put(node, &self.owner, Request::Release, Some(self.limit));
        self.partings[node.0] = Parting::Releasing(ticket, tries);
    }
}
