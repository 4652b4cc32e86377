//! LOCK.RENEW.

use crate::helpers::*;

#[test]
fn a_renewal_makes_the_lease_the_longer_of_the_two() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 1);
    assert_lease(pttl(&mut con, "lock"), 90_000);
    assert_eq!(renew(&mut con, "lock", "me", 1_000), 1);
    assert_lease(pttl(&mut con, "lock"), 90_000);
}

#[test]
fn a_renewal_leaves_count_and_token() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    let before = hash(&mut con, "lock");
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 1);
    assert_eq!(hash(&mut con, "lock"), before);
}

#[test]
fn a_strangers_renewal_answers_0_and_changes_nothing() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    assert_eq!(renew(&mut con, "lock", "you", 90_000), 0);
    assert_eq!(call::<i64>(&mut con, "LOCK.RENEW lock you 90000 TOKEN 17"), 0);
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn renewing_a_lock_that_nobody_holds_creates_nothing() {
    let (_server, mut con) = start();
    let before = Snapshot::take(&mut con);
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 0);
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn a_replayed_renewal_of_a_released_hold_answers_0() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 1);
    release(&mut con, "lock", "me");
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 0);
    assert_eq!(call::<i64>(&mut con, "EXISTS lock"), 0);
}

#[test]
fn a_renewal_never_revives_an_expired_lock() {
    let (_server, mut con) = start();
    run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    acquire(&mut con, "lock", "me", 20);
    let end = now_ms() + 20;
    sleep_until(end + 5);
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 0);
    assert_eq!(call::<i64>(&mut con, "EXISTS lock"), 0);
}

#[test]
fn renewing_a_lock_without_a_ttl_leaves_it_endless() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PERSIST lock");
    assert_eq!(renew(&mut con, "lock", "me", 90_000), 1);
    assert_eq!(pttl(&mut con, "lock"), -1);
}

#[test]
fn a_renewal_may_raise_the_token_and_never_lowers_it() {
    let (_server, mut con) = start();
    let first = acquire(&mut con, "lock", "me", 30_000).token;
    let raised = now_us() + 60_000_000;
    assert_eq!(call::<i64>(&mut con, &format!("LOCK.RENEW lock me 30000 TOKEN {raised}")), 1);
    assert_eq!(info(&mut con, "lock").token, raised);
    assert_eq!(call::<i64>(&mut con, &format!("LOCK.RENEW lock me 30000 TOKEN {first}")), 1);
    assert_eq!(info(&mut con, "lock").token, raised);
    assert!(acquire(&mut con, "other", "me", 30_000).token > raised);
}

#[test]
fn a_renewal_that_changes_nothing_dirties_nothing() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    assert_eq!(renew(&mut con, "lock", "me", 1_000), 1);
    assert_eq!(Snapshot::take(&mut con), before);
}
