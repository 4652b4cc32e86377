//! A lock that becomes free is handed to the first in line: by our own commands, and at the lease's end.

use redis::{Connection, Value, cmd};
use redis_lock_testkit::{Server, eventually};

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message};

/// Asserts that what `free` does hands `lock` to the first in line, and to nobody else, and that no unlock is
/// published before the line is empty.
#[track_caller]
fn assert_hands_over(ttl: i64, free: impl FnOnce(&mut Connection)) {
    let (server, mut con, [mut bob, mut carol]) = start_line_behind(ttl, ["bob", "carol"]);
    let mut listener = Listener::on(&server);
    free(&mut con);
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
    assert_held(&mut con, "lock", "bob");
    assert_eq!(release(&mut con, "lock", "bob"), Some(0));
    carol.assert_has_lock(&mut con, "carol");
    assert_eq!(line(&mut con), Vec::<String>::new());
    assert_eq!(listener.heard(), []);
    assert_eq!(release(&mut con, "lock", "carol"), Some(0));
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert_free(&mut con, "lock");
    bob.assert_in_step();
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 2);
}

#[test]
fn a_release_hands_over() {
    assert_hands_over(30_000, |con| assert_eq!(release(con, "lock", "me"), Some(0)));
}

#[test]
fn a_release_of_all_holds_hands_over() {
    assert_hands_over(30_000, |con| {
        acquire_with(con, "lock", "me", 1_000, "HOLDS 3");
        assert_eq!(release_to(con, "lock", "me", 0), Some(0));
    });
}

#[test]
fn a_forced_release_hands_over() {
    assert_hands_over(30_000, |con| assert_eq!(force_release(con, "lock"), 1));
}

#[test]
fn the_end_of_a_lease_hands_over() {
    assert_hands_over(200, |_| {});
}

#[test]
fn a_lease_that_others_have_cut_hands_over_at_its_end() {
    assert_hands_over(30_000, |con| run(con, "PEXPIRE lock 50"));
}

/// The server's own reaper has no part in it.
#[test]
fn the_end_of_a_lease_hands_over_without_active_expiry() {
    assert_hands_over(300, |con| run(con, "DEBUG SET-ACTIVE-EXPIRE 0"));
}

#[test]
fn a_lock_without_a_lease_hands_over_when_it_has_one_again() {
    let (_server, mut con, [mut bob]) = start_line_behind(200, ["bob"]);
    run(&mut con, "PERSIST lock");
    sleep_until(now_ms() + 300);
    assert_eq!(line(&mut con), ["bob"]);
    run(&mut con, "PEXPIRE lock 50");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_release_in_a_transaction_hands_over() {
    assert_hands_over(30_000, |con| {
        let mut pipe = redis::pipe();
        let (left, size): (i64, i64) =
            pipe.atomic().add_command(command("LOCK.RELEASE lock me")).cmd("DBSIZE").query(con).unwrap();
        assert_eq!((left, size), (0, 1), "it is handed over inside the command that frees it");
    });
}

#[test]
fn a_release_in_a_script_hands_over() {
    assert_hands_over(30_000, |con| {
        let script = "\
            local left = redis.call('LOCK.RELEASE', KEYS[1], 'me')
            return {left, redis.call('LOCK.INFO', KEYS[1])[4]}";
        let reply: (i64, String) = cmd("EVAL").arg(script).arg(1).arg("lock").query(con).unwrap();
        assert_eq!(reply, (0, "bob".to_owned()), "it is handed over inside the command that frees it");
    });
}

#[test]
fn a_forced_release_in_a_script_hands_over() {
    assert_hands_over(30_000, |con| {
        let script = "return redis.call('LOCK.FORCERELEASE', KEYS[1])";
        assert_eq!(cmd("EVAL").arg(script).arg(1).arg("lock").query(con), Ok(1));
    });
}

#[test]
fn a_partial_release_hands_nothing_over() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 3");
    release(&mut con, "lock", "me");
    release_to(&mut con, "lock", "me", 1);
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_stranger_who_releases_hands_nothing_over() {
    let (_server, mut con, [_bob]) = start_line(["bob"]);
    assert_eq!(release(&mut con, "lock", "you"), None);
    assert_eq!(release_to(&mut con, "lock", "you", 0), None);
    assert_eq!(renew(&mut con, "lock", "bob", 60_000), 0);
    assert_eq!(release(&mut con, "lock", "bob"), None, "who waits holds nothing");
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["bob"]);
}

