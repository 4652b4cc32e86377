//! Three masters: slots move, a shard fails over, and a lock is nobody's twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value, cmd};
use redis_lock_testkit::{Builder, Server, eventually};

use crate::helpers::*;
use crate::waiting::waiter::{PATIENCE, Waiter};

/// The slot of the key `lock`, and of all that are tagged with it, by CLUSTER KEYSLOT.
const SLOT: &str = "8718";

fn node() -> Builder {
    Server::with_module()
        .config("cluster-enabled", "yes")
        .config("cluster-node-timeout", "2000")
        .config("cluster-require-full-coverage", "no")
}

/// Three masters that share the slots: the last one has that of `lock`.
struct Cluster(Vec<Server>);

impl Cluster {
    fn start() -> Self {
        let nodes: Vec<Server> = (0..3).map(|_| node().start()).collect();
        let slots = ["10923 16383", "0 5460", "5461 10922"];
        for (n, (node, slots)) in nodes.iter().zip(slots).enumerate() {
            let mut con = node.connect();
            run(&mut con, &format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
            run(&mut con, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
            run(&mut con, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
        }
        let cluster = Self(nodes);
        cluster.await_health(3);
        cluster
    }

    fn await_health(&self, nodes: usize) {
        for node in &self.0 {
            eventually(PATIENCE, || {
                let info: String = call(&mut node.connect(), "CLUSTER INFO");
                let known = format!("cluster_known_nodes:{nodes}\r\n");
                let is_whole = info.contains("cluster_slots_ok:16384") && info.contains(&known);
                (info.contains("cluster_state:ok") && is_whole).then_some(())
            });
        }
    }

    fn id(&self, node: usize) -> String {
        call(&mut self.0[node].connect(), "CLUSTER MYID")
    }

    /// Moves the slot of `lock`, key by key, as an operator's tool does.
    fn move_slot(&self, from: usize, to: usize) {
        let (mut source, mut target) = (self.0[from].connect(), self.0[to].connect());
        run(&mut target, &format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", self.id(from)));
        run(&mut source, &format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", self.id(to)));
        loop {
            let keys: Vec<String> = call(&mut source, &format!("CLUSTER GETKEYSINSLOT {SLOT} 10"));
            if keys.is_empty() {
                break;
            }
            let port = self.0[to].port();
            // A key that is gone meanwhile is no error.
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(port).arg(&["", "0", "5000", "KEYS"]).arg(keys);
            migrate.exec(&mut source).expect("a migration");
        }
        for con in [&mut target, &mut source] {
            run(con, &format!("CLUSTER SETSLOT {SLOT} NODE {}", self.id(to)));
        }
        self.await_owner(to);
    }

    /// Waits until all nodes know whose the slot of `lock` is: a move that begins earlier gets lost in gossip.
    fn await_owner(&self, owner: usize) {
        let claim = format!("MOVED {SLOT} 127.0.0.1:{}", self.0[owner].port());
        for (n, node) in self.0.iter().enumerate() {
            let mut con = node.connect();
            eventually(PATIENCE, || {
                let refusal = command("LOCK.INFO lock").query::<Value>(&mut con).err();
                let says = refusal.map_or_else(String::new, |error| error_line(&error));
                (if n == owner { says.is_empty() } else { says == claim }).then_some(())
            });
        }
    }
}

/// A client that goes where it is sent.
struct Traveller<'a> {
    cluster: &'a Cluster,
    connections: HashMap<u16, Connection>,
    at: u16,
}

impl<'a> Traveller<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, connections: HashMap::new(), at: cluster.0[2].port() }
    }

    fn connection(&mut self, port: u16) -> &mut Connection {
        let cluster = self.cluster;
        self.connections.entry(port).or_insert_with(|| {
            let node = cluster.0.iter().find(|node| node.port() == port);
            node.expect("a node of the cluster").connect()
        })
    }

    fn ask(&mut self, line: &str) -> Value {
        let mut is_asking = false;
        let mut port = self.at;
        let begun = Instant::now();
        loop {
            let con = self.connection(port);
            if is_asking {
                run(con, "ASKING");
            }
            let reply: RedisResult<Value> = command(line).query(con);
            let error = match reply {
                Ok(value) => return value,
                Err(error) => error_line(&error),
            };
            assert!(begun.elapsed() < PATIENCE * 2, "{line}: sent about, at last by {error}");
            let words: Vec<&str> = error.split(' ').collect();
            is_asking = false;
            match words[0] {
                "MOVED" | "ASK" => {
                    port = words[2].rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                    is_asking = words[0] == "ASK";
                    if !is_asking {
                        self.at = port;
                    }
                }
                "TRYAGAIN" | "CLUSTERDOWN" => thread::yield_now(),
                _ => panic!("{line}: {error}"),
            }
        }
    }
}

#[test]
fn a_slot_of_free_locks_brings_no_token_and_yet_they_grow() {
    let cluster = Cluster::start();
    let mut last = 0;
    let mut at = 2;
    for to in [0, 1, 0, 2] {
        let mut con = cluster.0[at].connect();
        for _ in 0..3 {
            let token = acquire(&mut con, "lock", "me", 30_000).token;
            assert!(token > last, "{token} at node {at} after {last}");
            last = token;
            release(&mut con, "lock", "me");
        }
        cluster.move_slot(at, to);
        at = to;
    }
}

#[test]
fn while_slots_move_a_lock_is_nobodys_twice_and_everybody_gets_it() {
    const CLIENTS: i64 = 8;
    const MOVES: usize = 6;
    let cluster = Cluster::start();
    let (holder, last_token) = (AtomicI64::new(0), AtomicI64::new(0));
    let are_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = (1..=CLIENTS).map(|client| {
            let (cluster, holder, last_token, are_over) = (&cluster, &holder, &last_token, &are_over);
            scope.spawn(move || {
                let mut traveller = Traveller::new(cluster);
                let mut own_turns = 0;
                while !are_over.load(Ordering::Relaxed) || own_turns == 0 {
                    let reply = traveller.ask(&format!("LOCK.ACQUIRE lock c{client} 30000 BLOCK 0"));
                    let granted = Acquired::from_reply(reply);
                    assert_eq!(granted.holds, 1);
                    assert_eq!(holder.swap(client, Ordering::SeqCst), 0, "two hold it");
                    let last = last_token.swap(granted.token, Ordering::SeqCst);
                    assert!(granted.token > last, "{} after {last}", granted.token);
                    holder.store(0, Ordering::SeqCst);
                    assert_eq!(traveller.ask(&format!("LOCK.RELEASE lock c{client}")), Value::Int(0));
                    own_turns += 1;
                }
                traveller.connections.len()
            })
        });
        let clients: Vec<_> = clients.collect();
        for moves in 0..MOVES {
            cluster.move_slot((moves + 2) % 3, moves % 3);
        }
        are_over.store(true, Ordering::Relaxed);
        let outcomes = clients.into_iter().map(thread::ScopedJoinHandle::join);
        let visited: Vec<usize> = outcomes.map(|nodes| nodes.expect("every client is served")).collect();
        assert!(visited.contains(&3), "nobody was redirected: {visited:?}");
    });
}

