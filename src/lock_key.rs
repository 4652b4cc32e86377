//! A lock as the hash at a key, as the commands use it: opened, written and propagated.

use std::ffi::CStr;

use crate::leases;
use crate::lock::{Expiry, Hold, Lease, Record, WallMs, Writes};
use crate::lock_hash::{self, Detail};
use crate::node::{self, Role, Words};
use crate::refusal::Refusal;
use crate::server::{Access, Context, FieldValue, Key, ServerStr, ServerString};

/// A key that is a lock, or may become one. A held lock whose key the server has taken away looks as if the key
/// were there.
pub struct LockKey<'c> {
    ctx: Context<'c>,
    name: ServerStr<'c>,
    /// Absent only where it was opened to look at.
    key: Option<Key<'c>>,
    /// What the node knows of a lock that has lost its key.
    kept: Option<Kept>,
    /// The lease, where it is not what the key's TTL says.
    lease: Option<Lease>,
}

/// A hold that outlives its key.
struct Kept {
    owner: ServerString,
    holds: u64,
    token: u64,
}

impl<'c> LockKey<'c> {
    /// Opens a key for a command that writes; refuses what is no hash, and on a replica.
    pub fn open(ctx: Context<'c>, name: ServerStr<'c>) -> Result<Self, Refusal> {
        if node::with(|node| node.role) == Role::Replica {
            return Err(Refusal::Replica);
        }
        leases::watch_clock(ctx);
        let Some(key) = Key::open(ctx, name, Access::Write) else { return Err(Refusal::WrongType) };
        if !(key.is_empty() || key.is_hash()) {
            return Err(Refusal::WrongType);
        }
        let mut lock = Self::from_key(key);
        if node::with(|node| node.is_unsettled()) {
            lock.recall()?;
        }
        Ok(lock)
    }

    /// Opens a key to look at it; `None` where there is none.
    pub fn peek(ctx: Context<'c>, name: ServerStr<'c>) -> Result<Option<Self>, Refusal> {
        leases::watch_clock(ctx);
        let key = Key::open(ctx, name, Access::Read);
        if key.as_ref().is_some_and(|key| !key.is_hash()) {
            return Err(Refusal::WrongType);
        }
        if key.is_none() && node::with(|node| !node.is_unsettled()) {
            return Ok(None);
        }
        let mut lock = Self { ctx, name, key, kept: None, lease: None };
        lock.look_up();
        Ok((lock.key.is_some() || lock.kept.is_some()).then_some(lock))
    }

    /// A key that is open to write, and is as it should be.
    pub fn from_key(key: Key<'c>) -> Self {
        Self { ctx: key.context(), name: key.name(), key: Some(key), kept: None, lease: None }
    }

    /// How the lock stands towards a caller, or somebody who is no owner.
    pub fn record(&self, caller: Option<ServerStr<'_>>, detail: Detail) -> Result<Record, Refusal> {
        if let Some(kept) = &self.kept {
            let is_caller = caller.is_some_and(|caller| caller.bytes() == kept.owner.as_str().bytes());
            return Ok(match is_caller {
                true => Record::Mine { holds: kept.holds, token: kept.token, others: 0 },
                false => Record::Other { token: kept.token },
            });
        }
        match &self.key {
            Some(key) if !key.is_empty() => Ok(lock_hash::record(key, caller, detail)?),
            _ => Ok(Record::Free { token: 0 }),
        }
    }

    /// The lock's lease.
    pub fn lease(&self) -> Lease {
        self.lease.or_else(|| self.key.as_ref().map(lock_hash::lease)).unwrap_or(Lease::Endless)
    }

    /// The first field that is an owner's.
    pub fn first_owner(&self) -> Option<ServerString> {
        match (&self.kept, &self.key) {
            (Some(kept), _) => Some(ServerString::new(kept.owner.as_str().bytes())),
            (None, Some(key)) => lock_hash::first_owner(key),
            (None, None) => None,
        }
    }

    /// Records who holds the lock, if somebody else than the module has granted it.
    pub fn learn(&self) {
        if let (None, Some(key)) = (&self.kept, &self.key) {
            leases::learn(key, self.ctx.db());
        }
    }

    /// Writes what a decision asks for, propagates just that, in absolute time, and closes the key.
    pub fn write(mut self, owner: ServerStr<'_>, mut writes: Writes) {
        if let Some(kept) = self.kept.take() {
            writes = self.complete(owner, writes, &kept);
        }
        let Some(key) = self.key.as_mut().filter(|_| writes != Writes::default()) else { return };
        let (ctx, name) = (self.ctx, self.name);
        node::with_words(|words| {
            let holds = writes.holds.map(|holds| Count::new(holds, words));
            let token = writes.token.map(integer);
            let fields = [
                holds.as_ref().map(|holds| (owner, holds.as_str())),
                token.as_ref().map(|token| (words.token_field.as_str(), token.as_str())),
            ];
            match fields {
                [Some(first), Some(second)] => key.hash_set_both(first, second),
                [Some(only), None] | [None, Some(only)] => key.hash_set(only),
                [None, None] => {}
            }
            if let Some(end) = writes.lease_end {
                key.expire_at(end.0);
            }
            propagate(ctx, name, fields, writes.lease_end);
        });
        ctx.signal_modified(name);
    }

