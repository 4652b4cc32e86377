//! A node as the commands describe it: one lock, its line, its counter of tokens, its grace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Party;
use crate::Owner;
use crate::quorum::{Answer, Before, Block, Cause, CauseKind, Moment, Request, Ticket, Transmit};

/// An answer on its way.
pub struct Reply {
    pub party: Party,
    pub ticket: Ticket,
    pub answer: Answer,
}

#[derive(Debug)]
struct Hold {
    owner: Owner,
    token: u64,
    ends: Moment,
}

#[derive(Debug)]
struct Waiting {
    party: Party,
    owner: Owner,
    ticket: Ticket,
    ttl: Duration,
    least_token: u64,
    until: Option<Moment>,
}

#[derive(Debug)]
pub struct Node {
    hold: Option<Hold>,
    line: VecDeque<Waiting>,
    counter: u64,
    grace: Duration,
    grants_from: Moment,
    /// How many requests to acquire and to release it was sent.
    pub requests: u64,
}

impl Node {
    pub fn new(counter: u64, grace: Duration) -> Self {
        Self {
            hold: None,
            line: VecDeque::new(),
            counter,
            grace,
            grants_from: Moment::from_start(Duration::ZERO),
            requests: 0,
        }
    }

    /// Loses all it knows. Its counter goes on from the clock, when the grace ends, and so ahead of its own past.
    pub fn crash(&mut self, now: Moment) -> Vec<Reply> {
        self.hold = None;
        self.grants_from = now + self.grace;
        self.counter += 1_000;
        let broken = || Answer::Failed(Cause::new(CauseKind::Silent, "the connection broke"));
        let all = self.line.drain(..);
        all.map(|waiting| Reply { party: waiting.party, ticket: waiting.ticket, answer: broken() }).collect()
    }

    /// A client's connection broke: its requests leave the line.
    pub fn forget(&mut self, party: Party, ticket: Ticket) {
        self.line.retain(|waiting| (waiting.party, waiting.ticket) != (party, ticket));
    }

    pub fn is_free(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.hold.is_none() && self.line.is_empty()
    }

    /// When something happens by itself.
    pub fn timeout(&self, now: Moment) -> Option<Moment> {
        let lease = self.hold.as_ref().map(|hold| hold.ends);
        let grace = (!self.line.is_empty() && self.grants_from > now).then_some(self.grants_from);
        let waits = self.line.iter().filter_map(|waiting| waiting.until);
        lease.into_iter().chain(grace).chain(waits).min()
    }

    pub fn handle_timeout(&mut self, now: Moment) -> Vec<Reply> {
        self.expire(now);
        let mut replies = self.serve(now);
        let left = self.left(now);
        self.line.retain(|waiting| {
            let is_over = waiting.until.is_some_and(|until| until <= now);
            if is_over {
                let answer = Answer::Denied { left };
                replies.push(Reply { party: waiting.party, ticket: waiting.ticket, answer });
            }
            !is_over
        });
        replies
    }

    pub fn handle(&mut self, now: Moment, party: Party, transmit: &Transmit) -> Vec<Reply> {
        self.expire(now);
        let mut replies = self.serve(now);
        self.requests += u64::from(matches!(transmit.request, Request::Acquire { .. } | Request::Release));
        let Transmit { owner, ticket, .. } = transmit;
        let answer = match transmit.request {
            Request::Acquire { ttl, least_token, block } => {
                let request = Waiting {
                    party,
                    owner: owner.clone(),
                    ticket: *ticket,
                    ttl,
                    least_token: least_token.unwrap_or(0),
                    until: match block {
                        Block::For(time) => Some(now + time),
                        Block::No | Block::Forever => None,
                    },
                };
                let is_ours = self.is_held_by(owner);
                match block {
                    _ if is_ours && now >= self.grants_from => Some(self.grant(&request, now)),
                    _ if self.hold.is_none() && self.line.is_empty() && now >= self.grants_from => {
                        Some(self.grant(&request, now))
                    }
                    Block::No if now < self.grants_from => {
                        Some(Answer::Failed(Cause::new(CauseKind::Grace, "GRACE")))
                    }
                    Block::No => Some(Answer::Denied { left: self.left(now) }),
                    Block::For(_) | Block::Forever => {
                        self.line.push_back(request);
                        None
                    }
                }
            }
            Request::Renew { ttl, least_token } => match &mut self.hold {
                Some(hold) if hold.owner == *owner => {
                    hold.ends = hold.ends.max(now + ttl);
                    hold.token = hold.token.max(least_token.unwrap_or(0));
                    self.counter = self.counter.max(hold.token);
                    Some(Answer::Renewed)
                }
                _ => Some(Answer::NotHeld),
            },
            Request::Release => {
                let left = self.left(now);
                let (gone, line): (VecDeque<_>, _) =
                    self.line.drain(..).partition(|waiting| waiting.owner == *owner);
                self.line = line;
                let denied = |waiting: Waiting| Reply {
                    party: waiting.party,
                    ticket: waiting.ticket,
                    answer: Answer::Denied { left },
                };
                replies.extend(gone.into_iter().map(denied));
                let before = if self.is_held_by(owner) {
                    self.hold = None;
                    Before::Held
                } else {
                    Before::Absent
                };
                replies.extend(self.serve(now));
                Some(Answer::Released(before))
            }
            Request::Probe => {
                let holder = self.hold.as_ref().map(|hold| Arc::from(hold.owner.to_string().into_bytes()));
                Some(Answer::Alive { holder })
            }
        };
        replies.extend(answer.map(|answer| Reply { party, ticket: *ticket, answer }));
        replies
    }

    fn is_held_by(&self, owner: &Owner) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.owner == *owner)
    }

    fn left(&self, now: Moment) -> Option<Duration> {
        Some(self.hold.as_ref().map_or(Duration::ZERO, |hold| hold.ends.since(now)))
    }

    fn expire(&mut self, now: Moment) {
        self.hold.take_if(|hold| hold.ends <= now);
    }

    fn grant(&mut self, request: &Waiting, now: Moment) -> Answer {
        let ends = now + request.ttl;
        let hold = match self.hold.take() {
            Some(hold) => {
                Hold { token: hold.token.max(request.least_token), ends: hold.ends.max(ends), ..hold }
            }
            None => {
                let token = (self.counter + 1).max(request.least_token);
                Hold { owner: request.owner.clone(), token, ends }
            }
        };
        self.counter = self.counter.max(hold.token);
        let token = hold.token;
        self.hold = Some(hold);
        Answer::Granted { token }
    }

    fn serve(&mut self, now: Moment) -> Vec<Reply> {
        if self.hold.is_some() || now < self.grants_from {
            return Vec::new();
        }
        let Some(first) = self.line.pop_front() else { return Vec::new() };
        let answer = self.grant(&first, now);
        vec![Reply { party: first.party, ticket: first.ticket, answer }]
    }
}
