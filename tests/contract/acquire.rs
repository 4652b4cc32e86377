//! LOCK.ACQUIRE.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use redis_lock_testkit::Server;

use crate::helpers::*;

#[test]
fn a_free_lock_is_granted_with_the_whole_lease_and_a_token() {
    let (_server, mut con) = start();
    let granted = acquire(&mut con, "lock", "me", 30_000);
    assert_eq!((granted.holds, granted.ttl), (1, 30_000));
    assert!(granted.token > 0);
}

#[test]
fn the_lock_is_a_hash_with_the_hold_count_and_the_token_and_a_ttl() {
    let (_server, mut con) = start();
    let granted = acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(call::<String>(&mut con, "TYPE lock"), "hash");
    let token = granted.token.to_string();
    let fields = BTreeMap::from([("me", "1"), (TOKEN_FIELD, &token)].map(|(f, v)| (f.into(), v.into())));
    assert_eq!(hash(&mut con, "lock"), fields);
    assert_lease(pttl(&mut con, "lock"), 30_000);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 1);
}

#[test]
fn a_second_owner_is_denied_and_told_the_lease_and_the_token() {
    let (_server, mut con) = start();
    let granted = acquire(&mut con, "lock", "me", 30_000);
    let denied = acquire(&mut con, "lock", "you", 60_000);
    assert_eq!((denied.holds, denied.token), (0, granted.token));
    assert_lease(denied.ttl, 30_000);
}

#[test]
fn a_denied_caller_is_told_of_a_key_without_a_ttl() {
    let (_server, mut con) = start();
    let granted = acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PERSIST lock");
    let denied = acquire(&mut con, "lock", "you", 60_000);
    assert_eq!(denied, Acquired { holds: 0, ttl: -1, token: granted.token });
}

#[test]
fn a_denied_acquire_changes_nothing() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    for options in ["", "HOLDS 3", "TOKEN 17", "HOLDS 3 TOKEN 17"] {
        assert_eq!(acquire_with(&mut con, "lock", "you", 60_000, options).holds, 0);
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn the_same_client_is_no_owner_by_itself() {
    let (_server, mut con) = start();
    assert_eq!(acquire(&mut con, "lock", "one", 30_000).holds, 1);
    assert_eq!(acquire(&mut con, "lock", "two", 30_000).holds, 0);
}

#[test]
fn locks_of_one_name_in_two_databases_are_two_locks() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "SELECT 1");
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
    run(&mut con, "SELECT 0");
    assert_held(&mut con, "lock", "me");
}

#[test]
fn re_entry_adds_a_hold_and_keeps_the_token() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000);
    for holds in 2..=5 {
        let again = acquire(&mut con, "lock", "me", 30_000);
        assert_eq!((again.holds, again.token), (holds, first.token));
    }
    assert_eq!(hash(&mut con, "lock")["me"], "5");
}

#[test]
fn re_entry_from_another_connection_is_re_entry() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(acquire(&mut server.connect(), "lock", "me", 30_000).holds, 2);
}

#[test]
fn re_entry_makes_the_lease_the_longer_of_the_two() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let shorter = acquire(&mut con, "lock", "me", 1_000);
    assert_lease(shorter.ttl, 30_000);
    assert_lease(pttl(&mut con, "lock"), 30_000);
    let longer = acquire(&mut con, "lock", "me", 90_000);
    assert_lease(longer.ttl, 90_000);
    assert_lease(pttl(&mut con, "lock"), 90_000);
}

#[test]
fn re_entry_of_a_lock_without_a_ttl_leaves_it_endless() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PERSIST lock");
    let again = acquire(&mut con, "lock", "me", 30_000);
    assert_eq!((again.holds, again.ttl), (2, -1));
    assert_eq!(pttl(&mut con, "lock"), -1);
}

#[test]
fn holds_names_the_count_to_have_afterwards() {
    let (_server, mut con) = start();
    let first = acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 3");
    assert_eq!(first.holds, 3);
    for (options, holds) in [("HOLDS 3", 3), ("HOLDS 5", 5), ("HOLDS 2", 5), ("HOLDS 1", 5)] {
        let again = acquire_with(&mut con, "lock", "me", 30_000, options);
        assert_eq!((again.holds, again.token), (holds, first.token), "{options}");
    }
    assert_eq!(hash(&mut con, "lock")["me"], "5");
}

