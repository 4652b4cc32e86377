//! What this node knows beyond the keyspace. The server calls back on one thread, so this is its own.
//!
//! The state is never borrowed across a call into the server: the server may call back into the module
//! (an expiry found by opening a key, say) before it returns.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Instant;

use crate::lock::{LeaseTable, MonotonicMs, TokenCounter, TrackedLock};
use crate::metrics::Metrics;
use crate::server::{ServerString, Timer};
use crate::settings::Settings;

/// May this node grant, reap and wake?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It may.
    #[default]
    Master,
    /// It keeps the table for the day of its promotion, and does nothing of its own.
    Replica,
}

/// How do messages reach subscribers of other nodes?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// The master propagates them to its replicas.
    #[default]
    Standalone,
    /// The cluster's bus carries them.
    Cluster,
}

/// What waits for the end of the event-loop turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Locks that were flushed, as whether they are free shows only then: DEBUG RELOAD brings them back.
    pub flushed: VecDeque<TrackedLock>,
    /// Channels of unlocks that the replicas have not heard of.
    pub unheard: VecDeque<ServerString>,
    /// The timer that fires when the turn ends, if it is needed.
    pub timer: Option<Timer>,
}

/// The state of the module.
#[derive(Debug)]
pub struct Node {
    /// When each lease ends.
    pub leases: LeaseTable,
    /// The fencing tokens.
    pub tokens: TokenCounter,
    /// The counts of `INFO lock`.
    pub metrics: Metrics,
    /// The settings in force.
    pub settings: Settings,
    /// The node's role.
    pub role: Role,
    /// The server's mode; it does not change while the server runs.
    pub topology: Topology,
    /// The timer for the next lease that ends, and when it fires.
    pub timer: Option<(Timer, MonotonicMs)>,
    /// What waits for the end of the event-loop turn.
    pub turn: Turn,
    /// Room for a channel's name, kept to spare an allocation per unlock.
    pub channel: Vec<u8>,
    started: Instant,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            leases: LeaseTable::default(),
            tokens: TokenCounter::default(),
            metrics: Metrics::default(),
            settings: Settings::default(),
            role: Role::default(),
            topology: Topology::default(),
            timer: None,
            turn: Turn::default(),
            channel: Vec::new(),
            started: Instant::now(),
        }
    }
}

impl Node {
    /// Milliseconds since the module was loaded, on a clock that no one can step.
    pub fn now(&self) -> MonotonicMs {
        MonotonicMs(self.started.elapsed().as_millis() as u64)
    }

    /// Microseconds since then.
    pub fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

thread_local! {
    static NODE: RefCell<Node> = RefCell::default();
}

/// Works on the state. Must not call the server, nor this again.
pub fn with<R>(work: impl FnOnce(&mut Node) -> R) -> R {
    NODE.with_borrow_mut(work)
}

/// The same, or nothing where the state is borrowed.
pub fn try_with(work: impl FnOnce(&mut Node)) {
    NODE.with(|node| {
        if let Ok(mut node) = node.try_borrow_mut() {
            work(&mut node);
        }
    });
}

/// Strings that the server is given again and again.
pub struct Words {
    /// The name of the token field.
    pub token_field: ServerString,
    /// The name of Redisson's read-write marker.
    pub mode_field: ServerString,
    /// The hold count of nearly all holds.
    pub one: ServerString,
    /// The message of an unlock.
    pub unlocked: ServerString,
}

thread_local! {
    static WORDS: Words = Words {
        token_field: ServerString::new(crate::lock::TOKEN_FIELD),
        mode_field: ServerString::new(crate::lock::MODE_FIELD),
        one: ServerString::new(b"1"),
        unlocked: ServerString::new(b"0"),
    };
}

/// Works with the standing strings; the server may be called.
pub fn with_words<R>(work: impl FnOnce(&Words) -> R) -> R {
    WORDS.with(work)
}
