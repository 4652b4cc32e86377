//! Failover by the servers' own means: the lock stays exclusive, and the new master takes over what the old one knew.

use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd};
use redis_lock_testkit::{Builder, Server, eventually};

use crate::helpers::*;
use crate::listener::{Listener, Message};
use crate::replicas::{await_replicas, start_replica};
use crate::waiting::waiter::{PATIENCE, Waiter};

/// Every lease of these tests ends within it.
const GRACE_MS: u64 = 3_000;

fn node() -> Builder {
    Server::with_module()
        .module_arg("grace-period", &GRACE_MS.to_string())
        .config("min-replicas-max-lag", "1")
}

/// A master on which `me` has `lock`, as its replica knows; the grace of the start is over.
fn start_pair(ttl: i64) -> (Server, Connection, Server, Acquired) {
    let master = node().start();
    let replica = start_replica(&master, node());
    let mut con = master.connect();
    let held = Acquired::from_reply(call(&mut con, &format!("LOCK.ACQUIRE lock me {ttl} BLOCK 30000")));
    assert_eq!(held.holds, 1);
    await_replicas(&mut con, 1);
    (master, con, replica, held)
}

/// Waits until the server says that this is its role. A promotion may close connections.
#[track_caller]
fn await_role(server: &Server, role: &str) {
    eventually(Duration::from_secs(60), || {
        let info: String = cmd("INFO").arg("replication").query(&mut server.connect()).ok()?;
        info.contains(&format!("role:{role}\r\n")).then_some(())
    });
}

/// What a promoted node does for those who come, and for the holder it took over, whose lease has been renewed.
fn assert_has_taken_over(promoted: &Server, promoted_at: Instant, held: &Acquired) {
    let mut con = promoted.connect();
    let known = info(&mut con, "lock");
    assert!(known.is_held_by("me"), "{known:?}");
    assert_eq!(known.token, held.token);
    assert!(refusal(&mut con, "LOCK.ACQUIRE lock other 1000").starts_with("GRACE "));
    assert!(refusal(&mut con, "LOCK.ACQUIRE free other 1000").starts_with("GRACE "));
    let mut listener = Listener::on(promoted);
    assert_eq!(renew(&mut con, "lock", "me", 2_500), 1);
    let mut waiter = Waiter::join(promoted, "LOCK.ACQUIRE lock bob 3000 BLOCK 0");
    // Nobody releases: the lease that was taken over ends, and then so does the grace.
    let granted = waiter.granted();
    assert!(promoted_at.elapsed() >= Duration::from_millis(GRACE_MS - 100), "{:?}", promoted_at.elapsed());
    assert!(granted.token > held.token, "{granted:?} after {held:?}");
    assert_eq!(release(&mut con, "lock", "bob"), Some(0));
    assert!(listener.heard().contains(&Message::unlock("lock")));
}

#[test]
fn the_failover_command_hands_the_locks_over() {
    let (master, mut con, replica, held) = start_pair(3_000);
    let mut waiter = Waiter::join(&master, "LOCK.ACQUIRE lock bob 3000 BLOCK 0");
    let asked_at = Instant::now();
    run(&mut con, &format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    await_role(&replica, "master");
    let error = waiter.error();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert_has_taken_over(&replica, asked_at, &held);
    await_role(&master, "slave");
    assert!(refusal(&mut master.connect(), "LOCK.ACQUIRE free other 1000").starts_with("READONLY "));
}

#[test]
fn sentinel_promotes_a_replica_that_keeps_the_grace() {
    let (mut master, _, replica, held) = start_pair(3_000);
    let sentinel = Server::without_module()
        .argument("--sentinel")
        .config("sentinel monitor", &format!("lock 127.0.0.1 {} 1", master.port()))
        .config("sentinel down-after-milliseconds", "lock 300")
        .config("sentinel failover-timeout", "lock 10000")
        .start();
    let mut watch = sentinel.connect();
    eventually(PATIENCE, || {
        let replicas: Vec<Value> = call(&mut watch, "SENTINEL REPLICAS lock");
        (replicas.len() == 1).then_some(())
    });
    master.kill();
    let killed_at = Instant::now();
    await_role(&replica, "master");
    let mut con = replica.connect();
    // How long that takes is Sentinel's affair; the lease may have ended meanwhile.
    assert!(refusal(&mut con, "LOCK.ACQUIRE free other 1000").starts_with("GRACE "));
    let granted = Acquired::from_reply(call(&mut con, "LOCK.ACQUIRE lock other 1000 BLOCK 30000"));
    assert_eq!(granted.holds, 1);
    assert!(granted.token > held.token, "{granted:?} after {held:?}");
    assert!(killed_at.elapsed() >= Duration::from_millis(GRACE_MS - 100));
}

#[test]
fn a_master_that_is_cut_off_neither_grants_nor_renews_nor_serves_its_line() {
    let (master, mut con, replica, held) = start_pair(2_000);
    run(&mut con, "CONFIG SET min-replicas-to-write 1");
    let handed_over = info_field(&mut con, "lock", "lock_handed_over");
    let mut waiter = Waiter::join(&master, "LOCK.ACQUIRE lock bob 3000 BLOCK 0");
    run(&mut replica.connect(), "REPLICAOF NO ONE");
    let promoted_at = Instant::now();
    eventually(PATIENCE, || {
        refusal_or_none(&mut con, "LOCK.RENEW lock me 3000").filter(|line| line.starts_with("NOREPLICAS "))
    });
    assert!(refusal(&mut con, "LOCK.ACQUIRE free other 1000").starts_with("NOREPLICAS "));
    let mut promoted = replica.connect();
    let granted = Acquired::from_reply(call(&mut promoted, "LOCK.ACQUIRE lock other 3000 BLOCK 30000"));
    assert!(granted.token > held.token, "{granted:?} after {held:?}");
    assert!(promoted_at.elapsed() >= Duration::from_millis(GRACE_MS - 100));
    // The old one's lease has ended, too, and yet nobody there got the lock.
    assert_eq!(info_field(&mut con, "lock", "lock_waiting"), 1);
    assert_eq!(info_field(&mut con, "lock", "lock_handed_over"), handed_over);
    run(&mut con, &format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    let error = waiter.error();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    eventually(PATIENCE, || info(&mut con, "lock").is_held_by("other").then_some(()));
}

/// The refusal of a command, if it is refused.
fn refusal_or_none(con: &mut Connection, line: &str) -> Option<String> {
    command(line).query::<Value>(con).err().map(|error| error_line(&error))
}
