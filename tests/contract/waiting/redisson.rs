//! A line behind, and before, owners that come by Redisson's scripts.

use redis::{Connection, cmd};

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message, channel};

const THEIRS: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";

/// What Redisson's lock does where the lock is free or its own. Whether it got it.
#[track_caller]
fn their_lock(con: &mut Connection, lease: i64) -> bool {
    let script = "\
        if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return 1
        end
        return 0";
    cmd("EVAL").arg(script).arg(1).arg("lock").arg(lease).arg(THEIRS).query(con).unwrap()
}

/// What Redisson's unlock does. Whether it held the lock.
#[track_caller]
fn their_unlock(con: &mut Connection) -> bool {
    let script = "\
        if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
        if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 1 end
        redis.call('del', KEYS[1])
        redis.call('publish', KEYS[2], '0')
        return 1";
    cmd("EVAL").arg(script).arg(2).arg("lock").arg(channel("lock")).arg(THEIRS).query(con).unwrap()
}

/// `bob` and `carol` wait behind a lock of Redisson's.
fn start_behind_theirs(lease: i64) -> (redis_lock_testkit::Server, Connection, [Waiter; 2]) {
    let (server, mut con) = start();
    assert!(their_lock(&mut con, 30_000));
    let waiters = ["bob", "carol"].map(|owner| Waiter::join_for(&server, owner));
    run(&mut con, &format!("PEXPIRE lock {lease}"));
    (server, con, waiters)
}

#[test]
fn their_unlock_hands_over() {
    let (server, mut con, [mut bob, mut carol]) = start_behind_theirs(30_000);
    let mut listener = Listener::on(&server);
    assert!(their_unlock(&mut con));
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
    assert!(!their_lock(&mut con, 30_000), "the line came first");
    assert_eq!(listener.heard(), [Message::unlock("lock")], "their own, and none of ours");
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
}

#[test]
fn their_partial_unlock_hands_nothing_over() {
    let (_server, mut con, [mut bob, _carol]) = start_behind_theirs(30_000);
    assert!(their_lock(&mut con, 30_000));
    assert!(their_unlock(&mut con));
    assert!(info(&mut con, "lock").is_held_by(THEIRS));
    assert_eq!(line(&mut con), ["bob", "carol"]);
    assert!(their_unlock(&mut con));
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn the_end_of_their_lease_hands_over_on_time() {
    let (_server, mut con, [mut bob, _carol]) = start_behind_theirs(300);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    bob.assert_has_lock(&mut con, "bob");
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
    assert_eq!(line(&mut con), ["carol"]);
}

#[test]
fn a_lease_that_they_renewed_is_waited_for_to_its_new_end() {
    let (_server, mut con, [mut bob, _carol]) = start_behind_theirs(200);
    run(&mut con, "PEXPIRE lock 600");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    bob.granted();
    assert!(now_ms() >= end, "{} ms early", end - now_ms());
}

#[test]
fn a_deletion_of_their_lock_hands_over() {
    for line in ["DEL lock", "FLUSHALL", "RENAME lock away", "LOCK.FORCERELEASE lock"] {
        let (_server, mut con, [mut bob, _carol]) = start_behind_theirs(30_000);
        run(&mut con, line);
        bob.assert_has_lock(&mut con, "bob");
    }
}

#[test]
fn their_lock_that_is_released_through_us_is_handed_over() {
    let (_server, mut con, [mut bob, _carol]) = start_behind_theirs(30_000);
    assert_eq!(release(&mut con, "lock", THEIRS), Some(0));
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn who_is_denied_behind_their_lock_gets_no_token() {
    let (server, mut con) = start();
    their_lock(&mut con, 30_000);
    let denied = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 100").denied();
    assert_eq!(denied.token, 0);
    assert_lease(denied.ttl, 30_000);
}

#[test]
fn an_owner_of_theirs_waits_for_us_and_holds_through_both() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut theirs = Waiter::join_for(&server, THEIRS);
    assert!(!their_lock(&mut con, 30_000));
    release(&mut con, "lock", "me");
    theirs.assert_has_lock(&mut con, THEIRS);
    assert!(their_lock(&mut con, 30_000));
    assert_eq!(info(&mut con, "lock").holds, 2);
}

/// A script may take the lock in the very turn in which it frees it. The line then goes on waiting.
#[test]
fn a_script_that_frees_and_takes_at_once_leaves_the_line_waiting() {
    let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let script = "\
        redis.call('del', KEYS[1])
        redis.call('hset', KEYS[1], ARGV[1], 1)
        return redis.call('pexpire', KEYS[1], 300)";
    let taken: i64 = cmd("EVAL").arg(script).arg(1).arg("lock").arg(THEIRS).query(&mut con).unwrap();
    assert_eq!(taken, 1);
    let held = info(&mut con, "lock");
    assert!(held.is_held_by(THEIRS), "{held:?}");
    assert_eq!(line(&mut con), ["bob", "carol"]);
    bob.assert_has_lock(&mut con, "bob");
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
}

#[test]
fn their_read_write_lock_is_waited_for() {
    let (server, mut con) = start();
    run(&mut con, &format!("HSET lock mode read {THEIRS} 1"));
    run(&mut con, "PEXPIRE lock 30000");
    let mut bob = Waiter::join_for(&server, "bob");
    run(&mut con, "DEL lock");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn the_end_of_their_read_write_locks_lease_hands_over() {
    let (server, mut con) = start();
    run(&mut con, &format!("HSET lock mode write {THEIRS}:write 1"));
    run(&mut con, "PEXPIRE lock 500");
    let mut bob = Waiter::join_for(&server, "bob");
    bob.assert_has_lock(&mut con, "bob");
}
