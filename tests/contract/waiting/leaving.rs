//! Those who leave the line before it is their turn, in whatever way.

use std::collections::BTreeMap;

use redis::{Connection, Value};
use redis_lock_testkit::Server;

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message};

/// `bob` leaves a line of three, by what `leave` does; the others get the lock in their order.
#[track_caller]
fn assert_goes(leave: impl FnOnce(&mut Connection, Waiter)) -> (Server, Connection) {
    let (server, mut con, [bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
    leave(&mut con, bob);
    await_line(&mut con, &["carol", "dave"]);
    assert_held(&mut con, "lock", "me");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    carol.assert_has_lock(&mut con, "carol");
    assert_eq!(line(&mut con), ["dave"]);
    assert_eq!(release(&mut con, "lock", "carol"), Some(0));
    dave.assert_has_lock(&mut con, "dave");
    carol.assert_in_step();
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 2);
    (server, con)
}

/// Asserts that those who left were counted as this and as nothing else.
#[track_caller]
fn assert_left(con: &mut Connection, field: &str, count: i64) {
    for counter in ["lock_wait_timed_out", "lock_wait_gone", "lock_wait_withdrawn"] {
        let expected = if counter == field { count } else { 0 };
        assert_eq!(info_field(con, "lock", counter), expected, "{counter}");
    }
}

#[test]
fn who_closes_its_connection_is_gone() {
    let (_server, mut con) = assert_goes(|_, bob| drop(bob));
    assert_left(&mut con, "lock_wait_gone", 1);
}

#[test]
fn who_is_killed_is_gone() {
    let (_server, mut con) = assert_goes(|con, mut bob| {
        assert_eq!(call::<i64>(con, &format!("CLIENT KILL ID {}", bob.id)), 1);
        bob.assert_hung_up();
    });
    assert_left(&mut con, "lock_wait_gone", 1);
}

#[test]
fn who_is_unblocked_with_an_error_is_gone() {
    let (_server, mut con) = assert_goes(|con, mut bob| {
        assert_eq!(call::<i64>(con, &format!("CLIENT UNBLOCK {} ERROR", bob.id)), 1);
        assert!(bob.error().starts_with("UNBLOCKED "));
        bob.assert_in_step();
        assert_eq!(call::<i64>(con, &format!("CLIENT UNBLOCK {} ERROR", bob.id)), 0);
    });
    assert_left(&mut con, "lock_wait_gone", 1);
}

#[test]
fn who_is_unblocked_is_denied() {
    for form in ["", " TIMEOUT"] {
        assert_goes(|con, mut bob| {
            let held = info(con, "lock");
            assert_eq!(call::<i64>(con, &format!("CLIENT UNBLOCK {}{form}", bob.id)), 1);
            let denied = bob.denied();
            assert_eq!(denied.token, held.token);
            assert_lease(denied.ttl, held.ttl);
            bob.assert_in_step();
        });
    }
}

#[test]
fn whose_time_is_up_is_denied() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 300");
    let mut carol = Waiter::join_for(&server, "carol");
    bob.denied();
    await_line(&mut con, &["carol"]);
    release(&mut con, "lock", "me");
    carol.assert_has_lock(&mut con, "carol");
    bob.assert_in_step();
    assert_left(&mut con, "lock_wait_timed_out", 1);
}

#[test]
fn who_withdraws_is_denied() {
    let (_server, mut con) = assert_goes(|con, mut bob| {
        let held = info(con, "lock");
        assert_eq!(release_to(con, "lock", "bob", 0), None, "it held nothing");
        let denied = bob.denied();
        assert_eq!(denied.token, held.token);
        assert_lease(denied.ttl, held.ttl);
        bob.assert_in_step();
        assert_eq!(release_to(con, "lock", "bob", 0), None, "it is safe to repeat");
    });
    assert_left(&mut con, "lock_wait_withdrawn", 1);
}

#[test]
fn who_withdraws_leaves_with_all_its_requests_and_from_this_line_only() {
    let (server, mut con, [mut one, mut carol, mut two]) = start_line(["bob", "carol", "bob"]);
    acquire(&mut con, "other", "me", 30_000);
    let _other = Waiter::join(&server, "LOCK.ACQUIRE other bob 60000 BLOCK 0");
    assert_eq!(release_to(&mut con, "lock", "bob", 0), None);
    for waiter in [&mut one, &mut two] {
        waiter.denied();
        waiter.assert_in_step();
    }
    assert_eq!(line(&mut con), ["carol"]);
    assert_eq!(queue(&mut con, "other").len(), 1);
    assert_left(&mut con, "lock_wait_withdrawn", 2);
    release(&mut con, "lock", "me");
    carol.assert_has_lock(&mut con, "carol");
}

