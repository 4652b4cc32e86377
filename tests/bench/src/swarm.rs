//! Many connections served by one thread, which leaves the server its processor.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::ensure;
use redis::Value;
use redis_lock_testkit::Server;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::peer::Peer;

/// How many connections are looked after in one go.
const AT_ONCE: usize = 1_024;

/// No reply is late by this much.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections by number.
#[derive(Debug)]
pub struct Swarm {
    epoll: OwnedFd,
    peers: Vec<Peer>,
}

/// A reply, and when it was read.
#[derive(Debug)]
pub struct Heard {
    /// The connection's number.
    pub peer: usize,
    /// What the server says.
    pub reply: Value,
    /// When.
    pub at: Instant,
}

impl Swarm {
    /// Opens this many connections.
    pub fn connect(
        server: &Server,
        count: usize,
        open: impl Fn(&Server) -> anyhow::Result<Peer>,
    ) -> anyhow::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut peers = Vec::with_capacity(count);
        for number in 0..count {
            let peer = open(server)?;
            epoll::add(&epoll, &peer, EventData::new_u64(u64::try_from(number)?), EventFlags::IN)?;
            peers.push(peer);
        }
        Ok(Self { epoll, peers })
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Sends a command on this connection.
    pub fn send(&self, peer: usize, command: &[&str]) -> anyhow::Result<()> {
        self.peers[peer].send(command)
    }

    /// Sends a command that has been packed.
    pub fn send_packed(&self, peer: usize, command: &[u8]) -> anyhow::Result<()> {
        self.peers[peer].send_packed(command)
    }

    /// The replies that are there, as soon as there is one; none when `limit` has passed.
    pub fn replies_within(&mut self, limit: Duration) -> anyhow::Result<Vec<Heard>> {
        let mut events = Vec::with_capacity(AT_ONCE);
        let limit = Timespec::try_from(limit)?;
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&limit))?;
        let mut heard = Vec::with_capacity(events.len());
        for event in events {
            let number = usize::try_from(event.data.u64())?;
            let peer = &mut self.peers[number];
            peer.read()?;
            let at = Instant::now();
            while let Some(reply) = peer.take()? {
                heard.push(Heard { peer: number, reply, at });
            }
        }
        Ok(heard)
    }

    /// The replies that are there, as soon as there is one.
    pub fn replies(&mut self) -> anyhow::Result<Vec<Heard>> {
        let heard = self.replies_within(PATIENCE)?;
        ensure!(!heard.is_empty(), "no reply for {PATIENCE:?}");
        Ok(heard)
    }

    /// Waits for this many replies and hands them to `check`.
    pub fn expect(
        &mut self,
        count: usize,
        mut check: impl FnMut(&Heard) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut missing = count;
        while missing > 0 {
            let heard = self.replies()?;
            heard.iter().try_for_each(&mut check)?;
            missing = missing.saturating_sub(heard.len());
        }
        Ok(())
    }

    /// Sends this on every connection and waits for all replies.
    pub fn ask_all(&mut self, command: &[&str]) -> anyhow::Result<()> {
        for number in 0..self.len() {
            self.send(number, command)?;
        }
        self.expect(self.len(), |_| Ok(()))
    }
}
