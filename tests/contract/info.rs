//! LOCK.INFO, the shape of all replies in both protocols, and the `lock` section of INFO.

use redis::{Value, cmd};

use crate::helpers::*;
use crate::listener::Listener;

fn text(word: &str) -> Value {
    Value::BulkString(word.into())
}

#[test]
fn info_of_a_held_lock_tells_who_holds_it_how_often_and_how_long() {
    let (_server, mut con) = start();
    let token = acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2").token;
    let held = info(&mut con, "lock");
    assert!(held.is_held_by("me"));
    assert_eq!((held.holds, held.token), (2, token));
    assert_lease(held.ttl, 30_000);
}

#[test]
fn info_of_a_free_lock_is_as_of_a_missing_key() {
    let (_server, mut con) = start();
    assert_free(&mut con, "lock");
}

#[test]
fn info_of_a_lock_without_a_ttl_tells_so() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PERSIST lock");
    assert_eq!(info(&mut con, "lock").ttl, -1);
}

#[test]
fn info_changes_nothing() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    info(&mut con, "lock");
    info(&mut con, "free");
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn in_resp2_info_is_a_flat_array() {
    let (_server, mut con) = start();
    let free: Value = call(&mut con, "LOCK.INFO lock");
    let fields = [
        (text("state"), text("free")),
        (text("owner"), Value::Nil),
        (text("holds"), Value::Int(0)),
        (text("ttl"), Value::Int(-2)),
        (text("token"), Value::Int(0)),
        (text("waiters"), Value::Int(0)),
        (text("grace"), Value::Int(0)),
    ];
    assert_eq!(
        plain(free),
        Value::Array(fields.into_iter().flat_map(|(name, value)| [name, value]).collect())
    );
}

#[test]
fn in_resp3_info_is_a_map() {
    let (server, mut con) = start();
    let token = acquire(&mut con, "lock", "me", 30_000).token;
    run(&mut con, "PERSIST lock");
    let held: Value = call(&mut server.connect_resp3(), "LOCK.INFO lock");
    let fields = [
        (text("state"), text("held")),
        (text("owner"), text("me")),
        (text("holds"), Value::Int(1)),
        (text("ttl"), Value::Int(-1)),
        (text("token"), Value::Int(token)),
        (text("waiters"), Value::Int(0)),
        (text("grace"), Value::Int(0)),
    ];
    assert_eq!(plain(held), Value::Map(fields.into()));
}

/// Words may be sent as simple or bulk strings.
fn plain(value: Value) -> Value {
    match value {
        Value::SimpleString(word) => text(&word),
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Map(fields) => Value::Map(fields.into_iter().map(|(k, v)| (plain(k), plain(v))).collect()),
        other => other,
    }
}

#[test]
fn all_other_replies_are_integers_in_both_protocols() {
    let (server, _) = start();
    for mut con in [server.connect(), server.connect_resp3()] {
        let granted: Value = call(&mut con, "LOCK.ACQUIRE lock me 30000");
        assert!(
            matches!(granted, Value::Array(ref items) if matches!(items[..], [Value::Int(1), Value::Int(30_000), Value::Int(_)]))
        );
        assert_eq!(call::<Value>(&mut con, "LOCK.RENEW lock me 30000"), Value::Int(1));
        assert_eq!(call::<Value>(&mut con, "LOCK.RELEASE lock you"), Value::Nil);
        assert_eq!(call::<Value>(&mut con, "LOCK.RELEASE lock me"), Value::Int(0));
        assert_eq!(call::<Value>(&mut con, "LOCK.FORCERELEASE lock"), Value::Int(0));
    }
}

#[test]
fn the_info_section_counts_what_the_commands_did() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    acquire(&mut con, "lock", "me", 30_000);
    acquire(&mut con, "lock", "me", 30_000);
    acquire(&mut con, "lock", "you", 30_000);
    renew(&mut con, "lock", "me", 60_000);
    renew(&mut con, "lock", "you", 60_000);
    release(&mut con, "lock", "me");
    release(&mut con, "lock", "you");
    release_to(&mut con, "lock", "me", 0);
    let token = acquire(&mut con, "second", "me", 30_000).token;
    force_release(&mut con, "second");
    force_release(&mut con, "second");
    acquire(&mut con, "third", "me", 30_000);
    run(&mut con, "DEL third");
    let last = acquire(&mut con, "fourth", "me", 30_000).token;
    assert!(last > token);
    for (field, count) in [
        ("lock_granted", 4),
        ("lock_denied", 1),
        ("lock_reentered", 2),
        ("lock_renewed", 1),
        ("lock_released", 1),
        ("lock_expired", 0),
        ("lock_forced", 1),
        ("lock_vanished", 1),
        ("lock_held", 1),
        ("lock_token", last),
    ] {
        assert_eq!(info_field(&mut con, "lock", field), count, "{field}");
    }
}

#[test]
fn the_info_section_counts_expiries_and_how_late_they_came() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    for number in 0..10 {
        acquire(&mut con, format!("lock-{number}"), "me", 20 + number);
    }
    for _ in 0..10 {
        listener.next();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_expired"), 10);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_vanished"), 0);
    let lateness = ["p50", "p99", "max"]
        .map(|point| info_field(&mut con, "lock", &format!("lock_expiry_lateness_{point}_usec")));
    assert!(lateness.is_sorted(), "{lateness:?}");
    assert!(lateness[0] > 0 && lateness[2] < 1_000_000, "{lateness:?}");
}

#[test]
fn the_info_section_stands_under_its_own_name() {
    let (_server, mut con) = start();
    let section: String = cmd("INFO").arg("lock").query(&mut con).unwrap();
    assert!(section.starts_with("# lock\r\n"), "{section}");
    for whole in ["everything", "modules"] {
        let info: String = cmd("INFO").arg(whole).query(&mut con).unwrap();
        assert!(info.contains("lock_granted:0"), "{whole}");
    }
}
