//! Unlock notifications: in Redisson's format, one for each unlock, when the lease ends.

use std::thread;

use redis::cmd;
use redis_lock_testkit::Server;

use crate::helpers::*;
use crate::listener::{Listener, Message, channel};

#[test]
fn a_release_is_published_once() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn a_forced_release_is_published_once() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 3");
    force_release(&mut con, "lock");
    force_release(&mut con, "lock");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn nothing_is_published_while_the_lock_stays_as_it_is() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    release(&mut con, "lock", "me");
    force_release(&mut con, "lock");
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 3");
    acquire(&mut con, "lock", "me", 60_000);
    acquire(&mut con, "lock", "you", 60_000);
    renew(&mut con, "lock", "me", 90_000);
    release(&mut con, "lock", "me");
    release(&mut con, "lock", "you");
    release_to(&mut con, "lock", "me", 1);
    info(&mut con, "lock");
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_partial_release_followed_by_the_last_is_published_once() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire_with(&mut con, "lock", "me", 30_000, "HOLDS 2");
    release(&mut con, "lock", "me");
    release(&mut con, "lock", "me");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn the_end_of_a_lease_is_published_once_and_on_time() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 100);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    let late = now_ms() - end;
    assert!((0..SLACK_MS).contains(&late), "{late} ms late");
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(listener.heard(), []);
}

/// The server's own reaper would need many seconds to find these among the other volatile keys.
#[test]
fn leases_end_on_time_whatever_else_the_keyspace_holds() {
    const LOCKS: i64 = 200;
    let (server, mut con) = start();
    let fill = "for i = 1, 100000 do redis.call('SET', 'other:' .. i, i, 'PX', 600000 + i) end";
    cmd("EVAL").arg(fill).arg(0).exec(&mut con).unwrap();
    let mut listener = Listener::on(&server);
    let mut late: Vec<i64> = thread::scope(|scope| {
        let arrivals = scope.spawn(|| (0..LOCKS).map(|_| (listener.next(), now_ms())).collect::<Vec<_>>());
        let mut ends = std::collections::BTreeMap::new();
        for number in 0..LOCKS {
            let name = format!("lock-{number}");
            acquire(&mut con, &name, "me", 200 + number);
            let end: i64 = cmd("PEXPIRETIME").arg(&name).query(&mut con).unwrap();
            ends.insert(channel(&name).into_bytes(), end);
        }
        let arrivals = arrivals.join().unwrap();
        arrivals.into_iter().map(|(message, at)| at - ends[&message.channel]).collect()
    });
    late.sort_unstable();
    assert!(late[0] >= 0, "a message came before the lease's end");
    let median = late[late.len() / 2];
    assert!(median <= 50, "half of them came more than {median} ms late");
    assert_eq!(info_field(&mut con, "lock", "lock_expired"), LOCKS);
}

#[test]
fn of_a_crowd_of_leases_that_end_together_each_is_published_once() {
    const LOCKS: usize = 3_000;
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    let mut takes = redis::pipe();
    for number in 0..LOCKS {
        takes.cmd("LOCK.ACQUIRE").arg(number).arg("me").arg(400).ignore();
        takes.cmd("PEXPIREAT").arg(number).arg(now_ms() + 400).ignore();
    }
    takes.exec(&mut con).unwrap();
    let mut channels: Vec<_> = (0..LOCKS).map(|_| listener.next().channel).collect();
    channels.sort_unstable();
    channels.dedup();
    assert_eq!(channels.len(), LOCKS);
    assert_eq!(listener.heard(), []);
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
}

#[test]
fn a_renewed_lease_is_published_at_its_new_end_only() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 50);
    renew(&mut con, "lock", "me", 250);
    let end: i64 = call(&mut con, "PEXPIRETIME lock");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert!(now_ms() >= end);
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_released_lock_is_not_published_again_at_the_end_of_its_lease() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 50);
    release(&mut con, "lock", "me");
    sleep_until(now_ms() + 100);
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn the_next_holders_lease_is_its_own() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 50);
    release(&mut con, "lock", "me");
    acquire(&mut con, "lock", "you", 30_000);
    sleep_until(now_ms() + 100);
    assert_held(&mut con, "lock", "you");
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn an_expiry_noticed_by_the_next_acquirer_is_published_once() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 20);
    // Sleep through the end of the lease on the server's own thread, and acquire before its timers run.
    redis::pipe().cmd("DEBUG").arg("SLEEP").arg("0.1").cmd("PING").exec(&mut con).unwrap();
    assert_eq!(acquire(&mut con, "lock", "you", 30_000).holds, 1);
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    assert_held(&mut con, "lock", "you");
}

#[test]
fn a_name_with_a_brace_is_not_wrapped_again() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    for name in ["{tag}", "a{b", "x:{tag}:y"] {
        acquire(&mut con, name, "me", 30_000);
        release(&mut con, name, "me");
        let expected = Message::new(format!("redisson_lock__channel:{name}"), "0");
        assert_eq!(listener.heard(), [expected]);
    }
    acquire(&mut con, "a}b", "me", 30_000);
    release(&mut con, "a}b", "me");
    assert_eq!(listener.heard(), [Message::unlock("a}b")]);
}

#[test]
fn channels_are_binary_safe() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    let name = b"a\0b\xff\xfe\r\n%s";
    acquire(&mut con, name, "me", 30_000);
    release(&mut con, name, "me");
    let expected = [b"redisson_lock__channel:{".as_slice(), name, b"}"].concat();
    assert_eq!(listener.heard(), [Message::new(expected, "0")]);
}

#[test]
fn a_release_inside_a_transaction_or_a_script_is_published_once() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    redis::pipe()
        .atomic()
        .cmd("LOCK.ACQUIRE")
        .arg(&["lock", "me", "30000"])
        .cmd("LOCK.RELEASE")
        .arg(&["lock", "me"])
        .exec(&mut con)
        .unwrap();
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
    let script =
        "redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 30000) return redis.call('LOCK.RELEASE', KEYS[1], 'me')";
    assert_eq!(cmd("EVAL").arg(script).arg(1).arg("lock").query(&mut con), Ok(0));
    assert_eq!(listener.heard(), [Message::unlock("lock")]);
}

#[test]
fn while_writes_are_paused_no_lease_ends_and_then_it_does() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 50);
    run(&mut con, "CLIENT PAUSE 400 WRITE");
    let paused_until = now_ms() + 300;
    sleep_until(now_ms() + 100);
    assert_free(&mut con, "lock");
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 1, "reaped during the pause");
    assert_eq!(listener.next(), Message::unlock("lock"));
    assert!(now_ms() >= paused_until, "published during the pause");
    assert_eq!(listener.heard(), []);
    server.assert_alive();
    assert_free(&mut con, "lock");
}

#[test]
fn the_channels_prefix_may_be_another() {
    let server = Server::with_module().module_arg("channel-prefix", "unlocked").start();
    let mut con = server.connect();
    let mut listener = Listener::on(&server);
    acquire(&mut con, "lock", "me", 30_000);
    release(&mut con, "lock", "me");
    assert_eq!(listener.heard(), [Message::new("unlocked:{lock}", "0")]);
    run(&mut con, "CONFIG SET lock.channel-prefix free");
    acquire(&mut con, "lock", "me", 20);
    assert_eq!(listener.next(), Message::new("free:{lock}", "0"));
}
