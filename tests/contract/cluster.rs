//! In Cluster: keys belong to slots, and unlocks may be published to the shard alone.

use std::time::Duration;

use redis::Connection;
use redis_lock_testkit::{Builder, Server, eventually};

use crate::helpers::*;
use crate::listener::{Listener, Message, channel};

/// A cluster of one node that serves these slots.
fn start_cluster(builder: Builder, slots: &str) -> (Server, Connection) {
    let server =
        builder.config("cluster-enabled", "yes").config("cluster-require-full-coverage", "no").start();
    let mut con = server.connect();
    run(&mut con, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
    eventually(Duration::from_secs(20), || {
        call::<String>(&mut con, "CLUSTER INFO").contains("cluster_state:ok").then_some(())
    });
    (server, con)
}

#[test]
fn a_lock_lives_in_its_keys_slot() {
    let (_server, mut con) = start_cluster(Server::with_module(), "0 8191");
    // CLUSTER KEYSLOT: {a} is 15495, {b} is 3300.
    assert_eq!(acquire(&mut con, "{b}lock", "me", 30_000).holds, 1);
    assert_eq!(release(&mut con, "{b}lock", "me"), Some(0));
    for line in [
        "LOCK.ACQUIRE {a}lock me 30000",
        "LOCK.RENEW {a}lock me 30000",
        "LOCK.RELEASE {a}lock me",
        "LOCK.INFO {a}lock",
        "LOCK.FORCERELEASE {a}lock",
    ] {
        let refused = refusal(&mut con, line);
        assert!(refused.starts_with("CLUSTERDOWN "), "{line}: {refused}");
    }
}

#[test]
fn without_the_setting_unlocks_are_published_to_everybody() {
    let (server, mut con) = start_cluster(Server::with_module(), "0 16383");
    let mut everybody = Listener::on(&server);
    let mut shard = Listener::on_shard(&server, &channel("lock"));
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    assert_eq!(everybody.heard(), [Message::unlock("lock")]);
    assert_eq!(shard.heard(), []);
}

#[test]
fn with_the_setting_unlocks_are_published_to_the_shard() {
    let (server, mut con) =
        start_cluster(Server::with_module().module_arg("sharded-publish", "yes"), "0 16383");
    let mut everybody = Listener::on(&server);
    let mut shard = Listener::on_shard(&server, &channel("lock"));
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    acquire(&mut con, "lock", "me", 20);
    assert_eq!(shard.next(), Message::unlock("lock"));
    assert_eq!(shard.next(), Message::unlock("lock"));
    assert_eq!(shard.heard(), []);
    assert_eq!(everybody.heard(), []);
}

#[test]
fn the_setting_has_no_effect_without_a_cluster() {
    let server = Server::with_module().module_arg("sharded-publish", "yes").start();
    let mut con = server.connect();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}
