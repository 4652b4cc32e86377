//! LOCK.INFO with its line, the `lock` section of INFO, and what the server tells of the options.

use std::collections::BTreeMap;

use redis::{Value, cmd};

use super::waiter::*;
use crate::helpers::*;

fn text(word: &str) -> Value {
    Value::BulkString(word.into())
}

/// The names of the fields in their order, and the line if it is among them.
fn shown(reply: Value) -> (Vec<String>, Option<Value>) {
    let fields: Vec<(Value, Value)> = match reply {
        Value::Map(fields) => fields,
        Value::Array(items) => items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        other => panic!("{other:?}"),
    };
    let names = fields.iter().map(|(name, _)| redis::from_redis_value(name.clone()).unwrap()).collect();
    let line = fields.into_iter().find_map(|(name, value)| is_text(&name, "line").then_some(value));
    (names, line)
}

/// A word, whether it came as a bulk or as a simple string.
fn is_text(value: &Value, word: &str) -> bool {
    *value == text(word) || *value == Value::SimpleString(word.into())
}

const FIELDS: [&str; 7] = ["state", "owner", "holds", "ttl", "token", "waiters", "grace"];

#[test]
fn info_shows_the_line_in_both_protocols() {
    let (server, mut con, _waiters) = start_line(["bob", "carol", "bob"]);
    for mut con in [server.connect(), server.connect_resp3()] {
        let (names, line) = shown(call(&mut con, "LOCK.INFO lock WAITERS 10"));
        assert_eq!(names, [&FIELDS[..], &["line"]].concat());
        let Some(Value::Array(line)) = line else { panic!("{line:?}") };
        let owners: Vec<_> = line
            .iter()
            .map(|entry| match entry {
                Value::Array(pair) if matches!(pair[..], [_, Value::Int(waited)] if waited >= 0) => {
                    redis::from_redis_value::<String>(pair[0].clone()).unwrap()
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(owners, ["bob", "carol", "bob"]);
    }
    let in_resp3 = call::<Value>(&mut server.connect_resp3(), "LOCK.INFO lock WAITERS 1");
    assert!(matches!(in_resp3, Value::Map(_)), "{in_resp3:?}");
    let in_resp2 = call::<Value>(&mut con, "LOCK.INFO lock WAITERS 1");
    assert!(matches!(in_resp2, Value::Array(_)), "{in_resp2:?}");
}

#[test]
fn without_waiters_info_counts_and_shows_no_line() {
    let (server, _con, _waiters) = start_line(["bob", "carol"]);
    for mut con in [server.connect(), server.connect_resp3()] {
        let reply: Value = call(&mut con, "LOCK.INFO lock");
        assert_eq!(shown(reply.clone()), (FIELDS.map(str::to_owned).to_vec(), None));
        let fields: BTreeMap<String, Value> = redis::from_redis_value(reply).unwrap();
        assert_eq!(fields["waiters"], Value::Int(2));
    }
}

#[test]
fn info_shows_the_first_of_a_line() {
    let (_server, mut con, _waiters) = start_line(["bob", "carol", "dave"]);
    for (count, expected) in [
        ("0", &[][..]),
        ("1", &["bob"]),
        ("2", &["bob", "carol"]),
        ("3", &["bob", "carol", "dave"]),
        ("9007199254740991", &["bob", "carol", "dave"]),
    ] {
        let reply = call(&mut con, &format!("LOCK.INFO lock WAITERS {count}"));
        let mut fields: BTreeMap<String, Value> = redis::from_redis_value(reply).unwrap();
        assert_eq!(fields["waiters"], Value::Int(3));
        let line: Vec<(String, i64)> = redis::from_redis_value(fields.remove("line").unwrap()).unwrap();
        assert_eq!(line.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), expected, "{count}");
    }
}

#[test]
fn info_of_a_lock_without_a_line_shows_an_empty_one() {
    let (_server, mut con) = start();
    assert_eq!(shown(call(&mut con, "LOCK.INFO lock WAITERS 5")).1, Some(Value::Array(vec![])));
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(shown(call(&mut con, "LOCK.INFO lock waiters 5")).1, Some(Value::Array(vec![])));
}

#[test]
fn info_tells_how_long_each_has_waited() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let sent = now_ms();
    let _bob = Waiter::join_for(&server, "bob");
    let joined = now_ms();
    sleep_until(joined + 150);
    let asked = now_ms();
    let _carol = Waiter::join_for(&server, "carol");
    let line = queue(&mut con, "lock");
    // Two clocks, and milliseconds that have begun.
    let seen = now_ms() + 2;
    assert!((148..=seen - sent).contains(&line[0].1), "{line:?} after {} ms", seen - sent);
    assert!((0..=seen - asked).contains(&line[1].1), "{line:?} after {} ms", seen - asked);
    let longest = info_field(&mut con, "lock", "lock_longest_wait_msec");
    assert!((line[0].1..=now_ms() + 2 - sent).contains(&longest), "{longest}");
}

#[test]
fn a_count_of_waiters_that_makes_no_sense_is_refused() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for count in ["-1", "x", "1.5", "9223372036854775808", "9007199254740992"] {
        let refused = refusal(&mut con, &format!("LOCK.INFO lock WAITERS {count}"));
        assert!(refused.starts_with("ERR ") && refused.contains("WAITERS"), "{count}: {refused}");
    }
    for line in [
        "LOCK.INFO lock WAITERS",
        "LOCK.INFO lock WAITERS 1 WAITERS 1",
        "LOCK.INFO lock LINE 1",
        "LOCK.INFO lock 1",
    ] {
        let refused = refusal(&mut con, line);
        assert!(refused.starts_with("ERR syntax error"), "{line}: {refused}");
    }
}

