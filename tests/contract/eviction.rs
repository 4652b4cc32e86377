//! A held lock outlives the eviction of its key: it excludes others until its lease ends, and comes back as a key as
//! soon as there is room.

use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd};
use redis_lock_testkit::Server;
use redis_lock_testkit::eventually;

use crate::helpers::*;
use crate::listener::{Listener, Message};
use crate::waiting::waiter::{PATIENCE, Waiter, at_once};

/// Under all of them but `noeviction`, a lock may be evicted: its key has a TTL.
const POLICIES: [&str; 7] = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

const LOCKS: usize = 20;

fn name(n: usize) -> String {
    format!("lock:{n}")
}

/// A server on which `me` holds some locks.
fn start_with_locks(policy: &str, ttl: i64) -> (Server, Connection) {
    let server = Server::with_module().config("maxmemory-policy", policy).start();
    let mut con = server.connect();
    for n in 0..LOCKS {
        acquire(&mut con, name(n), "me", ttl);
    }
    (server, con)
}

/// Has the server evict all it may, then gives it room again and sends `line` before it does anything else.
fn evict_all_and(con: &mut Connection, line: &str) -> Value {
    run(con, "CONFIG SET maxmemory 1");
    eventually(PATIENCE, || {
        // A write makes the server look for memory.
        let _ = cmd("SET").arg(&["filler", "x"]).exec(con);
        (call::<usize>(con, "DBSIZE") == 0).then_some(())
    });
    let replies = at_once(con, &["CONFIG SET maxmemory 0", line]);
    replies.into_iter().nth(1).expect("a reply to each line")
}

#[test]
fn an_evicted_lock_excludes_others_under_every_policy() {
    for policy in POLICIES {
        let (_server, mut con) = start_with_locks(policy, 60_000);
        let denied = Acquired::from_reply(evict_all_and(&mut con, "LOCK.ACQUIRE lock:0 other 60000"));
        assert_eq!(denied.holds, 0, "{policy}");
        for n in 0..LOCKS {
            assert_eq!(acquire(&mut con, name(n), "other", 60_000).holds, 0, "{policy}");
        }
    }
}

#[test]
fn an_evicted_lock_comes_back_with_its_owner_its_token_and_its_lease() {
    for policy in POLICIES {
        let (_server, mut con) = start_with_locks(policy, 60_000);
        let before = hash(&mut con, name(3));
        evict_all_and(&mut con, "PING");
        eventually(PATIENCE, || (call::<usize>(&mut con, "DBSIZE") == LOCKS).then_some(()));
        assert_eq!(hash(&mut con, name(3)), before, "{policy}");
        assert!((30_000..=60_000).contains(&pttl(&mut con, name(3))), "{policy}");
        assert_eq!(info_field(&mut con, "lock", "lock_keys_lost"), 0, "{policy}");
    }
}

#[test]
fn the_owner_of_an_evicted_lock_renews_and_releases_it() {
    let (_server, mut con) = start_with_locks("allkeys-random", 60_000);
    let renewed: Value = evict_all_and(&mut con, "LOCK.RENEW lock:0 me 90000");
    assert_eq!(renewed, Value::Int(1));
    assert!(pttl(&mut con, "lock:0") > 80_000);
    let released = evict_all_and(&mut con, "LOCK.RELEASE lock:0 me");
    assert_ne!(released, Value::Nil);
    assert_free(&mut con, "lock:0");
    assert_eq!(acquire(&mut con, "lock:0", "other", 60_000).holds, 1);
}

#[test]
fn the_lease_of_an_evicted_lock_ends_in_time_and_serves_the_line() {
    let (server, mut con) = start_with_locks("allkeys-random", 60_000);
    let mut listener = Listener::on(&server);
    let begun = Instant::now();
    acquire(&mut con, "lock", "me", 2_000);
    let mut waiter = Waiter::join(&server, "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
    evict_all_and(&mut con, "PING");
    waiter.assert_has_lock(&mut con, "bob");
    let lasted = begun.elapsed();
    assert!((Duration::from_millis(1_990)..Duration::from_secs(4)).contains(&lasted), "{lasted:?}");
    assert_eq!(listener.heard(), []);
    assert_eq!(release(&mut con, "lock", "bob"), Some(0));
    assert_eq!(listener.next(), Message::unlock("lock"));
}

/// Locks are all that may be evicted, and there is never room for them: what is put back would be evicted again.
#[test]
fn a_server_without_room_does_not_evict_in_circles() {
    let (_server, mut con) = start_with_locks("volatile-random", 60_000);
    cmd("SET").arg("ballast").arg(vec![b'x'; 1 << 20]).exec(&mut con).expect("there is room");
    run(&mut con, "CONFIG SET maxmemory 1");
    eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_keys_lost") == LOCKS as i64).then_some(()));
    let before = info_field(&mut con, "stats", "evicted_keys");
    // Time in which a circle would turn a hundred times.
    std::thread::sleep(Duration::from_secs(1));
    let evicted = info_field(&mut con, "stats", "evicted_keys") - before;
    assert!(evicted <= LOCKS as i64, "{evicted}");
    run(&mut con, "CONFIG SET maxmemory 0");
    eventually(PATIENCE, || (info_field(&mut con, "lock", "lock_keys_lost") == 0).then_some(()));
}
