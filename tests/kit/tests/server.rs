//! The fixture on a bare server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::{Duration, Instant};
use std::{fs, thread};

use redis::Commands as _;
use redis_lock_testkit::{Server, eventually};

#[test]
fn servers_in_parallel_each_get_their_own_port() {
    let starts: Vec<_> = (0..8).map(|_| thread::spawn(|| Server::without_module().start())).collect();
    let servers: Vec<Server> = starts.into_iter().map(|s| s.join().unwrap()).collect();
    for (number, server) in servers.iter().enumerate() {
        let _: () = server.connect().set("number", number).unwrap();
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.connect().get("number"), Ok(number));
    }
}

#[test]
fn a_restarted_server_keeps_its_port_and_its_aof() {
    let mut server =
        Server::without_module().config("appendonly", "yes").config("appendfsync", "always").start();
    let (port, pid) = (server.port(), server.pid());
    let _: () = server.connect().set("k", 1).unwrap();
    server.kill();
    server.restart();
    assert_eq!(server.connect().incr("k", 1), Ok(2));
    server.stop();
    server.restart();
    assert_eq!(server.connect().incr("k", 1), Ok(3));
    server.restart();
    assert_eq!(server.connect().incr("k", 1), Ok(4));
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
}

#[test]
fn nothing_is_left_of_a_dropped_server() {
    let server = Server::without_module().start();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(fs::exists(format!("/proc/{pid}")).unwrap());
    drop(server);
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    assert!(!dir.exists());
}

#[test]
fn a_server_that_refuses_to_start_shows_its_log() {
    let error = Server::without_module().config("no-such-directive", "1").try_start().unwrap_err();
    assert!(format!("{error:#}").contains("no-such-directive"));
}

#[test]
fn what_config_rewrite_wrote_survives_a_restart() {
    let mut server = Server::without_module().start();
    let mut con = server.connect();
    redis::cmd("CONFIG").arg(&["SET", "maxmemory-samples", "7"]).exec(&mut con).unwrap();
    redis::cmd("CONFIG").arg("REWRITE").exec(&mut con).unwrap();
    server.restart();
    let samples: (String, u32) =
        redis::cmd("CONFIG").arg(&["GET", "maxmemory-samples"]).query(&mut server.connect()).unwrap();
    assert_eq!(samples.1, 7);
}

#[test]
fn both_protocols_are_spoken() {
    let server = Server::without_module().start();
    let hello = |con: &mut redis::Connection| -> redis::Value {
        redis::cmd("CONFIG").arg(&["GET", "maxclients"]).query(con).unwrap()
    };
    assert!(matches!(hello(&mut server.connect()), redis::Value::Array(_)));
    assert!(matches!(hello(&mut server.connect_resp3()), redis::Value::Map(_)));
}

#[test]
fn cpu_time_is_that_of_the_server() {
    let server = Server::without_module().start();
    let before = server.cpu();
    let _: () = redis::cmd("EVAL")
        .arg("for i = 1, 2000000 do math.random() end")
        .arg(0)
        .query(&mut server.connect())
        .unwrap();
    assert!(server.cpu() > before + Duration::from_millis(2));
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() {
    let server = Server::without_module().start();
    let mut con = server.connect();
    server.freeze();
    con.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(redis::cmd("PING").exec(&mut con).is_err());
    server.thaw();
    server.assert_alive();
}

#[test]
#[should_panic(expected = "the server is gone")]
fn a_dead_server_is_noticed() {
    let mut server = Server::without_module().start();
    server.kill();
    server.assert_alive();
}

#[test]
fn eventually_returns_as_soon_as_there_is_an_answer() {
    let start = Instant::now();
    let mut asked = 0;
    let answer = eventually(Duration::from_secs(60), || {
        asked += 1;
        (asked == 3).then_some(asked)
    });
    assert_eq!(answer, 3);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
#[should_panic(expected = "did not happen within 5ms")]
fn eventually_gives_up() {
    eventually(Duration::from_millis(5), || None::<()>);
}
