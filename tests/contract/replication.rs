//! Replicas: they carry the locks, refuse the writing commands, pass unlocks on, and take over.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use redis::Connection;
use redis_lock_testkit::{Builder, Server, eventually};

use crate::helpers::*;
use crate::listener::{Listener, Message};
use crate::replicas::{await_replicas, start_behind, start_replica};

/// A master, its connection, and a replica that is in step.
fn start_pair(replica: Builder) -> (Server, Connection, Server) {
    let (master, con) = start();
    let replica = start_replica(&master, replica);
    (master, con, replica)
}

#[test]
fn a_replica_carries_the_lock_with_the_same_lease() {
    let (_master, mut con, replica) = start_pair(Server::with_module());
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    await_replicas(&mut con, 1);
    let mut there = replica.connect();
    assert_eq!(hash(&mut there, "lock"), hash(&mut con, "lock"));
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(call::<i64>(&mut there, "PEXPIRETIME lock"), end);
    let held = info(&mut there, "lock");
    assert!(held.is_held_by("me"));
    assert_eq!(held.holds, 2);
    release_to(&mut con, "lock", "me", 0);
    await_replicas(&mut con, 1);
    assert_free(&mut there, "lock");
}

#[test]
fn a_replica_without_the_module_carries_the_lock_too() {
    let (_master, mut con, replica) = start_pair(Server::without_module());
    acquire(&mut con, "lock", "me", 30_000);
    await_replicas(&mut con, 1);
    let mut there = replica.connect();
    assert_eq!(hash(&mut there, "lock"), hash(&mut con, "lock"));
    assert_lease(pttl(&mut there, "lock"), 30_000);
    release(&mut con, "lock", "me");
    await_replicas(&mut con, 1);
    assert_eq!(call::<i64>(&mut there, "EXISTS lock"), 0);
}

/// Asserts that a replica answers READONLY to what writes, whoever holds the lock.
fn assert_refuses_writes(replica: Builder) {
    let (_master, mut con, replica) = start_pair(replica);
    acquire(&mut con, "lock", "me", 30_000);
    await_replicas(&mut con, 1);
    let mut there = replica.connect();
    for line in [
        "LOCK.ACQUIRE free me 30000",
        "LOCK.ACQUIRE lock me 30000",
        "LOCK.ACQUIRE lock you 30000",
        "LOCK.RENEW lock me 60000",
        "LOCK.RENEW free me 60000",
        "LOCK.RELEASE lock me",
        "LOCK.RELEASE lock you",
        "LOCK.FORCERELEASE lock",
        "LOCK.FORCERELEASE free",
    ] {
        let refused = refusal(&mut there, line);
        assert!(refused.starts_with("READONLY "), "{line}: {refused}");
    }
    assert_eq!(hash(&mut there, "lock"), hash(&mut con, "lock"));
    assert!(info(&mut there, "lock").is_held_by("me"));
    assert_free(&mut there, "free");
    assert_eq!(call::<i64>(&mut there, "EXISTS free"), 0);
}

#[test]
fn a_replica_refuses_the_writing_commands() {
    assert_refuses_writes(Server::with_module());
}

#[test]
fn a_writable_replica_refuses_the_writing_commands() {
    assert_refuses_writes(Server::with_module().config("replica-read-only", "no"));
}

