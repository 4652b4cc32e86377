//! One round as the oracles see it: from one fence in the replication stream to the next.

use std::collections::HashSet;
use std::time::Instant;

use crate::ask::{Ask, Sent};
use crate::cast::{Lock, Owner};
use crate::fleet::{End, Waiter};
use crate::resp::Reply;
use crate::shadow::{Happening, Value};

/// A reply that has come.
#[derive(Debug)]
pub struct Answer {
    /// To whom.
    pub client: usize,
    /// To what.
    pub sent: Sent,
    /// The reply.
    pub reply: Reply,
    /// When.
    pub at: Instant,
    /// When, by the wall clock.
    pub wall: i64,
}

/// Requests that were under way when their client went.
#[derive(Debug)]
pub struct Loss {
    /// How it went.
    pub end: End,
    /// The requests.
    pub sent: Vec<Sent>,
}

/// What happened in a round.
#[derive(Debug, Default)]
pub struct Segment {
    /// Its number.
    pub round: u64,
    /// Who certainly stood in line when it began.
    pub line: Vec<Waiter>,
    /// The replies read in it.
    pub answers: Vec<Answer>,
    /// Who went in it.
    pub losses: Vec<Loss>,
    /// The states of each lock in it, from the first to the last.
    pub visited: Vec<Vec<Value>>,
    /// What the stream told of.
    pub happened: Vec<Happening>,
    /// The locks that foreign edits sent in it may touch.
    pub touched: HashSet<Lock>,
    /// Who was sent a RELEASE HOLDS 0 in it, or by it.
    pub withdrawn: HashSet<(Lock, Owner)>,
    /// The clients against whom a CLIENT UNBLOCK was sent.
    pub unblocked: HashSet<usize>,
    /// Whose requests may have gone from a line in it.
    pub left: HashSet<(Lock, Owner)>,
    /// Whose RELEASE has freed a lock.
    pub released: HashSet<(Lock, Owner)>,
    /// Which locks were freed by force.
    pub forced: HashSet<Lock>,
    /// Who acted on a lock as its holder, and so knows of the hold: it is not taken back then.
    pub confirmed: HashSet<(Lock, Owner)>,
    /// The tokens that clients were told of.
    pub told: HashSet<i64>,
    /// Requests in line that were denied without a reason that was known then.
    pub denied_early: Vec<((Lock, Owner), String)>,
    /// The requests that were unblocked, by the reply to who did it.
    pub surely_unblocked: Vec<(usize, u64)>,
}

impl Segment {
    /// May a grant have been told to a client that went before it could read that, in a way that the server
    /// could not know of?
    pub fn may_have_lost_reply(&self, place: (Lock, Owner)) -> bool {
        self.losses.iter().any(|loss| {
            let may = |round| matches!(loss.end, End::HungUp(_)) || round == self.round;
            loss.sent.iter().any(|sent| may(sent.round) && sent.ask.is_for(place))
        })
    }

    /// Has an owner acted on this lock as its holder, or on whatever name the lock was carried to?
    pub fn is_confirmed(&self, place: (Lock, Owner)) -> bool {
        let carried = self.happened.iter().any(|happening| matches!(happening, Happening::Carried));
        let is_deepened = |happening: &Happening| matches!(happening, Happening::Deepened { lock, owner } if (*lock, *owner) == place);
        self.confirmed.contains(&place)
            || self.happened.iter().any(is_deepened)
            || (carried && self.confirmed.iter().any(|(_, owner)| *owner == place.1))
    }

    /// Notes what a client knows of a hold by a reply.
    pub fn note_reply(&mut self, ask: &Ask, reply: &Reply) {
        match (ask, reply) {
            (Ask::Exec(parts) | Ask::Script(parts), Reply::Array(replies)) => {
                parts.iter().zip(replies).for_each(|(part, reply)| self.note_reply(part, reply));
            }
            (Ask::Acquire { lock, owner, .. }, _) => {
                if let Some([(1..), _, token]) = reply.integers() {
                    self.told.insert(token);
                } else {
                    self.left.insert((*lock, *owner));
                }
            }
            (Ask::Release { lock, owner, keep: Some(0) }, _) => {
                self.withdrawn.insert((*lock, *owner));
                self.left.insert((*lock, *owner));
            }
            (Ask::Renew { lock, owner, .. } | Ask::Release { lock, owner, .. }, Reply::Int((1..))) => {
                self.confirmed.insert((*lock, *owner));
            }
            _ => {}
        }
    }

    /// Notes what a request that is sent may do.
    pub fn expect(&mut self, ask: &Ask) {
        for part in ask.parts() {
            match part {
                Ask::Foreign { touches, .. } => self.touched.extend(touches),
                Ask::Release { lock, owner, keep: Some(0) } => {
                    self.withdrawn.insert((*lock, *owner));
                    self.left.insert((*lock, *owner));
                }
                Ask::Unblock { client, .. } => {
                    self.unblocked.insert(*client);
                }
                _ => {}
            }
        }
    }
}
