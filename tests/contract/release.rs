//! LOCK.RELEASE and LOCK.FORCERELEASE.

use crate::helpers::*;

#[test]
fn the_last_release_frees_the_lock_and_leaves_no_key() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
}

#[test]
fn a_release_drops_one_hold_and_leaves_the_lease() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 3");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(release(&mut con, "lock", "me"), Some(2));
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
    assert_eq!(call::<i64>(&mut con, "PEXPIRETIME lock"), end);
    assert_held(&mut con, "lock", "me");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
}

#[test]
fn a_release_of_a_lock_that_is_not_held_is_null_and_changes_nothing() {
    let (_server, mut con) = start();
    let before = Snapshot::take(&mut con);
    assert_eq!(release(&mut con, "lock", "me"), None);
    assert_eq!(release_to(&mut con, "lock", "me", 0), None);
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn a_strangers_release_is_null_and_changes_nothing() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let before = Snapshot::take(&mut con);
    assert_eq!(release(&mut con, "lock", "you"), None);
    assert_eq!(release_to(&mut con, "lock", "you", 0), None);
    assert_eq!(release_to(&mut con, "lock", "you", 7), None);
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn a_late_release_does_not_touch_the_next_holder() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 20);
    sleep_until(now_ms() + 30);
    acquire(&mut con, "lock", "you", 30_000);
    assert_eq!(release_to(&mut con, "lock", "me", 0), None);
    assert_held(&mut con, "lock", "you");
}

#[test]
fn holds_names_the_count_to_drop_to() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 5");
    assert_eq!(release_to(&mut con, "lock", "me", 3), Some(3));
    assert_eq!(release_to(&mut con, "lock", "me", 3), Some(3));
    assert_eq!(hash(&mut con, "lock")["me"], "3");
    assert_eq!(call::<Option<i64>>(&mut con, "lock.release lock me holds 1"), Some(1));
}

#[test]
fn a_release_never_adds_a_hold() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    let before = Snapshot::take(&mut con);
    assert_eq!(release_to(&mut con, "lock", "me", 2), Some(2));
    assert_eq!(release_to(&mut con, "lock", "me", 9), Some(2));
    assert_eq!(release_to(&mut con, "lock", "me", MAX_NUMBER), Some(2));
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn holds_0_drops_all_and_is_safe_to_repeat() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 5");
    assert_eq!(release_to(&mut con, "lock", "me", 0), Some(0));
    assert_eq!(release_to(&mut con, "lock", "me", 0), None);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
}

#[test]
fn a_lock_without_a_ttl_is_released_as_any_other() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    run(&mut con, "PERSIST lock");
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
    assert_eq!(pttl(&mut con, "lock"), -1);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    assert_free(&mut con, "lock");
}

#[test]
fn a_forced_release_frees_whoever_holds_the_lock() {
    let (_server, mut con) = start();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 5");
    assert_eq!(force_release(&mut con, "lock"), 1);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(force_release(&mut con, "lock"), 0);
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
}

#[test]
fn a_forced_release_of_a_free_lock_changes_nothing() {
    let (_server, mut con) = start();
    let before = Snapshot::take(&mut con);
    assert_eq!(force_release(&mut con, "lock"), 0);
    assert_eq!(Snapshot::take(&mut con), before);
}
