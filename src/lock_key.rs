//! A lock as the hash at a key, as the commands use it: opened, written and propagated.

use std::ffi::CStr;

use crate::lock::{Lease, Record, WallMs, Writes};
use crate::lock_hash::{self, Detail};
use crate::node::{self, Role, Words};
use crate::refusal::Refusal;
use crate::server::{Access, Context, FieldValue, Key, ServerStr, ServerString};

/// A key that is a lock, or may become one.
pub struct LockKey<'c> {
    key: Key<'c>,
}

impl<'c> LockKey<'c> {
    /// Opens a key for a command that writes; refuses what is no hash, and on a replica.
    pub fn open(ctx: Context<'c>, name: ServerStr<'c>) -> Result<Self, Refusal> {
        if node::with(|node| node.role) == Role::Replica {
            return Err(Refusal::Replica);
        }
        let Some(key) = Key::open(ctx, name, Access::Write) else { return Err(Refusal::WrongType) };
        if key.is_empty() || key.is_hash() { Ok(Self { key }) } else { Err(Refusal::WrongType) }
    }

    /// Opens a key to look at it; `None` where there is none.
    pub fn peek(ctx: Context<'c>, name: ServerStr<'c>) -> Result<Option<Self>, Refusal> {
        match Key::open(ctx, name, Access::Read) {
            None => Ok(None),
            Some(key) if key.is_hash() => Ok(Some(Self { key })),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// How the lock stands towards a caller, or somebody who is no owner.
    pub fn record(&self, caller: Option<ServerStr<'_>>, detail: Detail) -> Result<Record, Refusal> {
        if self.key.is_empty() {
            return Ok(Record::Free { token: 0 });
        }
        Ok(lock_hash::record(&self.key, caller, detail)?)
    }

    /// The lock's lease.
    pub fn lease(&self) -> Lease {
        lock_hash::lease(&self.key)
    }

    /// The first field that is an owner's.
    pub fn first_owner(&self) -> Option<ServerString> {
        lock_hash::first_owner(&self.key)
    }

    /// Writes what a decision asks for, propagates just that, in absolute time, and closes the key.
    pub fn write(mut self, owner: ServerStr<'_>, writes: Writes) {
        if writes == Writes::default() {
            return;
        }
        let (ctx, name) = (self.key.context(), self.key.name());
        node::with_words(|words| {
            let holds = writes.holds.map(|holds| Count::new(holds, words));
            let token = writes.token.map(integer);
            let fields = [
                holds.as_ref().map(|holds| (owner, holds.as_str())),
                token.as_ref().map(|token| (words.token_field.as_str(), token.as_str())),
            ];
            match fields {
                [Some(first), Some(second)] => self.key.hash_set_both(first, second),
                [Some(only), None] | [None, Some(only)] => self.key.hash_set(only),
                [None, None] => {}
            }
            if let Some(end) = writes.lease_end {
                self.key.expire_at(end.0);
            }
            propagate(ctx, name, fields, writes.lease_end);
        });
        ctx.signal_modified(name);
    }

    /// Takes an owner out of a hash that has others.
    pub fn remove_owner(mut self, owner: ServerStr<'_>) {
        let (ctx, name) = (self.key.context(), self.key.name());
        self.key.hash_delete(owner);
        propagate_removal(ctx, c"HDEL", &[name, owner]);
        ctx.signal_modified(name);
    }

    /// Deletes the key: the lock is free.
    pub fn delete(mut self) {
        let (ctx, name) = (self.key.context(), self.key.name());
        self.key.delete();
        propagate_removal(ctx, c"DEL", &[name]);
        ctx.signal_modified(name);
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
