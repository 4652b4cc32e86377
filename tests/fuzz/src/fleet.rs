//! The servers, and all connections to the one under test.

use std::io;

use anyhow::{Context as _, bail};
use redis_lock_testkit::Server;

use crate::journal::{Entry, Journal};
use crate::link::Link;
use crate::resp::{Command, Reply, words};

/// How many connections play the clients; those numbered above have a purpose.
pub const CLIENTS: usize = 4;

/// The connection that looks at keys around a command.
pub const PROBE: usize = CLIENTS;

/// The connection that hears unlocks and events.
pub const EAR: usize = CLIENTS + 1;

const LINKS: usize = CLIENTS + 2;

/// The server under test and a second one.
#[derive(Debug)]
pub struct Fleet {
    /// The server under test.
    pub server: Server,
    /// A master or a replica of it, as need be.
    pub peer: Server,
    /// What was sent.
    pub journal: Journal,
    links: Vec<Link>,
}

impl Fleet {
    /// Starts the servers and connects.
    ///
    /// # Errors
    /// When the server under test can't be reached.
    pub fn start() -> anyhow::Result<Self> {
        let builder = || {
            Server::with_module()
                .config("enable-module-command", "yes")
                .config("repl-backlog-size", "16kb")
                .config("busy-reply-threshold", "20000")
        };
        let mut fleet = Self {
            server: builder().start(),
            peer: builder().start(),
            journal: Journal::default(),
            links: Vec::new(),
        };
        fleet.reconnect()?;
        Ok(fleet)
    }

    /// Closes all connections and opens new ones.
    ///
    /// # Errors
    /// When the server can't be reached.
    pub fn reconnect(&mut self) -> anyhow::Result<()> {
        self.journal.note(Entry::Reconnect);
        self.links.clear();
        for number in 0..LINKS {
            let link = self.open(number)?;
            self.links.push(link);
        }
        Ok(())
    }

    fn open(&self, number: usize) -> anyhow::Result<Link> {
        let mut link = self.control()?;
        if number == EAR {
            link.ask(&words("HELLO 3"))?;
            link.tell(&words("PSUBSCRIBE redisson_lock__channel* __key*"))?;
        }
        Ok(link)
    }

    /// A connection of its own, for a question that is not part of the game.
    ///
    /// # Errors
    /// When the server can't be reached.
    pub fn control(&self) -> anyhow::Result<Link> {
        Link::open(self.server.port()).context("the server is gone")
    }

    /// Sends commands on a connection; `None` where the server had closed it, as it may.
    ///
    /// # Errors
    /// When the server is gone or silent, or answers nonsense.
    pub fn ask_all(&mut self, link: usize, commands: &[Command]) -> anyhow::Result<Option<Vec<Reply>>> {
        for command in commands {
            self.journal.note(Entry::Command(link, command.clone()));
        }
        match self.links[link].ask_all(commands) {
            Ok(replies) => Ok(Some(replies)),
            Err(error) => {
                self.links[link] = self.revive(link, error)?;
                Ok(None)
            }
        }
    }

    /// As [`ask_all`](Self::ask_all), but answers all that was executed, and with what replies.
    ///
    /// # Errors
    /// As [`ask_all`](Self::ask_all).
    pub fn execute(&mut self, link: usize, commands: Vec<Command>) -> anyhow::Result<Vec<(Command, Reply)>> {
        let replies = self.ask_all(link, &commands)?.unwrap_or_default();
        let link = &mut self.links[link];
        Ok(commands
            .into_iter()
            .zip(replies)
            .flat_map(|(command, reply)| link.executed(command, reply))
            .collect())
    }

    /// Sends bytes that may be anything, on a connection of their own.
    ///
    /// # Errors
    /// When the server is gone or silent.
    pub fn blurt(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        let link = self.control()?;
        link.blurt(&bytes).context("the server is silent")?;
        self.journal.note(Entry::Bytes(bytes));
        Ok(())
    }

    /// Sends a journal's entry once more.
    ///
    /// # Errors
    /// When the server is gone or silent, or answers nonsense.
    pub fn repeat(&mut self, entry: Entry) -> anyhow::Result<()> {
        match entry {
            Entry::Command(link, command) if link < LINKS => self.ask_all(link, &[command]).map(drop),
            Entry::Command(link, _) => bail!("there is no connection {link}"),
            Entry::Bytes(bytes) => self.blurt(bytes),
            Entry::Reconnect => self.reconnect(),
        }
    }

    /// A new connection for one that a server may have closed, and for no other trouble.
    fn revive(&self, link: usize, error: io::Error) -> anyhow::Result<Link> {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                self.open(link)
            }
            _ => Err(error).context("the server is silent, or what it says is no reply"),
        }
    }
}
