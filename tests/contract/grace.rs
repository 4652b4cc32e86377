//! The grace period: after a start or a promotion nothing is granted until every lease that may have been
//! forgotten has ended.

use redis::Connection;
use redis_lock_testkit::{Builder, Server};

use crate::helpers::*;
use crate::replicas::{await_replicas, start_replica};

/// Longer than any test takes.
const LONG: &str = "60000";

fn with_grace(length: &str) -> Builder {
    Server::with_module().module_arg("grace-period", length)
}

/// The milliseconds left by which a command is refused.
#[track_caller]
fn grace_left(con: &mut Connection, line: &str) -> i64 {
    let refusal = refusal(con, line);
    let mut words = refusal.split(' ');
    assert_eq!(words.next(), Some("GRACE"), "{refusal}");
    words.next().and_then(|left| left.parse().ok()).unwrap_or_else(|| panic!("{refusal}"))
}

/// Waits until the grace has ended, and answers the first grant.
fn first_grant(con: &mut Connection, line: &str) -> Acquired {
    Acquired::from_reply(call(con, &format!("{line} BLOCK 30000")))
}

#[test]
fn a_node_that_starts_grants_nothing_until_the_grace_ends() {
    let server = with_grace("700").start();
    let mut con = server.connect();
    let begun = now_ms();
    let left = grace_left(&mut con, "LOCK.ACQUIRE lock me 500");
    assert!((1..=700).contains(&left), "{left}");
    assert_eq!(call::<i64>(&mut con, "EXISTS lock"), 0);
    assert_eq!(first_grant(&mut con, "LOCK.ACQUIRE lock me 500").holds, 1);
    assert!(now_ms() >= begun + left - 1, "granted {} ms early", begun + left - now_ms());
    assert_eq!(info_field(&mut con, "lock", "lock_grace_left_msec"), 0);
}

#[test]
fn without_a_grace_period_a_node_grants_at_once() {
    let (_server, mut con) = start();
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).holds, 1);
    assert_eq!(info_field(&mut con, "lock", "lock_grace_period_msec"), 0);
}

#[test]
fn holders_on_record_renew_and_release_during_the_grace_but_do_not_re_enter() {
    let mut server =
        Server::with_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut con = server.connect();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    run(&mut con, "CONFIG SET lock.grace-period 60000");
    run(&mut con, "CONFIG REWRITE");
    server.kill();
    server.restart();
    let mut con = server.connect();
    grace_left(&mut con, "LOCK.ACQUIRE lock me 500");
    grace_left(&mut con, "LOCK.ACQUIRE lock you 500");
    assert_eq!(renew(&mut con, "lock", "me", 50_000), 1);
    assert_lease(info(&mut con, "lock").ttl, 50_000);
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    grace_left(&mut con, "LOCK.ACQUIRE lock me 500");
    assert_free(&mut con, "lock");
}

#[test]
fn a_node_that_forgot_its_grants_gives_no_lock_away_within_the_old_lease() {
    let mut server = with_grace("1000").start();
    let mut con = server.connect();
    let old = first_grant(&mut con, "LOCK.ACQUIRE lock me 1000");
    let old_end: i64 = call(&mut con, "PEXPIRETIME lock");
    server.kill();
    server.restart();
    let mut con = server.connect();
    assert_eq!(call::<i64>(&mut con, "EXISTS lock"), 0, "nothing is persisted");
    grace_left(&mut con, "LOCK.ACQUIRE lock you 1000");
    let new = first_grant(&mut con, "LOCK.ACQUIRE lock you 1000");
    assert!(now_ms() >= old_end, "a second holder {} ms before the old lease ended", old_end - now_ms());
    assert!(new.token > old.token);
}

#[test]
fn a_replica_that_is_promoted_without_the_lock_waits_out_the_grace() {
    let master = with_grace("1500").start();
    let mut con = master.connect();
    let replica = start_replica(&master, with_grace("1500"));
    let old = first_grant(&mut con, "LOCK.ACQUIRE before me 1500");
    await_replicas(&mut con, 1);
    let mut there = replica.connect();
    assert_eq!(info_field(&mut there, "lock", "lock_grace_left_msec"), 0, "a replica has no grace");
    run(&mut there, "REPLICAOF 127.0.0.1 1");
    let missed = acquire(&mut con, "missed", "me", 1_500);
    let missed_end: i64 = call(&mut con, "PEXPIRETIME missed");
    run(&mut there, "REPLICAOF NO ONE");
    assert_eq!(call::<i64>(&mut there, "EXISTS missed"), 0);
    let left = grace_left(&mut there, "LOCK.ACQUIRE missed you 1500");
    assert!(left <= 1_500, "{left}");
    let new = first_grant(&mut there, "LOCK.ACQUIRE missed you 1500");
    assert!(now_ms() >= missed_end, "a second holder {} ms early", missed_end - now_ms());
    assert!(new.token > old.token.max(missed.token));
}

