//! Nobody overtakes the line, however a lock became free and whoever asks in the same turn.

use redis::{Value, cmd};

use super::waiter::*;
use crate::helpers::*;

/// Asserts that `reply` denies the lock to somebody because another was granted it.
#[track_caller]
fn assert_denied_by(reply: &Value, granted: Acquired) {
    let denied = Acquired::from_reply(reply.clone());
    assert_eq!((denied.holds, denied.token), (0, granted.token));
    assert_lease(denied.ttl, WAITERS_TTL);
}

/// Asserts that whoever asks in the same write as these lines, which free `lock`, comes after the line.
#[track_caller]
fn assert_not_overtaken(lines: &[&str]) {
    let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let lines = [lines, &["LOCK.ACQUIRE lock you 30000", "LOCK.ACQUIRE lock me 30000 HOLDS 2"]].concat();
    let replies = at_once(&mut con, &lines);
    let granted = bob.granted();
    replies[lines.len() - 2..].iter().for_each(|reply| assert_denied_by(reply, granted));
    assert_held(&mut con, "lock", "bob");
    assert_eq!(line(&mut con), ["carol"], "{lines:?}");
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
    bob.assert_in_step();
}

#[test]
fn nobody_overtakes_after_a_release() {
    assert_not_overtaken(&["LOCK.RELEASE lock me"]);
    assert_not_overtaken(&["LOCK.FORCERELEASE lock"]);
}

#[test]
fn nobody_overtakes_after_a_deletion() {
    assert_not_overtaken(&["DEL lock"]);
    assert_not_overtaken(&["UNLINK lock"]);
}

#[test]
fn nobody_overtakes_after_an_expire_in_the_past() {
    assert_not_overtaken(&["PEXPIRE lock -1"]);
}

#[test]
fn nobody_overtakes_after_a_flush() {
    assert_not_overtaken(&["FLUSHDB ASYNC"]);
    assert_not_overtaken(&["FLUSHALL ASYNC"]);
}

#[test]
fn nobody_overtakes_after_a_rename() {
    assert_not_overtaken(&["RENAME lock away"]);
}

#[test]
fn nobody_overtakes_after_a_move() {
    assert_not_overtaken(&["MOVE lock 1", "SELECT 0"]);
}

#[test]
fn nobody_overtakes_after_a_swap() {
    assert_not_overtaken(&["SWAPDB 0 1"]);
}

#[test]
fn nobody_overtakes_in_the_deleters_transaction() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    let lines = ["MULTI", "DEL lock", "LOCK.ACQUIRE lock you 30000", "EXEC"];
    let replies = at_once(&mut con, &lines);
    let Value::Array(inner) = &replies[3] else { panic!("{replies:?}") };
    assert_denied_by(&inner[1], bob.granted());
    assert_held(&mut con, "lock", "bob");
}

#[test]
fn nobody_overtakes_in_the_deleters_script() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    let script = "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'you', 30000)";
    let reply = cmd("EVAL").arg(script).arg(1).arg("lock").query(&mut con).unwrap();
    assert_denied_by(&reply, bob.granted());
    assert_held(&mut con, "lock", "bob");
}

/// The server's thread sleeps through the end of the lease, so that no timer comes first.
#[test]
fn nobody_overtakes_when_a_lease_has_ended_unnoticed() {
    let (_server, mut con, [mut bob, _carol]) = start_line_behind(100, ["bob", "carol"]);
    let replies = at_once(
        &mut con,
        &["DEBUG SLEEP 0.2", "LOCK.ACQUIRE lock you 30000", "LOCK.ACQUIRE lock me 30000 HOLDS 2"],
    );
    let granted = bob.granted();
    replies[1..].iter().for_each(|reply| assert_denied_by(reply, granted));
    assert_held(&mut con, "lock", "bob");
    assert_eq!(line(&mut con), ["carol"]);
}

#[test]
fn an_owner_whose_lease_has_ended_unnoticed_has_nothing_to_renew_or_release() {
    let (_server, mut con, [mut bob, _carol]) = start_line_behind(100, ["bob", "carol"]);
    let replies = at_once(
        &mut con,
        &[
            "DEBUG SLEEP 0.2",
            "LOCK.RENEW lock me 30000",
            "LOCK.RELEASE lock me",
            "LOCK.RELEASE lock me HOLDS 0",
            "LOCK.RENEW lock me 30000",
        ],
    );
    assert_eq!(replies[1..], [Value::Int(0), Value::Nil, Value::Nil, Value::Int(0)]);
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
}

