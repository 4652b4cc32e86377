//! Where the module differs from Redisson on purpose.

use crate::history::{OWNERS, Outcome, Step};
use crate::locker::Answer;
use crate::snapshot::Snapshot;

/// A difference that is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Redisson: a nested lease replaces the outer one. Here the longer one stands.
    NestedLease,
    /// Redisson: a renewal may cut the lease. Here the longer one stands.
    Renewal,
    /// Redisson: a partial unlock sets the client's own lease. Here it leaves the lease alone.
    PartialRelease,
    /// Redisson: a repeated acquire counts twice. Here, with HOLDS, it counts once.
    Repetition,
    /// Redisson: a lease of 0 is "granted", and no key exists. Here it is refused.
    NoLease,
    /// Redisson: nobody is told when a key merely disappears. Here its waiters are.
    Disappearance,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NestedLease,
        Self::Renewal,
        Self::PartialRelease,
        Self::Repetition,
        Self::NoLease,
        Self::Disappearance,
    ];
}

/// What a step has to come to here, where Redisson came to `theirs`; and why, if that differs.
///
/// `before` is the lock that the step was played on.
pub fn expected(step: &Step, before: &Snapshot, theirs: &Outcome) -> (Outcome, Option<Difference>) {
    let mut ours = theirs.clone();
    let difference = match (step, theirs.answer) {
        (Step::Acquire { .. }, Answer::Granted) => {
            ours.lock.ends = ours.lock.ends.max(before.ends);
            Difference::NestedLease
        }
        (Step::Renew { .. }, Answer::Renewed) => {
            ours.lock.ends = ours.lock.ends.max(before.ends);
            Difference::Renewal
        }
        (Step::Release { .. }, Answer::HoldsLeft) => {
            ours.lock.ends = before.ends;
            Difference::PartialRelease
        }
        (Step::AcquireTwice { owner, .. }, Answer::Granted) => {
            ours.lock.ends = ours.lock.ends.max(before.ends);
            let once = before.holds_of(OWNERS[*owner]) + 1;
            ours.lock.holds.insert(OWNERS[*owner].to_vec(), once);
            Difference::Repetition
        }
        (Step::AcquireForNoTime { .. }, _) => {
            ours = Outcome { answer: Answer::Refused, lock: before.clone(), unlocks: 0 };
            Difference::NoLease
        }
        (Step::Expire | Step::Remove, _) if before.is_held() => {
            ours.unlocks = 1;
            Difference::Disappearance
        }
        _ => return (ours, None),
    };
    let differs = !ours.agrees_with(theirs);
    (ours, differs.then_some(difference))
}