#[test]
fn a_shard_fails_over_with_its_locks() {
    let mut cluster = Cluster::start();
    let replica = node().start();
    let mut there = replica.connect();
    run(&mut there, &format!("CLUSTER MEET 127.0.0.1 {}", cluster.0[0].port()));
    cluster.await_health(4);
    let master_id = cluster.id(2);
    eventually(PATIENCE, || cmd("CLUSTER").arg(&["REPLICATE", &master_id]).exec(&mut there).ok());
    eventually(PATIENCE, || {
        call::<String>(&mut there, "INFO replication").contains("master_link_status:up").then_some(())
    });
    let mut con = cluster.0[2].connect();
    let held = acquire(&mut con, "lock", "me", 60_000);
    let mut waiter = Waiter::join(&cluster.0[2], "LOCK.ACQUIRE lock bob 60000 BLOCK 0");
    eventually(Duration::from_secs(60), || {
        // Asked for again, as the cluster may not have agreed; refused while one is under way.
        let _ = cmd("CLUSTER").arg("FAILOVER").exec(&mut replica.connect());
        let info: String = cmd("INFO").arg("replication").query(&mut replica.connect()).ok()?;
        info.contains("role:master").then_some(())
    });
    let error = waiter.error();
    assert!(error.starts_with("UNBLOCKED ") || error.starts_with("MOVED "), "{error}");
    let mut there = replica.connect();
    eventually(PATIENCE, || info(&mut there, "lock").is_held_by("me").then_some(()));
    assert_eq!(info(&mut there, "lock").token, held.token);
    assert_eq!(acquire(&mut there, "lock", "other", 60_000).holds, 0);
    assert_eq!(release(&mut there, "lock", "me"), Some(0));
    assert!(acquire(&mut there, "lock", "other", 60_000).token > held.token);
    cluster.0.push(replica);
    let mut con = cluster.0[2].connect();
    let refused = refusal(&mut con, "LOCK.ACQUIRE lock other 60000");
    assert!(refused.starts_with("MOVED "), "{refused}");
}
