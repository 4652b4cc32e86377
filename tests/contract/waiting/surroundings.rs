//! A line while the server around it is full, shuts down, is watched, or loses users.

use redis_lock_testkit::Server;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::waiter::*;
use crate::helpers::*;

#[test]
fn a_full_server_lets_nobody_join_and_serves_its_line() {
    let (_server, mut con, [mut bob, mut carol, mut dave]) = start_line(["bob", "carol", "dave"]);
    run(&mut con, "CONFIG SET maxmemory 1");
    let refused = refusal(&mut con, "LOCK.ACQUIRE lock erin 60000 BLOCK 0");
    assert!(refused.starts_with("OOM "), "{refused}");
    assert_eq!(release(&mut con, "lock", "me"), Some(0));
    bob.assert_has_lock(&mut con, "bob");
    run(&mut con, "DEL lock");
    assert_eq!(carol.granted().holds, 1);
    run(&mut con, "PEXPIRE lock 50");
    assert_eq!(dave.granted().holds, 1);
    assert!(info(&mut con, "lock").is_held_by("dave"));
}

#[test]
fn a_server_with_a_line_shuts_down() {
    let (mut server, mut con, [mut bob, mut carol]) = start_line(["bob", "carol"]);
    run(&mut con, "SELECT 0");
    server.stop();
    for waiter in [&mut bob, &mut carol] {
        waiter.assert_hung_up();
    }
    let log = server.log();
    assert!(log.contains("bye bye"), "{log}");
    assert!(!log.contains("crashed"), "{log}");
}

#[test]
fn a_restarted_server_has_its_locks_and_no_lines() {
    let mut server = Server::with_module().config("appendonly", "yes").start();
    let mut con = server.connect();
    let [mut bob] = form_line(&server, &mut con, 30_000, ["bob"]);
    server.restart();
    bob.assert_hung_up();
    let mut con = server.connect();
    assert_held(&mut con, "lock", "me");
    assert_eq!(line(&mut con), Vec::<String>::new());
    release(&mut con, "lock", "me");
    assert_free(&mut con, "lock");
}

#[test]
fn the_module_is_not_unloaded_while_somebody_waits() {
    let (_server, mut con, [mut bob]) = start_line(["bob"]);
    assert!(refusal(&mut con, "MODULE UNLOAD lock").starts_with("ERR "));
    assert_eq!(line(&mut con), ["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn a_user_who_is_deleted_leaves_the_line() {
    let (server, mut con, [mut bob]) = start_line(["bob"]);
    run(&mut con, "ACL SETUSER app on >secret ~* +@all");
    let mut app = Waiter::connect(&server);
    app.send(&["AUTH app secret", "LOCK.ACQUIRE lock app 60000 BLOCK 0"]);
    app.reply().unwrap();
    await_line(&mut con, &["bob", "app"]);
    run(&mut con, "ACL DELUSER app");
    app.assert_hung_up();
    await_line(&mut con, &["bob"]);
    release(&mut con, "lock", "me");
    bob.assert_has_lock(&mut con, "bob");
}

#[test]
fn who_may_not_use_the_key_does_not_wait_for_it() {
    let (server, mut admin) = start();
    acquire(&mut admin, "lock", "me", 30_000);
    run(&mut admin, "ACL SETUSER app on >secret resetkeys ~app:* -@all +lock.acquire");
    let mut con = server.connect();
    run(&mut con, "AUTH app secret");
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock app 60000 BLOCK 0").starts_with("NOPERM "));
    assert_eq!(line(&mut admin), Vec::<String>::new());
}

/// A crowd takes memory only while it waits.
#[test]
fn the_memory_of_a_crowd_of_waiters_comes_back() {
    const REQUESTS: usize = 5_000;
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 60_000);
    let mut use_memory = |waiters: &mut [Waiter]| {
        for (number, waiter) in waiters.iter_mut().enumerate() {
            waiter.send(&[&format!("LOCK.ACQUIRE lock owner-{number} 60000 BLOCK 0")]);
        }
        await_waiting(&mut con, waiters.len() as i64);
        for waiter in waiters.iter() {
            run(&mut con, &format!("CLIENT UNBLOCK {}", waiter.id));
        }
        for waiter in waiters.iter_mut() {
            waiter.denied();
        }
        info_field(&mut con, "memory", "used_memory")
    };
    let mut waiters: Vec<_> = (0..REQUESTS / 5).map(|_| Waiter::connect(&server)).collect();
    let before = use_memory(&mut waiters);
    let after = (0..4).map(|_| use_memory(&mut waiters)).last().unwrap();
    assert!(after - before < 300_000, "{} bytes are left", after - before);
}

/// Some servers let no client wait that is subscribed; it is denied at once then, as if without BLOCK.
#[test]
fn a_subscriber_that_asks_to_wait_is_denied_sooner_or_later() {
    let (server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for subscribe in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("HELLO 3\r\n{subscribe} channel\r\nLOCK.ACQUIRE lock bob 60000 BLOCK 100\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut told = Vec::new();
        while !String::from_utf8_lossy(&told).contains("*3\r\n:0\r\n") {
            let mut some = [0; 4096];
            let length = stream.read(&mut some).unwrap();
            assert!(length > 0, "{subscribe}: the server hung up");
            told.extend_from_slice(&some[..length]);
        }
        assert_eq!(line(&mut con), Vec::<String>::new());
    }
}

/// Nothing tells of a hold that is deleted by hand under an endless lease; whoever finds the lock free serves its
/// line.
#[test]
fn a_command_that_finds_the_lock_free_serves_its_line() {
    for find in ["LOCK.RELEASE lock me", "LOCK.RENEW lock me 1000", "LOCK.FORCERELEASE lock"] {
        let (_server, mut con, [mut bob]) = start_line(["bob"]);
        run(&mut con, "PERSIST lock");
        run(&mut con, "HDEL lock me");
        run(&mut con, find);
        assert!(bob.granted().holds == 1, "{find}");
        assert_held(&mut con, "lock", "bob");
    }
}
