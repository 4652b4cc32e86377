//! The servers, and everybody's connections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use redis_lock_testkit::{Flavor, Server, Version};

use crate::cast::Owner;
use crate::clock::wall_ms;
use crate::connection::Connection;
use crate::fleet::Fleet;
use crate::foreign::Trade;
use crate::journal::Journal;
use crate::play::Play;
use crate::resp::{Reply, words};
use crate::segment::Segment;
use crate::shadow::{Hash, Shadow};
use crate::stream::Stream;
use crate::tally::Tally;

/// Where a module listens, this server leaves a client in the other database after a MOVE or a COPY
/// between two, and replicates them wrongly (valkey-io/valkey#4024).
const MISLED: Version = Version { flavor: Flavor::Valkey, major: 8, minor: 1 };

/// How long a replica may take to be in sync.
const SYNC: Duration = Duration::from_secs(20);

/// A server with a replica, and who plays.
#[derive(Debug)]
pub struct Stage {
    /// The play.
    pub play: Play,
    /// A real replica, as seen by a client.
    replica: Connection,
    /// The master.
    pub server: Server,
    _replica: Server,
}

impl Stage {
    /// Starts everything.
    ///
    /// # Errors
    /// When a server can't be had.
    pub fn set(seed: u64, clients: usize) -> anyhow::Result<Self> {
        let server = Server::with_module()
            .config("repl-ping-replica-period", "3600")
            .config("repl-backlog-size", "256kb")
            .try_start()?;
        let master = format!("127.0.0.1 {}", server.port());
        let replica_server =
            Server::with_module().config("replicaof", &master.replace(':', " ")).try_start()?;
        let mut replica = Connection::open(replica_server.port())?;
        let since = Instant::now();
        loop {
            let info = replica.ask(&words("INFO replication"))?;
            if String::from_utf8_lossy(info.text().unwrap_or_default()).contains("master_link_status:up") {
                break;
            }
            ensure!(since.elapsed() < SYNC, "the replica does not get in sync");
        }
        let mut admin = Connection::open(server.port())?;
        let (payload, template) = make_template(&mut admin)?;
        let stream = Stream::follow(server.port())?;
        admin.ask(&words("SELECT 2"))?;
        let fleet = Fleet::connect(server.port(), clients)?;
        let play = Play {
            seed,
            fleet,
            admin,
            stream,
            shadow: Shadow::new(template),
            trade: Trade { payload, carries: true, between_databases: server.version() != MISLED },
            journal: Journal::default(),
            tally: Tally::default(),
            round: 0,
            serial: 0,
            fence: 0,
            previous: Segment::default(),
            current: Segment::default(),
            before: Segment::default(),
            withdrawals: HashMap::new(),
        };
        Ok(Self { play, replica, server, _replica: replica_server })
    }

    /// Compares the data of master and replica.
    ///
    /// # Errors
    /// When they differ.
    pub fn compare_replica(&mut self) -> anyhow::Result<()> {
        self.play.compare_replica(&mut self.replica)
    }
}

/// A lock for RESTORE to put at keys: what DUMP says of it, and what it is.
fn make_template(admin: &mut Connection) -> anyhow::Result<(Vec<u8>, Hash)> {
    let owner = Owner(0);
    let acquire = vec![b"LOCK.ACQUIRE".to_vec(), b"template".to_vec(), owner.name(), b"60000".to_vec()];
    let replies = admin.ask_all(&[acquire, words("DUMP template"), words("DEL template")])?;
    let [_, _, token] = replies[0].integers().context("no template")?;
    let Reply::Text(payload) = &replies[1] else { bail!("DUMP: {:?}", replies[1]) };
    let end = Some(wall_ms());
    Ok((payload.clone(), Hash { owners: [(owner, 1)].into(), token, end }))
}
