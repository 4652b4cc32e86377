//! Keys that other commands edit: the lock is what its key says.

use std::time::Duration;

use redis_lock_testkit::{Flavor, eventually};

use crate::helpers::*;
use crate::listener::{Listener, Message};

#[test]
fn hdel_of_the_owner_frees_and_is_published_at_the_end_of_the_lease() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 200);
    run(&mut con, "HDEL lock me");
    assert_free(&mut con, "lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 0);
}

#[test]
fn pexpire_moves_the_lease_nearer() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "PEXPIRE lock 100");
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert!(info(&mut con, "lock").ttl <= 100);
    assert_eq!(listener.next(), Message::unlock("lock"));
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
    assert_eq!(listener.heard(), []);
}

#[test]
fn pexpire_moves_the_lease_further() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 100);
    run(&mut con, "PEXPIRE lock 30000");
    sleep_until(now_ms() + 200);
    assert_eq!(listener.heard(), []);
    assert_held(&mut con, "lock", "me");
    assert_lease(info(&mut con, "lock").ttl, 30_000);
}

#[test]
fn persist_takes_the_lease_away() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 100);
    run(&mut con, "PERSIST lock");
    sleep_until(now_ms() + 200);
    assert_eq!(listener.heard(), []);
    assert_held(&mut con, "lock", "me");
    assert_eq!(info(&mut con, "lock").ttl, -1);
    run(&mut con, "PEXPIRE lock 50");
    assert_eq!(listener.next(), Message::unlock("lock"));
}

#[test]
fn a_hold_count_edited_by_hand_is_the_hold_count() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "HSET lock me 5");
    assert_eq!(info(&mut con, "lock").holds, 5);
    assert_eq!(release(&mut con, "lock", "me"), Some(4));
}

#[test]
fn an_owner_whose_field_expires_holds_nothing() {
    let (server, mut con) = start();
    let version = server.version();
    let fields_expire = match version.flavor {
        Flavor::Redis => version.at_least(Flavor::Redis, 7, 4),
        Flavor::Valkey => version.at_least(Flavor::Valkey, 9, 0),
    };
    if !fields_expire {
        return;
    }
    acquire(&mut con, "lock", "me", 60_000);
    run(&mut con, "HPEXPIRE lock 50 FIELDS 1 me");
    assert_held(&mut con, "lock", "me");
    eventually(Duration::from_secs(10), || {
        (acquire(&mut con, "lock", "you", 30_000).holds == 1).then_some(())
    });
    assert_held(&mut con, "lock", "you");
    run(&mut con, &format!("HPEXPIRE lock 50 FIELDS 2 you {TOKEN_FIELD}"));
    eventually(Duration::from_secs(10), || (info(&mut con, "lock") == Info::free()).then_some(()));
    assert_eq!(acquire(&mut con, "lock", "me", 30_000).holds, 1);
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    server.assert_alive();
}
