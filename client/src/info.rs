//! `LOCK.INFO` and its answer.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, ParsingError, Value, cmd, from_redis_value};

use crate::acquire::Lease;

/// What a node says about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Who holds it; `None` where nobody does.
    pub holder: Option<HolderInfo>,
    /// How many wait in line.
    pub waiters: u64,
    /// The first of them, the next one first; as many as were asked for.
    pub line: Vec<Waiter>,
    /// How long the node's grace period still lasts; zero when it is over, or there is none.
    pub grace: Duration,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderInfo {
    /// Who holds it; empty where it is several at once, as with a read lock of Redisson's.
    pub owner: Vec<u8>,
    /// How often.
    pub holds: u64,
    /// What is left of the lease.
    pub lease: Lease,
    /// The fencing token, or 0.
    pub token: u64,
}

/// Somebody in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub owner: Vec<u8>,
    /// For how long.
    pub waited: Duration,
}

/// Asks about a lock, and about the first `waiters` in its line. To be queried as an [`Info`].
pub fn info(name: impl AsRef<[u8]>, waiters: u32) -> Cmd {
    let mut cmd = cmd("LOCK.INFO");
    cmd.arg(name.as_ref());
    if waiters > 0 {
        cmd.arg("WAITERS").arg(waiters);
    }
    cmd
}

impl FromRedisValue for Info {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let fields: Vec<(String, Value)> = from_redis_value(value)?;
        let mut state = String::new();
        let mut holder = HolderInfo { owner: Vec::new(), holds: 0, lease: Lease::Endless, token: 0 };
        let mut info = Self { holder: None, waiters: 0, line: Vec::new(), grace: Duration::ZERO };
        for (field, value) in fields {
            match field.as_str() {
                "state" => state = from_redis_value(value)?,
                "owner" => holder.owner = from_redis_value::<Option<_>>(value)?.unwrap_or_default(),
                "holds" => holder.holds = from_redis_value(value)?,
                "ttl" => holder.lease = Lease::from_ttl(from_redis_value(value)?),
                "token" => holder.token = from_redis_value(value)?,
                "waiters" => info.waiters = from_redis_value(value)?,
                "line" => info.line = from_redis_value(value)?,
                "grace" => info.grace = Duration::from_millis(from_redis_value(value)?),
                // Newer modules may say more.
                _ => {}
            }
        }
        match state.as_str() {
            "held" => info.holder = Some(holder),
            "free" => {}
            _ => return Err(format!("LOCK.INFO answers a state of held or free, not {state:?}").into()),
        }
        Ok(info)
    }
}

impl FromRedisValue for Waiter {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (owner, waited) = from_redis_value(value)?;
        Ok(Self { owner, waited: Duration::from_millis(waited) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn a_held_lock_in_both_protocols() -> Result<(), ParsingError> {
        let fields = [
            (text("state"), text("held")),
            (text("owner"), text("me")),
            (text("holds"), Value::Int(2)),
            (text("ttl"), Value::Int(250)),
            (text("token"), Value::Int(7)),
            (text("waiters"), Value::Int(1)),
            (text("grace"), Value::Int(0)),
            (text("line"), Value::Array(vec![Value::Array(vec![text("you"), Value::Int(40)])])),
        ];
        let expected = Info {
            holder: Some(HolderInfo {
                owner: b"me".to_vec(),
                holds: 2,
                lease: Lease::Left(Duration::from_millis(250)),
                token: 7,
            }),
            waiters: 1,
            line: vec![Waiter { owner: b"you".to_vec(), waited: Duration::from_millis(40) }],
            grace: Duration::ZERO,
        };
        assert_eq!(from_redis_value::<Info>(Value::Map(fields.to_vec()))?, expected);
        let flat = fields.into_iter().flat_map(|(field, value)| [field, value]).collect();
        assert_eq!(from_redis_value::<Info>(Value::Array(flat))?, expected);
        Ok(())
    }

    #[test]
    fn a_free_lock_has_no_holder() -> Result<(), ParsingError> {
        let free = [
            ("state", text("free")),
            ("owner", Value::Nil),
            ("ttl", Value::Int(-2)),
            ("grace", Value::Int(9)),
        ];
        let info: Info =
            from_redis_value(Value::Map(free.map(|(field, value)| (text(field), value)).to_vec()))?;
        assert_eq!((info.holder, info.grace), (None, Duration::from_millis(9)));
        Ok(())
    }

    #[test]
    fn nonsense_is_an_error() {
        for value in
            [Value::Nil, Value::Int(1), Value::Array(vec![]), Value::Map(vec![(text("state"), text("?"))])]
        {
            assert!(from_redis_value::<Info>(value).is_err());
        }
    }
}
