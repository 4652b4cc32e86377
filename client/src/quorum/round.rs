//! One round: all nodes are asked at once, for one owner.

use std::time::Duration;

use super::farewell::Farewell;
use super::holding::{Holding, Member};
use super::outbox::Outbox;
use super::{Answer, Block, Cause, Moment, NodeIndex, Refusal, Request, Terms, Ticket};
use crate::Owner;

/// A round under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    /// For whom: a fresh owner each round, as a late request of a round that failed must not count in another.
    pub owner: Owner,
    /// When the first node was asked: the lease is counted from then.
    pub began: Moment,
    votes: Vec<Vote>,
    /// The token that a majority has to know: the highest of those that granted.
    token: Option<u64>,
}

/// What a node has said so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Asked(Ticket, Block),
    Granted {
        token: u64,
    },
    /// Granted with a lower token than another node; asked to raise it.
    Raising(Ticket),
    Denied {
        left: Option<Duration>,
    },
    Failed(Cause),
}

/// How a round stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outlook {
    /// Nothing is decided.
    Open,
    /// A majority has granted, and knows the token.
    Won,
    /// No majority can be had any more.
    Failed(Refusal),
}

impl Round {
    /// Asks all nodes. From the line, each may block for as long as a node has to answer anyway: the last holder's
    /// releases are still on their way.
    pub fn begin(owner: Owner, terms: &Terms, block: Block, now: Moment, out: &mut Outbox) -> Self {
        let request = Request::Acquire { ttl: terms.ttl, least_token: terms.least_token, block };
        let ask =
            |node| Vote::Asked(out.put(NodeIndex(node), &owner, request, Some(terms.node_limit)), block);
        let votes = (0..terms.nodes).map(ask).collect();
        Self { owner, began: now, votes, token: None }
    }

    /// Takes an answer; `false` if it belongs to something else.
    pub fn handle_answer(&mut self, from: NodeIndex, ticket: Ticket, answer: &Answer) -> bool {
        let Some(vote) = self.votes.get_mut(from.0) else { return false };
        let is_raising = match vote {
            Vote::Asked(asked, _) if *asked == ticket => false,
            Vote::Raising(asked) if *asked == ticket => true,
            _ => return false,
        };
        *vote = match answer {
            Answer::Granted { token } => Vote::Granted { token: *token },
            Answer::Renewed if is_raising => Vote::Granted { token: self.token.unwrap_or_default() },
            Answer::Denied { left } => Vote::Denied { left: *left },
            Answer::Failed(cause) => Vote::Failed(cause.clone()),
            // Released by force, or forgotten in a restart, since it granted.
            _ => Vote::Denied { left: Some(Duration::ZERO) },
        };
        true
    }

    /// How the round stands. Where all depends on it, has nodes raise their tokens.
    pub fn judge(&mut self, terms: &Terms, out: &mut Outbox) -> Outlook {
        let quorum = terms.quorum();
        if self.holding_nodes() < quorum {
            let open = self.count(|vote| matches!(vote, Vote::Asked(..)));
            let is_lost = self.holding_nodes() + open < quorum;
            return if is_lost { Outlook::Failed(self.refusal(terms)) } else { Outlook::Open };
        }
        let highest = *self.token.get_or_insert_with(|| {
            let tokens = self.votes.iter().filter_map(|vote| match vote {
                Vote::Granted { token } => Some(*token),
                _ => None,
            });
            tokens.max().unwrap_or_default()
        });
        if self.count(|vote| matches!(vote, Vote::Granted { token } if *token >= highest)) >= quorum {
            return Outlook::Won;
        }
        for (node, vote) in self.votes.iter_mut().enumerate() {
            if matches!(vote, Vote::Granted { token } if *token < highest) {
                let raise = Request::Renew { ttl: terms.ttl, least_token: Some(highest) };
                *vote = Vote::Raising(out.put(NodeIndex(node), &self.owner, raise, Some(terms.node_limit)));
            }
        }
        Outlook::Open
    }

    /// Does this node say that another holds the lock?
    pub fn is_denied_by(&self, node: NodeIndex) -> bool {
        matches!(self.votes.get(node.0), Some(Vote::Denied { .. }))
    }

    /// Has this node failed to vote?
    pub fn has_failed(&self, node: NodeIndex) -> bool {
        matches!(self.votes.get(node.0), Some(Vote::Failed(_)))
    }

    /// The round is won: what is held now, nodes included that have not answered yet.
    pub fn into_holding(self, terms: &Terms) -> Holding {
        let valid_until = terms.valid_until(self.began, terms.ttl);
        let members = self.votes.into_iter().map(|vote| match vote {
            Vote::Asked(ticket, _) | Vote::Raising(ticket) => Member::Asked(ticket),
            Vote::Granted { .. } => Member::Ours,
            Vote::Denied { .. } | Vote::Failed(_) => Member::Strange,
        });
        let members = members.collect();
        Holding::begin(self.owner, self.token.unwrap_or_default(), members, self.began, valid_until, terms)
    }

    /// The round is over: whatever it got, or may get, is given back.
    pub fn into_farewell(self, terms: &Terms, out: &mut Outbox) -> Farewell {
        let mut farewell = Farewell::begin(self.owner, terms);
        for (node, vote) in self.votes.into_iter().enumerate() {
            let node = NodeIndex(node);
            match vote {
                // Most will deny; there is nothing to give back then.
                Vote::Asked(ticket, Block::No) => farewell.expect(node, ticket),
                Vote::Asked(..) | Vote::Granted { .. } | Vote::Raising(_) => farewell.release(node, out),
                Vote::Failed(cause) if cause.leaves_doubt() => farewell.release(node, out),
                Vote::Denied { .. } | Vote::Failed(_) => {}
            }
        }
        farewell
    }

    fn holding_nodes(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted { .. } | Vote::Raising(_)))
    }

    fn count(&self, wanted: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| wanted(vote)).count()
    }

    /// Busy where a majority has answered, in whatever way; unavailable otherwise.
    fn refusal(&self, terms: &Terms) -> Refusal {
        let causes: Vec<_> = self
            .votes
            .iter()
            .enumerate()
            .filter_map(|(node, vote)| match vote {
                Vote::Failed(cause) => Some((NodeIndex(node), cause.clone())),
                _ => None,
            })
            .collect();
        if terms.nodes - causes.len() < terms.quorum() {
            return Refusal::Unavailable { causes };
        }
        // So many have to get free, those with the shortest leases first.
        let missing = terms.quorum().saturating_sub(self.holding_nodes());
        let mut leases: Vec<_> = self
            .votes
            .iter()
            .filter_map(|vote| match vote {
                Vote::Denied { left } => Some(left.unwrap_or(Duration::MAX)),
                _ => None,
            })
            .collect();
        leases.sort_unstable();
        let left = leases.get(missing.saturating_sub(1)).copied().filter(|left| *left < Duration::MAX);
        Refusal::Busy { left, causes }
    }
}
