//! Redisson and the module on the same key.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use proptest::prelude::*;
use redis::RedisResult;

use crate::history::{OWNERS, Outcome, Step};
use crate::locker::Answer;
use crate::module::{self, Module};
use crate::redisson::Redisson;
use crate::runner::{Verdict, play_histories};
use crate::snapshot::Snapshot;
use crate::stage::Stage;

/// The longest history.
const STEPS: usize = 24;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Redisson,
    Module,
}

type Turn = (Side, Step);

/// Turns of both. Their owners are the same: an owner may take a hold by one and release it by the
/// other. Only the module's may have a name that Redisson would not give.
fn any_turn() -> impl Strategy<Value = Turn> {
    let redissons = Step::any(OWNERS.len() - 1)
        // Redisson answers such a request with a grant, and removes the key.
        .prop_filter("harms the lock", |step| !matches!(step, Step::AcquireForNoTime { .. }));
    prop_oneof![
        redissons.prop_map(|step| (Side::Redisson, step)),
        Step::any(OWNERS.len()).prop_map(|step| (Side::Module, step)),
    ]
}

struct Truce {
    stage: Stage,
    redisson: Redisson,
    last_token: i64,
}

impl Truce {
    fn new() -> RedisResult<Self> {
        let mut stage = Stage::new()?;
        let redisson = Redisson::new(&mut stage.connection)?;
        Ok(Self { stage, redisson, last_token: 0 })
    }

    fn play(&mut self, history: &[Turn]) -> Verdict {
        let lock = self.stage.fresh_name();
        let mut before = Snapshot::free();
        for turn @ (side, step) in history {
            let outcome = match side {
                Side::Redisson => step.play(&mut self.stage, &mut self.redisson, &lock, &before),
                Side::Module => step.play(&mut self.stage, &mut Module, &lock, &before),
            }?;
            self.check(turn, &before, &outcome).map_err(|failure| {
                TestCaseError::fail(format!("{failure}\n{turn:?}\non      {before:?}\ncame to {outcome:?}"))
            })?;
            module::check_info(&mut self.stage.connection, &lock, &outcome.lock)?;
            before = outcome.lock;
        }
        Ok(self.stage.remove(&lock)?)
    }

    fn check(&mut self, turn: &Turn, before: &Snapshot, outcome: &Outcome) -> Verdict {
        let after = &outcome.lock;
        prop_assert!(after.holds.len() <= 1, "two hold the lock");
        prop_assert!(!after.is_held() || after.ends > 0, "a lock without a lease");
        let (answer, holds) = expected(turn, before);
        prop_assert!(outcome.answer.agrees_with(answer), "the answer should be {:?}", answer);
        prop_assert_eq!(after.holds.values().next().copied().unwrap_or(0), holds, "hold count");
        let told = wakes(turn, before, after);
        prop_assert!(told.contains(&outcome.unlocks), "told {} times, not {:?}", outcome.unlocks, told);
        self.check_lease(turn, before, after)?;
        self.check_token(turn, before, after)
    }

    /// The module's commands never shorten a lease.
    fn check_lease(&mut self, (side, step): &Turn, before: &Snapshot, after: &Snapshot) -> Verdict {
        let by_module = *side == Side::Module && !matches!(step, Step::Wait { .. });
        if by_module && before.is_held() && after.is_held() {
            prop_assert!(after.ends >= before.ends, "the lease was cut");
        }
        Ok(())
    }

    /// First holds get tokens that grow from the module, none from Redisson; re-entries keep them.
    fn check_token(&mut self, (side, _): &Turn, before: &Snapshot, after: &Snapshot) -> Verdict {
        match (before.is_held(), after.is_held(), side) {
            (false, true, Side::Module) => {
                prop_assert!(after.token > self.last_token, "no greater than {}", self.last_token);
                self.last_token = after.token;
            }
            (true, true, _) => prop_assert_eq!(after.token, before.token),
            _ => prop_assert_eq!(after.token, 0),
        }
        Ok(())
    }
}

/// The answer, and the hold count of whoever holds the lock then.
fn expected((side, step): &Turn, before: &Snapshot) -> (Answer, i64) {
    let present = before.holds.values().sum::<i64>();
    let denied = Answer::Denied { left: before.left() };
    let own = |owner: &usize| before.holds_of(OWNERS[*owner]);
    let is_open = |owner| !before.is_held() || own(owner) > 0;
    match step {
        Step::Acquire { owner, .. } | Step::AcquireTwice { owner, .. } if !is_open(owner) => {
            (denied, present)
        }
        Step::Acquire { .. } => (Answer::Granted, present + 1),
        Step::AcquireTwice { .. } if *side == Side::Redisson => (Answer::Granted, present + 2),
        Step::AcquireTwice { .. } => (Answer::Granted, present + 1),
        Step::AcquireForNoTime { .. } => (Answer::Refused, present),
        Step::Renew { owner, .. } if own(owner) > 0 => (Answer::Renewed, present),
        Step::Release { owner } if own(owner) > 1 => (Answer::HoldsLeft, present - 1),
        Step::Release { owner } | Step::ReleaseAll { owner } if own(owner) > 0 => (Answer::Freed, 0),
        Step::Force if before.is_held() => (Answer::Freed, 0),
        Step::Renew { .. } | Step::Release { .. } | Step::ReleaseAll { .. } | Step::Force => {
            (Answer::NotHeld, present)
        }
        Step::Wait { .. } => (Answer::Nothing, present),
        Step::Expire | Step::Remove => (Answer::Nothing, 0),
    }
}

/// How many unlocks may be told. Whoever frees the lock wakes the waiters of both.
fn wakes((side, step): &Turn, before: &Snapshot, after: &Snapshot) -> RangeInclusive<usize> {
    let is_modules = before.token > 0;
    let vanishes = matches!(step, Step::Expire | Step::Remove);
    match side {
        _ if !before.is_held() || after.is_held() => 0..=0,
        _ if vanishes && is_modules => 1..=1,
        // Redisson tells nobody. The module may, if an owner re-entered through it.
        _ if vanishes => 0..=1,
        Side::Module => 1..=1,
        // The script tells the unlock; the module may tell that its lock is gone.
        Side::Redisson => 1..=2,
    }
}

#[test]
fn a_lock_shared_with_redisson_excludes_is_seen_and_wakes() {
    let truce = RefCell::new(Truce::new().expect("a server that learns scripts"));
    play_histories(any_turn(), STEPS, |history| truce.borrow_mut().play(&history));
}
