//! The shorter calls.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, ParsingError, Value, cmd};

use crate::Owner;
use crate::acquire::{milliseconds, option};

/// What came of a `LOCK.RENEW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease is at least as long as was asked for.
    Renewed,
    /// The owner does not hold the lock.
    NotHeld,
}

impl FromRedisValue for Renewal {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let renewed: bool = redis::from_redis_value(value)?;
        Ok(if renewed { Self::Renewed } else { Self::NotHeld })
    }
}

/// Lengthens the lease to at least `lease` from now, and with `token` raises the hold's fencing token to at
/// least that. To be queried as a [`Renewal`].
pub fn renew(name: impl AsRef<[u8]>, owner: &Owner, lease: Duration, token: Option<u64>) -> Cmd {
    let mut cmd = cmd("LOCK.RENEW");
    cmd.arg(name.as_ref()).arg(owner).arg(milliseconds(lease));
    option(&mut cmd, "TOKEN", token);
    cmd
}

/// Gives one hold back. Not safe to retry after a lost reply, as each gives one back: [`release_all`] is. To be
/// queried as an `Option<u64>`: the holds left (0: the lock is free), or `None`
/// where the owner does not hold the lock.
pub fn release(name: impl AsRef<[u8]>, owner: &Owner) -> Cmd {
    let mut cmd = cmd("LOCK.RELEASE");
    cmd.arg(name.as_ref()).arg(owner);
    cmd
}

/// Gives all holds back: safe to repeat. To be queried like [`release`].
pub fn release_all(name: impl AsRef<[u8]>, owner: &Owner) -> Cmd {
    let mut cmd = release(name, owner);
    cmd.arg("HOLDS").arg(0);
    cmd
}

/// Takes the lock away from whoever holds it. To be queried as a `bool`: whether somebody did.
pub fn force_release(name: impl AsRef<[u8]>) -> Cmd {
    let mut cmd = cmd("LOCK.FORCERELEASE");
    cmd.arg(name.as_ref());
    cmd
}
