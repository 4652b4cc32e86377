//! What can be asked of anything that locks, and what it answers.

use redis::Connection;

use crate::runner::Verdict;
use crate::snapshot::is_same_time;

/// The module's commands, or Redisson's scripts.
pub trait Locker {
    /// Asks for one hold.
    fn acquire(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer>;

    /// Asks for the owner's `n`th hold, as a client that may have to ask again.
    fn ask(&mut self, connection: &mut Connection, hold: Hold<'_>, n: i64) -> Verdict<Answer>;

    /// Sets the lease anew.
    fn renew(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer>;

    /// Gives one hold back.
    fn release(&mut self, connection: &mut Connection, lock: &[u8], owner: &[u8]) -> Verdict<Answer>;

    /// Gives all holds back, of which there are `n`.
    fn release_all(
        &mut self,
        connection: &mut Connection,
        lock: &[u8],
        owner: &[u8],
        n: i64,
    ) -> Verdict<Answer>;

    /// Frees the lock, whoever holds it.
    fn force(&mut self, connection: &mut Connection, lock: &[u8]) -> Verdict<Answer>;
}

/// A hold to be had or renewed.
#[derive(Clone, Copy, Debug)]
pub struct Hold<'a> {
    /// The lock's name.
    pub lock: &'a [u8],
    /// Who wants it.
    pub owner: &'a [u8],
    /// For how long, in milliseconds.
    pub lease: i64,
}

/// What a locker answers, in the words that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner holds it, once more than before or for the first time.
    Granted,
    /// Another holds it, for so many milliseconds still.
    Denied { left: i64 },
    /// The lease runs anew.
    Renewed,
    /// That was the last hold.
    Freed,
    /// That was not the last hold.
    HoldsLeft,
    /// The owner, or nobody, holds it.
    NotHeld,
    /// The request makes no sense.
    Refused,
    /// Nobody was asked.
    Nothing,
}

impl Answer {
    /// Is it the same answer, but for the moment between two commands?
    pub fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Denied { left: one }, Self::Denied { left: other }) => is_same_time(one, other),
            _ => self == other,
        }
    }
}
