//! What this node knows beyond the keyspace. The server calls back on one thread, so this is its own.
//!
//! The state is never borrowed across a call into the server: the server may call back into the module
//! (an expiry found by opening a key, say) before it returns.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::answer::{Answer, Standing};
use crate::clock::{self, boot_time_us};
use crate::lock::{
    Clocks, GracePeriod, Lease, LeaseTable, Lines, MonotonicMs, Recovery, TokenCounter, TrackedLock, WallMs,
};
use crate::metrics::Metrics;
use crate::server::{Blocked, ServerString, Timer};
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

/// A request that waits in line, as the server knows it; `waiting` says what becomes of it.
#[derive(Debug)]
pub struct Request;

/// A lock's database and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockName {
    /// The number of the database.
    pub db: u32,
    /// The name.
    pub name: Box<[u8]>,
}

impl LockName {
    /// The name after a SWAPDB of these databases.
    pub fn swapped(self, first: u32, second: u32) -> Self {
        let db = match self.db {
            db if db == first => second,
            db if db == second => first,
            db => db,
        };
        Self { db, ..self }
    }
}

/// A lock that its line has got, and that nobody has been told of: who goes before that never had it.
#[derive(Debug)]
pub struct Handoff {
    /// Who holds the lock now.
    pub owner: Box<[u8]>,
    /// The holds that it had before, if a script of another kind gave it some.
    pub before: u64,
    /// The token of the hold.
    pub token: u64,
    /// The lease of the hold.
    pub lease: Lease,
    /// Its owner's requests.
    pub recipients: Vec<Recipient>,
}

impl Handoff {
    /// Are all there who are to be told?
    pub fn is_complete(&self) -> bool {
        self.recipients.iter().all(|to| to.client.is_there())
    }
}

/// A request that was granted.
#[derive(Debug)]
pub struct Recipient {
    /// Who is to be told.
    pub client: Blocked<Request>,
    /// The hold count that it asked for, if it named one.
    pub asked: Option<u64>,
    /// What it is to be told.
    pub standing: Standing,
}

/// What one request was granted: what is taken back, if it turns out that its client was gone before.
#[derive(Debug)]
pub struct Receipt {
    /// The lock.
    pub lock: LockName,
    /// Who got it.
    pub owner: Box<[u8]>,
    /// The holds that it had before.
    pub before: u64,
    /// The hold that it got.
    pub standing: Standing,
    /// The lease of that.
    pub lease: Lease,
}

/// What somebody who waited is to be told.
#[derive(Debug)]
pub struct Message {
    /// Who.
    pub client: Blocked<Request>,
    /// What.
    pub answer: Answer,
    /// What is to be taken back where it does not reach the client.
    pub receipt: Option<Box<Receipt>>,
}

impl Message {
    /// A message of which nothing hangs.
    pub fn new(client: Blocked<Request>, answer: Answer) -> Self {
        Self { client, answer, receipt: None }
    }
}

/// What waits for the end of the event-loop turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Locks that have become free while somebody was in line for them.
    pub freed: BTreeSet<LockName>,
    /// Those of them that could not be granted: without enough replicas, while nothing can be saved, or as their
    /// slot is leaving.
    pub barred: BTreeSet<LockName>,
    /// When those are tried again, and from which on.
    pub retry: Option<(MonotonicMs, Option<LockName>)>,
    /// A job stands that serves the lines after the present command.
    pub job_stands: bool,
    /// Where to go on looking at all lines, if a crowd of locks may have become free.
    pub sweep: Option<u32>,
    /// What was granted from the lines and not told yet.
    pub handoffs: BTreeMap<LockName, Handoff>,
    /// What else the lines are to be told.
    pub answers: Vec<Message>,
    /// What was told to nobody.
    pub missed: Vec<Receipt>,
    /// Locks that were flushed, as whether they are free shows only then: DEBUG RELOAD brings them back.
    pub flushed: VecDeque<TrackedLock>,
    /// Channels of unlocks that the replicas have not heard of.
    pub unheard: VecDeque<ServerString>,
    /// When to look again, while writes are paused.
    pub paused_until: Option<MonotonicMs>,
}

impl Turn {
    /// What was handed over is to be told, and not to be taken back.
    pub fn tell_all(&mut self, handoff: Handoff) {
        let told = handoff.recipients.into_iter();
        self.answers.extend(told.map(|to| Message::new(to.client, Answer::Standing(to.standing))));
    }

    /// Is there nothing to do, but to try again what is barred?
    pub fn is_done(&self) -> bool {
        let Self { freed, sweep, handoffs, answers, missed, flushed, unheard, .. } = self;
        freed.is_empty()
            && sweep.is_none()
            && handoffs.is_empty()
            && answers.is_empty()
            && missed.is_empty()
            && flushed.is_empty()
            && unheard.is_empty()
    }
}

