//! A replica of the server under test, which has to end up with the same data.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use redis_lock_testkit::{Flavor, Version};

use crate::campaign::Campaign;
use crate::health::settle;
use crate::link::Link;
use crate::resp::{Reply, words};
use crate::values::DATABASES;

/// How many differences are told.
const TOLD: usize = 5;

/// Where a module listens, this server leaves a client in the other database after a MOVE or a COPY
/// between two, and replicates them wrongly (valkey-io/valkey#4024).
const MISLED: Version = Version { flavor: Flavor::Valkey, major: 8, minor: 1 };

/// A database's number and a key in it.
type Place = (u8, Vec<u8>);

impl Campaign {
    /// Makes the second server a replica, and waits until it is one.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn attach_replica(&mut self) -> anyhow::Result<()> {
        let master = format!("REPLICAOF 127.0.0.1 {}", self.fleet.server.port());
        let mut peer = Link::open(self.fleet.peer.port())?;
        peer.ask(&words(&master))?;
        settle("the replica to be in sync", || {
            let Reply::Text(info) = peer.ask(&words("INFO replication"))? else { return Ok(None) };
            Ok(String::from_utf8_lossy(&info).contains("master_link_status:up").then_some(()))
        })
    }

    /// Checks that both servers have the same data.
    ///
    /// # Errors
    /// When they don't come to have it; the error tells where they differ.
    pub fn check_replica(&mut self) -> anyhow::Result<()> {
        if self.fleet.server.version() == MISLED {
            return Ok(());
        }
        let mut control = self.fleet.control()?;
        let mut peer = Link::open(self.fleet.peer.port())?;
        let settled = settle("the replica's data to be the same", || {
            control.ask(&words("WAIT 1 1000"))?;
            let digest = words("DEBUG DIGEST");
            Ok((control.ask(&digest)? == peer.ask(&digest)?).then_some(()))
        });
        settled.with_context(|| match differences(&mut control, &mut peer) {
            Ok(told) => told,
            Err(error) => format!("no further details: {error:#}"),
        })
    }
}

fn differences(master: &mut Link, replica: &mut Link) -> anyhow::Result<String> {
    let (ours, theirs) = (contents(master)?, contents(replica)?);
    let differs = |place: &&Place| ours.get(*place) != theirs.get(*place);
    let places = ours.keys().chain(theirs.keys().filter(|place| !ours.contains_key(*place)));
    let told = places.filter(differs).take(TOLD).map(|place| {
        let (db, key) = place;
        format!(
            "{:.100} of database {db}: {:?} {:?}",
            key.escape_ascii().to_string(),
            ours.get(place),
            theirs.get(place)
        )
    });
    Ok(told.collect::<Vec<_>>().join("\n"))
}

/// The digest and the TTL of each key.
fn contents(server: &mut Link) -> anyhow::Result<BTreeMap<Place, Vec<Reply>>> {
    let mut contents = BTreeMap::new();
    for db in 0..DATABASES {
        server.ask(&words(&format!("SELECT {db}")))?;
        let Reply::Array(keys) = server.ask(&words("KEYS *"))? else { bail!("KEYS is no array") };
        for key in keys {
            let Reply::Text(key) = key else { bail!("a key is no string") };
            let looks = ["DEBUG DIGEST-VALUE", "TYPE", "PEXPIRETIME"].map(|look| {
                let mut command = words(look);
                command.push(key.clone());
                command
            });
            contents.insert((db, key), server.ask_all(&looks)?);
        }
    }
    Ok(contents)
}
