//! What the hash at a key says about a lock.

use std::ops::ControlFlow;

use crate::lock::{self, Lease, LockHash, NotALock, Record, WallMs};
use crate::node;
use crate::server::{Key, ServerStr, ServerString};

/// How the lock in a hash stands towards a caller, or somebody who is no owner.
pub fn record(key: &Key<'_>, caller: Option<ServerStr<'_>>, detail: Detail) -> Result<Record, NotALock> {
    Record::read(&View::new(key, caller, detail))
}

/// The first field that is an owner's.
pub fn first_owner(key: &Key<'_>) -> Option<ServerString> {
    key.hash_fields(|field| {
        if lock::is_reserved(field) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(ServerString::new(field))
        }
    })
}

/// The lease that a key's TTL is.
pub fn lease(key: &Key<'_>) -> Lease {
    key.expires_at().map_or(Lease::Endless, |end| Lease::Until(WallMs(end)))
}

/// The owner, the hold count and the token of a lock that one owner holds and nobody else.
pub fn hold(key: &Key<'_>) -> Option<(ServerString, u64, u64)> {
    if !key.is_hash() {
        return None;
    }
    let token = View::new(key, None, Detail::All).token;
    if key.len() != 1 + usize::from(token.is_some()) {
        return None;
    }
    let owner = first_owner(key)?;
    match record(key, Some(owner.as_str()), Detail::All) {
        Ok(Record::Mine { holds, token, .. }) => Some((owner, holds, token)),
        _ => None,
    }
}

/// Whose lock a held one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The module's: it has a token.
    Ours,
    /// Redisson's scripts made it, and it has no token.
    Redisson,
}

/// Whose lock the key is, if it is a held one.
pub fn held(key: &Key<'_>) -> Option<Origin> {
    if !key.is_hash() {
        return None;
    }
    let view = View::new(key, None, Detail::NoToken);
    match Record::read(&view) {
        Ok(Record::Other { .. }) => {
            Some(if view.token().is_some() { Origin::Ours } else { Origin::Redisson })
        }
        _ => None,
    }
}

/// The token in a hash, whether anybody holds the lock or not.
pub fn token(key: &Key<'_>) -> Option<u64> {
    key.is_hash().then(|| View::new(key, None, Detail::All).token()).flatten()
}

/// How much of a record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    All,
    /// The token's value does not: it reads as 0.
    NoToken,
}

struct View<'v> {
    key: &'v Key<'v>,
    caller: Option<ServerStr<'v>>,
    holds: Option<ServerString>,
    token: Option<u64>,
}

impl<'v> View<'v> {
    fn new(key: &'v Key<'v>, caller: Option<ServerStr<'v>>, detail: Detail) -> Self {
        let token = node::with_words(|words| {
            let field = words.token_field.as_str();
            match detail {
                Detail::All => key.hash_get(field).map(|token| token_value(&token)),
                Detail::NoToken => key.hash_has(field).then_some(0),
            }
        });
        Self { key, caller, holds: caller.and_then(|caller| key.hash_get(caller)), token }
    }
}

/// What is no token counts as 0.
fn token_value(text: &ServerString) -> u64 {
    let token = text.as_str().integer().and_then(|token| u64::try_from(token).ok());
    token.filter(|token| *token <= lock::MAX_TOKEN).unwrap_or(0)
}

impl LockHash for View<'_> {
    fn len(&self) -> usize {
        self.key.len()
    }

    fn holds(&self) -> Option<Result<i64, NotALock>> {
        self.holds.as_ref().map(|holds| holds.as_str().integer().ok_or(NotALock))
    }

    fn token(&self) -> Option<u64> {
        self.token
    }

    fn caller_is_redisson(&self) -> bool {
        self.caller.is_some_and(|caller| lock::is_redisson(caller.bytes()))
    }

    fn has_mode(&self) -> bool {
        node::with_words(|words| self.key.hash_has(words.mode_field.as_str()))
    }

    fn all_fields(&self, test: fn(&[u8]) -> bool) -> bool {
        let stranger = self.key.hash_fields(|field| match test(field) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        stranger.is_none()
    }
}
