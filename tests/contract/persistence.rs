//! RDB and AOF: a lock outlives a restart with the lease it had, also on a server without the module.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use redis_lock_testkit::{Builder, Server};

use crate::helpers::*;
use crate::listener::{Listener, Message};

/// A lock of before a restart is the same lock afterwards, and its lease ends when it should.
fn assert_outlives_a_restart(builder: Builder, persist: &str) {
    let mut server = builder.start();
    let mut con = server.connect();
    let token = acquire_with(&mut con, "lock", "me", 60_000, "HOLDS 2").token;
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    acquire(&mut con, "short", "me", 1_500);
    let short_end: i64 = call(&mut con, "PEXPIRETIME short");
    run(&mut con, persist);
    server.stop();
    server.restart();
    let mut listener = Listener::on(&server);
    let mut con = server.connect();
    assert_eq!(call::<i64>(&mut con, "PEXPIRETIME lock"), end);
    assert_held(&mut con, "lock", "me");
    assert_eq!(info(&mut con, "lock").token, token);
    if now_ms() < short_end {
        assert_eq!(listener.next(), Message::unlock("short"));
    }
    assert!(now_ms() >= short_end);
    assert_free(&mut con, "short");
    assert_eq!(release(&mut con, "lock", "me"), Some(1));
}

#[test]
fn a_lock_outlives_a_restart_in_an_rdb() {
    assert_outlives_a_restart(Server::with_module(), "SAVE");
}

#[test]
fn a_lock_outlives_a_restart_in_an_aof() {
    let builder = Server::with_module().config("appendonly", "yes").config("appendfsync", "always");
    assert_outlives_a_restart(builder, "PING");
}

#[test]
fn a_lock_outlives_a_restart_in_an_aof_without_rdb_preamble() {
    let builder = Server::with_module().config("appendonly", "yes").config("aof-use-rdb-preamble", "no");
    assert_outlives_a_restart(builder, "BGREWRITEAOF");
}

#[test]
fn a_lock_whose_lease_ended_while_the_server_was_down_is_free() {
    for persistence in ["no", "yes"] {
        let mut server = Server::with_module().config("appendonly", persistence).start();
        let mut con = server.connect();
        acquire(&mut con, "lock", "me", 200);
        let end: i64 = call(&mut con, "PEXPIRETIME lock");
        run(&mut con, "SAVE");
        server.stop();
        sleep_until(end + 10);
        server.restart();
        let mut con = server.connect();
        assert_free(&mut con, "lock");
        assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1, "appendonly {persistence}");
    }
}

#[test]
fn replaying_an_aof_never_extends_a_lease() {
    let mut server =
        Server::with_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut con = server.connect();
    acquire(&mut con, "lock", "me", 30_000);
    renew(&mut con, "lock", "me", 40_000);
    acquire(&mut con, "lock", "me", 50_000);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    server.kill();
    sleep_until(now_ms() + 200);
    server.restart();
    assert_eq!(call::<i64>(&mut server.connect(), "PEXPIRETIME lock"), end);
}

#[test]
fn a_server_without_the_module_loads_the_rdb() {
    let (source, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    let fields = hash(&mut con, "lock");
    run(&mut con, "SAVE");
    let mut bare = Server::without_module().start();
    bare.stop();
    fs::copy(source.dir().join("dump.rdb"), bare.dir().join("dump.rdb")).unwrap();
    bare.restart();
    let mut there = bare.connect();
    assert_eq!(hash(&mut there, "lock"), fields);
    assert_lease(pttl(&mut there, "lock"), 60_000);
}

#[test]
fn a_server_without_the_module_replays_the_aof() {
    let source = Server::with_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut con = source.connect();
    acquire_with(&mut con, "lock", "me", 60_000, "HOLDS 3");
    release(&mut con, "lock", "me");
    acquire(&mut con, "gone", "me", 60_000);
    release(&mut con, "gone", "me");
    let fields = hash(&mut con, "lock");
    let mut bare = Server::without_module().config("appendonly", "yes").start();
    bare.stop();
    let (from, to) = (source.dir().join("appendonlydir"), bare.dir().join("appendonlydir"));
    for part in fs::read_dir(from).unwrap() {
        let part = part.unwrap();
        fs::copy(part.path(), to.join(part.file_name())).unwrap();
    }
    bare.restart();
    let mut there = bare.connect();
    assert_eq!(hash(&mut there, "lock"), fields);
    assert_lease(pttl(&mut there, "lock"), 60_000);
    assert_eq!(call::<i64>(&mut there, "DBSIZE"), 1);
}

#[test]
fn after_a_crash_under_load_no_lock_is_without_a_lease() {
    let mut server =
        Server::with_module().config("appendonly", "yes").config("appendfsync", "everysec").start();
    for _ in 0..3 {
        crash_under_load(&mut server);
        server.restart();
        let mut con = server.connect();
        let locks: Vec<String> = call(&mut con, "KEYS *");
        assert!(!locks.is_empty());
        for lock in locks {
            assert!(pttl(&mut con, &lock) > 0, "{lock} has no TTL: {:?}", hash(&mut con, &lock));
            assert_eq!(hash(&mut con, &lock).len(), 2, "{lock} is not whole");
        }
    }
}

/// Kills the server while clients take and release locks as fast as they can.
fn crash_under_load(server: &mut Server) {
    let stop = AtomicBool::new(false);
    let clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for (owner, mut con) in clients.into_iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                for round in 0.. {
                    let key = format!("lock-{}", round % 50 + owner * 50);
                    let mut pipe = redis::pipe();
                    pipe.cmd("LOCK.ACQUIRE").arg(&key).arg(owner).arg(60_000).ignore();
                    if round % 3 == 0 {
                        pipe.cmd("LOCK.RELEASE").arg(&key).arg(owner).ignore();
                    }
                    if pipe.exec(&mut con).is_err() || stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        thread::sleep(std::time::Duration::from_millis(200));
        server.kill();
        stop.store(true, Ordering::Relaxed);
    });
}
