//! `LOCK.ACQUIRE` and its answer.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, ParsingError, ToRedisArgs, Value, cmd};

use crate::Owner;

/// The longest time-out that a node takes, in milliseconds: 285,000 years.
const LONGEST_WAIT: i64 = (1 << 53) - 1;

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    name: &'a [u8],
    owner: &'a Owner,
    lease: Duration,
    holds: Option<u64>,
    token: Option<u64>,
    /// The time-out of BLOCK; 0: without end.
    block: Option<i64>,
}

impl<'a> Acquire<'a> {
    /// Asks for the lock `name` for the length of `lease`: from a millisecond to the node's `max-ttl` (a day
    /// by default), in whole milliseconds, rounded up.
    pub fn new(name: &'a (impl AsRef<[u8]> + ?Sized), owner: &'a Owner, lease: Duration) -> Self {
        Self { name: name.as_ref(), owner, lease, holds: None, token: None, block: None }
    }

    /// The hold count to have afterwards, instead of one more: a retry then changes nothing.
    pub fn holds(mut self, count: u64) -> Self {
        self.holds = Some(count);
        self
    }

    /// The least fencing token that the hold must carry.
    pub fn token(mut self, least: u64) -> Self {
        self.token = Some(least);
        self
    }

    /// Waits in line for at most this long where somebody else holds the lock; no time at all is no waiting.
    ///
    /// The lease begins with the grant. The connection must not time out earlier, and can do nothing else
    /// meanwhile: use one that is not shared.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.block = Some(milliseconds(at_most)).filter(|timeout| *timeout > 0);
        self
    }

    /// As [`Acquire::wait`], without end.
    pub fn wait_without_end(mut self) -> Self {
        self.block = Some(0);
        self
    }

    /// The command, to be queried as an [`Attempt`].
    pub fn cmd(&self) -> Cmd {
        let mut cmd = cmd("LOCK.ACQUIRE");
        cmd.arg(self.name).arg(self.owner).arg(milliseconds(self.lease));
        option(&mut cmd, "HOLDS", self.holds);
        option(&mut cmd, "TOKEN", self.token);
        option(&mut cmd, "BLOCK", self.block.map(|timeout| timeout.min(LONGEST_WAIT)));
        cmd
    }
}

pub(crate) fn option(cmd: &mut Cmd, name: &str, value: Option<impl ToRedisArgs>) {
    if let Some(value) = value {
        cmd.arg(name).arg(value);
    }
}

/// Leases count in whole milliseconds, rounded up; a longer one than the node can count is the longest.
pub(crate) fn milliseconds(lease: Duration) -> i64 {
    i64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The owner holds the lock.
    Granted(Hold),
    /// Somebody else does.
    Denied(Holder),
}

/// A hold of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How often the owner holds the lock; at least 1.
    pub count: u64,
    /// What is left of the lease.
    pub lease: Lease,
    /// The fencing token: greater than that of every earlier holder on this node. 0 for a hold that
    /// Redisson's scripts made.
    pub token: u64,
}

/// The hold that stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What is left of its lease.
    pub lease: Lease,
    /// Its fencing token, or 0.
    pub token: u64,
}

/// What is left of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It ends after this time.
    Left(Duration),
    /// It does not end by itself: somebody has taken the key's TTL away.
    Endless,
}

impl Lease {
    pub(crate) fn from_ttl(ttl: i64) -> Self {
        u64::try_from(ttl).map_or(Self::Endless, |ttl| Self::Left(Duration::from_millis(ttl)))
    }
}

impl FromRedisValue for Attempt {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let integers: Vec<i64> = redis::from_redis_value(value)?;
        let &[holds, ttl, token] = integers.as_slice() else {
            return Err(format!("LOCK.ACQUIRE answers three integers, not {integers:?}").into());
        };
        let natural = |integer: i64| {
            u64::try_from(integer).map_err(|_| format!("{integer} is neither a hold count nor a token"))
        };
        let (lease, token) = (Lease::from_ttl(ttl), natural(token)?);
        Ok(match natural(holds)? {
            0 => Self::Denied(Holder { lease, token }),
            count => Self::Granted(Hold { count, lease, token }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(integers: [i64; 3]) -> Attempt {
        let value = Value::Array(integers.map(Value::Int).to_vec());
        redis::from_redis_value(value).expect("three integers")
    }

    #[test]
    fn the_first_integer_decides() {
        let lease = Lease::Left(Duration::from_millis(250));
        assert_eq!(attempt([2, 250, 7]), Attempt::Granted(Hold { count: 2, lease, token: 7 }));
        assert_eq!(attempt([0, 250, 7]), Attempt::Denied(Holder { lease, token: 7 }));
        assert_eq!(attempt([0, -1, 0]), Attempt::Denied(Holder { lease: Lease::Endless, token: 0 }));
    }

    #[test]
    fn another_reply_is_an_error_and_no_panic() {
        for value in [Value::Nil, Value::Int(1), Value::Array(vec![Value::Int(-1); 3])] {
            assert!(redis::from_redis_value::<Attempt>(value).is_err());
        }
    }

    #[test]
    fn a_lease_is_rounded_up_to_milliseconds() {
        let lease = Duration::from_micros;
        assert_eq!([lease(0), lease(1), lease(1000), lease(1001)].map(milliseconds), [0, 1, 1, 2]);
        assert_eq!(milliseconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn a_request_spells_its_options() {
        let owner = Owner::unique();
        let request = || Acquire::new("job", &owner, Duration::from_secs(1));
        let plain = format!("LOCK.ACQUIRE job {owner} 1000");
        for (request, options) in [
            (request(), ""),
            (request().holds(1).token(9), " HOLDS 1 TOKEN 9"),
            (request().wait(Duration::from_millis(5)), " BLOCK 5"),
            (request().wait(Duration::from_nanos(1)), " BLOCK 1"),
            (request().wait(Duration::ZERO), ""),
            (request().wait(Duration::MAX), " BLOCK 9007199254740991"),
            (request().wait_without_end(), " BLOCK 0"),
        ] {
            let words: Vec<_> = request
                .cmd()
                .args_iter()
                .map(|word| match word {
                    redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                    _ => "a cursor".into(),
                })
                .collect();
            assert_eq!(words.join(" "), format!("{plain}{options}"));
        }
    }
}