#[test]
fn an_owner_whose_lock_was_deleted_has_nothing_to_renew_or_release() {
    let (_server, mut con, [mut bob, _carol]) = start_line(["bob", "carol"]);
    let replies = at_once(&mut con, &["DEL lock", "LOCK.RENEW lock me 30000", "LOCK.RELEASE lock me"]);
    assert_eq!(replies, [Value::Int(1), Value::Int(0), Value::Nil]);
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
}

/// The first in line asks on another connection in the very turn in which the lock becomes free.
#[test]
fn who_is_first_and_asks_again_is_granted_twice() {
    for free in ["LOCK.RELEASE lock me", "DEL lock", "DEBUG SLEEP 0.2"] {
        let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
        run(&mut con, "PEXPIRE lock 100");
        let replies = at_once(&mut con, &[free, "LOCK.ACQUIRE lock bob 60000"]);
        let again = Acquired::from_reply(replies[1].clone());
        let granted = bob.granted();
        assert_eq!((granted.holds, again.holds, again.token), (1, 2, granted.token), "{free}");
        assert_eq!(line(&mut con), ["carol"], "{free}");
        assert_eq!(release(&mut con, "lock", "bob"), Some(1));
        assert_eq!(release(&mut con, "lock", "bob"), Some(0));
        carol.assert_has_lock(&mut con, "carol");
    }
}

#[test]
fn who_is_second_and_asks_again_is_denied() {
    for free in ["LOCK.RELEASE lock me", "DEL lock", "DEBUG SLEEP 0.2"] {
        let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
        run(&mut con, "PEXPIRE lock 100");
        let replies = at_once(&mut con, &[free, "LOCK.ACQUIRE lock carol 60000"]);
        assert_denied_by(&replies[1], bob.granted());
        assert_eq!(line(&mut con), ["carol"], "{free}");
        release(&mut con, "lock", "bob");
        carol.assert_has_lock(&mut con, "carol");
    }
}

/// Whoever blocks in the same write as what frees the lock joins at the end.
#[test]
fn who_blocks_comes_last() {
    for free in ["LOCK.RELEASE lock me", "DEL lock", "FLUSHALL ASYNC", "DEBUG SLEEP 0.2"] {
        let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
        run(&mut con, "PEXPIRE lock 100");
        let mut dave = Waiter::connect(&server);
        dave.send(&[free, "LOCK.ACQUIRE lock dave 60000 BLOCK 0"]);
        dave.reply().unwrap();
        bob.assert_has_lock(&mut con, "bob");
        await_line(&mut con, &["carol", "dave"]);
        release(&mut con, "lock", "bob");
        carol.assert_has_lock(&mut con, "carol");
        release(&mut con, "lock", "carol");
        dave.assert_has_lock(&mut con, "dave");
    }
}

#[test]
fn who_released_and_asks_again_comes_last() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    let mut me = Waiter::connect(&server);
    me.send(&["LOCK.RELEASE lock me", "LOCK.ACQUIRE lock me 60000 BLOCK 0"]);
    assert_eq!(me.reply(), Ok(Value::Int(0)));
    bob.assert_has_lock(&mut con, "bob");
    await_line(&mut con, &["me"]);
    release(&mut con, "lock", "bob");
    me.assert_has_lock(&mut con, "me");
}

/// Two owners that always want it take turns: who has released it comes after who waits.
#[test]
fn two_who_always_want_it_take_turns() {
    const ROUNDS: usize = 200;
    let (server, mut con, [bob]) = start_line(["bob"]);
    let carol = Waiter::join_for(&server, "carol");
    release(&mut con, "lock", "me");
    let mut contenders = [(bob, "bob"), (carol, "carol")];
    for round in 0..ROUNDS {
        let (waiter, owner) = &mut contenders[round % 2];
        assert_eq!(waiter.granted().holds, 1);
        waiter.send(&[
            &format!("LOCK.RELEASE lock {owner}"),
            &format!("LOCK.ACQUIRE lock {owner} {WAITERS_TTL} BLOCK 0"),
        ]);
        assert_eq!(waiter.reply(), Ok(Value::Int(0)), "round {round}");
    }
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 1 + ROUNDS as i64);
}
