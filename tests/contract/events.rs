//! Keyspace events of the module's class, and what client-side caches are told.

use redis::{Connection, Value};
use redis_lock_testkit::Server;

use crate::helpers::*;
use crate::listener::{Listener, Message};

fn start_with_events() -> (Server, Connection, Listener) {
    let server = Server::with_module().config("notify-keyspace-events", "Ed").start();
    let (con, listener) = (server.connect(), Listener::on(&server));
    (server, con, listener)
}

fn event(name: &str, key: &str) -> Message {
    Message::new(format!("__keyevent@0__:lock.{name}"), key)
}

/// What was heard but for the unlock messages.
fn events(listener: &mut Listener) -> Vec<Message> {
    let mut heard = listener.heard();
    heard.retain(|message| message.payload != b"0");
    heard
}

#[test]
fn a_first_hold_is_acquired_and_a_re_entry_is_not() {
    let (_server, mut con, mut listener) = start_with_events();
    acquire(&mut con, "lock", "me", 30_000);
    assert_eq!(events(&mut listener), [event("acquired", "lock")]);
    acquire(&mut con, "lock", "me", 60_000);
    acquire(&mut con, "lock", "you", 60_000);
    assert_eq!(events(&mut listener), []);
}

#[test]
fn a_renewal_that_moves_the_lease_is_renewed() {
    let (_server, mut con, mut listener) = start_with_events();
    acquire(&mut con, "lock", "me", 30_000);
    events(&mut listener);
    renew(&mut con, "lock", "me", 60_000);
    assert_eq!(events(&mut listener), [event("renewed", "lock")]);
    renew(&mut con, "lock", "me", 1_000);
    renew(&mut con, "lock", "you", 90_000);
    assert_eq!(events(&mut listener), []);
}

#[test]
fn a_lock_that_becomes_free_is_released() {
    let (_server, mut con, mut listener) = start_with_events();
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    events(&mut listener);
    release(&mut con, "lock", "me");
    assert_eq!(events(&mut listener), []);
    release(&mut con, "lock", "me");
    release(&mut con, "lock", "me");
    assert_eq!(events(&mut listener), [event("released", "lock")]);
    acquire(&mut con, "lock", "me", 30_000);
    force_release(&mut con, "lock");
    force_release(&mut con, "lock");
    assert_eq!(events(&mut listener), [event("acquired", "lock"), event("released", "lock")]);
}

#[test]
fn the_end_of_a_lease_is_expired() {
    let (_server, mut con, mut listener) = start_with_events();
    acquire(&mut con, "lock", "me", 30);
    assert_eq!(listener.next(), event("acquired", "lock"));
    let mut heard = [listener.next(), listener.next()];
    heard.sort_by_key(|message| message.payload.clone());
    assert_eq!(heard, [Message::unlock("lock"), event("expired", "lock")]);
    assert_eq!(listener.heard(), []);
}

#[test]
fn events_stand_on_the_locks_key_too() {
    let server = Server::with_module().config("notify-keyspace-events", "Kd").start();
    let mut listener = Listener::on(&server);
    acquire(&mut server.connect(), "lock", "me", 30_000);
    assert_eq!(listener.heard(), [Message::new("__keyspace@0__:lock", "lock.acquired")]);
}

/// A RESP3 connection that has read `lock`, and is to be told when it changes.
fn start_tracking(server: &Server) -> Connection {
    let mut cache = server.connect_resp3();
    run(&mut cache, "CLIENT TRACKING ON");
    run(&mut cache, "LOCK.INFO lock");
    cache
}

fn next_push(cache: &mut Connection) -> Value {
    cache.recv_response().expect("an invalidation comes")
}

fn assert_invalidates(push: Value) {
    let Value::Push { kind: redis::PushKind::Invalidate, data } = push else {
        panic!("no invalidation: {push:?}");
    };
    assert_eq!(data, [Value::Array(vec![Value::BulkString("lock".into())])]);
}

#[test]
fn client_caches_are_told_of_every_change() {
    for line in [
        "LOCK.ACQUIRE lock me 60000",
        "LOCK.RENEW lock me 60000",
        "LOCK.RELEASE lock me",
        "LOCK.RELEASE lock me HOLDS 0",
        "LOCK.FORCERELEASE lock",
    ] {
        let (server, mut con) = start();
        acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
        let mut cache = start_tracking(&server);
        run(&mut con, line);
        assert_invalidates(next_push(&mut cache));
    }
}

#[test]
fn client_caches_are_told_of_the_end_of_a_lease() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 200);
    let mut cache = start_tracking(&server);
    assert_invalidates(next_push(&mut cache));
}

#[test]
fn client_caches_are_not_told_of_what_changes_nothing() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let mut cache = start_tracking(&server);
    acquire(&mut con, "lock", "you", 60_000);
    acquire_with(&mut con, "lock", "me", 1_000, "HOLDS 1");
    renew(&mut con, "lock", "you", 60_000);
    release(&mut con, "lock", "you");
    cache.send_packed_command(&command("PING").get_packed_command()).unwrap();
    assert_eq!(next_push(&mut cache), Value::SimpleString("PONG".into()));
}
