//! What histories are made of.

use proptest::prelude::*;
use redis::RedisResult;

use crate::locker::{Answer, Hold, Locker};
use crate::runner::Verdict;
use crate::snapshot::{Snapshot, now};
use crate::stage::Stage;

/// Owners by number; all but the last have a name of the form of Redisson's.
pub const OWNERS: [&[u8]; 4] = [
    b"8743c9c0-0795-4907-87fd-6c719a6b4586:1",
    b"8743c9c0-0795-4907-87fd-6c719a6b4586:2",
    b"f47ac10b-58cc-4372-a567-0e02b2c3d479:1",
    b"\xff any \0 bytes",
];

/// Waiting leaves at least this much of a lease, in milliseconds: it never ends by surprise.
const LEAST_LEFT: i64 = 5_000;

/// One step of a history. Owners are numbers, leases milliseconds.
#[derive(Clone, Debug)]
pub enum Step {
    /// Asks for a hold.
    Acquire { owner: usize, lease: i64 },
    /// Asks for a hold, misses the reply, and asks again.
    AcquireTwice { owner: usize, lease: i64 },
    /// Asks for a hold with a lease of 0.
    AcquireForNoTime { owner: usize },
    /// Sets the lease anew.
    Renew { owner: usize, lease: i64 },
    /// Gives a hold back.
    Release { owner: usize },
    /// Gives all holds back.
    ReleaseAll { owner: usize },
    /// Frees the lock, whoever holds it.
    Force,
    /// Time passes: of the lease, only this much is left.
    Wait { percent: i64 },
    /// The lease ends.
    Expire,
    /// Somebody deletes the key.
    Remove,
}

impl Step {
    /// Any step, by one of the first few owners.
    pub fn any(owners: usize) -> impl Strategy<Value = Self> {
        let owner = move || 0..owners;
        let lease = || (10..=600_i64).prop_map(|seconds| seconds * 1_000);
        prop_oneof![
            40 => (owner(), lease()).prop_map(|(owner, lease)| Self::Acquire { owner, lease }),
            8 => (owner(), lease()).prop_map(|(owner, lease)| Self::AcquireTwice { owner, lease }),
            2 => owner().prop_map(|owner| Self::AcquireForNoTime { owner }),
            20 => (owner(), lease()).prop_map(|(owner, lease)| Self::Renew { owner, lease }),
            40 => owner().prop_map(|owner| Self::Release { owner }),
            6 => owner().prop_map(|owner| Self::ReleaseAll { owner }),
            3 => Just(Self::Force),
            20 => (10..100_i64).prop_map(|percent| Self::Wait { percent }),
            2 => Just(Self::Expire),
            4 => Just(Self::Remove),
        ]
    }

    /// Plays the step on a lock, of which `before` is what is known.
    pub fn play(
        &self,
        stage: &mut Stage,
        locker: &mut impl Locker,
        lock: &[u8],
        before: &Snapshot,
    ) -> Verdict<Outcome> {
        let hold = |owner: usize, lease| Hold { lock, owner: OWNERS[owner], lease };
        let connection = &mut stage.connection;
        let answer = match *self {
            Self::Acquire { owner, lease } => locker.acquire(connection, hold(owner, lease))?,
            Self::AcquireTwice { owner, lease } => {
                let n = before.holds_of(OWNERS[owner]) + 1;
                locker.ask(connection, hold(owner, lease), n)?;
                locker.ask(connection, hold(owner, lease), n)?
            }
            Self::AcquireForNoTime { owner } => locker.acquire(connection, hold(owner, 0))?,
            Self::Renew { owner, lease } => locker.renew(connection, hold(owner, lease))?,
            Self::Release { owner } => locker.release(connection, lock, OWNERS[owner])?,
            Self::ReleaseAll { owner } => {
                locker.release_all(connection, lock, OWNERS[owner], before.holds_of(OWNERS[owner]))?
            }
            Self::Force => locker.force(connection, lock)?,
            Self::Wait { .. } | Self::Expire | Self::Remove => {
                self.befall(stage, lock, before)?;
                Answer::Nothing
            }
        };
        let [after] = Snapshot::take(&mut stage.connection, [lock])?;
        Ok(Outcome { answer, lock: after, unlocks: stage.unlocks(lock)? })
    }

    /// Does to the lock what nobody asks for.
    fn befall(&self, stage: &mut Stage, lock: &[u8], before: &Snapshot) -> RedisResult<()> {
        match *self {
            Self::Wait { percent } if before.is_held() => {
                let left = (before.left() * percent / 100).max(LEAST_LEFT);
                stage.move_lease(lock, before.ends.min(now() + left))
            }
            Self::Expire => stage.expire(lock),
            Self::Remove => stage.remove(lock),
            _ => Ok(()),
        }
    }
}

/// What a step came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The last answer.
    pub answer: Answer,
    /// The lock after it.
    pub lock: Snapshot,
    /// How many unlocks were told.
    pub unlocks: usize,
}

impl Outcome {
    /// Is it the same, but for the token and the moment between two commands?
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.answer.agrees_with(other.answer)
            && self.lock.agrees_with(&other.lock)
            && self.unlocks == other.unlocks
    }
}