#[test]
fn a_retry_with_holds_may_lengthen_the_lease() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 1");
    let retry = acquire_with(&mut con, "lock", "me", 60_000, "HOLDS 1");
    assert_eq!(retry.holds, 1);
    assert_lease(retry.ttl, 60_000);
}

#[test]
fn a_retry_with_holds_that_does_not_outlast_the_lease_changes_nothing() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    let before = Snapshot::take(&mut con);
    let retry = acquire_with(&mut con, "lock", "me", 1_000, "HOLDS 2");
    assert_eq!(retry.holds, 2);
    assert_lease(retry.ttl, 30_000);
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn the_hold_count_may_be_as_large_as_53_bits_and_no_larger() {
    let (_server, mut con) = start();
    let options = format!("HOLDS {MAX_NUMBER}");
    assert_eq!(acquire_with(&mut con, "lock", "me", 30_000, &options).holds, MAX_NUMBER);
    let before = Snapshot::take(&mut con);
    refusal(&mut con, "LOCK.ACQUIRE lock me 60000");
    assert_eq!(Snapshot::take(&mut con), before);
    assert_eq!(release_to(&mut con, "lock", "me", 0), Some(0));
}

#[test]
fn options_come_in_any_order_and_case() {
    let (_server, mut con) = start();
    let token = now_us() + 60_000_000;
    for (key, options) in [
        ("one", format!("HOLDS 2 TOKEN {token}")),
        ("two", format!("TOKEN {token} HOLDS 2")),
        ("three", format!("token {token} holds 2")),
    ] {
        let granted = acquire_with(&mut con, key, "me", 30_000, &options);
        assert_eq!(granted.holds, 2, "{options}");
        assert!(granted.token >= token, "{options}");
    }
    let reply = call(&mut con, "lock.acquire four me 30000 hOlDs 2");
    assert_eq!(Acquired::from_reply(reply).holds, 2);
}

#[test]
fn a_lock_whose_lease_has_run_out_is_free_although_not_reaped() {
    let (_server, mut con) = start();
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    run(&mut con, "HSET lock 8743c9c0-0795-4907-87fd-6c719a6b4586:1 1");
    run(&mut con, "PEXPIRE lock 20");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    sleep_until(end + 5);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 1, "nobody has reaped it");
    assert_free(&mut con, "lock");
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).holds, 1);
    assert_eq!(hash(&mut con, "lock").len(), 2);
    assert_lease(pttl(&mut con, "lock"), 30_000);
}

#[test]
fn the_token_field_alone_is_a_free_lock() {
    let (_server, mut con) = start();
    let old = acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "HDEL lock me");
    assert_free(&mut con, "lock");
    assert_eq!(release(&mut con, "lock", "me"), None);
    assert_eq!(renew(&mut con, "lock", "me", 60_000), 0);
    assert_eq!(force_release(&mut con, "lock"), 0);
    let granted = acquire(&mut con, "lock", "you", 10_000);
    assert_eq!((granted.holds, granted.ttl), (1, 10_000));
    assert!(granted.token > old.token);
    assert_lease(pttl(&mut con, "lock"), 10_000);
}

#[test]
fn a_token_field_without_a_ttl_gets_a_lease_with_the_next_hold() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PERSIST lock");
    run(&mut con, "HDEL lock me");
    assert_eq!(acquire(&mut con, "lock", "you", 10_000).holds, 1);
    assert_lease(pttl(&mut con, "lock"), 10_000);
}

#[test]
fn of_many_racing_owners_one_gets_the_lock() {
    const OWNERS: usize = 16;
    let server = Server::with_module().start();
    let line = Barrier::new(OWNERS);
    for round in 0..20 {
        let key = format!("lock-{round}");
        let granted: i64 = thread::scope(|scope| {
            let race = |owner: usize| {
                let (server, line, key) = (&server, &line, &key);
                scope.spawn(move || {
                    let mut con = server.connect();
                    line.wait();
                    acquire(&mut con, key, owner, 30_000).holds
                })
            };
            let racers: Vec<_> = (0..OWNERS).map(race).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(granted, 1);
    }
}
