//! The module's commands, whose every reply is held against the key.

use std::collections::HashMap;

use proptest::{prop_assert, prop_assert_eq};
use redis::{Connection, FromRedisValue, Value};

use crate::locker::{Answer, Hold, Locker};
use crate::runner::Verdict;
use crate::snapshot::{Snapshot, is_same_time};

/// The module.
pub struct Module;

impl Locker for Module {
    fn acquire(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer> {
        acquire(connection, hold, None)
    }

    fn ask(&mut self, connection: &mut Connection, hold: Hold<'_>, n: i64) -> Verdict<Answer> {
        acquire(connection, hold, Some(n))
    }

    fn renew(&mut self, connection: &mut Connection, hold: Hold<'_>) -> Verdict<Answer> {
        let renewed: i64 =
            redis::cmd("LOCK.RENEW").arg(hold.lock).arg(hold.owner).arg(hold.lease).query(connection)?;
        prop_assert!(matches!(renewed, 0 | 1), "RENEW answers {}", renewed);
        Ok(if renewed == 1 { Answer::Renewed } else { Answer::NotHeld })
    }

    fn release(&mut self, connection: &mut Connection, lock: &[u8], owner: &[u8]) -> Verdict<Answer> {
        let left: Option<i64> = redis::cmd("LOCK.RELEASE").arg(lock).arg(owner).query(connection)?;
        let [key] = Snapshot::take(connection, [lock])?;
        if let Some(left) = left {
            prop_assert_eq!(left, key.holds_of(owner), "RELEASE's reply against the key");
        }
        Ok(match left {
            Some(0) => Answer::Freed,
            Some(_) => Answer::HoldsLeft,
            None => Answer::NotHeld,
        })
    }

    fn release_all(
        &mut self,
        connection: &mut Connection,
        lock: &[u8],
        owner: &[u8],
        _: i64,
    ) -> Verdict<Answer> {
        let left: Option<i64> =
            redis::cmd("LOCK.RELEASE").arg(lock).arg(owner).arg("HOLDS").arg(0).query(connection)?;
        prop_assert!(matches!(left, None | Some(0)), "RELEASE HOLDS 0 answers {:?}", left);
        Ok(left.map_or(Answer::NotHeld, |_| Answer::Freed))
    }

    fn force(&mut self, connection: &mut Connection, lock: &[u8]) -> Verdict<Answer> {
        let forced: i64 = redis::cmd("LOCK.FORCERELEASE").arg(lock).query(connection)?;
        prop_assert!(matches!(forced, 0 | 1), "FORCERELEASE answers {}", forced);
        Ok(if forced == 1 { Answer::Freed } else { Answer::NotHeld })
    }
}

fn acquire(connection: &mut Connection, hold: Hold<'_>, holds: Option<i64>) -> Verdict<Answer> {
    let mut command = redis::cmd("LOCK.ACQUIRE");
    command.arg(hold.lock).arg(hold.owner).arg(hold.lease);
    if let Some(holds) = holds {
        command.arg("HOLDS").arg(holds);
    }
    let reply: Result<[i64; 3], _> = command.query(connection);
    let [holds, ttl, token] = match reply {
        Err(error) if hold.lease == 0 && error.to_string().contains("ttl") => return Ok(Answer::Refused),
        reply => reply?,
    };
    let [key] = Snapshot::take(connection, [hold.lock])?;
    prop_assert_eq!((holds, token), (key.holds_of(hold.owner), key.token), "ACQUIRE's reply against the key");
    prop_assert!(is_same_time(ttl, key.left()), "ACQUIRE says ttl {}, the key {}", ttl, key.left());
    Ok(if holds > 0 { Answer::Granted } else { Answer::Denied { left: ttl } })
}

/// Holds LOCK.INFO against the key.
pub fn check_info(connection: &mut Connection, lock: &[u8], key: &Snapshot) -> Verdict {
    let mut info: HashMap<String, Value> = redis::cmd("LOCK.INFO").arg(lock).query(connection)?;
    let owner = key.holds.keys().next().cloned();
    let state = if owner.is_some() { "held" } else { "free" };
    let holds = key.holds.values().next().copied().unwrap_or(0);
    prop_assert_eq!(field::<String>(&mut info, "state")?, state);
    prop_assert_eq!(field::<Option<Vec<u8>>>(&mut info, "owner")?, owner);
    prop_assert_eq!(field::<i64>(&mut info, "holds")?, holds);
    prop_assert_eq!(field::<i64>(&mut info, "token")?, key.token);
    let ttl: i64 = field(&mut info, "ttl")?;
    prop_assert!(is_same_time(ttl, key.left()), "INFO says ttl {}, the key {}", ttl, key.left());
    Ok(())
}

fn field<T: FromRedisValue>(info: &mut HashMap<String, Value>, name: &str) -> Verdict<T> {
    Ok(redis::from_redis_value(info.remove(name).unwrap_or_default())?)
}