#[test]
fn info_of_waiters_changes_nothing() {
    let (_server, mut con, [_bob]) = start_line(["bob"]);
    let before = Snapshot::take(&mut con);
    queue(&mut con, "lock");
    queue(&mut con, "free");
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(line(&mut con), ["bob"]);
}

#[test]
fn the_info_section_counts_what_became_of_those_who_waited() {
    let (server, mut con, [mut bob, closed, mut unblocked, mut withdrawn, _stays]) =
        start_line(["bob", "closed", "unblocked", "withdrawn", "stays"]);
    let mut late = Waiter::join(&server, "LOCK.ACQUIRE lock late 60000 BLOCK 50");
    assert!(info_field(&mut con, "lock", "lock_waiting") >= 5);
    late.denied();
    drop(closed);
    run(&mut con, &format!("CLIENT UNBLOCK {} ERROR", unblocked.id));
    unblocked.error();
    release_to(&mut con, "lock", "withdrawn", 0);
    withdrawn.denied();
    await_line(&mut con, &["bob", "stays"]);
    release(&mut con, "lock", "me");
    bob.granted();
    for (field, count) in [
        ("lock_waiting", 1),
        ("lock_handed_over", 1),
        ("lock_wait_timed_out", 1),
        ("lock_wait_gone", 2),
        ("lock_wait_withdrawn", 1),
        ("lock_released", 1),
        ("lock_held", 1),
    ] {
        assert_eq!(info_field(&mut con, "lock", field), count, "{field}");
    }
    let longest = info_field(&mut con, "lock", "lock_longest_wait_msec");
    assert!((50..SLACK_MS).contains(&longest), "{longest}");
}

#[test]
fn the_server_counts_who_waits_among_its_blocked_clients() {
    let (_server, mut con, [bob, carol]) = start_line(["bob", "carol"]);
    assert_eq!(info_field(&mut con, "clients", "blocked_clients"), 2);
    release(&mut con, "lock", "me");
    assert_eq!(info_field(&mut con, "clients", "blocked_clients"), 1);
    drop((bob, carol));
    await_waiting(&mut con, 0);
    assert_eq!(info_field(&mut con, "clients", "blocked_clients"), 0);
}

#[test]
fn command_info_says_that_acquire_blocks() {
    let (_server, mut con) = start();
    for (name, blocks) in [
        ("lock.acquire", true),
        ("lock.renew", false),
        ("lock.release", false),
        ("lock.info", false),
        ("lock.forcerelease", false),
    ] {
        let reply: Vec<Vec<Value>> = call(&mut con, &format!("COMMAND INFO {name}"));
        let flags: Vec<String> = redis::from_redis_value(reply[0][2].clone()).unwrap();
        assert_eq!(flags.iter().any(|flag| flag == "blocking"), blocks, "{name}: {flags:?}");
    }
}

#[test]
fn command_docs_show_the_options() {
    let (_server, mut con) = start();
    for (name, token) in [("lock.acquire", "BLOCK"), ("lock.info", "WAITERS")] {
        let docs: BTreeMap<String, BTreeMap<String, Value>> = call(&mut con, &format!("COMMAND DOCS {name}"));
        let arguments: Vec<BTreeMap<String, Value>> =
            redis::from_redis_value(docs[name]["arguments"].clone()).unwrap();
        let option = arguments
            .iter()
            .find(|argument| argument.get("token").is_some_and(|value| is_text(value, token)));
        let option = option.unwrap_or_else(|| panic!("no {token}: {arguments:?}"));
        assert_eq!(redis::from_redis_value(option["type"].clone()), Ok("integer".to_owned()));
        let flags: Vec<String> = redis::from_redis_value(option["flags"].clone()).unwrap();
        assert_eq!(flags, ["optional"]);
    }
}

#[test]
fn command_getkeys_finds_the_key_of_one_who_waits() {
    let (_server, mut con) = start();
    for line in ["LOCK.ACQUIRE the-key me 30000 BLOCK 0", "LOCK.INFO the-key WAITERS 5"] {
        assert_eq!(call::<Vec<String>>(&mut con, &format!("COMMAND GETKEYS {line}")), ["the-key"]);
    }
}

#[test]
fn a_script_sees_the_line() {
    let (_server, mut con, [_bob]) = start_line(["bob"]);
    let script = "return redis.call('LOCK.INFO', KEYS[1], 'WAITERS', 1)[16][1][1]";
    assert_eq!(cmd("EVAL_RO").arg(script).arg(1).arg("lock").query(&mut con), Ok("bob".to_owned()));
}