#[test]
fn who_drops_one_hold_that_it_does_not_have_stays_in_line() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    assert_eq!(release(&mut con, "lock", "bob"), None);
    assert_eq!(release_to(&mut con, "lock", "bob", 1), None);
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn who_leaves_from_the_middle_or_the_end_changes_no_order() {
    let (_server, mut con, [bob, carol, mut dave, erin]) = start_line(["bob", "carol", "dave", "erin"]);
    drop(erin);
    await_line(&mut con, &["bob", "carol", "dave"]);
    drop(carol);
    await_line(&mut con, &["bob", "dave"]);
    release(&mut con, "lock", "me");
    assert_held(&mut con, "lock", "bob");
    drop(bob);
    release(&mut con, "lock", "bob");
    dave.assert_has_lock(&mut con, "dave");
}

#[test]
fn a_line_that_all_have_left_is_no_line() {
    let (server, mut con, [bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
    drop(bob);
    run(&mut con, &format!("CLIENT UNBLOCK {}", carol.id));
    release_to(&mut con, "lock", "dave", 0);
    carol.denied();
    dave.denied();
    await_line(&mut con, &[]);
    let mut listener = Listener::on(&server);
    release(&mut con, "lock", "me");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert_free(&mut con, "lock");
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
}

#[test]
fn who_gave_up_may_wait_again_at_the_end() {
    let (_server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    run(&mut con, &format!("CLIENT UNBLOCK {}", bob.id));
    bob.denied();
    bob.send(&["LOCK.ACQUIRE lock bob 60000 BLOCK 0"]);
    await_line(&mut con, &["carol", "bob"]);
    release(&mut con, "lock", "me");
    carol.assert_has_lock(&mut con, "carol");
    release(&mut con, "lock", "carol");
    bob.assert_has_lock(&mut con, "bob");
}

/// The client sent QUIT behind its request: it goes when it has its answer, and had the lock until then.
#[test]
fn who_quits_after_its_grant_holds_the_lock() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
    bob.send(&["QUIT"]);
    let mut carol = Waiter::join_for(&server, "carol");
    release(&mut con, "lock", "me");
    let granted = bob.granted();
    assert_eq!(bob.reply(), Ok(Value::Okay));
    bob.assert_hung_up();
    assert_held(&mut con, "lock", "bob");
    assert_eq!(info(&mut con, "lock").token, granted.token);
    assert_eq!(line(&mut con), ["carol"]);
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
}

#[test]
fn requests_behind_the_one_that_waits_are_answered_after_it() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
    bob.send(&["ECHO before", "LOCK.RELEASE lock bob", "LOCK.ACQUIRE lock bob 60000 BLOCK 0"]);
    release(&mut con, "lock", "me");
    assert_eq!(bob.granted().holds, 1);
    assert_eq!(bob.reply(), Ok(Value::BulkString("before".into())));
    assert_eq!(bob.reply(), Ok(Value::Int(0)));
    bob.assert_has_lock(&mut con, "bob");
}

/// Nobody is left who remembers those who were here.
#[test]
fn lines_used_once_leave_nothing_behind() {
    let (server, mut con) = start();
    let mut bob = Waiter::connect(&server);
    let mut use_once = |con: &mut Connection, names: std::ops::Range<u32>| {
        for name in names {
            acquire(con, name, "me", 30_000);
            bob.send(&[&format!("LOCK.ACQUIRE {name} bob 30000 BLOCK 0")]);
            await_waiting(con, 1);
            release(con, name, "me");
            assert_eq!(bob.granted().holds, 1);
            release(con, name, "bob");
        }
        info_field(con, "memory", "used_memory")
    };
    let before = use_once(&mut con, 0..500);
    let after = use_once(&mut con, 500..2_000);
    assert!(after - before < 100_000, "{} bytes are left", after - before);
    let counts: BTreeMap<_, _> =
        ["lock_waiting", "lock_held"].map(|f| (f, info_field(&mut con, "lock", f))).into();
    assert!(counts.values().all(|count| *count == 0), "{counts:?}");
}
