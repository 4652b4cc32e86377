//! Waiting for what sends no event.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// Asks `probe` until it answers, and returns the answer.
///
/// # Panics
/// When `limit` has passed without an answer.
#[track_caller]
pub fn eventually<T>(limit: Duration, probe: impl FnMut() -> Option<T>) -> T {
    match poll(limit, probe) {
        Some(answer) => answer,
        None => panic!("it did not happen within {limit:?}"),
    }
}

/// As [`eventually`], for callers who have something to say about a miss.
pub(crate) fn poll<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let answer = probe();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}
