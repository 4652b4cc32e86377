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
    /// The requests against which a CLIENT UNBLOCK was sent.
    pub unblocked: HashSet<u64>,
    /// Whose requests may have gone from a line in it.
    pub left: HashSet<(Lock, Owner)>,
    /// Whose RELEASE has freed a lock.
    pub released: HashSet<(Lock, Owner)>,
    /// Which locks were freed by force.
    pub forced: HashSet<Lock>,
    /// The tokens that clients were told of.
    pub told: HashSet<i64>,
    /// The requests that were unblocked, by the reply to who did it.
    pub surely_unblocked: Vec<(usize, u64)>,
}

impl Segment {
    /// Notes what a request that is sent may do.
    pub fn expect(&mut self, ask: &Ask) {
        for part in ask.parts() {
            match part {
                Ask::Foreign { touches, .. } => self.touched.extend(touches),
                Ask::Release { lock, owner, keep: Some(0) } => {
                    self.withdrawn.insert((*lock, *owner));
                    self.left.insert((*lock, *owner));
                }
                Ask::Unblock { serial: Some(serial), .. } => {
                    self.unblocked.insert(*serial);
                }
                _ => {}
            }
        }
    }
}
