//! MULTI, WATCH and Lua.

use redis::{Connection, Value, cmd};

use crate::helpers::*;

/// Whether a transaction of `con` that watches `lock` goes through after `line` by somebody else.
fn survives_watch(line: &str) -> bool {
    let (server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    let mut watcher = server.connect();
    run(&mut watcher, "WATCH lock free");
    run(&mut con, line);
    let done: Option<Vec<i64>> =
        redis::pipe().atomic().cmd("INCR").arg("counter").query(&mut watcher).unwrap();
    done.is_some()
}

#[test]
fn what_changes_nothing_leaves_a_watch_alone() {
    for line in [
        "LOCK.ACQUIRE lock you 60000",
        "LOCK.ACQUIRE lock you 60000 HOLDS 2",
        "LOCK.ACQUIRE lock me 1000 HOLDS 2",
        "LOCK.RENEW lock you 60000",
        "LOCK.RENEW lock me 1000",
        "LOCK.RENEW free me 60000",
        "LOCK.RELEASE lock you",
        "LOCK.RELEASE lock me HOLDS 2",
        "LOCK.RELEASE free me",
        "LOCK.FORCERELEASE free",
        "LOCK.INFO lock",
    ] {
        assert!(survives_watch(line), "{line}");
    }
}

#[test]
fn what_changes_a_lock_aborts_a_watch() {
    for line in [
        "LOCK.ACQUIRE lock me 1000",
        "LOCK.ACQUIRE lock me 60000 HOLDS 2",
        "LOCK.ACQUIRE free me 30000",
        "LOCK.RENEW lock me 60000",
        "LOCK.RELEASE lock me",
        "LOCK.RELEASE lock me HOLDS 0",
        "LOCK.FORCERELEASE lock",
    ] {
        assert!(!survives_watch(line), "{line}");
    }
}

#[test]
fn the_end_of_a_lease_aborts_a_watch() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 100);
    let mut watcher = server.connect();
    run(&mut watcher, "WATCH lock");
    sleep_until(now_ms() + 200);
    let done: Option<Vec<i64>> =
        redis::pipe().atomic().cmd("INCR").arg("counter").query(&mut watcher).unwrap();
    assert_eq!(done, None);
}

#[test]
fn all_commands_work_in_a_transaction() {
    let (_server, mut con) = start();
    let replies: Vec<Value> = redis::pipe()
        .atomic()
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "me", "30000"])
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "me", "30000"])
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "you", "30000"])
        .cmd("LOCK.RENEW")
        .arg(&["lock", "me", "60000"])
        .cmd("LOCK.RELEASE")
        .arg(&["lock", "me"])
        .cmd("LOCK.INFO")
        .arg("lock")
        .cmd("LOCK.FORCERELEASE")
        .arg("lock")
        .query(&mut con)
        .unwrap();
    let holds: Vec<i64> = replies[..3].iter().map(|r| Acquired::from_reply(r.clone()).holds).collect();
    assert_eq!(holds, [1, 2, 0]);
    assert_eq!(replies[3..5], [Value::Int(1), Value::Int(1)]);
    assert_eq!(replies[6], Value::Int(1));
    assert_free(&mut con, "lock");
}

#[test]
fn a_discarded_transaction_takes_no_lock() {
    let (_server, mut con) = start();
    for line in ["MULTI", "LOCK.ACQUIRE lock me 30000", "DISCARD"] {
        run(&mut con, line);
    }
    assert_free(&mut con, "lock");
}

fn eval<T: redis::FromRedisValue>(con: &mut Connection, script: &str) -> redis::RedisResult<T> {
    cmd("EVAL").arg(script).arg(1).arg("lock").query(con)
}

#[test]
fn all_commands_work_in_a_script() {
    let (_server, mut con) = start();
    let script = "\
        local first = redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000)
        local again = redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000)
        local other = redis.call('LOCK.ACQUIRE', KEYS[1], 'you', 30000)
        local renewed = redis.call('LOCK.RENEW', KEYS[1], 'me', 60000)
        local info = redis.call('LOCK.INFO', KEYS[1])
        local left = redis.call('LOCK.RELEASE', KEYS[1], 'me')
        local nobody = redis.call('LOCK.RELEASE', KEYS[1], 'you')
        local forced = redis.call('LOCK.FORCERELEASE', KEYS[1])
        return {first[1], again[1], other[1], renewed, info[2], left, tostring(nobody), forced}";
    let replies: (i64, i64, i64, i64, String, i64, String, i64) = eval(&mut con, script).unwrap();
    assert_eq!(replies, (1, 2, 0, 1, "held".into(), 1, "false".into(), 1));
    assert_free(&mut con, "lock");
}

#[test]
fn a_script_that_speaks_resp3_gets_a_map() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let script = "redis.setresp(3) return redis.call('LOCK.INFO', KEYS[1]).map.owner";
    assert_eq!(eval(&mut con, script), Ok("me".to_owned()));
}

#[test]
fn an_error_in_a_script_is_the_commands_error() {
    let (server, mut con) = start();
    run(&mut con, "SET lock 1");
    let refused = eval::<Value>(&mut con, "return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000)");
    assert!(error_line(&refused.unwrap_err()).starts_with("WRONGTYPE "));
    let caught = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'me', 0)['err']";
    let message: String = eval(&mut con, caught).unwrap();
    assert!(message.contains("ttl"), "{message}");
    server.assert_alive();
}

#[test]
fn a_read_only_script_may_only_look() {
    let (_server, mut con) = start();
    let eval_ro = |script: &str| cmd("EVAL_RO").arg(script).arg(1).arg("lock").to_owned();
    let look = eval_ro("return redis.call('LOCK.INFO', KEYS[1])[2]");
    assert_eq!(look.query(&mut con), Ok("free".to_owned()));
    let take = eval_ro("return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000)");
    refusal_of(&mut con, &take);
    assert_free(&mut con, "lock");
}

#[test]
fn nothing_is_granted_in_a_transaction_that_pauses_writes() {
    let (server, mut con) = start();
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    cmd("SET").arg(&["expired", "v", "PX", "1"]).exec(&mut con).unwrap();
    sleep_until(now_ms() + 50);
    for key in ["expired", "free"] {
        for (line, expected) in [
            ("LOCK.RENEW $ me 1000", Ok(Value::Int(0))),
            ("LOCK.RELEASE $ me", Ok(Value::Nil)),
            ("LOCK.ACQUIRE $ me 1000", Err("PAUSED")),
        ] {
            run(&mut con, "MULTI");
            run(&mut con, "CLIENT PAUSE 10000 WRITE");
            run(&mut con, &line.replace('$', key));
            let replies = cmd("EXEC").query::<Vec<Value>>(&mut con);
            run(&mut con, "CLIENT UNPAUSE");
            let reply = replies.as_ref().map(|replies| replies[1].clone());
            assert_eq!(reply.map_err(|error| error.code().unwrap_or("")), expected, "{line} {key}");
        }
    }
    server.assert_alive();
    assert_eq!(acquire(&mut con, "expired", "me", 1_000).holds, 1);
}
