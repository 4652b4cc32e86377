//! Each history on two keys: one for Redisson, one for the module.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use redis::RedisResult;

use crate::difference::{Difference, expected};
use crate::history::{OWNERS, Step};
use crate::module::{self, Module};
use crate::redisson::Redisson;
use crate::runner::{Verdict, play_histories};
use crate::snapshot::Snapshot;
use crate::stage::Stage;

/// The longest history.
const STEPS: usize = 24;

struct Duel {
    stage: Stage,
    redisson: Redisson,
    last_token: i64,
    differences: BTreeSet<Difference>,
}

impl Duel {
    fn new() -> RedisResult<Self> {
        let mut stage = Stage::new()?;
        let redisson = Redisson::new(&mut stage.connection)?;
        Ok(Self { stage, redisson, last_token: 0, differences: BTreeSet::new() })
    }

    fn play(&mut self, history: &[Step]) -> Verdict {
        let (our_lock, their_lock) = (self.stage.fresh_name(), self.stage.fresh_name());
        let mut before = Snapshot::free();
        for step in history {
            let theirs = step.play(&mut self.stage, &mut self.redisson, &their_lock, &before)?;
            let ours = step.play(&mut self.stage, &mut Module, &our_lock, &before)?;
            let (expected, difference) = expected(step, &before, &theirs);
            prop_assert!(
                ours.agrees_with(&expected),
                "{step:?}\non       {before:?}\ncame to  {ours:?}\nand not  {expected:?}\nRedisson {theirs:?}"
            );
            self.check_token(&before, &ours.lock)?;
            module::check_info(&mut self.stage.connection, &our_lock, &ours.lock)?;
            if let Some(difference) = difference {
                self.differences.insert(difference);
                // From here on, both play on the same lock again.
                ours.lock.write(&mut self.stage.connection, &their_lock)?;
            }
            before = ours.lock;
        }
        self.stage.remove(&our_lock)?;
        self.stage.remove(&their_lock)?;
        Ok(())
    }

    /// A first hold gets a token above all tokens before; it keeps it, and nobody else has one.
    fn check_token(&mut self, before: &Snapshot, after: &Snapshot) -> Verdict {
        match (before.is_held(), after.is_held()) {
            (false, true) => {
                prop_assert!(after.token > self.last_token, "{} after {}", after.token, self.last_token);
                self.last_token = after.token;
            }
            (true, true) => prop_assert_eq!(after.token, before.token),
            (_, false) => prop_assert_eq!(after.token, 0),
        }
        Ok(())
    }
}

#[test]
fn a_history_comes_to_the_same_as_with_redisson_but_for_the_differences_on_purpose() {
    let duel = RefCell::new(Duel::new().expect("a server that learns scripts"));
    play_histories(Step::any(OWNERS.len()), STEPS, |history| duel.borrow_mut().play(&history));
    let met: Vec<Difference> = duel.into_inner().differences.into_iter().collect();
    assert_eq!(met, Difference::ALL, "the histories ought to come upon every difference");
}
