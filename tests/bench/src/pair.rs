//! Servers to compare: one as it comes, one with the module.

use std::time::Duration;

use redis_lock_testkit::{Builder, Server, eventually};

/// What the server does with a write besides carrying it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trail {
    /// Nothing.
    Nothing,
    /// It appends it to a file that is flushed every second.
    AppendOnlyFile,
    /// It sends it to a replica.
    Replica,
}

impl Trail {
    /// What the titles call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nothing => "no persistence",
            Self::AppendOnlyFile => "AOF, fsync every second",
            Self::Replica => "one replica",
        }
    }
}

/// A server without and one with the module; each with its replica, if it has one.
pub struct Pair {
    /// Without the module.
    pub bare: Server,
    /// With it.
    pub module: Server,
    _replicas: Vec<Server>,
}

impl Pair {
    /// Starts both.
    pub fn start(trail: Trail) -> Self {
        let configure = |builder: Builder| match trail {
            Trail::AppendOnlyFile => builder
                .config("appendonly", "yes")
                .config("appendfsync", "everysec")
                // A rewrite in the middle would cost whoever's turn it is.
                .config("auto-aof-rewrite-percentage", "0"),
            Trail::Nothing | Trail::Replica => builder,
        };
        let bare = configure(Server::without_module()).start();
        let module = configure(Server::with_module()).start();
        let replicas = match trail {
            Trail::Replica => vec![replicate(&bare), replicate(&module)],
            Trail::Nothing | Trail::AppendOnlyFile => Vec::new(),
        };
        Self { bare, module, _replicas: replicas }
    }
}

/// Starts a replica and waits until it is in step.
fn replicate(master: &Server) -> Server {
    let replica = Server::without_module().start();
    let mut connection = replica.connect();
    redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(master.port())
        .exec(&mut connection)
        .expect("any server can be a replica");
    eventually(Duration::from_secs(30), || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut connection).ok()?;
        info.contains("master_link_status:up").then_some(())
    });
    replica
}