    /// Takes an owner out of a hash that has others.
    pub fn remove_owner(mut self, owner: ServerStr<'_>) {
        let Some(key) = self.key.as_mut().filter(|key| !key.is_empty()) else { return };
        key.hash_delete(owner);
        propagate_removal(self.ctx, c"HDEL", &[self.name, owner]);
        self.ctx.signal_modified(self.name);
    }

    /// Deletes the key: the lock is free.
    pub fn delete(mut self) {
        let Some(key) = self.key.as_mut().filter(|key| !key.is_empty()) else { return };
        key.delete();
        propagate_removal(self.ctx, c"DEL", &[self.name]);
        self.ctx.signal_modified(self.name);
    }

    /// Writes the key of a lock that has lost it.
    pub fn put_back(self) {
        let Some(kept) = &self.kept else { return };
        let owner = ServerString::new(kept.owner.as_str().bytes());
        self.write(owner.as_str(), Writes::default());
    }

    /// A lock that has lost its key is written as a whole.
    fn complete(&self, owner: ServerStr<'_>, writes: Writes, kept: &Kept) -> Writes {
        let holds = writes.holds.unwrap_or(kept.holds);
        let token = writes.token.unwrap_or(kept.token);
        let lease = writes.lease_end.map_or(self.lease(), Lease::Until);
        leases::record(self.ctx, self.name, Hold { owner: owner.bytes(), holds, token }, lease);
        node::with(|node| node.metrics.put_back += 1);
        let lease_end = match lease {
            Lease::Until(end) => Some(end),
            Lease::Endless => None,
        };
        Writes { holds: Some(holds), token: (token > 0).then_some(token), lease_end }
    }

    /// Some locks have lost their keys, or the TTLs of keys are to be set anew: is this such a lock?
    fn recall(&mut self) -> Result<(), Refusal> {
        self.look_up();
        if self.kept.is_none() && self.lease.is_none() {
            return Ok(());
        }
        if self.ctx.writes_paused() {
            // The server may only hide the key: to write to it now would end the process.
            return Err(Refusal::Paused);
        }
        let Some(key) = self.key.as_mut().filter(|key| !key.is_empty()) else { return Ok(()) };
        if let Some(lease @ Lease::Until(end)) = self.lease.take() {
            key.expire_at(end.0);
            propagate(self.ctx, self.name, [None, None], Some(end));
            self.ctx.signal_modified(self.name);
            leases::retimed(self.ctx, self.name, lease);
        }
        Ok(())
    }

    /// Looks up what the node knows of a lock without its key, and the lease of one with a key of a TTL that the
    /// wall clock has run away from.
    fn look_up(&mut self) {
        let expiry = match self.key.as_ref().filter(|key| !key.is_empty()) {
            None => Expiry::KeyLost,
            Some(key) => match lock_hash::lease(key) {
                Lease::Until(end) => Expiry::At(end),
                Lease::Endless => return,
            },
        };
        let db = self.ctx.db();
        let found = node::with(|node| {
            let (lease, hold) = leases::as_kept(node, db, self.name.bytes(), expiry)?;
            Some((lease, hold.map(|hold| (ServerString::new(hold.owner), hold.holds, hold.token))))
        });
        let Some((lease, hold)) = found else { return };
        self.lease = Some(lease);
        self.kept = hold.map(|(owner, holds, token)| Kept { owner, holds, token });
    }
}

/// Sends fields as one HSET and the lease's end as PEXPIREAT, if anybody is there to hear it.
fn propagate(
    ctx: Context<'_>,
    name: ServerStr<'_>,
    fields: [Option<FieldValue<'_>>; 2],
    lease_end: Option<WallMs>,
) {
    if !ctx.has_audience() {
        return ctx.count_change();
    }
    match fields {
        [Some((a, one)), Some((b, two))] => ctx.propagate(c"HSET", &[name, a, one, b, two]),
        [Some((a, one)), None] | [None, Some((a, one))] => ctx.propagate(c"HSET", &[name, a, one]),
        [None, None] => {}
    }
    if let Some(end) = lease_end {
        let at = ServerString::from_integer(end.0);
        ctx.propagate(c"PEXPIREAT", &[name, at.as_str()]);
    }
}

fn propagate_removal(ctx: Context<'_>, command: &CStr, args: &[ServerStr<'_>]) {
    if ctx.has_audience() {
        ctx.propagate(command, args);
    } else {
        ctx.count_change();
    }
}

/// A hold count as the server is given it; nearly all are 1, for which there is a standing string.
enum Count<'w> {
    One(&'w ServerString),
    More(ServerString),
}

impl<'w> Count<'w> {
    fn new(holds: u64, words: &'w Words) -> Self {
        if holds == 1 { Self::One(&words.one) } else { Self::More(integer(holds)) }
    }

    fn as_str(&self) -> ServerStr<'_> {
        match self {
            Self::One(one) => one.as_str(),
            Self::More(more) => more.as_str(),
        }
    }
}

fn integer(value: u64) -> ServerString {
    // Counts and tokens stay below 2⁵³.
    ServerString::from_integer(value.cast_signed())
}
