//! Plays many random histories, and shrinks one that fails.

use std::env;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// How many histories each test plays unless told otherwise.
const HISTORIES: u32 = 2_000;

/// What a step, a check or a history comes to.
pub type Verdict<T = ()> = Result<T, TestCaseError>;

/// Plays histories of up to `length` steps.
///
/// # Panics
/// At the first history that fails, with its shortest form and the seed that repeats the run.
pub fn play_histories<S>(step: S, length: usize, play: impl Fn(Vec<S::Value>) -> Verdict)
where
    S: Strategy,
    S::Value: Clone,
{
    let cases = setting("REDIS_LOCK_HISTORIES").map_or(HISTORIES, |n| n.try_into().expect("a sane number"));
    let seed = setting("REDIS_LOCK_SEED").unwrap_or_else(rand::random);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4));
    let histories = proptest::collection::vec(step, 1..=length);
    if let Err(failure) = TestRunner::new_with_rng(config, rng).run(&histories, play) {
        panic!("{failure}\nrepeat it with REDIS_LOCK_SEED={seed}");
    }
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}
