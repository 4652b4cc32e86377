//! No panic crosses into C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback's body; `None` where it panicked. The panic's message goes to stderr, as always.
///
/// The state stays usable after a panic: each change to it is made in one step, under one borrow.
pub fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}