#[test]
fn a_request_that_waits_during_the_grace_is_told_so_when_its_time_is_up() {
    let server = with_grace(LONG).start();
    let mut con = server.connect();
    grace_left(&mut con, "LOCK.ACQUIRE lock me 500 BLOCK 50");
    assert_eq!(info_field(&mut con, "lock", "lock_wait_timed_out"), 1);
    run(&mut con, "MULTI");
    run(&mut con, "LOCK.ACQUIRE lock me 500 BLOCK 0");
    let replies: redis::RedisResult<redis::Value> = command("EXEC").query(&mut con);
    let text = format!("{replies:?}");
    assert!(text.contains("GRACE"), "{text}");
}

#[test]
fn the_line_is_served_in_order_when_the_grace_ends() {
    let server = with_grace("800").start();
    let mut con = server.connect();
    let waiters: Vec<_> = ["bob", "carol"]
        .into_iter()
        .map(|owner| {
            let mut own = server.connect();
            let waiter = std::thread::spawn(move || {
                let line = format!("LOCK.ACQUIRE lock {owner} 700 BLOCK 0");
                Acquired::from_reply(call(&mut own, &line))
            });
            while !in_line(&mut con).contains(&owner.to_owned()) {
                std::thread::yield_now();
            }
            waiter
        })
        .collect();
    assert_eq!(in_line(&mut con), ["bob", "carol"]);
    let tokens: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap().token).collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

fn in_line(con: &mut Connection) -> Vec<String> {
    let mut fields: std::collections::BTreeMap<String, redis::Value> = call(con, "LOCK.INFO lock WAITERS 9");
    let line: Vec<(String, i64)> = redis::from_redis_value(fields.remove("line").unwrap()).unwrap();
    line.into_iter().map(|(owner, _)| owner).collect()
}

#[test]
fn a_lease_longer_than_the_grace_is_refused() {
    let server = with_grace(LONG).start();
    let mut con = server.connect();
    for line in
        ["LOCK.ACQUIRE lock me 60001", "LOCK.ACQUIRE lock me 60001 BLOCK 0", "LOCK.RENEW lock me 60001"]
    {
        assert!(refusal(&mut con, line).starts_with("ERR ttl must be an integer from 1 to 60000"), "{line}");
    }
    assert_eq!(renew(&mut con, "lock", "me", 60_000), 0);
}

#[test]
fn a_grace_period_set_at_run_time_binds_leases_at_once_and_grants_go_on() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "CONFIG SET lock.grace-period 1000");
    assert_eq!(acquire(&mut con, "other", "me", 1_000).holds, 1);
    assert!(refusal(&mut con, "LOCK.RENEW lock me 1001").contains("from 1 to 1000"));
}

#[test]
fn a_lowered_grace_period_is_in_force_when_the_leases_granted_have_ended() {
    let (_server, mut con) = start();
    run(&mut con, "CONFIG SET lock.grace-period 400");
    acquire(&mut con, "lock", "me", 400);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    run(&mut con, "CONFIG SET lock.grace-period 100");
    assert!(refusal(&mut con, "LOCK.RENEW lock me 101").contains("from 1 to 100"));
    let in_force = |con: &mut Connection| {
        let (_, value): (String, i64) = call(con, "CONFIG GET lock.grace-period");
        value
    };
    let told = in_force(&mut con);
    if now_ms() < end {
        assert_eq!(told, 400);
    }
    sleep_until(end + 10);
    assert_eq!(in_force(&mut con), 100);
}

#[test]
fn lock_info_tells_the_grace_period() {
    let server = with_grace(LONG).start();
    let mut con = server.connect();
    let fields: std::collections::BTreeMap<String, redis::Value> = call(&mut con, "LOCK.INFO lock");
    assert_eq!(fields["grace"], redis::Value::Int(60_000));
    assert_eq!(info_field(&mut con, "lock", "lock_grace_period_msec"), 60_000);
    let left = info_field(&mut con, "lock", "lock_grace_left_msec");
    assert_lease(left, 60_000);
}

#[test]
fn a_grace_period_out_of_range_is_refused() {
    let (_server, mut con) = start();
    for value in ["-1", "316224000001", "x"] {
        refusal(&mut con, &format!("CONFIG SET lock.grace-period {value}"));
    }
    let error = format!("{:#}", with_grace("-1").try_start().expect_err("the load is refused"));
    assert!(error.contains("grace-period"), "{error}");
}

/// It asked for its lease before the bound was lowered; what it gets is what the grace covers.
#[test]
fn a_lease_granted_from_the_line_is_no_longer_than_the_grace() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut own = server.connect();
    let bob = std::thread::spawn(move || {
        Acquired::from_reply(call(&mut own, "LOCK.ACQUIRE lock bob 600000 BLOCK 0"))
    });
    while in_line(&mut con) != ["bob"] {
        std::thread::yield_now();
    }
    run(&mut con, "CONFIG SET lock.grace-period 50000");
    release(&mut con, "lock", "me");
    assert_eq!(bob.join().unwrap().ttl, 50_000);
    assert_lease(pttl(&mut con, "lock"), 50_000);
}
