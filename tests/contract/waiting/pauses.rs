//! While the server must not write, nobody is granted anything; and then the line is served.

use std::fs;

use redis_lock_testkit::{Server, eventually};

use super::waiter::*;
use crate::helpers::*;
use crate::replicas::start_replica;

/// Long enough for a timer to fire that should not have.
const A_WHILE_MS: i64 = 200;

#[test]
fn a_lease_that_ends_during_a_pause_hands_over_after_it() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "PEXPIRE lock 100");
    let paused_until = now_ms() + 500;
    run(&mut con, "CLIENT PAUSE 500 WRITE");
    sleep_until(now_ms() + A_WHILE_MS);
    assert_eq!(line(&mut con), ["bob"], "granted during the pause");
    let granted = bob.granted();
    assert!(now_ms() >= paused_until, "granted {} ms before the pause ended", paused_until - now_ms());
    assert_eq!(granted.ttl, WAITERS_TTL);
    assert!(call::<i64>(&mut con, "PEXPIRETIME lock") >= paused_until + WAITERS_TTL);
    assert_held(&mut con, "lock", "bob");
    server.assert_alive();
}

/// A transaction may pause writes itself and go on: what it frees is handed over when the pause ends.
#[test]
fn what_a_transaction_frees_that_pauses_writes_is_handed_over_after_the_pause() {
    for free in ["LOCK.RELEASE lock me", "LOCK.RELEASE lock me HOLDS 0", "LOCK.FORCERELEASE lock", "DEL lock"]
    {
        let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
        let paused_until = now_ms() + 400;
        at_once(&mut con, &["MULTI", "CLIENT PAUSE 400 WRITE", free, "EXEC"]);
        sleep_until(now_ms() + A_WHILE_MS);
        assert_eq!(line(&mut con), ["bob", "carol"], "{free}: granted during the pause");
        bob.assert_has_lock(&mut con, "bob");
        assert!(now_ms() >= paused_until, "{free}");
        release(&mut con, "lock", "bob");
        carol.assert_has_lock(&mut con, "carol");
        server.assert_alive();
    }
}

#[test]
fn the_line_is_served_as_soon_as_a_pause_is_lifted() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "PEXPIRE lock 50");
    run(&mut con, "CLIENT PAUSE 600000 WRITE");
    sleep_until(now_ms() + A_WHILE_MS);
    assert_eq!(line(&mut con), ["bob"]);
    run(&mut con, "CLIENT UNPAUSE");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn time_is_up_and_clients_leave_during_a_pause_too() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut bob = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 300");
    let mut carol = Waiter::join_for(&server, "carol");
    let mut dave = Waiter::join_for(&server, "dave");
    run(&mut con, "PEXPIRE lock 100");
    run(&mut con, "CLIENT PAUSE 600000 WRITE");
    assert_eq!(bob.denied().token, 0, "nobody holds it");
    run(&mut con, &format!("CLIENT UNBLOCK {} ERROR", carol.id));
    assert!(carol.error().starts_with("UNBLOCKED "));
    await_line(&mut con, &["dave"]);
    run(&mut con, "CLIENT UNPAUSE");
    dave.assert_has_lock(&mut con, "dave");
    [bob, carol].iter_mut().for_each(Waiter::assert_in_step);
}

#[test]
fn nobody_is_granted_what_too_few_replicas_would_know_of() {
    let (_server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    run(&mut con, "CONFIG SET min-replicas-to-write 1");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert!(refusal(&mut con, "LOCK.RELEASE lock me").starts_with("NOREPLICAS "));
    sleep_until(end + A_WHILE_MS);
    assert_eq!(line(&mut con), ["bob"]);
    assert_eq!(info(&mut con, "lock"), Info::free());
    run(&mut con, "CONFIG SET min-replicas-to-write 0");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn the_line_is_served_when_enough_replicas_are_there() {
    let (server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    run(&mut con, "CONFIG SET min-replicas-to-write 1");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    sleep_until(end + A_WHILE_MS);
    assert_eq!(line(&mut con), ["bob"]);
    let replica = Server::with_module().config("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    bob.assert_has_lock(&mut con, "bob");
    let mut there = replica.connect();
    eventually(PATIENCE, || info(&mut there, "lock").is_held_by("bob").then_some(()));
}

#[test]
fn who_waits_while_replicas_are_too_few_may_leave() {
    let (server, mut con, [bob, mut carol]) = start_line_behind(100, ["bob", "carol"]);
    run(&mut con, "CONFIG SET min-replicas-to-write 1");
    drop(bob);
    await_line(&mut con, &["carol"]);
    run(&mut con, "CONFIG SET min-replicas-to-write 0");
    carol.assert_has_lock(&mut con, "carol");
    server.assert_alive();
}

/// A folder where the snapshot should be makes every save fail.
#[test]
fn nobody_is_granted_what_can_not_be_saved() {
    let server = Server::with_module().config("save", "3600 1000000").start();
    let mut con = server.connect();
    let [mut bob] = form_line(&server, &mut con, 2_000, ["bob"]);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    let snapshot = server.dir().join("dump.rdb");
    let status = |con: &mut redis::Connection| -> String {
        let info: String = call(con, "INFO persistence");
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_last_bgsave_status:"));
        line.expect("a status").to_owned()
    };
    fs::create_dir(&snapshot).unwrap();
    run(&mut con, "BGSAVE");
    eventually(PATIENCE, || (status(&mut con) == "err").then_some(()));
    assert!(refusal(&mut con, "LOCK.RELEASE lock me").starts_with("MISCONF "));
    assert!(now_ms() < end, "too slow to tell");
    sleep_until(end + A_WHILE_MS);
    assert_eq!(line(&mut con), ["bob"]);
    assert_free(&mut con, "lock");
    fs::remove_dir(&snapshot).unwrap();
    run(&mut con, "BGSAVE");
    eventually(PATIENCE, || (status(&mut con) == "ok").then_some(()));
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_replica_joins_a_master_with_a_line() {
    let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let replica = start_replica(&server, Server::with_module());
    assert_eq!(line(&mut con), ["bob", "carol"]);
    assert_eq!(line(&mut replica.connect()), Vec::<String>::new(), "a line is its node's own");
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
    release(&mut con, "lock", "bob");
    carol.assert_has_lock(&mut con, "carol");
}
