//! A node that becomes a replica grants nothing, and its line is dissolved.

use redis_lock_testkit::Server;

use super::waiter::*;
use crate::helpers::*;
use crate::replicas::start_replica;

#[test]
fn on_demotion_who_waits_is_unblocked() {
    let (_server, mut con, mut waiters) = start_line(["bob", "carol", "bob"]);
    let other = Server::with_module().start();
    run(&mut con, &format!("REPLICAOF 127.0.0.1 {}", other.port()));
    for waiter in &mut waiters {
        let error = waiter.error();
        assert!(error.starts_with("UNBLOCKED "), "{error}");
        waiter.assert_hung_up();
    }
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
}

#[test]
fn after_a_promotion_lines_are_empty_and_locks_are_not() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    let other = Server::without_module().start();
    at_once(&mut con, &[&format!("REPLICAOF 127.0.0.1 {}", other.port()), "REPLICAOF NO ONE"]);
    assert!(bob.error().starts_with("UNBLOCKED "));
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), Vec::<String>::new());
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 0);
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
}

/// The lock becomes free in the very turn of the demotion: whoever is told of a grant has it, and the server
/// tells everybody else that the role has changed, even of a hold that it can't take back as a replica.
#[test]
fn a_demotion_in_the_turn_of_a_deletion_tells_of_no_grant_that_there_is_not() {
    let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let other = Server::without_module().start();
    let demote = format!("REPLICAOF 127.0.0.1 {}", other.port());
    at_once(&mut con, &["DEL lock", &demote, "REPLICAOF NO ONE"]);
    match bob.reply() {
        Ok(reply) => {
            assert_eq!(Acquired::from_reply(reply).holds, 1);
            assert_held(&mut con, "lock", "bob");
        }
        Err(error) => assert!(error_line(&error).starts_with("UNBLOCKED "), "{error}"),
    }
    assert!(carol.error().starts_with("UNBLOCKED "));
    assert_eq!(line(&mut con), Vec::<String>::new());
    assert!(!info(&mut con, "lock").is_held_by("carol"));
    force_release(&mut con, "lock");
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
    server.assert_alive();
}

#[test]
fn a_demoted_node_ends_no_lease_for_its_line() {
    let (server, mut con, [mut bob]) = start_line_behind(300, ["bob"]);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    let other = Server::with_module().start();
    run(&mut con, &format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert!(bob.error().starts_with("UNBLOCKED "));
    sleep_until(end + 200);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), 0);
    server.assert_alive();
}

#[test]
fn a_replica_lets_nobody_wait() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for builder in [Server::with_module(), Server::with_module().config("replica-read-only", "no")] {
        let replica = start_replica(&server, builder);
        let mut there = replica.connect();
        for key in ["lock", "free"] {
            let refused = refusal(&mut there, &format!("LOCK.ACQUIRE {key} bob 60000 BLOCK 0"));
            assert!(refused.starts_with("READONLY "), "{refused}");
        }
    }
}

#[test]
fn a_promoted_replica_has_lines_of_its_own() {
    let (server, mut con, [_bob]) = start_line(["bob"]);
    let replica = start_replica(&server, Server::with_module());
    let mut promoted = replica.connect();
    run(&mut promoted, "REPLICAOF NO ONE");
    assert_eq!(line(&mut promoted), Vec::<String>::new());
    let mut carol = Waiter::join_for(&replica, "carol");
    run(&mut promoted, "PEXPIRE lock 100");
    carol.assert_has_lock(&mut promoted, "carol");
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), ["bob"]);
}