#[test]
fn a_renewed_lease_is_waited_for_to_its_new_end() {
    let (_server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    assert_eq!(renew(&mut con, "lock", "me", 800), 1);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    bob.granted();
    assert!(now_ms() >= end, "{} ms early", end - now_ms());
}

#[test]
fn the_end_of_a_lease_hands_over_on_time() {
    let (_server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    bob.assert_has_lock(&mut con, "bob");
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
    let lease_end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert!(lease_end >= end + WAITERS_TTL);
}

/// Nobody releases anything: each lease ends, and the next begins.
#[test]
fn a_line_of_owners_that_never_release_is_served_to_its_end() {
    const OWNERS: usize = 10;
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 500);
    let mut waiters: Vec<_> = (0..OWNERS)
        .map(|number| Waiter::join(&server, &format!("LOCK.ACQUIRE lock owner-{number} 20 BLOCK 0")))
        .collect();
    let tokens: Vec<_> = waiters.iter_mut().map(|waiter| waiter.granted().token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    eventually(PATIENCE, || (info(&mut con, "lock") == Info::free()).then_some(()));
    assert_eq!(info_field(&mut con, "lock", "lock_expired"), 1 + OWNERS as i64);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
}

#[test]
fn who_was_granted_from_the_line_renews_and_re_enters_as_anybody() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    release(&mut con, "lock", "me");
    let granted = bob.granted();
    assert_eq!(renew(&mut con, "lock", "bob", 90_000), 1);
    let again = acquire(&mut con, "lock", "bob", 1_000);
    assert_eq!((again.holds, again.token), (2, granted.token));
    assert_lease(again.ttl, 90_000);
    assert_eq!(release_to(&mut con, "lock", "bob", 0), Some(0));
    assert_free(&mut con, "lock");
}

#[test]
fn many_lines_at_once_are_each_served_once() {
    const LOCKS: usize = 100;
    let (server, mut con) = start();
    for number in 0..LOCKS {
        acquire(&mut con, format!("lock-{number}"), "me", 60_000);
    }
    let mut waiters: Vec<_> = (0..2 * LOCKS).map(|_| Waiter::connect(&server)).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[&format!("LOCK.ACQUIRE lock-{} owner-{number} 60000 BLOCK 0", number % LOCKS)]);
    }
    await_waiting(&mut con, 2 * LOCKS as i64);
    let mut releases = redis::pipe();
    for number in 0..LOCKS {
        releases.cmd("LOCK.FORCERELEASE").arg(format!("lock-{number}"));
    }
    let released: Vec<i64> = releases.query(&mut con).unwrap();
    assert_eq!(released, [1; LOCKS]);
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), LOCKS as i64);
    let released: Vec<i64> = releases.query(&mut con).unwrap();
    assert_eq!(released, [1; LOCKS]);
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    for waiter in &mut waiters {
        assert_eq!(waiter.granted().holds, 1);
        waiter.assert_in_step();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 2 * LOCKS as i64);
}

#[test]
fn owners_and_names_in_line_are_any_bytes() {
    let (server, mut con) = start();
    let (key, owner) = (b"a\0b\xff\r\n%s".as_slice(), b"\0\xfe%n\xf0\x9f\x94\x92".as_slice());
    acquire(&mut con, key, "me", 30_000);
    let mut waiting = server.connect();
    let ask = cmd("LOCK.ACQUIRE").arg(key).arg(owner).arg(60_000).arg("BLOCK").arg(0).get_packed_command();
    waiting.send_packed_command(&ask).unwrap();
    await_waiting(&mut con, 1);
    let shown: Value = cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(9).query(&mut con).unwrap();
    let Value::Array(shown) = shown else { panic!("{shown:?}") };
    let Some(Value::Array(line)) = shown.last() else { panic!("{shown:?}") };
    let Value::Array(first) = &line[0] else { panic!("{line:?}") };
    assert_eq!(first[0], Value::BulkString(owner.into()));
    release(&mut con, key, "me");
    assert_eq!(Acquired::from_reply(waiting.recv_response().unwrap()).holds, 1);
    assert_eq!(info(&mut con, key).owner.as_deref(), Some(owner));
}

#[test]
fn a_reload_of_the_dataset_keeps_holder_and_line() {
    for (builder, reload) in [
        (Server::with_module(), "DEBUG RELOAD"),
        (Server::with_module().config("appendonly", "yes"), "DEBUG LOADAOF"),
    ] {
        let server = builder.start();
        let mut con = server.connect();
        let [mut bob, mut carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
        run(&mut con, reload);
        assert_held(&mut con, "lock", "me");
        assert_eq!(line(&mut con), ["bob", "carol"], "{reload}");
        release(&mut con, "lock", "me");
        bob.assert_has_lock(&mut con, "bob");
        run(&mut con, reload);
        assert_held(&mut con, "lock", "bob");
        run(&mut con, "PEXPIRE lock 50");
        carol.assert_has_lock(&mut con, "carol");
    }
}

/// The dataset was saved before the lock was taken.
#[test]
fn a_reload_that_loses_the_lock_hands_it_over() {
    let (server, mut con) = start();
    run(&mut con, "SAVE");
    let [mut bob, _carol] = form_line(&server, &mut con, 30_000, ["bob", "carol"]);
    run(&mut con, "DEBUG RELOAD NOSAVE");
    bob.assert_has_lock(&mut con, "bob");
    assert_eq!(line(&mut con), ["carol"]);
}
