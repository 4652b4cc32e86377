//! At maxmemory one may no longer take locks, but give them back.

use redis::Connection;
use redis_lock_testkit::Server;

use crate::helpers::*;
use crate::listener::{Listener, Message};

/// A server that holds `lock` for `me`, twice, and is over its limit.
fn start_full() -> (Server, Connection) {
    let (server, mut con) = start();
    run(&mut con, "CONFIG SET maxmemory-policy noeviction");
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    run(&mut con, "CONFIG SET maxmemory 1");
    (server, con)
}

#[test]
fn at_maxmemory_an_acquire_is_refused() {
    let (_server, mut con) = start_full();
    for line in ["LOCK.ACQUIRE other me 30000", "LOCK.ACQUIRE lock me 30000"] {
        assert!(refusal(&mut con, line).starts_with("OOM "), "{line}");
    }
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 1);
}

#[test]
fn at_maxmemory_all_else_works() {
    let (_server, mut con) = start_full();
    assert!(info(&mut con, "lock").is_held_by("me"));
    assert_eq!(renew(&mut con, "lock", "me", 60_000), 1);
    assert_lease(pttl(&mut con, "lock"), 60_000);
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
    assert_eq!(force_release(&mut con, "lock"), 1);
    assert_free(&mut con, "lock");
}

#[test]
fn at_maxmemory_leases_end() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 300);
    run(&mut con, "CONFIG SET maxmemory 1");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_free(&mut con, "lock");
}