/// The state of the module.
#[derive(Debug)]
pub struct Node {
    /// When each lease ends.
    pub leases: LeaseTable,
    /// How the wall clock lies to the one by which leases end.
    pub clocks: Clocks,
    /// The time of the server's when somebody looked last whether the wall clock was stepped.
    pub clocks_seen: WallMs,
    /// After a step: where in the table to go on setting the TTLs of keys anew.
    pub retiming: Option<u32>,
    /// When the keys that locks have lost are put back.
    pub recovery: Recovery,
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
    /// How long the grace is after a start or a promotion.
    pub grace_period: GracePeriod,
    /// When the grace ends, while it lasts: nothing is granted before.
    pub grace: Option<MonotonicMs>,
    /// Who waits for which lock.
    pub lines: Lines<Blocked<Request>>,
    /// What waits for the end of the event-loop turn.
    pub turn: Turn,
    /// The timer, and when it fires, if it stands.
    pub timer: Option<(Timer, MonotonicMs)>,
    /// When the timer has to fire for a lease, where that was not looked at yet.
    pub lease_wanted: Option<MonotonicMs>,
    /// Room for a channel's name, kept to spare an allocation per unlock.
    pub channel: Vec<u8>,
    started_us: u64,
}

impl Default for Node {
    fn default() -> Self {
        let started_us = boot_time_us();
        Self {
            leases: LeaseTable::default(),
            clocks: Clocks::new(clock::read(started_us)),
            clocks_seen: WallMs(0),
            retiming: None,
            recovery: Recovery::default(),
            tokens: TokenCounter::default(),
            metrics: Metrics::default(),
            settings: Settings::default(),
            role: Role::default(),
            topology: Topology::default(),
            grace_period: GracePeriod::default(),
            grace: None,
            lines: Lines::default(),
            turn: Turn::default(),
            timer: None,
            lease_wanted: None,
            channel: Vec::new(),
            started_us,
        }
    }
}

impl Node {
    /// Milliseconds since the module was loaded, on a clock that no one can step.
    pub fn now(&self) -> MonotonicMs {
        MonotonicMs(self.now_us() / 1000)
    }

    /// The timer has to fire for a lease at this time, or earlier.
    pub fn want_lease(&mut self, at: MonotonicMs) {
        self.lease_wanted = Some(self.lease_wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// The longest lease that may be granted, in milliseconds.
    pub fn longest_lease(&self) -> u64 {
        let most = self.settings.max_ttl;
        self.grace_period.longest_lease().map_or(most, |covered| covered.min(most))
    }

    /// Begins the grace, if there is one: this node begins to answer, and may have forgotten leases.
    pub fn begin_grace(&mut self) {
        let now = self.now();
        let length = self.grace_period.length(now);
        self.grace = (length > 0).then(|| now.plus(length));
    }

    /// The milliseconds that are left of the grace, at least 1; `None` where there is none.
    pub fn grace_left(&self) -> Option<u64> {
        self.grace.map(|end| end.since(self.now()).max(1))
    }

    /// Has a lock lost its key, or are the TTLs of keys to be set anew?
    pub fn is_unsettled(&self) -> bool {
        self.retiming.is_some() || !self.leases.has_all_keys()
    }

    /// Will a lock of this name that becomes free be handed to somebody in line?
    pub fn hands_over(&self, db: u32, name: &[u8]) -> bool {
        self.grace.is_none() && self.lines.stands(db, name)
    }

    /// Microseconds since then.
    pub fn now_us(&self) -> u64 {
        boot_time_us().saturating_sub(self.started_us)
    }

    /// Looks whether somebody has stepped the wall clock since the last look, and the server knows it, whose clock shows
    /// `server`: that stands still within a command, and Valkey 9.1 reads it once a millisecond. Its keys and timers go by
    /// the old time until then.
    pub fn clocks_were_stepped(&mut self, server: WallMs) -> bool {
        let reading = clock::read(self.started_us);
        reading.agrees_with(server) && self.clocks.were_stepped(reading)
    }

    /// The counter from which a grant takes its token. In Cluster it is never behind the clock: a slot whose locks are
    /// free brings no token along from the node that has given the last ones.
    pub fn tokens_to_give(&mut self) -> &mut TokenCounter {
        if self.topology == Topology::Cluster {
            self.tokens.seed(self.token_clock_us());
        }
        &mut self.tokens
    }

    /// The wall clock, or what it would show had nobody stepped it, whichever is later, in microseconds: no
    /// token is to be smaller than an earlier one as somebody has set the clock back.
    pub fn token_clock_us(&self) -> u64 {
        clock::wall_clock_us().max(self.clocks.unstepped_us(self.now_us())).unsigned_abs()
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
