//! What others hear of a line: unlock messages, keyspace events, caches and watches.

use redis::{Connection, Value};
use redis_lock_testkit::Server;

use super::waiter::*;
use crate::helpers::*;
use crate::listener::{Listener, Message};

#[test]
fn the_end_of_a_lease_that_hands_over_is_not_published() {
    let (server, mut con, [mut bob]) = start_line_behind(200, ["bob"]);
    let mut listener = Listener::on(&server);
    bob.granted();
    assert_eq!(listener.heard(), []);
    run(&mut con, "PEXPIRE lock 50");
    assert_eq!(listener.next(), Message::unlock("lock"), "nobody is in line any more");
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_line_of_which_all_are_gone_has_its_unlock_published_once() {
    let (server, mut con, [bob, carol]) = start_line(["bob", "carol"]);
    drop((bob, carol));
    await_line(&mut con, &[]);
    let mut listener = Listener::on(&server);
    run(&mut con, "DEL lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
}

#[test]
fn subscribers_on_replicas_hear_nothing_of_a_handoff() {
    let (server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    let replica = crate::replicas::start_replica(&server, Server::with_module());
    let mut listener = Listener::on(&replica);
    run(&mut con, "LOCK.RELEASE lock me");
    bob.granted();
    run(&mut con, "DEL lock");
    carol.granted();
    crate::replicas::await_replicas(&mut con, 1);
    assert_eq!(listener.heard(), []);
    run(&mut con, "LOCK.RELEASE lock carol");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert_eq!(listener.heard(), []);
}

fn event(name: &str) -> Message {
    Message::new(format!("__keyevent@0__:lock.{name}"), "lock")
}

/// A line of one behind `me`, and what is heard of its lock from now on.
fn start_with_events() -> (Server, Connection, Listener, Waiter) {
    let server = Server::with_module().config("notify-keyspace-events", "Ed").start();
    let mut con = server.connect();
    let [bob] = form_line(&server, &mut con, 30_000, ["bob"]);
    let listener = Listener::on(&server);
    (server, con, listener, bob)
}

#[test]
fn a_release_that_hands_over_is_released_and_acquired() {
    for line in ["LOCK.RELEASE lock me", "LOCK.FORCERELEASE lock"] {
        let (_server, mut con, mut listener, mut bob) = start_with_events();
        run(&mut con, line);
        bob.granted();
        assert_eq!(listener.heard(), [event("released"), event("acquired")], "{line}");
    }
}

#[test]
fn the_end_of_a_lease_that_hands_over_is_expired_and_acquired() {
    let (_server, mut con, mut listener, mut bob) = start_with_events();
    run(&mut con, "PEXPIRE lock 100");
    bob.granted();
    assert_eq!(listener.heard(), [event("expired"), event("acquired")]);
}

#[test]
fn a_deletion_that_hands_over_is_acquired() {
    let (_server, mut con, mut listener, mut bob) = start_with_events();
    run(&mut con, "DEL lock");
    bob.granted();
    assert_eq!(listener.heard(), [event("acquired")]);
}

#[test]
fn who_waits_and_leaves_makes_no_event() {
    let (_server, mut con, mut listener, mut bob) = start_with_events();
    run(&mut con, &format!("CLIENT UNBLOCK {}", bob.id));
    bob.denied();
    assert_eq!(listener.heard(), []);
}

#[test]
fn who_waits_leaves_a_watch_alone_and_a_handoff_aborts_it() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    let watch = || {
        let mut watcher = server.connect();
        run(&mut watcher, "WATCH lock");
        watcher
    };
    let goes_through = |mut watcher: Connection| {
        let done: Option<Vec<i64>> =
            redis::pipe().atomic().cmd("INCR").arg("counter").query(&mut watcher).unwrap();
        done.is_some()
    };
    let watcher = watch();
    let mut carol = Waiter::join(&server, "LOCK.ACQUIRE lock carol 60000 BLOCK 50");
    carol.denied();
    assert!(goes_through(watcher), "aborted by somebody who only waited");
    let watcher = watch();
    run(&mut con, "LOCK.RELEASE lock me");
    bob.granted();
    assert!(!goes_through(watcher), "not aborted by a handoff");
}

#[test]
fn client_caches_are_told_of_a_handoff() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    let mut cache = server.connect_resp3();
    run(&mut cache, "CLIENT TRACKING ON");
    run(&mut cache, "HGETALL lock");
    run(&mut con, "DEL lock");
    bob.granted();
    let push = cache.recv_response().expect("an invalidation comes");
    assert!(matches!(push, Value::Push { kind: redis::PushKind::Invalidate, .. }), "{push:?}");
}
