//! Lines in several databases, and that a handoff leaves every client in its own.

use redis::Connection;
use redis_lock_testkit::Server;

use super::waiter::*;
use crate::helpers::*;
use crate::replicas::{await_replicas, start_replica};

/// The database in which a client is.
#[track_caller]
fn database(con: &mut Connection) -> i64 {
    let info: String = call(con, "CLIENT INFO");
    let db = info.split_whitespace().find_map(|field| field.strip_prefix("db="));
    db.expect("a database").parse().unwrap()
}

/// Waits for `lock` in this database.
#[track_caller]
fn join_in(server: &Server, con: &mut Connection, db: u32, owner: &str) -> Waiter {
    let before = info_field(con, "lock", "lock_waiting");
    let mut waiter = Waiter::connect(server);
    let ask = format!("LOCK.ACQUIRE lock {owner} {WAITERS_TTL} BLOCK 0");
    waiter.send(&[&format!("SELECT {db}"), &ask]);
    waiter.reply().unwrap();
    await_waiting(con, before + 1);
    waiter
}

#[test]
fn a_handoff_moves_nobody_to_another_database() {
    for free in ["LOCK.RELEASE lock me", "DEL lock", "PEXPIRE lock 30"] {
        let (server, mut con) = start();
        run(&mut con, "SELECT 3");
        acquire(&mut con, "lock", "me", 30_000);
        let mut bob = join_in(&server, &mut con, 3, "bob");
        run(&mut con, free);
        bob.assert_has_lock(&mut con, "bob");
        assert_eq!(database(&mut con), 3, "{free}");
        bob.send(&["SET mine 1"]);
        bob.reply().unwrap();
        assert_eq!(call::<i64>(&mut con, "EXISTS mine"), 1, "{free}");
    }
}

#[test]
fn a_flush_of_lines_elsewhere_moves_nobody_to_another_database() {
    for free in ["FLUSHALL", "FLUSHALL ASYNC", "SWAPDB 3 4"] {
        let (server, mut con) = start();
        run(&mut con, "SELECT 3");
        acquire(&mut con, "lock", "me", 30_000);
        let mut bob = join_in(&server, &mut con, 3, "bob");
        run(&mut con, "SELECT 7");
        run(&mut con, free);
        assert_eq!(bob.granted().holds, 1);
        assert_eq!(database(&mut con), 7, "{free}");
        run(&mut con, "SELECT 3");
        assert_held(&mut con, "lock", "bob");
    }
}

#[test]
fn handoffs_are_propagated_in_their_own_database() {
    let (server, mut con) = start();
    let replica = start_replica(&server, Server::without_module());
    let mut there = replica.connect();
    run(&mut there, "SELECT 3");
    let mut elsewhere = server.connect();
    run(&mut con, "SELECT 3");
    acquire(&mut con, "lock", "me", 30_000);
    let mut waiters = ["bob", "carol", "dave", "erin"].map(|owner| join_in(&server, &mut con, 3, owner));
    let steps = ["LOCK.RELEASE lock me", "PEXPIRE lock 50", "DEL lock", "FLUSHALL"];
    for ((waiter, owner), free) in waiters.iter_mut().zip(["bob", "carol", "dave", "erin"]).zip(steps) {
        let freeing = if free == "FLUSHALL" { &mut elsewhere } else { &mut con };
        run(freeing, free);
        waiter.assert_has_lock(&mut con, owner);
        await_replicas(&mut elsewhere, 1);
        assert_eq!(hash(&mut there, "lock"), hash(&mut con, "lock"), "{free}");
        let end: i64 = call(&mut con, "PEXPIRETIME lock");
        assert_eq!(call::<i64>(&mut there, "PEXPIRETIME lock"), end, "{free}");
    }
}

/// The line of the first name is served; that of the second waits for the lock that has come there.
#[test]
fn a_lock_renamed_over_another_with_lines_at_both_names() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    acquire(&mut con, "other", "you", 30_000);
    let mut carol = Waiter::join(&server, "LOCK.ACQUIRE other carol 60000 BLOCK 0");
    run(&mut con, "RENAME lock other");
    bob.assert_has_lock(&mut con, "bob");
    assert_held(&mut con, "other", "me");
    assert_eq!(queue(&mut con, "other").len(), 1);
    release(&mut con, "other", "me");
    assert_eq!(carol.granted().holds, 1);
    assert_held(&mut con, "other", "carol");
    assert_held(&mut con, "lock", "bob");
}

#[test]
fn lines_in_both_of_two_swapped_databases_stay_where_they_are() {
    let (server, mut con, [mut here]) = start_line(["here"]);
    run(&mut con, "SELECT 1");
    acquire(&mut con, "lock", "you", 30_000);
    let mut there = join_in(&server, &mut con, 1, "there");
    run(&mut con, "SWAPDB 0 1");
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["there"]);
    release(&mut con, "lock", "me");
    there.assert_has_lock(&mut con, "there");
    run(&mut con, "SELECT 0");
    assert_held(&mut con, "lock", "you");
    assert_eq!(line(&mut con), ["here"]);
    release(&mut con, "lock", "you");
    here.assert_has_lock(&mut con, "here");
}
