//! Replicas for tests.

use std::time::Duration;

use redis::{Connection, cmd};
use redis_lock_testkit::{Builder, Server, eventually};

use crate::helpers::{call, run};

/// Starts a replica of `master`, which has all of its data and gets each write at once.
pub fn start_replica(master: &Server, builder: Builder) -> Server {
    let replica = start_behind(master, builder);
    // A master may hold writes back until its replica's first acknowledgement.
    await_replicas(&mut master.connect(), 1);
    replica
}

/// Starts a replica of `server`, which may be a replica itself, with all of its data.
pub fn start_behind(server: &Server, builder: Builder) -> Server {
    let replica = builder.config("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let mut con = replica.connect();
    eventually(Duration::from_secs(30), || {
        call::<String>(&mut con, "INFO replication").contains("master_link_status:up").then_some(())
    });
    replica
}

/// Waits until so many replicas have what was written to `con`'s server so far.
pub fn await_replicas(con: &mut Connection, replicas: u32) {
    run(con, "SET written-for-replicas 1");
    let acknowledged: u32 = cmd("WAIT").arg(replicas).arg(20_000).query(con).unwrap();
    assert_eq!(acknowledged, replicas);
}
