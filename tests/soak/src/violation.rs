//! What must not happen, and did.

use std::fmt;

use crate::cast::Lock;

/// A broken promise.
#[derive(Debug)]
pub struct Violation {
    /// Of which lock, if it is about one.
    pub lock: Option<Lock>,
    text: String,
}

impl Violation {
    /// About a lock.
    pub fn of(lock: Lock, text: String) -> Self {
        Self { lock: Some(lock), text }
    }

    /// About no lock.
    pub fn of_none(text: String) -> Self {
        Self { lock: None, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lock {
            Some(lock) => write!(f, "{lock:?}: {}", self.text),
            None => write!(f, "{}", self.text),
        }
    }
}

impl std::error::Error for Violation {}