#[test]
fn subscribers_on_replicas_get_each_unlock_once() {
    let (_master, mut con, replica) = start_pair(Server::with_module());
    let mut listener = Listener::on(&replica);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    assert_eq!(listener.next(), Message::unlock("lock"));
    acquire(&mut con, "lock", "me", 30_000);
    force_release(&mut con, "lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    acquire(&mut con, "lock", "me", 50);
    assert_eq!(listener.next(), Message::unlock("lock"));
    acquire(&mut con, "lock", "me", 30_000);
    run(&mut con, "DEL lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    await_replicas(&mut con, 1);
    assert_eq!(listener.heard(), []);
}

#[test]
fn subscribers_on_replicas_without_the_module_get_each_unlock_once() {
    let (_master, mut con, replica) = start_pair(Server::without_module());
    let mut listener = Listener::on(&replica);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    acquire(&mut con, "other", "me", 20);
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.next(), Message::unlock("other"));
    await_replicas(&mut con, 1);
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_replica_ends_no_lease_on_its_own() {
    let (master, mut con, replica) = start_pair(Server::with_module());
    let mut listener = Listener::on(&replica);
    let mut there = replica.connect();
    acquire(&mut con, "lock", "me", 1_000);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    await_replicas(&mut con, 1);
    master.freeze();
    assert!(now_ms() < end, "too slow to tell");
    sleep_until(end + 100);
    assert_eq!(listener.heard(), []);
    assert_free(&mut there, "lock");
    assert_eq!(call::<i64>(&mut there, "DBSIZE"), 2, "the key is there until the master deletes it");
    master.thaw();
    assert_eq!(listener.next(), Message::unlock("lock"));
    await_replicas(&mut con, 1);
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_promoted_replica_keeps_the_locks() {
    let (mut master, mut con, replica) = start_pair(Server::with_module());
    let token = acquire_with(&mut con, "lock", "me", 60_000, "HOLDS 2").token;
    await_replicas(&mut con, 1);
    master.kill();
    let mut promoted = replica.connect();
    run(&mut promoted, "REPLICAOF NO ONE");
    assert_held(&mut promoted, "lock", "me");
    assert_eq!(info(&mut promoted, "lock").token, token);
    assert_eq!(renew(&mut promoted, "lock", "me", 90_000), 1);
    assert_eq!(acquire(&mut promoted, "lock", "me", 90_000).holds, 3);
    let mut listener = Listener::on(&replica);
    assert_eq!(release_to(&mut promoted, "lock", "me", 0), Some(0));
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn a_promoted_replica_ends_the_leases_it_took_over() {
    let (mut master, mut con, replica) = start_pair(Server::with_module());
    let mut listener = Listener::on(&replica);
    acquire(&mut con, "lock", "me", 500);
    await_replicas(&mut con, 1);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    master.kill();
    let mut promoted = replica.connect();
    run(&mut promoted, "REPLICAOF NO ONE");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert!(now_ms() >= end);
    assert_eq!(listener.heard(), []);
    assert_free(&mut promoted, "lock");
}

#[test]
fn a_lease_that_ran_out_before_the_promotion_ends_with_it() {
    let (mut master, mut con, replica) = start_pair(Server::with_module());
    let mut listener = Listener::on(&replica);
    acquire(&mut con, "lock", "me", 200);
    let end = now_ms() + 200;
    await_replicas(&mut con, 1);
    master.kill();
    sleep_until(end + 50);
    run(&mut replica.connect(), "REPLICAOF NO ONE");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_demoted_master_drops_its_own_locks_for_its_masters() {
    let (master, mut con) = start();
    let (demoted, mut was_master) = start();
    acquire(&mut con, "theirs", "me", 60_000);
    acquire(&mut was_master, "ours", "me", 500);
    run(&mut was_master, &format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let mut there = demoted.connect();
    eventually(Duration::from_secs(20), || info(&mut there, "theirs").is_held_by("me").then_some(()));
    assert_free(&mut there, "ours");
    assert!(refusal(&mut there, "LOCK.RELEASE theirs me").starts_with("READONLY "));
    assert_eq!(info_field(&mut con, "lock", "lock_held"), 1);
    sleep_until(now_ms() + 600);
    demoted.assert_alive();
}

#[test]
fn a_replica_of_a_replica_gets_each_unlock_once() {
    let (_master, mut con, replica) = start_pair(Server::with_module());
    let last = start_behind(&replica, Server::with_module());
    let mut listener = Listener::on(&last);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    acquire(&mut con, "other", "me", 20);
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.next(), Message::unlock("other"));
    assert_eq!(listener.heard(), []);
}

/// A replica that asks to be synchronized makes the server keep a backlog, long before it forks for it. A
/// snapshot that is taken meanwhile without a fork has a place in that backlog.
#[test]
fn what_follows_a_snapshot_without_a_fork_is_propagated() {
    let server = Server::with_module()
        .config("repl-diskless-sync", "yes")
        .config("repl-diskless-sync-delay", "600")
        .start();
    let mut con = server.connect();
    let field = |con: &mut Connection, name: &str| {
        let info: String = call(con, "INFO replication");
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.expect("a field of INFO replication").to_owned()
    };
    let mut replica = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    replica.write_all(b"REPLCONF capa eof\r\n").unwrap();
    replica.read_exact(&mut [0; b"+OK\r\n".len()]).unwrap();
    replica.write_all(b"PSYNC ? -1\r\n").unwrap();
    eventually(Duration::from_secs(10), || (field(&mut con, "repl_backlog_active") == "1").then_some(()));
    acquire(&mut con, "before", "me", 30_000);
    run(&mut con, "SAVE");
    let (history, place) = (field(&mut con, "master_replid"), field(&mut con, "master_repl_offset"));
    acquire(&mut con, "after", "me", 30_000);

    let mut loaded = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    loaded.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let next = place.parse::<i64>().unwrap() + 1;
    loaded.write_all(format!("PSYNC {history} {next}\r\n").as_bytes()).unwrap();
    let mut stream = String::new();
    while !stream.contains("PEXPIREAT") {
        let mut chunk = [0; 4096];
        let length = loaded.read(&mut chunk).expect("the lock's lease is propagated");
        stream.push_str(&String::from_utf8_lossy(&chunk[..length]));
    }
    assert!(stream.contains("HSET") && stream.contains("after"), "{stream}");
    assert!(!stream.to_uppercase().contains("LOCK.ACQUIRE"), "{stream}");
}

#[test]
fn what_a_master_had_to_tell_is_forgotten_when_it_is_demoted() {
    let (server, mut con) = start();
    let other = Server::with_module().start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut listener = Listener::on(&server);
    // Redis 8 carries a plain FLUSHALL out in the background, and lets the client wait for the next turn.
    redis::pipe()
        .cmd("FLUSHALL")
        .arg("ASYNC")
        .cmd("REPLICAOF")
        .arg(&["127.0.0.1", &other.port().to_string()])
        .exec(&mut con)
        .unwrap();
    run(&mut con, "REPLICAOF NO ONE");
    run(&mut con, "FLUSHALL");
    assert_eq!(listener.heard(), [], "a replica announces nothing");
}
